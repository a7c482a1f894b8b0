"""logcat and log: the log buffers in all the forms that logcat knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from benchfarm_lab.commands.changes import parse_time
from benchfarm_lab.commands.clock import formatted_time
from benchfarm_lab.commands.invocation import Invocation, encoded
from benchfarm_lab.commands.listing import local_time
from benchfarm_lab.commands.options import read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import LogPriority
from benchfarm_lab.logs import BUFFERS, LogEntry
from benchfarm_lab.processes import user_name

_FORMATS: Final = frozenset({"brief", "process", "tag", "thread", "raw", "time", "threadtime", "long"})
_MODIFIERS: Final = frozenset(
    {"color", "colour", "descriptive", "epoch", "monotonic", "printable", "uid", "usec", "nsec", "UTC", "year", "zone"}
)
_ORDER: Final = "VDIWEFS"
_DEFAULT_BUFFERS: Final = ("main", "system", "crash")
_ALL_BUFFERS: Final = ("main", "radio", "events", "system", "crash", "kernel")


@dataclass(slots=True)
class _Query:
    """What one logcat shows, and how."""

    buffers: list[str] = field(default_factory=list)
    form: str = "threadtime"
    modifiers: set[str] = field(default_factory=set)
    #: Tag -> lowest priority shown; ``*`` for all others.
    filters: dict[str, str] = field(default_factory=dict)
    pid: int | None = None
    uids: set[int] | None = None
    expression: re.Pattern[str] | None = None
    tail: int | None = None
    since_s: float | None = None
    since_uptime: bool = False
    dump: bool = False
    most: int | None = None
    dividers: bool = False

    def shows(self, entry: LogEntry) -> bool:
        """Say whether a message passes the filters."""
        least = self.filters.get(entry.tag.strip(), self.filters.get("*", "V"))
        if _ORDER.index(entry.priority) < _ORDER.index(least):
            return False
        if self.pid is not None and entry.pid != self.pid:
            return False
        if self.uids is not None and entry.uid not in self.uids:
            return False
        if self.since_s is not None and (entry.uptime_s if self.since_uptime else entry.wall_s) < self.since_s:
            return False
        return self.expression is None or bool(self.expression.search(entry.message.decode("utf-8", "replace")))


@command("logcat")
def logcat(call: Invocation) -> int:
    """Show, follow or clear the log."""
    options = read_options(
        call, "cdgSLDsIC", "bvtTefmGrnPpu",
        long={"buffer": "b", "format": "v", "clear": "c", "dividers": "D", "pid": "P", "uid": "u", "regex": "e",
              "max-count": "m", "statistics": "S", "buffer-size": "G", "last": "L", "print": "I", "file": "f"},
        args=_prepared(call.args),
    )  # fmt: skip
    if not call.args and "ANDROID_LOG_TAGS" in call.env:
        options.args += call.env["ANDROID_LOG_TAGS"].split()
    query = _Query(dump="d" in options, dividers="D" in options)
    _choose_buffers(call, query, options.values.get("b", []))
    logs = call.system.logs
    if "c" in options:
        logs.clear(query.buffers)
        return 0
    if "g" in options or ("G" in options and not options.last("G")):
        for name in query.buffers:
            ring = logs.ring_bytes[name]
            used = logs.used_bytes(name)
            call.out.line(f"{name}: ring buffer is {ring >> 10} KiB ({used >> 10} KiB consumed, {used} B readable), "
                          "max entry is 5120 B, max payload is 4068 B")  # fmt: skip
        return 0
    if "G" in options:
        return _resize(call, query, options.last("G"))
    if "S" in options:
        call.out.line("size/num " + "  ".join(f"{name} {logs.used_bytes(name)}" for name in query.buffers))
        return 0
    if "L" in options:
        return 0
    for text in options.values.get("v", []):
        _choose_form(call, query, text)
    if "s" in options:
        query.filters["*"] = "S"
    for text in options.args:
        _add_filter(call, query, text)
    if "P" in options:
        if not options.last("P").isdigit():
            call.fail(f"pid '{options.last('P')}' out of range")
        query.pid = int(options.last("P"))
    if "u" in options:
        query.uids = {int(text) for text in options.last("u").split(",") if text.isdigit()}
    if "e" in options:
        try:
            query.expression = re.compile(options.last("e"))
        except re.error as exc:
            call.fail(f"bad regex '{options.last('e')}': {exc}")
    if "m" in options:
        query.most = int(options.last("m"))
    for letter in "tT":
        if letter in options:
            _choose_start(call, query, options.last(letter))
            query.dump = query.dump or letter == "t"
    return _show(call, query)


def _prepared(args: Sequence[str]) -> list[str]:
    """Long options may have their value in the next argument; ``-b main,system`` stays as it is."""
    return [arg.replace("--pid=", "-P", 1) if arg.startswith("--pid=") else arg for arg in args]


def _choose_buffers(call: Invocation, query: _Query, names: Sequence[str]) -> None:
    for name in ",".join(names).split(",") if names else _DEFAULT_BUFFERS:
        match name.strip():
            case "all":
                query.buffers += _ALL_BUFFERS
            case "default":
                query.buffers += _DEFAULT_BUFFERS
            case known if known in BUFFERS:
                query.buffers.append(known)
            case unknown:
                call.fail(f"Unknown -b buffer '{unknown}'" if unknown else '-b "" is no buffer')
    query.buffers = list(dict.fromkeys(query.buffers))


def _resize(call: Invocation, query: _Query, text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text, re.IGNORECASE)
    if match is None:
        call.fail(f"-G '{text}' invalid")
    size = int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2).upper()]
    if not 64 << 10 <= size <= 256 << 20:
        call.fail(f"-G '{text}' invalid")
    for name in query.buffers:
        call.system.logs.ring_bytes[name] = size
    return 0


def _choose_form(call: Invocation, query: _Query, text: str) -> None:
    for word in text.replace(",", " ").split():
        if word in _FORMATS:
            query.form = word
        elif word in _MODIFIERS:
            query.modifiers.add(word)
        else:
            call.fail(f"Invalid parameter '{word}' to -v")


def _add_filter(call: Invocation, query: _Query, text: str) -> None:
    for item in text.split():
        tag, colon, priority = item.rpartition(":") if ":" in item else (item, "", "")
        letter = (priority[:1].upper() or ("D" if tag == "*" else "V")) if colon or tag else ""
        letter = "V" if letter == "*" else letter
        if not tag or letter not in _ORDER:
            call.fail(f"Invalid filter expression '{item}'")
        query.filters[tag] = letter


def _choose_start(call: Invocation, query: _Query, text: str) -> None:
    """Read a count or a time: ``MM-DD hh:mm:ss.mmm``, ``YYYY-MM-DD hh:mm:ss.mmm`` or seconds since the epoch."""
    if re.fullmatch(r"\d+", text):
        query.tail = int(text)
        if query.tail == 0:
            query.tail = 1
        return
    if re.fullmatch(r"\d+\.\d+", text):
        query.since_s = float(text)
        query.since_uptime = query.since_s < 300_000_000 and "monotonic" in query.modifiers
        return
    year = local_time(call.system.time.wall_s()).year
    moment = parse_time(text if re.match(r"\d{4}-", text) else f"{year}-{text}")
    if moment is None:
        call.fail(f'-T "{text}" not in time format')
    query.since_s = moment


def _show(call: Invocation, query: _Query) -> int:
    logs = call.system.logs
    entries = logs.entries(query.buffers)
    last = max((entry.number for entry in entries), default=logs.last_number())
    shown = [entry for entry in entries if query.shows(entry)]
    if query.tail is not None:
        shown = [entry for entry in entries[-query.tail :] if query.shows(entry)]
    begun: set[str] = set()
    current = ""
    count = 0

    def write(batch: Sequence[LogEntry]) -> bool:
        nonlocal current, count
        for entry in batch:
            if entry.buffer not in begun or (query.dividers and entry.buffer != current):
                word = "switch to" if entry.buffer in begun else "beginning of"
                call.out.line(f"--------- {word} {entry.buffer}")
                begun.add(entry.buffer)
            current = entry.buffer
            call.out.write(formatted(entry, query.form, query.modifiers))
            count += 1
            if query.most is not None and count >= query.most:
                return False
        return True

    if not write(shown) or query.dump:
        return 0
    call.process.add_waker(logs.wake)
    try:
        while True:
            call.out.flush()
            fresh = logs.wait(query.buffers, last, call.process.killed.is_set)
            call.check_alive()
            last = max([last, *(entry.number for entry in fresh)])
            if not write([entry for entry in fresh if query.shows(entry)]):
                return 0
    finally:
        call.process.remove_waker(logs.wake)


def formatted(entry: LogEntry, form: str, modifiers: set[str]) -> bytes:
    """Return a message as logcat prints it: each of its lines with the same header."""
    moment = _moment(entry, modifiers)
    user = ""
    if "uid" in modifiers:
        name = user_name(entry.uid)
        user = f"{name:>5}:" if len(name) <= 5 else f"{entry.uid:>5}:"
    letter, tag, pid, tid = entry.priority, entry.tag, entry.pid, entry.tid
    suffix = ""
    match form:
        case "brief":
            prefix = f"{letter}/{tag:<8}({user}{pid:>5}): "
        case "process":
            prefix, suffix = f"{letter}({user}{pid:>5}) ", f"  ({tag})"
        case "tag":
            prefix = f"{letter}/{tag:<8}: "
        case "thread":
            prefix = f"{letter}({user}{pid:>5}:{tid:>5}) "
        case "raw":
            prefix = ""
        case "time":
            prefix = f"{moment} {letter}/{tag:<8}({user}{pid:>5}): "
        case "long":
            head = f"[ {moment} {user}{pid:>5}:{tid:>5} {letter}/{tag:<8} ]\n"
            return encoded(head) + _printable(entry.message, modifiers) + b"\n\n"
        case _:
            prefix = f"{moment} {user.replace(':', ' ')}{pid:>5} {tid:>5} {letter} {tag:<8}: "
    message = _printable(entry.message, modifiers)
    lines = message.removesuffix(b"\n").split(b"\n")
    start, end = encoded(prefix), encoded(suffix + "\n")
    return b"".join(start + line + end for line in lines)


def _moment(entry: LogEntry, modifiers: set[str]) -> str:
    value = entry.uptime_s if "monotonic" in modifiers else entry.wall_s
    whole = int(value // 1)
    fraction = value - whole
    digits = 9 if "nsec" in modifiers else 6 if "usec" in modifiers else 3
    text = f"{int(fraction * 10**digits):0{digits}d}"
    if "epoch" in modifiers:
        return f"{whole:>19}.{text}"
    if "monotonic" in modifiers:
        return f"{whole:>6}.{text}"
    zone = " +0000" if {"zone", "UTC"} & modifiers else ""
    return formatted_time("%Y-%m-%d %H:%M:%S" if "year" in modifiers else "%m-%d %H:%M:%S", whole) + f".{text}{zone}"


def _printable(message: bytes, modifiers: set[str]) -> bytes:
    r"""With ``-v printable`` bytes that are no text are shown as ``\xNN``."""
    if "printable" not in modifiers:
        return message
    out: list[str] = []
    for char in message.decode("utf-8", "surrogateescape"):
        if char == "\n" or char.isprintable():
            out.append(char)
        elif char == "\t":
            out.append("\\t")
        elif "\udc80" <= char <= "\udcff":
            out.append(f"\\x{ord(char) - 0xDC00:02X}")
        else:
            out.append(f"\\x{ord(char):02X}")
    return "".join(out).encode("utf-8", "surrogateescape")


_PRIORITY_WORDS: Final[Mapping[str, str]] = {"v": "V", "d": "D", "i": "I", "w": "W", "e": "E", "f": "F", "s": "S"}


@command("log")
def log(call: Invocation) -> int:
    """Write a line into the main buffer."""
    options = read_options(call, "", "pt", stop_early=True)
    letter = _PRIORITY_WORDS.get(options.last("p", "i")[:1].lower())
    if letter is None or letter == "S":
        call.fail(f"bad -p '{options.last('p')}'")
    text = " ".join(options.args) if options.args else call.stdin.read(-1).decode("utf-8", "surrogateescape")
    call.system.logs.log(cast(LogPriority, letter), options.last("t", "log"), text, pid=call.process.pid, uid=call.uid)
    return 0
