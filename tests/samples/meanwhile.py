"""What happens to a phone while something else goes on: once something is so, and not after some
time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from benchfarm_virtual.phone import Phone
from benchfarm_virtual.phones import VirtualPhones
from orchestrator.errors import DeviceError
from tests.conftest import poll_until


def when(happened: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do something from outside once something has happened; nothing once the test is over."""
    test = current_test()

    def is_over() -> bool:
        return current_test() != test

    def watch() -> None:
        poll_until(lambda: is_over() or happened(), "what is waited for happens", 120.0)
        if not is_over():
            then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def current_test() -> str:
    """Return which test runs now, in whichever of its phases."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def runs(phone: Phone, command: str) -> Callable[[], bool]:
    """Whether a process runs on the phone, asked without its noticing."""
    return lambda: any(
        " ".join(process.argv) == command for process in phone.userland.processes.live()
    )


def switch_on_at(lab: VirtualPhones, profile: str, *, serial: str, port: int) -> Phone:
    """Switch a phone on at the port of one that is off now; others may have the port for a moment."""
    phones: list[Phone] = []

    def is_on() -> bool:
        with suppress(DeviceError):
            phones.append(lab.add(profile, serial=serial, port=port))
        return bool(phones)

    poll_until(is_on, f"port {port} is free", 120.0)
    return phones[0]
