"""A device's part of a campaign: who is waited for, who is abandoned, and whom a fault of ours
stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis.drift import ATTEMPT_NUMBERS
from orchestrator.devices.lease import FileLease
from orchestrator.engine.decisions import RETURNS_MAX, done_count
from orchestrator.engine.device_campaign import DeviceResult
from orchestrator.engine.events import DeviceFinished
from orchestrator.errors import StoreError
from orchestrator.ports import InvocationRequest
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import Pass, Serial
from orchestrator.records.run import OUT_OF_TIME, Outcome, RunRecord
from orchestrator.store.opening import MemoryStore
from tests.unit.analysis.test_rounds import SERIAL, campaign, case, run
from tests.unit.engine.test_case_runner import Rig

OTHER = Serial("OTHER")
DEADLINE_S = 60.0


def of(*serials: Serial, count: int = 1) -> Campaign:
    """A campaign of so many invocations on each phone."""
    planned = (
        Invocation(case=replace(case(1), serial=serial), run_pass=Pass.TIMING, number=number)
        for serial in serials
        for number in range(count)
    )
    return replace(campaign(rule=None), invocations=tuple(planned))


def by_phone(ends: Mapping[str, Callable[[], str]]) -> Callable[[InvocationRequest], str]:
    return lambda request: ends.get(request.case.serial, lambda: "ok")()


def waits_for(event: threading.Event) -> Callable[[], str]:
    def end() -> str:
        assert event.wait(DEADLINE_S)
        return "ok"

    return end


def test_a_phone_that_measures_between_its_losses_is_not_kept_out_however_often_it_is_lost() -> (
    None
):
    count = 3 * RETURNS_MAX
    ends = iter(["ok", "lost"] * count)
    rig = Rig(campaign=of(SERIAL, count=count), end=lambda request: next(ends), comes_back=True)
    assert rig.measure() == DeviceResult()
    assert (rig.kept_out, len(rig.stored(case(1)))) == ({}, count)


def test_a_phone_that_is_lost_again_and_again_with_nothing_measured_is_kept_out() -> None:
    rig = Rig(end=lambda request: "lost", comes_back=True)
    assert rig.measure() == DeviceResult(reason="gone")
    assert f"lost {RETURNS_MAX + 1} times" in rig.kept_out[SERIAL]


def test_what_is_measured_is_counted_without_checks_and_curves_that_were_cut() -> None:
    curve, check = (
        Invocation(case=case(1), run_pass=kind, number=0)
        for kind in (Pass.SUSTAINED, Pass.REFERENCE)
    )
    planned = campaign(rule=None)
    planned = replace(
        planned,
        invocations=(*planned.invocations, curve, check),
        terms=replace(planned.terms, sustained=20.0),
    )
    timing = planned.invocations[0]
    measured = [run(timing), run(timing, outcome=Outcome.UNFIT), run(check, 1)]
    cut = [run(replace(curve, number=number), number) for number in range(3)]
    whole = [*cut, *(run(replace(curve, number=number), number) for number in range(3, 6))]
    assert [done_count(planned, [*measured, *more], SERIAL) for more in ([], cut, whole)] == [
        1,
        1,
        2,
    ]


def test_a_curve_that_was_cut_off_is_measured_again_also_if_its_first_runs_failed() -> None:
    curve = Invocation(case=case(1), run_pass=Pass.SUSTAINED, number=0)
    begun = replace(of(SERIAL), invocations=(curve,))
    begun = replace(begun, terms=replace(begun.terms, sustained=20.0))
    rig, ends = Rig(campaign=begun, comes_back=True), iter(["a", "a", "ok", "lost"])
    rig.end = lambda request: rig.clock.advance(5) or next(ends, "ok")
    assert rig.measure() == DeviceResult()
    numbers = [number for number, end in rig.stored(case(1)) if end is Outcome.COMPLETED]
    assert numbers == [2, *range(ATTEMPT_NUMBERS, ATTEMPT_NUMBERS + 4)]


def test_the_budget_continues_while_a_phone_is_away() -> None:
    ends = iter(["ok", "lost"])
    begun = of(SERIAL, count=3)
    begun = replace(begun, terms=replace(begun.terms, budget=100.0))
    rig = Rig(campaign=begun, end=lambda request: next(ends, "ok"), comes_back=True, away_s=90.0)
    assert rig.measure() == DeviceResult()
    assert rig.stored(case(1)) == [
        (0, Outcome.COMPLETED),
        (1, Outcome.COMPLETED),
        (2, Outcome.COMPLETED),
    ]
    ends = iter(["ok", "lost"])
    rig = Rig(campaign=begun, end=lambda request: next(ends, "ok"), comes_back=True, away_s=100.0)
    assert rig.measure() == DeviceResult()
    assert rig.stored(case(1)) == [
        (0, Outcome.COMPLETED),
        (1, Outcome.SKIPPED),
        (2, Outcome.SKIPPED),
    ]
    assert {run.reason_code for run in rig.store.runs() if run.outcome is Outcome.SKIPPED} == {
        OUT_OF_TIME
    }


def test_a_phone_that_is_lost_at_the_end_of_the_time_is_not_waited_for_much_longer() -> None:
    begun = of(SERIAL, count=2)
    begun = replace(begun, terms=replace(begun.terms, budget=100.0))
    rig = Rig(campaign=begun, boot_s=119.0)

    def end(request: InvocationRequest) -> str:
        assert request.away_s == 100.0
        rig.clock.advance(99)
        return "lost"

    rig.end = end
    assert rig.measure().reason.startswith("the device wasn't ready within 30 s")
    assert rig.clock.monotonic_s() == 129


def test_a_phone_that_is_not_fit_is_restored_and_asked_again_while_others_work() -> None:
    is_measured, times = threading.Event(), 3 * RETURNS_MAX

    def measured() -> str:
        is_measured.set()
        return "ok"

    # Two waits in vain leave a phone alone for a while.
    rig = Rig(
        campaign=of(SERIAL, OTHER),
        unfit=[True] * 2 * times,
        end=by_phone({SERIAL: measured, OTHER: waits_for(is_measured)}),
    )
    ended = rig.measure_all(SERIAL, OTHER)
    assert (ended.left, ended.lost, rig.kept_out) == (0, {}, {})
    assert rig.restored.count(SERIAL) == times + 1
    away = [event.is_away for event in rig.told if getattr(event, "is_away", None) is not None]
    assert away == [True, False] * times


def test_a_phone_that_is_not_fit_is_abandoned_once_nobody_else_works() -> None:
    rig = Rig(unfit=[True] * 100)
    assert rig.measure().reason.endswith("too hot")
    assert (rig.kept_out, rig.restored) == ({}, [SERIAL])


def test_a_fault_on_one_phone_ends_its_part_only_and_is_known_when_the_others_are_done() -> None:
    fault = ValueError("too few values")
    reason = "a fault in benchfarm itself: ValueError: too few values"

    class Listening(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if getattr(event, "reason", ""):
                is_gone.set()

    def fail() -> str:
        raise fault

    is_gone = threading.Event()
    rig = Rig(
        campaign=of(SERIAL, OTHER),
        end=by_phone({SERIAL: fail, OTHER: waits_for(is_gone)}),
        told=Listening(),
    )
    ended = rig.measure_all(SERIAL, OTHER)
    assert (ended.fault, ended.lost, ended.stored) == (fault, {SERIAL: reason}, 1)
    assert set(rig.restored) == {SERIAL, OTHER}
    assert any(
        event.is_problem and reason in event.text
        for event in rig.told
        if hasattr(event, "is_problem")
    )


def test_a_store_that_keeps_nothing_stops_all_phones_and_they_are_restored() -> None:
    class ReadOnly(MemoryStore):
        def append_run(self, run: RunRecord) -> None:
            if run.case.serial == SERIAL:
                raise StoreError("read-only")
            super().append_run(run)

    rig = Rig(store=ReadOnly(), campaign=of(SERIAL, OTHER))
    rig.end = by_phone({OTHER: waits_for(rig.cancelled)})
    with pytest.raises(StoreError):
        rig.measure_all(SERIAL, OTHER)
    assert set(rig.restored) == {SERIAL, OTHER}


def test_a_phone_that_somebody_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    held = lease.acquire(SERIAL)
    held.__enter__()

    def let_go() -> str:
        held.__exit__(None, None, None)
        return "ok"

    rig = Rig(campaign=of(SERIAL, OTHER), lease=lease, end=by_phone({OTHER: let_go}))
    ended = rig.measure_all(SERIAL, OTHER)
    assert (ended.left, ended.lost) == (0, {})


def test_a_phone_that_somebody_uses_is_told_with_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.engine.device_campaign.LEASE_WAIT_S", 0.0)
    ends = iter(["ok", "lost"])
    rig = Rig(
        campaign=of(SERIAL, count=3), lease=FileLease(tmp_path), end=lambda request: next(ends)
    )
    rig.measure()
    with rig.lease.acquire(SERIAL):
        ended = rig.measure_all(SERIAL)
    assert ("in use" in ended.lost[SERIAL], ended.busy) == (True, [SERIAL])
    assert [event.left for event in rig.told if isinstance(event, DeviceFinished)] == [2, 2]
