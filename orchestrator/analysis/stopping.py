"""When a case has enough invocations, and how many it wants. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.memory import EVEN, Pace, expected_growth, weights_of
from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.summary import LEVEL, Summary, logs_of, summarize
from orchestrator.analysis.trimming import degrees_of
from orchestrator.records.plan import StoppingRule

#: An interval that is narrow enough must be so again after as many more invocations; after more of a case alone, whose
#: memory no other case of its device shows: whoever stops early then is who looked forgetful by chance.
CONFIRM_COUNT: Final = 3
CONFIRM_ALONE_COUNT: Final = 8
#: An interval below this share of what is asked for needs no confirmation.
SURE_SHARE: Final = 0.25
#: Of two clock states it takes so many more until their shares look different.
_STATES_STEP: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a case has enough invocations."""

    is_enough: bool
    #: Invocations in all after which it is looked at next, never more than the rule's ``most``.
    wanted: int
    #: Half the interval as a share of the estimate; None with fewer than two invocations.
    half_width: float | None
    #: ``first``: too early to say; ``noisy``: the interval is too wide yet; ``reached``: it is narrow enough;
    #: ``confirming``: it is, and must be so once more; ``most``: it is too wide, and the rule gives no more.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What adding invocations only where they were needed came to, against the same number for every case."""

    given: int
    fixed: int

    @property
    def invocations(self) -> int:
        """How many fewer; negative when the rule gave more."""
        return self.fixed - self.given

    @property
    def share(self) -> float:
        """Of the fixed scheme's invocations, from 0 to 1; 0 for no cases."""
        return self.invocations / self.fixed if self.fixed else 0.0


def decide(latencies_us: Sequence[float], rule: StoppingRule, pace: Pace = EVEN) -> Decision:
    """Return whether a case's invocations (one latency each, in microseconds) are enough under the rule.

    The figures are looked at after the first ones, then at the count that the spread seen so far asks for, and so on:
    whoever looks after every invocation stops on lucky ones. For the same reason a narrow interval must be narrow still
    after CONFIRM_COUNT more, or CONFIRM_ALONE_COUNT where ``pace`` knows of no other case of the device, unless it is
    very narrow. When the looks are follows from the figures, in the order in which they were made; ``pace`` says when.
    Raises ValueError for latencies that aren't positive numbers.
    """
    count = len(latencies_us)
    half_width = summarize(latencies_us, pace=pace).spread if count else None
    look, reason = min(rule.first, rule.most), "first"
    confirming = CONFIRM_COUNT if pace.others else CONFIRM_ALONE_COUNT
    while look <= count:
        summary = summarize(latencies_us[:look], pace=pace.first(look))
        seen = math.inf if summary.spread is None else summary.spread
        is_narrow, was_narrow = seen < rule.half_width, reason == "confirming"
        if is_narrow and (was_narrow or look >= rule.most or seen < SURE_SHARE * rule.half_width):
            return Decision(is_enough=True, wanted=count, half_width=half_width, reason="reached")
        if look >= rule.most:
            return Decision(is_enough=True, wanted=count, half_width=half_width, reason="most")
        look = min(rule.most, look + confirming) if is_narrow else _wanted(latencies_us[:look], summary, rule)
        reason = "confirming" if is_narrow else "noisy"
    return Decision(is_enough=False, wanted=look, half_width=half_width, reason=reason)


def saved(counts: Sequence[int], *, fixed: int | None = None) -> Saved:
    """Return what was saved: ``counts`` are the invocations that each case got.

    ``fixed`` is what every case would have got otherwise. None takes what the noisiest case got: a scheme that doesn't
    look at the figures must give as many to all for the same precision.
    """
    each = max(counts, default=0) if fixed is None else fixed
    return Saved(given=sum(counts), fixed=each * len(counts))


def _wanted(latencies_us: Sequence[float], summary: Summary, rule: StoppingRule) -> int:
    """Return the count at which the noise seen so far would give the interval that is wanted."""
    count, std = summary.count + 1, summary.log_middle.std
    if std is None:
        return min(rule.most, max(2, rule.first))
    if summary.states is not None:
        return min(rule.most, summary.count + _STATES_STEP)
    own_std = std / summary.log_middle.growth
    weights = weights_of([(logs_of(latencies_us), summary.pace)])
    while count < rule.most:
        error = own_std * expected_growth(count, weights) / math.sqrt(count)
        if math.sinh(t_quantile(0.5 + LEVEL / 2, degrees_of(count)) * error) < rule.half_width:
            break
        count += 1
    return min(count, rule.most)
