"""The devices' turns: who is waited for, who is abandoned, and whom a fault of ours stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.devices.books import QuarantineFolder
from orchestrator.devices.lease import FileLease
from orchestrator.engine.rounds import done_count
from orchestrator.engine.turns import RETURNS_MAX, Turns
from orchestrator.errors import DeviceUnfitError, LinkLostError, StoreError, UsageError
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass
from tests.unit.analysis.test_rounds import SERIAL, campaign, case, run

ONE, OTHER = Serial("ONE"), Serial("OTHER")
DEADLINE_S = 60.0

Step = Callable[[], None]


class Script:
    """Work that goes step by step, one for each time that it is begun; what is left never tells of progress."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.count = 0
        self.begun = 0

    def begin(self) -> Script:
        self.begun += 1
        return self

    def run(self) -> None:
        self._steps.pop(0)()

    def left(self) -> int:
        return 1

    def done(self) -> int:
        return self.count

    def measures_and_is_lost(self) -> None:
        self.count += 1
        raise LinkLostError("gone", serial=ONE)


def pool_of(
    begin: Callable[[Any], object],
    lost: dict[Serial, str],
    *,
    newcomers: Callable[[], list[Any]] = list,
    replace_lost: Callable[..., Serial | None] | None = None,
) -> Any:
    """A pool of scripted devices."""
    return SimpleNamespace(
        begin=begin,
        lost=lost,
        newcomers=newcomers,
        has_spares=replace_lost is not None,
        replace_lost=replace_lost or (lambda serial, is_free: None),
        campaign=SimpleNamespace(terms=SimpleNamespace(may_reboot=False)),
    )


class Farm:
    """Turns of scripted work, with what was told of them."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Any] = []
        self.restored: list[Serial] = []
        self.lost: dict[Serial, str] = {}
        self.cancelled = threading.Event()
        self.quarantine = QuarantineFolder(folder / "quarantine")
        self.lease = FileLease(folder / "leases")
        services = SimpleNamespace(
            observer=SimpleNamespace(on_event=self.told.append),
            conditioner=SimpleNamespace(restore=lambda device, on_note: self.restored.append(device.serial)),
            cancelled=self.cancelled,
        )
        self._turns = Turns(
            cast(Any, services),
            self.lease,
            rescuer=cast(Any, SimpleNamespace(rescue=lambda device, **others: True)),
            quarantine=self.quarantine,
            unfit_pause_s=0.01,
        )

    def run(self, **works: Script) -> Sequence[Exception]:
        devices = [cast(Any, SimpleNamespace(serial=Serial(name), kind=DeviceKind.ANDROID)) for name in works]
        return self._turns.run(devices, pool_of(lambda device: works[device.serial].begin(), self.lost))


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return Farm(tmp_path)


def raising(error: Exception) -> Step:
    def step() -> None:
        raise error

    return step


def nothing() -> None:
    """Be done."""


def test_a_phone_that_measures_between_its_losses_is_not_kept_out_however_often_it_is_lost(farm: Farm) -> None:
    script = Script()
    script._steps = [script.measures_and_is_lost] * 3 * RETURNS_MAX + [nothing]
    farm.run(ONE=script)
    assert (farm.lost, farm.quarantine.serials()) == ({}, [])


def test_what_is_stored_is_read_once_for_each_time_that_a_phone_comes(farm: Farm) -> None:
    steady, returning = Script(nothing), Script(raising(LinkLostError("gone", serial=OTHER)), nothing)
    farm.run(ONE=steady, OTHER=returning)
    assert (steady.begun, returning.begun) == (1, 2)
    assert [event.left for event in farm.told if hasattr(event, "left")] == [1, 1]


def test_a_phone_that_is_lost_again_and_again_with_nothing_measured_is_kept_out(farm: Farm) -> None:
    farm.run(ONE=Script(*[raising(LinkLostError("gone", serial=ONE))] * (RETURNS_MAX + 1)))
    assert farm.lost == {ONE: "gone"}
    assert f"lost {RETURNS_MAX + 1} times" in farm.quarantine.reason(ONE)


def test_what_is_measured_is_counted_without_checks_and_curves_that_were_cut() -> None:
    curve, check = (Invocation(case=case(1), run_pass=kind, number=0) for kind in (Pass.SUSTAINED, Pass.REFERENCE))
    planned = campaign(rule=None)
    planned = replace(
        planned,
        invocations=(*planned.invocations, curve, check),
        terms=replace(planned.terms, sustained_s=20.0),
    )
    timing = planned.invocations[0]
    measured = [run(timing), run(timing, outcome=Outcome.UNFIT), run(check, 1)]
    cut = [run(replace(curve, number=number), number) for number in range(3)]
    whole = [*cut, *(run(replace(curve, number=number), number) for number in range(3, 6))]
    assert [done_count(planned, [*measured, *more], SERIAL) for more in ([], cut, whole)] == [1, 1, 2]


def test_a_phone_that_is_not_fit_is_restored_and_asked_again_while_others_work(farm: Farm) -> None:
    is_measured = threading.Event()

    def other() -> None:
        assert is_measured.wait(DEADLINE_S)

    unfit = raising(DeviceUnfitError("not fit after 5 min: too hot", serial=ONE))
    farm.run(ONE=Script(*[unfit] * 3 * RETURNS_MAX, is_measured.set), OTHER=Script(other))
    assert (farm.lost, farm.quarantine.serials()) == ({}, [])
    assert farm.restored.count(ONE) == 3 * RETURNS_MAX + 1
    away = [event.is_away for event in farm.told if getattr(event, "is_away", None) is not None]
    assert away == [True, False] * 3 * RETURNS_MAX


def test_a_phone_that_is_not_fit_is_abandoned_once_nobody_else_works(farm: Farm) -> None:
    unfit = raising(DeviceUnfitError("not fit after 5 min: too hot", serial=ONE))
    farm.run(ONE=Script(unfit))
    assert farm.lost == {ONE: "not fit after 5 min: too hot"}
    assert farm.quarantine.serials() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (ValueError("too few values"), "a fault in benchfarm itself: ValueError: too few values"),
        (UsageError("no such file"), "no such file"),
    ],
)
def test_a_fault_on_one_phone_ends_its_part_only_and_is_known_when_the_others_are_done(
    farm: Farm, fault: Exception, reason: str
) -> None:
    is_gone, went_on = threading.Event(), []
    on_event = farm.told.append

    def listen(event: Any) -> None:
        on_event(event)
        if getattr(event, "reason", ""):
            is_gone.set()

    farm._turns._services.observer.on_event = listen  # type: ignore[method-assign]

    def other() -> None:
        assert is_gone.wait(DEADLINE_S)
        went_on.append(not farm.cancelled.is_set())

    assert farm.run(ONE=Script(raising(fault)), OTHER=Script(other)) == [fault]
    assert went_on == [True]
    assert farm.lost == {ONE: reason}
    assert set(farm.restored) == {ONE, OTHER}
    assert any(event.is_problem and reason in event.text for event in farm.told if hasattr(event, "is_problem"))


def test_a_store_that_keeps_nothing_stops_all_phones(farm: Farm) -> None:
    def other() -> None:
        assert farm.cancelled.wait(DEADLINE_S)

    with pytest.raises(StoreError):
        farm.run(ONE=Script(raising(StoreError("read-only"))), OTHER=Script(other))


def test_a_phone_that_somebody_holds_for_a_moment_is_waited_for(farm: Farm) -> None:
    done: list[Serial] = []
    held = farm.lease.acquire(ONE)
    held.__enter__()
    # Let go by one that works meanwhile.
    farm.run(ONE=Script(lambda: done.append(ONE)), OTHER=Script(lambda: held.__exit__(None, None, None)))
    assert (done, farm.lost) == ([ONE], {})
