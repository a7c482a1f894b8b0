"""A lab whose phones are spread over several processes: one lab to whoever uses it, and whichever of them ends."""

import os
import signal

import pytest

from benchfarm_lab.errors import DeviceError, UsageError
from benchfarm_lab.lab import lab_request, read_lab, start_lab, stop_lab
from benchfarm_lab.spec import PhoneSpec
from benchfarm_lab.spread import processes_for
from tests.conftest import process_is_gone

SERIALS = ["A", "B", "C", "D", "E"]


@pytest.fixture
def running(state_dir, adb_server):
    specs = [PhoneSpec(profile="pixel-3", serial=serial) for serial in SERIALS]
    lab = start_lab(state_dir, specs, adb_keys=[adb_server.public_key], time_factor=10.0, processes=3)
    yield lab
    for phone in lab.phones:
        adb_server.run("disconnect", phone.address)


@pytest.fixture
def listed(state_dir):
    return lambda: lab_request(state_dir, {"request": "list"})


@pytest.fixture
def add(state_dir):
    return lambda serial, **more: lab_request(
        state_dir, {"request": "add", "phone": {"profile": "pixel-4", "serial": serial, **more}}
    )["phone"]


def kill_a_share(running, listed, wait_until):
    """Kill the process that runs B and E, and return when the lab knows."""
    os.kill(running.pids[1], signal.SIGKILL)
    reason = f"process {running.pids[1]} of the virtual lab was ended by SIGKILL"
    wait_until(lambda: listed()["lost"] == [{"serials": ["B", "E"], "reason": reason}], "the lab knows")


@pytest.fixture
def all_end(running, wait_until):
    """Wait until no process of the lab is left: its lock is free a moment before."""
    return lambda: wait_until(lambda: all(process_is_gone(pid) for pid in running.pids), "its processes have ended")


def test_phones_of_all_processes_answer_as_one_lab(running, state_dir, adb_server, listed):
    assert len(set(running.pids)) == 3
    assert running.pids[0] == running.pid
    assert read_lab(state_dir) == running
    assert [phone.serial for phone in running.phones] == SERIALS
    for phone in running.phones:
        adb_server.connect(phone.address)
        assert (
            adb_server.run("-s", phone.address, "shell", "getprop ro.serialno").stdout == f"{phone.serial}\n".encode()
        )
    told = listed()
    assert [(phone["serial"], phone["connections"]) for phone in told["phones"]] == [(name, 1) for name in SERIALS]
    assert told["lost"] == []


def test_phones_come_and_go_in_every_process(running, state_dir, listed, add):
    for serial in ("A", "B", "C"):
        lab_request(state_dir, {"request": "remove", "serial": serial})
    added = [add(serial)["address"] for serial in ("F", "G", "H")]
    assert [phone["serial"] for phone in listed()["phones"]] == ["D", "E", "F", "G", "H"]
    assert [phone.address for phone in read_lab(state_dir).phones][2:] == added
    with pytest.raises(UsageError, match="there are: D, E, F, G, H"):
        lab_request(state_dir, {"request": "remove", "serial": "A"})


def test_wrong_phone_is_refused_by_every_process(running, add, listed):
    for number in range(4):
        with pytest.raises(DeviceError, match=str(running.phones[0].port)):
            add(f"X{number}", port=running.phones[0].port)
        with pytest.raises(UsageError, match="nokia-3310"):
            add("Y", profile="nokia-3310")
        add(f"Z{number}")
    assert len(listed()["phones"]) == 9


def test_killed_leader_takes_all_processes_with_it(running, state_dir, adb_server, wait_until, all_end):
    def is_told_as_gone():
        try:
            read_lab(state_dir)
        except UsageError as error:
            return "no virtual lab" in str(error)
        return False

    os.kill(running.pid, signal.SIGKILL)
    wait_until(is_told_as_gone, "nobody holds the folder")
    all_end()
    specs = [PhoneSpec(profile="pixel-3", serial="B", port=running.phones[1].port)]
    assert start_lab(state_dir, specs, adb_keys=[adb_server.public_key]).phones[0].address == running.phones[1].address


def test_killed_share_takes_its_phones_alone_and_the_lab_says_so(
    running, state_dir, adb_server, listed, add, wait_until
):  # fmt: skip
    kill_a_share(running, listed, wait_until)
    assert [phone["serial"] for phone in listed()["phones"]] == ["A", "C", "D"]
    wait_until(lambda: [phone.serial for phone in read_lab(state_dir).phones] == ["A", "C", "D"], "lab.json says so")
    assert running.pids[1] not in read_lab(state_dir).pids
    for request in ({"request": "fault", "fault": {"kind": "cut"}}, {"request": "clear"}):
        with pytest.raises(DeviceError, match=f"B: gone: process {running.pids[1]} .* SIGKILL"):
            lab_request(state_dir, {**request, "serial": "B"})
    adb_server.connect(running.phones[2].address)
    assert adb_server.run("-s", running.phones[2].address, "shell", "echo on").stdout == b"on\n"


def test_lost_phone_can_be_plugged_in_anew_or_forgotten(running, state_dir, adb_server, listed, add, wait_until):
    adb_server.connect(running.phones[1].address)
    adb_server.run("-s", running.phones[1].address, "shell", "echo kept >/data/local/tmp/note")
    kill_a_share(running, listed, wait_until)
    lab_request(state_dir, {"request": "remove", "serial": "E"})
    again = add("B")
    assert listed()["lost"] == []
    assert [phone["serial"] for phone in listed()["phones"]] == ["A", "C", "D", "B"]
    assert len(read_lab(state_dir).pids) == 3
    adb_server.connect(again["address"])
    assert adb_server.run("-s", again["address"], "shell", "cat /data/local/tmp/note").stdout == b"kept\n"
    adb_server.run("disconnect", again["address"])


def test_process_that_hangs_is_told_and_ended_with_the_lab(running, state_dir, listed, all_end):
    os.kill(running.pids[2], signal.SIGSTOP)
    told = listed()
    assert [phone["serial"] for phone in told["phones"]] == ["A", "B", "D", "E"]
    assert [part["serials"] for part in told["lost"]] == [["C"]]
    assert f"process {running.pids[2]} of the virtual lab didn't answer" in told["lost"][0]["reason"]
    assert stop_lab(state_dir) is True
    all_end()


def test_few_phones_are_one_process_and_many_are_not_one_each():
    assert [processes_for(phones, cores=8) for phones in (0, 1, 2)] == [1, 1, 1]
    for cores in (1, 2, 4, 64):
        counts = [processes_for(phones, cores=cores) for phones in range(200)]
        assert counts == sorted(counts)
        assert 1 < max(counts) <= 8
    assert [processes_for(phones, cores=2) for phones in (20, 100, 1000)] == [2, 4, 8]
