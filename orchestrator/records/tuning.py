"""What was found out about one phone by experiment: which quiet steps make it scatter less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.records.identity import Serial


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTrial:
    """One option of Quiet against none, invocation by invocation in turns."""

    #: The options that were on, by their names in Quiet.
    options: tuple[str, ...]
    is_kept: bool
    #: Why it is kept or not, in words.
    reason: str
    #: One latency per invocation, microseconds.
    without_us: tuple[float, ...] = ()
    with_us: tuple[float, ...] = ()
    #: Spread between invocations with the options as a share of that without, with its 95 % interval.
    spread_ratio: float | None = None
    spread_low: float | None = None
    spread_high: float | None = None
    #: Of a one-sided test that the spread became smaller.
    p_value: float | None = None
    #: Latency with the options as a share of that without.
    latency_ratio: float | None = None
    #: Whether it is the second test, with fresh runs, of what passed the first.
    is_confirmation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneExperiments:
    """All that experiments found about a phone; a new one replaces the old one of its kind."""

    serial: Serial
    is_virtual: bool
    #: The system image that it holds for.
    fingerprint: str = ""
    tuned_at: datetime | None = None
    #: What Quiet's open fields take on this phone: the kept options.
    options: Mapping[str, bool] = field(default_factory=dict)
    trials: tuple[OptionTrial, ...] = ()
