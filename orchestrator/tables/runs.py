"""Stored runs and campaigns as lists and exports have them, and what runs left behind as a report shows
it: the log of one run a case, and what the device was like before, after and meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.samples import parse_samples
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign, Progress
from orchestrator.records.case import RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.run import (
    SAMPLES_FILE,
    Attachment,
    Outcome,
    RunRecord,
    Sample,
    ToolReport,
)
from orchestrator.records.verdict import Quality
from orchestrator.tables.escapes import visible
from orchestrator.tables.table import DATA, MS, NESTED, Column, Kind, Table


def _report(
    name: str,
    head: str,
    value: Callable[[ToolReport], Any],
    **other: Any,  # noqa: ANN401
) -> Column[RunRecord]:
    return Column(name, head, value, **{"forms": DATA, **other}).of(lambda run: run.report)


RUNS: Final[Sequence[Column[RunRecord]]] = (
    Column("run_id", "run", lambda run: run.run_id, shown=lambda run: run.run_id[:12]),
    Column(
        "serial",
        "phone",
        lambda run: run.case.serial,
        shown=lambda run: f"{run.case.serial}{' (virtual)' if run.is_virtual else ''}",
    ),
    Column("is_virtual", "virtual", lambda run: run.is_virtual, Kind.FLAG, forms=DATA),
    Column("model", "model", lambda run: run.case.model_name),
    Column("configuration", "configuration", lambda run: run.case.configuration),
    Column("campaign_id", "campaign", lambda run: run.campaign_id, forms=DATA),
    Column("case_key", "case", lambda run: run.case.case_key, forms=DATA),
    Column("pass", "pass", lambda run: run.run_pass),
    Column("invocation", "#", lambda run: run.invocation + 1, Kind.COUNT),
    Column("outcome", "outcome", lambda run: run.outcome),
    Column("reason_code", "why", lambda run: run.reason_code, is_optional=True),
    Column("reason", "reason", lambda run: run.reason, forms=DATA),
    Column(
        "quality",
        "quality",
        lambda run: run.verdict.quality,
        shown=lambda run: run.verdict.quality.word,
    ),
    Column("latency_us", "latency", lambda run: run.latency_us, **MS),
    _report(
        "inferences",
        "inferences",
        lambda report: report.inference and report.inference.count,
        kind=Kind.COUNT,
    ),
    _report("init_us", "init", lambda report: report.init_us, **MS),
    _report(
        "first_inference_us", "first inference", lambda report: report.first_inference_us, **MS
    ),
    Column("started_at", "started", lambda run: run.started_at, Kind.MOMENT, forms=DATA),
    Column(
        "duration_s", "took", lambda run: run.duration_s, Kind.NUMBER, "s", digits=1, forms=DATA
    ),
    Column("exit_code", "exit code", lambda run: run.exit_code, Kind.COUNT, forms=DATA),
)


def runs_table(runs: Iterable[RunRecord]) -> Table[RunRecord]:
    """Return stored runs, each as it ended; what its case's figure is made of is another question."""
    return Table(
        name="runs",
        caption="Stored runs",
        columns=RUNS,
        rows=runs,
        is_virtual=lambda run: run.is_virtual,
    )


@dataclass(frozen=True, slots=True)
class StoredCampaign:
    """A campaign, how far it is, and whether lists leave it out."""

    campaign: Campaign
    progress: Progress
    is_hidden: bool
    #: As stored, or that another computer runs it or nobody does, or that it was closed.
    state: str

    @property
    def title(self) -> str:
        """Its name, with the word for what isn't usual about it."""
        marks = (" (imported)" if self.campaign.terms.origin else "") + (
            " (hidden)" if self.is_hidden else ""
        )
        return self.campaign.name + marks

    @property
    def runs(self) -> str:
        """Stored of planned; more than planned: options and Flex builds that were found to be
        measured too. Alone where more than those are meant: a curve, or what a rule adds.
        """
        stored, planned, abandoned = self.progress
        is_more = stored >= planned and not self.campaign.status.is_over
        return f"{stored}" if is_more else f"{stored}/{max(stored + abandoned, planned)}"


CAMPAIGNS: Final[Sequence[Column[StoredCampaign]]] = (
    Column("campaign_id", "campaign", lambda row: row.campaign.campaign_id),
    Column("name", "name", lambda row: row.campaign.name, shown=lambda row: row.title),
    Column("created_at", "started", lambda row: row.campaign.created_at, Kind.MOMENT),
    Column("status", "status", lambda row: row.state),
    Column(
        "stored", "runs", lambda row: row.progress.stored, Kind.COUNT, shown=lambda row: row.runs
    ),
    Column("planned", "planned", lambda row: row.progress.planned, Kind.COUNT, forms=DATA),
    Column("abandoned", "abandoned", lambda row: row.progress.abandoned, Kind.COUNT, forms=DATA),
    Column("host", "host", lambda row: row.campaign.host, forms=DATA),
    Column("origin", "origin", lambda row: row.campaign.terms.origin, Kind.RECORD, forms=NESTED),
    Column("hidden", "hidden", lambda row: row.is_hidden, Kind.FLAG, forms=DATA),
)


def campaigns_table(rows: Sequence[StoredCampaign]) -> Table[StoredCampaign]:
    """Return stored campaigns."""
    return Table(
        name="campaigns",
        caption="Stored campaigns",
        columns=CAMPAIGNS,
        rows=rows,
        order="newest first",
    )


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


@frozen
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
    left_out_bytes, parts = 0, []
    for item in texts:
        text, omitted = _cut(item.data.decode(errors="replace"), limit // len(texts))
        left_out_bytes += omitted
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
