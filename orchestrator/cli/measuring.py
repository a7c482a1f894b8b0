"""``benchfarm bench``, ``run`` and ``quickstart``: a plan from options or a file, and its results."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from orchestrator.cli.commands import command
from orchestrator.cli.options import HtmlOut, Legend, Wait, plan_keys
from orchestrator.cli.output import CommandResult, Streamed, columns
from orchestrator.errors import BenchfarmError, HostStorageError, UsageError
from orchestrator.files import check_writable
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.settings import Settings
from orchestrator.tables.escapes import wrap

if TYPE_CHECKING:
    from orchestrator.app.attached import Needs
    from orchestrator.app.measuring import MeasuredCampaign
    from orchestrator.app.workspace import Workspace


@command("bench", keys=plan_keys())
def bench(
    settings: Settings,
    options: PlanOptions,
    *,
    out: HtmlOut = None,
    wait: Wait = "",
    legend: Legend = False,
) -> CommandResult:
    """Measure models on phones; name the fastest delegate.

    Example: benchfarm bench model.tflite

    Example: benchfarm bench model.tflite --delegate xnnpack,gpu --threads 1,4
    """
    from orchestrator.app.attached import Needs
    from orchestrator.app.measuring import bench_plan

    return _measured(settings, bench_plan(options), out, wait, legend=legend, needs=Needs.EACH)


def _measured(
    settings: Settings, plan: Plan, out: Path | None, wait: str, *, legend: bool, needs: Needs
) -> CommandResult:
    from orchestrator.app import measuring
    from orchestrator.cli.live import reporting_workspace

    if out is not None:
        check_writable(out)
    with reporting_workspace(settings, wait) as workspace:
        measured = measuring.run(workspace, plan, needs)
        return campaign_result(workspace, measured, out, legend=legend)


@command("run", keys=plan_keys("budget"))
def run(
    settings: Settings,
    options: PlanOptions,
    plan: Annotated[
        Path | None,
        Argument(help="Plan file (YAML); with --resume a campaign's id or the beginning of it."),
    ] = None,
    *,
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="Resume an interrupted campaign (default: the newest open one that has runs).",
        ),
    ] = False,
    until: Annotated[
        str, Option("--until", help="Stop at this time: 06:00, or a date with a time.")
    ] = "",
    out: HtmlOut = None,
    wait: Wait = "",
    legend: Legend = False,
) -> CommandResult:
    """Run a plan, or resume an interrupted campaign.

    Example: benchfarm run plan.yaml

    Example: benchfarm run --resume
    """
    from orchestrator.app import time_limits
    from orchestrator.app.attached import Needs
    from orchestrator.clock import SystemClock
    from orchestrator.config.plan import load_plan

    if resume:
        if options or until:
            raise UsageError(
                "a resumed campaign keeps its time limits",
                hint="leave out --budget and --until",
            )
        return _resumed(settings, str(plan or ""), out, wait, legend=legend)
    if plan is None:
        raise UsageError(
            "give either a plan file or --resume",
            hint="benchfarm run plan.yaml | benchfarm run --resume",
        )
    loaded = load_plan(plan, home=settings.data_folder)
    limited = time_limits.limited(
        loaded, budget=options.get("budget", ""), until=until, now=SystemClock().now()
    )
    return _measured(settings, limited, out, wait, legend=legend, needs=Needs.ONE)


def _resumed(
    settings: Settings, campaign: str, out: Path | None, wait: str, *, legend: bool
) -> CommandResult:
    """Resume a campaign; succeed without one when none is named and none is open."""
    from orchestrator.app import resuming
    from orchestrator.cli.comparing import Output, pairs_result
    from orchestrator.cli.live import reporting_workspace

    if out is not None:
        check_writable(out)
    with reporting_workspace(settings, wait, makes_store=False) as workspace:
        done = resuming.resume(workspace, campaign)
        if done is None:
            text = f"nothing is left to resume in {workspace.store.name}"
            return CommandResult(text=text, data={"campaign_id": None})
        if done.campaign.terms.pairing is not None:
            return pairs_result(workspace, done, Output(out=out))
        return campaign_result(workspace, done, out, legend=legend)


def campaign_result(
    workspace: Workspace, measured: MeasuredCampaign, out: Path | None, *, legend: bool = False
) -> CommandResult:
    """Write a campaign's report, and return its result; raises the fault that ended a device's
    part.
    """
    from orchestrator.app.measuring import run_reader, stopped
    from orchestrator.app.stored import write_report
    from orchestrator.cli.live import exit_code_of, facts_of, reporting
    from orchestrator.report.tables import text_lines
    from orchestrator.report.winners import fastest_table, next_steps, winners

    campaign = measured.campaign
    path: Path | None = None
    with reporting(workspace, measured) as where:
        data = measured.data
        try:
            path = write_report(workspace.settings, data, [campaign], out)
            where.append(f"{measured.runs_text}; report: {path}")
        except (UsageError, HostStorageError) as error:
            # The results are stored; the report can be rendered again.
            where.append(f"the report could not be written: {error}")
            where.append(f"'benchfarm report {campaign.campaign_id} --out FILE' renders it again")
    again = run_reader(workspace, measured.campaigns)
    best = winners(data.contests)
    won = fastest_table(best)
    advice = next_steps(best, campaign.terms)
    further = advice if best else []
    width = columns()
    lines = text_lines(data, width, legend=legend)
    # Lines to be typed or opened aren't wrapped.
    lines += [("", "")]
    lines += [(line, "doubt") for text in measured.problems for line in wrap(text, width)]
    lines += [(text, "") for text in [*further, *where]]
    return CommandResult(
        text="\n".join(line for line, _ in lines),
        looks=[style for _, style in lines],
        data={
            **facts_of(measured),
            "stopped": Streamed(lambda: stopped(campaign, again())),
            "without_result": measured.without_result,
            "nothing_clean": measured.nothing_clean,
            "winners": [won.record(item) for item in best],
            "next": advice,
            "report": path,
            "runs": Streamed(again),
        },
        is_kept=True,
        exit_code=HostStorageError.exit_code if path is None else exit_code_of([measured]),
    )


#: Virtual phones may run faster than real time; they report times of their own clock.
_PHONE_SPEED = 8.0


@command("quickstart")
def quickstart(settings: Settings) -> CommandResult:
    """Try everything on virtual phones and this computer.

    The results are stored like any other campaign's. Use --home to keep them apart.

    Example: benchfarm quickstart

    Example: benchfarm --home /tmp/try quickstart
    """
    from orchestrator.app import virtual_phones

    # It has its own phones: those of 'benchfarm virtual up' keep running.
    with tempfile.TemporaryDirectory(prefix="benchfarm-quickstart-") as folder:
        private = replace(settings, state_folder=Path(folder))
        request = virtual_phones.LabRequest(speed=_PHONE_SPEED)
        phones = virtual_phones.start(private, request, exit_with_parent=True)
        try:
            serials = tuple(phone.serial for phone in phones)
            result = bench(private, virtual_phones.quickstart_options(serials))
        finally:
            # An earlier error is the one to report.
            with suppress(BenchfarmError):
                virtual_phones.stop(private)
    profiles = " ".join(phone.profile for phone in phones)
    text = (
        f"{result.text}\n"
        f"its phones are stopped: 'benchfarm virtual up {profiles}' starts such phones again\n"
        f"store: {settings.store_title}; 'benchfarm table' and 'benchfarm results list' read it\n"
        "Figures of phones marked 'virtual' come from a model of such a phone; those of this computer are real."
    )
    return replace(result, text=text, data={"virtual": phones, "campaign": result.data})
