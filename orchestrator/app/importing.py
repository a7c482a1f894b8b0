"""Results of benchmark apps that somebody else started, as stored and judged runs of a named device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orchestrator import __version__
from orchestrator.app.beginning import new_campaign_id
from orchestrator.app.options import Paths, arg, opt
from orchestrator.app.reporting import report_data, report_title, write_html
from orchestrator.bootstrap import Farm, this_computer
from orchestrator.engine.importing import ForeignRun, ImportBatch, ImportResult
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.programs import program, programs
from orchestrator.programs.foreign_app import foreign_build, source_of
from orchestrator.programs.specification import Results
from orchestrator.records.campaign import Campaign, CampaignStatus, Origin
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.workload import Case, Model, ToolName

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: More than any app writes; a larger file was named by mistake.
_LARGEST_BYTES = 64 << 20
#: Sizes are printed with six digits.
_SIZE_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Which files are results of what."""

    files: Annotated[
        Paths,
        arg("A bundle, a session's folder, leaderboard JSONL, or the iOS app's console text."),
    ]
    device: Annotated[str, opt("--device -s", "Serial number or name of the measured phone.")] = ""
    models: Annotated[Paths, opt("--model -m", "Measured model. Repeat for several.")] = ()
    profile: Annotated[str, opt("--profile", "Profile of a phone that isn't known.")] = ""
    app: Annotated[str, opt("--app", "File of the app (with a slash), or its version.")] = ""
    name: Annotated[str, opt("--name", "Name of the campaign.")] = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did."""

    result: ImportResult
    #: What people should know beside it.
    notes: Sequence[str] = ()
    #: The cases of what is new as a report shows them, and where that report was written; None when nothing is new.
    shown: ReportData | None = None
    report: Path | None = None
    #: How many of the source's jobs were left out.
    left_out: int = 0

    @property
    def without_result(self) -> int:
        """How many of the new runs have no result."""
        return sum(run.is_without_result for run in self.result.runs)


def import_files(farm: Farm, request: ImportRequest, out: Path | None) -> Imported:
    """Import results of TensorFlow's iOS app; raises UsageError kinds.

    Every file is read and checked before anything is stored.
    """
    from orchestrator.models.inspect import identify_model

    require_printable(device=request.device, app=request.app, name=request.name)
    models = [identify_model(path) for path in request.models]
    sources = [(path, read_source(path)) for path in request.files]
    facts = _facts(farm, request.device, request.profile)
    batch = ImportBatch(devices={facts.serial: facts})
    readers = [
        (each.name, each.results) for each in programs() if each.results is not None and each.results.kind is facts.kind
    ]
    if not readers:
        raise UsageError(
            f"no app's results are read for {facts.serial}, an {facts.kind.value} device",
            hint="those of TensorFlow's iOS app are: name an iPhone, --profile iphone-xs",
        )
    for path, data in sources:
        text = data.decode("utf-8", "replace")
        found = next(((tool, results, reports) for tool, results in readers if (reports := results.read(text))), None)
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
    return store(farm, batch, name=request.name, out=out)


def store(
    farm: Farm,
    batch: ImportBatch,
    *,
    name: str,
    out: Path | None,
    origin: Origin | None = None,
    notes: Sequence[str] = (),
) -> Imported:
    """Store a batch as a campaign and write the report of what is new, by default among the campaigns' own reports."""
    from orchestrator.engine.importing import import_runs

    campaign = Campaign(
        campaign_id=new_campaign_id(farm.clock.now()),
        name=name,
        created_at=farm.clock.now(),
        status=CampaignStatus.RUNNING,
        plan_text="",
        seed=0,
        benchfarm_version=__version__,
        host=this_computer(),
    )
    campaign = replace(campaign, terms=replace(campaign.terms, origin=origin))
    result = import_runs(farm.store, farm.tools, campaign, batch, clock=farm.clock)
    if result.campaign is None:
        return Imported(result=result, notes=notes, left_out=len(batch.faults))
    shown = report_data(farm, [result.campaign])
    path = out or farm.settings.data_folder / "reports" / f"{result.campaign.campaign_id}.html"
    write_html(shown, path, title=report_title([result.campaign]), cache_folder=farm.settings.cache_folder)
    return Imported(result=result, notes=notes, shown=shown, report=path, left_out=len(batch.faults))


def raw_output(
    path: Path,
    attachments: Sequence[Attachment],
    *,
    command: str = "",
    exit_code: int | None = None,
    at: datetime | None = None,
) -> RawOutput:
    """Return what an imported run left behind; where nothing says when it was made, the file's time is taken."""
    return RawOutput(
        command=command,
        exit_code=exit_code,
        timed_out=False,
        started_at=at or datetime.fromtimestamp(path.stat().st_mtime, UTC),
        duration_s=0.0,
        attachments=tuple(attachments),
    )


def require_printable(**options: str) -> None:
    """Raise UsageError for an option that isn't text to be shown in one line; ``device`` and ``name`` aren't empty."""
    for option, value in options.items():
        if not value.isprintable() or (option in {"device", "name"} and not value.strip()):
            raise UsageError(f"--{option} {value!r} isn't a text that can be shown")


def read_source(path: Path) -> bytes:
    """Return a file's bytes; raises UsageError."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise UsageError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB, which no app writes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _facts(farm: Farm, serial: str, profile_name: str) -> DeviceFacts:
    """Return what is known of the device: as it is stored, else what its profile declares."""
    known = farm.store.devices().get(Serial(serial))
    if known is not None:
        if known.is_virtual or known.kind is DeviceKind.HOST:
            what = "a virtual phone" if known.is_virtual else "a computer"
            raise UsageError(f"{serial} is {what}; results of a real phone need a name of their own")
        return known
    if not profile_name:
        return DeviceFacts(serial=Serial(serial), kind=DeviceKind.IOS, is_virtual=False)
    profile = farm.profiles.get(profile_name)
    if profile is None or profile.kind is DeviceKind.HOST:
        names = ", ".join(name for name, item in farm.profiles.items() if item.kind is not DeviceKind.HOST)
        raise UsageError(f"there is no profile of a phone {profile_name!r}", hint=f"there are {names}")
    clusters, first = [], 0
    for cores in profile.cluster_cores:
        clusters.append(CpuCluster(cpus=tuple(range(first, first + cores)), min_khz=None, max_khz=None))
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
    """Return the case of one report, with its model and build in the batch; raises OutputParseError."""
    scenario = results.scenario(report)
    size_mb = report.model_size_mb
    fitting = [
        model
        for model in models
        if size_mb is None or math.isclose(size_mb, model.size_bytes / 1e6, rel_tol=_SIZE_TOLERANCE)
    ]
    if len(fitting) != 1:
        size = f", of {size_mb:g} MB" if size_mb is not None else ""
        given = "".join(f"; {model.path} has {model.size_bytes / 1e6:g} MB" for model in models if size)
        raise OutputParseError(f"name the file of the one model that was measured{size} with --model{given}")
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
