"""What is wrong with this host, or with the farm."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.declared.farm import _farm, _require_packages
from orchestrator.cli.frame import Json, app, show


@app.command("doctor")
def _doctor(as_json: Json = False) -> None:
    """Check store, disk, clock, adb, phones and what dead processes left, with what to do; changes nothing."""
    from orchestrator.cli import doctor

    show(doctor.doctor, as_json=as_json)


@_farm.command("doctor")
def _farm_doctor(
    host_too: Annotated[bool, typer.Option("--host/--no-host", help="Check this host as well.")] = True,
    as_json: Json = False,
) -> None:
    """Check queue, clocks, hosts, phones, schedules and this host, with what to do; changes nothing."""
    _require_packages()
    from orchestrator.cli import farm_doctor

    show(lambda settings: farm_doctor.doctor(settings, host_too=host_too), as_json=as_json)
