"""The begins and ends of slices, as either format of a trace holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
