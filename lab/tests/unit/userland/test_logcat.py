"""The log buffers and logcat's forms."""

from __future__ import annotations

import re

import pytest

from benchfarm_lab.faults import Fault, FaultKind


def log(
    phone, *messages: str | bytes, tag: str = "tflite", buffer: str = "main", priority: str = "I", pid: int = 4321
) -> None:
    for message in messages:
        phone.userland.logs.log(priority, tag, message, pid=pid, tid=pid + 1, uid=10147, buffer=buffer)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("brief", r"I/tflite  \( 4321\): hello"),
        ("process", r"I\( 4321\) hello  \(tflite\)"),
        ("tag", r"I/tflite  : hello"),
        ("thread", r"I\( 4321: 4322\) hello"),
        ("raw", "hello"),
        ("time", r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} I/tflite  \( 4321\): hello"),
        ("threadtime", r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  4321  4322 I tflite  : hello"),
        ("long", r"\[ \d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  4321: 4322 I/tflite   \]\nhello\n"),
        ("threadtime -v uid", r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} 10147  4321  4322 I tflite  : hello"),
        ("threadtime -v epoch", r" {9}\d{10}\.\d{3}  4321  4322 I tflite  : hello"),
        ("threadtime,year,usec", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}  4321  4322 I tflite  : hello"),
        ("threadtime -v UTC", r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+0000  4321  4322 I tflite  : hello"),
    ],
)
def test_form_is_liblogs(phone, form, expected):
    log(phone, "hello")
    assert re.fullmatch(f"--------- beginning of main\n{expected}\n", phone.out(f"logcat -d -v {form}"))


def test_each_line_of_a_message_has_the_header(phone):
    log(phone, "count=3\n\nlast\n")
    assert phone.out("logcat -d -v tag") == (
        "--------- beginning of main\nI/tflite  : count=3\nI/tflite  : \nI/tflite  : last\n"
    )


def test_native_message_is_cut_at_1023_bytes(phone):
    log(phone, "x" * 3000)
    assert phone.out("logcat -d -v raw").splitlines()[1] == "x" * 1023


def test_bytes_that_are_no_text_come_out_as_they_went_in(phone):
    log(phone, b"bad \xff\xc3 bytes")
    call = phone.call("logcat -d -v raw")
    call.join()
    assert bytes(call.out.data) == b"--------- beginning of main\nbad \xff\xc3 bytes\n"
    assert phone.out("logcat -d -v raw -v printable").splitlines()[1] == r"bad \xFF\xC3 bytes"


def test_buffers_are_merged_by_time_with_a_divider_each(phone):
    log(phone, "one")
    log(phone, "two", buffer="crash")
    log(phone, "three", buffer="events")
    log(phone, "four", buffer="system")
    assert phone.out("logcat -d -v raw").splitlines() == [
        "--------- beginning of main", "one", "--------- beginning of crash", "two",
        "--------- beginning of system", "four",
    ]  # fmt: skip
    assert phone.out("logcat -d -v raw -b events").splitlines()[1:] == ["three"]
    assert phone.out("logcat -d -v raw -b crash,events").count("\n") == 4
    assert phone.out("logcat -b all -d -v raw -D") == phone.out("logcat -b all -d -v raw -D")


def test_clear_empties_only_the_buffers_named(phone):
    log(phone, "one")
    log(phone, "two", buffer="crash")
    assert phone.run("logcat -c")[0] == 0
    assert phone.out("logcat -d") == ""
    log(phone, "three", buffer="crash")
    assert phone.run("logcat -b main -c")[0] == 0
    assert "three" in phone.out("logcat -d")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("-s tflite", ["info", "error"]),
        ("-s tflite:E", ["error"]),
        ("tflite:E '*:S'", ["error"]),
        ("'*:E'", ["error", "other error"]),
        ("other:S", ["info", "error"]),
        ("--pid=77", ["other error"]),
        ("--pid 77", ["other error"]),
        ("-e '^other'", ["other error"]),
        ("-t 1", ["other error"]),
        ("-T 2", ["error", "other error"]),
        ("-m 1", ["info"]),
        ("-s nothing", []),
    ],
)
def test_filters_choose(phone, arguments, shown):
    log(phone, "info")
    log(phone, "error", priority="E")
    log(phone, "other error", tag="other", priority="E", pid=77)
    assert [line for line in phone.out(f"logcat -d -v raw {arguments}").splitlines() if line[0] != "-"] == shown


@pytest.mark.parametrize("form", ["%m-%d %H:%M:%S.000", "%Y-%m-%d %H:%M:%S.000", "%s.000"])
def test_start_can_be_a_time(phone, form):
    log(phone, "before")
    later = phone.out(f"date -d @{int(phone.time.wall_s()) + 100} '+{form}'").strip()
    phone.time.jump(200)
    log(phone, "after")
    assert phone.out(f"logcat -d -v raw -T '{later}'").splitlines()[1:] == ["after"]


def test_following_goes_on_until_the_client_hangs_up(phone):
    log(phone, "old")
    call = phone.call("logcat -v raw")
    call.out.wait_for(b"old\n")
    log(phone, "new")
    call.out.wait_for(b"new\n")
    call.hang_up()
    call.join()
    assert "logcat" not in phone.out("ps -A -o NAME")


def test_following_from_a_time_shows_only_what_comes(phone):
    log(phone, "old")
    call = phone.call("logcat -v raw -T 1")
    call.out.wait_for(b"old\n")
    log(phone, "new")
    call.out.wait_for(b"new\n")
    call.hang_up()
    call.join()


def test_ring_forgets_the_oldest(phone):
    assert phone.run("logcat -G 64K")[0] == 0
    log(phone, *(f"{number:04d} " + "x" * 900 for number in range(200)))
    lines = phone.out("logcat -d -v raw -b main").splitlines()[1:]
    assert lines[-1].startswith("0199")
    assert 40 < len(lines) < 80
    assert "main: ring buffer is 64 KiB" in phone.out("logcat -g -b main")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [("-b nope", "buffer"), ("-v nope", "-v"), ("-T garbage", "time format"), ("-e '('", "regex"), ("':X'", "filter")],
)
def test_wrong_argument_is_refused(phone, arguments, word):
    status, out, err = phone.run(f"logcat -d {arguments}")
    assert status == 1
    assert not out
    assert word in err


def test_log_command_writes_a_line(phone):
    phone.run("log -t mark -p w begin run 7")
    assert re.search(r"W mark +: begin run 7\n", phone.out("logcat -d"))


def test_garbage_fault_comes_between_the_lines(phone):
    log(phone, "first")
    phone.faults.add(Fault(kind=FaultKind.LOG_GARBAGE))
    log(phone, "second")
    call = phone.call("logcat -d -v raw")
    call.join()
    lines = bytes(call.out.data).split(b"\n")
    assert lines[1] == b"first"
    assert lines[3] == b"second"
    with pytest.raises(UnicodeDecodeError):
        lines[2].decode()
