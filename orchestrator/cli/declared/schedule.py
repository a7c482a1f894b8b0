"""Schedules of a farm of many hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.declared.farm import _farm, _Priority, _require_packages
from orchestrator.cli.frame import LOOK, Deed, command

_schedule = typer.Typer(help="Run plans at set times.", **LOOK)
_farm.add_typer(_schedule, name="schedule")
_Name = Annotated[str, typer.Argument(help="Name of a schedule.")]


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """What 'farm schedule add' reads."""

    name: Annotated[str, typer.Argument(help="Name of the schedule. Its submissions are named after it.")]
    plan: Annotated[Path, typer.Argument(help="Plan file (YAML). It is stored as it is now, with its files.")]
    cron: Annotated[str, typer.Option("--cron", help='minute hour day month weekday, for example "0 1 * * *".')]
    timezone: Annotated[
        str, typer.Option("--timezone", help="Time zone of --cron and --window, such as Europe/Berlin.")
    ] = "UTC"
    priority: _Priority = 0
    window: Annotated[str, typer.Option("--window", help="When it may measure, 01:00-06:00 (default: the plan's).")] = (
        ""
    )
    budget: Annotated[str, typer.Option("--budget", help="Time budget per phone, 5h, at most the plan's.")] = ""
    grace: Annotated[str, typer.Option("--grace", help="Skip a time that is overdue by more than this.")] = "1h"
    replace: Annotated[bool, typer.Option("--replace", help="Replace a schedule of this name.")] = False


@command(_schedule, "add")
def _add(options: AddOptions) -> Deed:
    """Submit a plan at set times.

    Example: benchfarm farm schedule add nightly nightly.yaml --cron "0 1 * * *"
    """
    _require_packages()
    from orchestrator.cli import schedule

    request = schedule.AddRequest(
        name=options.name,
        plan=options.plan,
        cron=options.cron,
        timezone=options.timezone,
        priority=options.priority,
        window=options.window,
        budget=options.budget,
        grace=options.grace,
        replace=options.replace,
    )
    return lambda settings: schedule.add(settings, request)


@command(_schedule, "list")
def _list() -> Deed:
    """List schedules, with their next and missed times.

    Example: benchfarm farm schedule list
    """
    _require_packages()
    from orchestrator.cli import schedule

    return schedule.listed


@command(_schedule, "remove")
def _remove(name: _Name) -> Deed:
    """Remove a schedule. Its submissions stay.

    Example: benchfarm farm schedule remove nightly
    """
    _require_packages()
    from orchestrator.cli import schedule

    return lambda settings: schedule.remove(settings, name)


@command(_schedule, "pause")
def _pause(name: _Name) -> Deed:
    """Pause a schedule. Missed times are not run later.

    Example: benchfarm farm schedule pause nightly
    """
    _require_packages()
    from orchestrator.cli import schedule

    return lambda settings: schedule.pause(settings, name, paused=True)


@command(_schedule, "resume")
def _go_on(name: _Name) -> Deed:
    """Resume a paused schedule.

    Example: benchfarm farm schedule resume nightly
    """
    _require_packages()
    from orchestrator.cli import schedule

    return lambda settings: schedule.pause(settings, name, paused=False)
