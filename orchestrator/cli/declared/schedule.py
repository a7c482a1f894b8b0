"""Schedules of a farm of many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.declared.farm import _farm, _Priority, _require_packages
from orchestrator.cli.frame import LOOK, Json, show

_schedule = typer.Typer(help="Plans that the farm measures again and again.", **LOOK)
_farm.add_typer(_schedule, name="schedule")
_Name = Annotated[str, typer.Argument(help="A schedule's name.")]


@_schedule.command("add")
def _add(
    name: Annotated[str, typer.Argument(help="What the schedule is called; submissions are named after it.")],
    plan: Annotated[Path, typer.Argument(help="A plan file; it is kept as it is now, with all that it names.")],
    cron: Annotated[str, typer.Option("--cron", help='minute hour day month weekday, for example "0 1 * * *".')],
    timezone: Annotated[str, typer.Option("--timezone", help="Of cron and window, such as Europe/Berlin.")] = "UTC",
    priority: _Priority = 0,
    window: Annotated[
        str, typer.Option("--window", help="When it may measure (01:00-06:00); the plan's when left out.")
    ] = "",
    budget: Annotated[
        str, typer.Option("--budget", help="Time that each phone may take (5h), never more than the plan's.")
    ] = "",
    grace: Annotated[str, typer.Option("--grace", help="A time that is seen later than this is missed.")] = "1h",
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of a schedule of this name.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a plan by cron, once each time whatever the number of workers."""
    _require_packages()
    from orchestrator.cli import schedule

    request = schedule.AddRequest(
        name=name,
        plan=plan,
        cron=cron,
        timezone=timezone,
        priority=priority,
        window=window,
        budget=budget,
        grace=grace,
        replace=replace,
    )
    show(lambda settings: schedule.add(settings, request), as_json=as_json)


@_schedule.command("list")
def _list(as_json: Json = False) -> None:
    """List schedules, when they are due next, and what was missed."""
    _require_packages()
    from orchestrator.cli import schedule

    show(schedule.listed, as_json=as_json)


@_schedule.command("remove")
def _remove(name: _Name, as_json: Json = False) -> None:
    """Forget a schedule; what it submitted stays."""
    _require_packages()
    from orchestrator.cli import schedule

    show(lambda settings: schedule.remove(settings, name), as_json=as_json)


@_schedule.command("pause")
def _pause(name: _Name, as_json: Json = False) -> None:
    """Let a schedule rest; what is due meanwhile is not made up for."""
    _require_packages()
    from orchestrator.cli import schedule

    show(lambda settings: schedule.pause(settings, name, paused=True), as_json=as_json)


@_schedule.command("go-on")
def _go_on(name: _Name, as_json: Json = False) -> None:
    """End a schedule's rest."""
    _require_packages()
    from orchestrator.cli import schedule

    show(lambda settings: schedule.pause(settings, name, paused=False), as_json=as_json)
