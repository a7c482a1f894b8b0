"""Runs as a report holds them: it shows the same of them, and they take a part of the room."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.records.case import DelegateName, RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.run import RunRecord
from orchestrator.report.assembly import build_report_data, slim_runs
from orchestrator.report.exports import to_json
from orchestrator.report.render import render_html
from orchestrator.store.opening import open_store
from tests.samples.sample_lab import (
    MOBILENET,
    PIXEL_3,
    START,
    Lab,
    case,
    lab_of,
    rich_lab,
    series,
    small_lab,
)

INVOCATIONS = 60


def looked_at(run: RunRecord, number: int) -> RunRecord:
    """Return a run with what a phone of two clusters tells before and after; every tenth ran at
    half the clock.
    """

    def state(minute: int) -> DeviceState:
        spent = (10 if number % 10 else 1) * minute
        return DeviceState(
            at=START + timedelta(minutes=2 * number + minute),
            uptime_s=100.0 * number,
            heat_c={f"zone-{zone}": 30.0 + (zone + number + minute) % 9 for zone in range(8)},
            cooling={f"cooler-{place}": 0 for place in range(8)},
            battery_percent=80,
            plugged="usb",
            clock_khz={0: 300_000 + minute, 4: 825_600},
            clock_limit_khz={0: 1_766_400, 4: 2_803_200},
            governors={0: "schedutil", 4: "schedutil"},
            time_in_state={
                cpu: {
                    300_000 + 75_000 * step: 1_000 * number + (spent if step == 19 else minute)
                    for step in range(20)
                }
                for cpu in (0, 4)
            },
            memory_available_bytes=2_000_000_000 + number,
        )

    run_id = RunId(f"{number:032x}")
    assert run.report is not None
    assert run.report.inference is not None
    inference = (
        run.report.inference if number % 10 else replace(run.report.inference, median_us=9_000.0)
    )
    report = replace(
        run.report, inference=inference, echoed={f"Parameter {place}": "1" for place in range(30)}
    )
    return replace(
        run, run_id=run_id, command=f"benchmark_model --graph=/data/m --out=/data/runs/{run_id}/result.pb",
        report=report, state_before=state(0), state_after=state(1),
    )  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Lab:
    own = series(case(PIXEL_3, MOBILENET, DelegateName.CPU, 1), 5_000.0, INVOCATIONS)
    return lab_of(
        [looked_at(run, number) for number, run in enumerate(own)], PIXEL_3, models=[MOBILENET]
    )


@pytest.mark.parametrize("name", ["small", "rich", "looked at"])
def test_a_report_shows_the_same_of_lean_runs(name: str, lab: Lab) -> None:
    stored = {"small": small_lab, "rich": rich_lab, "looked at": lambda: lab}[name]().inputs()
    whole = build_report_data(stored)
    lean = build_report_data(replace(stored, runs=slim_runs(stored.runs)))
    assert to_json(lean) == to_json(whole)
    assert render_html(lean, title="t") == render_html(whole, title="t")
    assert ("clocks-low" in to_json(lean)) == (name == "looked at")


@pytest.mark.slow
def test_lean_runs_take_a_quarter_of_the_room(lab: Lab, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.sqlite")
    lab.store_in(store)

    def held_bytes(of: Callable[[Iterable[RunRecord]], Iterable[RunRecord]]) -> int:
        tracemalloc.start()
        held = list(of(store.runs()))
        assert len(held) == INVOCATIONS
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    # What the store itself has at hand isn't counted.
    held_bytes(iter)
    assert held_bytes(slim_runs) < held_bytes(iter) / 4
    store.close()
