"""A case as advice sees it, and what every line of advice is made of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.compare import Ratio, speed_up
from orchestrator.analysis.summary import Summary
from orchestrator.records.advice import Advice
from orchestrator.records.evaluation import Evaluated
from orchestrator.records.identity import RunId
from orchestrator.records.workload import Case

Key = TypeVar("Key", bound=Hashable)
#: Every rule with the source of what it goes by.
SOURCES: Final[Mapping[str, str]] = {
    "best": "the fastest and its ties by Welch's interval (docs/internals/statistics.md)",
    "fleet": "smallest worst regret over the phones (minimax regret, Savage 1951)",
    "pareto": "what nothing else beats in latency, start, memory, energy and error at once",
    "energy-of-threads": "paired blocks by Student's t (docs/reference/energy.md); Welch's interval of latencies",
    "threads": "Welch's interval (docs/internals/statistics.md); ai.google.dev/edge/litert/performance/best_practices",
    "more-threads-hurt": "Welch's interval (docs/internals/statistics.md); "
    "ai.google.dev/edge/litert/performance/best_practices",
    "more-threads-than-big-cores": "the phone's clusters as probed, and the figures (docs/reference/findings.md)",
    "delegate-not-worth-it": "Welch's interval; ai.google.dev/edge/litert/performance/delegates",
    "partial-delegation": "the operators as the program listed them; ai.google.dev/edge/litert/performance/delegates",
    "quantised": "Welch's interval; ai.google.dev/edge/litert/models/post_training_quantization",
    "break-even": "initialisation + inferences x latency, equal for both (docs/guides/choose-a-delegate.md)",
    "not-detectable": "what these invocations would show at 95 % with power 0.8 (docs/internals/statistics.md)",
    "dominating-operator": "the operators' times in the pass profile; what one can gain is its share (Amdahl 1967)",
    "moves-data": "the operators' times in the pass profile; ai.google.dev/edge/litert/performance/best_practices",
    "loses-accuracy": "LiteRT's evaluation programs on the device itself; Wald's interval of a share of the images",
    "wrong-outputs": "the comparison with the reference (docs/guides/parity.md)",
}


#: Two figures of which one is a single invocation's differ beyond this factor: far more than what two processes of
#: one configuration differ by (docs/evidence.md).
_UNTESTED_FACTOR: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceCase:
    """One case as advice sees it."""

    case: Case
    result: CaseResult
    device: str
    #: Cores of the fast clusters; 0 when unknown.
    big_cores: int
    is_virtual: bool
    init_us: float | None = None
    memory_mib: float | None = None
    #: Net energy of an inference.
    energy_uj: float | None = None
    #: The same of each block, by meter and round.
    energy_blocks: Mapping[tuple[str, str, int], float] = field(default_factory=dict)
    #: In percent: of an evaluation with this delegate, else of a table of the user's.
    accuracy: float | None = None
    evaluated: Evaluated | None = None
    #: Largest difference of the outputs from the reference, as its rule measures it; None when not compared.
    parity_error: float | None = None
    delegated_nodes: int | None = None
    total_nodes: int | None = None
    #: Operators left to the CPU, with the program's reason.
    cpu_operators: tuple[tuple[str, str], ...] = ()
    #: Of its newest profile: each operator that ran by itself, as (type, name, share of an inference).
    operators: tuple[tuple[str, str, float], ...] = ()
    #: Of that: how often data goes from a delegate to the CPU and back.
    islands: int = 0

    @property
    def summary(self) -> Summary:
        """Its figure; only for cases that are judged."""
        assert self.result.summary is not None
        return self.result.summary

    @property
    def center_us(self) -> float:
        """The middle that ratios are made of."""
        return math.exp(self.summary.log_middle.value)

    @property
    def name(self) -> str:
        """Its configuration."""
        return self.case.configuration


def grouped(cases: Sequence[AdviceCase], key: Callable[[AdviceCase], Key]) -> dict[Key, list[AdviceCase]]:
    """Return the cases by a key, in their order."""
    found: dict[Key, list[AdviceCase]] = defaultdict(list)
    for item in cases:
        found[key(item)].append(item)
    return dict(found)


def advice_line(rule: str, about: AdviceCase, text: str, *shown: AdviceCase, device: str | None = None) -> Advice:
    """Return a line of a rule about a case, with the runs of all cases that show it."""
    evidence: dict[RunId, None] = {}
    for item in (about, *shown):
        evidence |= dict.fromkeys(item.result.used)
    return Advice(
        rule=rule,
        model=about.case.model_name,
        device=about.device if device is None else device,
        text=text,
        evidence=tuple(evidence),
        source=SOURCES[rule],
    )


def is_slower(item: AdviceCase, than: AdviceCase) -> bool:
    """Whether a case is slower by more than noise explains."""
    ratio = speed_up(than.summary, item.summary)
    return is_different(ratio) and ratio.value < 1


def is_different(ratio: Ratio) -> bool:
    """Whether a difference is more than noise explains; without an interval, more than a wide margin."""
    if ratio.interval is None:
        return abs(math.log(ratio.value)) > math.log(_UNTESTED_FACTOR)
    return ratio.differs


def times_as_long(item: AdviceCase, than: AdviceCase) -> str:
    """Return how much longer a case takes: ``1.34 times [1.31, 1.37]``."""
    ratio = speed_up(item.summary, than.summary)
    interval = ratio.interval
    ends = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval is not None else " (single invocation, not tested)"
    return f"{ratio.value:.2f} times{ends}"


def best_known(members: Sequence[AdviceCase], name: str) -> AdviceCase:
    """Return the case of a configuration: the best known where it was measured by several rules (time, runs)."""
    return max((item for item in members if item.name == name), key=known)


def known(item: AdviceCase) -> int:
    """Return how well a figure is known: its invocations."""
    return item.summary.count
