"""A campaign's time: until when, how much is left, what that means for an invocation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.engine.night import TimeLeft, bounded, busy_s, cut_to_time, left_s
from orchestrator.engine.rounds import open_work
from orchestrator.planning.expansion import Expansion
from orchestrator.programs.native import NativeTool
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, RunId, Serial
from orchestrator.records.night import OUT_OF_TIME, parse_window
from orchestrator.records.plan import Plan, PlanModel, StoppingRule
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, ToolName
from orchestrator.store.opening import MemoryStore
from tests.samples.manual_clock import ManualClock

START = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
CASE = Case(
    serial=Serial("A"), model_sha256=ModelSha("aa" * 32), model_name="m", delegate=DelegateName.XNNPACK, threads=4,
    tool=ToolName.NATIVE, build_sha256=BuildSha("bb" * 32),
)  # fmt: skip
PHONE = DeviceFacts(serial=CASE.serial, kind=DeviceKind.ANDROID, is_virtual=False)
MODEL = Model(name=CASE.model_name, sha256=CASE.model_sha256, size_bytes=1)
BUILD = Build(name="b", tool=ToolName.NATIVE, sha256=CASE.build_sha256, abi="")
PLAN = Plan(name="p", models=(PlanModel(name="m", path=Path("m.tflite")),))
TOOLS = {ToolName.NATIVE: NativeTool()}


def campaign(invocations: int = 2, **terms: object) -> Campaign:
    return Campaign(
        campaign_id=CampaignId("c"), name="p", created_at=START, status=CampaignStatus.RUNNING, plan_text="", seed=0,
        benchfarm_version="1", host="h", terms=Terms(**terms),  # type: ignore[arg-type]
        invocations=tuple(Invocation(case=CASE, run_pass=Pass.TIMING, number=number) for number in range(invocations)),
    )  # fmt: skip


def run(number: int, begins_s: float, taken_s: float = 10.0, **changes: object) -> RunRecord:
    values: dict[str, object] = {
        "run_id": RunId(f"r{number}"), "campaign_id": CampaignId("c"), "case": CASE, "run_pass": Pass.TIMING,
        "invocation": number, "outcome": Outcome.COMPLETED, "reason_code": "", "reason": "", "is_virtual": False,
        "started_at": START + timedelta(seconds=begins_s), "duration_s": taken_s, "command": "", "exit_code": 0,
        "attachments": (), "report": None, "verdict": QualityVerdict(quality=Quality.TRUSTED), **changes,
    }  # fmt: skip
    return RunRecord(**values)  # type: ignore[arg-type]


def test_a_window_gives_the_plan_its_end_and_says_when_it_opens() -> None:
    plan = replace(PLAN, window=parse_window("01:00-06:00", "UTC"))
    early, late = START - timedelta(hours=2), START + timedelta(hours=1)
    bound, begins = bounded(plan, early)
    assert (bound.until, bound.window, begins) == (START + timedelta(hours=5), None, START)
    assert bounded(plan, late)[1] == late
    # What was asked for on the command line wins.
    asked = replace(plan, until=early + timedelta(minutes=10))
    assert bounded(asked, early) == (replace(asked, window=None), early)


def test_the_narrower_of_both_limits_counts() -> None:
    assert left_s(START + timedelta(seconds=60), 90.0, START) == 60
    assert left_s(START + timedelta(seconds=60), 30.0, START) == 30
    assert left_s(START - timedelta(seconds=60), None, START) == 0
    assert left_s(None, None, START) is None


def test_an_invocation_isn_t_begun_that_would_end_too_late() -> None:
    clock = ManualClock(START)
    time = TimeLeft(campaign(until=START + timedelta(seconds=100)), [], clock, MemoryStore(), CASE.serial)
    first = Invocation(case=CASE, run_pass=Pass.TIMING, number=0)
    clock.advance(70)
    assert time.lacks(first) == ""
    # It turned out to take longer than its settings ask for.
    time.learn(run(0, 0, taken_s=40))
    assert "about 40.0 s are needed, and 30.0 s are left" in time.lacks(first)
    assert not time.is_over
    clock.advance(31)
    assert time.is_over


def test_without_a_limit_there_is_time_for_everything() -> None:
    clock = ManualClock(START)
    time = TimeLeft(campaign(), [], clock, MemoryStore(), CASE.serial)
    clock.advance(1e9)
    queue = [Invocation(case=CASE, run_pass=Pass.TIMING, number=number) for number in (1, 0)]
    time.learn(run(0, 0, taken_s=1e9))
    assert not time.is_over
    assert not time.lacks(queue[0])


def test_a_clock_that_is_set_neither_ends_nor_prolongs_the_night() -> None:
    class Jumping(ManualClock):
        jump = timedelta()

        def now(self) -> datetime:
            return super().now() + self.jump

    clock = Jumping(START)
    time = TimeLeft(campaign(until=START + timedelta(seconds=100)), [], clock, MemoryStore(), CASE.serial)
    clock.jump = timedelta(days=1)
    assert not time.is_over
    clock.jump = timedelta(days=-1)
    clock.advance(101)
    assert time.is_over


def test_a_resumed_campaign_has_what_is_left_of_its_phone_time() -> None:
    # Two runs with a wait of 20 s; a night passed before the third.
    runs = [run(0, 0), run(1, 30), run(2, 40_000)]
    assert busy_s(Terms(), runs) == 50
    clock = ManualClock(START + timedelta(seconds=50_000))
    time = TimeLeft(campaign(phone_time_s=60.0), runs, clock, MemoryStore(), CASE.serial)
    clock.advance(9)
    assert not time.is_over
    clock.advance(2)
    assert time.is_over


def test_what_there_was_no_time_for_is_over_for_good() -> None:
    late = {"outcome": Outcome.SKIPPED, "reason_code": OUT_OF_TIME, "duration_s": 0.0}
    begun = campaign(until=START, stopping=StoppingRule(first=2, most=9))
    runs = [run(0, 0), run(1, 20, **late)]
    assert open_work(begun, runs, CASE.serial, TOOLS).invocations == ()
    sustained = replace(begun, invocations=(Invocation(case=CASE, run_pass=Pass.SUSTAINED, number=0),))
    assert open_work(sustained, [], CASE.serial, TOOLS).invocations != ()
    assert open_work(sustained, [run(0, 0, run_pass=Pass.SUSTAINED, **late)], CASE.serial, TOOLS).invocations == ()
    mark = Invocation(case=CASE, run_pass=Pass.REFERENCE, number=0)
    bracketed = replace(begun, invocations=(*begun.invocations, mark))
    # Nothing was measured that a reference workload could bracket.
    assert open_work(bracketed, [run(0, 0, **late), run(1, 0, **late)], CASE.serial, TOOLS).invocations == ()
    assert open_work(bracketed, [run(0, 0), run(1, 0, **late)], CASE.serial, TOOLS).reference_check == (mark,)


def test_a_plan_without_limits_is_left_whole_and_one_with_is_cut_with_reasons() -> None:
    cases = [replace(CASE, threads=threads) for threads in (1, 2, 4)]
    queue = tuple(Invocation(case=case, run_pass=Pass.TIMING, number=number) for number in (0, 1) for case in cases)
    expansion = Expansion(invocations={CASE.serial: queue}, skipped=())
    store = MemoryStore()
    assert cut_to_time(store, TOOLS, PLAN, expansion, START, reference_check=False) is expansion
    # Each invocation is thought to take 1.5 times 4.5 s.
    plan = replace(PLAN, phone_time_s=30.0)
    cut = cut_to_time(store, TOOLS, plan, expansion, START, reference_check=False)
    assert len(cut.cases) == 2
    (skip,) = cut.skipped
    assert skip.reason_code == OUT_OF_TIME
    # The reference workload takes its part.
    plan = replace(PLAN, phone_time_s=50.0)
    assert len(cut_to_time(store, TOOLS, plan, expansion, START, reference_check=False).cases) == 3
    assert len(cut_to_time(store, TOOLS, plan, expansion, START, reference_check=True).cases) == 1
