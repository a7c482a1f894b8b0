"""Writers of one process come in the order in which they asked, however many there are."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from orchestrator.store.joint_work import Patience, Turns
from tests.unit.store.interrupting import steps_of

PATIENT_S = 60.0


def patient() -> Turns:
    return Turns(Patience(PATIENT_S))


def take(turns: Turns) -> bool:
    return turns.take(time.monotonic())


def queued(turns: Turns, body: Callable[[], None]) -> threading.Thread:
    """Start a thread that waits for its turn, and return when it does."""
    before = turns.waiting
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    while turns.waiting == before and thread.is_alive():
        thread.join(0.001)
    return thread


def test_turns_come_in_the_order_of_asking() -> None:
    turns, order = patient(), list[int]()

    def write(number: int) -> None:
        assert take(turns)
        order.append(number)
        turns.end()

    assert take(turns)
    threads = [queued(turns, lambda number=number: write(number)) for number in range(20)]  # type: ignore[misc]
    turns.end()
    for thread in threads:
        thread.join()
    assert order == list(range(20))
    assert take(turns)


def test_who_waits_gives_up_when_no_turn_ends_and_takes_nobodys_turn_with_it() -> None:
    turns = Turns(Patience(0.01))
    assert take(turns)
    assert not take(turns)
    turns.end()
    assert take(turns)


def test_who_is_interrupted_while_waiting_leaves_the_queue() -> None:
    turns = patient()
    assert take(turns)

    def interrupt() -> None:
        while not turns.waiting:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        take(turns)
    assert turns.waiting == 0
    turns.end()
    assert take(turns)


@pytest.mark.parametrize("is_taken", [False, True])
def test_who_is_interrupted_at_any_step_holds_up_nobody(*, is_taken: bool) -> None:
    for interrupted in steps_of(Turns.take):
        turns = Turns(Patience(0.0))
        assert not is_taken or take(turns)
        if interrupted(lambda turns=turns: take(turns)):  # type: ignore[misc]
            assert turns.waiting == 0
            if is_taken:
                turns.end()
            assert take(turns)
