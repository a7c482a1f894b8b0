"""How often phones are asked while a command finds and opens them, through a real adb server that
is overheard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.phone import Phone
from benchfarm_virtual.phones import VirtualPhones
from orchestrator.app.attached import Needs, attached_devices, open_devices
from orchestrator.app.workspace import Workspace
from orchestrator.cli.devices import restore
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.sockets import ServerAddress
from orchestrator.engine.events import DeviceNote
from orchestrator.errors import DeviceBusyError, DeviceUnusableError, NoDeviceError
from orchestrator.ports import SettingChange
from orchestrator.records.case import Serial
from orchestrator.records.plan import DeviceSelection
from orchestrator.settings import Settings
from tests.samples.overheard_adb import Overheard
from tests.samples.phones import host_file
from tests.samples.places import MODELS


@pytest.fixture
def overheard(adb_server: Any) -> Iterator[Overheard]:
    with Overheard(adb_server.port) as overheard:
        yield overheard


@pytest.fixture
def here(overheard: Overheard, tmp_path: Path) -> Settings:
    return Settings.from_environment(
        {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{overheard.port}"}, home=tmp_path / "home"
    )


@pytest.fixture
def phones(adb_server: Any, make_lab: Callable[..., VirtualPhones]) -> Iterator[list[Phone]]:
    """Three phones that the server knows, and no others: what is left out is told by its address
    too."""
    adb_server.run("disconnect")
    server, lab = AdbServer(ServerAddress(port=adb_server.port)), make_lab(adb_server)
    phones = [lab.add("pixel-3", serial=f"S{number}") for number in range(3)]
    for phone in phones:
        server.connect_tcp(phone.address)
    yield phones
    for phone in phones:
        server.disconnect(phone.address)


def test_a_phone_is_asked_who_it_is_and_its_facts_once_each(
    phones: list[Phone], overheard: Overheard, here: Settings
) -> None:
    with Workspace(here) as workspace:
        opened = open_devices(workspace, DeviceSelection())
    assert [facts.serial for facts in opened.facts] == ["S0", "S1", "S2"]
    for phone in phones:
        shells = [asked for asked in overheard.of(phone.address) if asked.startswith("shell")]
        # Who it is, its facts, and by itself what its compositor tells, which may hang.
        assert len(shells) == 3, shells
        assert overheard.of(phone.address).count("host-features") == 1


def test_a_phone_that_another_command_uses_is_left_out_and_its_facts_are_not_asked_for(
    phones: list[Phone], overheard: Overheard, here: Settings
) -> None:
    with Workspace(here) as other, other.lease.acquire(Serial("S1")), Workspace(here) as workspace:
        opened = open_devices(workspace, DeviceSelection())
        assert [facts.serial for facts in opened.facts] == ["S0", "S2"]
        assert opened.left_out.keys() == {"S1"}
        assert opened.left_out["S1"].startswith("in use by process ")
        with pytest.raises(DeviceBusyError, match="S1: in use by process"):
            open_devices(workspace, DeviceSelection(serials=("S1",)))
        # "Any one of these" takes one that is free.
        some = open_devices(workspace, DeviceSelection(serials=("S1", "S2"), any=1))
        assert [facts.serial for facts in some.facts] == ["S2"]
        with (
            other.lease.acquire(Serial("S0")),
            other.lease.acquire(Serial("S2")),
            pytest.raises(NoDeviceError, match="in use by process"),
        ):
            open_devices(workspace, DeviceSelection())
    asked = [item for item in overheard.of(phones[1].address) if item.startswith("shell")]
    # Four listings.
    assert len(asked) == 4


def test_this_computer_stands_in_for_no_phone_but_a_resume_measures_on_it_without_them(
    phones: list[Phone], here: Settings
) -> None:
    for wanted in (
        DeviceSelection(serials=("Z",), host=True),
        DeviceSelection(profiles=("pixel-4",), host=True),
    ):
        with Workspace(here) as workspace:
            for needs in (Needs.EACH, Needs.ONE):
                with pytest.raises(NoDeviceError):
                    open_devices(workspace, wanted, needs)
    with Workspace(here) as other, other.lease.acquire(Serial("S1")), Workspace(here) as workspace:
        opened = open_devices(
            workspace, DeviceSelection(serials=("S1", "Z"), host=True), Needs.ONE_OR_HOST
        )
        assert [facts.serial for facts in opened.facts] == ["host"]
        assert opened.missing.keys() == {"S1", "Z"}
        with pytest.raises(NoDeviceError) as refused:
            open_devices(workspace, DeviceSelection(serials=("S1", "Z")), Needs.ONE_OR_HOST)
    assert "\n  S1: in use by process " in str(refused.value)
    assert "\n  Z: is not attached" in str(refused.value)


def test_phones_are_restored_after_one_listing_however_many_there_are(
    phones: list[Phone], overheard: Overheard, here: Settings
) -> None:
    with Workspace(here) as workspace:
        for device, facts in open_devices(workspace, DeviceSelection()).devices:
            with workspace.lease.acquire(facts.serial):
                workspace.conditioner.hold(device, SettingChange(what="a note", undo=":"), ":")
    for words in ((), ("S0", "S1", "S2")):
        overheard.forget()
        told = restore(here, words)
        assert isinstance(told.data, dict)
        assert (list(told.data["restored"]), told.data["failed"]) == (["S0", "S1", "S2"], {})
        assert overheard.of("").count("host:devices-l") == 1


def test_a_phone_whose_compositor_doesnt_answer_stays_the_system_that_it_was(
    phones: list[Phone], here: Settings, samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found of its outputs is of its GPU's driver: it would be forgotten with that."""
    with Workspace(here) as workspace:
        known = open_devices(workspace, DeviceSelection()).facts
        samples.night(workspace.store, "first", devices=known[:2])
    assert all(facts.gpu_driver for facts in known)
    monkeypatch.setattr("orchestrator.devices.phone._GPU_TIMEOUT_S", 0.3)
    hang = parse_fault("hang", ("moment=tool", "subject=*/dumpsys", "seconds=1"))
    for phone in phones:
        phone.faults.add(hang)
    told: list[DeviceNote] = []

    class Told:
        def on_event(self, event: object) -> None:
            if isinstance(event, DeviceNote):
                told.append(event)

    with Workspace(here, observer=Told()) as workspace:
        # Another system may have another driver.
        phones[1].userland.props["ro.build.fingerprint"] = "after/an/update"
        same, updated, unknown = open_devices(workspace, DeviceSelection()).facts
    assert (same.gpu, same.computes_with) == (known[0].gpu, known[0].computes_with)
    assert (updated.gpu_driver, unknown.gpu_driver) == ("", "")
    notes = {note.serial for note in told if "its compositor doesn't answer" in note.text}
    assert notes == {"S0", "S1", "S2"}


def test_two_phones_of_one_serial_number_stay_two_when_only_one_of_them_is_attached(
    phones: list[Phone], here: Settings, adb_server: Any
) -> None:
    """Their results would be taken for one phone's: nothing is measured under that name until
    somebody ends it."""
    phones[1].userland.props["ro.serialno"] = "S0"
    with Workspace(here) as workspace:
        both = [item.seen for item in attached_devices(workspace) if item.seen.serial == "S0"]
        assert [(seen.usable, "several phones call themselves S0" in seen.reason) for seen in both] == [
            (False, True), (False, True),
        ]  # fmt: skip
    AdbServer(ServerAddress(port=adb_server.port)).disconnect(phones[1].address)
    with Workspace(here) as workspace:
        opened = open_devices(workspace, DeviceSelection())
        assert [facts.serial for facts in opened.facts] == ["S2"]
        # What tells them apart is kept, and shown wherever phones are.
        reason = opened.left_out["S0"]
        assert "in quarantine: several phones call themselves S0: " in reason
        assert phones[0].address in reason
        assert phones[1].address in reason
        assert "(booted as " in reason
        workspace.quarantine.release(Serial("S0"))
        assert [facts.serial for facts in open_devices(workspace, DeviceSelection()).facts] == [
            "S0",
            "S2",
        ]


def test_a_phone_under_whose_serial_number_another_one_was_measured_is_kept_out_until_it_is_let_in(
    phones: list[Phone], here: Settings, samples
) -> None:
    """They were never attached at the same time: what the store knows of the one tells them apart."""
    with Workspace(here) as workspace:
        known = open_devices(workspace, DeviceSelection()).facts
        others = [replace(known[0], model="Pixel 9"), *known[1:]]
        samples.night(workspace.store, "first", devices=others)
    told = "S0: several phones have this serial number: the results in the store are of a Google Pixel 9"
    with Workspace(here) as workspace:
        with pytest.raises(DeviceUnusableError, match=told) as refused:
            open_devices(workspace, DeviceSelection(serials=("S0",)))
        assert refused.value.hint.endswith("benchfarm device release S0")
    with Workspace(here) as workspace:
        opened = open_devices(workspace, DeviceSelection())
        assert [facts.serial for facts in opened.facts] == ["S1", "S2"]
        assert "in quarantine: several phones have this serial number" in opened.left_out["S0"]
        workspace.quarantine.release(Serial("S0"))
        for _ in range(2):
            assert "S0" in {
                facts.serial for facts in open_devices(workspace, DeviceSelection()).facts
            }
        # It is the one that is known from now on: another one is another reason.
        samples.night(workspace.store, "later", devices=known)
        open_devices(workspace, DeviceSelection())
        samples.night(workspace.store, "last", devices=[replace(known[0], codename="other")])
        with pytest.raises(DeviceUnusableError, match="not the same codename"):
            open_devices(workspace, DeviceSelection(serials=("S0",)))


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("shell,v2", "protocol fault (couldn't read status): Success"),
        ("shell,v2", "couldn't read from device"),
        ("sync:", "couldn't read from device"),
        ("sync:", "protocol fault (couldn't read status)"),
    ],
)
def test_words_of_a_lost_link_are_asked_again(
    phones: list[Phone], overheard: Overheard, service: str, words: str
) -> None:
    device = AdbDevice(AdbServer(ServerAddress(port=overheard.port)), phones[0].address)
    model = min(MODELS.glob("*float*.tflite"))
    device.facts()
    overheard.refusals[service] = words
    device.state()
    placed = device.place(host_file(model))
    assert not overheard.refusals, "it was asked"
    assert placed.pushed_bytes == model.stat().st_size
