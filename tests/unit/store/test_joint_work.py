"""What several threads want is done together by one of them, and each gets its own answer."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Sequence

import pytest

from orchestrator.store.joint_work import JointWork, Patience
from tests.samples.manual_clock import ManualClock
from tests.unit.store.interrupting import steps_of

#: Of those that give up, each time that they look: whether it is over is said by a clock of ours.
LOOK_S = 0.05


class LateError(Exception):
    """Somebody's patience was over."""


class Desk:
    """Answers a number with its double, an odd one with an error, and works only when it is let."""

    def __init__(self, patience: Patience | None = None) -> None:
        self.done: list[list[int]] = []
        self.may_take, self.may_end, self.has_taken = threading.Event(), threading.Event(), threading.Event()
        self.failures: list[BaseException] = []
        self.failures_at_end: list[BaseException] = []
        self.joint = JointWork(self._work, patience or Patience(60.0), LateError)

    def _work(self, take: Callable[[], Sequence[int]], _since_s: float) -> list[int | Exception]:
        self.may_take.wait()
        if self.failures:
            raise self.failures.pop()
        items = list(take())
        self.has_taken.set()
        self.may_end.wait()
        if self.failures_at_end:
            raise self.failures_at_end.pop()
        self.done.append(items)
        return [2 * item if item % 2 == 0 else ValueError(item) for item in items]

    def begin(self, item: int, answers: dict[int, object]) -> threading.Thread:
        """Start a thread that wants an item done, and return when it waits, or has given up."""
        before = self.joint.waiting

        def want() -> None:
            try:
                answers[item] = self.joint.do(item)
            except BaseException as error:
                answers[item] = error

        thread = threading.Thread(target=want, daemon=True)
        thread.start()
        while self.joint.waiting == before and thread.is_alive():
            thread.join(0.001)
        return thread


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_who_comes_while_something_is_done_is_done_together_with_the_others_by_the_first_of_them(desk: Desk) -> None:
    answers: dict[int, object] = {}
    threads = [desk.begin(0, answers)]
    desk.may_take.set()
    desk.has_taken.wait()
    threads += [desk.begin(item, answers) for item in (2, 4, 6, 8)]
    desk.may_end.set()
    for thread in threads:
        thread.join()

    assert desk.done == [[0], [2, 4, 6, 8]]
    assert answers == {0: 0, 2: 4, 4: 8, 6: 12, 8: 16}
    assert desk.joint.do(10) == 20


def test_each_gets_the_error_of_its_own_item(desk: Desk) -> None:
    answers: dict[int, object] = {}
    threads = [desk.begin(item, answers) for item in (0, 1, 2, 3)]
    desk.may_take.set()
    desk.may_end.set()
    for thread in threads:
        thread.join()

    assert desk.done == [[0, 1, 2, 3]]
    assert (answers[0], answers[2]) == (0, 4)
    assert [str(answers[item]) for item in (1, 3)] == ["1", "3"]


def test_what_the_work_raises_is_for_who_does_it_and_the_others_go_on(desk: Desk) -> None:
    answers: dict[int, object] = {}
    failure = OSError("no lock")
    desk.failures = [failure]
    threads = [desk.begin(item, answers) for item in (0, 2, 4)]
    desk.may_take.set()
    desk.may_end.set()
    for thread in threads:
        thread.join()

    assert answers == {0: failure, 2: 4, 4: 8}
    assert desk.done == [[2, 4]]


def test_who_is_interrupted_while_waiting_takes_nothing_with_it(desk: Desk) -> None:
    answers: dict[int, object] = {}
    threads = [desk.begin(0, answers)]
    desk.may_take.set()
    desk.has_taken.wait()

    def interrupt() -> None:
        while not desk.joint.waiting:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        desk.joint.do(2)
    threads.append(desk.begin(4, answers))
    desk.may_end.set()
    for thread in threads:
        thread.join()

    assert desk.done == [[0], [4]]


def test_who_waits_for_what_does_not_end_gives_up_and_nobody_begins_with_it() -> None:
    clock = ManualClock()
    impatient, answers = Desk(Patience(LOOK_S, clock)), dict[int, object]()
    leader = impatient.begin(0, answers)
    threads = [impatient.begin(item, answers) for item in (2, 4)]
    clock.advance(LOOK_S)
    for thread in threads:
        thread.join()

    assert [repr(answers[item]) for item in (2, 4)] == ["LateError(False)"] * 2
    impatient.may_take.set()
    impatient.may_end.set()
    leader.join()
    assert impatient.done == [[0]]
    assert impatient.joint.do(6) == 12


def test_who_gives_up_what_was_begun_with_is_told_that_it_may_yet_be_done_and_it_is_done_once() -> None:
    clock = ManualClock()
    impatient, answers = Desk(Patience(LOOK_S, clock)), dict[int, object]()
    begun = [impatient.begin(item, answers) for item in (0, 2)]
    impatient.may_take.set()
    impatient.has_taken.wait()
    clock.advance(LOOK_S)
    begun[1].join()
    assert isinstance(answers[2], LateError)
    assert answers[2].args == (True,)

    # What was begun with fails as a whole: it isn't begun with again, since nobody waits.
    impatient.failures_at_end = [OSError("gone")]
    impatient.may_end.set()
    begun[0].join()
    assert isinstance(answers[0], OSError)
    assert impatient.joint.waiting == 0
    assert impatient.joint.do(4) == 8
    assert impatient.done == [[4]]


def test_who_is_interrupted_while_working_leaves_the_others_theirs(desk: Desk) -> None:
    answers: dict[int, object] = {}
    desk.failures = [KeyboardInterrupt()]
    threads = [desk.begin(item, answers) for item in (0, 2)]
    desk.may_take.set()
    desk.may_end.set()
    for thread in threads:
        thread.join()

    assert isinstance(answers[0], KeyboardInterrupt)
    assert answers[2] == 4


@pytest.mark.parametrize("is_led", [False, True])
def test_who_is_interrupted_at_any_step_holds_up_nobody(*, is_led: bool) -> None:
    for interrupted in steps_of(JointWork.do, JointWork._wait):
        desk, answers = Desk(Patience(0.0)), dict[int, object]()
        leader = desk.begin(0, answers) if is_led else None
        desk.may_take.set()
        (desk.has_taken.wait if leader else desk.may_end.set)()

        def want(desk: Desk = desk) -> None:
            with contextlib.suppress(LateError):
                desk.joint.do(2)

        was_interrupted = interrupted(want)
        desk.may_end.set()
        if leader is not None:
            leader.join()
        assert desk.joint.waiting == 0
        assert desk.joint.do(4) == 8
        assert not was_interrupted or desk.done[-1] == [4]
