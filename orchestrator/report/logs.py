"""The one log that a report shows for a case, as text of a sane length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.samples import parse_samples
from orchestrator.records.identity import RunId
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.records.sample import SAMPLES_FILE
from orchestrator.records.verdict import Quality
from orchestrator.report.data import LogExcerpt, Trace
from orchestrator.report.traces import sample_traces

#: Tells what runs left behind, in any order; runs that are unknown are left out.
Outputs = Callable[[Sequence[RunId]], Iterable[tuple[RunId, tuple[Attachment, ...]]]]

#: Characters of log kept for a case when the report is made; a rendering may keep fewer.
LOG_CHARACTERS: Final = 6_000
#: The start of a log names what was asked for and what was created; its end, what came out or what broke.
_HEAD_SHARE: Final = 0.6
_TEXT_NAMES: Final = ("stdout", "stderr", "logcat")
#: Looks at a device while a run measured that are drawn of a case.
_MOST_LOOKS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLog:
    """What is shown of the one run of a case whose log tells most."""

    log: LogExcerpt
    #: What the device was seen to be like while it ran.
    traces: tuple[Trace, ...]


def shown_logs(cases: Iterable[Sequence[RunRecord]], outputs: Outputs) -> dict[RunId, ShownLog]:
    """Return what is shown of each case, by the run that it is of; ``cases`` are the runs of each in their order.

    Only that run's output is asked for, or the next one's where it left no text, for all cases at once.
    """
    waiting = [iter(sorted(runs, key=log_rank, reverse=True)) for runs in cases]
    found: dict[RunId, ShownLog] = {}
    while asked := {run.run_id: case for case in waiting if (run := next(case, None)) is not None}:
        waiting = []
        for run_id, attachments in outputs(list(asked)):
            log = excerpt(attachments)
            if log is None:
                waiting.append(asked[run_id])
                continue
            looks = next((item.data for item in attachments if item.name == SAMPLES_FILE), None)
            found[run_id] = ShownLog(log=log, traces=() if looks is None else _drawn(looks))
    return found


def _drawn(looks: bytes) -> tuple[Trace, ...]:
    """Return the small drawings of as many looks as one can show; the looks themselves take ten times the room."""
    known = parse_samples(looks)
    samples = known.samples if known is not None else ()
    step = -(-len(samples) // _MOST_LOOKS) or 1
    return sample_traces(samples[::step])


def log_rank(run: RunRecord) -> int:
    """Return how much a run's log has to tell, higher first: failures, then numbers that can't be trusted."""
    if run.outcome is not Outcome.COMPLETED:
        return 3
    return {Quality.REJECTED: 2, Quality.SUSPECT: 1, Quality.TRUSTED: 0}[run.verdict.quality]


def excerpt(attachments: Sequence[Attachment], limit: int = LOG_CHARACTERS) -> LogExcerpt | None:
    """Return what a program printed, cut in the middle to ``limit`` characters; None when nothing was kept."""
    texts = [item for item in attachments if item.name in _TEXT_NAMES and item.data]
    if not texts:
        return None
    total_bytes = sum(len(item.data) for item in texts)
    share = limit // len(texts)
    parts, left_out_bytes = [], 0
    for item in texts:
        # Four bytes hold any character, so what is decoded here is enough for the cut, however long the log is.
        head, tail = item.data[: share * 4], item.data[-share * 4 :]
        if len(item.data) <= share * 4:
            text, omitted = _cut(item.data.decode(errors="replace"), share)
        else:
            text, omitted = _cut(head.decode(errors="replace") + tail.decode(errors="replace"), share)
            omitted += len(item.data) - len(head) - len(tail)
        left_out_bytes += omitted
        parts.append(f"[{item.name}]\n{text}" if len(texts) > 1 else text)
    return LogExcerpt(text="\n".join(parts), total_bytes=total_bytes, left_out_bytes=left_out_bytes)


def shorter(log: LogExcerpt, limit: int) -> LogExcerpt:
    """Return an excerpt cut further, to ``limit`` characters."""
    text, omitted = _cut(log.text, limit)
    return LogExcerpt(text=text, total_bytes=log.total_bytes, left_out_bytes=log.left_out_bytes + omitted)


def _cut(text: str, limit: int) -> tuple[str, int]:
    """Return the text's start and end at whole lines where it can be, and the number of bytes left out."""
    if len(text) <= limit:
        return text, 0
    head = text[: int(limit * _HEAD_SHARE)]
    tail = text[len(text) - (limit - len(head)) :]
    if "\n" in head:
        head = head[: head.rindex("\n")]
    if "\n" in tail:
        tail = tail[tail.index("\n") + 1 :]
    omitted = (
        len(text.encode(errors="replace")) - len(head.encode(errors="replace")) - len(tail.encode(errors="replace"))
    )
    return f"{head}\n[... {omitted} bytes left out ...]\n{tail}", omitted
