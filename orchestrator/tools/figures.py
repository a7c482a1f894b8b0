"""The lines that hold figures: statistics, timings, memory, the LiteRT banner and the view of the iOS app.

Latencies come back in microseconds whatever unit the line uses. A figure that isn't printed is None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from orchestrator.records.run import LatencySummary
from orchestrator.units import US_PER_MS, US_PER_S

NUMBER: Final = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)"

_STATS: Final = re.compile(
    rf"count=(?P<count>\d{{1,18}})(?![\d.])(?P<rest>(?:\s+\w{{1,16}}={NUMBER}(?:\(all same\))?)*)", re.ASCII
)
_STAT: Final = re.compile(rf"(\w{{1,16}})=({NUMBER})", re.ASCII)
_TIMINGS: Final = re.compile(r"(?:Average i|I)nference timings in us: (?P<rest>.*)$", re.DOTALL)
_TIMING: Final = re.compile(rf"([A-Z][a-z]*(?: inference)?(?: \(avg\))?|no stats): ({NUMBER})(?![\w.])", re.ASCII)
_MEMORY: Final = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): (?P<rest>.*)$", re.DOTALL
)
_AMOUNT: Final = re.compile(
    rf"(?P<number>{NUMBER})\s*(?P<unit>us|microseconds|ms|s|MB/s|MB)?(?![\w/.])(?:\s*\((?P<runs>\d{{1,18}}) runs\))?",
    re.ASCII,
)

#: Lines of the LiteRT banner and of abbreviated pastes, by their label, and the key each is kept under.
BANNER_KEYS: Final[Mapping[str, str]] = {
    "Model initialization": "init",
    "Warmup (first)": "warmup_first",
    "Warmup (avg)": "warmup_avg",
    "Inference (avg)": "inference_avg",
    "Inference (min)": "inference_min",
    "Inference (max)": "inference_max",
    "Inference (std)": "inference_std",
    "Throughput": "throughput_mb_s",
    "Init footprint": "init_footprint_mb",
    "Overall footprint": "overall_footprint_mb",
    "Peak memory": "peak_memory_mb",
}
_MEMORY_KEYS: Final = frozenset({"throughput_mb_s", "init_footprint_mb", "overall_footprint_mb", "peak_memory_mb"})
_STAT_FIELDS: Final[Mapping[str, str]] = {
    "first": "first_us",
    "curr": "current_us",
    "min": "min_us",
    "max": "max_us",
    "avg": "mean_us",
    "std": "std_us",
    "p5": "p5_us",
    "median": "median_us",
    "p95": "p95_us",
}


def parse_number(text: str) -> float | None:
    """Return a figure, None when it is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def parse_stats(text: str) -> LatencySummary | None:
    """Read ``count=50 first=.. curr=.. min=.. max=.. avg=.. std=.. [p5=.. median=.. p95=..]`` at the text's start.

    A single sample (``count=1 curr=X``) and equal samples (``count=2 curr=X(all same)``) print nothing but ``curr``:
    first, min, max and mean are that value then, and the deviation is 0.
    """
    match = _STATS.match(text)
    if not match:
        return None
    count = int(match["count"])
    values: dict[str, float | None] = {}
    for name, figure in _STAT.findall(match["rest"]):
        if name in _STAT_FIELDS:
            values.setdefault(_STAT_FIELDS[name], parse_number(figure))
    current = values.get("current_us")
    is_single = count == 1 or "(all same)" in match["rest"]
    if is_single and current is not None and "mean_us" not in values:
        values = {
            "first_us": current,
            "min_us": current,
            "max_us": current,
            "mean_us": current,
            "std_us": 0.0,
            **values,
        }
    return LatencySummary(count=count, **values)


def parse_timings(text: str) -> dict[str, float] | None:
    """Read ``Inference timings in us: ...`` of any year; keys ``init``, ``first``, ``warmup``, ``inference``."""
    match = _TIMINGS.match(text)
    if not match:
        return None
    names = {
        "Init": "init",
        "First inference": "first",
        "Warmup (avg)": "warmup",
        "Warmup": "warmup",
        "Inference (avg)": "inference",
        "Inference": "inference",
        "no stats": "inference",
    }
    timings: dict[str, float] = {}
    for name, figure in _TIMING.findall(match["rest"]):
        value = parse_number(figure)
        if name in names and value is not None and value >= 0:
            timings.setdefault(names[name], value)
    return timings


def parse_memory(text: str) -> dict[str, float] | None:
    """Read the memory line; keys ``init`` and ``overall``, in units of 2**20 bytes."""
    match = _MEMORY.match(text)
    if not match:
        return None
    return {name: value for name, figure in _STAT.findall(match["rest"]) if (value := parse_number(figure)) is not None}


def parse_banner(text: str) -> tuple[str, float, int | None] | None:
    """Read a line of the LiteRT banner: its key, the figure (microseconds or MB) and the number of runs it names."""
    label, colon, rest = text.partition(":")
    key = BANNER_KEYS.get(label)
    if key is None or not colon:
        return None
    match = _AMOUNT.fullmatch(rest.strip())
    value = parse_number(match["number"]) if match else None
    if match is None or value is None:
        return None
    if key not in _MEMORY_KEYS:
        if match["unit"] is None and key != "inference_std":
            return None
        value = to_us(value, match["unit"] or "ms")
    return key, value, int(match["runs"]) if match["runs"] else None


def to_us(value: float, unit: str) -> float:
    """Return a latency in microseconds; ``unit`` is "us", "microseconds", "ms" or "s"."""
    factor = {"ms": US_PER_MS, "s": US_PER_S}.get(unit, 1.0)
    # What was printed has few digits; multiplying must not add the noise of binary fractions.
    return float(f"{value * factor:.12g}")


def mean_as_printed(summary: LatencySummary) -> str:
    """Return the mean the way the programs print it: six significant digits, exponent from a million up."""
    return "" if summary.mean_us is None else f"{summary.mean_us:.6g}"
