"""Processes: ps, pidof, pgrep, pkill, kill, killall, top, free, vmstat."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from benchfarm_lab.commands.clock import formatted_time
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import Options, need_args, read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.processes import SIGNAL_NUMBERS, Process, signal_number, user_id, user_name
from benchfarm_lab.trees.proc import memory_figures

_Field = tuple[str, int, Callable[[Process], str]]


def _elapsed(call: Invocation, process: Process) -> str:
    seconds = int(call.system.time.uptime_s() - process.started_s)
    hours, rest = divmod(seconds, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def _fields(call: Invocation) -> Mapping[str, _Field]:
    """Return what ps can show: heading, width (negative: to the left), value."""

    def arguments(process: Process) -> str:
        return " ".join(process.argv)

    return {
        "USER": ("USER", -12, lambda p: user_name(p.uid)), "UID": ("UID", 5, lambda p: str(p.uid)),
        "PID": ("PID", 5, lambda p: str(p.pid)), "PPID": ("PPID", 5, lambda p: str(p.ppid)),
        "PGID": ("PGID", 5, lambda p: str(p.pgid)),
        "TID": ("TID", 5, lambda p: str(p.pid)), "VSZ": ("VSZ", 7, lambda p: str(p.rss_bytes // 256)),
        "RSS": ("RSS", 6, lambda p: str(p.rss_bytes // 1024)), "WCHAN": ("WCHAN", -10, lambda p: "0"),
        "ADDR": ("ADDR", 10, lambda p: "0"), "S": ("S", 1, lambda p: p.state), "STAT": ("STAT", -4, lambda p: p.state),
        "NAME": ("NAME", -27, lambda p: p.name if p.group == "shell" else p.argv[0]),
        "COMM": ("COMM", -15, lambda p: p.name[:15]), "COMMAND": ("COMMAND", -27, arguments),
        "CMD": ("CMD", -15, lambda p: p.name[:27]), "CMDLINE": ("CMDLINE", -27, arguments),
        "ARGS": ("ARGS", -27, arguments), "NI": ("NI", 2, lambda p: str(p.nice)),
        "PRI": ("PRI", 3, lambda p: str(19 - p.nice)), "PSR": ("PSR", 3, lambda p: str(p.affinity.bit_length() - 1)),
        "PCY": ("PCY", -3, lambda p: "ta" if p.group == "top-app" else "fg"), "C": ("C", 1, lambda p: "0"),
        "%CPU": ("%CPU", 4, lambda p: "98.0" if p.context is not None else "0.0"),
        "ETIME": ("ELAPSED", 11, lambda p: _elapsed(call, p)), "TIME": ("TIME", 8, lambda p: "00:00:00"),
        "TTY": ("TTY", -8, lambda p: "?"), "LABEL": ("LABEL", -30, lambda p: "u:r:shell:s0"),
        "STIME": ("STIME", 5, lambda p: formatted_time(
            "%H:%M", call.system.time.wall_s() - call.system.time.uptime_s() + p.started_s)),
    }  # fmt: skip


@command("ps")
def ps(call: Invocation) -> int:
    """List processes: -A/-e all, -p pids, -o fields, -f full, -u user; a name as last argument filters."""
    options = read_options(call, "AadeflnwTZM", "optugGkOP")
    rows = list(call.system.processes.rows())
    if "p" in options:
        pids = set(re.split(r"[,\s]+", ",".join(options.values["p"])))
        rows = [row for row in rows if str(row.pid) in pids]
    elif "u" in options:
        wanted = {user_id(name) for name in options.last("u").split(",")}
        rows = [row for row in rows if row.uid in wanted]
    elif not {"A", "e"} & options.flags:
        rows = [row for row in rows if row.uid == call.uid]
    if options.args:
        rows = [row for row in rows if any(name in {row.name, row.argv[0], str(row.pid)} for name in options.args)]
    known = _fields(call)
    names = ["USER", "PID", "PPID", "VSZ", "RSS", "WCHAN", "ADDR", "S", "NAME"]
    if "f" in options:
        names = ["UID", "PID", "PPID", "C", "STIME", "TTY", "TIME", "CMDLINE"]
        known = {**known, "UID": ("UID", -12, known["USER"][2]), "CMDLINE": ("CMD", -27, known["CMDLINE"][2])}
    titles: list[str | None] = []
    if "o" in options:
        names, titles = _chosen(call, options, known)
    _table(call, [known[name] for name in names], titles, rows)
    return 0 if rows or "p" not in options else 1


def _chosen(call: Invocation, options: Options, known: Mapping[str, _Field]) -> tuple[list[str], list[str | None]]:
    names: list[str] = []
    titles: list[str | None] = []
    for text in options.values["o"]:
        for item in text.split(","):
            name, equals, title = item.strip().partition("=")
            if name.upper() not in known:
                call.fail(f"bad -o {name}")
            names.append(name.upper())
            titles.append(title if equals else None)
    return names, titles


def _table(call: Invocation, fields: Sequence[_Field], titles: Sequence[str | None], rows: Sequence[Process]) -> None:
    heads = [head if place >= len(titles) or titles[place] is None else titles[place] or ""
             for place, (head, _, _) in enumerate(fields)]  # fmt: skip
    cells = [[value(row) for _, _, value in fields] for row in rows]
    for line in [heads, *cells] if any(heads) else cells:
        text = " ".join(
            (cell.ljust(-width) if width < 0 else cell.rjust(width))
            for cell, (_, width, _) in zip(line, fields, strict=True)
        )
        call.out.line(text.rstrip() + (" " if line is not heads and not fields[-1][1] else ""))


def _matching(call: Invocation, pattern: str, *, full: bool, exact: bool) -> list[Process]:
    try:
        expression = re.compile(pattern)
    except re.error as exc:
        call.fail(f"bad regex '{pattern}': {exc}")
    found = []
    for row in call.system.processes.rows():
        if row is call.process or row.pid == call.process.pid:
            continue
        text = " ".join(row.argv) if full else row.name if row.group == "shell" else row.argv[0]
        if expression.fullmatch(text) if exact else expression.search(text):
            found.append(row)
    return found


@command("pidof")
def pidof(call: Invocation) -> int:
    """Print the pids of programs, newest first."""
    options = read_options(call, "sx", "o")
    pids = [row.pid for row in call.system.processes.rows()
            if any(name in {row.name, row.argv[0]} for name in options.args) and not row.done.is_set()]  # fmt: skip
    pids = pids[:1] if "s" in options else pids[::-1]
    if pids:
        call.out.line(" ".join(map(str, pids)))
    return 0 if pids else 1


@command("pgrep", "pkill")
def pgrep(call: Invocation) -> int:
    """Find processes by a pattern, or signal them."""
    args = list(call.args)
    signal = 15
    if call.name == "pkill" and args and (number := signal_number(args[0][1:])) is not None and args[0][:1] == "-":
        signal = number
        args.pop(0)
    options = read_options(call, "cflnovxV", "dLsuUPgG" if call.name == "pgrep" else "LsuUPgG", args=args)
    found = []
    if call.name == "pkill" and "l" in options:
        call.fail("Unknown option 'l'")
    if options.args:
        found = _matching(call, options.args[0], full="f" in options, exact="x" in options)
    elif not options.values:
        call.fail("Needs 1 argument")
    else:
        found = [row for row in call.system.processes.rows() if row.pid != call.process.pid]
    if "u" in options:
        found = [row for row in found if row.uid in {user_id(name) for name in options.last("u").split(",")}]
    if "P" in options:
        found = [row for row in found if str(row.ppid) in options.last("P").split(",")]
    if "n" in options or "o" in options:
        found = sorted(found, key=lambda row: row.started_s)[-1 if "n" in options else 0 :][:1]
    if call.name == "pkill":
        return _signal_all(call, found, signal)
    if "c" in options:
        call.out.line(len(found))
    else:
        for row in found:
            call.out.line(
                f"{row.pid} {' '.join(row.argv) if 'f' in options else row.name}" if "l" in options else row.pid
            )
    return 0 if found else 1


def _signal_all(call: Invocation, processes: Sequence[Process], signal: int) -> int:
    sent = 0
    for process in processes:
        if call.uid not in {0, process.uid}:
            call.complain(f"kill {process.pid}: Operation not permitted")
            continue
        call.system.processes.kill(process, signal)
        sent += 1
    return 0 if sent else 1


@command("killall")
def killall(call: Invocation) -> int:
    """Signal processes by name."""
    args = list(call.args)
    signal = 15
    if args and args[0].startswith("-") and (number := signal_number(args[0][1:])) is not None:
        signal = number
        args.pop(0)
    options = read_options(call, "ilqvw", "s", args=args)
    need_args(call, options, 1)
    status = 0
    for name in options.args:
        found = [row for row in call.system.processes.rows() if name in {row.name, row.argv[0]}]
        if not found:
            if "q" not in options:
                call.complain(f"{name}: No such process")
            status = 1
        status = _signal_all(call, found, signal) or status
    return status


@command("kill")
def kill(call: Invocation) -> int:
    """Signal processes by pid (for callers that don't use the shell's own)."""
    args = list(call.args)
    if args[:1] == ["-l"]:
        call.out.line(" ".join(name for name in SIGNAL_NUMBERS if name != "EXIT"))
        return 0
    signal = 15
    if args[:1] == ["-s"] and len(args) > 1:
        args[:2] = [f"-{args[1]}"]
    if args and args[0].startswith("-"):
        number = signal_number(args.pop(0)[1:])
        if number is None:
            call.fail("bad signal")
        signal = number
    status = 0
    for name in args:
        process = call.system.processes.find(int(name)) if name.isdigit() else None
        if process is None:
            call.complain(f"bad pid '{name}'" if not name.isdigit() else f"{name}: No such process")
            status = 1
        else:
            status = _signal_all(call, [process], signal) or status
    return status


@command("top")
def top(call: Invocation) -> int:
    """List processes by load, in batches (-b -n N -d seconds)."""
    options = read_options(call, "bqHhS", "nmdokpsuO")
    rounds = int(options.last("n", "1")) if "n" in options else (1 if "b" in options else 0)
    pause_s = float(options.last("d", "3"))
    done = 0
    while True:
        _top_once(call, options)
        done += 1
        if rounds and done >= rounds:
            return 0
        call.out.flush()
        call.sleep(pause_s)


def _top_once(call: Invocation, options: Options) -> None:
    rows = sorted(call.system.processes.rows(), key=lambda row: (row.context is None, row.pid))
    rows = rows[: int(options.last("m", "30"))]
    total, free, _ = memory_figures(call.system)
    if "q" not in options:
        running = sum(row.context is not None for row in rows)
        call.out.line(
            f"Tasks: {len(rows)} total,   {running} running, {len(rows) - running} sleeping,   0 stopped,   0 zombie"
        )
        call.out.line(
            f"  Mem: {total >> 10:>8}K total, {(total - free) >> 10:>8}K used, {free >> 10:>8}K free,     5120K buffers"
        )
        call.out.line(" Swap: 2097152K total,   419430K used,  1677722K free,  1572864K cached")
        call.out.line("800%cpu   8%user   0%nice   5%sys 787%idle   0%iow   0%irq   0%sirq   0%host")
    call.out.line("  PID USER         PR  NI VIRT  RES  SHR S[%CPU] %MEM     TIME+ ARGS")
    for row in rows:
        share = "98.0" if row.context is not None else " 0.0"
        size = f"{row.rss_bytes >> 20}M"
        memory = f"{size:>4} {size:>4} {'2M':>4}"
        call.out.line(
            f"{row.pid:>5} {user_name(row.uid):<12} {20 + row.nice:>2} {row.nice:>3} {memory} {row.state} {share}  "
            f"{row.rss_bytes * 100 / total:>4.1f}   0:00.10 {' '.join(row.argv)}"
        )


_FREE_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@command("free")
def free(call: Invocation) -> int:
    """Say how much memory is free."""
    options = read_options(call, "bkmgth")
    total, unused, _ = memory_figures(call.system)
    unit = next((size for letter, size in _FREE_UNITS.items() if letter in options), 1)
    call.out.line(f"{'total':>23}{'used':>16}{'free':>16}{'shared':>16}{'buffers':>16}")
    figures = (total, total - unused, unused, 12 << 20, 5 << 20)
    call.out.line(
        "Mem: " + "".join(f"{value // unit:>{18 if place == 0 else 16}}" for place, value in enumerate(figures))
    )
    call.out.line(f"-/+ buffers/cache:{(total - unused - (5 << 20)) // unit:>21}{(unused + (5 << 20)) // unit:>16}")
    call.out.line(f"Swap:{(total // 2) // unit:>18}{(total // 6) // unit:>16}{(total // 3) // unit:>16}")
    return 0
