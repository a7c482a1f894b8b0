"""Which of the figures that one run printed count: its start, its first inference, warm-up and measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
