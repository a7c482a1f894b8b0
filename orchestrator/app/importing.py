"""Results of apps that somebody else ran, as runs of a named phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.app.beginning import new_campaign_id
from orchestrator.app.reporting import report_data, report_title, write_html
from orchestrator.bootstrap import Farm, this_computer
from orchestrator.engine.importing import ForeignRun, ImportResult
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.workload import Build, Case, Model, Pass, SkippedCase, ToolName

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: More than any app writes; a larger file was named by mistake.
_LARGEST_BYTES = 64 << 20
#: Sizes are printed with six digits.
_SIZE_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Which files are results of what."""

    files: tuple[Path, ...]
    device: str
    profile: str
    models: tuple[Path, ...]
    app: str
    name: str


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
    """Import Firebase records and Delegate Performance Benchmark reports; raises UsageError kinds and stores nothing.

    Every file is read and checked before anything is stored.
    """
    from orchestrator.engine.importing import import_runs
    from orchestrator.models.inspect import identify_model

    require_printable(device=request.device, app=request.app, name=request.name)
    models = [identify_model(path) for path in request.models]
    sources = [(path, read_source(path)) for path in request.files]
    facts = _android_facts(farm, request.device, request.profile)
    batch = _Batch(facts=facts, models=models, app=request.app)
    for path, data in sources:
        batch.add(path, data)
    if batch.faults:
        raise UsageError("nothing was imported:\n  " + "\n  ".join(batch.faults))
    used = {run.case.model_sha256 for run in batch.runs}
    result = import_runs(
        farm.store,
        farm.tools,
        new_campaign(farm, name=request.name),
        batch.runs,
        facts=[facts],
        models=[model for model in models if model.sha256 in used],
        builds=list(batch.builds.values()),
        clock=farm.clock,
    )
    return imported(farm, result, out)


def new_campaign(
    farm: Farm, *, name: str, plan_text: str = "", seed: int = 0, skipped: Sequence[SkippedCase] = ()
) -> Campaign:
    """Return a campaign for imported runs, still without them."""
    return Campaign(
        campaign_id=new_campaign_id(farm.clock.now()),
        name=name,
        created_at=farm.clock.now(),
        status=CampaignStatus.RUNNING,
        plan_text=plan_text,
        seed=seed,
        benchfarm_version=__version__,
        host=this_computer(),
        skipped=tuple(skipped),
    )


def imported(farm: Farm, result: ImportResult, out: Path | None, *, notes: Sequence[str] = ()) -> Imported:
    """Write the report of what is new, by default among the campaigns' own reports."""
    if result.campaign is None:
        return Imported(result=result, notes=notes)
    shown = report_data(farm, [result.campaign])
    path = out or farm.settings.data_folder / "reports" / f"{result.campaign.campaign_id}.html"
    write_html(shown, path, title=report_title([result.campaign]), cache_folder=farm.settings.cache_folder)
    return Imported(result=result, notes=notes, shown=shown, report=path)


def raw_output(path: Path, attachments: Sequence[Attachment], *, command: str = "") -> RawOutput:
    """Return an imported file as raw output; when the run was made isn't known, only when the file was written."""
    return RawOutput(
        command=command,
        exit_code=None,
        timed_out=False,
        started_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        duration_s=0.0,
        attachments=tuple(attachments),
    )


def require_printable(*, is_empty_fine: bool = False, **options: str) -> None:
    """Raise UsageError for an option that isn't text to be shown in one line; ``device`` and ``name`` aren't empty."""
    for option, value in options.items():
        if not value.isprintable() or (option in {"device", "name"} and not value.strip() and not is_empty_fine):
            raise UsageError(f"--{option} {value!r} isn't a text that can be shown")


def read_source(path: Path) -> bytes:
    """Return a file's bytes; raises UsageError."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise UsageError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB, which no app writes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _android_facts(farm: Farm, serial: str, profile_name: str) -> DeviceFacts:
    known = farm.store.devices().get(Serial(serial))
    if known is not None:
        if known.is_virtual or known.kind is not DeviceKind.ANDROID:
            what = "a virtual phone" if known.is_virtual else f"no Android phone ({known.kind})"
            raise UsageError(f"{serial} is {what}; results of a real phone need a name of their own")
        return known
    if not profile_name:
        return DeviceFacts(serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False)
    profile = farm.profiles.get(profile_name)
    if profile is None or profile.kind is not DeviceKind.ANDROID:
        names = ", ".join(name for name, item in farm.profiles.items() if item.kind is DeviceKind.ANDROID)
        raise UsageError(f"there is no profile of an Android phone {profile_name!r}", hint=f"there are {names}")
    clusters, first = [], 0
    for cores in profile.cluster_cores:
        clusters.append(CpuCluster(cpus=tuple(range(first, first + cores)), min_khz=None, max_khz=None))
        first += cores
    return DeviceFacts(
        serial=Serial(serial),
        kind=DeviceKind.ANDROID,
        is_virtual=False,
        model=profile.title,
        soc=profile.soc,
        clusters=tuple(clusters),
        profile=profile.name,
    )


@dataclass(slots=True)
class _Batch:
    """What the files hold, run by run, and everything that is wrong with them."""

    facts: DeviceFacts
    models: Sequence[Model]
    app: str
    runs: list[ForeignRun] = field(default_factory=list)
    builds: dict[ToolName, Build] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    #: Case and average of the Firebase records so far: the app writes each twice, as JSON and as CSV.
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, path: Path, data: bytes) -> None:
        """Take in a file's runs."""
        text = data.decode("utf-8", "replace")
        for tool in ToolName:
            results = program(tool).results
            reports = results.read(text) if results is not None else []
            for number, report in enumerate(reports):
                case = self._case(tool, report, path)
                if case is not None and not self._is_repeated(case, report):
                    self._add_run(case, path, data, number)
            if reports:
                return
        self.faults.append(
            f"{path}: neither a Firebase game-loop record nor a latency report of the Delegate Performance Benchmark"
        )

    def _add_run(self, case: Case, path: Path, data: bytes, number: int) -> None:
        from orchestrator.programs.foreign_app import SOURCE, selection

        source = Attachment(name=SOURCE, data=data)
        self.runs.append(ForeignRun(case=case, run_pass=Pass.TIMING, raw=raw_output(path, (source, selection(number)))))

    def _is_repeated(self, case: Case, report: ToolReport) -> bool:
        results = program(case.tool).results
        if results is None or not results.are_repeated or report.inference_mean_us is None:
            return False
        key = (case.case_key, f"{report.inference_mean_us:.6g}")
        is_repeated = key in self._seen
        self._seen.add(key)
        return is_repeated

    def _case(self, tool: ToolName, report: ToolReport, path: Path) -> Case | None:
        from orchestrator.programs.foreign_app import foreign_build

        where = f"{path}: {report.label}"
        results = program(tool).results
        assert results is not None
        try:
            scenario = results.scenario(report.label)
        except OutputParseError as error:
            self.faults.append(f"{where}: {error}")
            return None
        model = self._model(report, where)
        if model is None:
            return None
        build = self.builds.setdefault(tool, foreign_build(program(tool), self.app))
        return Case(
            serial=self.facts.serial,
            model_sha256=model.sha256,
            model_name=model.name,
            delegate=scenario.delegate,
            threads=scenario.threads,
            tool=tool,
            build_sha256=build.sha256,
            flags=tuple(sorted(scenario.flags)),
            affinity="all",
        )

    def _model(self, report: ToolReport, where: str) -> Model | None:
        name = report.extra.get("graph", "")
        fitting = [model for model in self.models if model.name == name] if name else list(self.models)
        if len(fitting) != 1:
            wanted = f"the model {name!r}" if name else "the one model that was measured"
            self.faults.append(f"{where}: name the file of {wanted} with --model")
            return None
        size_mb = fitting[0].size_bytes / 1e6
        if report.model_size_mb is not None and not math.isclose(
            report.model_size_mb, size_mb, rel_tol=_SIZE_TOLERANCE
        ):
            self.faults.append(
                f"{where}: its model has {report.model_size_mb:g} MB, {fitting[0].path} has {size_mb:g} MB"
            )
            return None
        return fitting[0]
