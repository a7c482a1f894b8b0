"""Virtual phones in several processes: they are one lab to whoever uses them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.app import virtual_phones
from orchestrator.app.attached import attached_devices
from orchestrator.app.requests import LabRequest
from orchestrator.app.workspace import Workspace
from orchestrator.errors import UsageError
from orchestrator.processes import end_running
from orchestrator.settings import Settings

SIX = LabRequest(profiles=("pixel-3",) * 3 + ("pixel-4",) * 3)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A home of its own, on a computer of at least two cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    environ = {**os.environ, "ANDROID_ADB_SERVER_PORT": "1"}
    own = Settings.from_environment(environ, home=tmp_path)
    yield own
    virtual_phones.stop(own)


def serials(settings: Settings) -> list[str]:
    return [phone.serial for phone in virtual_phones.phones_of(settings)]


def test_phones_of_all_processes_are_listed_given_faults_and_stopped(settings: Settings) -> None:
    virtual_phones.start(settings, SIX)
    assert len(virtual_phones.labs(settings)) == 2
    first, *_, last = serials(settings)
    for serial in (first, last):
        virtual_phones.ask(settings, "fault", serial, kind="banner", options=[])
    faulty = [phone["serial"] for phone in virtual_phones.listed(settings) if phone["faults"]]
    assert faulty == [first, last]
    with pytest.raises(UsageError, match=f"no virtual phone 'X'; there are: {first}, .*{last}"):
        virtual_phones.ask(settings, "fault", "X", kind="banner", options=[])
    with pytest.raises(UsageError, match="no virtual phone 'X'"):
        virtual_phones.detach(settings, first, "X")
    assert len(serials(settings)) == 6
    virtual_phones.detach(settings, first, last)
    assert len(serials(settings)) == 4
    assert virtual_phones.stop(settings) == (True, True)
    assert not virtual_phones.running(settings)


def test_no_two_phones_have_one_serial_number_in_whichever_processes(settings: Settings) -> None:
    virtual_phones.start(settings, SIX)
    for serial in serials(settings):
        with pytest.raises(UsageError, match=f"a virtual phone {serial} exists already"):
            virtual_phones.attach(settings, replace(SIX, profiles=("pixel-3",), serial=serial))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: virtual_phones.attach(settings, LabRequest()), range(4)))
    assert len(set(serials(settings))) == len(serials(settings)) == 14
    # By its address, or named twice.
    first, second, *others = virtual_phones.phones_of(settings)
    virtual_phones.detach(settings, first.address, second.serial, second.serial)
    assert set(serials(settings)) == {phone.serial for phone in others}
    with Workspace(settings) as workspace:
        assert all(item.seen.usable for item in attached_devices(workspace))


def test_of_two_that_start_a_lab_at_once_one_is_told_what_to_do(settings: Settings) -> None:
    def start(request: LabRequest) -> str:
        try:
            virtual_phones.start(settings, request)
        except UsageError as error:
            return error.hint
        return "started"

    with ThreadPoolExecutor(2) as pool:
        told = sorted(pool.map(start, (LabRequest(), LabRequest())))
    assert told[1] == "started"
    assert "'benchfarm virtual up PROFILE' adds phones" in told[0]
    assert len(serials(settings)) == 2


def test_a_lab_of_which_a_process_still_runs_is_not_started_again(
    settings: Settings, wait_until: Callable[..., None]
) -> None:
    virtual_phones.start(settings, SIX)
    killed, left = virtual_phones.labs(settings)
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(lambda: len(virtual_phones.labs(settings)) == 1, "the process to end", 60.0)
    with pytest.raises(UsageError, match="virtual phones are running here already") as raised:
        virtual_phones.start(settings, SIX)
    assert "'benchfarm virtual down' stops them" in raised.value.hint
    assert virtual_phones.labs(settings) == [left]
    addresses = {phone.address for phone in killed.phones}
    with Workspace(settings) as workspace:
        seen = [item.seen for item in attached_devices(workspace)]
    dead = [item for item in seen if not item.usable]
    assert {item.address for item in dead} == addresses
    virtual_phones.stop(settings)
    virtual_phones.start(settings, SIX)
    assert len(serials(settings)) == 6


def test_the_phones_of_one_process_are_seen_after_the_first_one_has_ended(
    settings: Settings, wait_until: Callable[..., None]
) -> None:
    virtual_phones.start(settings, SIX)
    ended, left = virtual_phones.labs(settings)
    os.kill(ended.pid, signal.SIGTERM)
    wait_until(lambda: virtual_phones.labs(settings) == [left], "the process to end", 60.0)
    with Workspace(settings) as workspace:
        seen = [item.seen for item in attached_devices(workspace)]
    assert {item.address for item in seen if item.usable} == {item.address for item in left.phones}


def test_an_adb_server_that_died_while_its_lab_is_up_is_started_again(settings: Settings) -> None:
    one = LabRequest(profiles=("pixel-3",))
    (phone,) = virtual_phones.start(settings, one)
    end_running(virtual_phones.adb_server(settings).arguments)
    assert len(virtual_phones.attach(settings, one)) == 2
    virtual_phones.detach(settings, "VIRTUAL-PIXEL-3-2")
    end_running(virtual_phones.adb_server(settings).arguments)
    with Workspace(settings) as workspace:
        (attached,) = attached_devices(workspace)
    assert (attached.seen.serial, attached.seen.usable) == (phone.serial, True)
    virtual_phones.stop(settings)
    with Workspace(settings) as workspace:
        assert workspace.virtual_server(revive=True) is None
