"""Virtual phones in processes of their own, and the private adb server that reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bootstrap import Settings, virtual_lab
from orchestrator.delegates import DELEGATES
from orchestrator.delegates.specification import EVERYWHERE
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.files import write_file
from orchestrator.records.plan import PlanOptions

if TYPE_CHECKING:
    from orchestrator.devices.adb_server import AdbServer

DEFAULT_PROFILES = ("pixel-3", "pixel-4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A lab that is up."""

    #: Each with serial, profile and address.
    phones: Sequence[Any]
    adb_server: str
    pid: int
    speed: float


def start(
    settings: Settings,
    profiles: Sequence[str] = (),
    *,
    speed: float = 1.0,
    seed: int = 0,
    rooted: bool = False,
    exit_with_parent: bool = False,
) -> Started:
    """Start a lab and connect its phones; when anything fails, all that was started is stopped
    again.

    Args:
        settings: name its folder.
        profiles: one for each phone, ``PROFILE`` or ``PROFILE@1-2.3`` with its USB path; the usual
            ones when empty.
        speed: seconds of the phones in one real second.
        seed: of the phones' noise.
        rooted: whether they have su.
        exit_with_parent: whether the lab ends with this process.
    """
    from orchestrator.devices.own_server import OwnServer, find_adb

    folder = settings.lab_folder
    asked = [name.partition("@") for name in profiles or DEFAULT_PROFILES]
    specs = [
        virtual_lab.phone_spec(name, serial, rooted=rooted, usb=usb)
        for (name, serial), (_, _, usb) in zip(
            serials_for(tuple(name for name, _, _ in asked)), asked, strict=True
        )
    ]
    server = OwnServer.start(
        binary=find_adb(settings.adb, settings.environ),
        state_folder=folder,
        # A home of its own: the lab's phones let in this server's key and no other.
        environ={**settings.environ, "HOME": str(folder)},
        usb=False,
    )
    try:
        lab = virtual_lab.start_lab(
            folder,
            specs,
            adb_key=folder / ".android" / "adbkey.pub",
            time_factor=speed,
            seed=seed,
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
    return Started(phones=lab.phones, adb_server=str(server.address), pid=lab.pid, speed=speed)


def attach(settings: Settings, profile: str, *, serial: str = "") -> dict[str, Any]:
    """Plug one more phone in at a lab that is up, and return what it says of it.

    Raises UsageError.
    """
    name, _, usb = profile.partition("@")
    folder, server = settings.lab_folder, _server(settings)
    present = virtual_lab.read_lab(folder).phones
    if server is None:
        raise UsageError("no lab is up", hint="start one with 'benchfarm virtual up'")
    if not serial:
        taken = {phone.serial for phone in present}
        serial = next(
            serial for _, serial in serials_for((name,) * (len(taken) + 1)) if serial not in taken
        )
    spec = virtual_lab.phone_spec(name, serial, usb=usb)
    phone: dict[str, Any] = virtual_lab.lab_request(
        folder, {"request": "add", "phone": spec.to_json()}
    )["phone"]
    server.connect_tcp(phone["address"])
    return phone


def detach(settings: Settings, serial: str) -> None:
    """Unplug a phone of a lab that is up; what lies on it stays for the next time.

    Raises UsageError.
    """
    folder, server = settings.lab_folder, _server(settings)
    address = next(
        (phone.address for phone in virtual_lab.read_lab(folder).phones if phone.serial == serial),
        "",
    )
    virtual_lab.lab_request(folder, {"request": "remove", "serial": serial})
    if server is not None and address:
        server.disconnect(address)


def serials_for(profiles: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (profile, serial number) pairs: ``VIRTUAL-PIXEL-3``, and numbered from the second of a
    kind on.
    """
    known = virtual_lab.profile_names()
    seen: Counter[str] = Counter()
    pairs = []
    for profile in profiles or DEFAULT_PROFILES:
        if profile not in known:
            raise UsageError(
                f"there is no virtual phone {profile!r}", hint=f"there are: {', '.join(known)}"
            )
        seen[profile] += 1
        number = f"-{seen[profile]}" if seen[profile] > 1 else ""
        pairs.append((profile, f"VIRTUAL-{profile.upper()}{number}"))
    return pairs


def stop(settings: Settings) -> tuple[bool, bool]:
    """Stop the lab and its adb server; return whether there was a lab, and whether there was a
    server.
    """
    server = _server(settings)
    stopped = virtual_lab.stop_lab(settings.lab_folder)
    if server is not None:
        server.stop()
    return stopped, server is not None


def stop_quietly(settings: Settings) -> None:
    """Stop the lab whatever happens; for the end of commands that started one."""
    try:
        stop(settings)
    except BenchfarmError:
        # The caller has its own error to tell, and 'benchfarm virtual down' can be called again.
        return


def quickstart_options(serials: Sequence[str]) -> PlanOptions:
    """Return what the quickstart measures: a sample model, on virtual phones and on this computer."""
    from orchestrator.models.zoo import sample_models

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


def _server(settings: Settings) -> AdbServer | None:
    """Return the adb server of the lab, None when no lab is up."""
    from orchestrator.devices.own_server import OwnServer

    return OwnServer.adopt(settings.lab_folder, usb=False)


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
