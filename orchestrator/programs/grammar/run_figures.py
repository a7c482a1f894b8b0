"""Which of the figures that one run printed count: its start, its first inference, warm-up and measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.programs.grammar.figures import mean_as_printed
from orchestrator.programs.grammar.protos import ResultFigures
from orchestrator.programs.grammar.transcript import Transcript
from orchestrator.records.run import LatencySummary
from orchestrator.units import US_PER_S


def _mean(summary: LatencySummary) -> float | None:
    # A single sample is printed whole, its mean elsewhere with six digits: one run has one mean.
    return None if summary.mean_us is None else float(mean_as_printed(summary))


def init_us(transcript: Transcript, result: ResultFigures | None, *, is_complete: bool) -> float | None:
    """Return the time to the session's start, in microseconds; None where it isn't printed."""
    init = transcript.timings.get("init", _session(transcript, is_complete=is_complete))
    return init if init is not None else transcript.banner.get("init", result.init_us if result else None)


def first_us(transcript: Transcript, warmup: LatencySummary | None, result: ResultFigures | None) -> float | None:
    """Return the first inference's time, in microseconds; None where it isn't printed."""
    first = transcript.timings.get("first")
    if first == 0 and warmup is not None and warmup.count == 0:
        first = None
    if first is None and warmup is not None:
        first = warmup.first_us
    return (
        first
        if first is not None
        else transcript.banner.get("warmup_first", result.first_inference_us if result else None)
    )


def warmup_mean_us(transcript: Transcript, warmup: LatencySummary | None) -> float | None:
    """Return the warm-up's mean, in microseconds; None where none was made or printed."""
    if warmup is not None and warmup.count == 0:
        return None
    mean = transcript.timings.get("warmup")
    if mean is not None:
        return mean
    return _mean(warmup) if warmup is not None else transcript.banner.get("warmup_avg")


def _session(transcript: Transcript, *, is_complete: bool) -> float | None:
    # The line has six digits: from a second up it isn't the microseconds that the result line would have told.
    value = transcript.session_us
    return value if value is not None and (is_complete or value < US_PER_S) else None


def either(value: float | None, result: ResultFigures | None, name: str) -> float | None:
    """Return a figure of the log, else the result file's of that name."""
    if value is not None or result is None:
        return value
    other = getattr(result, name)
    return other if isinstance(other, float) else None


def has_result_line(transcript: Transcript) -> bool:
    """Whether the line with which a run tells its result was read."""
    return (
        "inference" in transcript.timings
        or transcript.short_result_us is not None
        or "inference_avg" in transcript.banner
        or transcript.banner_failed
    )


def _banner_summary(transcript: Transcript) -> LatencySummary | None:
    """Return the figures of LiteRT's banner, which are rounded to 10 us, where no statistics line was printed."""
    banner, count = transcript.banner, transcript.banner_runs.get("inference_avg")
    if count is None or "inference_avg" not in banner or transcript.stats:
        return None
    return LatencySummary(
        count=count,
        mean_us=banner["inference_avg"],
        min_us=banner.get("inference_min"),
        max_us=banner.get("inference_max"),
        std_us=banner.get("inference_std"),
    )


def assign_summaries(transcript: Transcript) -> tuple[LatencySummary | None, LatencySummary | None]:
    """Tell warm-up from measurement: by the result line where there is one, else by the lines before each.

    The two statistics lines look the same. A run that was killed has only the first, and a paste may hold only the
    second, so a single one is taken for nothing unless something says what it is.
    """
    stats = transcript.stats
    if not stats:
        return None, _banner_summary(transcript)
    if not has_result_line(transcript):
        if not (transcript.is_loaded or transcript.has_start or transcript.session_us is not None):
            return None, None
        warmup = next((summary for summary, phase in stats if phase == 1), None)
        inference = next((summary for summary, phase in stats if phase == 2), None)
        return warmup, inference
    return by_result_line([summary for summary, _ in stats], transcript.timings)


def by_result_line(
    stats: Sequence[LatencySummary], timings: Mapping[str, float]
) -> tuple[LatencySummary | None, LatencySummary | None]:
    """Tell warm-up from measurement in the statistics of a run whose result line was read."""
    last = stats[-1]
    before = stats[-2] if len(stats) > 1 else None
    if len(stats) > 1 or not timings:
        return before, last
    mean = mean_as_printed(last)
    printed = {name: f"{value:.6g}" for name, value in timings.items()}
    if mean and mean != printed.get("inference") and mean == printed.get("warmup"):
        return last, None
    if last.count > 0 and mean and "inference" in timings and mean != printed["inference"]:
        return None, None
    return None, last


def inference_mean(transcript: Transcript, inference: LatencySummary | None) -> float | None:
    """Return the mean of the measured inferences, in microseconds; None where it isn't printed."""
    if "inference" in transcript.timings:
        mean = transcript.timings["inference"]
        return mean if inference is None or inference.count > 0 else None
    if transcript.short_result_us is not None:
        return transcript.short_result_us
    if inference is not None and inference.count > 0:
        return _mean(inference)
    return transcript.banner.get("inference_avg") if not transcript.stats else None


#: The log prints six significant digits; two roundings of one figure may differ by this much.
_LOG_TOLERANCE: Final = 1.5e-5
#: LiteRT's banner has hundredths of a millisecond.
_BANNER_TOLERANCE_US: Final = 5.01


def contradictions(
    transcript: Transcript, warmup: LatencySummary | None, inference: LatencySummary | None
) -> list[str]:
    """Return what the result line says differently from the statistics line of the same inferences."""
    mean = transcript.timings.get("inference")
    stats = (
        inference if inference is not None or warmup is not None or not transcript.stats else transcript.stats[-1][0]
    )
    return contradictions_between(mean, stats)


def contradictions_between(mean: float | None, stats: LatencySummary | None) -> list[str]:
    """Return how a result line's mean, in microseconds, differs from the statistics of the same inferences."""
    if stats is None or stats.count == 0:
        return []
    found = []
    if mean is not None and stats.mean_us is not None and not _is_same_mean(mean, stats.mean_us):
        found.append(f"mean inference (us): the result line says {mean:.12g}, the statistics {stats.mean_us:.12g}")
    mean = stats.mean_us if mean is None else mean
    low, high = stats.min_us, stats.max_us
    if mean is not None and low is not None and high is not None and not _is_between(low, mean, high):
        found.append(
            f"mean inference (us): {mean:.12g} isn't between the minimum, {low:.12g}, and the maximum, {high:.12g}"
        )
    return found


def _is_same_mean(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_LOG_TOLERANCE, abs_tol=0.01)


def _is_between(low: float, mean: float, high: float) -> bool:
    return low <= mean <= high or _is_same_mean(low, mean) or _is_same_mean(mean, high)


def compare_with_proto(
    transcript: Transcript, inference: LatencySummary | None, mean: float | None, result: ResultFigures
) -> list[str]:
    """Return what the result proto says differently from the log."""
    proto = result.inference
    assert proto is not None
    # Without statistics the log's figures are those of LiteRT's banner.
    rounded_us = 0.01 if transcript.stats else _BANNER_TOLERANCE_US
    pairs: list[tuple[str, float | None, float | None, float]] = [
        ("mean inference (us)", mean, proto.mean_us, _LOG_TOLERANCE),
        ("init (us)", transcript.timings.get("init"), result.init_us, 1e-6),
        ("first inference (us)", transcript.timings.get("first"), result.first_inference_us, 1e-6),
    ]
    if inference is not None:
        pairs += [
            ("number of inferences", float(inference.count), float(proto.count), 0.0),
            ("minimum (us)", inference.min_us, proto.min_us, 1e-6),
            ("maximum (us)", inference.max_us, proto.max_us, 1e-6),
            ("median (us)", inference.median_us, proto.median_us, 1e-6),
        ]
    return [
        f"{name}: the log says {log:.12g}, the result proto {other:.12g}"
        for name, log, other, tolerance in pairs
        if log is not None and other is not None and not math.isclose(log, other, rel_tol=tolerance, abs_tol=rounded_us)
    ]
