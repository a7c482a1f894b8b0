"""Preparation and its undoing under every fault at every step: the phone ends as it was, in every
case."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from benchfarm_virtual.faults import parse_fault
from orchestrator.clock import SystemClock
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.check import check_phone
from orchestrator.devices.conditioning import Conditioner
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.quiet import steps_for
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import (
    BenchfarmError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceCommandError,
    DeviceStorageError,
    DeviceTimeoutError,
)
from orchestrator.ports import SettingChange, ShellResult
from orchestrator.records.plan import FitLimits, PlanTerms, Quiet, Screen
from tests.samples.faulty_lab import SEED, WHOLE
from tests.samples.phone_settings import changed, settings_of
from tests.samples.places import REPO

if TYPE_CHECKING:
    from benchfarm_virtual.phone import Phone
    from benchfarm_virtual.phones import VirtualPhones


ANY = PlanTerms(
    limits=FitLimits(battery_min=0, battery_heat_max=200.0, thermal_status_max=6, wait=0.0)
)
EVERYTHING = Quiet(
    airplane=True, no_doze=True, animations_off=True, sync_off=True, fixed_performance=True, pin_clocks=True,
    pin_gpu=True,
)  # fmt: skip
#: Fewer, where every step is tried; none of them a kind of its own.
SOME = Quiet(airplane=True, no_doze=True, fixed_performance=True)


Case = TypeVar("Case")


def drawn(kind: str, cases: Sequence[Case], count: int) -> Sequence[Case]:
    """Return some cases by the seed, others for another kind; ``make fault-matrix`` has all."""
    return cases if WHOLE else random.Random(f"{SEED} {kind}").sample(cases, count)


class Tripwire(AdbDevice):
    """A phone on which something happens at the n-th command of the shell."""

    count = 0
    trip_at = 0

    @staticmethod
    def trip() -> None:
        """Do nothing yet."""

    def shell(self, command: str, *, timeout_s: float = 30.0, **options: Any) -> ShellResult:
        """Count a command, and trip at it; what doesn't answer after that is abandoned quickly."""
        self.count += 1
        if self.count == self.trip_at:
            self.trip()
        limit_s = 2.0 if 0 < self.trip_at <= self.count else timeout_s
        with self.unanswered(timeout_s):
            return super().shell(command, timeout_s=min(timeout_s, limit_s), **options)

    #: How long it would have been waited for in vain, with the timeouts that weren't cut short.
    unanswered_s = 0.0

    @contextmanager
    def unanswered(self, timeout_s: float) -> Iterator[None]:
        """Count the timeout of what isn't answered."""
        try:
            yield
        except DeviceTimeoutError:
            self.unanswered_s += timeout_s
            raise

    waits, longest_wait_s = 0, 60.0
    trips_when_ready = False

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Count how often the phone is waited for; what happens then may happen once more."""
        self.waits += 1
        with self.unanswered(timeout_s):
            super().wait_until_ready(timeout_s=min(timeout_s, self.longest_wait_s))
        if self.trips_when_ready:
            self.trips_when_ready, self.trip_at = False, self.count + 1


class ForwardClock(SystemClock):
    """This computer's clock, set forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.fixture
def phone(make_lab: Callable[..., VirtualPhones], adb_server: Any) -> Iterator[Phone]:
    server = AdbServer(ServerAddress(port=adb_server.port))
    # On a cable, as its radios are switched off as well.
    phone = make_lab(adb_server, time_factor=20.0).add(
        "pixel-7", serial="CONDITIONED", rooted=True, usb="1-1"
    )
    server.connect_tcp(phone.address)
    yield phone
    server.disconnect(phone.address)


@pytest.fixture
def device(phone: Phone, adb_server: Any) -> Tripwire:
    return Tripwire(AdbServer(ServerAddress(port=adb_server.port)), phone.address)


@pytest.fixture
def other_way(phone: Phone, adb_server: Any) -> AdbDevice:
    """The same phone as another process sees it."""
    return AdbDevice(AdbServer(ServerAddress(port=adb_server.port)), phone.address)


def whole(device: AdbDevice) -> dict[str, str]:
    return settings_of(device.shell)


def as_before(device: AdbDevice, phone: Phone, before: dict[str, str]) -> None:
    assert changed(before, whole(device)) == set()
    assert phone.hardware.clusters()[0].fixed is False
    assert device.shell(f"ls {device.work_folder}").text.split() in ([], ["runs"])


def prepare(conditioner: Conditioner, device: AdbDevice, quiet: Quiet = EVERYTHING) -> None:
    conditioner.prepare(device, replace(ANY, quiet=quiet))


def clear(phone: Phone, device: AdbDevice) -> None:
    phone.faults.clear()
    device.wait_until_ready(timeout_s=60.0)


def test_every_wish_is_made_true_and_all_of_it_undone(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    before = whole(device)
    conditioner = Conditioner(tmp_path)
    notes: list[str] = []
    conditioner.prepare(
        device, replace(ANY, quiet=EVERYTHING), on_note=lambda text, is_problem: notes.append(text)
    )
    assert notes == ["the GPU's smallest clock is unavailable: the phone doesn't have it"]
    assert set(
        device.shell("cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor").text.split()
    ) == {"performance"}
    assert device.shell(
        "settings get global airplane_mode_on; dumpsys deviceidle enabled deep"
    ).text.split() == ["1", "0"]
    assert phone.hardware.clusters()[0].fixed
    assert phone.userland.settings["global"]["wifi_on"] == "0"
    assert "state doze deep" in changed(before, whole(device))
    left: list[str] = []
    conditioner.restore(device, on_note=left.append)
    assert left == []
    as_before(device, phone, before)


def test_a_quiet_phone_takes_no_further_commands_for_it_before_the_next_run(
    device: Tripwire, tmp_path: Path
) -> None:
    conditioner = Conditioner(tmp_path)
    prepare(conditioner, device)
    first = device.count
    prepare(conditioner, device)
    assert device.count - first == 2
    conditioner.restore(device)


def test_a_difference_that_is_left_is_told(device: Tripwire, phone: Phone, tmp_path: Path) -> None:
    conditioner = Conditioner(tmp_path)
    change = SettingChange(what="a property", undo="true")
    conditioner.hold(device, change, "setprop debug.tflite.trace 1")
    prepare(conditioner, device)
    device.shell("settings put system screen_brightness 7")
    assert "settings system screen_brightness was '102' and is '7'" in conditioner.audit(device)
    left: list[str] = []
    conditioner.restore(device, on_note=left.append)
    device.shell("settings put system screen_brightness 102; setprop debug.tflite.trace ''")
    assert left == [
        "not as before: property debug.tflite.trace was 'not there' and is '1'",
        "not as before: settings system screen_brightness was '102' and is '7'",
    ]


@pytest.mark.parametrize(
    "fault",
    [
        ("cut",),
        ("output-cut", "bytes=20"),
        ("no-space",),
        ("reboot", "seconds=1"),
        ("hang", "seconds=0.2"),
        ("slow",),
    ],
    ids=lambda fault: fault[0],
)
def test_a_fault_at_any_step_leaves_nothing_behind(
    device: Tripwire, phone: Phone, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    before = whole(device)
    # The first one asks once what it knows from then on.
    steps = [steps_of(device, tmp_path / name) for name in ("first", "second")][1]
    assert steps >= 10
    for step in drawn(fault[0], range(1, steps + 1), 3):
        conditioner = Conditioner(tmp_path / str(step))
        device.count, device.trip_at = 0, step
        device.trip = lambda: phone.faults.add(parse_fault(fault[0], list(fault[1:])))
        try:
            prepare(conditioner, device, SOME)
            conditioner.restore(device)
        except BenchfarmError:
            pass
        assert device.count >= step
        device.trip_at = 0
        clear(phone, device)
        conditioner.restore(device)
        as_before(device, phone, before)
        assert conditioner.unrestored() == []


def steps_of(device: Tripwire, home: Path) -> int:
    """Return how many commands preparing and restoring a phone takes."""
    conditioner = Conditioner(home)
    device.count = 0
    prepare(conditioner, device, SOME)
    conditioner.restore(device)
    return device.count


_KILLED = """
import os
from tests.integration.test_conditioning_faults import *
server = AdbServer(ServerAddress(port={port}))
device = Tripwire(server, {address!r})
device.trip_at = {step}
device.trip = lambda: os.kill(os.getpid(), 9)
prepare(Conditioner(Path({home!r})), device)
os.kill(os.getpid(), 9)
"""


OWN, OTHER, REBOOTED = "from its own home", "from another home", "after a reboot"


@pytest.mark.parametrize(
    ("step", "how"),
    [
        *drawn(OWN, [(step, OWN) for step in (1, 4, 6, 8)], 1),
        *drawn(OTHER, [(step, OTHER) for step in (5, 7)], 1),
        *drawn(REBOOTED, [(step, REBOOTED) for step in (6, 8)], 1),
    ],
)
def test_a_process_killed_at_any_step_leaves_what_the_next_one_can_undo(
    device: Tripwire, phone: Phone, adb_server: Any, tmp_path: Path, step: int, how: str
) -> None:
    before = whole(device)
    own = tmp_path / "own"
    script = _KILLED.format(port=adb_server.port, address=phone.address, step=step, home=str(own))
    killed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=240, check=False, cwd=REPO
    )
    assert killed.returncode == -9, killed.stderr.decode()
    if how == REBOOTED:
        phone.reboot()
        device.wait_until_ready(timeout_s=60.0)
    home = tmp_path / "other" if how == OTHER else own
    # The claim of a process that was killed expires in a minute, unless it is of the same home.
    Conditioner(home).restore(device, take=how == OTHER)
    as_before(device, phone, before)


_KILLED_RESTORING = """
import os
from tests.integration.test_conditioning_faults import *
device = Tripwire(AdbServer(ServerAddress(port={port})), {address!r})
conditioner = Conditioner(Path({home!r}))
prepare(conditioner, device, SOME)
device.count, device.trip_at = 0, {step}
device.trip = lambda: os.kill(os.getpid(), 9)
conditioner.restore(device)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("step", drawn("restoring", (3, 5, 9), 1))
def test_a_restore_killed_at_any_step_is_finished_by_the_next_one(
    device: Tripwire, phone: Phone, adb_server: Any, tmp_path: Path, step: int
) -> None:
    before = whole(device)
    script = _KILLED_RESTORING.format(
        port=adb_server.port, address=phone.address, step=step, home=str(tmp_path)
    )
    killed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=240, check=False, cwd=REPO
    )
    assert killed.returncode == -9, killed.stderr.decode()
    Conditioner(tmp_path).restore(device)
    as_before(device, phone, before)


def test_two_homes_refuse_each_other_a_phone_and_name_the_holder(
    device: Tripwire, other_way: AdbDevice, tmp_path: Path
) -> None:
    first, second = (
        Conditioner(tmp_path / "a"),
        Conditioner(tmp_path / "b", lease_s=0.4),
    )
    first.prepare(device, ANY)
    with pytest.raises(DeviceBusyError, match=f"process {os.getpid()} on"):
        second.prepare(other_way, ANY)
    with pytest.raises(DeviceBusyError, match="expires in"):
        second.restore(other_way)
    assert first.restore(device)
    second.prepare(other_way, ANY)
    second.restore(other_way)


def test_a_note_is_renewed_while_its_holder_lives_even_if_it_asks_nothing(
    phone: Phone, other_way: AdbDevice, adb_server: Any, tmp_path: Path
) -> None:
    clock, told = ForwardClock(), list[str]()
    device = AdbDevice(AdbServer(ServerAddress(port=adb_server.port)), phone.address, clock=clock)
    first, second = (
        Conditioner(tmp_path / "a", lease_s=24.0),
        Conditioner(tmp_path / "b"),
    )
    first.prepare(device, ANY)

    def fall_silent(text: str, is_problem: bool) -> None:
        told.append(text)
        # For half of its claim's time, as its holder reckons: the phone's own has hardly begun.
        clock.ahead = timedelta(seconds=12)

    # It waits until the claim was either renewed, as now, or has expired.
    with pytest.raises(DeviceBusyError, match=f"process {os.getpid()} on"):
        second.prepare(other_way, ANY, on_note=fall_silent)
    assert "taken over unless that lease is renewed" in told[0]
    first.restore(device)
    second.prepare(other_way, ANY)
    second.restore(other_way)


_HOLDING = """
import sys
from tests.integration.test_conditioning_faults import *
device = AdbDevice(AdbServer(ServerAddress(port={port})), {address!r})
Conditioner(Path({home!r}), lease_s=5.0).prepare(device, ANY)
print("holds", flush=True)
for line in sys.stdin:
    try:
        print(device.shell(line).text.strip() or "done", flush=True)
    except DeviceBusyError as error:
        print(error, flush=True)
"""


@pytest.fixture
def holder(phone: Phone, adb_server: Any, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with a home of its own, which has prepared the phone and runs there what it
    is told."""
    script = _HOLDING.format(
        port=adb_server.port, address=phone.address, home=str(tmp_path / "holder")
    )
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPO
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    yield process
    process.kill()
    process.communicate()


def test_the_phone_of_a_holder_that_fell_silent_is_taken_over_and_refuses_what_he_asks_later(
    device: Tripwire, holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    second = Conditioner(tmp_path / "b")
    os.kill(holder.pid, signal.SIGSTOP)
    told: list[str] = []
    second.prepare(device, ANY, on_note=lambda text, is_problem: told.append(text))
    assert told[0].startswith(f"waiting until it is fit: in use by process {holder.pid} on")
    os.kill(holder.pid, signal.SIGCONT)
    holder.stdin.write(f": >{device.work_folder}/mark\n")
    holder.stdin.flush()
    assert "has taken the phone meanwhile" in holder.stdout.readline()
    assert "mark" not in device.shell(f"ls {device.work_folder}").text.split()
    # What he changed is undone from the phone's own file, and nothing of his is left.
    assert second.restore(device) == ["staying awake while plugged in"]
    assert device.shell(f"ls {device.work_folder}").text.split() in ([], ["runs"])


def test_a_wait_for_a_silent_holder_is_no_lack_of_the_phone_that_is_checked(
    device: Tripwire, holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    checks = {item.name: item for item in check_phone(device, Conditioner(tmp_path / "b"))}
    os.kill(holder.pid, signal.SIGCONT)
    assert "in use" not in checks["quiet mode"].cost, checks["quiet mode"]
    assert "made and undone" in checks["quiet mode"].seen


def test_a_boot_between_two_runs_is_seen_and_the_phone_made_quiet_again(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    before = whole(device)
    conditioner = Conditioner(tmp_path)
    prepare(conditioner, device)
    phone.reboot()
    device.wait_until_ready(timeout_s=60.0)
    assert (
        "performance"
        not in device.shell("cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor").text
    )
    prepare(conditioner, device)
    assert (
        "performance"
        in device.shell("cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor").text
    )
    conditioner.restore(device)
    as_before(device, phone, before)


def test_another_phone_under_the_same_address_is_refused(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    device.facts()
    conditioner = Conditioner(tmp_path)
    phone.userland.props["ro.serialno"] = "ANOTHER"
    try:
        with pytest.raises(DeviceChangedError, match="ANOTHER"):
            prepare(conditioner, device)
    finally:
        phone.userland.props["ro.serialno"] = "CONDITIONED"
    conditioner.restore(device)


def test_a_phone_that_shows_no_properties_any_more_is_no_other_phone(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    device.facts()
    conditioner = Conditioner(tmp_path)
    phone.faults.add(parse_fault("properties-denied", []))
    prepare(conditioner, device)
    conditioner.restore(device)


def test_a_full_phone_is_named_before_anything_is_measured(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    storage = phone.userland.files.storage
    taken = storage.take_most(storage.free_bytes - (10 << 20))
    try:
        with pytest.raises(DeviceStorageError, match="MiB are free"):
            prepare(Conditioner(tmp_path), device)
    finally:
        storage.take_most(-taken)
        Conditioner(tmp_path).restore(device)


def test_a_screen_that_goes_off_on_a_phone_that_was_quiet_is_on_again_afterwards(
    device: Tripwire, tmp_path: Path
) -> None:
    quiet = Quiet(screen=Screen.ON)
    for step in steps_for(quiet, device.facts(), over_network=False):
        device.shell(step.apply)
    prepare(conditioner := Conditioner(tmp_path), device, quiet)
    assert conditioner.pending(device) == []
    device.shell("input keyevent KEYCODE_SLEEP")
    prepare(conditioner, device, quiet)
    conditioner.restore(device)
    assert device.state().screen_on is True
    assert conditioner.unrestored() == []


def test_a_note_that_cannot_be_removed_is_told_and_removed_by_the_next_restore(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    before = whole(device)
    prepare(conditioner := Conditioner(tmp_path), device, SOME)
    phone.faults.add(parse_fault("permission-denied", ["subject=*/owner"]))
    with pytest.raises(DeviceCommandError, match="owner: open: Permission denied"):
        conditioner.restore(device)
    clear(phone, device)
    conditioner.restore(device)
    as_before(device, phone, before)


def test_a_phone_that_hangs_is_waited_for_once_and_restored_later(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    before = whole(device)
    prepare(conditioner := Conditioner(tmp_path), device, SOME)
    device.count, device.trip_at, device.longest_wait_s = 0, 1, 2.0
    device.trip = lambda: phone.faults.add(parse_fault("hang", []))
    with pytest.raises(DeviceTimeoutError):
        conditioner.restore(device)
    assert device.waits == 1
    assert device.unanswered_s <= 20.0
    device.trip_at = 0
    clear(phone, device)
    conditioner.restore(device)
    as_before(device, phone, before)


def test_a_phone_that_hangs_again_after_it_was_ready_is_restored_all_the_same(
    device: Tripwire, phone: Phone, tmp_path: Path
) -> None:
    before = whole(device)
    prepare(conditioner := Conditioner(tmp_path), device, SOME)
    device.count, device.trip_at, device.trips_when_ready = 0, 1, True
    device.trip = lambda: phone.faults.add(parse_fault("hang", ["seconds=3"]))
    conditioner.restore(device)
    assert device.waits == 2
    as_before(device, phone, before)


@pytest.mark.parametrize("screen", [Screen.ON, Screen.OFF])
def test_a_screen_that_changed_meanwhile_is_switched_again_and_restored(
    device: Tripwire, tmp_path: Path, screen: Screen
) -> None:
    other = "SLEEP" if screen is Screen.ON else "WAKEUP"
    device.shell(f"input keyevent KEYCODE_{other}")
    try:
        for home in ("own", "own", "after a crash"):
            prepare(conditioner := Conditioner(tmp_path / home), device, Quiet(screen=screen))
            assert device.state().screen_on is (screen is Screen.ON)
            device.shell(f"input keyevent KEYCODE_{other}")
            prepare(conditioner, device, Quiet(screen=screen))
            assert device.state().screen_on is (screen is Screen.ON)
            conditioner._claims.release(device)
        conditioner.restore(device)
        assert device.state().screen_on is (screen is Screen.OFF)
    finally:
        device.shell("input keyevent KEYCODE_WAKEUP")
