"""Virtual phones in processes of their own, and the private adb server that reaches them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from orchestrator.app.options import Texts, arg, opt
from orchestrator.bootstrap import Settings, virtual_lab
from orchestrator.delegates import DELEGATES
from orchestrator.delegates.specification import EVERYWHERE
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.files import write_file
from orchestrator.records.plan import PlanOptions

DEFAULT_PROFILES = ("pixel-3", "pixel-4")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRequest:
    """Which virtual phones are wanted."""

    profiles: Annotated[Texts, arg("One profile per phone. PROFILE@1-2.3 sets its USB path.")] = ()
    serial: Annotated[str, opt("--serial -s", "Serial number of the one phone.")] = ""
    speed: Annotated[float, opt("--speed", "Phone seconds per real second.", min=0.1)] = 1.0
    seed: Annotated[int, opt("--seed", "Seed of the phones' noise.")] = 0
    rooted: Annotated[bool, opt("--rooted", "Give the phones su, as on rooted ones.")] = False

    def specs(self, taken: Collection[str] = ()) -> list[Any]:
        """Return the phones, with serial numbers that aren't taken; raises UsageError."""
        asked = [name.partition("@") for name in self.profiles or DEFAULT_PROFILES]
        if self.serial and len(asked) > 1:
            raise UsageError("--serial is for one phone", hint="name one profile")
        names = tuple(name for name, _, _ in asked)
        known = serials_for(names, taken=taken)
        return [
            virtual_lab.phone_spec(name, self.serial or serial, rooted=self.rooted, usb=usb)
            for (name, serial), (_, _, usb) in zip(known, asked, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A lab that is up."""

    #: Each with serial, profile and address.
    phones: Sequence[Any]
    adb_server: str
    pid: int


def start(settings: Settings, request: LabRequest, *, exit_with_parent: bool = False) -> Started:
    """Start a lab and connect its phones; when anything fails, all that was started is stopped
    again.

    ``settings`` name its folder; with ``exit_with_parent`` it ends with this process.
    """
    folder, specs = settings.lab_folder, request.specs()
    server = virtual_lab.adb_server(settings)
    server.revive()
    try:
        lab = virtual_lab.start_lab(
            folder,
            specs,
            adb_key=folder / ".android" / "adbkey.pub",
            time_factor=request.speed,
            seed=request.seed,
            exit_with_parent=exit_with_parent,
            environ=settings.environ,
        )
        for phone in lab.phones:
            server.connect_tcp(phone.address)
    except UsageError:
        # A lab is up already, and stays.
        raise
    except BaseException:
        stop(settings)
        raise
    return Started(phones=lab.phones, adb_server=str(server.address), pid=lab.pid)


def is_up(settings: Settings) -> bool:
    """Whether a lab runs."""
    try:
        virtual_lab.read_lab(settings.lab_folder)
    except UsageError:
        return False
    return virtual_lab.adb_server(settings).answers()


def attach(settings: Settings, request: LabRequest) -> Started:
    """Plug more phones in at a lab that is up; raises UsageError."""
    folder, server = settings.lab_folder, virtual_lab.adb_server(settings)
    lab = virtual_lab.read_lab(folder)
    if not server.answers():
        raise UsageError("no lab is up", hint="start one with 'benchfarm virtual up'")
    for spec in request.specs({phone.serial for phone in lab.phones}):
        added = {"request": "add", "phone": spec.to_json()}
        server.connect_tcp(virtual_lab.lab_request(folder, added)["phone"]["address"])
    lab = virtual_lab.read_lab(folder)
    return Started(phones=lab.phones, adb_server=str(server.address), pid=lab.pid)


def detach(settings: Settings, serial: str) -> None:
    """Unplug a phone of a lab that is up; what lies on it stays for the next time.

    Raises UsageError.
    """
    folder, server = settings.lab_folder, virtual_lab.adb_server(settings)
    address = next(
        (phone.address for phone in virtual_lab.read_lab(folder).phones if phone.serial == serial),
        "",
    )
    virtual_lab.lab_request(folder, {"request": "remove", "serial": serial})
    if address:
        server.disconnect(address)


def serials_for(profiles: tuple[str, ...], *, taken: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (profile, serial number) pairs: ``VIRTUAL-PIXEL-3``, and numbered from the second of a
    kind on; those that are ``taken`` are left out.
    """
    known = virtual_lab.profile_names()
    used = set(taken)
    pairs = []
    for profile in profiles:
        if profile not in known:
            raise UsageError(
                f"there is no virtual phone {profile!r}", hint=f"there are: {', '.join(known)}"
            )
        first = f"VIRTUAL-{profile.upper()}"
        names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
        used.add(serial := next(name for name in names if name not in used))
        pairs.append((profile, serial))
    return pairs


def stop(settings: Settings) -> tuple[bool, bool]:
    """Stop the lab and its adb server; return whether there was a lab, and whether there was a
    server.
    """
    server = virtual_lab.adb_server(settings)
    stopped = virtual_lab.stop_lab(settings.lab_folder)
    return stopped, server.stop()


def stop_quietly(settings: Settings) -> None:
    """Stop the lab whatever happens; for the end of commands that started one."""
    try:
        stop(settings)
    except BenchfarmError:
        # The caller has its own error to tell, and 'benchfarm virtual down' can be called again.
        return


def quickstart_options(serials: Sequence[str]) -> PlanOptions:
    """Return what the quickstart measures: a sample model, on virtual phones and on this computer."""
    from orchestrator.models.inspect import sample_models

    # A fixed number of invocations, so that it ends soon; a bench of one's own gives each case what
    # its noise needs. One model: the quantised one is too fast for the 10 us of this computer's
    # program.
    return PlanOptions(
        models=sample_models()[:1],
        delegates=tuple(name.value for name, own in DELEGATES.items() if own.kinds == EVERYWHERE),
        threads=(1, 2),
        devices=tuple(serials),
        host=True,
        invocations=3,
        reference_check=False,
        min_secs=0.5,
        max_secs=10.0,
        timeout=60.0,
        seed=1,
        name="quickstart",
    )


def clear_faults(settings: Settings, serial: str) -> Sequence[Any]:
    """Take a phone's faults back and return them; raises UsageError."""
    return _asked(settings, {"request": "clear", "serial": serial})["cleared"]  # type: ignore[no-any-return]


def add_fault(
    settings: Settings, serial: str, kind: str, options: Sequence[str]
) -> dict[str, object]:
    """Give a phone a fault, its options as ``name=value``; return it. Raises UsageError."""
    values: dict[str, object] = {"kind": kind}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise UsageError(
                f"{option!r} isn't name=value",
                hint="benchfarm virtual fault lists the kinds of fault",
            )
        values[name] = value
    return _asked(settings, {"request": "fault", "serial": serial, "fault": values})["fault"]  # type: ignore[no-any-return]


def _asked(settings: Settings, request: dict[str, object]) -> dict[str, Any]:
    return virtual_lab.lab_request(settings.lab_folder, request)


def write_program(path: Path, *, name: str, abi: str, version: str, time_percent: float) -> str:
    """Write a fake program that takes so much longer than the usual one; return its version.

    Raises UsageError.
    """
    marked = f"{version} time{time_percent:+.4g}%" if time_percent else version
    if abs(virtual_lab.time_factor_of(marked) - (1 + time_percent / 100)) > 1e-6:
        raise UsageError(
            f"--time {time_percent:g} can't be",
            hint="a percentage from -95 to 999 with at most 4 digits",
        )
    write_file(path, virtual_lab.fake_program(name, abi, version=marked))
    path.chmod(0o755)
    return marked
