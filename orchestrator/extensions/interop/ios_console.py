"""Results of TensorFlow's iOS app, which a person starts: the text of its console, as runs of a
named device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.app.importing import (
    Imported,
    ImportRequest,
    raw_output,
    read_source,
    require_printable,
    store_import,
)
from orchestrator.engine.importing import ForeignRun, ImportBatch
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.plugins import Workspace
from orchestrator.programs import program, programs
from orchestrator.programs.foreign_app import foreign_build, source_of
from orchestrator.programs.specification import Results
from orchestrator.records.case import Case, Model, Serial, ToolName
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind
from orchestrator.records.run import ToolReport

#: Sizes are printed with six digits.
_SIZE_TOLERANCE = 1e-5


def import_files(workspace: Workspace, request: ImportRequest) -> Imported:
    """Import results of TensorFlow's iOS app; raises UsageError kinds.

    Every file is read and checked before anything is stored.
    """
    from orchestrator.models.inspect import identify_model

    if not request.device or not request.models:
        raise UsageError("these results don't say what they are of: give --serial and --model")
    require_printable(serial=request.device, app=request.app, name=request.name)
    models = [identify_model(path) for path in request.models]
    sources = [(path, read_source(path)) for path in request.files]
    facts = _facts(workspace, request.device, request.profile)
    batch = ImportBatch(devices={facts.serial: facts})
    readers = [
        (each.name, each.results)
        for each in programs()
        if each.results is not None and each.results.kind is facts.kind
    ]
    if not readers:
        raise UsageError(
            f"no app's results are read for {facts.serial}, an {facts.kind.value} device",
            hint="those of TensorFlow's iOS app are: name an iPhone, --profile iphone-xs",
        )
    for path, data in sources:
        text = data.decode("utf-8", "replace")
        found = next(
            (
                (tool, results, reports)
                for tool, results in readers
                if (reports := results.read(text))
            ),
            None,
        )
        if found is None:
            known = " or ".join(program(tool).title for tool, _ in readers)
            batch.faults.append(f"{path}: no result of {known}")
            continue
        tool, results, reports = found
        for number, report in enumerate(reports):
            try:
                case = _case(batch, facts, models, request.app, tool, results, report)
            except OutputParseError as error:
                batch.faults.append(f"{path}: {report.label or f'run {number + 1}'}: {error}")
                continue
            batch.runs.append(ForeignRun(case=case, raw=raw_output(path, source_of(data, number))))
    if batch.faults:
        raise UsageError("nothing was imported:\n  " + "\n  ".join(batch.faults))
    return store_import(workspace, batch, request=request)


def _facts(workspace: Workspace, serial: str, profile_name: str) -> DeviceFacts:
    """Return what is known of the device: as it is stored, else what its profile declares."""
    known = workspace.store.devices().get(Serial(serial))
    if known is not None:
        if known.is_virtual or known.kind is DeviceKind.HOST:
            what = "a virtual phone" if known.is_virtual else "a computer"
            raise UsageError(
                f"{serial} is {what}; results of a real phone need a name of their own"
            )
        return known
    if not profile_name:
        return DeviceFacts(serial=Serial(serial), kind=DeviceKind.IOS, is_virtual=False)
    profile = workspace.profiles.get(profile_name)
    if profile is None or profile.kind is DeviceKind.HOST:
        names = ", ".join(
            name for name, item in workspace.profiles.items() if item.kind is not DeviceKind.HOST
        )
        raise UsageError(
            f"there is no profile of a phone {profile_name!r}", hint=f"there are {names}"
        )
    clusters, first = [], 0
    for cores in profile.cluster_cores:
        clusters.append(
            CpuCluster(cpus=tuple(range(first, first + cores)), min_khz=None, max_khz=None)
        )
        first += cores
    return DeviceFacts(
        serial=Serial(serial),
        kind=profile.kind,
        is_virtual=False,
        model=profile.title,
        soc=profile.soc,
        clusters=tuple(clusters),
        profile=profile.name,
    )


def _case(
    batch: ImportBatch,
    facts: DeviceFacts,
    models: Sequence[Model],
    app: str,
    tool: ToolName,
    results: Results,
    report: ToolReport,
) -> Case:
    """Return the case of one report, with its model and build in the batch.

    Raises OutputParseError.
    """
    scenario = results.scenario(report)
    size_mb = report.model_size_mb
    fitting = [
        model
        for model in models
        if size_mb is None or math.isclose(size_mb, model.size_bytes / 1e6, rel_tol=_SIZE_TOLERANCE)
    ]
    if len(fitting) != 1:
        size = f", of {size_mb:g} MB" if size_mb is not None else ""
        given = "".join(
            f"; {model.path} has {model.size_bytes / 1e6:g} MB" for model in models if size
        )
        raise OutputParseError(
            f"name the file of the one model that was measured{size} with --model{given}"
        )
    build = foreign_build(program(tool), app)
    batch.models[fitting[0].sha256] = fitting[0]
    batch.builds[build.sha256] = build
    return Case(
        serial=facts.serial,
        model_sha256=fitting[0].sha256,
        model_name=fitting[0].name,
        delegate=scenario.delegate,
        threads=scenario.threads,
        tool=tool,
        build_sha256=build.sha256,
        flags=tuple(sorted(scenario.flags)),
        affinity="all",
        **scenario.settings,
    )
