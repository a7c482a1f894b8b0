"""Experiments on one phone, and what is left changed on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show, split

device_app = group(
    "device", "One phone: how it is best brought to rest, what a mode costs on it, what was left changed."
)

Serial = Annotated[str, typer.Argument(help="Serial number of the phone.")]
Invocations = Annotated[int, typer.Option("--invocations", "-n", min=4, max=1000, help="Of each side of a trial.")]
Wait = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait for the phone to be fit.")]
MinSecs = Annotated[float, typer.Option("--min-secs", min=0.05, help="Seconds that one invocation measures.")]


@device_app.command("check")
def _check(
    serials: Annotated[
        list[str] | None, typer.Option("--serial", "-s", help="Serial number (default: all attached phones).")
    ] = None,
    apk: Annotated[Path | None, typer.Option("--apk", help="An app to install and remove again.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the report is written.")] = None,
    as_json: Json = False,
) -> None:
    """Try everything that benchfarm relies on, on the phone itself, in under a minute.

    Example: benchfarm device check -s 0A1B2C3D

    Prints what works, what works another way and what is missing, with what that costs. The phone is left as it was.
    One file, without the phone's serial number, is written to attach to a bug report. Exit code 3 when a check fails.
    """
    from orchestrator.cli import checking

    show(lambda settings: checking.check(settings, split(serials), apk=apk, out=out), as_json=as_json)


@device_app.command("tune")
def _tune(
    serial: Serial,
    options: Annotated[
        list[str] | None, typer.Option("--option", help="Try these only: airplane, fixed_performance ... (a,b).")
    ] = None,
    invocations: Invocations = 8,
    wait_s: Wait = 600.0,
    min_secs: MinSecs = 0.5,
    as_json: Json = False,
) -> None:
    """Try each way of keeping a phone quiet, and keep those that make it scatter less."""
    from orchestrator.cli import tuning

    show(
        lambda settings: tuning.tune(
            settings, serial, split(options), invocations=invocations, wait_s=wait_s, min_secs=min_secs
        ),
        as_json=as_json,
    )


@device_app.command("bias")
def _bias(
    serial: Serial,
    invocations: Invocations = 8,
    wait_s: Wait = 600.0,
    min_secs: MinSecs = 0.5,
    as_json: Json = False,
) -> None:
    """Measure foreground app, shell and shell as the top app against each other."""
    from orchestrator.cli import tuning

    show(
        lambda settings: tuning.bias(settings, serial, invocations=invocations, wait_s=wait_s, min_secs=min_secs),
        as_json=as_json,
    )


@device_app.command("release")
def _release(serial: Serial, as_json: Json = False) -> None:
    """Let a phone in again that was put in quarantine."""
    from orchestrator.cli import devices

    show(lambda settings: devices.release(settings, serial), as_json=as_json)


@device_app.command("audit")
def _audit(serial: Serial, as_json: Json = False) -> None:
    """Compare a phone with what it was before benchfarm changed anything; exit code 1 for a difference."""
    from orchestrator.cli import tuning

    show(lambda settings: tuning.audit(settings, serial), as_json=as_json)
