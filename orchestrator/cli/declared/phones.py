"""Phones, virtual phones, and the adb servers between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.declared.device import device_app
from orchestrator.cli.frame import Deed, app, command, group

lab_app = group("lab", "Start and control virtual phones on this computer.")
adb_app = group("adb", "Show or stop the adb server that benchfarm started.")


@command(app, "devices")
def _devices() -> Deed:
    """List attached phones, and why one can't be used.

    Example: benchfarm devices
    """
    from orchestrator.cli import devices

    return devices.list_attached


@command(device_app, "restore")
def _restore(
    serials: Annotated[
        list[str] | None, typer.Argument(help="Serial numbers (default: all with open changes).")
    ] = None,
    take: Annotated[
        bool, typer.Option("--take", help="Include phones leased by another computer whose process is dead.")
    ] = False,
) -> Deed:
    """Restore phones that an interrupted run left changed.

    Example: benchfarm device restore SERIAL

    Also for phones that this computer changed earlier and that are attached again.
    """
    from orchestrator.cli import devices

    return lambda settings: devices.restore(settings, tuple(serials or ()), take=take)


@command(adb_app, "status")
def _adb_status() -> Deed:
    """Show which adb servers and adb program are in use.

    Example: benchfarm adb status
    """
    from orchestrator.cli import devices

    return devices.adb_status


@command(adb_app, "stop")
def _adb_stop() -> Deed:
    """Stop the adb server that benchfarm started.

    Example: benchfarm adb stop
    """
    from orchestrator.cli import devices

    return devices.adb_stop


@command(lab_app, "up")
def _lab_up(
    profiles: Annotated[
        list[str] | None, typer.Argument(help="One profile per phone. PROFILE@1-2.3 sets its USB path.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, help="Phone seconds per real second.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the phones' noise.")] = 0,
    execute: Annotated[bool, typer.Option("--execute", help="Run pushed x86-64 programs for real.")] = False,
    rooted: Annotated[bool, typer.Option("--rooted", help="Give the phones su, as on rooted ones.")] = False,
) -> Deed:
    """Start virtual phones (default: a Pixel 3 and a Pixel 4).

    Example: benchfarm lab up pixel-3 pixel-8
    """
    from orchestrator.cli import lab

    return lambda settings: lab.up(
        settings, tuple(profiles or ()), speed=speed, seed=seed, execute=execute, rooted=rooted
    )


@command(lab_app, "add")
def _lab_add(
    profile: Annotated[str, typer.Argument(help="Profile of the phone. PROFILE@1-2.3 sets its USB path.")],
    serial: Annotated[str, typer.Option(help="Serial number (default: from the profile).")] = "",
) -> Deed:
    """Attach another virtual phone.

    Example: benchfarm lab add pixel-7
    """
    from orchestrator.cli import lab

    return lambda settings: lab.add(settings, profile, serial=serial)


@command(lab_app, "remove")
def _lab_remove(serial: Annotated[str, typer.Argument(help="The phone's serial number.")]) -> Deed:
    """Detach a virtual phone. Its files stay for the next time.

    Example: benchfarm lab remove VIRTUAL-PIXEL-3
    """
    from orchestrator.cli import lab

    return lambda settings: lab.remove(settings, serial)


@command(lab_app, "down")
def _lab_down() -> Deed:
    """Stop the virtual phones and their adb server.

    Example: benchfarm lab down
    """
    from orchestrator.cli import lab

    return lab.down


@command(lab_app, "list")
def _lab_list() -> Deed:
    """List virtual phones, their faults and the profiles.

    Example: benchfarm lab list
    """
    from orchestrator.cli import lab

    return lab.list_phones


@command(lab_app, "fault")
def _lab_fault(
    serial: Annotated[
        str, typer.Argument(help="Serial number of a virtual phone (default: list the kinds of fault).")
    ] = "",
    kind: Annotated[str, typer.Argument(help="Kind of fault. 'clear' removes all faults of the phone.")] = "",
    options: Annotated[list[str] | None, typer.Argument(help="Options of the fault, name=value.")] = None,
) -> Deed:
    """Give a virtual phone a fault at a set moment.

    Example: benchfarm lab fault VIRTUAL-PIXEL-3 cut moment=run
    """
    from orchestrator.cli import lab

    return lambda settings: lab.fault(settings, serial, kind, tuple(options or ()))


@command(lab_app, "program")
def _lab_program(
    file: Annotated[Path, typer.Argument(help="File to write.")],
    program: Annotated[str, typer.Option("--program", help="Program that it imitates.")] = "benchmark_model",
    abi: Annotated[str, typer.Option("--abi", help="ABI of the program.")] = "arm64-v8a",
    version: Annotated[str, typer.Option("--version", help="Version that it reports.")] = "virtual",
    time: Annotated[
        float,
        typer.Option(
            "--time", min=-95, max=999, help="Percent by which its inferences take longer (+3) or shorter (-3)."
        ),
    ] = 0.0,
) -> Deed:
    """Write a program of known speed for virtual phones.

    Example: benchfarm lab program slow.bin --time +3
    """
    from orchestrator.cli import lab

    return lambda _: lab.program(file, name=program, abi=abi, version=version, time_percent=time)
