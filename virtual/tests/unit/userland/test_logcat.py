"""The log buffers and logcat."""

from __future__ import annotations

import re

import pytest

from benchfarm_virtual.faults import Fault, FaultKind


def log(
    phone,
    *messages: str | bytes,
    tag: str = "tflite",
    buffer: str = "main",
    priority: str = "I",
    pid: int = 4321,
) -> None:
    for message in messages:
        phone.userland.logs.append(priority, tag, message, pid=pid, tid=pid + 1, buffer=buffer)


def shown(phone, arguments: str = "-d") -> list[str]:
    """Return what logcat prints, without the head of each message."""
    return [
        line.partition(": ")[2] or line for line in phone.out(f"logcat {arguments}").splitlines()
    ]


def test_form_is_liblogs(phone):
    log(phone, "hello")
    head = r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  4321  4322 I tflite  : "
    assert re.fullmatch(
        f"--------- beginning of main\n{head}hello\n", phone.out("logcat -d -v threadtime")
    )
    log(phone, "count=3\n\nlast\n")
    assert re.fullmatch(
        f"{head}count=3\n{head}\n{head}last\n", phone.out("logcat -d -t 1").partition("\n")[2]
    )


def test_native_message_is_cut_at_1023_bytes(phone):
    phone.userland.logs.log("I", "tflite", "x" * 3000, pid=4321)
    assert shown(phone)[1] == "x" * 1023


def test_bytes_that_are_no_text_come_out_as_they_went_in(phone):
    log(phone, b"bad \xff\xc3 bytes")
    call = phone.call("logcat -d")
    call.join()
    assert bytes(call.out.data).endswith(b": bad \xff\xc3 bytes\n")


def test_buffers_are_merged_by_time_with_a_divider_each(phone):
    log(phone, "one")
    log(phone, "two", buffer="crash")
    log(phone, "three", buffer="events")
    log(phone, "four", buffer="system")
    assert shown(phone) == [
        "--------- beginning of main", "one", "--------- beginning of crash", "two",
        "--------- beginning of system", "four",
    ]  # fmt: skip
    assert shown(phone, "-d -b events")[1:] == ["three"]
    assert len(shown(phone, "-d -b crash -b events")) == 4


@pytest.mark.parametrize("arguments", ["", "-T 1"])
def test_following_goes_on_until_the_client_hangs_up(phone, arguments):
    log(phone, "old")
    call = phone.call(f"logcat {arguments}")
    call.out.wait_for(b"old\n")
    log(phone, "new")
    call.out.wait_for(b"new\n")
    call.hang_up()
    call.join()
    assert "logcat" not in phone.out("ps -A -o NAME")


def test_ring_forgets_the_oldest(phone):
    log(phone, *(f"{number:04d} " + "x" * 900 for number in range(4200)))
    lines = shown(phone)[1:]
    assert lines[-1].startswith("4199")
    assert len(lines) == 4000


def test_garbage_fault_comes_between_the_lines(phone):
    log(phone, "first")
    phone.faults.add(Fault(kind=FaultKind.LOG_GARBAGE))
    log(phone, "second")
    call = phone.call("logcat -d")
    call.join()
    lines = bytes(call.out.data).split(b"\n")
    assert lines[1].endswith(b"first")
    assert lines[3].endswith(b"second")
    with pytest.raises(UnicodeDecodeError):
        lines[2].decode()
