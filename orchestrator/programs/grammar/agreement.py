"""Whether what one run says in several places is the same: its result line, its statistics, its result proto."""

from __future__ import annotations

import math
from typing import Final

from orchestrator.programs.grammar.protos import ResultFigures
from orchestrator.programs.grammar.transcript import Transcript
from orchestrator.records.run import LatencySummary

#: The log prints six significant digits; two roundings of one figure may differ by this much.
_LOG_TOLERANCE: Final = 1.5e-5


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
        found.append(f"mean inference (us): {mean:.12g} isn't between the least, {low:.12g}, and the most, {high:.12g}")
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
        if log is not None and other is not None and not math.isclose(log, other, rel_tol=tolerance, abs_tol=0.01)
    ]
