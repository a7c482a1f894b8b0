"""What an engine holds of a campaign's runs: little, and enough to decide as the whole runs would."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.analysis.case_result import judge_latency
from orchestrator.analysis.drift import checks
from orchestrator.analysis.samples import BUSY_CLOCK
from orchestrator.engine.decisions import slim
from orchestrator.records.case import Pass
from orchestrator.records.run import Attachment, RunRecord
from tests.samples.sample_lab import case, run

OWNER = case()
TICKS = {300_000: 1000, 2_000_000: 1000, 2_800_000: 1000}


def at_clock(number: int, latency_us: float, khz: int) -> RunRecord:
    made = run(OWNER, number, latency_us)
    assert made.state_before is not None
    assert made.state_after is not None
    return replace(
        made,
        attachments=(Attachment(name="stdout", data=b"said"),),
        state_before=replace(made.state_before, uptime_s=10.0, time_in_state={4: TICKS}),
        state_after=replace(
            made.state_after,
            uptime_s=20.0,
            time_in_state={4: {**TICKS, khz: TICKS[khz] + 1000}},
            battery_heat_c=31.5,
        ),
    )


def slowed() -> list[RunRecord]:
    """Of six invocations, the fourth at lower clocks."""
    clocks = [2_800_000] * 3 + [2_000_000] + [2_800_000] * 2
    latencies_us = [5000.0, 5010.0, 4990.0, 7000.0, 5005.0, 4995.0]
    return [
        at_clock(number, us, khz)
        for number, (us, khz) in enumerate(zip(latencies_us, clocks, strict=True))
    ]


@pytest.mark.parametrize("looked", [0, 3, 6])
def test_a_case_is_judged_alike_by_what_is_held_of_its_runs(looked: int) -> None:
    """Also where only some of the runs tell the clocks at which the cores worked."""
    runs = [
        replace(one, report=replace(one.report, extra={BUSY_CLOCK: 0.98}))
        if one.invocation < looked
        else one
        for one in slowed()
        if one.report is not None
    ]
    held = [slim(slim(one)) for one in runs]
    result = judge_latency(held)
    assert replace(result, runs=tuple(runs)) == judge_latency(runs)
    assert [finding.code for finding in result.findings] == ([] if looked == 6 else ["clocks-low"])


def test_a_check_keeps_the_batterys_heat_at_its_begin() -> None:
    runs = [replace(one, run_pass=Pass.REFERENCE) for one in slowed()[:3]]
    first = runs[0].state_before
    assert first is not None
    assert [one.battery_heat_c for one in checks([slim(one) for one in runs])] == [
        first.battery_heat_c
    ]
    assert checks([slim(one) for one in runs]) == checks(runs)
