"""One device's queue over a scripted program: what is tried again, and what isn't."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Engine, event

from orchestrator.analysis.effect import LOOKS
from orchestrator.analysis.pairing import first_invocations
from orchestrator.engine.campaign import close_campaign, run_on_devices
from orchestrator.engine.device_campaign import DeviceCampaign, DeviceResult
from orchestrator.engine.events import CampaignEnded, Notice, RunStored
from orchestrator.engine.invocation import CampaignContext
from orchestrator.errors import DeviceTimeoutError, InterruptedByUserError, LinkLostError
from orchestrator.passes import pass_of
from orchestrator.ports import Fitness, InvocationRequest
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import Build, Case, Model, ModelSha, Pass, Serial, ToolName
from orchestrator.records.device import DeviceKind, DeviceState
from orchestrator.records.run import DelegateTruth, Outcome, RawOutput, ToolReport
from orchestrator.store.opening import MemoryStore
from tests.conftest import poll_until
from tests.samples.manual_clock import ManualClock
from tests.samples.records import facts_of, pairing_of
from tests.unit.analysis.test_rounds import SERIAL, campaign, case, run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUILD = Build(
    name="plain",
    tool=ToolName.NATIVE,
    sha256=case(1).build_sha256,
    abi="arm64-v8a",
    path=Path("plain"),
)
MODEL = Model(name="m", sha256=case(1).model_sha256, size_bytes=1, path=Path("m.tflite"))
MARK = Invocation(case=case(3), run_pass=Pass.REFERENCE, number=0)
FACTS = facts_of(SERIAL, is_virtual=True)


@dataclass
class Rig:
    """A phone whose program ends as ``end`` says, in a campaign over a store in memory."""

    end: Callable[[InvocationRequest], str] = lambda request: "ok"
    #: For each time that the first phone is asked: whether it is unfit; afterwards it is fit.
    unfit: list[bool] = field(default_factory=list)
    #: How long it is waited for, each time that the first phone is asked.
    waits_s: list[float] = field(default_factory=list)
    #: Whether a phone that is lost is got back.
    comes_back: bool = False
    #: For how long it is away then.
    away_s: float = 0.0
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    #: How long a phone boots that was lost; 0: it stays away.
    boot_s: float = 0.0
    lease: Any = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    restored: list[Serial] = field(default_factory=list)
    #: Phones in quarantine, with the reason.
    kept_out: dict[Serial, str] = field(default_factory=dict)
    asked: list[InvocationRequest] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    #: What is shown of where the operators ran.
    truth: DelegateTruth = DelegateTruth.FULL
    #: What the reference workload takes.
    reference_us: float = 1000.0
    store: MemoryStore = field(default_factory=MemoryStore)
    campaign: Campaign = field(
        default_factory=lambda: replace(
            campaign(rule=None),
            invocations=tuple(
                Invocation(case=case(threads), run_pass=Pass.TIMING, number=number)
                for number in range(3)
                for threads in (1, 2)
            ),
        )
    )

    def measure(self) -> DeviceResult:
        """Measure what is open on the one phone; as whoever begins the campaign, or resumes it in
        another process.
        """
        return DeviceCampaign(self.phone(SERIAL), FACTS, self.context()).run()

    def measure_all(self, *serials: Serial) -> CampaignEnded:
        """Measure what is open on several phones at once."""
        phones = [(self.phone(serial), replace(FACTS, serial=serial)) for serial in serials]
        return run_on_devices(self.context(), phones)

    def context(self) -> CampaignContext:
        """What the phones share; the campaign is stored first."""
        if self.store.campaign(self.campaign.campaign_id) is None:
            cases = {item.case for item in self.campaign.invocations}
            self.store.begin_campaign(
                self.campaign,
                devices=[replace(FACTS, serial=name) for name in {one.serial for one in cases}],
                models=[
                    replace(MODEL, sha256=name) for name in {one.model_sha256 for one in cases}
                ],
                builds=[BUILD],
            )
        conditioner = SimpleNamespace(
            prepare=self._prepare,
            restore=lambda device, on_note: self.restored.append(device.serial),
        )
        return CampaignContext(
            campaign=self.campaign,
            models={MODEL.sha256: MODEL},
            builds={BUILD.sha256: BUILD},
            known_flags={BUILD.sha256: frozenset()},
            reference=cast(Any, None),
            store=self.store,
            tools={ToolName.NATIVE: cast(Any, SimpleNamespace(run=self._run, parse=self._parse))},
            lease=self.lease
            or cast(Any, SimpleNamespace(acquire=lambda serial, wait_s: contextlib.nullcontext())),
            conditioner=cast(Any, conditioner),
            rescuer=cast(Any, SimpleNamespace(rescue=self._rescue)),
            quarantine=cast(Any, SimpleNamespace(put=self.kept_out.__setitem__)),
            observer=cast(Any, SimpleNamespace(on_event=self.told.append)),
            clock=self.clock,
            cancelled=self.cancelled,
            runner_of=lambda name: pass_of(name).runner(cast(Any, None)),
            unfit_pause_s=0.01,
        )

    def phone(self, serial: Serial) -> Any:
        """A phone that stays away once it was lost, unless it is got back or boots."""

        def boot(*, timeout_s: float) -> None:
            if not self.boot_s:
                raise LinkLostError("gone", serial=serial)
            waited_s = min(timeout_s, self.boot_s)
            self.clock.advance(waited_s)
            self.boot_s -= waited_s
            if self.boot_s:
                raise DeviceTimeoutError("boots", serial=serial)

        return SimpleNamespace(
            serial=serial,
            kind=DeviceKind.ANDROID,
            work_folder="/data/local/tmp/ours",
            state=lambda: DeviceState(at=NOW),
            place=lambda source, **others: SimpleNamespace(path=str(source), pushed_bytes=0),
            wait_until_ready=boot,
        )

    def stored(self, one: Case) -> list[tuple[int, Outcome]]:
        """What the store has of a case, by number."""
        runs = [item for item in self.store.runs() if item.case == one]
        return sorted((item.invocation, item.outcome) for item in runs)

    def _rescue(self, *arguments: object, **others: object) -> bool:
        self.clock.advance(self.away_s)
        return self.comes_back

    def _prepare(self, device: Any, *arguments: object, **others: object) -> Fitness:
        self.clock.advance(self.waits_s.pop(0) if self.waits_s else 0.0)
        is_unfit = device.serial == SERIAL and bool(self.unfit) and self.unfit.pop(0)
        return Fitness(reason="too hot" if is_unfit else "", state=DeviceState(at=NOW))

    def _run(self, device: object, request: InvocationRequest) -> RawOutput:
        self.asked.append(request)
        started_at = self.clock.now()
        ended = self.end(request)
        if ended == "lost":
            raise LinkLostError("gone", serial=request.case.serial)
        return RawOutput(
            command=ended,
            exit_code=0,
            timed_out=ended == "late",
            started_at=started_at,
            duration_s=(self.clock.now() - started_at).total_seconds() or 1.0,
            attachments=(),
        )

    def _parse(self, raw: RawOutput, one: Case) -> ToolReport:
        # Sides in turns are compared by figures that scatter.
        number = len(self.asked) if self.campaign.terms.pairing is not None else 0
        measured = run(Invocation(case=one, run_pass=Pass.TIMING, number=number)).report
        assert measured is not None
        assert measured.inference is not None
        if one == MARK.case:
            mean = replace(measured.inference, median_us=self.reference_us)
            measured = replace(measured, inference=mean, inference_mean_us=self.reference_us)
        measured = replace(measured, delegate=replace(measured.delegate, truth=self.truth))
        return (
            measured
            if raw.command == "ok"
            else ToolReport(outcome="failed", failure_code=raw.command)
        )


def test_a_case_that_took_all_its_time_is_not_tried_again_when_its_phone_has_come_back() -> None:
    ends = iter(["late", "ok", "lost"])
    rig = Rig(end=lambda request: next(ends, "ok"), comes_back=True)
    assert rig.measure() == DeviceResult()
    assert rig.stored(case(1)) == [
        (0, Outcome.TIMED_OUT),
        (1, Outcome.SKIPPED),
        (2, Outcome.SKIPPED),
    ]
    assert rig.stored(case(2)) == [(number, Outcome.COMPLETED) for number in range(3)]
    assert Counter(request.case.threads for request in rig.asked)[1] == 1


@pytest.mark.parametrize(
    ("boot_s", "lost"),
    [(119.0, ""), (121.0, f"the device wasn't ready within 120 s: {SERIAL}: boots")],
)
def test_a_phone_that_reboots_has_two_minutes_to_be_ready(boot_s: float, lost: str) -> None:
    ends = iter(["lost"])
    rig = Rig(end=lambda request: next(ends, "ok"), boot_s=boot_s)
    assert rig.measure().reason == lost
    assert len(list(rig.store.runs())) == (0 if lost else 6)


def test_whoever_resumes_has_a_case_tried_again_that_was_abandoned() -> None:
    ends = iter(["late", "ok", "lost"])
    rig = Rig(end=lambda request: next(ends, "ok"))
    assert rig.measure() == DeviceResult(reason="gone")
    assert rig.measure() == DeviceResult()
    assert rig.stored(case(1)) == [
        (0, Outcome.TIMED_OUT),
        (1, Outcome.SKIPPED),
        (2, Outcome.COMPLETED),
    ]


def test_a_case_that_fails_the_same_way_twice_is_abandoned_and_another_failure_counts_again() -> (
    None
):
    ends = {1: iter(["a", "b", "a"]), 2: iter(["a", "a", "ok"])}
    rig = Rig(end=lambda request: next(ends[request.case.threads]))
    rig.measure()
    assert [outcome for _, outcome in rig.stored(case(1))] == [Outcome.FAILED] * 3
    assert [outcome for _, outcome in rig.stored(case(2))] == [Outcome.FAILED] * 2 + [
        Outcome.SKIPPED
    ]


@pytest.mark.parametrize("budget", [100.0, 300.0, 580.0])
@pytest.mark.parametrize("seconds", [(10,), (2, 60), (60, 2)])
def test_comparisons_end_with_the_budget_and_the_others_continue_to_a_check(
    seconds: tuple[int, ...], budget: float
) -> None:
    pairs = [
        [replace(case(threads), flags=(("of", str(takes)),)) for threads in (1, 2)]
        for takes in seconds
    ]
    sides = tuple((before.case_key, after.case_key) for before, after in pairs)
    pairing = pairing_of(sides=sides, detect=0.12, threshold=0.08)
    known = {one.case_key: one for pair in pairs for one in pair}
    whole = campaign(rule=None)
    whole = replace(
        whole,
        invocations=first_invocations(pairing, known, seed=whole.seed),
        terms=replace(whole.terms, pairing=pairing, budget=budget),
    )
    # Before a pair the phone has to cool, which takes the time of half of it.
    rig = Rig(campaign=whole, waits_s=[0.0] * 8 + [seconds[0] / 2])
    rig.end = lambda request: rig.clock.advance(int(request.case.flags[0][1])) or "ok"
    assert rig.measure() == DeviceResult()
    for pair in pairs:
        ended = [rig.stored(one) for one in pair]
        whole_ones = [{number for number, end in its if end is Outcome.COMPLETED} for its in ended]
        left_out = {number for its in ended for number, end in its if end is Outcome.SKIPPED}
        # No process is measured without its partner.
        assert whole_ones[0] == whole_ones[1]
        if left_out:
            assert left_out <= set(pairing.first_numbers) or len(left_out) == 1
        else:
            assert len(whole_ones[0]) - pairing.warmup in LOOKS
    last = [event for event in rig.told if isinstance(event, RunStored)][-1]
    assert last.position == last.total
    asked = len(rig.asked)
    assert rig.measure() == DeviceResult()
    assert len(rig.asked) == asked


def test_a_campaign_with_a_pass_that_is_not_installed_any_more_can_be_closed() -> None:
    rig = Rig()
    idle = Invocation(case=case(1), run_pass=Pass("acme.idle"), number=0)
    rig.campaign = replace(rig.campaign, invocations=(*rig.campaign.invocations, idle))
    store = rig.context().store
    assert close_campaign(rig.campaign, store, {}, rig.clock) == 7
    assert close_campaign(rig.campaign, store, {}, rig.clock) == 0


def test_a_case_whose_model_is_gone_is_left_out_of_a_later_round() -> None:
    rig = Rig()
    gone = Invocation(
        case=replace(case(1), model_sha256=ModelSha("gone")), run_pass=Pass.TIMING, number=0
    )
    rig.campaign = replace(rig.campaign, invocations=(gone, *rig.campaign.invocations))
    assert rig.measure() == DeviceResult()
    assert len(rig.asked) == 6
    (left_out,) = (item for item in rig.store.runs() if item.case == gone.case)
    assert (left_out.outcome, left_out.reason_code) == (Outcome.SKIPPED, "model")


def test_nothing_begins_for_which_the_wait_left_no_time() -> None:
    rig = Rig(waits_s=[98.0])
    rig.campaign = replace(rig.campaign, terms=replace(rig.campaign.terms, budget=100.0))
    assert rig.measure() == DeviceResult()
    assert (rig.asked, {run.reason_code for run in rig.store.runs()}) == ([], {"out-of-time"})


def test_a_side_whose_partner_is_not_tried_again_is_measured_no_more() -> None:
    """A hang in the first pair: the other side runs as often as was planned, and not up to the
    next looks."""
    before, after = pair = (case(1), case(2))
    pairing = pairing_of((before, after), detect=0.12, threshold=0.08, most=200)
    whole = campaign(rule=None)
    known = {one.case_key: one for one in pair}
    first = first_invocations(pairing, known, seed=whole.seed)
    rig = Rig(
        campaign=replace(
            whole, invocations=first, terms=replace(whole.terms, pairing=pairing, budget=None)
        ),
        end=lambda request: "late" if request.case == before else "ok",
    )
    assert rig.measure() == DeviceResult()
    assert [number for number, _ in rig.stored(after)] == [*pairing.first_numbers]
    assert rig.stored(before)[0] == (0, Outcome.TIMED_OUT)
    assert {outcome for _, outcome in rig.stored(before)[1:]} == {Outcome.SKIPPED}


@pytest.mark.parametrize("does_cool", [True, False])
def test_a_phone_whose_reference_workload_moved_is_cooled_and_set_aside_if_that_does_not_help(
    does_cool: bool,
) -> None:
    rig = Rig()
    rig.campaign = replace(rig.campaign, invocations=(MARK, *rig.campaign.invocations))

    def end(request: InvocationRequest) -> str:
        rig.clock.advance(500 if request.run_pass is Pass.TIMING else 5)
        made = sum(asked.run_pass is Pass.REFERENCE for asked in rig.asked)
        # The second check, after two runs, is slow; so is the third, which follows it at once.
        rig.reference_us = 1200.0 if 3 < made <= (6 if does_cool else 9) else 1000.0
        return "ok"

    rig.end = end
    lost = rig.measure().reason
    timed = [run for run in rig.store.runs() if run.run_pass is Pass.TIMING]
    assert [run.verdict.has("reference-moved") for run in timed[:2]] == [True, True]
    if does_cool:
        assert (lost, len(timed), rig.kept_out) == ("", 6, {})
        assert not any(run.verdict.has("reference-moved") for run in timed[2:])
    else:
        assert lost.startswith("set aside: after cooling its reference workload is 20.0 % slower")
        assert (len(timed), rig.kept_out) == (2, {SERIAL: lost})


def test_each_case_keeps_its_caches_apart() -> None:
    rig = Rig()
    rig.measure()
    folders = {request.case.case_key: {request.cache_folder} for request in rig.asked}
    assert len(set.union(*folders.values())) == len(folders) == 2


def test_each_press_of_ctrl_c_is_answered_and_cuts_nothing_short() -> None:
    rig = Rig()

    def notices() -> list[str]:
        return [event.text for event in rig.told if isinstance(event, Notice)]

    def end(_request: InvocationRequest) -> str:
        poll_until(
            lambda: len(notices()) > 1 or os.kill(os.getpid(), signal.SIGINT), "both are answered"
        )
        return "ok"

    rig.end = end
    with pytest.raises(InterruptedByUserError):
        rig.measure_all(SERIAL)
    (told,) = set(notices())
    assert told.startswith(f"stopping: waiting for {SERIAL} to end and to be restored;")
    assert rig.restored == [SERIAL]


def test_ctrl_c_while_the_end_is_stored_is_told_when_it_is() -> None:
    rig, presses = Rig(), [1, 2]

    def press(connection: object, cursor: object, statement: str, *more: object) -> None:
        if statement.startswith("UPDATE campaigns") and presses:
            presses.pop()
            os.kill(os.getpid(), signal.SIGINT)

    event.listen(Engine, "before_cursor_execute", press)
    try:
        with pytest.raises(InterruptedByUserError):
            rig.measure_all(SERIAL)
    finally:
        event.remove(Engine, "before_cursor_execute", press)
    stored = rig.store.campaign(rig.campaign.campaign_id)
    assert stored is not None
    assert (presses, stored.status) == ([], CampaignStatus.FINISHED)
