"""Who, what and when: id, getprop, setprop, reboot, sleep, date, ps, pidof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.listing import local_time
from benchfarm_virtual.commands.options import need_args, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.commands.running import seconds
from benchfarm_virtual.contract import SHELL_UID
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.processes import Process, user_name

_SHELL_GROUPS = (
    "1004(input),1007(log),1011(adb),1015(sdcard_rw),1028(sdcard_r),3001(net_bt_admin),3002(net_bt),3003(inet),"
    "3006(net_bw_stats),3009(readproc),3011(uhid)"
)


@command("id")
def id_(call: Invocation) -> int:
    """Say who the user is."""
    options = read_options(call, "u")
    uid, name = call.uid, user_name(call.uid)
    if "u" in options:
        call.out.line(uid)
        return 0
    context = (
        "u:r:su:s0"
        if uid == 0
        else "u:r:shell:s0"
        if uid == SHELL_UID
        else "u:r:runas_app:s0:c123,c256,c512,c768"
    )
    groups = f"{uid}({name})" + (f",{_SHELL_GROUPS}" if uid == SHELL_UID else "")
    call.out.line(f"uid={uid}({name}) gid={uid}({name}) groups={groups} context={context}")
    return 0


@command("getprop")
def getprop(call: Invocation) -> int:
    """Print a property, or all of them."""
    if call.system.faults.take(FaultKind.PROPERTIES_DENIED) is not None:
        call.out.line("Permission denied")
        return 1
    if call.args:
        call.out.line(
            call.system.props.get(call.args[0], "") or (call.args[1] if len(call.args) > 1 else "")
        )
        return 0
    for key, value in call.system.props.items():
        call.out.line(f"[{key}]: [{value}]")
    return 0


@command("setprop")
def setprop(call: Invocation) -> int:
    """Set a property."""
    options = read_options(call, "")
    need_args(call, options, 2)
    key, value = options.args[:2]
    if key == "sys.powerctl":
        call.system.on_reboot(value.partition(",")[2])
        return 0
    fault = call.system.props.set_as(call.uid, key, value)
    if fault:
        call.error(fault)
        return 1
    return 0


@command("reboot")
def reboot(call: Invocation) -> int:
    """Restart the phone."""
    if call.uid not in {0, SHELL_UID}:
        call.fail("Operation not permitted")
    call.system.on_reboot(call.args[0] if call.args else "")
    return 0


@command("sleep")
def sleep(call: Invocation) -> int:
    """Wait for phone time to pass."""
    options = read_options(call, "")
    need_args(call, options, 1)
    call.sleep(sum(seconds(call, text) for text in options.args))
    return 0


@command("date")
def date(call: Invocation) -> int:
    """Print the time (UTC); ``+format``."""
    options = read_options(call, "u")
    form = next((arg[1:] for arg in options.args if arg.startswith("+")), "%a %b %e %H:%M:%S %Z %Y")
    if any(not arg.startswith("+") for arg in options.args):
        call.fail("cannot set date: Operation not permitted" if call.uid else "bad date")
    call.out.line(local_time(call.system.time.wall_s()).strftime(form))
    return 0


_Field = tuple[str, int, Callable[[Process], str]]


def _arguments(process: Process) -> str:
    return " ".join(process.argv)


#: What ps can show: heading, width (negative: to the left), value.
_FIELDS: Final[Mapping[str, _Field]] = {
    "USER": ("USER", -12, lambda p: user_name(p.uid)),
    "PID": ("PID", 5, lambda p: str(p.pid)),
    "PPID": ("PPID", 5, lambda p: str(p.ppid)),
    "PGID": ("PGID", 5, lambda p: str(p.pgid)),
    "VSZ": ("VSZ", 7, lambda p: str(p.rss_bytes // 256)),
    "RSS": ("RSS", 6, lambda p: str(p.rss_bytes // 1024)),
    "WCHAN": ("WCHAN", -10, lambda p: "0"),
    "ADDR": ("ADDR", 10, lambda p: "0"),
    "S": ("S", 1, lambda p: p.state),
    "NAME": ("NAME", -27, lambda p: p.name if p.group == "shell" else p.argv[0]),
    "ARGS": ("ARGS", -27, _arguments),
}
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
    pids = [
        row.pid
        for row in call.system.processes.rows()
        if any(name in {row.name, row.argv[0]} for name in call.args) and not row.done.is_set()
    ]
    if pids:
        call.out.line(" ".join(map(str, pids[::-1])))
    return 0 if pids else 1
