"""The log buffers and logcat."""

from __future__ import annotations

import re


def log(
    phone,
    *messages: str | bytes,
    tag: str = "tflite",
    buffer: str = "main",
    priority: str = "I",
    pid: int = 4321,
) -> None:
    for message in messages:
        phone.userland.logs.append(priority, tag, message, pid=pid, buffer=buffer)


def shown(phone, arguments: str = "-d") -> list[str]:
    """Return what logcat prints, without the head of each message."""
    return [
        line.partition(": ")[2] or line for line in phone.out(f"logcat {arguments}").splitlines()
    ]


def test_form_is_liblogs(phone):
    log(phone, "hello")
    head = r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  4321  4321 I tflite  : "
    assert re.fullmatch(
        f"--------- beginning of main\n{head}hello\n", phone.out("logcat -d -v threadtime")
    )
    log(phone, "count=3\n\nlast\n")
    assert re.fullmatch(
        f"{head}count=3\n{head}\n{head}last\n", phone.out("logcat -d -t 1").partition("\n")[2]
    )


def test_buffers_are_merged_by_time_with_a_divider_each(phone):
    log(phone, "one")
    log(phone, "two", buffer="crash")
    log(phone, "three", buffer="system")
    assert shown(phone) == [
        "--------- beginning of main", "one", "--------- beginning of crash", "two",
        "--------- beginning of system", "three",
    ]  # fmt: skip
    assert shown(phone, "-d -b crash")[1:] == ["two"]
    assert len(shown(phone, "-d -b crash -b system")) == 4
