"""The lines that hold figures: statistics, timings, memory and the LiteRT banner.

Latencies come back in microseconds whatever unit the line uses. A figure that isn't printed is
None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.records.run import LatencySummary
from orchestrator.units import US_PER_MS, US_PER_S

NUMBER: Final = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,4})?|nan|inf)"

_STATS: Final = re.compile(
    rf"count=(?P<count>\d{{1,18}})(?![\d.])(?P<rest>(?:\s+\w{{1,16}}={NUMBER}(?:\(all same\))?)*)",
    re.ASCII,
)
_STAT: Final = re.compile(rf"(\w{{1,16}})=({NUMBER})", re.ASCII)
_TIMINGS: Final = re.compile(r"(?:Average i|I)nference timings in us: (?P<rest>.*)$", re.DOTALL)
_TIMING: Final = re.compile(
    rf"([A-Z][a-z]*(?: inference)?(?: \(avg\))?|no stats): ({NUMBER})(?![\w.])", re.ASCII
)
_MEMORY: Final = re.compile(
    r"(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): (?P<rest>.*)$",
    re.DOTALL,
)
_AMOUNT: Final = re.compile(
    rf"(?P<number>{NUMBER})\s*(?P<unit>us|microseconds|ms|s|MB/s|MB)?(?![\w/.])(?:\s*\((?P<runs>\d{{1,18}}) runs\))?",
    re.ASCII,
)

#: Lines of the LiteRT banner and of abbreviated pastes, by their label, and the key each is kept
#: under.
BANNER_KEYS: Final[Mapping[str, str]] = {
    "Model initialization": "init",
    "Warmup (first)": "warmup_first",
    "Warmup (avg)": "warmup_avg",
    "Inference (avg)": "inference_avg",
    "Inference (min)": "inference_min",
    "Inference (max)": "inference_max",
    "Inference (std)": "inference_std",
    "Inference (median)": "inference_median",
    "Inference (p5)": "inference_p5",
    "Inference (p95)": "inference_p95",
    "Throughput": "throughput_mb_s",
    "Init footprint": "init_footprint_mb",
    "Overall footprint": "overall_footprint_mb",
    "Peak memory": "peak_memory_mb",
}
_MEMORY_KEYS: Final = frozenset(
    {"throughput_mb_s", "init_footprint_mb", "overall_footprint_mb", "peak_memory_mb"}
)
#: Of the smallest pages that phones have; larger ones are multiples of them.
_PAGES_PER_MIB: Final = 256
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


def has_all_digits(figure: str, *, may_have_power: bool = True) -> bool:
    """Whether a figure can't go on: the programs print at most six significant digits, and from a
    million up a power.

    One digit before the point may be the beginning of a power.
    """
    if "e" in figure:
        return re.search(r"e[+-]\d\d$", figure, re.ASCII) is not None
    whole, point, rest = figure.partition(".")
    digits = f"{whole}{rest}".lstrip("0")
    return (
        len(digits) == 6
        and digits.isdigit()
        and bool(point)
        and (len(whole) > 1 or whole == "0" or not may_have_power)
    )


def parse_stats(
    text: str, *, has_percentiles: bool = False, is_cut: bool = False
) -> LatencySummary | None:
    """Read ``count=50 first=.. curr=.. min=.. max=.. avg=.. std=.. [p5=.. median=.. p95=..]`` at
    the text's start.

    A single sample (``count=1 curr=X``) and equal samples (``count=2 curr=X(all same)``) print
    nothing but ``curr``: first, min, max and mean are that value then, and the deviation is 0. Of a
    line that isn't whole the last figure is left out, for it may lack digits. ``has_percentiles``
    says that this program's other lines end in percentiles, ``is_cut`` that the text ends after the
    line.
    """
    match = _STATS.match(text)
    if not match:
        return None
    count = int(match["count"])
    found = _STAT.findall(match["rest"])
    if is_cut and found and not has_all_digits(found[-1][1]):
        del found[-1]
    elif not _is_whole(count, [name for name, _ in found], has_percentiles=has_percentiles):
        if not found:
            return None
        del found[-1]
    values: dict[str, float | None] = {}
    for name, figure in found:
        if name in _STAT_FIELDS:
            values.setdefault(_STAT_FIELDS[name], parse_number(figure))
    median, p95 = values.get("median_us"), values.get("p95_us")
    if median is not None and p95 is not None and p95 < median:
        values["p95_us"] = None
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


def _is_whole(count: int, names: Sequence[str], *, has_percentiles: bool) -> bool:
    """Whether a statistics line has all that the programs print: spread and mean, or one value, or
    nothing at all.
    """
    if "p5" in names or has_percentiles:
        return "p95" in names
    return "std" in names or list(names) == ["curr"] or (not names and count == 0)


def parse_timings(text: str) -> dict[str, float] | None:
    """Read ``Inference timings in us: ...`` of any year; keys ``init``, ``first``, ``warmup``,
    ``inference``.

    The last figure of a line without the inference's is left out: the line was cut, and the figure
    may lack digits.
    """
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
    if timings and "inference" not in timings:
        timings.popitem()
    return timings


def parse_memory(text: str, *, is_cut: bool = False) -> dict[str, float] | None:
    """Read the memory line; keys ``init`` and ``overall``, in units of 2**20 bytes.

    Both are high-water marks, so that an overall below what the start needed was cut, as was a
    start without one. ``is_cut``: the text ends after the line.
    """
    match = _MEMORY.match(text)
    if not match:
        return None
    found = {name: parse_footprint(figure) for name, figure in _STAT.findall(match["rest"])}
    init, overall = found.get("init"), found.get("overall")
    if init is None or "overall" not in found:
        return {}
    is_part = is_cut and not has_all_digits(text.rpartition("=")[2], may_have_power=False)
    return (
        {"init": init}
        if overall is None or overall < init or is_part
        else {"init": init, "overall": overall}
    )


def parse_footprint(figure: str) -> float | None:
    """Return a memory figure in units of 2**20 bytes, None for one that was cut inside.

    The kernel counts in pages and the programs print six digits, so that few figures with less
    digits are possible.
    """
    value = parse_number(figure)
    if value is None:
        return None
    return (
        value if float(f"{round(value * _PAGES_PER_MIB) / _PAGES_PER_MIB:.6g}") == value else None
    )


def parse_banner(text: str) -> tuple[str, float, int | None] | None:
    """Read a line of the LiteRT banner: its key, the figure (microseconds or MB) and the number of
    runs it names.
    """
    label, colon, rest = text.partition(":")
    key = BANNER_KEYS.get(label)
    if key is None or not colon:
        return None
    match = _AMOUNT.fullmatch(rest.strip())
    value = parse_number(match["number"]) if match else None
    if match is None or value is None:
        return None
    if match["unit"] is None and key != "inference_std":
        # Without its unit the line was cut, and the figure may lack digits.
        return None
    if key not in _MEMORY_KEYS:
        value = to_us(value, match["unit"] or "ms")
    return key, value, int(match["runs"]) if match["runs"] else None


def to_us(value: float, unit: str) -> float:
    """Return a latency in microseconds; ``unit`` is "us", "microseconds", "ms" or "s"."""
    factor = {"ms": US_PER_MS, "s": US_PER_S}.get(unit, 1.0)
    # What was printed has few digits; multiplying must not add the noise of binary fractions.
    return float(f"{value * factor:.12g}")


def mean_as_printed(summary: LatencySummary) -> str:
    """Return the mean the way the programs print it: six significant digits, exponent from a
    million up.
    """
    return "" if summary.mean_us is None else f"{summary.mean_us:.6g}"
