"""What an iPhone needs to be measured, asked of it one by one; nothing is measured and nothing stays changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.devices.checking import CheckResult, PhoneCheck
from orchestrator.devices.iphone import PROGRAM, IPhoneDevice
from orchestrator.errors import BenchfarmError

_FILE = b"benchfarm looks whether it may put files here\n"


def check_iphone(device: IPhoneDevice) -> Iterator[PhoneCheck]:
    """Yield what came of each check, with the next step where one fails; the device must be leased."""
    checks: tuple[tuple[str, Callable[[], PhoneCheck]], ...] = (
        ("trust and app", lambda: _app(device)),
        ("push and pull", lambda: _files(device)),
        ("developer mode", lambda: _developer_mode(device)),
        ("developer image", lambda: _image(device)),
        ("developer services", lambda: _services(device)),
        ("battery", lambda: _battery(device)),
        ("thermal state", _thermal_state),
    )
    for name, check in checks:
        begun_s = device.clock.monotonic_s()
        try:
            done = check()
        except BenchfarmError as error:
            done = PhoneCheck(name=name, result=CheckResult.FAILS, seen=str(error), cost=error.hint or str(error))
        yield replace(done, name=name, took_s=device.clock.monotonic_s() - begun_s)


def _works(seen: str) -> PhoneCheck:
    return PhoneCheck(name="", result=CheckResult.WORKS, seen=seen)


def _fails(seen: str, step: str) -> PhoneCheck:
    return PhoneCheck(name="", result=CheckResult.FAILS, seen=seen, cost=step)


def _app(device: IPhoneDevice) -> PhoneCheck:
    found = device.package(device.app)
    if found is None:
        step = "install it, or name an .ipa with --build; $BENCHFARM_IPHONE_APP names another bundle id"
        return _fails(f"{device.app} isn't installed", step)
    return _works(f"{device.app} {found.version_name}")


def _files(device: IPhoneDevice) -> PhoneCheck:
    with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
        local = Path(folder) / "file"
        local.write_bytes(_FILE)
        is_whole = device.try_file(local)
    return _works("a file came back as it was sent") if is_whole else _fails("a file came back changed", "try again")


def _developer_mode(device: IPhoneDevice) -> PhoneCheck:
    # iOS before 16 has no such mode and the program says so.
    if device.ask("mounter", "query-developer-mode-status") is False:
        return _fails("it is off", f"'{PROGRAM} amfi enable-developer-mode' (the phone reboots)")
    return _works("it is on")


def _image(device: IPhoneDevice) -> PhoneCheck:
    if device.ask("mounter", "list") == []:
        cost = "the first run mounts it, which needs a way to Apple's server"
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen="it isn't mounted", cost=cost)
    return _works("it is mounted")


def _services(device: IPhoneDevice) -> PhoneCheck:
    # Also through the tunnel that iOS 17 wants; whether any process has this number doesn't matter.
    device.ask("developer", "dvt", "is-running-pid", "1")
    return _works("apps can be started")


def _battery(device: IPhoneDevice) -> PhoneCheck:
    state = device.state()
    if state.battery_heat_c is None:
        cost = "its heat is unknown: nobody waits until it has cooled down"
        return PhoneCheck(name="", result=CheckResult.MISSING, seen="it tells nothing", cost=cost)
    return _works(f"{state.battery_percent} %, {state.battery_heat_c:g} C")


def _thermal_state() -> PhoneCheck:
    cost = "throttling shows by the battery's heat and by the figures only"
    return PhoneCheck(name="", result=CheckResult.MISSING, seen="no command tells it", cost=cost)
