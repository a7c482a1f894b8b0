"""Commands about processes, who runs them and the system: ps, taskset, su, id, getprop, date."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_virtual.commands.file_commands import local_time
from benchfarm_virtual.commands.invocation import (
    MAX_SCRIPT_BYTES,
    Invocation,
    command,
    decoded,
    need_args,
    read_options,
)
from benchfarm_virtual.contract import SHELL_UID, PhoneFileError
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.processes import Process, user_id, user_name

_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(call: Invocation, text: str) -> float:
    """Return a span of time (``1.5``, ``2m``) in seconds."""
    match = _SPAN.fullmatch(text)
    if match is None:
        if text and re.match(r"[\d.]", text):
            call.fail(f"Unknown suffix '{text[-1]}'")
        call.fail(f"Not a number '{text}'")
    return float(match.group(1)) * _UNITS[match.group(2)]


@command("sh")
def sh(call: Invocation) -> int:
    """Run a script: ``sh -c text name args`` or ``sh file args``."""
    from benchfarm_virtual.shell.interpreter import Shell

    args = list(call.args)
    name = call.launch.argv[0]
    call.process.is_shell = True
    if args[:1] == ["-c"]:
        if len(args) < 2:
            call.fail("-c: requires argument")
        script = args[1]
        name, *args = args[2:] or [name]
    elif not args or args[0].startswith("-"):
        call.fail("a virtual phone's shell runs sh -c TEXT and sh FILE only")
    else:
        name = args.pop(0)
        try:
            script = decoded(
                call.system.files.open_read(call.path(name), uid=call.uid).read(MAX_SCRIPT_BYTES)
            )
        except PhoneFileError as exc:
            call.error(f"{call.launch.argv[0]}: can't open {name}: {exc}")
            return 127
    shell = Shell.from_launch(call.launch, name=name, positional=args)
    try:
        return shell.run(script, exec_last=True)
    finally:
        shell.close()


@command("setsid")
def setsid(call: Invocation) -> int:
    """Run a command in a session of its own."""
    options = read_options(call, "cdw", stop_early=True)
    need_args(call, options, 1)
    call.process.pgid = call.process.pid
    return call.become(options.args)


@command("taskset")
def taskset(call: Invocation) -> int:
    """Show or set on which cores a process may run; masks are hexadecimal."""
    options = read_options(call, "ap", stop_early=True)
    rest = options.args
    every = call.system.processes.all_cpus
    if "p" in options.flags:
        process = call.system.processes.find(int(rest[-1])) if rest and rest[-1].isdigit() else None
        if process is None:
            call.fail(f"failed to get pid {rest[-1] if rest else ''}'s affinity: No such process")
        call.out.line(f"pid {process.pid}'s current affinity mask: {process.affinity:x}")
        if len(rest) > 1:
            process.affinity = _mask(call, rest[0], every)
            call.out.line(f"pid {process.pid}'s new affinity mask: {process.affinity:x}")
        return 0
    if len(rest) < 2:
        call.fail('Needs 2 arguments (see "taskset --help")')
    call.process.affinity = _mask(call, rest[0], every)
    return call.become(rest[1:])


def _mask(call: Invocation, text: str, every: int) -> int:
    try:
        mask = int(text, 16)
    except ValueError:
        call.fail(f"bad mask '{text}'")
    if mask & every == 0:
        call.fail(f"failed to set pid {call.process.pid}'s affinity: Invalid argument")
    return mask & every


@command("renice")
def renice(call: Invocation) -> int:
    """Change a process's priority."""
    options = read_options(call, "pgu", "n")
    need_args(call, options, 1)
    if "n" not in options:
        call.fail('Needs -n (see "renice --help")')
    for name in options.args:
        process = call.system.processes.find(int(name)) if name.isdigit() else None
        if process is None:
            call.fail(f"setpriority {name}: No such process")
        by = int(options.last("n", "0"))
        if call.uid != 0 and (by < 0 or process.uid != call.uid):
            call.fail(f"setpriority {name}: Permission denied")
        process.nice = max(-20, min(19, process.nice + by))
    return 0


@command("su")
def su(call: Invocation) -> int:
    """Become root, on a rooted phone."""
    if not call.system.rooted and call.uid != 0:
        call.error("/system/bin/sh: su: inaccessible or not found")
        return 127
    args = list(call.args)
    uid = 0
    if args and not args[0].startswith("-"):
        found = user_id(args.pop(0))
        if found is None:
            call.fail("bad user")
        uid = found
    call.process.uid = uid
    if args[:1] == ["-c"]:
        return call.become(["/system/bin/sh", "-c", " ".join(args[1:])])
    return call.become(args or ["/system/bin/sh"])


@command("run-as")
def run_as(call: Invocation) -> int:
    """Become the user of a debuggable app, in its own folder."""
    args = list(call.args)
    if not args:
        call.fail("usage: run-as <package-name> <command> [<args>]")
    if (refused := call.system.faults.active(FaultKind.RUN_AS_REFUSED)) is not None:
        call.fail(refused.text("text"))
    package = call.system.packages.get(args[0])
    if package is None:
        call.fail(f"unknown package: {args[0]}")
    if not package.info.debuggable:
        call.fail(f"package not debuggable: {args[0]}")
    call.process.uid = package.uid
    environment = dict(call.env) | {"HOME": package.data_path, "USER": f"u0_a{package.uid - 10000}"}
    return call.become(args[1:] or ["/system/bin/sh"], env=environment, cwd=package.data_path)


@command("id")
def id_(call: Invocation) -> int:
    """Say who the user is."""
    options = read_options(call, "u")
    name = user_name(call.uid)
    call.out.line(call.uid if "u" in options else f"uid={call.uid}({name}) gid={call.uid}({name})")
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


#: What ps can show: heading, width (negative: to the left), value.
_FIELDS: Final[Mapping[str, _Field]] = {
    "USER": ("USER", -12, lambda p: user_name(p.uid)),
    "PID": ("PID", 5, lambda p: str(p.pid)),
    "PPID": ("PPID", 5, lambda p: str(p.ppid)),
    "PGID": ("PGID", 5, lambda p: str(p.pgid)),
    "NAME": ("NAME", -27, lambda p: p.name if p.group == "shell" else p.argv[0]),
    "ARGS": ("ARGS", -27, lambda p: " ".join(p.argv)),
}


@command("ps")
def ps(call: Invocation) -> int:
    """List processes: the user's, or all (-A); -o chooses fields."""
    options = read_options(call, "A", "o")
    rows = [row for row in call.system.processes.rows() if "A" in options or row.uid == call.uid]
    if "o" not in options:
        call.fail("-o FIELDS is all that a virtual phone knows")
    names = ",".join(options.values["o"]).split(",")
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
