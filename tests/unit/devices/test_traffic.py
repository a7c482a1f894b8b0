"""Files on their way beside measurements: who waits for whom."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.devices.traffic import Lane, hub_of
from orchestrator.errors import InterruptedByUserError
from orchestrator.records.plan import PushLimits

DEADLINE_S = 60.0


class Part:
    """Somebody who enters a turn of the traffic in a thread of its own and stays until told to leave."""

    def __init__(self, pool: ThreadPoolExecutor, enter: Callable[..., AbstractContextManager[None]]) -> None:
        self.is_in, self._leave, self._known = threading.Event(), threading.Event(), threading.Event()
        self.notes: list[str] = []

        def note(text: str) -> None:
            self.notes.append(text)
            self._known.set()

        def stay() -> None:
            try:
                with enter(on_note=note):
                    self.is_in.set()
                    self._known.set()
                    assert self._leave.wait(DEADLINE_S)
            finally:
                self._known.set()

        self.done: Future[None] = pool.submit(stay)
        # In, or waiting: what comes next comes later for sure.
        assert self._known.wait(DEADLINE_S)

    def entered(self) -> "Part":
        assert self.is_in.wait(DEADLINE_S), self.notes
        return self

    def leave(self) -> None:
        self._leave.set()
        self.done.result(DEADLINE_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # A lock on a file belongs to whoever opened it: threads are as processes.
    return tmp_path / "hubs"


@contextmanager
def parts(folder: Path) -> Iterator[Callable[..., Part]]:
    with ThreadPoolExecutor(32) as pool, ExitStack() as ends:

        def make(kind: str, hub: str, limits: PushLimits | None = None, **more: Any) -> Part:
            def enter(**notes: Any) -> AbstractContextManager[None]:
                # A wait is reported at once.
                lane = Lane(folder, hub, lambda: limits or PushLimits(), report_s=0.0, **more, **notes)
                return lane.measuring() if kind == "measure" else lane.pushing()

            part = Part(pool, enter)
            ends.callback(part._leave.set)
            return part

        yield make


@pytest.mark.parametrize(
    ("usb", "hub"),
    [
        ("usb:1-2.3", "1-2"), ("1-2.3.1", "1-2"), ("usb:3-1", "3-1"), ("2-4", "2-4"),
        ("", ""), ("usb:", ""), ("192.168.0.7:5555", ""), ("usb:1-2.x", ""), ("336592896X", ""),
    ],
)  # fmt: skip
def test_a_usb_path_tells_the_hub(usb: str, hub: str) -> None:
    assert hub_of(usb) == hub


def test_a_push_waits_for_the_hubs_measurements_and_other_hubs_for_nothing(folder: Path) -> None:
    with parts(folder) as part:
        first, second = part("measure", "1-2").entered(), part("measure", "1-2").entered()
        push = part("push", "1-2")
        part("push", "1-3").entered()
        part("measure", "1-4").entered()
        first.leave()
        assert not push.is_in.is_set()
        second.leave()
        push.entered()


def test_who_comes_while_another_kind_waits_is_behind_it(folder: Path) -> None:
    with parts(folder) as part:
        measurement = part("measure", "1-2").entered()
        push = part("push", "1-2")
        later = part("measure", "1-2")
        assert not later.is_in.is_set()
        measurement.leave()
        push.entered()
        assert not later.is_in.is_set()
        push.leave()
        later.entered()


def test_pushes_keep_to_the_limits_of_hub_and_computer(folder: Path) -> None:
    limits = PushLimits(per_hub=2, per_host=3)
    with parts(folder) as part:
        one, two = part("push", "1-2", limits).entered(), part("push", "1-2", limits).entered()
        three = part("push", "1-2", limits)
        part("push", "1-3", limits).entered()
        four = part("push", "", limits)
        assert not three.is_in.is_set()
        assert not four.is_in.is_set()
        one.leave()
        two.leave()
        three.entered()
        four.entered()


def test_both_at_once_where_the_plan_allows_it(folder: Path) -> None:
    limits = PushLimits(per_hub=1, beside_measurements=True)
    with parts(folder) as part:
        part("measure", "1-2").entered()
        push = part("push", "1-2", limits).entered()
        second = part("push", "1-2", limits)
        part("measure", "1-2").entered()
        assert not second.is_in.is_set()
        push.leave()
        second.entered()


def test_who_is_cancelled_while_it_waits_holds_up_nobody(folder: Path) -> None:
    cancelled = threading.Event()
    with parts(folder) as part:
        part("measure", "1-2").entered()
        push = part("push", "1-2", cancelled=cancelled)
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            push.done.result(DEADLINE_S)
        part("measure", "1-2").entered()


def test_a_crowd_of_pushes_and_measurements_gets_through_and_keeps_to_turns_and_limits(folder: Path) -> None:
    lock, now, worst = threading.Lock(), {"measure": 0, "push": 0}, [0]

    def go(kind: str, hub: str) -> None:
        limits = PushLimits(per_hub=2, per_host=3)
        lane = Lane(folder, hub, lambda: limits)
        with lane.measuring() if kind == "measure" else lane.pushing():
            with lock:
                now[kind] += hub == "1-1"
                worst[0] = max(worst[0], min(now.values()), now["push"] - 2)
            with lock:
                now[kind] -= hub == "1-1"

    with ThreadPoolExecutor(12) as pool:
        work = [
            pool.submit(go, kind, hub)
            for _ in range(10)
            for kind in ("measure", "push", "push")
            for hub in ("1-1", "1-2", "")
        ]
        for one in work:
            one.result(DEADLINE_S)
    assert worst == [0]


def test_a_folder_that_can_not_be_written_to_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "hubs").write_text("no folder")
    with parts(tmp_path / "hubs") as part:
        part("measure", "1-2").entered()
        part("push", "1-2").entered()


def test_the_turn_of_a_process_that_was_killed_is_free(folder: Path) -> None:
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with Lane(folder, "1-2").measuring():
                os.write(told, b"x")
                signal.pause()
        finally:
            os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        with parts(folder) as part:
            push = part("push", "1-2")
            assert push.notes == ["waits for its turn on hub 1-2: another phone has it"]
            os.kill(child, signal.SIGKILL)
            push.entered()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)
