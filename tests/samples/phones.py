"""The bodies that the device contract runs over: a virtual phone, a phone of real parts, the user's
own on a cable."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.phone import Phone
from orchestrator.devices.adb_server import AdbServer, configured_address
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import DeviceError
from orchestrator.files import sha256_of
from orchestrator.ports import HostFile, ShellResult
from tests.samples.real_phone import RealPhone

#: ``--phone`` -> the bodies that tests of phones take. Real adbd meets both adb servers, as the
#: virtual one does.
BODIES: Mapping[str, tuple[str, ...]] = {
    "virtual": ("adb36", "adb29"),
    "real": ("real-adb36", "real-adb29"),
    "cable": ("cable",),
}
_SERVERS = {"adb36": "adb_server", "adb29": "old_adb_server"}
#: On the user's own phone: gone after each test, what lies in benchfarm's folder stays.
_CABLE_FOLDER = "/data/local/tmp/benchfarm-contract"
_FILL = "cat /dev/zero >/data/local/tmp/fill; true"


def host_file(
    source: Path, name: str = "m.tflite", kind: str = "models", *, is_program: bool = False
) -> HostFile:
    """A file of this computer, as it is now, that is to lie on a device."""
    return HostFile(
        source=source, kind=kind, sha256=sha256_of(source), name=name, executable=is_program
    )


@dataclass
class PhoneBody:
    """A phone under test, and what can be done to it from outside."""

    device: AdbDevice
    server: AdbServer
    #: What only some bodies can do: name -> how.
    powers: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def sh(self, command: str) -> ShellResult:
        return self.device.shell(command, timeout_s=60.0)

    def do(self, what: str, *args: object) -> None:
        """Use a power; the test is skipped where this body lacks it."""
        if what not in self.powers:
            pytest.skip(f"this phone can't be made to {what}")
        self.powers[what](*args)

    def observer(self) -> PhoneBody:
        """Return the same phone with a device object of its own, for another thread."""
        device = self.device
        again = AdbDevice(self.server, device.transport, work_folder=device.work_folder)
        return PhoneBody(again, self.server, self.powers)


def body_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PhoneBody]:
    """Bring up the body that the fixture's parameter names."""
    kind = request.param
    if kind == "cable":
        yield from _on_cable(request)
        return
    process = request.getfixturevalue(_SERVERS[kind.rpartition("-")[2]])
    server = AdbServer(ServerAddress(port=process.port))
    with contextlib.ExitStack() as stack:
        if kind.startswith("real"):
            fresh = request.fixturename == "phone"  # what is done to it may last
            phone = (
                stack.enter_context(RealPhone(tmp_path / "phone"))
                if fresh
                else request.getfixturevalue("real_phone")
            )
            address, powers = phone.address, _powers_of_real(phone)
        else:
            virtual = request.getfixturevalue("make_lab")(process, time_factor=1.0).add("pixel-3")
            address, powers = virtual.address, _powers_of_virtual(virtual)
        process.connect(address)
        yield PhoneBody(AdbDevice(server, address), server, powers)
        server.disconnect(address)


def _powers_of_real(phone: RealPhone) -> dict[str, Callable[..., object]]:
    def hang(seconds: float) -> None:
        phone.order("hang")
        threading.Timer(seconds, phone.order, ["resume"]).start()

    state = phone.folder / "state"
    return {
        "cut": lambda: phone.order("cut"),
        "kill-adbd": lambda: phone.order("kill-adbd"),
        "reboot": lambda: phone.order("reboot"),
        "hang": hang,
        "fill": lambda device: device.shell(_FILL, timeout_s=60.0),
        "empty": lambda device: device.shell("rm /data/local/tmp/fill"),
        "take-away": phone.take_away,
        "hang-dumpsys": (state / "hanging").touch,
    }


def _powers_of_virtual(phone: Phone) -> dict[str, Callable[..., object]]:
    faults = phone.faults

    def give(kind: str, *settings: str) -> None:
        faults.add(parse_fault(kind, settings))

    return {
        "cut": lambda: give("cut"),
        "kill-adbd": lambda: give("cut"),  # nothing else is left of it
        "reboot": lambda: give("reboot", "seconds=1"),
        "hang": lambda seconds: give("hang", f"seconds={seconds}"),
        "fill": lambda _: give("no-space", "bytes=0"),
        "empty": lambda _: faults.clear(),
    }


def _on_cable(request: pytest.FixtureRequest) -> Iterator[PhoneBody]:
    serial = request.config.getoption("--serial")
    if not serial:
        pytest.fail("which phone? make test-phone SERIAL=...")
    address = configured_address(os.environ.get("BENCHFARM_ADB_SERVER", ""), os.environ)
    server = AdbServer(address or ServerAddress())
    device = AdbDevice(server, serial, work_folder=_CABLE_FOLDER)

    def reboot() -> None:
        with contextlib.suppress(DeviceError):
            AdbDevice(server, serial).reboot()

    powers = {"reboot": reboot} if request.config.getoption("--destructive") else {}
    yield PhoneBody(device, server, powers)
    device.shell(f"rm -rf {_CABLE_FOLDER}")
