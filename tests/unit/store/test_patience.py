"""Whoever waits does so as long as something is done."""

from orchestrator.store.joint_work import Patience
from tests.samples.manual_clock import ManualClock


def test_patience_begins_anew_with_what_is_done_and_never_is_less_than_none() -> None:
    clock = ManualClock()
    patience = Patience(30.0, clock)
    first = patience.now_s()
    assert patience.left_s(first) == 30.0
    clock.advance(20.0)
    second = patience.now_s()
    assert (patience.left_s(first), patience.left_s(second)) == (10.0, 30.0)
    clock.advance(5.0)
    patience.note_done()
    assert (patience.left_s(first), patience.left_s(second)) == (30.0, 30.0)
    clock.advance(40.0)
    assert (patience.left_s(first), patience.left_s(second), patience.left_s(patience.now_s())) == (0.0, 0.0, 30.0)
