"""Slices of a trace, and atrace's (systrace's) text, as phones without perfetto print it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.errors import OutputParseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A slice's begin or end, as one thread wrote it."""

    at_ns: int
    thread: int
    process: int
    #: The slice's name; None for an end.
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a trace file holds of slices."""

    marks: tuple[Mark, ...]
    #: Process -> its command line, or the kernel's short name for it.
    processes: Mapping[int, str] = field(default_factory=dict)
    #: Events that the phone had no room for; a summary of such a trace is incomplete.
    lost_events: int = 0
    #: Further reasons why it is incomplete, as sentences.
    gaps: tuple[str, ...] = ()


def mark_of(text: str, *, at_ns: int, thread: int) -> Mark | None:
    """Return the mark that a line in the kernel's trace marker means, None for another (counters, async slices)."""
    text = text.rstrip("\n")
    kind, _, rest = text.partition("|")
    process, bar, name = rest.partition("|")
    if kind == "B" and bar and process.isdecimal() and process.isascii():
        return Mark(at_ns=at_ns, thread=thread, process=int(process[:18]), name=name)
    if kind == "E":
        return Mark(at_ns=at_ns, thread=thread, process=thread, name=None)
    return None


#: ``TASK-PID (TGID) [CPU] flags SECONDS: tracing_mark_write: TEXT``; a task's name may hold anything.
_LINE: Final = re.compile(
    r"\s*(?P<task>.{1,32}?)-(?P<pid>\d{1,9})\s+(?:\(\s*(?P<tgid>\d{1,9}|-+)\)\s+)?\[\d{1,4}\]\s+(?:\S{1,8}\s+)?"
    r"(?P<s>\d{1,12})\.(?P<us>\d{6}):\s+(?:tracing_mark_write|print):\s+(?P<text>.*)",
    re.ASCII,
)
_ENTRIES: Final = re.compile(r"#\s*entries-in-buffer/entries-written: (\d{1,18})/(\d{1,18})", re.ASCII)
_LOST: Final = re.compile(r"CPU:\s*\d{1,4} \[LOST (?:(\d{1,18}) )?EVENTS\]", re.ASCII)


def read_atrace(data: bytes) -> Recording:
    """Return the slices of a text; raises OutputParseError when it is none of atrace's."""
    text = data.decode("utf-8", "replace")
    if "tracer: nop" not in text[:10_000]:
        raise OutputParseError("this is no text of atrace: it has no line '# tracer: nop'")
    marks: list[Mark] = []
    processes: dict[int, str] = {}
    lost = 0
    gaps: list[str] = []
    # A task's name may hold what else ends a line; the kernel's lines end with a newline only.
    for line in text.split("\n"):
        if line.startswith("#"):
            if entries := _ENTRIES.match(line):
                lost += max(0, int(entries[2]) - int(entries[1]))
        elif match := _LINE.match(line):
            at_ns = (int(match["s"]) * 1_000_000 + int(match["us"])) * 1000
            mark = mark_of(match["text"], at_ns=at_ns, thread=int(match["pid"]))
            if mark is not None:
                marks.append(mark)
                if mark.name is not None and mark.process == mark.thread:
                    processes.setdefault(mark.process, match["task"].strip())
        elif found := _LOST.match(line):
            lost += int(found[1] or 0)
            if not found[1]:
                gaps.append("the kernel says that it lost events, and not how many")
    return Recording(marks=tuple(marks), processes=processes, lost_events=lost, gaps=tuple(dict.fromkeys(gaps)))
