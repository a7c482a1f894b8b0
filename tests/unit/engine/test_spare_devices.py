"""Who may stand in for a device that is lost, with real leases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.devices.lease import FileLease
from orchestrator.engine.campaign import DevicePool
from orchestrator.engine.turns import Turns
from orchestrator.errors import LinkLostError
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial
from tests.unit.engine.test_turns import pool_of

LOST, SPARE, OTHER = Serial("LOST"), Serial("SPARE"), Serial("OTHER")


class Scripted:
    """A device's work: a step that may raise."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step

    def run(self) -> None:
        self._step()

    def left(self) -> int:
        return 0

    def done(self) -> int:
        return 0


def gone() -> None:
    raise LinkLostError("gone", serial=LOST)


def work_of(steps: Mapping[Serial, Callable[[], object]]) -> Callable[[Any], Scripted]:
    return lambda device: Scripted(steps[device.serial])


def phone(serial: Serial) -> Any:
    return SimpleNamespace(serial=serial, kind=DeviceKind.ANDROID)


def turns_with(lease: FileLease, rescue: Callable[..., bool] | None = None) -> Turns:
    cancelled = threading.Event()
    services = SimpleNamespace(
        observer=SimpleNamespace(on_event=lambda event: None),
        conditioner=SimpleNamespace(restore=lambda device, on_note: ()),
        cancelled=cancelled,
    )
    rescuer = cast(Any, SimpleNamespace(rescue=rescue)) if rescue is not None else None
    return Turns(cast(Any, services), lease, rescuer=rescuer)


def test_a_lost_device_is_waited_for_while_its_spare_is_used_by_somebody_else(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    held = lease.acquire(SPARE)
    asked: list[bool] = []
    waited: list[bool] = []
    is_over = threading.Event()

    def replace_lost(serial: Serial, is_free: Callable[[Serial], bool]) -> Serial | None:
        asked.append(is_free(SPARE))
        return SPARE if asked[-1] else None

    def rescue(device: object, *, keep_waiting: Callable[[], bool], **others: object) -> bool:
        waited.append(keep_waiting())
        held.__exit__(None, None, None)
        waited.append(keep_waiting())
        is_over.set()
        return False

    turns = turns_with(lease, rescue)
    lost: dict[Serial, str] = {}
    held.__enter__()
    steps = {LOST: gone, OTHER: lambda: is_over.wait(60)}
    turns.run([phone(LOST), phone(OTHER)], pool_of(work_of(steps), lost, replace_lost=replace_lost))
    assert (asked, waited) == ([False, True], [True, False])
    assert list(lost) == [LOST]


@pytest.mark.slow
@pytest.mark.parametrize("is_first_taken", [True, False])
def test_a_spare_that_is_in_use_stands_in_as_soon_as_it_is_free_while_others_work(
    tmp_path: Path, *, is_first_taken: bool
) -> None:
    lease, second = FileLease(tmp_path), Serial("SECOND")
    first_taken, second_taken = lease.acquire(SPARE), lease.acquire(second)
    spares = [SPARE, second] if is_first_taken else [second]
    waiting: list[Serial] = []
    refused: list[Serial] = []
    done: list[Serial] = []
    has_replaced = threading.Event()

    def replace_lost(serial: Serial, is_free: Callable[[Serial], bool]) -> Serial | None:
        assert serial == LOST
        spare = next((item for item in spares if is_free(item)), None)
        if spare is None:
            refused.append(serial)
            second_taken.__exit__(None, None, None)
            return None
        spares.remove(spare)
        if spare == SPARE:
            # Somebody takes it after it was found to be free.
            first_taken.__enter__()
        waiting.append(spare)
        return spare

    def measured(serial: Serial) -> Callable[[], None]:
        def step() -> None:
            if serial == OTHER:
                assert has_replaced.wait(60)
            else:
                has_replaced.set()
            done.append(serial)

        return step

    def newcomers() -> list[Any]:
        return [phone(waiting.pop())] if waiting else []

    steps = {LOST: gone} | {serial: measured(serial) for serial in (OTHER, SPARE, second)}
    lost: dict[Serial, str] = {}
    second_taken.__enter__()
    try:
        turns_with(lease).run(
            [phone(LOST), phone(OTHER)],
            pool_of(work_of(steps), lost, newcomers=newcomers, replace_lost=replace_lost),
        )
    finally:
        if is_first_taken:
            first_taken.__exit__(None, None, None)
    assert (sorted(done), list(lost), len(refused)) == ([OTHER, second], [LOST], 1)


def test_a_stand_in_that_is_lost_before_its_turn_makes_room_for_the_next_in_the_place_of_the_first_one() -> None:
    asked: list[Serial] = []
    spares = iter((SPARE, Serial("SECOND")))

    def spare_for(serial: Serial, is_free: object) -> Any:
        asked.append(serial)
        return SimpleNamespace(device=phone(next_one := next(spares)), facts=SimpleNamespace(serial=next_one))

    campaign = SimpleNamespace(invocations=(), terms=SimpleNamespace(shards=(), replaces_lost=True))
    pool = DevicePool(
        cast(Any, SimpleNamespace(campaign=campaign)),
        [],
        cast(Any, SimpleNamespace(store=None, cancelled=None)),
        cast(Any, SimpleNamespace(spare_for=spare_for, take=lambda: ())),
        [],
        {},
    )
    assert pool.replace_lost(LOST, lambda serial: True) == SPARE
    assert pool.replace_lost(LOST, lambda serial: True) == "SECOND"
    # Who is gone the second time is the one that was chosen: it takes no place any more.
    assert asked == [LOST, SPARE]
    assert [device.serial for device in pool.newcomers()] == [SPARE, "SECOND"]
