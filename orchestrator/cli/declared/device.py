"""Experiments on one phone, and what is left changed on it."""

from __future__ import annotations

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
