"""What runs left behind, as a report shows it: the log of one run a case, and what the device was
like before, after and meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.samples import parse_samples
from orchestrator.records.case import RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.run import SAMPLES_FILE, Attachment, Outcome, RunRecord, Sample
from orchestrator.records.verdict import Quality
from orchestrator.tables.escapes import visible

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
#: Zones outside of this aren't temperatures: trip points, disconnected sensors, voltages under a
#: thermal name.
_PLAUSIBLE_C: Final = (-30.0, 130.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    """What one invocation printed, as text, cut to a length."""

    text: str
    total_bytes: int
    #: Bytes left out of the middle; 0 when all is there.
    left_out_bytes: int


def shown_logs(
    cases: Iterable[Sequence[RunRecord]], outputs: Outputs
) -> dict[RunId, tuple[LogExcerpt, str]]:
    """Return of each case the log that has most to tell and its run's samples, by run.

    ``cases`` are the runs of each in their order. Only that run's output is asked for, or the next
    one's where it left no text, for all cases at once.
    """
    waiting = [iter(sorted(runs, key=_log_rank, reverse=True)) for runs in cases]
    found: dict[RunId, tuple[LogExcerpt, str]] = {}
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
            # As text: the samples themselves take ten times the room.
            some = samples[:: -(-len(samples) // _MOST_SAMPLES) or 1]
            found[run_id] = log, json.dumps([moment_of(item) for item in some])
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


def moment_of(state: DeviceState | Sample) -> tuple[Any, ...]:
    """Return what a page's script (evidence.js) shows of a device at a moment: when in seconds, the
    hottest zone in degrees Celsius, each cluster's clock and its limit in kHz; of a sample how busy
    the GPU is, of a state the zone's name and the battery.
    """
    low, high = _PLAUSIBLE_C
    zones = [(heat, zone) for zone, heat in state.heat_c.items() if low < heat < high]
    heat, zone = max(zones, default=(None, ""))
    clocks, limits = dict(state.clock_khz), dict(state.clock_limit_khz)
    if isinstance(state, Sample):
        return state.uptime_s, heat, clocks, limits, state.gpu_busy_percent
    at = int(state.at.timestamp() * 10) / 10
    battery = state.battery_percent, state.battery_heat_c
    words = visible(state.plugged), visible(state.battery_health)
    return at, heat, clocks, limits, None, visible(zone), *battery, *words
