"""Processes: ps, pidof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.options import read_options
from benchfarm_lab.commands.registry import command
from benchfarm_lab.processes import Process, user_name

_Field = tuple[str, int, Callable[[Process], str]]


def _arguments(process: Process) -> str:
    return " ".join(process.argv)


#: What ps can show: heading, width (negative: to the left), value.
_FIELDS: Final[Mapping[str, _Field]] = {
    "USER": ("USER", -12, lambda p: user_name(p.uid)), "PID": ("PID", 5, lambda p: str(p.pid)),
    "PPID": ("PPID", 5, lambda p: str(p.ppid)), "PGID": ("PGID", 5, lambda p: str(p.pgid)),
    "VSZ": ("VSZ", 7, lambda p: str(p.rss_bytes // 256)), "RSS": ("RSS", 6, lambda p: str(p.rss_bytes // 1024)),
    "WCHAN": ("WCHAN", -10, lambda p: "0"), "ADDR": ("ADDR", 10, lambda p: "0"), "S": ("S", 1, lambda p: p.state),
    "NAME": ("NAME", -27, lambda p: p.name if p.group == "shell" else p.argv[0]), "ARGS": ("ARGS", -27, _arguments),
}  # fmt: skip
_USUAL: Final = ("USER", "PID", "PPID", "VSZ", "RSS", "WCHAN", "ADDR", "S", "NAME")


@command("ps")
def ps(call: Invocation) -> int:
    """List processes: the user's, or all (-A); -o chooses fields."""
    options = read_options(call, "A", "o")
    rows = [row for row in call.system.processes.rows() if "A" in options or row.uid == call.uid]
    names = ",".join(options.values["o"]).split(",") if "o" in options else _USUAL
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        call.fail(f"bad -o {unknown[0]}")
    _table(call, [_FIELDS[name] for name in names], rows)
    return 0


def _table(call: Invocation, fields: Sequence[_Field], rows: Sequence[Process]) -> None:
    cells = [[value(row) for _, _, value in fields] for row in rows]
    for line in [[head for head, _, _ in fields], *cells]:
        text = " ".join(
            (cell.ljust(-width) if width < 0 else cell.rjust(width))
            for cell, (_, width, _) in zip(line, fields, strict=True)
        )
        call.out.line(text.rstrip())


@command("pidof")
def pidof(call: Invocation) -> int:
    """Print the pids of programs, newest first."""
    pids = [row.pid for row in call.system.processes.rows()
            if any(name in {row.name, row.argv[0]} for name in call.args) and not row.done.is_set()]  # fmt: skip
    if pids:
        call.out.line(" ".join(map(str, pids[::-1])))
    return 0 if pids else 1
