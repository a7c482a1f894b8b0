"""Phones and virtual phones, experiments on one, the adb servers between, and what is wrong with this host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.declared.farm import _farm, farm_command
from orchestrator.cli.frame import Deed, app, command, group, later, split

if TYPE_CHECKING:
    from orchestrator.app import phones
    from orchestrator.cli import devices, experiments, lab
else:
    devices, experiments, lab = later("devices experiments lab")
    (phones,) = later("phones", of="app")

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
    return lambda settings: devices.check(settings, split(serials), apk=apk, out=out)


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

    Measures each step against none. later runs on the phone use the steps that helped.
    """
    return lambda settings: experiments.quiet(
        settings, serial, split(options), invocations=invocations, wait_s=wait_s, min_secs=min_secs
    )


@command(device_app, "bias")
def _bias(serial: Serial, invocations: Invocations = 8, wait_s: Wait = 600.0, min_secs: MinSecs = 0.5) -> Deed:
    """Compare foreground app and shell on one phone.

    Example: benchfarm device bias SERIAL
    """
    return lambda settings: experiments.bias(
        settings, serial, invocations=invocations, wait_s=wait_s, min_secs=min_secs
    )


@command(device_app, "release")
def _release(serial: Serial) -> Deed:
    """Release a phone from quarantine.

    Example: benchfarm device release SERIAL
    """
    return lambda settings: phones.release_phone(settings, serial)


@command(device_app, "audit")
def _audit(serial: Serial) -> Deed:
    """Compare a phone with its state before any change.

    Example: benchfarm device audit SERIAL

    Exit code 1 when something differs.
    """
    return lambda settings: experiments.audit(settings, serial)


lab_app = group("lab", "Start and control virtual phones on this computer.")
adb_app = group("adb", "Show or stop the adb server that benchfarm started.")


@command(app, "devices")
def _devices() -> Deed:
    """List attached phones, and why one can't be used.

    Example: benchfarm devices
    """
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
    return lambda settings: devices.restore(settings, tuple(serials or ()), take=take)


@command(adb_app, "status")
def _adb_status() -> Deed:
    """Show which adb servers and adb program are in use.

    Example: benchfarm adb status
    """
    return devices.adb_status


@command(adb_app, "stop")
def _adb_stop() -> Deed:
    """Stop the adb server that benchfarm started.

    Example: benchfarm adb stop
    """
    return phones.stop_adb


@command(lab_app, "up")
def _lab_up(
    profiles: Annotated[
        list[str] | None, typer.Argument(help="One profile per phone. PROFILE@1-2.3 sets its USB path.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, help="Phone seconds per real second.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the phones' noise.")] = 0,
    rooted: Annotated[bool, typer.Option("--rooted", help="Give the phones su, as on rooted ones.")] = False,
) -> Deed:
    """Start virtual phones (default: a Pixel 3 and a Pixel 4).

    Example: benchfarm lab up pixel-3 pixel-8
    """
    from orchestrator.app.virtual_phones import Wanted

    wanted = Wanted(profiles=profiles or (), speed=speed, seed=seed, rooted=rooted)
    return lambda settings: lab.up(settings, wanted)


@command(lab_app, "add")
def _lab_add(
    profile: Annotated[str, typer.Argument(help="Profile of the phone. PROFILE@1-2.3 sets its USB path.")],
    serial: Annotated[str, typer.Option(help="Serial number (default: from the profile).")] = "",
) -> Deed:
    """Attach another virtual phone.

    Example: benchfarm lab add pixel-7
    """
    return lambda settings: lab.add(settings, profile, serial=serial)


@command(lab_app, "remove")
def _lab_remove(serial: Annotated[str, typer.Argument(help="The phone's serial number.")]) -> Deed:
    """Detach a virtual phone. Its files stay for the next time.

    Example: benchfarm lab remove VIRTUAL-PIXEL-3
    """
    return lambda settings: lab.remove(settings, serial)


@command(lab_app, "down")
def _lab_down() -> Deed:
    """Stop the virtual phones and their adb server.

    Example: benchfarm lab down
    """
    return lab.down


@command(lab_app, "list")
def _lab_list() -> Deed:
    """List virtual phones, their faults and the profiles.

    Example: benchfarm lab list
    """
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
    return lambda _: lab.program(file, name=program, abi=abi, version=version, time_percent=time)


@command(app, "doctor")
def _doctor() -> Deed:
    """Check this computer, adb and the phones for problems.

    Example: benchfarm doctor
    """
    return devices.doctor


@farm_command(_farm, "doctor")
def _farm_doctor(host_too: Annotated[bool, typer.Option("--host/--no-host", help="Include this host.")] = True) -> Deed:
    """Check queue, clocks, hosts, phones and schedules.

    Example: benchfarm farm doctor
    """
    return lambda settings: devices.farm_doctor(settings, host_too=host_too)
