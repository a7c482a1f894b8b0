"""logcat and log: the log buffers in logcat's own form, threadtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast

from benchfarm_virtual.commands.file_commands import local_time
from benchfarm_virtual.commands.invocation import Invocation, command, encoded, read_options
from benchfarm_virtual.contract import LogPriority
from benchfarm_virtual.logs import BUFFERS, LogEntry

_DEFAULT_BUFFERS: Final = ("main", "system", "crash")


@dataclass(slots=True)
class _Query:
    """What one logcat shows."""

    buffers: list[str] = field(default_factory=list)
    #: Only the last messages, at most so many.
    tail: int | None = None
    since_s: float | None = None
    dump: bool = False

    def shows(self, entry: LogEntry) -> bool:
        """Say whether a message is late enough."""
        return self.since_s is None or entry.wall_s >= self.since_s


@command("logcat")
def logcat(call: Invocation) -> int:
    """Show, follow or clear the log."""
    options = read_options(call, "cd", "bvtT")
    query = _Query(dump="d" in options)
    _choose_buffers(call, query, options.values.get("b", []))
    if "c" in options:
        call.system.logs.clear(query.buffers)
        return 0
    if options.last("v", "threadtime") != "threadtime":
        call.fail(
            f"Invalid parameter '{options.last('v')}' to -v: a virtual phone knows threadtime only"
        )
    for letter in "tT":
        if letter in options:
            _choose_start(call, query, options.last(letter))
            query.dump = query.dump or letter == "t"
    return _show(call, query)


def _choose_buffers(call: Invocation, query: _Query, names: Sequence[str]) -> None:
    for name in ",".join(names).split(",") if names else _DEFAULT_BUFFERS:
        match name.strip():
            case "all":
                query.buffers += BUFFERS
            case known if known in BUFFERS:
                query.buffers.append(known)
            case unknown:
                call.fail(f"Unknown -b buffer '{unknown}'")
    query.buffers = list(dict.fromkeys(query.buffers))


def _choose_start(call: Invocation, query: _Query, text: str) -> None:
    """Read a count or a time, ``MM-DD hh:mm:ss.mmm``."""
    if text.isdigit():
        query.tail = max(1, int(text))
        return
    year = local_time(call.system.time.wall_s()).year
    try:
        moment = datetime.strptime(f"{year}-{text} +0000", "%Y-%m-%d %H:%M:%S.%f %z")
    except ValueError:
        call.fail(f'-T "{text}" not in time format')
    query.since_s = moment.timestamp()


def _show(call: Invocation, query: _Query) -> int:
    logs = call.system.logs
    entries = logs.entries(query.buffers)
    last = max((entry.number for entry in entries), default=logs.last_number())
    begun: set[str] = set()

    def write(batch: Sequence[LogEntry]) -> None:
        for entry in batch:
            if not query.shows(entry):
                continue
            if entry.buffer not in begun:
                call.out.line(f"--------- beginning of {entry.buffer}")
                begun.add(entry.buffer)
            call.out.write(formatted(entry))

    write(entries if query.tail is None else entries[-query.tail :])
    if query.dump:
        return 0
    call.process.add_waker(logs.wake)
    try:
        while True:
            call.out.flush()
            fresh = logs.wait(query.buffers, last, call.process.killed.is_set)
            call.check_alive()
            last = max([last, *(entry.number for entry in fresh)])
            write(fresh)
    finally:
        call.process.remove_waker(logs.wake)


def formatted(entry: LogEntry) -> bytes:
    """Return a message as logcat prints it: each of its lines with the same header."""
    whole = int(entry.wall_s // 1)
    moment = f"{local_time(whole):%m-%d %H:%M:%S}.{int((entry.wall_s - whole) * 1000):03d}"
    head = encoded(f"{moment} {entry.pid:>5} {entry.tid:>5} {entry.priority} {entry.tag:<8}: ")
    return b"".join(head + line + b"\n" for line in entry.message.removesuffix(b"\n").split(b"\n"))


_PRIORITY_WORDS: Final[Mapping[str, str]] = {
    "v": "V",
    "d": "D",
    "i": "I",
    "w": "W",
    "e": "E",
    "f": "F",
}


@command("log")
def log(call: Invocation) -> int:
    """Write a line into the main buffer."""
    options = read_options(call, "", "pt", stop_early=True)
    letter = _PRIORITY_WORDS.get(options.last("p", "i")[:1].lower())
    if letter is None:
        call.fail(f"bad -p '{options.last('p')}'")
    text = " ".join(options.args)
    call.system.logs.log(
        cast(LogPriority, letter),
        options.last("t", "log"),
        text,
        pid=call.process.pid,
        uid=call.uid,
    )
    return 0
