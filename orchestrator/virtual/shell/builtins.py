"""What the shell does itself: variables, flow, traps, jobs, ``echo``, ``test`` and so on."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.virtual.contract import PhoneFileError, StreamClosedError
from orchestrator.virtual.launching import DEFAULT_PATH, find_program
from orchestrator.virtual.pipes import NullHandle
from orchestrator.virtual.processes import SIGNAL_NUMBERS, SIGNAL_WORDS, Process, signal_number
from orchestrator.virtual.shell.conditions import ConditionFaultError, holds
from orchestrator.virtual.shell.interpreter import (
    OPTION_LETTERS,
    ExitError,
    LeaveLoopError,
    ReturnError,
    Shell,
    quoted,
)
from orchestrator.virtual.shell.printing import PrintfFaultError, echoed, printed

_MAX_SOURCE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Builtin:
    """A builtin; assignments before a special one stay."""

    body: Callable[[Shell, Sequence[str]], int]
    special: bool = False

    def run(self, shell: Shell, arguments: Sequence[str]) -> int:
        """Run it; a stream that nobody reads any more ends it as SIGPIPE would."""
        try:
            return self.body(shell, arguments[1:])
        except StreamClosedError:
            return 128 + 13
        except PhoneFileError as exc:
            shell.complain(f"{arguments[0]}: {exc}")
            return 1


def _echo(shell: Shell, args: Sequence[str]) -> int:
    shell.write(1, echoed(args))
    return 0


def _printf(shell: Shell, args: Sequence[str]) -> int:
    if args[:1] == ["--"]:
        args = args[1:]
    if not args:
        shell.complain("printf: not enough arguments")
        return 1
    try:
        shell.write(1, printed(args[0], args[1:]))
    except PrintfFaultError as exc:
        shell.write(1, exc.printed)
        shell.complain(f"printf: {exc}")
        return 1
    return 0


def _test(shell: Shell, args: Sequence[str]) -> int:
    try:
        return 0 if holds(shell, args) else 1
    except ConditionFaultError as exc:
        shell.complain(f"test: {exc}")
        return 2


def _bracket(shell: Shell, args: Sequence[str]) -> int:
    if not args or args[-1] != "]":
        shell.complain("[: missing ]")
        return 2
    return _test(shell, args[:-1])


def _cd(shell: Shell, args: Sequence[str]) -> int:
    target = next((arg for arg in args if arg not in {"-P", "-L", "--"}), None)
    if target is None:
        target = shell.lookup("HOME") or ""
    if target == "-":
        target = shell.lookup("OLDPWD") or ""
        shell.write(1, f"{target}\n".encode("utf-8", "surrogateescape"))
    try:
        where = shell.files.real_path(shell.absolute(target or "."), uid=shell.uid)
        found = shell.files.stat(where, uid=shell.uid)
    except PhoneFileError as exc:
        shell.complain(f"cd: {target}: {exc}")
        return 2
    if not stat.S_ISDIR(found.mode):
        shell.complain(f"cd: {target}: Not a directory")
        return 2
    if not shell.files.may(where, 1, uid=shell.uid):
        shell.complain(f"cd: {target}: Permission denied")
        return 2
    shell.assign("OLDPWD", shell.cwd)
    shell.cwd = where
    shell.assign("PWD", where)
    return 0


def _pwd(shell: Shell, args: Sequence[str]) -> int:
    shell.write(1, f"{shell.cwd}\n".encode("utf-8", "surrogateescape"))
    return 0


def _export(shell: Shell, args: Sequence[str]) -> int:
    names = [arg for arg in args if not arg.startswith("-")]
    if not names:
        for name, value in shell.variables.environment().items():
            shell.write(1, f"export {name}={quoted(value)}\n".encode("utf-8", "surrogateescape"))
    for arg in names:
        name, equals, value = arg.partition("=")
        if not name.isidentifier():
            shell.complain(f"export: {name}: is not an identifier")
            return 1
        if equals:
            shell.assign(name, value)
        shell.variables.exported.add(name)
    return 0


def _readonly(shell: Shell, args: Sequence[str]) -> int:
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals:
            shell.assign(name, value)
        shell.variables.constant.add(name)
    return 0


def _local(shell: Shell, args: Sequence[str]) -> int:
    for arg in args:
        if arg.startswith("-"):
            continue
        name, equals, value = arg.partition("=")
        if shell.locals and name not in shell.locals[-1]:
            shell.locals[-1][name] = shell.variables.values.get(name)
        if equals or shell.locals:
            shell.assign(name, value)
    return 0


def _unset(shell: Shell, args: Sequence[str]) -> int:
    functions = args[:1] == ["-f"]
    for name in args:
        if name in {"-f", "-v"}:
            continue
        if functions:
            shell.functions.pop(name, None)
        elif name in shell.variables.constant:
            shell.complain(f"unset: {name} is read only")
            return 1
        else:
            shell.variables.values.pop(name, None)
            shell.variables.exported.discard(name)
    return 0


def _set(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        for name in sorted(shell.variables.values):
            shell.write(1, f"{name}={quoted(shell.variables.values[name])}\n".encode("utf-8", "surrogateescape"))
        return 0
    todo = list(args)
    while todo and todo[0][:1] in {"-", "+"} and len(todo[0]) > 1:
        arg = todo.pop(0)
        if arg == "--":
            break
        on = arg[0] == "-"
        for letter in arg[1:]:
            name = todo.pop(0) if letter == "o" and todo else OPTION_LETTERS.get(letter, "")
            if not name:
                shell.complain(f"set: -{letter}: unknown option")
                return 1
            (shell.options.add if on else shell.options.discard)(name)
    else:
        if not todo:
            return 0
    shell.positional = todo
    return 0


def _shift(shell: Shell, args: Sequence[str]) -> int:
    count = int(args[0]) if args and args[0].isdigit() else 1
    if count > len(shell.positional):
        shell.complain("shift: nothing to shift")
        return 1
    del shell.positional[:count]
    return 0


def _read(shell: Shell, args: Sequence[str]) -> int:
    raw, names, descriptor = False, [], 0
    todo = list(args)
    while todo:
        arg = todo.pop(0)
        if arg == "--":
            names += todo
            break
        if arg.startswith("-u") and len(arg) > 2:
            descriptor = int(arg[2:]) if arg[2:].isdigit() else 0
        elif arg in {"-p", "-t", "-n", "-d"} and todo:
            todo.pop(0)
        elif arg.startswith("-"):
            raw = raw or "r" in arg
        else:
            names.append(arg)
    handle = shell.fds.get(descriptor) or NullHandle()
    line = handle.read_line(shell.process)
    complete = line.endswith(b"\n")
    while not raw and line.endswith(b"\\\n"):
        following = handle.read_line(shell.process)
        line = line[:-2] + following
        complete = following.endswith(b"\n")
    text = line.removesuffix(b"\n").replace(b"\0", b"").decode("utf-8", "surrogateescape")
    for name, value in zip(names or ["REPLY"], _split_line(shell, text, len(names) or 1, raw=raw), strict=True):
        shell.assign(name, value)
    return 0 if complete else 1


def _split_line(shell: Shell, text: str, count: int, *, raw: bool) -> list[str]:
    """Split a line at IFS into ``count`` values; the last one takes the rest."""
    separators = shell.lookup("IFS")
    separators = " \t\n" if separators is None else separators
    spaces = "".join(char for char in separators if char in " \t\n")
    marked: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and not raw:
            marked.append((text[at + 1 : at + 2], False))
            at += 2
        else:
            marked.append((text[at], text[at] in separators))
            at += 1
    at, end = 0, len(marked)
    while at < end and marked[at][1] and marked[at][0] in spaces:
        at += 1
    while end > at and marked[end - 1][1] and marked[end - 1][0] in spaces:
        end -= 1
    values: list[str] = []
    while len(values) < count - 1:
        start = at
        while at < end and not marked[at][1]:
            at += 1
        values.append("".join(char for char, _ in marked[start:at]))
        while at < end and marked[at][1] and marked[at][0] in spaces:
            at += 1
        if at < end and marked[at][1]:
            at += 1
            while at < end and marked[at][1] and marked[at][0] in spaces:
                at += 1
    rest = marked[at:end]
    if rest and rest[-1][1] and not any(separator for _, separator in rest[:-1]):
        rest = rest[:-1]  # one separator at the very end only ends the last field
    values.append("".join(char for char, _ in rest))
    return values


def _eval(shell: Shell, args: Sequence[str]) -> int:
    return shell.run_text(" ".join(args))


def _source(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        shell.complain(".: missing argument")
        return 1
    try:
        data = shell.files.open_read(shell.absolute(args[0]), uid=shell.uid).read(_MAX_SOURCE_BYTES)
    except PhoneFileError as exc:
        shell.complain(f".: {args[0]}: {exc}")
        return 1
    before = shell.positional
    if len(args) > 1:
        shell.positional = list(args[1:])
    try:
        return shell.run_text(data.decode("utf-8", "surrogateescape"))
    except ReturnError as exc:
        return exc.status
    finally:
        if len(args) > 1:
            shell.positional = before


def _status_argument(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        return shell.status
    try:
        return int(args[0]) & 0xFF
    except ValueError:
        return shell.calculator.value(args[0]) & 0xFF


def _exit(shell: Shell, args: Sequence[str]) -> int:
    raise ExitError(_status_argument(shell, args))


def _return(shell: Shell, args: Sequence[str]) -> int:
    raise ReturnError(_status_argument(shell, args))


def _leave(*, again: bool) -> Callable[[Shell, Sequence[str]], int]:
    def run(shell: Shell, args: Sequence[str]) -> int:
        raise LeaveLoopError(max(1, int(args[0])) if args and args[0].isdigit() else 1, again=again)

    return run


def _trap(shell: Shell, args: Sequence[str]) -> int:
    args = args[1:] if args[:1] == ["--"] else args
    if not args:
        names = {number: name for name, number in SIGNAL_NUMBERS.items()}
        for signal, script in sorted(shell.traps.items()):
            shell.write(1, f"trap -- {quoted(script)} {names.get(signal, signal)}\n".encode())
        return 0
    script, signals = (args[0], args[1:]) if signal_number(args[0]) is None or len(args) > 1 else ("-", args)
    for name in signals:
        signal = signal_number(name)
        if signal is None:
            shell.complain(f"trap: bad signal '{name}'")
            return 1
        shell.process.caught.discard(signal)
        shell.process.ignored.discard(signal)
        if script == "-":
            shell.traps.pop(signal, None)
            continue
        shell.traps[signal] = script
        if signal and script:
            shell.process.caught.add(signal)
        elif signal:
            shell.process.ignored.add(signal)
    return 0


def _find_job(shell: Shell, name: str) -> Process | None:
    if name.startswith("%"):
        place = name[1:]
        if place in {"", "%", "+"}:
            return shell.jobs[-1] if shell.jobs else None
        return shell.jobs[int(place) - 1] if place.isdigit() and 0 < int(place) <= len(shell.jobs) else None
    return next((job for job in shell.jobs if str(job.pid) == name), None)


def _wait(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        for job in list(shell.jobs):
            if not shell.wait_for(job):
                return _interrupted(shell)
        shell.jobs.clear()
        return 0
    status = 0
    for name in args:
        job = _find_job(shell, name)
        if job is None:
            shell.complain(f"wait: {name}: no such job" if name.startswith("%") else f"wait: {name}: no such process")
            status = 127
            continue
        if not shell.wait_for(job):
            return _interrupted(shell)
        status = job.status
    return status


def _interrupted(shell: Shell) -> int:
    signal = shell.process.pending[0] if shell.process.pending else 0
    shell.check_signals()
    return 128 + signal


def _kill(shell: Shell, args: Sequence[str]) -> int:
    todo, signal = list(args), 15
    if todo[:1] == ["-l"]:
        names = [name for name in SIGNAL_NUMBERS if name != "EXIT"]
        shell.write(1, (" ".join(names) + "\n").encode())
        return 0
    if todo and todo[0] == "-s" and len(todo) > 1:
        todo[:2] = [f"-{todo[1]}"]
    if todo and todo[0].startswith("-") and todo[0] != "--":
        number = signal_number(todo[0][1:])
        if number is None:
            shell.complain(f"kill: bad signal '{todo[0][1:]}'")
            return 1
        signal = number
        todo.pop(0)
    if todo[:1] == ["--"]:
        todo.pop(0)
    status = 0
    for name in todo:
        status = _kill_one(shell, name, signal) or status
    return status


def _kill_one(shell: Shell, name: str, signal: int) -> int:
    job = _find_job(shell, name) if name.startswith("%") else None
    digits = name.removeprefix("-")
    if job is None and not digits.isdigit():
        shell.complain(f"kill: {name}: arguments must be jobs or process IDs")
        return 1
    process = job or shell.system.processes.find(int(digits))
    if process is None or process.done.is_set():
        shell.complain(f"kill: {name}: No such process")
        return 1
    if shell.uid not in {0, process.uid}:
        shell.complain(f"kill: {name}: Operation not permitted")
        return 1
    shell.system.processes.kill(process, signal)
    shell.check_signals()
    return 0


def _jobs(shell: Shell, args: Sequence[str]) -> int:
    for place, job in enumerate(shell.jobs, 1):
        state = "Running" if not job.done.is_set() else SIGNAL_WORDS.get(job.signal, f"Done ({job.status})")
        shell.write(1, f"[{place}] {state:<20} {' '.join(job.argv)}\n".encode("utf-8", "surrogateescape"))
    return 0


def _command(shell: Shell, args: Sequence[str]) -> int:
    if args[:1] in (["-v"], ["-V"]):
        return _where(shell, args[1:], long=args[0] == "-V")
    args = args[1:] if args[:1] == ["-p"] else args
    if not args:
        return 0
    builtin = BUILTINS.get(args[0])
    return builtin.run(shell, args) if builtin is not None else shell.external(args, {})


def _type(shell: Shell, args: Sequence[str]) -> int:
    return _where(shell, args, long=True)


def _where(shell: Shell, names: Sequence[str], *, long: bool) -> int:
    status = 0
    for name in names:
        path = find_program(shell.system, name, path=shell.lookup("PATH") or DEFAULT_PATH, cwd=shell.cwd, uid=shell.uid)
        if name in shell.functions:
            text = f"{name} is a function" if long else name
        elif name in BUILTINS:
            text = f"{name} is a shell builtin" if long else name
        elif path is not None and shell.files.may(shell.absolute(path), 1, uid=shell.uid):
            text = f"{name} is {path}" if long else path
        else:
            if long:
                shell.write(1, f"{name} not found\n".encode("utf-8", "surrogateescape"))
            status = 1 if not long else 127
            continue
        shell.write(1, f"{text}\n".encode("utf-8", "surrogateescape"))
    return status


def _umask(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        shell.write(1, f"{shell.umask:04o}\n".encode())
        return 0
    try:
        shell.umask = int(args[0], 8) & 0o777
    except ValueError:
        shell.complain(f"umask: {args[0]}: bad number")
        return 1
    return 0


def _let(shell: Shell, args: Sequence[str]) -> int:
    value = 0
    for arg in args:
        value = shell.calculator.value(arg)
    return 0 if value else 1


def _getopts(shell: Shell, args: Sequence[str]) -> int:
    if len(args) < 2:
        shell.complain("getopts: missing name argument")
        return 2
    letters, name = args[0], args[1]
    words = list(args[2:]) or shell.positional
    place, _, offset = (shell.lookup("OPTIND") or "1").partition(".")
    at, inside = int(place or "1") - 1, int(offset or "1")
    if at >= len(words) or not words[at].startswith("-") or words[at] == "-" or words[at] == "--":
        if at < len(words) and words[at] == "--":
            at += 1
        shell.assign("OPTIND", str(at + 1))
        shell.assign(name, "?")
        return 1
    letter, rest = words[at][inside], words[at][inside + 1 :]
    found = letters.find(letter) if letter != ":" else -1
    takes = found >= 0 and letters[found + 1 : found + 2] == ":"
    if takes:
        value = rest or (words[at + 1] if at + 1 < len(words) else None)
        at += 1 if rest else 2
        shell.assign("OPTIND", str(at + 1))
        if value is None:
            shell.complain(f"-{letter}: requires argument")
            shell.assign(name, "?")
            return 0
        shell.assign("OPTARG", value)
    else:
        shell.assign("OPTIND", f"{at + 1}.{inside + 1}" if rest else str(at + 2))
        shell.variables.values.pop("OPTARG", None)
        if found < 0 and not letters.startswith(":"):
            shell.complain(f"-{letter}: unknown option")
    shell.assign(name, letter if found >= 0 else "?")
    return 0


def _nothing(shell: Shell, args: Sequence[str]) -> int:
    return 0


def _false(shell: Shell, args: Sequence[str]) -> int:
    return 1


BUILTINS: Mapping[str, Builtin] = {
    ":": Builtin(_nothing, special=True), "true": Builtin(_nothing), "false": Builtin(_false),
    "echo": Builtin(_echo), "printf": Builtin(_printf), "test": Builtin(_test), "[": Builtin(_bracket),
    "cd": Builtin(_cd), "pwd": Builtin(_pwd), "export": Builtin(_export, special=True),
    "readonly": Builtin(_readonly, special=True), "local": Builtin(_local), "typeset": Builtin(_local),
    "unset": Builtin(_unset, special=True), "set": Builtin(_set, special=True), "shift": Builtin(_shift, special=True),
    "read": Builtin(_read), "eval": Builtin(_eval, special=True), ".": Builtin(_source, special=True),
    "source": Builtin(_source), "exit": Builtin(_exit, special=True), "return": Builtin(_return, special=True),
    "break": Builtin(_leave(again=False), special=True), "continue": Builtin(_leave(again=True), special=True),
    "trap": Builtin(_trap, special=True), "wait": Builtin(_wait), "kill": Builtin(_kill), "jobs": Builtin(_jobs),
    "command": Builtin(_command), "type": Builtin(_type), "whence": Builtin(_type), "umask": Builtin(_umask),
    "let": Builtin(_let), "getopts": Builtin(_getopts), "ulimit": Builtin(_nothing), "alias": Builtin(_nothing),
    "exec": Builtin(_nothing, special=True),
}  # fmt: skip
