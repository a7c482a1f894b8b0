"""Stored runs and campaigns for lists and exports; and the outputs of runs for a report: one log a
case, and the device's state before, after and during runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.analysis.samples import parse_samples
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, CampaignProgress
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
from orchestrator.tables.table import DATA, IS_VIRTUAL, MS, NESTED, Column, Kind, Table


def _report(column: Column[ToolReport]) -> Column[RunRecord]:
    return column.of(lambda run: run.report)


RUNS: Final[Sequence[Column[RunRecord]]] = (
    Column("run_id", "run", lambda row: row.run_id, shown=lambda run: run.run_id[:12]),
    Column(
        "serial",
        "phone",
        lambda run: run.case.serial,
        shown=lambda run: f"{run.case.serial}{' (virtual)' if run.is_virtual else ''}",
    ),
    IS_VIRTUAL,
    Column("model", value=lambda run: run.case.model_name),
    Column("configuration", value=lambda run: run.case.configuration),
    Column("campaign_id", "campaign", lambda row: row.campaign_id, forms=DATA),
    Column("case_key", "case", lambda run: run.case.case_key, forms=DATA),
    Column("pass", value=lambda run: run.run_pass),
    Column("invocation", "#", lambda run: run.invocation + 1, Kind.COUNT),
    Column("outcome", value=lambda row: row.outcome),
    Column("reason_code", "why", lambda row: row.reason_code, is_optional=True),
    Column("reason", value=lambda row: row.reason, forms=DATA),
    Column(
        "quality", value=lambda run: run.verdict.quality, shown=lambda run: run.verdict.quality.word
    ),
    Column("latency_us", "latency", lambda row: row.latency_us, **MS),
    _report(
        Column(
            "inferences",
            value=lambda report: report.inference and report.inference.count,
            kind=Kind.COUNT,
            forms=DATA,
        )
    ),
    _report(Column("init_us", "init", lambda row: row.init_us, forms=DATA, **MS)),
    _report(
        Column(
            "first_inference_us",
            "first inference",
            lambda row: row.first_inference_us,
            forms=DATA,
            **MS,
        )
    ),
    Column("started_at", "started", lambda row: row.started_at, kind=Kind.MOMENT, forms=DATA),
    Column(
        "duration_s",
        "took",
        lambda row: row.duration_s,
        kind=Kind.NUMBER,
        unit="s",
        digits=1,
        forms=DATA,
    ),
    Column("exit_code", value=lambda row: row.exit_code, kind=Kind.COUNT, forms=DATA),
)


def runs_table(runs: Iterable[RunRecord]) -> Table[RunRecord]:
    """Return the table of stored runs with their outcomes, not the figures of their cases."""
    return Table(
        name="runs",
        caption="Stored runs",
        columns=RUNS,
        rows=runs,
    )


@dataclass(frozen=True, slots=True)
class StoredCampaign:
    """A campaign, its progress, and whether lists leave it out."""

    campaign: Campaign
    progress: CampaignProgress
    is_hidden: bool
    #: Its stored status, or whether another computer runs it, nobody does, or it was closed.
    state: str

    @property
    def title(self) -> str:
        """Its name, with ``(imported)`` and ``(hidden)`` where they apply."""
        marks = (" (imported)" if self.campaign.terms.origin else "") + (
            " (hidden)" if self.is_hidden else ""
        )
        return self.campaign.name + marks


CAMPAIGNS: Final[Sequence[Column[StoredCampaign]]] = (
    Column("campaign_id", "campaign", lambda row: row.campaign.campaign_id),
    Column("name", value=lambda row: row.campaign.name, shown=lambda row: row.title),
    Column("created_at", "started", lambda row: row.campaign.created_at, Kind.MOMENT),
    Column("status", value=lambda row: row.state),
    Column(
        "stored",
        "runs",
        lambda row: row.progress.stored,
        Kind.COUNT,
        shown=lambda row: row.progress.text(is_over=row.campaign.status.is_over),
    ),
    Column("planned", value=lambda row: row.progress.total, kind=Kind.COUNT, forms=DATA),
    Column("abandoned", value=lambda row: row.progress.abandoned, kind=Kind.COUNT, forms=DATA),
    Column("host", value=lambda row: row.campaign.host, forms=DATA),
    Column("origin", value=lambda row: row.campaign.terms.origin, kind=Kind.RECORD, forms=NESTED),
    Column("hidden", value=lambda row: row.is_hidden, kind=Kind.FLAG, forms=DATA),
)


def campaigns_table(rows: Sequence[StoredCampaign]) -> Table[StoredCampaign]:
    """Return the table of stored campaigns."""
    return Table(
        name="campaigns",
        caption="Stored campaigns",
        columns=CAMPAIGNS,
        rows=rows,
        order="newest first",
    )


#: Returns the attachments of runs, in any order; unknown runs are left out.
Outputs = Callable[[Sequence[RunId]], Iterable[tuple[RunId, tuple[Attachment, ...]]]]

#: Characters of log kept for a case when the report is made; a rendering may keep fewer.
LOG_CHARACTERS: Final = 6_000
#: The start of a log names request and setup; its end, the result or the failure.
_HEAD_SHARE: Final = 0.6
_TEXT_NAMES: Final = ("stdout", "stderr", "logcat")
#: The greatest number of drawn samples of a device's state during one run.
_MOST_SAMPLES: Final = 120
#: Zones outside of this aren't temperatures: trip points, disconnected sensors, voltages under a
#: thermal name.
_PLAUSIBLE_C: Final = (-30.0, 130.0)


@frozen
class LogExcerpt:
    """The output of one invocation as text, cut to a length."""

    text: str
    total_bytes: int
    #: Bytes left out of the middle; 0 for a complete output.
    left_out_bytes: int


def logs_and_samples(
    cases: Iterable[Sequence[RunRecord]], outputs: Outputs
) -> dict[RunId, tuple[LogExcerpt, str]]:
    """Return the most informative log of each case and its run's samples as JSON, by run.

    ``cases`` are the runs of each in their order. ``outputs`` is called for one run of each case,
    for all cases at once, and again with the next run of each case whose run has no text.
    """
    candidates = [iter(sorted(runs, key=_log_rank, reverse=True)) for runs in cases]
    logs: dict[RunId, tuple[LogExcerpt, str]] = {}
    while by_run := {
        run.run_id: case for case in candidates if (run := next(case, None)) is not None
    }:
        candidates = []
        for run_id, attachments in outputs(list(by_run)):
            log = excerpt(attachments)
            if log is None:
                candidates.append(by_run[run_id])
                continue
            sampled = next((item.data for item in attachments if item.name == SAMPLES_FILE), None)
            parsed = parse_samples(sampled) if sampled is not None else None
            samples = parsed.samples if parsed is not None else ()
            # As text: the samples themselves take ten times the room.
            thinned = samples[:: -(-len(samples) // _MOST_SAMPLES) or 1]
            logs[run_id] = log, json.dumps([device_moment(item) for item in thinned])
    return logs


def _log_rank(run: RunRecord) -> int:
    """Return the rank of a run's log, highest first: failures, then rejected and suspect runs."""
    if run.outcome is not Outcome.COMPLETED:
        return 3
    return {Quality.REJECTED: 2, Quality.SUSPECT: 1, Quality.TRUSTED: 0}[run.verdict.quality]


def excerpt(attachments: Sequence[Attachment], limit: int = LOG_CHARACTERS) -> LogExcerpt | None:
    """Return a program's output, cut in the middle to ``limit`` characters; None if it is empty."""
    texts = [item for item in attachments if item.name in _TEXT_NAMES and item.data]
    if not texts:
        return None
    left_out_bytes, parts = 0, []
    for item in texts:
        text, omitted_bytes = _cut(item.data.decode(errors="replace"), limit // len(texts))
        left_out_bytes += omitted_bytes
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
    """Return the text's start and end, cut at line ends if possible, and the bytes left out."""
    if len(text) <= limit:
        return text, 0
    head = text[: int(limit * _HEAD_SHARE)]
    tail = text[len(text) - (limit - len(head)) :]
    head = head[: head.rindex("\n")] if "\n" in head else head
    tail = tail[tail.index("\n") + 1 :] if "\n" in tail else tail
    whole, *ends = (len(part.encode(errors="replace")) for part in (text, head, tail))
    omitted = whole - sum(ends)
    return f"{head}\n[... {omitted} bytes left out ...]\n{tail}", omitted


def device_moment(state: DeviceState | Sample) -> tuple[Any, ...]:
    """Return a device's state as a tuple for evidence.js: time in seconds, hottest zone in degrees
    Celsius, each cluster's clock and limit in kHz, GPU load in percent (samples only), and of a
    state the zone's name, the battery's percent and heat, plug and health.
    """
    low, high = _PLAUSIBLE_C
    zones = [(heat, zone) for zone, heat in state.heat_c.items() if low < heat < high]
    heat, zone = max(zones, default=(None, ""))
    clocks, limits = dict(state.clock_khz), dict(state.clock_limit_khz)
    if isinstance(state, Sample):
        return state.uptime_s, heat, clocks, limits, state.gpu_busy_percent
    time_s = int(state.at.timestamp() * 10) / 10
    battery = state.battery_percent, state.battery_heat_c
    words = visible(state.plugged), visible(state.battery_health)
    return time_s, heat, clocks, limits, None, visible(zone), *battery, *words
