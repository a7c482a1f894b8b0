"""One run under a system tracer, its file for the Perfetto UI, and what the operators took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.app import measuring
from orchestrator.app.measuring import MeasuredCampaign
from orchestrator.bootstrap import Workspace
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.trace.run_pass import TRACE
from orchestrator.extensions.trace.slices import (
    TraceSummary,
    read_recording,
    require_perfetto,
    summarise,
)
from orchestrator.files import check_writable, write_file
from orchestrator.programs import program
from orchestrator.records.case import BUILTIN, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.run import PERFETTO_FILE, Outcome, RunRecord
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

_LETTERS: Final = frozenset("._-")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """One recorded run."""

    run_id: str = ""
    serial: str
    outcome: Outcome
    reason: str
    is_virtual: bool = False
    #: Where the file was written; None when the run left none.
    file: Path | None = None
    size_bytes: int = 0
    #: None when it couldn't be read.
    summary: TraceSummary | None = None
    #: Why it couldn't be read.
    fault: str = ""


def record(
    workspace: Workspace, model: Path, options: PlanOptions, folder: Path
) -> MeasuredCampaign:
    """Record a model on the chosen phones; raises UsageError kinds before anything runs."""
    # The plan reports names that are no tool.
    named = [name for text in options.get("tools", ()) for name in split([text])]
    for tool in [tool for tool in ToolName if tool in named]:
        if DeviceKind.ANDROID not in program(tool).kinds:
            raise UsageError(
                f"{tool} can't be traced: traces are recorded on Android phones, with a program that benchfarm starts",
                hint="docs/guides/why-slow.md says how an iPhone's run is traced by hand",
            )
    require_perfetto()
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder", hint="--out names the folder for the trace files"
        )
    check_writable(folder / "trace")
    return measuring.run(workspace, _plan(model, options))


def traced_runs(workspace: Workspace, measured: MeasuredCampaign, folder: Path) -> list[TracedRun]:
    """Write what was recorded to files in a folder; devices that were lost before their run have
    none.
    """
    runs = workspace.store.runs(campaign_ids=[measured.campaign.campaign_id])
    traced = [_traced(workspace.store, run, folder) for run in runs]
    there = {run.serial for run in traced}
    lost = [
        TracedRun(serial=serial, outcome=Outcome.ABORTED, reason=reason)
        for serial, reason in measured.result.lost.items()
        if serial not in there
    ]
    return traced + lost


def _plan(model: Path, options: PlanOptions) -> Plan:
    """Return one run of each case in the pass ``trace``.

    Raises PlanError naming the options at fault.
    """
    from orchestrator.config.plan import plan_from_options

    usual = {"delegates": [BUILTIN], "threads": [1], "num_runs": 20, "timeout": 120.0, **options}
    plan = plan_from_options(
        **usual,
        models=[model],
        passes=[TRACE.value],
        min_secs=0.0,
        max_secs=usual["timeout"],
        invocations=1,
        name="trace",
    )
    # A traced run's figures aren't compared with those of other nightly runs.
    return replace(plan, reference_check=False)


def _traced(store: Store, run: RunRecord, folder: Path) -> TracedRun:
    traced = TracedRun(
        run_id=run.run_id,
        serial=run.case.serial,
        outcome=run.outcome,
        reason=run.reason,
        is_virtual=run.is_virtual,
    )
    attachments = {item.name: item.data for item in store.attachments(run.run_id)}
    data = attachments.get(PERFETTO_FILE)
    if data is None:
        return traced
    path = folder / _file_name(run.case.serial, run.case.model_name, run.run_id[:8])
    write_file(path, data)
    traced = replace(traced, file=path, size_bytes=len(data))
    try:
        return replace(traced, summary=summarise(read_recording(data), command=run.command))
    except OutputParseError as error:
        return replace(traced, fault=str(error))


def _file_name(*words: str) -> str:
    """Return a trace file's name that is made of words; no word leads out of a folder."""
    safe = [
        "".join(
            letter if letter.isascii() and (letter.isalnum() or letter in _LETTERS) else "_"
            for letter in word
        )
        for word in words
    ]
    return "-".join(word.lstrip(".-")[:60] or "unnamed" for word in safe) + ".pftrace"
