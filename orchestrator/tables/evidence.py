"""What runs left behind, as a report shows it: the log of one run a case, and the device's state
over time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.samples import parse_samples
from orchestrator.records.case import RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.run import SAMPLES_FILE, Attachment, Outcome, RunRecord, Sample
from orchestrator.records.verdict import Quality
from orchestrator.tables.column import NOTHING

if TYPE_CHECKING:
    from orchestrator.tables.rows import InvocationRow

#: Returns what runs left behind, in any order; runs that are unknown are left out.
Outputs = Callable[[Sequence[RunId]], Iterable[tuple[RunId, tuple[Attachment, ...]]]]

#: Characters of log kept for a case when the report is made; a rendering may keep fewer.
LOG_CHARACTERS: Final = 6_000
#: The start of a log names what was asked for and what was created; its end, what came out or what
#: broke.
_HEAD_SHARE: Final = 0.6
_TEXT_NAMES: Final = ("stdout", "stderr", "logcat")
#: Samples of a device's state during one run that are drawn.
_MOST_SAMPLES: Final = 120
_KHZ_PER_MHZ: Final = 1000
#: Zones outside of this aren't temperatures: trip points, disconnected sensors, voltages under a
#: thermal name.
_PLAUSIBLE_C: Final = (-30.0, 130.0)
#: A drawing's size in its own units; the page stretches it in length.
WIDTH: Final = 300.0
HEIGHT: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    """What one invocation printed, as text, cut to a length."""

    text: str
    total_bytes: int
    #: Bytes left out of the middle; 0 when all is there.
    left_out_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One quantity over time."""

    name: str
    unit: str
    low: float
    high: float
    last: float
    #: How long from the first point to the last.
    duration_s: float
    #: As SVG's ``points`` has them; empty when the quantity never changed.
    points: str


def shown_logs(
    cases: Iterable[Sequence[RunRecord]], outputs: Outputs
) -> dict[RunId, tuple[LogExcerpt, tuple[Trace, ...]]]:
    """Return of each case the log that has most to tell and the traces of its run, by run.

    ``cases`` are the runs of each in their order. Only that run's output is asked for, or the next
    one's where it left no text, for all cases at once.
    """
    waiting = [iter(sorted(runs, key=_log_rank, reverse=True)) for runs in cases]
    found: dict[RunId, tuple[LogExcerpt, tuple[Trace, ...]]] = {}
    while asked := {run.run_id: case for case in waiting if (run := next(case, None)) is not None}:
        waiting = []
        for run_id, attachments in outputs(list(asked)):
            log = excerpt(attachments)
            if log is None:
                waiting.append(asked[run_id])
                continue
            sampled = next((item.data for item in attachments if item.name == SAMPLES_FILE), None)
            known = parse_samples(sampled) if sampled is not None else None
            samples = known.samples if known is not None else ()
            # The samples themselves take ten times the room of the drawings.
            found[run_id] = log, sample_traces(samples[:: -(-len(samples) // _MOST_SAMPLES) or 1])
    return found


def _log_rank(run: RunRecord) -> int:
    """Return how much a run's log has to tell, higher first: failures, then numbers that can't be
    trusted.
    """
    if run.outcome is not Outcome.COMPLETED:
        return 3
    return {Quality.REJECTED: 2, Quality.SUSPECT: 1, Quality.TRUSTED: 0}[run.verdict.quality]


def excerpt(attachments: Sequence[Attachment], limit: int = LOG_CHARACTERS) -> LogExcerpt | None:
    """Return what a program printed, cut in the middle to ``limit`` characters.

    None when nothing was kept.
    """
    texts = [item for item in attachments if item.name in _TEXT_NAMES and item.data]
    if not texts:
        return None
    share, left_out_bytes, parts = limit // len(texts), 0, []
    for item in texts:
        # Four bytes hold any character, so both ends are enough for the cut, however long the log
        # is.
        ends = item.data
        if len(ends) > share * 4:
            ends = ends[: share * 4] + ends[-share * 4 :]
        text, omitted = _cut(ends.decode(errors="replace"), share)
        left_out_bytes += omitted + len(item.data) - len(ends)
        parts.append(f"[{item.name}]\n{text}" if len(texts) > 1 else text)
    total_bytes = sum(len(item.data) for item in texts)
    return LogExcerpt(text="\n".join(parts), total_bytes=total_bytes, left_out_bytes=left_out_bytes)


def shorter(log: LogExcerpt, limit: int) -> LogExcerpt:
    """Return an excerpt cut further, to ``limit`` characters."""
    text, omitted = _cut(log.text, limit)
    return LogExcerpt(
        text=text, total_bytes=log.total_bytes, left_out_bytes=log.left_out_bytes + omitted
    )


def _cut(text: str, limit: int) -> tuple[str, int]:
    """Return the text's start and end at whole lines where it can be, and the number of bytes left
    out.
    """
    if len(text) <= limit:
        return text, 0
    head = text[: int(limit * _HEAD_SHARE)]
    tail = text[len(text) - (limit - len(head)) :]
    head = head[: head.rindex("\n")] if "\n" in head else head
    tail = tail[tail.index("\n") + 1 :] if "\n" in tail else tail
    whole, *ends = (len(part.encode(errors="replace")) for part in (text, head, tail))
    omitted = whole - sum(ends)
    return f"{head}\n[... {omitted} bytes left out ...]\n{tail}", omitted


def _hottest(state: DeviceState | Sample) -> tuple[float, str] | None:
    """Return the hottest zone that shows a temperature, in degrees Celsius; None without one."""
    low, high = _PLAUSIBLE_C
    zones = ((heat, zone) for zone, heat in state.heat_c.items() if low < heat < high)
    return max(zones, default=None)


def hottest_text(state: DeviceState) -> str:
    """Return the hottest plausible zone: ``41.0 (cpu-1-0)``, in degrees Celsius."""
    hottest = _hottest(state)
    return NOTHING if hottest is None else "{:.1f} ({})".format(*hottest)


def battery_text(state: DeviceState) -> str:
    """Return the battery: ``82 %, 29.5 °C, usb``; its health where it isn't good."""
    parts = []
    if state.battery_percent is not None:
        parts.append(f"{state.battery_percent} %")
    if state.battery_heat_c is not None:
        parts.append(f"{state.battery_heat_c:.1f} °C")
    if state.plugged:
        parts.append("unplugged" if state.plugged == "none" else state.plugged)
    if state.battery_health not in {"", "good"}:
        parts.append(f"health {state.battery_health}")
    return ", ".join(parts) or NOTHING


def clocks_text(state: DeviceState) -> str:
    """Return each cluster's clock of its limit in MHz: ``cpu0 1210/1766, cpu4 2170/2803``."""
    clocks, limits = state.clock_khz, state.clock_limit_khz
    parts = (
        f"cpu{cpu} {_mhz(clocks.get(cpu))}/{_mhz(limits.get(cpu))}"
        for cpu in sorted({*clocks, *limits})
    )
    return ", ".join(parts) or NOTHING


def _mhz(khz: int | None) -> str:
    return NOTHING if khz is None else f"{khz / _KHZ_PER_MHZ:.0f}"


def condition_traces(invocations: Sequence[InvocationRow]) -> tuple[Trace, ...]:
    """Return the hottest zone and each cluster's clock and limit over time; nothing where they
    aren't known twice.
    """
    states = [
        state
        for run in invocations
        for state in (run.run.state_before, run.run.state_after)
        if state is not None
    ]
    return _traces(
        (state.at.timestamp(), state) for state in sorted(states, key=lambda state: state.at)
    )


def sample_traces(samples: Sequence[Sample]) -> tuple[Trace, ...]:
    """Return the same while one invocation ran, and how busy the GPU was, by samples of the
    device's state.
    """
    return _traces((sample.uptime_s, sample) for sample in samples)


def _traces(states: Iterable[tuple[float, DeviceState | Sample]]) -> tuple[Trace, ...]:
    """Return what states (seconds, state) in the order of time show; what was seen once only is no
    trace.
    """
    series: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for at, state in states:
        if (hottest := _hottest(state)) is not None:
            series["hottest zone", -1, "°C"].append((at, hottest[0]))
        for cpu, khz in sorted(state.clock_limit_khz.items()):
            series["limit of cpu", cpu, "MHz"].append((at, khz / _KHZ_PER_MHZ))
        for cpu, khz in sorted(state.clock_khz.items()):
            series["clock of cpu", cpu, "MHz"].append((at, khz / _KHZ_PER_MHZ))
        if isinstance(state, Sample) and state.gpu_busy_percent is not None:
            series["GPU busy", -1, "%"].append((at, state.gpu_busy_percent))
    return tuple(
        _trace(f"{name}{cpu}" if cpu >= 0 else name, unit, points)
        for (name, cpu, unit), points in series.items()
        if len(points) > 1
    )


def _trace(name: str, unit: str, points: Sequence[tuple[float, float]]) -> Trace:
    values = [value for _, value in points]
    low, high = min(values), max(values)
    duration_s = points[-1][0] - points[0][0]
    line = _line(points, low, high) if high > low else ""
    return Trace(
        name=name,
        unit=unit,
        low=low,
        high=high,
        last=values[-1],
        duration_s=duration_s,
        points=line,
    )


def _line(points: Sequence[tuple[float, float]], low: float, high: float) -> str:
    start, end = points[0][0], points[-1][0]
    x_scale = WIDTH / (end - start) if end > start else 0.0
    y_scale = (HEIGHT - 8) / (high - low)
    return " ".join(
        f"{(at - start) * x_scale:.1f},{HEIGHT - 4 - (value - low) * y_scale:.1f}"
        for at, value in points
    )
