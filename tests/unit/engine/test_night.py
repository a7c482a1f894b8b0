"""A campaign's time: until when, how much is left, what that means for an invocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from orchestrator.engine.assigning import Arrival
from orchestrator.engine.night import TimeLeft, bounded, busy_s, cut_to_time, left_s, time_left
from orchestrator.engine.rounds import open_work
from orchestrator.planning import Expansion
from orchestrator.ports import Device
from orchestrator.programs.native import NativeTool
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, RunId, Serial, SeriesKey
from orchestrator.records.night import OUT_OF_TIME, ImportanceRule, RecentRun, parse_window
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
    time = time_left(campaign(until=START + timedelta(seconds=100)), [], clock, MemoryStore(), CASE.serial, TOOLS)
    first = Invocation(case=CASE, run_pass=Pass.TIMING, number=0)
    clock.advance(70)
    assert time.lacks(first) == ""
    # It turned out to take longer than its settings ask for.
    time.learn(run(0, 0, taken_s=40))
    assert "about 40.0 s are needed, and 30.0 s are left" in time.lacks(first)
    assert not time.is_over
    clock.advance(31)
    assert time.is_over


def test_without_a_limit_there_is_time_for_everything_in_its_order() -> None:
    clock = ManualClock(START)
    time = time_left(campaign(), [], clock, MemoryStore(), CASE.serial, TOOLS)
    clock.advance(1e9)
    queue = [Invocation(case=CASE, run_pass=Pass.TIMING, number=number) for number in (1, 0)]
    time.learn(run(0, 0, taken_s=1e9))
    time.keep_for(queue)
    assert not time.is_over
    assert list(time.by_importance(queue)) == queue
    assert not time.lacks(queue[0])


def test_a_clock_that_is_set_neither_ends_nor_prolongs_the_night() -> None:
    class Jumping(ManualClock):
        jump = timedelta()

        def now(self) -> datetime:
            return super().now() + self.jump

    clock = Jumping(START)
    time = time_left(campaign(until=START + timedelta(seconds=100)), [], clock, MemoryStore(), CASE.serial, TOOLS)
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
    time = time_left(campaign(phone_time_s=60.0), runs, clock, MemoryStore(), CASE.serial, TOOLS)
    clock.advance(9)
    assert not time.is_over
    clock.advance(2)
    assert time.is_over


class Night:
    """A device that works by a clock of ours: each run takes what ``taken_s`` says of its case."""

    def __init__(
        self,
        begun: Campaign,
        taken_s: Callable[[Case], float],
        recent: Mapping[SeriesKey, Sequence[RecentRun]] | None = None,
    ) -> None:
        self.clock = ManualClock(START)
        self.begun, self.taken_s = begun, taken_s
        #: What was thought about, once for each case and look.
        self.thoughts: list[Case] = []
        self.time = TimeLeft(begun, [], self.clock, recent or {}, self._alone)
        self.done: list[tuple[int, int]] = []
        self.left_out: dict[tuple[int, int], str] = {}
        self.told: list[str] = []

    def _alone(self, case: Case) -> str:
        self.thoughts.append(case)
        return ""

    def spend(self, queue: Sequence[Invocation]) -> None:
        for item in self.time.by_importance(queue, self.told.append):
            key = (item.case.threads, item.number)
            if reason := self.time.lacks(item):
                self.left_out[key] = reason
                continue
            began_s = (self.clock.now() - START).total_seconds()
            self.clock.advance(self.taken_s(item.case))
            self.time.learn(run(item.number, began_s, self.taken_s(item.case), case=item.case))
            self.done.append(key)


def interleaved(rounds: int, *threads: int) -> tuple[Invocation, ...]:
    cases = [replace(CASE, threads=count) for count in threads]
    return tuple(
        Invocation(case=case, run_pass=Pass.TIMING, number=number) for number in range(rounds) for case in cases
    )


def test_when_a_night_turns_out_too_short_what_matters_least_is_left_out() -> None:
    # Thought to take 10 s each, as nobody ran them before: 4.5 s by their settings, times 1.5, twelve times.
    queue = interleaved(4, 1, 2, 4)
    rules = (ImportanceRule(value=5, threads=(4,)), ImportanceRule(value=0.5, threads=(1,)))
    begun = replace(campaign(phone_time_s=90.0, importance=rules), invocations=queue)
    night = Night(begun, lambda case: 10.0)
    night.spend(queue)
    assert sorted({key for key in night.done if key[0] == 4}) == [(4, number) for number in range(4)]
    # Nine of twelve fit, and the case that matters least lacks three.
    assert set(night.left_out) == {(1, 1), (1, 2), (1, 3)}
    assert all("its importance is 0.5, it was never run" in reason for reason in night.left_out.values())
    (told,) = night.told
    assert "what matters least goes last: m (xnnpack, 1 thread" in told
    assert "2 threads" not in told


def last_night(cases: Sequence[Case], *, rounds: int, taken_s: float, pause_s: float) -> MemoryStore:
    """Return a store with a campaign of the day before that measured the cases in turns."""
    store, before = MemoryStore(), timedelta(days=1)
    begun = replace(campaign(), campaign_id=CampaignId("before"), created_at=START - before)
    store.begin_campaign(begun, devices=[PHONE], models=[MODEL], builds=[BUILD])
    for place, (number, case) in enumerate((number, case) for number in range(rounds) for case in cases):
        begins_s = place * (taken_s + pause_s) - before.total_seconds()
        changes = {"run_id": RunId(f"b{place}"), "campaign_id": begun.campaign_id, "case": case}
        store.append_run(run(number, begins_s, taken_s, **changes))
    return store


def test_what_was_left_out_before_the_night_is_no_pause_between_the_others() -> None:
    cases = [replace(CASE, threads=threads) for threads in range(1, 21)]
    store = last_night(cases, rounds=8, taken_s=10.0, pause_s=1.0)
    queue = tuple(Invocation(case=case, run_pass=Pass.TIMING, number=number) for number in range(8) for case in cases)
    plan = replace(PLAN, phone_time_s=500.0)
    kept = cut_to_time(
        store, TOOLS, plan, Expansion(invocations={CASE.serial: queue}, skipped=()), START, reference_check=False
    )
    invocations = kept.invocations[CASE.serial]
    assert [case.threads for case in kept.cases] == [1, 2, 3, 4, 5]
    begun = replace(campaign(phone_time_s=500.0, pauses_s=kept.pauses_s), invocations=invocations)
    time = time_left(begun, [], ManualClock(START), store, CASE.serial, TOOLS)
    told: list[str] = []
    # All of it fits, 8 times 11 s for each of the five.
    assert tuple(time.by_importance(invocations, told.append)) == invocations
    assert told == []


def test_a_device_that_joins_brings_the_pause_that_its_cut_reckoned_with() -> None:
    other = replace(PHONE, serial=Serial("B"))
    # The campaign is only told who came, nothing is run.
    arrival = Arrival(device=cast(Device, None), facts=other, pauses_s={other.serial: 2.5})
    assert arrival.added_to(campaign(pauses_s={"A": 1.0}), is_sharing=False).terms.pauses_s == {"A": 1.0, "B": 2.5}


def test_nothing_is_announced_once_the_time_is_over() -> None:
    queue = interleaved(2, 1, 2)
    begun = replace(campaign(phone_time_s=30.0), invocations=queue)
    # All of it was thought to fit, and the first run takes all of the time.
    night = Night(begun, lambda case: 60.0)
    night.spend(queue)
    assert (len(night.done), len(night.left_out)) == (1, 3)
    assert night.told == []
    # The reason says what the case was worth all the same.
    assert all("its importance is 1, it was never run" in reason for reason in night.left_out.values())


def test_when_a_night_turns_out_too_short_the_freshest_is_left_out() -> None:
    queue = interleaved(4, 1, 2)
    recent = {
        replace(CASE, threads=threads).series_key: [
            RecentRun(
                run_pass=Pass.TIMING, started_at=START - timedelta(days=days), duration_s=1.0, outcome=Outcome.COMPLETED
            )
        ]
        for threads, days in ((1, 9), (2, 1))
    }
    begun = replace(campaign(phone_time_s=50.0), invocations=queue)
    # They took a second each; tonight they take ten.
    night = Night(begun, lambda case: 10.0, recent)
    night.spend(queue)
    assert sorted(key for key in night.done if key[0] == 1) == [(1, number) for number in range(4)]
    assert set(night.left_out) == {(2, 1), (2, 2), (2, 3)}
    assert all("its last run is 1.0 days old" in reason for reason in night.left_out.values())


def test_what_went_last_is_measured_when_the_estimate_was_too_long() -> None:
    queue = interleaved(4, 1, 2)
    begun = replace(campaign(phone_time_s=40.0), invocations=queue)
    night = Night(begun, lambda case: 2.0)
    night.spend(queue)
    assert len(night.done) == len(queue)
    assert not night.left_out


def test_time_is_kept_for_a_sustained_measurement_that_matters_more() -> None:
    queue = interleaved(4, 1, 2)
    marker = Invocation(case=replace(CASE, threads=2), run_pass=Pass.SUSTAINED, number=0)
    rules = (ImportanceRule(value=5, threads=(2,)),)
    begun = replace(campaign(phone_time_s=100.0, importance=rules, sustained_s=40.0), invocations=(*queue, marker))
    night = Night(begun, lambda case: 10.0)
    night.time.keep_for([marker])
    night.spend(queue)
    assert set(night.left_out) == {(1, 2), (1, 3)}
    night.time.keep_for(())
    assert list(night.time.by_importance([marker])) == [marker]
    assert night.time.lacks(marker) == ""


@pytest.mark.slow
def test_a_long_queue_is_not_thought_over_before_each_invocation() -> None:
    queue = interleaved(500, 1, 2, 4, 8)
    night = Night(replace(campaign(phone_time_s=1e6), invocations=queue), lambda case: 1.0)
    night.spend(queue)
    assert len(night.done) == len(queue)
    assert len(night.thoughts) < 4 * len(queue) / 5


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
