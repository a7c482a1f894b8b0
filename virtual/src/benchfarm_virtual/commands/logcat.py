"""logcat and log: the log buffers in logcat's own form, threadtime."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from benchfarm_virtual.commands.file_commands import local_time
from benchfarm_virtual.commands.invocation import Invocation, command, read_options
from benchfarm_virtual.contract import encoded
from benchfarm_virtual.logs import BUFFERS, LogEntry
from benchfarm_virtual.processes import listed


@command("logcat")
def logcat(call: Invocation) -> None:
    """Show or follow the log."""
    options, logs = read_options(call, "d", "bvtT"), call.system.logs
    if options.last("v", "threadtime") != "threadtime":
        call.fail("a virtual phone knows -v threadtime only")
    names = ",".join(options.values.get("b", BUFFERS)).split(",")
    buffers = [name for name in BUFFERS if name in names or "all" in names]
    start = options.last("t", options.last("T", "0"))
    since_s = 0.0 if start.isdigit() else _moment(call, start)
    entries = logs.entries(buffers)
    last = max((entry.number for entry in entries), default=logs.last_number)
    headed: set[str] = set()

    def write(batch: Sequence[LogEntry]) -> None:
        for entry in batch:
            if entry.wall_s < since_s:
                continue
            if entry.buffer not in headed:
                call.out.line(f"--------- beginning of {entry.buffer}")
                headed.add(entry.buffer)
            call.out.write(formatted(entry))

    write(entries[-int(start) :] if start.isdigit() else entries)
    if {"d", "t"} & options.values.keys():
        return
    with listed(call.process.wakers, logs.wake):
        while True:
            call.out.flush()
            fresh = logs.wait(buffers, last, call.process.killed.is_set)
            call.check_alive()
            last = max([last, *(entry.number for entry in fresh)])
            write(fresh)


def _moment(call: Invocation, text: str) -> float:
    """Read a time, ``MM-DD hh:mm:ss.mmm``."""
    year = local_time(call.system.time.wall_s()).year
    return datetime.strptime(f"{year}-{text} +0000", "%Y-%m-%d %H:%M:%S.%f %z").timestamp()


def formatted(entry: LogEntry) -> bytes:
    """Return a message as logcat prints it: each of its lines with the same header."""
    whole = int(entry.wall_s // 1)
    moment = f"{local_time(whole):%m-%d %H:%M:%S}.{int((entry.wall_s - whole) * 1000):03d}"
    head = encoded(f"{moment} {entry.pid:>5} {entry.pid:>5} {entry.priority} {entry.tag:<8}: ")
    return b"".join(head + line + b"\n" for line in entry.message.removesuffix(b"\n").split(b"\n"))


@command("log")
def log(call: Invocation) -> None:
    """Write a line into the main buffer."""
    options = read_options(call, "", "t", stop_early=True)
    call.log(options.last("t", "log"), " ".join(options.args))
