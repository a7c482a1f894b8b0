"""``benchfarm bench``, ``run`` and ``quickstart``: a plan from options or a file, and what came of
it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from orchestrator.app import measuring, time_limits
from orchestrator.app.measuring import (
    CampaignInterruptedError,
    MeasuredCampaign,
    read_again,
    stopped,
)
from orchestrator.app.options import arg, opt
from orchestrator.app.reporting import report_title, write_html
from orchestrator.app.workspace import Workspace
from orchestrator.cli.frame import HtmlOut, Legend, PlanKeys, Wait, command
from orchestrator.cli.live import workspace_telling
from orchestrator.cli.result import CUT_EXIT_CODE, CommandResult, Streamed
from orchestrator.cli.terminal import columns, command_lines, say
from orchestrator.clock import SystemClock
from orchestrator.engine.events import Notice
from orchestrator.errors import BenchfarmError, HostStorageError, UsageError
from orchestrator.files import check_writable
from orchestrator.records.case import SkippedCase
from orchestrator.records.plan import PlanOptions
from orchestrator.settings import Settings
from orchestrator.tables.column import fields_of
from orchestrator.tables.escapes import one_line, wrap
from orchestrator.units import counted


@command("bench")
def bench(
    settings: Settings,
    options: Annotated[PlanOptions, PlanKeys()],
    out: HtmlOut = None,
    wait: Wait = "",
    *,
    legend: Legend = False,
) -> CommandResult:
    """Measure models on phones; name the fastest delegate.

    Example: benchfarm bench model.tflite

    Example: benchfarm bench model.tflite --delegate xnnpack,gpu --threads 1,4
    """
    # Whoever waits for an answer asks for a reference workload when it is wanted.
    plan = measuring.bench_plan({"reference_check": False, **options})
    if out is not None:
        check_writable(out)
    with workspace_telling(settings) as workspace:
        workspace.wait = time_limits.waiting(wait)
        with _table_at_interrupt(settings):
            measured = measuring.run(workspace, plan, despite_losses=False)
        return told(workspace, measured, out, legend=legend)


@contextmanager
def _table_at_interrupt(settings: Settings) -> Iterator[None]:
    """Print what was measured when Ctrl-C ends a campaign."""
    try:
        yield
    except CampaignInterruptedError as error:
        from orchestrator.report.tables import text_lines

        if settings.log_format == "text":
            lines = text_lines(error.data, columns())
            say("\n".join(line for line, _ in lines), looks=[look for _, look in lines], err=True)
        raise


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """How a plan is run."""

    resume: Annotated[
        bool,
        opt(
            "--resume",
            "Resume an interrupted campaign (default: the newest open one that has runs).",
        ),
    ] = False
    until: Annotated[str, opt("--until", "Stop at this time: 06:00, or a date with a time.")] = ""
    wait: Wait = ""
    out: HtmlOut = None
    legend: Legend = False


@command("run")
def run(
    settings: Settings,
    options: Annotated[PlanOptions, PlanKeys("budget")],
    request: RunRequest,
    plan: Annotated[
        Path | None, arg("Plan file (YAML); with --resume a campaign's id or the beginning of it.")
    ] = None,
) -> CommandResult:
    """Run a plan, or resume an interrupted campaign.

    Example: benchfarm run plan.yaml

    Example: benchfarm run --resume
    """
    from orchestrator.config.plan import load_plan

    if request.resume:
        if options or request.until:
            raise UsageError(
                "a campaign keeps the time that it began with",
                hint="leave out --budget and --until",
            )
        return _resumed(settings, str(plan or ""), request)
    if plan is None:
        raise UsageError(
            "give either a plan file or --resume",
            hint="benchfarm run plan.yaml | benchfarm run --resume",
        )
    loaded = load_plan(plan, home=settings.data_folder)
    limited = time_limits.limited(
        loaded, budget=options.get("budget", ""), until=request.until, now=SystemClock().now()
    )
    if request.out is not None:
        check_writable(request.out)
    with workspace_telling(settings) as workspace:
        workspace.wait = time_limits.waiting(request.wait)
        with _table_at_interrupt(settings):
            measured = measuring.run(workspace, limited)
        return told(workspace, measured, request.out, legend=request.legend)


def _resumed(settings: Settings, campaign: str, request: RunRequest) -> CommandResult:
    """Resume a campaign; when none is named and none is open, nothing is left, and all is well."""
    from orchestrator.app import resuming
    from orchestrator.cli.comparing import Output, told_pairs

    if request.out is not None:
        check_writable(request.out)
    with workspace_telling(settings, makes_store=False) as workspace:
        workspace.wait = time_limits.waiting(request.wait)
        done = resuming.resume(workspace, campaign)
        if done is None:
            text = f"nothing is left to resume in {workspace.store.name}"
            return CommandResult(text=text, data={"campaign_id": None})
        return (
            told(workspace, done, request.out)
            if isinstance(done, MeasuredCampaign)
            else told_pairs(workspace, done, Output())
        )


def told(
    workspace: Workspace, measured: MeasuredCampaign, out: Path | None, *, legend: bool = False
) -> CommandResult:
    """Write a campaign's report, and return its result; raises what ended a device's part."""
    summary = _summary(workspace, measured, out, legend=legend)
    if (fault := measured.result.fault) is not None:
        # What the others measured has its report; the fault is told as any other, by its own exit
        # code.
        text, keys = (
            summary.text.rpartition("\n")[2],
            {"campaign_id": measured.campaign.campaign_id},
        )
        workspace.observer.on_event(Notice(event="report", text=text, keys=keys))
        raise fault
    return summary


def _skip_lines(skipped: Iterable[SkippedCase]) -> list[str]:
    """Return what wasn't run and why, once for all devices that it is true of."""
    serials: dict[str, dict[str, None]] = {}
    for skip in skipped:
        serials.setdefault(f"{skip.delegate}, {skip.tool}: {skip.reason}", {})[skip.serial] = None
    return [
        one_line(
            f"not run on {next(iter(where)) if len(where) == 1 else f'{len(where)} devices'}: {text}"
        )
        for text, where in serials.items()
    ]


def _summary(
    workspace: Workspace, measured: MeasuredCampaign, out: Path | None, *, legend: bool
) -> CommandResult:
    from orchestrator.report.tables import text_lines
    from orchestrator.report.winners import fastest_table, next_steps, winners

    campaign, result, data = measured.campaign, measured.result, measured.data
    path = out or workspace.settings.data_folder / "reports" / f"{campaign.campaign_id}.html"
    unwritten = ""
    try:
        write_html(data, path, title=report_title([campaign]))
    except (UsageError, HostStorageError) as error:
        # What was measured is stored; a report can be rendered again.
        unwritten = str(error)
    cut, missing = measured.cut, measured.missing
    again = read_again(workspace, [*measured.coarser, campaign])
    found = winners(data.contests)
    won = fastest_table(found)
    advice = next_steps(found, campaign.terms.files)
    problems = [time_limits.told(cut)] if cut else []
    problems += _skip_lines(campaign.skipped)
    problems += [f"{serial}: {one_line(reason)}" for serial, reason in result.lost.items()]
    lacking = measured.opened.choice.lacking
    problems += [lacking] if lacking else []
    problems += [one_line(f"{serial}: not measured: {why}") for serial, why in missing.items()]
    nothing_clean = measured.nothing_clean
    nothing_clean += (
        "; 'benchfarm report' shows the findings and what to do about them" if nothing_clean else ""
    )
    problems += [one_line(nothing_clean)] if nothing_clean else []
    if result.left:
        least = "at least " if campaign.terms.stopping is not None else ""
        problems.append(f"{least}{counted(result.left, 'run')} left: 'benchfarm run --resume'")
    further = [line for text in advice if found for line in command_lines(one_line(text))]
    if unwritten:
        further.append(f"the report could not be written: {unwritten}")
        further.append(f"'benchfarm report {campaign.campaign_id} --out FILE' renders it again")
    else:
        further.append(f"{counted(result.stored, 'run')}; report: {path}")
    width = columns()
    lines = text_lines(data, width, legend=legend)
    # What is to be typed or opened stays whole.
    lines += [("", "")] + [(line, "doubt") for text in problems for line in wrap(text, width)]
    lines += [(text, "") for text in further]
    is_lacking = measured.without_result or result.left or missing or nothing_clean
    return CommandResult(
        text="\n".join(line for line, _ in lines),
        looks=[look for _, look in lines],
        data={
            "campaign_id": campaign.campaign_id,
            "status": campaign.status,
            **fields_of(result, "stored", "not_run", "left", "lost"),
            "stopped": Streamed(lambda: stopped(campaign, again())),
            "without_result": measured.without_result,
            "nothing_clean": nothing_clean,
            "winners": [won.record(item) for item in found],
            "next": advice,
            "no_time_for": cut,
            "lacking": lacking,
            "missing": missing,
            "left_out": measured.opened.left_out,
            "report": None if unwritten else path,
            "runs": Streamed(again),
        },
        is_kept=True,
        exit_code=HostStorageError.exit_code
        if unwritten
        else int(bool(is_lacking or measured.has_wrong_outputs)) or CUT_EXIT_CODE * bool(cut),
    )


#: Virtual phones may live faster than we do; what they report is in their own time.
_PHONE_SPEED = 8.0


@command("quickstart")
def quickstart(settings: Settings) -> CommandResult:
    """Try everything on virtual phones and this computer.

    The results are stored as those of any other campaign; --home keeps them apart.

    Example: benchfarm quickstart

    Example: benchfarm --home /tmp/try quickstart
    """
    from orchestrator.app import virtual_phones

    # Its phones are its own: those of 'benchfarm virtual up' go on.
    with tempfile.TemporaryDirectory(prefix="benchfarm-quickstart-") as folder:
        own = replace(settings, state_folder=Path(folder))
        wanted = virtual_phones.LabRequest(speed=_PHONE_SPEED)
        phones = virtual_phones.start(own, wanted, exit_with_parent=True)
        try:
            serials = tuple(phone.serial for phone in phones)
            result = bench(own, virtual_phones.quickstart_options(serials), None)
        finally:
            # What went wrong before is told.
            with suppress(BenchfarmError):
                virtual_phones.stop(own)
    text = (
        f"{result.text}\n"
        f"store: {settings.store}; 'benchfarm table' and 'benchfarm results list' read it\n"
        "Figures of phones marked 'virtual' are made up by a model of such a phone; those of this computer are real."
    )
    return replace(result, text=text, data={"virtual": phones, "campaign": result.data})
