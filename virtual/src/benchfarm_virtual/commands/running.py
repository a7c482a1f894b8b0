"""Commands that run other commands: sh, setsid, taskset, su, run-as; and renice."""

from __future__ import annotations

import re

from benchfarm_virtual.commands.invocation import MAX_SCRIPT_BYTES, Invocation, decoded
from benchfarm_virtual.commands.options import need_args, read_options
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.processes import user_id

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
    if not call.system.build.rooted and call.uid != 0:
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
    package = call.system.packages.get(args[0])
    if package is None:
        call.fail(f"unknown package: {args[0]}")
    if not package.info.debuggable:
        call.fail(f"package not debuggable: {args[0]}")
    call.process.uid = package.uid
    environment = dict(call.env) | {"HOME": package.data_path, "USER": f"u0_a{package.uid - 10000}"}
    return call.become(args[1:] or ["/system/bin/sh"], env=environment, cwd=package.data_path)
