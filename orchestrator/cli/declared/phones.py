"""Phones, virtual phones, and the adb servers between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, app, group, show

lab_app = group("lab", "Virtual phones on this computer, behind a real adb server.")
adb_app = group("adb", "The adb server that benchfarm starts when none is running.")


@app.command("devices")
def _devices(as_json: Json = False) -> None:
    """List the phones that are attached, and why one can't be used."""
    from orchestrator.cli import devices

    show(devices.list_attached, as_json=as_json)


@app.command("restore")
def _restore(
    serials: Annotated[list[str] | None, typer.Argument(help="Serial numbers; all with open changes else.")] = None,
    take: Annotated[
        bool, typer.Option("--take", help="Also phones that another computer holds; its process must be dead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put phones back as they were before a run that could not do so itself."""
    from orchestrator.cli import devices

    show(lambda settings: devices.restore(settings, tuple(serials or ()), take=take), as_json=as_json)


@adb_app.command("status")
def _adb_status(as_json: Json = False) -> None:
    """Say which adb servers are in use and where their binary is."""
    from orchestrator.cli import devices

    show(devices.adb_status, as_json=as_json)


@adb_app.command("stop")
def _adb_stop(as_json: Json = False) -> None:
    """Stop the adb server that benchfarm started; any other is left alone."""
    from orchestrator.cli import devices

    show(devices.adb_stop, as_json=as_json)


@lab_app.command("up")
def _lab_up(
    profiles: Annotated[
        list[str] | None, typer.Argument(help="Profiles, one for each phone; PROFILE@1-2.3 says at which USB path.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, help="How many phone seconds pass in a real one.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the phones' noise.")] = 0,
    execute: Annotated[bool, typer.Option("--execute", help="Run pushed x86-64 programs for real.")] = False,
    rooted: Annotated[bool, typer.Option("--rooted", help="Have su on the phones, as on rooted ones.")] = False,
    as_json: Json = False,
) -> None:
    """Start virtual phones (a Pixel 3 and a Pixel 4 when none is named) and an adb server for them."""
    from orchestrator.cli import lab

    show(
        lambda settings: lab.up(
            settings, tuple(profiles or ()), speed=speed, seed=seed, execute=execute, rooted=rooted
        ),
        as_json=as_json,
    )


@lab_app.command("add")
def _lab_add(
    profile: Annotated[str, typer.Argument(help="The phone's profile; PROFILE@1-2.3 says at which USB path.")],
    serial: Annotated[str, typer.Option(help="Its serial number; default: by its profile.")] = "",
    as_json: Json = False,
) -> None:
    """Plug one more virtual phone in."""
    from orchestrator.cli import lab

    show(lambda settings: lab.add(settings, profile, serial=serial), as_json=as_json)


@lab_app.command("remove")
def _lab_remove(
    serial: Annotated[str, typer.Argument(help="The phone's serial number.")], as_json: Json = False
) -> None:
    """Unplug a virtual phone; what lies on it stays for the next time."""
    from orchestrator.cli import lab

    show(lambda settings: lab.remove(settings, serial), as_json=as_json)


@lab_app.command("down")
def _lab_down(as_json: Json = False) -> None:
    """Stop the virtual phones and their adb server."""
    from orchestrator.cli import lab

    show(lab.down, as_json=as_json)


@lab_app.command("list")
def _lab_list(as_json: Json = False) -> None:
    """List the virtual phones, their faults, and the profiles that there are."""
    from orchestrator.cli import lab

    show(lab.list_phones, as_json=as_json)


@lab_app.command("fault")
def _lab_fault(
    serial: Annotated[
        str, typer.Argument(help="Serial number of a virtual phone; empty lists the kinds of fault.")
    ] = "",
    kind: Annotated[str, typer.Argument(help="Kind of fault; 'clear' takes all faults of the phone back.")] = "",
    options: Annotated[list[str] | None, typer.Argument(help="Options of the fault, name=value.")] = None,
    as_json: Json = False,
) -> None:
    """Give a virtual phone a fault at a named moment or byte count."""
    from orchestrator.cli import lab

    show(lambda settings: lab.fault(settings, serial, kind, tuple(options or ())), as_json=as_json)


@lab_app.command("program")
def _lab_program(
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    program: Annotated[str, typer.Option("--program", help="Which program it stands in for.")] = "benchmark_model",
    abi: Annotated[str, typer.Option("--abi", help="For which ABI.")] = "arm64-v8a",
    version: Annotated[str, typer.Option("--version", help="What it says that it is.")] = "virtual",
    time: Annotated[
        float, typer.Option("--time", min=-95, max=999, help="Percent that its inferences take longer (+3) or shorter.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Write a program for virtual phones whose speed is known, to see comparisons find it."""
    from orchestrator.cli import lab

    show(
        lambda _: lab.program(file, name=program, abi=abi, version=version, time_percent=time),
        as_json=as_json,
    )
