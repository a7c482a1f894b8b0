"""An A/B campaign: on every device a pilot, then as many pairs as its noise asks for, without letting the device go.

What is planned beyond the pilot follows from the stored pilot alone, so that a resume plans the same pairs again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.analysis.pairing import (
    PairCount,
    log_ratios,
    pair_round,
    pair_seconds,
    planned_pairs,
    usable_pairs,
)
from orchestrator.analysis.pairs import compare_pairs
from orchestrator.engine.campaign import CampaignResult
from orchestrator.engine.case_runner import CaseFailures, CaseRunner
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceNote,
    InvocationStarted,
    Measuring,
    PairsSoFar,
    RunStored,
)
from orchestrator.engine.recovery import Turns
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.ports import Device, Observer, Store
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.search import Pairing
from orchestrator.records.tokens import FIGURE
from orchestrator.records.workload import Case, Pass
from orchestrator.units import format_duration, format_percent


def first_invocations(pairing: Pairing, cases: Mapping[CaseKey, Case], *, seed: int) -> tuple[Invocation, ...]:
    """Return warm-up and pilot of all devices, each device's in the order in which it runs them."""
    found: list[Invocation] = []
    for serial, sides in _by_device(pairing, cases).items():
        for number in pairing.first_numbers:
            found += pair_round(pairing, cases, number, sides, seed=seed, serial=serial)
    return tuple(found)


def _by_device(pairing: Pairing, cases: Mapping[CaseKey, Case]) -> dict[Serial, list[int]]:
    devices: dict[Serial, list[int]] = {}
    for side, (baseline, _) in enumerate(pairing.sides):
        devices.setdefault(cases[baseline].serial, []).append(side)
    return devices


class PairProgress:
    """What is stored of one device's pairs, and what is to come next."""

    def __init__(self, store: Store, campaign: Campaign, serial: Serial) -> None:
        assert campaign.terms.pairing is not None, "an A/B campaign has its pairing"
        self._store = store
        self._campaign = campaign
        self._serial = serial
        self._pairing = campaign.terms.pairing
        self._cases = {item.case.case_key: item.case for item in campaign.invocations}
        self._sides = _by_device(self._pairing, self._cases).get(serial, [])
        #: Comparison -> which comparisons its processes answer too: a language model's prefill and decode.
        self._answered = {side: self._process(side) for side in self._sides}

    def counts(self) -> dict[int, PairCount]:
        """Return how many pairs each side needs, as the stored pilot says; empty before the pilot is whole."""
        runs = self.runs()
        first = set(self._pairing.first_numbers)
        keys = [key for side in self._sides for key in self._pairing.sides[side]]
        if any({run.invocation for run in runs.get(key, ())} & first != first for key in keys):
            return {}
        pilot = [run for key in keys for run in runs[key] if run.invocation in first]
        pair_s = pair_seconds(pilot)
        return {
            side: planned_pairs(
                self._pairing,
                log_ratios(pair for number, pair in self._usable(runs, side).items() if number in first),
                log_ratios(self._usable(runs, side).values()),
                pair_s=pair_s,
                sides=len(set(self._answered.values())),
            )
            for side in self._sides
        }

    def _process(self, side: int) -> str:
        """Return what two comparisons have in common whose figures are one process's."""
        cases = [self._cases[key] for key in self._pairing.sides[side]]
        rows = [case.to_row() | {"flags": [flag for flag in case.flags if flag[0] != FIGURE]} for case in cases]
        return json.dumps(rows, sort_keys=True, default=str) if cases[0].tool.is_session else str(side)

    def processes(self, sides: Iterable[tuple[int, int]]) -> int:
        """Return how many pairs of processes comparisons take, of which each has its number of pairs."""
        most: dict[str, int] = {}
        for side, count in sides:
            most[self._answered[side]] = max(count, most.get(self._answered[side], 0))
        return sum(most.values())

    def left_pairs(self) -> float:
        """Return how many pairs of processes are still to run."""
        found = set()
        for side in self._sides:
            places = {key: place for place, key in enumerate(self._pairing.sides[side])}
            own = [item for item in self.left() if item.case.case_key in places]
            found |= {(self._answered[side], item.number, places[item.case.case_key]) for item in own}
        return len(found) / 2

    def side_of(self, key: CaseKey) -> str:
        """Return what the side that a case belongs to is called: ``A, build old``; empty for another case."""
        for letter, label, place in (("A", self._pairing.baseline, 0), ("B", self._pairing.candidate, 1)):
            if any(pair[place] == key for pair in self._pairing.sides):
                return f"{letter}, {label}"
        return ""

    def so_far(self, run: RunRecord, runs: Mapping[CaseKey, Sequence[RunRecord]]) -> PairsSoFar | None:
        """Return how the sides of a run compare after it, None while its pair isn't whole, or only warms the device.

        ``runs`` are all that there are, by case, as :meth:`runs` returns them.
        """
        key = run.case.case_key
        side = next((side for side in self._sides if key in self._pairing.sides[side]), None)
        if side is None:
            return None
        pairs = self._usable(runs, side)
        if run.invocation not in pairs or not (logs := log_ratios(pairs.values())):
            return None
        found = compare_pairs([1.0] * len(logs), [math.exp(log) for log in logs], level=self._pairing.level)
        if found.ratio is None:
            return None
        return PairsSoFar(pairs=len(logs), ratio=found.ratio, low=found.low, high=found.high)

    def pair_s(self) -> float | None:
        """Return what one pair takes on this device."""
        return pair_seconds([run for runs in self.runs().values() for run in runs])

    def left(self) -> list[Invocation]:
        """Return the next invocations; none when there is nothing left to do.

        First the pilot. Then up to the planned pairs, then as many as were lost to runs that can't be used, until those
        run out too: the pairs are of one device in one state, and not for ever.
        """
        done = self._store.done(self._campaign.campaign_id)
        counts = self.counts()
        if not counts:
            return self._open(done, dict.fromkeys(self._pairing.first_numbers, self._sides))
        runs = self.runs()
        wanted: dict[int, list[int]] = {}
        for side, count in counts.items():
            tried = self._tried(runs, side)
            missing = count.pairs - len(self._usable(runs, side))
            if count.limit == "pilot" or missing <= 0:
                continue
            last = min(tried + missing, count.most_tried)
            for pair in range(last):
                wanted.setdefault(self._pairing.warmup + pair, []).append(side)
        return self._open(done, dict(sorted(wanted.items())))

    def done_count(self) -> int:
        """Return how many invocations are stored."""
        return sum(len(runs) for runs in self.runs().values())

    def _open(self, done: set[tuple[CaseKey, Pass, int]], wanted: Mapping[int, Sequence[int]]) -> list[Invocation]:
        planned = [
            item
            for number, sides in wanted.items()
            for item in pair_round(
                self._pairing, self._cases, number, sides, seed=self._campaign.seed, serial=self._serial
            )
        ]
        return [item for item in planned if (item.case.case_key, item.run_pass, item.number) not in done]

    def runs(self) -> dict[CaseKey, list[RunRecord]]:
        """Return what is stored, by case; runs that the device wasn't fit for are still open."""
        keys = [key for side in self._sides for key in self._pairing.sides[side]]
        found: dict[CaseKey, list[RunRecord]] = {}
        for run in self._store.runs(campaign_ids=(self._campaign.campaign_id,), case_keys=keys):
            if run.outcome is not Outcome.UNFIT:
                found.setdefault(run.case.case_key, []).append(run)
        return found

    def _usable(self, runs: Mapping[CaseKey, Sequence[RunRecord]], side: int) -> dict[int, tuple[RunRecord, RunRecord]]:
        baseline, candidate = self._pairing.sides[side]
        return usable_pairs(runs.get(baseline, ()), runs.get(candidate, ()), warmup=self._pairing.warmup)

    def _tried(self, runs: Mapping[CaseKey, Sequence[RunRecord]], side: int) -> int:
        """Return how many counted pairs have both runs stored."""
        numbers = [
            {run.invocation for run in runs.get(key, ()) if run.invocation >= self._pairing.warmup}
            for key in self._pairing.sides[side]
        ]
        return len(numbers[0] & numbers[1])


class AbRunner:
    """Runs what a stored A/B campaign still lacks, a job for each device as in any campaign."""

    def __init__(self, services: Services, turns: Turns) -> None:
        self._services = services
        self._turns = turns

    def run(self, workload: Workload, devices: Sequence[tuple[Device, DeviceFacts]]) -> CampaignResult:
        """Run all pairs that the devices' pilots ask for; raises as ``CampaignRunner.run``."""
        campaign, store = workload.campaign, self._services.store
        serials = dict.fromkeys(item.case.serial for item in campaign.invocations)
        there = {device.serial for device, _ in devices}
        open_first = {serial: PairProgress(store, campaign, serial).left() for serial in serials}
        lost: dict[Serial, str] = {
            serial: "not attached, or not usable" for serial, left in open_first.items() if left and serial not in there
        }
        done = len(store.done(campaign.campaign_id))
        self._services.observer.on_event(
            CampaignStarted(
                campaign=campaign,
                devices=tuple(facts for _, facts in devices),
                total=max(len(campaign.invocations), done),
                done=done,
                left={serial: len(left) for serial, left in open_first.items()},
            )
        )
        turns = [
            (device, partial(_PairWork, device, facts, workload, self._services, CaseFailures()))
            for device, facts in devices
            if open_first.get(facts.serial)
        ]
        status = CampaignStatus.INTERRUPTED
        try:
            faults = self._turns.run(turns, lost, may_reboot=campaign.terms.may_reboot)
            if faults:
                raise faults[0]
            if self._services.cancelled.is_set():
                raise InterruptedByUserError
            if not lost:
                status = CampaignStatus.FINISHED
        except KeyboardInterrupt:
            raise InterruptedByUserError from None
        finally:
            result = self._end(campaign, status, lost, list(serials))
        return result

    def _end(
        self, campaign: Campaign, status: CampaignStatus, lost: Mapping[Serial, str], serials: Sequence[Serial]
    ) -> CampaignResult:
        store, finished_at = self._services.store, self._services.clock.now()
        store.set_status(campaign.campaign_id, status, finished_at)
        stored = len(store.done(campaign.campaign_id))
        left = sum(len(PairProgress(store, campaign, serial).left()) for serial in serials)
        ended = replace(campaign, status=status, finished_at=finished_at)
        self._services.observer.on_event(CampaignEnded(campaign=ended, status=status, stored=stored, left=left))
        return CampaignResult(campaign=ended, status=status, stored=stored, lost=lost, left=left)


class _Sides:
    """Hands events on with the side that they are of, and with how the sides compare so far."""

    def __init__(self, observer: Observer, progress: PairProgress) -> None:
        self._observer = observer
        self._progress = progress
        #: Reading all of them after each run would keep the device waiting.
        self._runs = progress.runs()

    def on_event(self, event: object) -> None:
        """See Observer.on_event."""
        match event:
            case InvocationStarted(invocation=invocation) | Measuring(invocation=invocation):
                event = replace(event, side=self._progress.side_of(invocation.case.case_key))
            case RunStored(run=run):
                if run.outcome is not Outcome.UNFIT:
                    self._runs.setdefault(run.case.case_key, []).append(run)
                side, so_far = self._progress.side_of(run.case.case_key), self._progress.so_far(run, self._runs)
                event = replace(event, side=side, so_far=so_far)
        self._observer.on_event(event)


class _PairWork:
    """One device's pairs; see Work."""

    def __init__(
        self, device: Device, facts: DeviceFacts, workload: Workload, services: Services, failures: CaseFailures
    ) -> None:
        self._serial = facts.serial
        self._progress = PairProgress(services.store, workload.campaign, facts.serial)
        self._services = replace(services, observer=_Sides(services.observer, self._progress))
        self._runner = CaseRunner(device, facts, workload, self._services, failures=failures)

    def run(self) -> None:
        """See Work.run."""
        told: Mapping[int, PairCount] = {}
        while queue := self._progress.left():
            counts = self._progress.counts()
            if counts != told:
                told = counts
                self._tell(counts)
            self._runner.run_all(queue)

    def left(self) -> int:
        """See Work.left."""
        return len(self._progress.left())

    def done(self) -> int:
        """See Work.done."""
        return self._progress.done_count()

    def _tell(self, counts: Mapping[int, PairCount]) -> None:
        """Say what the pilot means: how many pairs, how long."""
        pairs = self._progress.processes((side, count.pairs) for side, count in counts.items())
        noises = [count.log_std for count in counts.values() if count.log_std is not None]
        pair_s = self._progress.pair_s()
        lasts = f", about {format_duration(self._progress.left_pairs() * pair_s)} more" if pair_s else ""
        noise = f", as pairs differ by {format_percent(max(noises))}" if noises else ""
        text = f"{pairs} pairs are planned{noise}{lasts}"
        limits = {count.limit: count.needed for count in counts.values() if count.limit in {"most", "budget"}}
        for limit, needed in limits.items():
            word = "the maximum allowed" if limit == "most" else "what the budget allows"
            text += f"; that is {word}, {needed} would be needed"
        self._services.observer.on_event(DeviceNote(serial=self._serial, text=text))


def pair_counts(store: Store, campaign: Campaign) -> dict[int, PairCount]:
    """Return how many pairs each of a campaign's sides is planned to have; those without a whole pilot are left out."""
    serials = dict.fromkeys(item.case.serial for item in campaign.invocations)
    return {side: count for serial in serials for side, count in PairProgress(store, campaign, serial).counts().items()}


def equal_campaign(campaigns: Sequence[Campaign], pairing: Pairing) -> Campaign | None:
    """Return the first of some campaigns that compares just these cases at least as finely, None when there is none."""
    for campaign in campaigns:
        known = campaign.terms.pairing
        if (
            known is not None
            and set(known.sides) == set(pairing.sides)
            and known.detect <= pairing.detect
            and (known.level, known.threshold) == (pairing.level, pairing.threshold)
            and (known.most, known.budget_s) == (pairing.most, pairing.budget_s)
        ):
            return campaign
    return None
