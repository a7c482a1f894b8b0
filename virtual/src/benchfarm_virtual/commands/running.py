"""Commands about processes, who runs them and the system: ps, taskset, su, id, getprop, date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchfarm_virtual.commands.file_commands import local_time
from benchfarm_virtual.commands.invocation import (
    Invocation,
    command,
    read_options,
)
from benchfarm_virtual.contract import PhoneFileError, decoded
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.processes import Process, user_name


@command("sh")
def sh(call: Invocation) -> int:
    """Run a script: ``sh -c text name args`` or ``sh file args``."""
    from benchfarm_virtual.shell.interpreter import Shell

    args = list(call.args)
    name = call.launch.argv[0]
    call.process.is_shell = True
    is_text = args[:1] == ["-c"]
    if is_text:
        script = args[1]
        name, *args = args[2:] or [name]
    elif not args or args[0].startswith("-"):
        call.fail("a virtual phone's shell runs sh -c TEXT and sh FILE only")
    else:
        name = args.pop(0)
        try:
            script = decoded(call.system.files.open_read(call.path(name)).read())
        except PhoneFileError as exc:
            call.error(f"{call.launch.argv[0]}: can't open {name}: {exc}")
            return 127
    shell = Shell(call.launch, name=name, positional=args)
    try:
        return shell.run_as_subshell(
            lambda: shell.run(script) if is_text else shell.run_text(script)
        )
    finally:
        shell.close()


@command("setsid")
def setsid(call: Invocation) -> int:
    """Run a command in a session of its own."""
    call.process.pgid = call.process.pid
    return call.become(call.args)


@command("taskset")
def taskset(call: Invocation) -> int | None:
    """Show or set on which cores a process may run; masks are hexadecimal."""
    options = read_options(call, "p", stop_early=True)
    *mask, last = options.args
    if "p" not in options:
        call.process.affinity = _mask(call, mask[0])
        return call.become(options.args[1:])
    process = call.system.processes.named(last)
    if process is None:
        call.fail(f"failed to get pid {last}'s affinity: No such process")
    call.out.line(f"pid {process.pid}'s current affinity mask: {process.affinity:x}")
    if mask:
        process.affinity = _mask(call, mask[0])
        call.out.line(f"pid {process.pid}'s new affinity mask: {process.affinity:x}")
    return None


def _mask(call: Invocation, text: str) -> int:
    mask = int(text, 16) & call.system.processes.all_cpus
    if mask == 0:
        call.fail(f"failed to set pid {call.process.pid}'s affinity: Invalid argument")
    return mask


@command("renice")
def renice(call: Invocation) -> None:
    """Change a process's priority."""
    options = read_options(call, "p", "n")
    call.need(options.args)
    for name in options.args:
        process = call.system.processes.named(name)
        if process is None:
            call.fail(f"setpriority {name}: No such process")
        process.nice = min(19, process.nice + int(options.last("n", "0")))


@command("su", on=lambda system: system.rooted)
def su(call: Invocation) -> int:
    """Become root."""
    args = list(call.args)
    if args[:1] in (["0"], ["root"]):
        args.pop(0)
    call.process.uid = 0
    if args[:1] == ["-c"]:
        return call.become(["/system/bin/sh", "-c", " ".join(args[1:])])
    if not args or args[0].startswith("-"):
        call.fail("a virtual phone runs su [0] COMMAND and su -c TEXT only")
    return call.become(args)


@command("run-as")
def run_as(call: Invocation) -> int:
    """Become the user of a debuggable app, in its own folder."""
    name, *command = call.args
    if (refused := call.system.faults.active(FaultKind.RUN_AS_REFUSED)) is not None:
        call.fail(refused.text("text"))
    package = call.system.packages.get(name)
    if package is None:
        call.fail(f"unknown package: {name}")
    if not package.info.debuggable:
        call.fail(f"package not debuggable: {name}")
    call.process.uid = package.uid
    environment = dict(call.env) | {"HOME": package.data_path, "USER": user_name(package.uid)}
    return call.become(command, env=environment, cwd=package.data_path)


@command("id")
def id_(call: Invocation) -> None:
    """Print the user's number: ``id -u``."""
    if "u" not in read_options(call, "u"):
        call.fail("a virtual phone knows id -u only")
    call.out.line(call.uid)


@command("getprop")
def getprop(call: Invocation) -> int:
    """Print a property, or all of them."""
    if call.system.faults.take(FaultKind.PROPERTIES_DENIED) is not None:
        call.out.line("Permission denied")
        return 1
    if call.args:
        key, default = (*call.args[:2], "")[:2]
        call.out.line(call.system.props.get(key) or default)
        return 0
    for key, value in sorted(call.system.props.items()):
        call.out.line(f"[{key}]: [{value}]")
    return 0


@command("setprop")
def setprop(call: Invocation) -> None:
    """Set a property; read-only ones are refused."""
    key, value = call.args
    if key.startswith("ro."):
        call.fail(f"Failed to set property '{key}' to '{value}'.\nSee dmesg for error reason.")
    call.system.props[key] = value


@command("sleep")
def sleep(call: Invocation) -> None:
    """Wait for an interval of phone time."""
    call.sleep(float(call.args[0]))


@command("date")
def date(call: Invocation) -> None:
    """Print the time (UTC) by a format: ``+FORMAT``."""
    (form,) = call.args or ("",)
    if not form.startswith("+"):
        call.fail("a virtual phone knows date +FORMAT only")
    call.out.line(local_time(call.system.time.wall_s()).strftime(form[1:]))


#: What ps can show: its form, and its value.
_FIELDS: Final[Mapping[str, tuple[str, Callable[[Process], object]]]] = {
    "USER": ("{:<12}", lambda process: user_name(process.uid)),
    "PID": ("{:>5}", lambda process: process.pid),
    "PPID": ("{:>5}", lambda process: process.ppid),
    "PGID": ("{:>5}", lambda process: process.pgid),
    "ARGS": ("{:<27}", lambda process: " ".join(process.argv)),
}


@command("ps")
def ps(call: Invocation) -> None:
    """List all processes (-A); -o chooses fields."""
    names = read_options(call, "A", "o").last("o").split(",")
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        call.fail(f"bad -o {unknown[0]}: a virtual phone knows {', '.join(_FIELDS)}")
    form = " ".join(_FIELDS[name][0] for name in names)
    call.out.line(form.format(*names).rstrip())
    for row in call.system.processes.rows():
        call.out.line(form.format(*(_FIELDS[name][1](row) for name in names)).rstrip())


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
