"""What is wrong with this host, or with the farm."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.declared.farm import _farm, _require_packages
from orchestrator.cli.frame import Deed, app, command


@command(app, "doctor")
def _doctor() -> Deed:
    """Check this computer, adb and the phones for problems.

    Example: benchfarm doctor
    """
    from orchestrator.cli import doctor

    return doctor.doctor


@command(_farm, "doctor")
def _farm_doctor(host_too: Annotated[bool, typer.Option("--host/--no-host", help="Include this host.")] = True) -> Deed:
    """Check queue, clocks, hosts, phones and schedules.

    Example: benchfarm farm doctor
    """
    _require_packages()
    from orchestrator.cli import doctor

    return lambda settings: doctor.farm_doctor(settings, host_too=host_too)
