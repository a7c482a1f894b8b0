"""A lab whose phones are spread over several processes is one lab to whoever uses it, and ends as
one."""

import os
import signal

import pytest

from benchfarm_virtual.errors import DeviceError, UsageError
from benchfarm_virtual.lab import lab_request, read_lab, start_lab, stop_lab
from benchfarm_virtual.shares import processes_for
from benchfarm_virtual.spec import PhoneSpec
from tests.conftest import process_is_gone

SERIALS = ["A", "B", "C", "D", "E"]


@pytest.fixture
def running(state_dir, adb_server):
    specs = [PhoneSpec(profile="pixel-3", serial=serial) for serial in SERIALS]
    lab = start_lab(
        state_dir, specs, adb_keys=[adb_server.public_key], time_factor=10.0, processes=3
    )
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


@pytest.fixture
def all_end(running, wait_until):
    """Wait until no process of the lab is left: its lock is free a moment before."""
    return lambda: wait_until(
        lambda: all(process_is_gone(pid) for pid in running.pids), "its processes have ended"
    )


def test_phones_of_all_processes_answer_as_one_lab(running, state_dir, adb_server, listed):
    assert len(set(running.pids)) == 3
    assert running.pids[0] == running.pid
    assert read_lab(state_dir) == running
    assert [phone.serial for phone in running.phones] == SERIALS
    for phone in running.phones:
        adb_server.connect(phone.address)
        assert (
            adb_server.run("-s", phone.address, "shell", "getprop ro.serialno").stdout
            == f"{phone.serial}\n".encode()
        )
    told = listed()
    assert [(phone["serial"], phone["connections"]) for phone in told["phones"]] == [
        (name, 1) for name in SERIALS
    ]


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


@pytest.mark.parametrize("process", [0, 1], ids=["leader", "share"])
def test_a_killed_process_ends_the_lab(
    running, state_dir, adb_server, wait_until, all_end, process
):
    def has_no_lab():
        try:
            read_lab(state_dir)
        except UsageError as error:
            return "no virtual lab" in str(error)
        return False

    os.kill(running.pids[process], signal.SIGKILL)
    wait_until(has_no_lab, "nobody holds the folder")
    all_end()
    stop_lab(state_dir)  # a process that is gone may hold the folder for a moment yet
    if process:
        log = (state_dir / "lab.log").read_text()
        assert f"process {running.pids[1]} of the virtual lab has ended, and the lab with it" in log
    specs = [PhoneSpec(profile="pixel-3", serial="B", port=running.phones[1].port)]
    assert (
        start_lab(state_dir, specs, adb_keys=[adb_server.public_key]).phones[0].address
        == running.phones[1].address
    )


def test_a_process_that_hangs_is_ended_with_the_lab(running, state_dir, all_end):
    os.kill(running.pids[2], signal.SIGSTOP)
    assert stop_lab(state_dir) is True
    all_end()


def test_few_phones_are_one_process_and_many_are_not_one_each():
    assert [processes_for(phones, cores=8) for phones in (0, 1, 2)] == [1, 1, 1]
    for cores in (1, 2, 4, 64):
        counts = [processes_for(phones, cores=cores) for phones in range(200)]
        assert counts == sorted(counts)
        assert 1 < max(counts) <= 8
    assert [processes_for(phones, cores=2) for phones in (20, 100, 1000)] == [2, 4, 8]
