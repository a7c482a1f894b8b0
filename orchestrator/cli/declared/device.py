"""Experiments on one phone, and what is left changed on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, command, group, split

device_app = group("device", "Check one phone, tune its quiet mode, and restore it.")

Serial = Annotated[str, typer.Argument(help="Serial number of the phone.")]
Invocations = Annotated[
    int, typer.Option("--invocations", "-n", min=4, max=1000, help="Processes per side of a trial.")
]
Wait = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait until the phone is ready to measure.")]
MinSecs = Annotated[float, typer.Option("--min-secs", min=0.05, help="Seconds per process.")]


@command(device_app, "check")
def _check(
    serials: Annotated[
        list[str] | None, typer.Option("--serial", "-s", help="Serial number (default: all attached phones).")
    ] = None,
    apk: Annotated[Path | None, typer.Option("--apk", help="App to install and remove again.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the report.")] = None,
) -> Deed:
    """Check on the phone everything that benchfarm relies on.

    Example: benchfarm device check -s 0A1B2C3D

    Prints what works, what works another way and what is missing, with what that costs. The phone is left as it was.
    One file, without the phone's serial number, is written to attach to a bug report. Exit code 3 when a check fails.
    """
    from orchestrator.cli import checking

    return lambda settings: checking.check(settings, split(serials), apk=apk, out=out)


@command(device_app, "quiet")
def _tune(
    serial: Serial,
    options: Annotated[
        list[str] | None, typer.Option("--option", help="Try only these: airplane, fixed_performance ... (a,b).")
    ] = None,
    invocations: Invocations = 8,
    wait_s: Wait = 600.0,
    min_secs: MinSecs = 0.5,
) -> Deed:
    """Find and keep the steps that reduce a phone's noise.

    Example: benchfarm device quiet SERIAL

    Measures each step against none. Later runs on the phone use the steps that helped.
    """
    from orchestrator.cli import experiments

    return lambda settings: experiments.quiet(
        settings, serial, split(options), invocations=invocations, wait_s=wait_s, min_secs=min_secs
    )


@command(device_app, "bias")
def _bias(serial: Serial, invocations: Invocations = 8, wait_s: Wait = 600.0, min_secs: MinSecs = 0.5) -> Deed:
    """Compare foreground app and shell on one phone.

    Example: benchfarm device bias SERIAL
    """
    from orchestrator.cli import experiments

    return lambda settings: experiments.bias(
        settings, serial, invocations=invocations, wait_s=wait_s, min_secs=min_secs
    )


@command(device_app, "release")
def _release(serial: Serial) -> Deed:
    """Release a phone from quarantine.

    Example: benchfarm device release SERIAL
    """
    from orchestrator.cli import devices

    return lambda settings: devices.release(settings, serial)


@command(device_app, "audit")
def _audit(serial: Serial) -> Deed:
    """Compare a phone with its state before any change.

    Example: benchfarm device audit SERIAL

    Exit code 1 when something differs.
    """
    from orchestrator.cli import experiments

    return lambda settings: experiments.audit(settings, serial)
