"""A search for a model's fastest configuration on a phone, and an A/B comparison, as they are planned and kept."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from orchestrator.records.identity import CaseKey, RunId, Serial
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.workload import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRule:
    """How many invocations a configuration gets: 1, 2, 4 ... as long as it may still be the fastest."""

    #: Never more; what can't be distinguished then is a tie.
    most: int = 8
    #: Of the intervals that configurations are dropped by.
    level: float = 0.95
    #: After one invocation, which has no interval, one that took this many times as long as the best is dropped.
    gross: float = 1.5
    #: Ends early when no survivor can be slower or faster than the best by more than this share.
    alike: float = 0.02
    #: Whether the outputs of what remains are compared with the reference.
    parity: bool = True
    #: Ends before it has taken more than this share of the time that the full product would take.
    budget: float = 1 / 3


class ArmStatus(enum.StrEnum):
    """What has become of a configuration."""

    #: It may be the fastest.
    LIVE = "live"
    #: It may be, too, but the budget went to faster ones.
    ASIDE = "aside"
    #: Its interval lay wholly above the best's.
    DROPPED = "dropped"
    #: It has no figure of its own: it failed, fell back, or was rejected.
    FAILED = "failed"
    #: Its outputs are wrong.
    WRONG = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchArm:
    """One configuration in a search."""

    case: Case
    status: ArmStatus
    #: The invocations that its figure comes from.
    used: tuple[RunId, ...]
    #: Middle of its latencies; None without a figure.
    latency_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    #: Why it is out, as a sentence; empty for one that is live.
    reason: str = ""
    parity: ParityVerdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStanding:
    """How a search for one model on one device stands."""

    serial: Serial
    model_name: str
    model_sha256: str
    #: Fastest first; those without a figure last.
    arms: tuple[SearchArm, ...]
    is_over: bool
    #: ``one-left``, ``alike``, ``most``, ``budget``, ``nothing-left``; empty while it goes on.
    ended_by: str = ""
    #: Invocations that it took, and the phone's seconds in them.
    invocations: int = 0
    device_s: float = 0.0
    #: What the full search takes for as certain a figure of every configuration, and the seconds that would be by the
    #: length of each one's own invocations.
    full_invocations: int = 0
    full_s: float = 0.0

    @property
    def live(self) -> tuple[SearchArm, ...]:
        """What may be the fastest and went to the end, fastest first."""
        return tuple(arm for arm in self.arms if arm.status is ArmStatus.LIVE)

    @property
    def best(self) -> SearchArm | None:
        """The fastest so far."""
        return next(iter(self.live), None)

    @property
    def tied(self) -> tuple[SearchArm, ...]:
        """What can't be distinguished from the fastest, also what was set aside."""
        return (*self.live[1:], *(arm for arm in self.arms if arm.status is ArmStatus.ASIDE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """How a campaign compares two cases in pairs; part of its terms, so that a resume plans the same pairs again."""

    #: (baseline, candidate) for each thing that is compared; both cases are of one device.
    sides: tuple[tuple[CaseKey, CaseKey], ...]
    #: What the two sides are called: as the user wrote them.
    baseline: str
    candidate: str
    #: What they differ in: ``build``, ``model``, ``flags``, ``delegate``, ``threads``, ``tool``.
    kind: str
    #: The relative difference that is to be found.
    detect: float
    level: float
    threshold: float
    #: Pairs that only warm the device and are never counted; they have the first numbers.
    warmup: int = 1
    #: Pairs from whose spread the number of pairs is planned.
    pilot: int = 8
    #: Never more pairs than this are counted.
    most: int = 200
    #: Seconds of each device's own time, None is no limit.
    budget_s: float | None = None

    @property
    def first_numbers(self) -> range:
        """The invocation numbers of warm-up and pilot."""
        return range(self.warmup + self.pilot)
