"""Checks everything that benchfarm relies on, on one iPhone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.plugins import Found, fails, make_checks, works
from orchestrator.ports import CheckResult, PhoneCheck

if TYPE_CHECKING:
    from orchestrator.extensions.iphone.device import IPhoneDevice


def check_iphone(device: IPhoneDevice) -> Iterator[PhoneCheck]:
    """See CheckedDevice.checks; a failed check names the next step."""
    checks: dict[str, Callable[[], Found]] = {
        "trust and app": lambda: _app(device),
        "push and pull": lambda: _files(device),
        "developer services": lambda: _services(device),
        "battery": lambda: _battery(device),
    }
    yield from make_checks(device.clock, checks)


def _app(device: IPhoneDevice) -> Found:
    package = device.package(device.app)
    if package is None:
        step = "install it, or name an .ipa with --build; $BENCHFARM_IPHONE_APP names another bundle id"
        return fails(f"{device.app} isn't installed", step)
    return works(f"{device.app} {package.version_name}")


def _files(device: IPhoneDevice) -> Found:
    with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
        local = Path(folder) / "file"
        local.write_bytes(b"benchfarm looks whether it may put files here\n")
        is_whole = device.try_file(local)
    return (
        works("a file came back as it was sent")
        if is_whole
        else fails("a file came back changed", "try again")
    )


def _services(device: IPhoneDevice) -> Found:
    # It fails without developer mode or image, and without the tunnel that iOS 17.0 requires;
    # whether any process has this number doesn't matter.
    device.ask("developer", "dvt", "is-running-pid", "1")
    return works("apps can be started")


def _battery(device: IPhoneDevice) -> Found:
    state = device.state()
    if state.battery_heat_c is None:
        cost = "runs don't wait for the phone to cool down"
        return CheckResult.MISSING, "the phone reports no battery temperature", cost
    return works(f"{state.battery_percent} %, {state.battery_heat_c:g} C")
