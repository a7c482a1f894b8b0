"""A port that is powered off for a block and on again, by a program that stands in for uhubctl."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.phones import VirtualPhones
from orchestrator.app import attached
from orchestrator.app.attached import attached_devices, open_devices
from orchestrator.app.workspace import Workspace
from orchestrator.cli.devices import restore
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.conditioning import Conditioner
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.quiet import UndoJournal
from orchestrator.devices.rescue import HubPower
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import DeviceCommandError
from orchestrator.ports import SettingChange
from orchestrator.records.case import Serial
from orchestrator.records.plan import DeviceSelection
from orchestrator.settings import Settings
from tests.conftest import poll_until
from tests.samples.meanwhile import when

ON, OFF = "-l 1-4 -p 2 -a on", "-l 1-4 -p 2 -a off"
#: Keeps what it switched; ends who called it, and our process, at the moment that `when` names.
PROGRAM = """#!/bin/sh
now() { [ "$(cat when 2>/dev/null)" != "$1" ] || kill -9 "$(cat host)" $PPID $$; }
cd {folder}
echo "$@" >>told
[ ! -e refuses ] || exit 1
now "before $6"
echo $6 >state
now "after $6"
"""


@dataclass(frozen=True)
class Hub:
    """A hub, what is known of it in the journal, and a phone on it."""

    folder: Path
    device: AdbDevice

    @property
    def search_path(self) -> str:
        return str(self.folder / "bin")

    @property
    def journal(self) -> UndoJournal:
        return UndoJournal(self.folder / "journals")

    @property
    def power(self) -> HubPower:
        return HubPower(self.journal, search_path=self.search_path)

    @property
    def conditioner(self) -> Conditioner:
        return Conditioner(self.journal.folder, power=self.power)

    def said(self) -> list[str]:
        told = self.folder / "told"
        return told.read_text().splitlines() if told.exists() else []

    @property
    def is_off(self) -> bool:
        state = self.folder / "state"
        return state.exists() and state.read_text().strip() == "off"

    def start(self, *, after_s: float, lasts_s: float, ends: bool = False) -> int:
        """Power the port off in another process."""
        child = os.fork()
        if child == 0:
            (self.folder / "host").write_text(str(os.getpid()))
            with self.power.off(self.device, after_s=after_s, lasts_s=lasts_s):
                if not ends:
                    signal.pause()
                poll_until(lambda: self.is_off, what="the port's being off")
            os._exit(0)
        return child


@pytest.fixture
def hub(tmp_path: Path, adb_server: Any, make_lab: Callable[..., VirtualPhones]) -> Iterator[Hub]:
    program = tmp_path / "bin" / "uhubctl"
    program.parent.mkdir()
    program.write_text(PROGRAM.replace("{folder}", str(tmp_path)))
    program.chmod(0o755)
    server = AdbServer(ServerAddress(port=adb_server.port))
    phone = make_lab(adb_server, time_factor=1.0).add("pixel-3", serial="ON-A-HUB")
    server.connect_tcp(phone.address)
    device = AdbDevice(server, phone.address)
    # As its adb server would tell of a phone on a cable.
    device.usb_path = "usb:1-4.2"
    assert device.serial == "ON-A-HUB"
    yield Hub(tmp_path, device)
    server.disconnect(phone.address)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_a_port_is_off_for_a_while_and_on_at_the_end(hub: Hub) -> None:
    assert hub.power.can_switch(hub.device)
    with hub.power.off(hub.device, after_s=0, lasts_s=60):
        poll_until(lambda: hub.is_off, what="the port's being off")
        assert [change.port for change in hub.journal.ports_off(hub.device.serial)] == ["1-4 2"]
    assert hub.said() == [OFF, ON]
    assert hub.journal.serials() == []


def test_a_port_is_on_again_by_itself_and_after_a_failure(hub: Hub) -> None:
    with hub.power.off(hub.device, after_s=0, lasts_s=0):
        poll_until(lambda: hub.said() == [OFF, ON], what="the port's being on again")
    with pytest.raises(KeyError), hub.power.off(hub.device, after_s=60, lasts_s=60):
        raise KeyError
    assert hub.said() == [OFF, ON]
    assert hub.journal.serials() == []


@pytest.mark.parametrize("after_s", [60, 0])
def test_a_killed_process_leaves_no_port_off(hub: Hub, after_s: float) -> None:
    child = hub.start(after_s=after_s, lasts_s=600)
    poll_until(lambda: children(child), what="the process beside it")
    (beside,) = children(child)
    if not after_s:
        poll_until(lambda: hub.is_off, what="the port's being off")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    poll_until(
        lambda: not Path(f"/proc/{beside}").exists(), what="the end of the process beside it"
    )
    assert hub.said() == ([] if after_s else [OFF, ON])
    # Nobody was left to forget it; to power a port on that has power does no harm.
    assert hub.conditioner.power_on(hub.device.serial) == (
        ["USB port 2 of hub 1-4 powered off"],
        "",
    )
    assert hub.journal.serials() == []


@pytest.mark.parametrize(
    "moment", ["waiting", "before off", "after off", "while off", "before on", "after on"]
)
def test_whoever_comes_next_powers_the_port_on_when_all_were_killed(hub: Hub, moment: str) -> None:
    (hub.folder / "when").write_text(moment)
    child = hub.start(
        after_s=60 if moment == "waiting" else 0, lasts_s=600, ends=moment.endswith(" on")
    )
    if moment in {"waiting", "while off"}:
        poll_until(lambda: children(child) and (hub.is_off or moment == "waiting"), what=moment)
        for pid in (*children(child), child):
            os.kill(pid, signal.SIGKILL)
    os.waitpid(child, 0)
    assert hub.is_off is (moment in {"after off", "while off", "before on"})
    assert hub.journal.serials() == [hub.device.serial]
    (hub.folder / "when").unlink()
    # The phone itself isn't asked: it may not be there.
    assert hub.conditioner.power_on(hub.device.serial) == (
        ["USB port 2 of hub 1-4 powered off"],
        "",
    )
    assert not hub.is_off
    assert hub.said()[-1] == ON
    assert hub.journal.serials() == []


def test_a_port_that_cant_be_switched_on_is_told_until_it_has_power(hub: Hub) -> None:
    (hub.folder / "refuses").touch()
    with hub.power.off(hub.device, after_s=0, lasts_s=60):
        poll_until(lambda: hub.said() == [OFF], what="a try")
    assert hub.said() == [OFF, ON, ON]
    serial = hub.device.serial
    why = "USB port 2 of hub 1-4 powered off: 'uhubctl -l 1-4 -p 2 -a on' "
    assert hub.conditioner.power_on(serial) == ([], why + "failed")
    assert Conditioner(hub.journal.folder, power=HubPower(hub.journal, search_path="")).power_on(
        serial
    ) == ([], why + "isn't installed here")
    hub.device.usb_path = "usb:1-4.3"
    with pytest.raises(DeviceCommandError, match="powered off"):
        hub.conditioner.restore(hub.device)
    assert hub.journal.serials() == [serial]
    # It answers on that port: somebody powered it on.
    hub.device.usb_path = "usb:1-4.2"
    assert hub.conditioner.restore(hub.device) == []
    assert hub.journal.serials() == []


@pytest.fixture
def away(hub: Hub, adb_server: Any) -> Iterator[Settings]:
    """The phone isn't listed until its port, which a killed process left off, has power."""
    serial, address = hub.device.serial, hub.device.transport
    hub.journal.add(serial, SettingChange(what="a port", port="1-4 2"))
    (hub.folder / "state").write_text("off")
    adb_server.run("disconnect")
    when(lambda: hub.said() == [ON], lambda: hub.device.server.connect_tcp(address))
    environ = {
        "BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}",
        "PATH": f"{hub.search_path}:{os.environ['PATH']}",
    }
    settings = Settings.from_environment(environ, home=hub.folder / "home")
    (settings.state_folder / "journals").parent.mkdir(parents=True, exist_ok=True)
    hub.journal.folder.rename(settings.state_folder / "journals")
    yield settings
    assert not hub.is_off
    assert not UndoJournal(settings.state_folder / "journals").serials()


def test_a_port_has_power_before_phones_are_picked(hub: Hub, away: Settings) -> None:
    with Workspace(away) as workspace:
        assert [facts.serial for facts in open_devices(workspace, DeviceSelection()).facts] == [
            "ON-A-HUB"
        ]
    assert hub.said() == [ON]


def test_a_port_is_left_off_while_its_phone_is_measured(hub: Hub, away: Settings) -> None:
    with Workspace(away) as other, Workspace(away) as workspace:
        with other.lease.acquire(hub.device.serial):
            assert attached_devices(workspace) == []
            assert hub.said() == []
        assert [item.seen.serial for item in attached_devices(workspace)] == ["ON-A-HUB"]


@pytest.mark.parametrize("names", [(), ("ON-A-HUB",)])
def test_a_phone_that_isnt_listed_is_restored(
    hub: Hub, away: Settings, names: tuple[str, ...]
) -> None:
    done = restore(away, names)
    assert (done.exit_code, done.data["restored"]) == (0, {"ON-A-HUB": ["a port"]})


def test_a_phone_that_stays_away_has_its_port_restored_all_the_same(
    hub: Hub, away: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "_BACK_S", 0.0)
    hub.device.usb_path = ""
    other = UndoJournal(away.state_folder / "journals")
    other.add(Serial("ELSEWHERE"), SettingChange(what="another port", port="2 1"))
    done = restore(away, ("ELSEWHERE",))
    assert (done.exit_code, done.data["restored"]) == (0, {"ELSEWHERE": ["another port"]})
    assert done.data["notes"]["ELSEWHERE"] == ["not checked: is not attached"]


def test_a_phones_own_file_cant_have_a_port_switched(hub: Hub) -> None:
    own = '{"what": "evil", "port": "1-4 2"}\n{"what": "a setting", "undo": "true"}\n'
    hub.device.shell(
        f"mkdir -p {hub.device.work_folder}; echo '{own}' >{hub.device.work_folder}/undo"
    )
    assert hub.conditioner.restore(hub.device) == ["a setting"]
    assert hub.said() == []


def test_a_ports_change_isnt_written_on_the_phone(hub: Hub) -> None:
    hub.journal.add(hub.device.serial, SettingChange(what="a port", port="1-4 2"))
    hub.conditioner.hold(hub.device, SettingChange(what="a setting", undo="true"), "true")
    assert "port" not in hub.device.shell(f"cat {hub.device.work_folder}/undo").text
    assert hub.conditioner.restore(hub.device) == ["a port", "a setting"]


def test_without_a_known_port_or_a_program_nothing_is_switched(hub: Hub) -> None:
    assert not HubPower(hub.journal, search_path="").can_switch(hub.device)
    hub.device.usb_path = ""
    assert not hub.power.can_switch(hub.device)
