"""``benchfarm bench``, ``run`` and ``quickstart``: a plan from options or a file, and its results."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from orchestrator.cli.campaigns import campaign_result, reporting_workspace
from orchestrator.cli.commands import Reporting, command, parameter, plan_keys
from orchestrator.cli.output import CommandResult
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace


@command("bench", keys=plan_keys())
def bench(
    settings: Settings,
    options: PlanOptions,
    reporting: Reporting,
) -> CommandResult:
    """Measure models on phones; name the fastest delegate.

    Example: benchfarm bench model.tflite

    Example: benchfarm bench model.tflite --delegate xnnpack,gpu --threads 1,4
    """
    from orchestrator.app import measuring
    from orchestrator.app.attached import Needs

    plan = measuring.bench_plan(options)
    with reporting_workspace(settings, reporting.wait) as workspace:
        measured = measuring.run_plan(workspace, plan, Needs.EACH)
        return campaign_result(workspace, measured, reporting)


_UNTIL: Final = parameter(
    "until",
    Annotated[
        str | None, Option("--until", help="Stop at this time: 06:00, or a date with a time.")
    ],
)


@command("run", keys=[*plan_keys("budget"), _UNTIL])
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
    reporting: Reporting,
) -> CommandResult:
    """Run a plan, or resume an interrupted campaign.

    Example: benchfarm run plan.yaml

    Example: benchfarm run --resume
    """
    from orchestrator.app import measuring
    from orchestrator.app.attached import Needs

    if resume and options:
        raise UsageError(
            "a resumed campaign keeps its time limits", hint="leave out --budget and --until"
        )
    limited = None if resume else _limited(settings, plan, options)
    with reporting_workspace(settings, reporting.wait, makes_store=not resume) as workspace:
        if limited is None:
            return _resumed(workspace, str(plan or ""), reporting)
        done = measuring.run_plan(workspace, limited, Needs.ONE)
        return campaign_result(workspace, done, reporting)


def _resumed(workspace: Workspace, campaign: str, reporting: Reporting) -> CommandResult:
    """Resume a campaign; succeed without one when none is named and none is open."""
    from orchestrator.app import resuming
    from orchestrator.cli.comparing import Output, pairs_result

    resumed = resuming.resume(workspace, campaign)
    if resumed is None:
        text = f"nothing is left to resume in {workspace.store.name}"
        return CommandResult(text=text, data={"campaign_id": None})
    if resumed.campaign.terms.pairing is not None:
        return pairs_result(workspace, resumed, Output(out=reporting.out).checked())
    return campaign_result(workspace, resumed, reporting)


def _limited(settings: Settings, path: Path | None, limits: PlanOptions) -> Plan:
    """Return the plan of a file with the time limits of the options."""
    from orchestrator.app import time_limits
    from orchestrator.clock import SystemClock
    from orchestrator.config.plan import load_plan

    if path is None:
        raise UsageError(
            "give either a plan file or --resume",
            hint="benchfarm run plan.yaml | benchfarm run --resume",
        )
    loaded = load_plan(path, home=settings.data_folder)
    return time_limits.limited(loaded, limits, SystemClock().now())


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
    from orchestrator.app.requests import LabRequest

    # It has its own phones: those of 'benchfarm virtual up' keep running.
    with tempfile.TemporaryDirectory(prefix="benchfarm-quickstart-") as folder:
        private = replace(settings, state_folder=Path(folder))
        lab = LabRequest(speed=_PHONE_SPEED)
        phones = virtual_phones.start(private, lab, exit_with_parent=True)
        try:
            serials = tuple(phone.serial for phone in phones)
            result = bench(private, virtual_phones.quickstart_options(serials), Reporting())
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
