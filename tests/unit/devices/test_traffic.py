"""Files on their way beside measurements: who waits for whom."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.devices.traffic import HubTraffic, hub_of
from orchestrator.errors import InterruptedByUserError
from orchestrator.records.plan import PushLimits
from tests.conftest import poll_until
from tests.samples.places import REPO

DEADLINE_S = 60.0
#: Of two processes that are to notice soon that one is stopped.
SOON_S = 2.0


class Part:
    """Somebody who enters a turn of the traffic in a thread of its own and stays until told to leave."""

    def __init__(self, pool: ThreadPoolExecutor, enter: Callable[[], AbstractContextManager[None]]) -> None:
        self.is_in, self._leave = threading.Event(), threading.Event()

        def stay() -> None:
            with enter():
                self.is_in.set()
                assert self._leave.wait(DEADLINE_S)

        self.done: Future[None] = pool.submit(stay)

    def entered(self) -> "Part":
        assert self.is_in.wait(DEADLINE_S)
        return self

    def leave(self) -> None:
        self._leave.set()
        self.done.result(DEADLINE_S)


@pytest.fixture(params=["alone", "beside others"])
def traffic(request: pytest.FixtureRequest, tmp_path: Path) -> HubTraffic:
    return HubTraffic(None if request.param == "alone" else tmp_path / "hubs")


@pytest.fixture
def two(tmp_path: Path) -> tuple[HubTraffic, HubTraffic]:
    """As of two processes: a lock on a file belongs to whoever opened it."""
    return HubTraffic(tmp_path / "hubs"), HubTraffic(tmp_path / "hubs")


@contextmanager
def parts(traffic: HubTraffic) -> Iterator[Callable[..., Part]]:
    with ThreadPoolExecutor(32) as pool, ExitStack() as ends:

        def make(kind: str, hub: str, limits: PushLimits | None = None, **more: Any) -> Part:
            enter = {
                "measure": lambda: traffic.measuring(hub, **more),
                "push": lambda: traffic.pushing(hub, limits or PushLimits(), **more),
            }[kind]
            before = waiting(traffic)
            part = Part(pool, enter)
            # In, or in its queue: what comes next comes later for sure.
            deadline = threading.Event()
            for _ in range(int(DEADLINE_S / 0.005)):
                if part.is_in.is_set() or waiting(traffic) > before:
                    break
                deadline.wait(0.005)
            ends.callback(part._leave.set)
            return part

        yield make


until = partial(poll_until, what="it comes about", timeout_s=DEADLINE_S)


def is_awaited(traffic: HubTraffic) -> bool:
    with traffic._changed:
        return traffic._locks.is_awaited("1-2")


def waiting(traffic: HubTraffic) -> int:
    with traffic._changed:
        hubs = traffic._hubs.values()
        return sum(len(hub.wants_to_measure) + len(hub.wants_to_push) + len(hub.turn) for hub in hubs)


@pytest.mark.parametrize(
    ("usb", "hub"),
    [
        ("usb:1-2.3", "1-2"), ("1-2.3.1", "1-2"), ("usb:3-1", "3-1"), ("2-4", "2-4"),
        ("", ""), ("usb:", ""), ("192.168.0.7:5555", ""), ("usb:1-2.x", ""), ("336592896X", ""),
    ],
)  # fmt: skip
def test_a_usb_path_tells_the_hub(usb: str, hub: str) -> None:
    assert hub_of(usb) == hub


def test_a_push_waits_for_the_hubs_measurements_and_other_hubs_for_nothing(traffic: HubTraffic) -> None:
    with parts(traffic) as part:
        first, second = part("measure", "1-2").entered(), part("measure", "1-2").entered()
        push = part("push", "1-2")
        part("push", "1-3").entered()
        part("measure", "1-4").entered()
        first.leave()
        assert not push.is_in.is_set()
        second.leave()
        push.entered()


def test_a_measurement_waits_for_the_hubs_pushes(traffic: HubTraffic) -> None:
    with parts(traffic) as part:
        push = part("push", "1-2").entered()
        measurement = part("measure", "1-2")
        assert not measurement.is_in.is_set()
        push.leave()
        measurement.entered()


def test_turns_alternate_so_that_neither_kind_starves_the_other(traffic: HubTraffic) -> None:
    with parts(traffic) as part:
        measurement = part("measure", "1-2").entered()
        push = part("push", "1-2")
        later_measurement = part("measure", "1-2")
        assert not later_measurement.is_in.is_set()
        measurement.leave()
        push.entered()
        later_push = part("push", "1-2")
        assert not later_push.is_in.is_set()
        push.leave()
        later_measurement.entered()
        assert not later_push.is_in.is_set()
        later_measurement.leave()
        later_push.entered()


def test_pushes_keep_to_the_limits_of_hub_and_computer(traffic: HubTraffic) -> None:
    limits = PushLimits(per_hub=2, per_host=3)
    with parts(traffic) as part:
        one, two = part("push", "1-2", limits).entered(), part("push", "1-2", limits).entered()
        three = part("push", "1-2", limits)
        part("push", "1-3", limits).entered()
        four = part("push", "", limits)
        assert not three.is_in.is_set()
        assert not four.is_in.is_set()
        one.leave()
        three.entered()
        assert not four.is_in.is_set()
        two.leave()
        four.entered()


def test_both_at_once_where_the_plan_allows_it(traffic: HubTraffic) -> None:
    limits = PushLimits(per_hub=1, beside_measurements=True)
    with parts(traffic) as part:
        part("measure", "1-2").entered()
        push = part("push", "1-2", limits).entered()
        second = part("push", "1-2", limits)
        part("measure", "1-2").entered()
        assert not second.is_in.is_set()
        push.leave()
        second.entered()


def test_who_waits_goes_away_when_all_is_cancelled_and_holds_up_nobody(traffic: HubTraffic) -> None:
    cancelled = threading.Event()
    with parts(traffic) as part:
        measurement = part("measure", "1-2").entered()
        push = part("push", "1-2", cancelled=cancelled)
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            push.done.result(DEADLINE_S)
        part("measure", "1-2").entered().leave()
        measurement.leave()
    assert not traffic._hubs


def test_a_crowd_of_pushes_and_measurements_gets_through(traffic: HubTraffic) -> None:
    lock, now, worst = threading.Lock(), {"measure": 0, "push": 0}, [0]

    def go(kind: str, hub: str) -> None:
        limits = PushLimits(per_hub=2, per_host=3)
        with traffic.measuring(hub) if kind == "measure" else traffic.pushing(hub, limits):
            with lock:
                now[kind] += hub == "1-1"
                worst[0] = max(worst[0], min(now.values()), now["push"] - 2)
            with lock:
                now[kind] -= hub == "1-1"

    with ThreadPoolExecutor(24) as pool:
        work = [
            pool.submit(go, kind, hub)
            for _ in range(60)
            for kind in ("measure", "push", "push")
            for hub in ("1-1", "1-2", "")
        ]
        for one in work:
            one.result(DEADLINE_S)
    assert worst == [0]
    assert (traffic._hubs, traffic._pushing) == ({}, 0)


def test_another_processes_push_waits_for_a_hubs_measurements_and_goes_before_later_ones(
    two: tuple[HubTraffic, HubTraffic],
) -> None:
    one, other = two
    with parts(one) as mine, parts(other) as theirs:
        measurement = mine("measure", "1-2").entered()
        theirs("measure", "1-2").entered().leave()
        push = theirs("push", "1-2")
        theirs("push", "1-3").entered()
        later = mine("measure", "1-2")
        assert not push.is_in.is_set()
        assert not later.is_in.is_set()
        measurement.leave()
        push.entered()
        assert not later.is_in.is_set()
        until(lambda: is_awaited(other))
        second_push = theirs("push", "1-2")
        assert not second_push.is_in.is_set()
        push.leave()
        later.entered()
        later.leave()
        second_push.entered()


def test_limits_hold_for_the_pushes_of_all_processes(two: tuple[HubTraffic, HubTraffic]) -> None:
    limits = PushLimits(per_hub=1, per_host=2)
    with parts(two[0]) as mine, parts(two[1]) as theirs:
        one = mine("push", "1-2", limits).entered()
        same_hub = theirs("push", "1-2", limits)
        two_at_most = theirs("push", "1-3", limits).entered()
        third = mine("push", "", limits)
        assert not same_hub.is_in.is_set()
        assert not third.is_in.is_set()
        two_at_most.leave()
        third.entered()
        one.leave()
        third.leave()
        same_hub.entered()


def test_who_waits_for_another_process_goes_away_when_all_is_cancelled_and_leaves_the_hub(
    two: tuple[HubTraffic, HubTraffic],
) -> None:
    cancelled = threading.Event()
    with parts(two[0]) as mine, parts(two[1]) as theirs:
        mine("measure", "1-2").entered()
        push = theirs("push", "1-2", cancelled=cancelled)
        until(lambda: is_awaited(two[0]))
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            push.done.result(DEADLINE_S)
        assert not is_awaited(two[0])
        mine("measure", "1-2").entered()


def test_measurements_of_one_process_that_never_end_all_at_once_do_not_starve_anothers_push(
    two: tuple[HubTraffic, HubTraffic],
) -> None:
    stopped, begun = threading.Event(), threading.Barrier(3)

    def measure() -> None:
        begun.wait(DEADLINE_S)
        while not stopped.is_set():
            with two[0].measuring("1-2"):
                # There is always another one in.
                stopped.wait(0.05)

    with ThreadPoolExecutor(4) as pool:
        measurements = [pool.submit(measure) for _ in range(2)]
        begun.wait(DEADLINE_S)
        try:
            for _ in range(5):
                with two[1].pushing("1-2", PushLimits()):
                    pass
        finally:
            stopped.set()
        for one in measurements:
            one.result(DEADLINE_S)


def test_a_crowd_of_two_processes_gets_through_and_keeps_to_turns_and_limits(
    two: tuple[HubTraffic, HubTraffic],
) -> None:
    lock, now, worst = threading.Lock(), {"measure": 0, "push": 0}, [0]

    def go(traffic: HubTraffic, kind: str, hub: str) -> None:
        limits = PushLimits(per_hub=2, per_host=3)
        with traffic.measuring(hub) if kind == "measure" else traffic.pushing(hub, limits):
            with lock:
                now[kind] += hub == "1-1"
                worst[0] = max(worst[0], min(now.values()), now["push"] - 2)
            with lock:
                now[kind] -= hub == "1-1"

    with ThreadPoolExecutor(24) as pool:
        work = [
            pool.submit(go, traffic, kind, hub)
            for _ in range(5)
            for traffic in two
            for kind in ("measure", "push")
            for hub in ("1-1", "1-2", "")
        ]
        for one in work:
            one.result(DEADLINE_S)
    assert worst == [0]
    assert [(traffic._hubs, traffic._pushing) for traffic in two] == [({}, 0)] * 2


def test_a_folder_that_can_not_be_written_to_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "hubs").write_text("no folder")
    with parts(HubTraffic(tmp_path / "hubs")) as mine, parts(HubTraffic(tmp_path / "hubs")) as theirs:
        mine("measure", "1-2").entered()
        theirs("push", "1-2").entered()


@contextmanager
def hub_user(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses hub 1-2 as soon as it may; it has said that it begins to."""
    words = [sys.executable, "-m", "tests.samples.hub_user", str(folder), kind, "1-2", str(SOON_S)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPO) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def stop_while_it_waits(process: subprocess.Popen[str], folder: Path) -> None:
    """Stop a process that has its place in the queue; in between it takes more for a moment, and looks on."""
    while True:
        stop(process)
        if not any(str(process.pid).encode() in path.read_bytes().split() for path in folder.glob("*.place-*")):
            return
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["measure", "push"])
def test_a_stopped_process_that_only_waits_holds_up_nobody_for_long(tmp_path: Path, kind: str) -> None:
    traffic, notes = HubTraffic(tmp_path / "hubs", silent_s=SOON_S, told_s=0.0), list[str]()
    with parts(traffic) as part:
        mine = part({"measure": "push", "push": "measure"}[kind], "1-2").entered()
        with hub_user(tmp_path / "hubs", kind) as other:
            until(lambda: is_awaited(traffic))
            stop_while_it_waits(other, tmp_path / "hubs")
            mine.leave()
            for follower in ("measure", "push"):
                part(follower, "1-2", on_note=notes.append).entered().leave()
            assert f"process {other.pid} measures, sends files or waits to; after 2.0 s" in notes[0]
            assert f"process {other.pid} has the turn and gave no sign of life for 2.0 s" in notes[1]
            assert len(notes) == 2


@pytest.mark.parametrize(("kind", "mine"), [("measure", "push"), ("push", "measure")])
def test_a_stopped_process_that_has_the_hub_holds_up_nobody_for_long_and_takes_turns_again_when_it_goes_on(
    tmp_path: Path, kind: str, mine: str
) -> None:
    traffic, notes = HubTraffic(tmp_path / "hubs", silent_s=SOON_S, told_s=0.0), list[str]()
    with parts(traffic) as part, hub_user(tmp_path / "hubs", kind) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "in\n"
        stop(other)
        # The only place for pushes is among what it keeps.
        waits = part(mine, "1-2", PushLimits(per_host=1), on_note=notes.append).entered()
        assert any(f"process {other.pid} has the turn" in note for note in notes)
        os.kill(other.pid, signal.SIGCONT)
        other.stdin.write("\n")
        other.stdin.flush()
        until(lambda: is_awaited(traffic))
        waits.leave()
        assert other.stdout.readline() == "in\n"


def test_a_process_that_lives_is_waited_for_however_long_its_run_takes(tmp_path: Path) -> None:
    traffic, notes = HubTraffic(tmp_path / "hubs", silent_s=SOON_S, told_s=0.0), list[str]()
    with parts(traffic) as part, hub_user(tmp_path / "hubs", "measure") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        push = part("push", "1-2", on_note=notes.append)
        end_s = time.monotonic() + 2 * SOON_S
        until(lambda: time.monotonic() > end_s)
        assert not push.is_in.is_set()
        other.kill()
        push.entered()
        assert len(notes) == 1


def test_a_process_that_stood_still_with_the_whole_computer_is_waited_for(tmp_path: Path) -> None:
    traffic, notes = HubTraffic(tmp_path / "hubs", silent_s=SOON_S, told_s=0.0), list[str]()
    with parts(traffic) as part, hub_user(tmp_path / "hubs", "measure") as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "in\n"
        push = part("push", "1-2", on_note=notes.append)
        # Nobody of this process looks meanwhile, and it does before the other one could give a sign.
        with traffic._changed:
            stop(other)
            end_s = time.monotonic() + 1.1 * SOON_S
            until(lambda: time.monotonic() > end_s)
            traffic._settle()
            os.kill(other.pid, signal.SIGCONT)
        end_s = time.monotonic() + SOON_S / 2
        until(lambda: time.monotonic() > end_s)
        assert not push.is_in.is_set()
        other.kill()
        push.entered()
        assert len(notes) == 1


def test_a_push_that_has_no_place_keeps_nobody_from_its_hub(tmp_path: Path) -> None:
    limits = PushLimits(per_host=1)
    first, second, third = (HubTraffic(tmp_path / "hubs") for _ in range(3))
    with parts(first) as mine, parts(second) as theirs, parts(third) as elsewhere:
        measurement = mine("measure", "1-2").entered()
        push = theirs("push", "1-2", limits)
        until(lambda: is_awaited(first))
        place = elsewhere("push", "1-3", limits).entered()
        measurement.leave()
        mine("measure", "1-2").entered().leave()
        # Those of its own process go on before it, too.
        theirs("measure", "1-2").entered().leave()
        assert not push.is_in.is_set()
        place.leave()
        push.entered()


def test_a_push_that_has_no_place_for_long_has_its_hub_kept_free_in_its_own_process(tmp_path: Path) -> None:
    limits = PushLimits(per_host=1)
    first, second = HubTraffic(tmp_path / "hubs"), HubTraffic(tmp_path / "hubs")
    with parts(first) as mine, parts(second) as elsewhere:
        place = elsewhere("push", "1-3", limits).entered()
        push = mine("push", "1-2", limits)
        for _ in range(3):
            mine("measure", "1-2").entered().leave()
        late = mine("measure", "1-2")
        assert not late.is_in.is_set()
        place.leave()
        push.entered().leave()
        late.entered()
