"""``benchfarm trace``: writes the trace of a run to a file and sums up the operators' time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import Argument, Option

from orchestrator.errors import OutputParseError, UsageError
from orchestrator.files import check_writable, safe_name, write_file
from orchestrator.plugins import (
    CommandResult,
    Reporting,
    campaign_result,
    command,
    facts_of,
    plan_keys,
    reporting_workspace,
)
from orchestrator.records import frozen
from orchestrator.records.case import BUILTIN
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.run import PERFETTO_FILE, Outcome, RunRecord
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.renderers import as_text
from orchestrator.tables.table import MS, Column, Kind, Table
from orchestrator.units import split

if TYPE_CHECKING:
    from orchestrator.extensions.trace.run_pass import OperatorSlices, TraceSummary
    from orchestrator.plugins import MeasuredCampaign, Workspace
    from orchestrator.store.opening import Store

_RERUN_HINT: Final = "run 'benchfarm trace' again: a resumed trace writes no file"


@frozen
class TracedRun:
    """One recorded run."""

    run_id: str
    serial: str
    outcome: Outcome
    reason: str
    is_virtual: bool
    #: The trace file; None when the run left none.
    file: Path | None = None
    size_bytes: int = 0
    #: None when it couldn't be read.
    summary: TraceSummary | None = None
    #: The reason why it couldn't be read.
    fault: str = ""


def _record(
    workspace: Workspace, model: Path, options: PlanOptions, folder: Path
) -> MeasuredCampaign:
    """Record a model on the chosen phones; raises UsageError kinds before anything runs."""
    from orchestrator.plugins import CampaignInterruptedError, run_plan

    if HOST_SERIAL in split(options.get("devices")):
        raise UsageError("traces are recorded on Android phones, not on this computer")
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder", hint="--out names the folder for the trace files"
        )
    check_writable(folder / "trace", makes_folder=True)
    try:
        return run_plan(workspace, _plan(model, options))
    except CampaignInterruptedError as error:
        error.hint = _RERUN_HINT
        raise


def _plan(model: Path, options: PlanOptions) -> Plan:
    """Return one run of each case in the pass ``trace``.

    Raises PlanError naming the options at fault.
    """
    from orchestrator.extensions.trace.run_pass import TRACE
    from orchestrator.plugins import plan_from_options

    defaults = {"delegates": [BUILTIN], "threads": [1], "num_runs": 20, "timeout": 120.0, **options}
    plan = plan_from_options(
        **defaults,
        models=[model],
        passes=[TRACE.value],
        min_secs=0.0,
        max_secs=defaults["timeout"],
        invocations=1,
        name="trace",
    )
    # A traced run's figures aren't compared with those of other nightly runs.
    return replace(plan, reference_check=False)


def _write_trace(store: Store, run: RunRecord, folder: Path) -> TracedRun:
    """Write a run's trace to a file in a folder, and summarise it."""
    from orchestrator.extensions.trace.run_pass import read_recording, summarise

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
    words = (run.case.serial, run.case.model_name, run.run_id[:8])
    path = folder / f"{'-'.join(map(safe_name, words))}.pftrace"
    write_file(path, data, makes_folder=True)
    traced = replace(traced, file=path, size_bytes=len(data))
    try:
        return replace(traced, summary=summarise(read_recording(data), command=run.command))
    except OutputParseError as error:
        return replace(traced, fault=str(error))


#: Operators that the text lists; JSON lists all.
_ROWS = 30


@command(
    "trace",
    keys=plan_keys(
        "devices delegates threads tools builds num_runs timeout",
        delegates="cpu, xnnpack, gpu, nnapi, hexagon ... (default: cpu).",
        num_runs="Inferences beside the warm-up, at least (default: 20).",
        timeout="Time that the run may take (default: 120 s).",
    ),
)
def trace(
    settings: Settings,
    model: Annotated[Path, Argument(help="Model file (.tflite).")],
    options: PlanOptions,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder for the trace files.")] = None,
) -> CommandResult:
    """Record a trace of one run.

    Example: benchfarm trace model.tflite --delegate gpu

    The trace opens in the Perfetto UI; the output sums up the time of each operator.
    """
    folder = out or settings.data_folder / "traces"
    with reporting_workspace(settings) as workspace:
        measured = _record(workspace, model, options, folder)
        # It is a campaign with a report like any other, and reports failed devices like any other.
        campaign_result(workspace, measured, Reporting())
        runs = workspace.store.runs(campaign_ids=[measured.campaign.campaign_id])
        traced = [_write_trace(workspace.store, run, folder) for run in runs]
        problems = measured.problems_with(_RERUN_HINT)
    is_lacking = measured.missing or measured.result.left or measured.result.lost
    is_whole = not is_lacking and all(
        item.file is not None and item.outcome is Outcome.COMPLETED for item in traced
    )
    return CommandResult(
        text="\n\n".join(["\n".join(_lines(run)) for run in traced] + problems)
        or "nothing was run",
        data={**facts_of(measured), "problems": problems, "traces": traced},
        exit_code=0 if traced and is_whole else 1,
    )


_MS: Final[dict[str, Any]] = {**MS, "digits": 3}
_OPERATORS: Final[Sequence[Column[OperatorSlices]]] = (
    Column(
        "name", "operator@node/subgraph", lambda item: f"{item.name}@{item.node}/{item.subgraph}"
    ),
    Column("count", "slices", lambda row: row.count, kind=Kind.COUNT),
    Column("total_us", "total", lambda row: row.total_us, **_MS),
    Column("mean_us", "mean", lambda row: row.mean_us, kind=Kind.NUMBER, unit="us", digits=1),
    Column("self_us", "own", lambda row: row.self_us, **_MS),
    Column("share", value=lambda row: row.share, kind=Kind.NUMBER, unit="%", scale=100.0, digits=1),
)


def _lines(run: TracedRun) -> Iterator[str]:
    label = " (virtual)" if run.is_virtual else ""
    if run.outcome is not Outcome.COMPLETED:
        yield one_line(f"{run.serial}{label}: the run {run.outcome}: {run.reason}")
    if run.file is None:
        yield one_line(f"{run.serial}{label}: no trace")
        return
    yield one_line(
        f"{run.serial}{label}: {run.file} ({run.size_bytes} bytes); open it at https://ui.perfetto.dev"
    )
    if run.summary is None:
        yield one_line(f"it can't be read: {run.fault}")
        return
    yield from map(one_line, _notes(run.summary))
    if operators := run.summary.operators:
        slowest = operators[:_ROWS]
        yield as_text(
            Table(name="operators", caption="Operators", columns=_OPERATORS, rows=slowest)
        )
        if more := len(operators) - len(slowest):
            yield f"and {more} more: --json lists all"
    yield "warm-up included; tracing costs time: these are shares, no result"


def _notes(summary: TraceSummary) -> Iterator[str]:
    if not summary.operators:
        yield "no operator wrote a slice: the program's runtime wasn't built for it, or the phone let it write none"
    else:
        yield f"process {summary.process} {summary.process_name}"
    yield from (f"incomplete: {gap}" for gap in summary.gaps)
