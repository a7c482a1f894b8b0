"""Experiments on one phone: which options of Quiet make it scatter less."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from orchestrator.engine.invocation import Placer, read, request_of
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import BenchfarmError, DeviceUnusableError, InterruptedByUserError
from orchestrator.ports import Device
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Quiet
from orchestrator.records.run import Outcome
from orchestrator.records.tuning import OptionTrial
from orchestrator.records.workload import Case, Pass

_DRAWS: Final = 4000
_LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadVerdict:
    """The spread with something as a share of that without it."""

    ratio: float
    low: float
    high: float
    #: One-sided: how often chance alone would show such a reduction.
    p_value: float


def compare_spread(without: Sequence[float], with_it: Sequence[float], *, seed: int = 0) -> SpreadVerdict | None:
    """Compare the scatter of two series of latencies; None for fewer than four of either.

    On logarithms, so that a mode that is slower altogether isn't taken for a noisier one. Each series' spread is the
    mean absolute deviation from its median, as in Brown and Forsythe's test (JASA 69, 1974), which outliers don't
    dominate; the test permutes the deviations, the interval is that of a bootstrap of both series.
    """
    if min(len(without), len(with_it)) < 4:
        return None
    random = np.random.default_rng(seed)
    logs = [np.log(np.asarray(values, dtype=np.float64)) for values in (without, with_it)]
    off, on = (np.abs(values - np.median(values)) for values in logs)
    floor = 1e-9
    ratio = float((on.mean() + floor) / (off.mean() + floor))
    pooled = np.concatenate([off, on])
    shuffled = random.permuted(np.tile(pooled, (_DRAWS, 1)), axis=1)
    chance = shuffled[:, len(off) :].mean(axis=1) - shuffled[:, : len(off)].mean(axis=1)
    as_good = int((chance <= on.mean() - off.mean()).sum())
    drawn = []
    for values in logs:
        picks = values[random.integers(0, len(values), (_DRAWS, len(values)))]
        drawn.append(np.abs(picks - np.median(picks, axis=1, keepdims=True)).mean(axis=1) + floor)
    ends = np.quantile(np.log(drawn[1] / drawn[0]), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return SpreadVerdict(
        ratio=ratio,
        low=math.exp(float(ends[0])),
        high=math.exp(float(ends[1])),
        p_value=(1 + as_good) / (1 + _DRAWS),
    )


def typical_ratio(without: Sequence[float], with_it: Sequence[float]) -> float:
    """Return the ratio of the geometric means."""
    return math.exp(float(np.mean(np.log(with_it)) - np.mean(np.log(without))))


#: An option passes a trial when chance alone would show such a reduction in fewer than one of twenty.
_SURE: Final = 0.05
#: The second test of what passed has this many times the invocations; what is kept passes both.
CONFIRMATION: Final = 2
_ALL_OFF: Final = Quiet(
    airplane=False, no_doze=False, animations_off=False, sync_off=False, fixed_performance=False, pin_clocks=False,
    pin_gpu=False, thermal_control_off=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a series of trials came to."""

    options: Mapping[str, bool]
    trials: tuple[OptionTrial, ...]


class _Tried(Protocol):
    def __call__(self, names: tuple[str, ...], *, is_confirmation: bool = False) -> OptionTrial: ...


class Laboratory:
    """Runs the sample case on one phone, again and again, under conditions that the caller chooses."""

    def __init__(
        self,
        device: Device,
        facts: DeviceFacts,
        workload: Workload,
        services: Services,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._device = device
        self._facts = facts
        self._workload = workload
        self._services = services
        self._placer = Placer(device, workload, services)
        self._tell = tell

    def tune(self, case: Case, options: Sequence[str], *, invocations: int) -> Tuned:
        """Try each option against none in turns, then what seems to help once more; raises DeviceError kinds.

        Args:
            case: what is measured.
            options: by their names in Quiet.
            invocations: of either side in each trial.

        Raises InterruptedByUserError; the caller restores the phone in any case.
        """

        def tried(names: tuple[str, ...], *, is_confirmation: bool = False) -> OptionTrial:
            count = invocations * (CONFIRMATION if is_confirmation else 1)
            trial = self._trial(case, names, count, is_confirmation=is_confirmation)
            self._tell(f"{', '.join(names)}: {trial.reason}")
            return trial

        return chosen(options, tried)

    def _trial(
        self, case: Case, options: tuple[str, ...], invocations: int, *, is_confirmation: bool = False
    ) -> OptionTrial:
        off_us: list[float] = []
        on_us: list[float] = []
        quiet = replace(_ALL_OFF, **dict.fromkeys(options, True))  # type: ignore[arg-type]
        for number in range(invocations):
            # ABBA: what drifts slowly meets both sides alike.
            for is_on in (False, True) if number % 2 == 0 else (True, False):
                notes: list[str] = []
                latency_us, reason = self._measure(case, quiet if is_on else _ALL_OFF, notes)
                if is_on and notes:
                    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
                    reason = f"not available: {notes[0]}{more}"
                    return OptionTrial(
                        options=options, is_kept=False, reason=reason, is_confirmation=is_confirmation
                    )  # fmt: skip
                if latency_us is None:
                    raise DeviceUnusableError(f"the sample model can't be measured: {reason}", serial=case.serial)
                (on_us if is_on else off_us).append(latency_us)
        return replace(judged(options, off_us, on_us), is_confirmation=is_confirmation)

    def _measure(self, case: Case, quiet: Quiet, notes: list[str]) -> tuple[float | None, str]:
        """Run one invocation; return its latency in microseconds, or why there is none.

        Nothing is run when an option couldn't be set; ``notes`` get the reasons.
        """
        if self._services.cancelled.is_set():
            raise InterruptedByUserError
        placed = self._placer.place(case)
        fitness = self._services.conditioner.prepare(
            self._device,
            self._workload.campaign.terms.limits,
            quiet=quiet,
            on_note=notes.append,
            cancelled=self._services.cancelled,
        )
        if notes:
            return None, "; ".join(notes)
        if fitness.reason:
            raise DeviceUnusableError(f"not fit: {fitness.reason}", serial=case.serial)
        request = request_of(case, placed, self._workload, self._facts, run_pass=Pass.TIMING)
        tool = self._services.tools[case.tool]
        try:
            with self._device.measuring(cancelled=self._services.cancelled):
                raw = tool.run(self._device, request, cancelled=self._services.cancelled)
        except InterruptedByUserError:
            raise
        except BenchfarmError as error:
            if error.transient:
                raise
            return None, str(error)
        reading = read(tool, raw, case)
        if reading.ending.outcome is not Outcome.COMPLETED:
            return None, f"{reading.ending.reason_code}: {reading.ending.reason}"
        latency_us = reading.report.latency_us()
        return latency_us, "no latency in the output" if latency_us is None else ""


def chosen(options: Sequence[str], tried: _Tried) -> Tuned:
    """Return which options are kept: those that seem to help stand a second test together, with fresh runs.

    Of seven options that do nothing one passes its test in every fifth tune or so; by the second test an option that
    does nothing is kept in fewer than one of twenty. Where only one option is tried its first test is enough.
    """
    trials = [tried((name,)) for name in options]
    kept = tuple(name for trial in trials if trial.is_kept for name in trial.options)
    if kept and len(trials) > 1:
        trials.append(tried(kept, is_confirmation=True))
        if not trials[-1].is_kept and len(kept) > 1:
            # Together they haven't stood it; the best one may.
            best = min((t for t in trials if t.is_kept), key=lambda trial: trial.spread_ratio or 1.0)
            kept = best.options
            trials.append(tried(kept, is_confirmation=True))
        kept = kept if trials[-1].is_kept else ()
    return Tuned(options={name: name in kept for name in options}, trials=tuple(trials))


def judged(options: tuple[str, ...], off_us: Sequence[float], on_us: Sequence[float]) -> OptionTrial:
    """Return what two series say about options: kept only when they show that the spread became smaller."""
    verdict = compare_spread(off_us, on_us)
    if verdict is None:
        return OptionTrial(
            options=options, is_kept=False, reason="too few invocations to tell", without_us=tuple(off_us),
            with_us=tuple(on_us),
        )  # fmt: skip
    is_kept = verdict.p_value < _SURE and verdict.ratio < 1.0
    words = f"spread {verdict.ratio:.2f} times as large ({verdict.low:.2f} to {verdict.high:.2f})"
    reason = f"kept: {words}" if is_kept else f"not kept: no reduction shown, {words}, p = {verdict.p_value:.2f}"
    return OptionTrial(
        options=options,
        is_kept=is_kept,
        reason=reason,
        without_us=tuple(off_us),
        with_us=tuple(on_us),
        spread_ratio=verdict.ratio,
        spread_low=verdict.low,
        spread_high=verdict.high,
        p_value=verdict.p_value,
        latency_ratio=typical_ratio(off_us, on_us),
    )
