"""Conditioning against a virtual phone: what it changes is restored, also after a crash; what is
unfit is said.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchfarm_virtual.faults import parse_fault
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.conditioning import Conditioner
from orchestrator.devices.host import HostDevice
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.probes import unfit_reasons
from orchestrator.devices.quiet import UndoJournal
from orchestrator.devices.sockets import Connection, ServerAddress
from orchestrator.errors import (
    DeviceCommandError,
    DeviceSetAsideError,
    DeviceStorageError,
    HostStorageError,
)
from orchestrator.ports import DetachedCommand, SettingChange
from orchestrator.records.case import RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits, PlanTerms, Quiet
from tests.samples.manual_clock import ManualClock

if TYPE_CHECKING:
    from benchfarm_virtual.phone import Phone
    from benchfarm_virtual.phones import VirtualPhones

STAY_ON = "settings get global stay_on_while_plugged_in"
ANY = PlanTerms(
    limits=FitLimits(battery_min=0, battery_heat_max=200.0, thermal_status_max=6, wait=0.0)
)


@pytest.fixture
def phone(make_lab: Callable[..., "VirtualPhones"], adb_server: object) -> "Phone":
    return make_lab(adb_server, time_factor=1.0).add("pixel-3")


@pytest.fixture
def device(phone: "Phone", adb_server: object) -> Iterator[AdbDevice]:
    server = AdbServer(ServerAddress(port=adb_server.port))  # type: ignore[attr-defined]
    server.connect_tcp(phone.address)
    yield AdbDevice(server, phone.address)
    server.disconnect(phone.address)


def heat(phone: "Phone", heat_c: int) -> None:
    phone.faults.add(parse_fault("overheat", [f"heat_c={heat_c}"]))


class CountingServer(AdbServer):
    """Counts the requests to phones."""

    count = 0

    def open(self, *services: str, **options: Any) -> Connection:
        self.count += services[0].startswith("host:transport:")
        return super().open(*services, **options)


def test_an_invocation_asks_a_phone_three_times(
    phone: "Phone", adb_server: object, tmp_path: Path
) -> None:
    server = CountingServer(ServerAddress(port=adb_server.port))  # type: ignore[attr-defined]
    server.connect_tcp(phone.address)
    device, conditioner = AdbDevice(server, phone.address), Conditioner(tmp_path)
    state = conditioner.prepare(device, ANY).state
    for name in ("first", "second"):
        server.count = 0
        assert conditioner.prepare(device, ANY, recent=state).reason == ""
        run_id = RunId(name)
        told = device.run_detached(
            DetachedCommand(
                line="echo out; echo x >made",
                run_id=run_id,
                timeout_s=60.0,
                files=("made", "not-made"),
            )
        )
        assert (told.exit_code, told.stdout, told.files) == (0, b"out\n", {"made": b"x\n"})
        device.discard_run(run_id)
        state = device.state()
        assert server.count == 3
        assert device.shell(f"ls {device.work_folder}/runs").stdout == b""
    device.run_detached(DetachedCommand(line="true", run_id=run_id, timeout_s=60.0))
    device.discard_run(run_id)
    device.close()
    assert device.shell(f"ls {device.work_folder}/runs").stdout == b""
    server.disconnect(phone.address)


def setting(device: AdbDevice) -> str:
    return device.shell(STAY_ON).text.strip()


def test_a_setting_that_was_not_there_is_not_there_afterwards(
    device: AdbDevice, tmp_path: Path
) -> None:
    device.shell("settings delete global stay_on_while_plugged_in")
    assert setting(device) == "null"
    conditioner = Conditioner(tmp_path)
    conditioner.prepare(device, ANY)
    assert setting(device) != "null"
    conditioner.restore(device)
    assert setting(device) == "null"


def test_nothing_is_changed_that_could_not_be_noted_before(
    device: AdbDevice, tmp_path: Path
) -> None:
    before = setting(device)
    (tmp_path / "journal").write_text("a file where a folder should be")
    with pytest.raises(HostStorageError):
        Conditioner(tmp_path / "journal").prepare(device, ANY)
    assert setting(device) == before


def test_an_undo_that_fails_stays_in_the_journal_and_holds_up_no_other(
    device: AdbDevice, tmp_path: Path
) -> None:
    journal = UndoJournal(tmp_path)
    journal.add(device.serial, SettingChange(what="first", undo="true"))
    journal.add(device.serial, SettingChange(what="second", undo="echo reason >&2; false"))
    with pytest.raises(DeviceCommandError, match=r"second can't be restored .*reason"):
        Conditioner(tmp_path).restore(device)
    assert [change.what for change in journal.pending(device.serial)] == ["second"]


def test_a_hot_phone_is_waited_for_and_unfit_when_it_stays_hot(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    heat(phone, 85)
    clock = ManualClock()
    fitness = Conditioner(tmp_path, clock=clock).prepare(
        device, PlanTerms(limits=FitLimits(wait=30.0))
    )
    assert "thermal status" in fitness.reason or "battery at" in fitness.reason
    assert fitness.waited_s == pytest.approx(30.0)
    assert fitness.state is not None


def test_a_phone_that_cools_down_in_time_is_fit(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    class CoolingClock(ManualClock):
        """The phone is cool after the first wait."""

        def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
            heat(phone, 25)
            return super().wait(seconds, cancelled)

    heat(phone, 85)
    fitness = Conditioner(tmp_path, clock=CoolingClock()).prepare(
        device, PlanTerms(limits=FitLimits(wait=30.0))
    )
    assert fitness.reason == ""
    assert 0 < fitness.waited_s < 30.0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("battery-health health=6", "its battery reports 'failing'"),
        ("overheat heat_c=110", "its battery is at"),
    ],
)
def test_a_battery_in_danger_is_waited_for_by_nobody(
    device: AdbDevice, phone: "Phone", tmp_path: Path, fault: str, said: str
) -> None:
    kind, setting = fault.split()
    phone.faults.add(parse_fault(kind, [setting]))
    conditioner = Conditioner(tmp_path)
    with pytest.raises(DeviceSetAsideError, match=said):
        conditioner.prepare(device, PlanTerms(limits=FitLimits(wait=3600.0)))
    phone.faults.clear()
    heat(phone, 25)
    assert conditioner.prepare(device, ANY).reason == ""
    conditioner.restore(device)


def test_waiting_for_a_hot_phone_can_be_cancelled(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    heat(phone, 85)
    cancelled = threading.Event()
    cancelled.set()
    fitness = Conditioner(tmp_path).prepare(
        device, PlanTerms(limits=FitLimits(wait=300.0)), cancelled=cancelled
    )
    assert fitness.reason.startswith("cancelled")


def test_zones_of_the_profile_have_limits_of_their_own(device: AdbDevice, tmp_path: Path) -> None:
    zone = next(iter(device.state().heat_c))
    conditioner = Conditioner(tmp_path, zone_limits=lambda facts: {f"^{zone}$": -10.0})
    fitness = conditioner.prepare(device, ANY)
    assert fitness.reason.startswith(zone)


def test_a_computer_is_fit_and_nothing_is_changed_on_it(tmp_path: Path) -> None:
    device = HostDevice(tmp_path / "work")
    conditioner = Conditioner(tmp_path / "journal")
    assert conditioner.prepare(device, PlanTerms()).reason == ""
    assert conditioner.unrestored() == []


def test_what_is_unknown_is_no_reason_and_each_limit_is_one() -> None:
    clock = ManualClock()
    assert unfit_reasons(DeviceState(at=clock.now()), FitLimits(), {"cpu": 40.0}) == []
    state = DeviceState(
        at=clock.now(),
        battery_percent=4,
        battery_heat_c=50.0,
        thermal_status=3,
        heat_c={"cpu0": 90.0, "gpu": 30.0},
    )
    reasons = [item.text for item in unfit_reasons(state, FitLimits(), {"cpu": 40.0, "gpu": 40.0})]
    assert [reason.split()[0] for reason in reasons] == ["battery", "battery", "thermal", "cpu0"]


@pytest.mark.parametrize("content", [b"\xff", b"[]", b"{"])
def test_a_first_snapshot_that_can_not_be_read_is_not_taken_again(
    device: AdbDevice, tmp_path: Path, content: bytes
) -> None:
    path = UndoJournal(tmp_path)._path(device.serial, "snapshot")
    path.write_bytes(content)
    with pytest.raises(HostStorageError, match="snapshot"):
        Conditioner(tmp_path).prepare(device, ANY)
    assert path.read_bytes() == content
    path.unlink()
    Conditioner(tmp_path).restore(device)


def test_what_a_phone_s_own_file_says_unreadably_is_told_and_kept(
    device: AdbDevice, tmp_path: Path
) -> None:
    file = f"{device.work_folder}/undo"
    device.shell(f"mkdir -p {device.work_folder}; echo '{{' >{file}")
    conditioner = Conditioner(tmp_path)
    for use in (
        conditioner.pending,
        lambda phone: conditioner.prepare(phone, ANY),
        conditioner.restore,
    ):
        with pytest.raises(DeviceStorageError, match="line 1 can't be read"):
            use(device)
    assert device.shell(f"cat {file}").text == "{\n"
    device.shell(f"rm {file}")
    conditioner.restore(device)


def test_a_failed_undo_is_done_where_all_is_as_before(device: AdbDevice, tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path)
    journal.add(device.serial, SettingChange(what="first", undo="false", read="echo 1", was="1"))
    journal.add(device.serial, SettingChange(what="second", undo="false", read="echo 2", was="1"))
    with pytest.raises(DeviceCommandError, match=r"^\S+ second can't be restored"):
        Conditioner(tmp_path).restore(device)
    assert [change.what for change in journal.pending(device.serial)] == ["second"]
    journal.keep(device.serial, ())
    Conditioner(tmp_path).restore(device)


def test_a_held_change_that_failed_and_changed_nothing_is_not_owed(
    device: AdbDevice, tmp_path: Path
) -> None:
    conditioner = Conditioner(tmp_path)
    for was, owed in (("1", []), ("2", ["x"])):
        with pytest.raises(DeviceCommandError):
            conditioner.hold(
                device, SettingChange(what="x", undo="true", read="echo 1", was=was), "false"
            )
        assert conditioner.pending(device) == owed
    conditioner.restore(device)


def test_a_phone_that_adb_reaches_by_an_address_keeps_its_radios(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    conditioner = Conditioner(tmp_path)
    notes: list[str] = []
    conditioner.prepare(
        device,
        replace(ANY, quiet=Quiet(airplane=True, sync_off=True)),
        on_note=lambda text, is_problem: notes.append(text),
    )
    refusal = "is unavailable: adb reaches the phone over the network, and would be cut off"
    assert notes == [
        f"{name} {refusal}"
        for name in ("airplane mode", "Wi-Fi being off", "mobile data being off")
    ]
    assert phone.userland.settings["global"]["wifi_on"] == "1"
    assert device.shell("settings get global airplane_mode_on").text.strip() == "0"
    conditioner.restore(device)
