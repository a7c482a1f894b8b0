"""Runs as a report holds them: it shows the same of them, and they take a part of the room."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.records.case import DelegateName
from orchestrator.records.device import DeviceState
from orchestrator.records.run import RunRecord
from orchestrator.report.assembly import build_report_data
from orchestrator.report.exports import to_json
from orchestrator.report.lean import lean_runs
from orchestrator.report.render import render_html
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
    """Return a run with the clocks before and after; every tenth ran at half the clock."""

    def state(minute: int) -> DeviceState:
        spent = (10 if number % 10 else 1) * minute
        clocks = {
            300_000 + 75_000 * step: 1_000 * number + (spent if step == 19 else minute)
            for step in range(20)
        }
        at = START + timedelta(minutes=2 * number + minute)
        return DeviceState(at=at, uptime_s=100.0 * number, time_in_state={0: clocks, 4: clocks})

    assert run.report is not None
    assert run.report.inference is not None
    inference = (
        run.report.inference if number % 10 else replace(run.report.inference, median_us=9_000.0)
    )
    report = replace(run.report, inference=inference, echoed={"Parameter": "1"})
    return replace(run, report=report, state_before=state(0), state_after=state(1))


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
    lean = build_report_data(replace(stored, runs=lean_runs(stored.runs)))
    assert to_json(lean) == to_json(whole)
    assert render_html(lean, title="t") == render_html(whole, title="t")
    assert ("clocks-low" in to_json(lean)) == (name == "looked at")
