"""One execution of a plan, its pairs, and the status of it and its phones."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Final, NamedTuple

from orchestrator.records import frozen
from orchestrator.records.case import (
    FIGURE_PASS,
    CampaignId,
    Case,
    CaseKey,
    Pass,
    RunKey,
    Serial,
    SkippedCase,
)
from orchestrator.records.plan import PlanTerms, StoppingRule
from orchestrator.records.verdict import ChangeRule, OutputCheck


class CampaignStatus(enum.StrEnum):
    """The status of a campaign.

    A campaign whose process was killed stays RUNNING until it is resumed.
    """

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    #: Its remaining runs were abandoned.
    CLOSED = "closed"

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to measure."""
        return self in {CampaignStatus.FINISHED, CampaignStatus.CLOSED}


@frozen
class Invocation:
    """One process to be started on a device; unique in a campaign by (case_key, run_pass, number)."""

    case: Case
    run_pass: Pass
    #: Counts from 0 within (case, pass).
    number: int

    @property
    def key(self) -> RunKey:
        """Its key, and its run's, in a campaign."""
        return self.case.case_key, self.run_pass, self.number


@frozen
class Origin:
    """The file that a campaign was imported from; its figures were read again from its raw output."""

    #: Its bare name.
    file: str
    #: Of the whole file: which bytes were imported; says nothing of their author.
    sha256: str

    @property
    def text(self) -> str:
        """For messages: ``imported from night.zip (sha256 0123456789ab)``."""
        return f"imported from {self.file} (sha256 {self.sha256[:12]})"


@frozen
class Terms(PlanTerms):
    """The terms of a campaign, without its cases: those of its plan, and facts from its start."""

    #: None: just the planned invocations.
    stopping: StoppingRule | None = None
    #: sha256 of a model or program -> where its file is on the computer that began the campaign.
    files: Mapping[str, str] = field(default_factory=dict)
    #: An A/B comparison: two cases in turns, until a change is shown or ruled out.
    pairing: Pairing | None = None
    #: Folder with inputs for the pass ``parity``; empty: made from a seed.
    parity_inputs: str = ""
    #: Output checks of earlier campaigns on the same system, by `Case.outputs_key`.
    output_checks: Mapping[str, OutputCheck] = field(default_factory=dict)
    #: Whether also a delegate that takes all operators is measured with each number of threads.
    every_thread_count: bool = False
    #: Where relative paths of the plan start, on the computer that began the campaign; empty when
    #: that isn't known.
    plan_folder: str = ""
    #: Serial number -> fingerprint of the device's system when the campaign began.
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    #: Serial number -> weight and total of the device's autocorrelation in earlier campaigns.
    autocorrelations: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: None for a campaign of this store's own.
    origin: Origin | None = None


@frozen
class Campaign:
    """One execution of a plan, with everything needed to resume after a crash."""

    campaign_id: CampaignId
    name: str
    created_at: datetime
    status: CampaignStatus
    #: The plan as written (YAML) or as built from the command line; kept byte for byte.
    plan_text: str
    seed: int
    benchfarm_version: str
    #: The computer that ran it.
    host: str
    terms: Terms = field(default_factory=Terms)
    #: In the order in which they are to be run on each device.
    invocations: tuple[Invocation, ...] = ()
    skipped: tuple[SkippedCase, ...] = ()
    finished_at: datetime | None = None

    @property
    def serials(self) -> set[Serial]:
        """The serial numbers of its devices."""
        return {item.case.serial for item in self.invocations}

    def is_warm_up(self, run_pass: Pass, number: int) -> bool:
        """Whether an invocation only warms the device for pairs that follow, and its figure is
        never counted.
        """
        pairing = self.terms.pairing
        return pairing is not None and run_pass is FIGURE_PASS and number < pairing.warmup

    @property
    def most_runs(self) -> int:
        """The maximum number of its runs: rounds are added until figures are precise."""
        pairing, stopping, added = self.terms.pairing, self.terms.stopping, 0
        if pairing is not None:
            added = 2 * len(pairing.sides) * (pairing.most - 1)
        elif stopping is not None:
            cases = sum(i.run_pass is FIGURE_PASS and i.number == 0 for i in self.invocations)
            added = cases * (stopping.most - stopping.first)
        return len(self.invocations) + added


@frozen
class Pairing:
    """A campaign's comparison of two cases in pairs; part of its terms, so that a resume plans the
    same pairs again.
    """

    #: (baseline, candidate) for each thing that is compared; both cases are of one device.
    sides: tuple[tuple[CaseKey, CaseKey], ...]
    #: The names of the two sides, as the user wrote them.
    baseline: str
    candidate: str
    #: The difference of the sides: ``build``, ``model``, ``flags``, ``delegate``, ``threads``, ``tool``.
    kind: str
    #: The relative difference to detect.
    detect: float
    level: float
    threshold: float
    #: Pairs that only warm the device and are never counted; they have the first numbers.
    warmup: int = 1
    #: Never more pairs than this are counted.
    most: int = 200

    @property
    def change_rule(self) -> ChangeRule:
        """When a difference is called a change."""
        return ChangeRule(threshold=self.threshold, level=self.level, most_pairs=self.most)

    @property
    def is_same(self) -> bool:
        """Whether a side would be compared with itself."""
        return any(before == after for before, after in self.sides)

    def side_of(self, key: CaseKey) -> str:
        """Return the name of the side that a case belongs to: ``A, build old``; empty for another
        case.
        """
        for letter, label, keys in zip(
            "AB", (self.baseline, self.candidate), zip(*self.sides, strict=True), strict=True
        ):
            if key in keys:
                return f"{letter}, {label}"
        return ""

    @property
    def first_numbers(self) -> range:
        """The invocation numbers of warm-up and first pair."""
        return range(self.warmup + 1)


class PhoneActivity(enum.StrEnum):
    """A phone's activity; those that need attention come first."""

    ABANDONED = "abandoned"
    AWAY = "away"
    WORKING = "working"
    WAITING = "waiting"
    DONE = "done"

    @property
    def order(self) -> int:
        """Its place in lists."""
        return list(PhoneActivity).index(self)

    @property
    def is_under_way(self) -> bool:
        """Whether the phone's end is waited for."""
        return self in {PhoneActivity.WORKING, PhoneActivity.WAITING}


@frozen
class PhoneStatus:
    """One phone of a campaign."""

    serial: str
    activity: PhoneActivity = PhoneActivity.WAITING
    #: What it measures, waits for, or why it was abandoned.
    doing: str = ""
    stored: int = 0
    #: At least this many invocations.
    left: int = 0
    battery_heat_c: float | None = None
    #: None when too little is known, and for a phone that is away or abandoned.
    eta_s: float | None = None
    #: Of the stored ones, those that gave no result.
    failed: int = 0

    @property
    def look(self) -> str:
        """Its style in lists: its activity, except for a phone that is done with failed runs."""
        if self.activity is not PhoneActivity.DONE or not self.failed:
            return self.activity.value
        return (PhoneActivity.ABANDONED if self.failed >= self.stored else PhoneActivity.AWAY).value


@frozen
class LiveFigure:
    """A case's figure so far."""

    serial: str
    #: Model and configuration.
    case: str
    median_us: float
    #: Half the 95 % interval as a share; None for a single run.
    precision: float | None
    runs: int
    is_per_token: bool = False


#: The state of a campaign that another computer of a shared store runs, and of one that is stored
#: as running without a process.
ELSEWHERE: Final = "elsewhere"
CUT_OFF: Final = "cut off"


class CampaignProgress(NamedTuple):
    """The number of stored runs of a campaign, without unfit and abandoned ones."""

    stored: int = 0
    planned: int = 0
    #: Those that were abandoned.
    abandoned: int = 0
    #: Whether any run, of whatever pass and outcome, is a virtual phone's.
    is_virtual: bool = False

    @property
    def total(self) -> int:
        """The number of planned runs, with those that a curve or a stopping rule has added."""
        return max(self.planned, self.stored + self.abandoned)

    @property
    def left(self) -> int:
        """The number of planned runs that are left."""
        return self.total - self.stored - self.abandoned

    def text(self, *, is_over: bool) -> str:
        """Return stored of planned runs: ``3/12``; stored runs alone where an unfinished campaign
        has all planned ones: a curve or a stopping rule adds more.
        """
        if self.stored >= self.planned and not is_over:
            return f"{self.stored}"
        return f"{self.stored}/{self.total}"


@frozen
class Status:
    """A campaign at one moment."""

    campaign_id: str
    name: str
    #: As stored (running, finished, interrupted ...), or one of the two above.
    state: str
    #: The computer that began it, and the process of this computer that runs it; empty for none.
    host: str = ""
    holder: str = ""
    #: Its stored runs, where the phones are unknown.
    progress: CampaignProgress = CampaignProgress()
    phones: tuple[PhoneStatus, ...] = ()
    #: Runs that were planned when it began, and the most that added rounds may make of them; 0 for
    #: unknown.
    planned: int = 0
    most: int = 0
    figures: tuple[LiveFigure, ...] = ()

    @property
    def stored(self) -> int:
        """The number of stored runs."""
        return sum(phone.stored for phone in self.phones) if self.phones else self.progress.stored

    @property
    def left(self) -> int:
        """The number of invocations left, at least."""
        return sum(phone.left for phone in self.phones) if self.phones else self.progress.left

    @property
    def is_over(self) -> bool:
        """Whether all phones are done: until then a rule may add rounds."""
        return bool(self.phones) and all(
            phone.activity is PhoneActivity.DONE for phone in self.phones
        )

    @property
    def total(self) -> int:
        """The number of its runs: those made once it is over, else the possible maximum."""
        count = self.stored + self.left
        return count if self.is_over else max(self.planned, self.most, count)

    @property
    def eta_s(self) -> float | None:
        """The seconds until its last phone is done; None while unknown."""
        etas = [phone.eta_s for phone in self.phones if phone.left and phone.eta_s is not None]
        return max(etas, default=None)
