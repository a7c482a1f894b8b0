"""What a command of the phone gets when it is called: arguments, options, streams; and the register
of all commands.
"""

from __future__ import annotations

import contextlib
import getopt
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from benchfarm_virtual.contract import LogPriority, PhoneFileError, ProgramDiedError, encoded
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.processes import Process

if TYPE_CHECKING:
    from benchfarm_virtual.files import PhoneTree
    from benchfarm_virtual.launching import Launch
    from benchfarm_virtual.userland import PhoneSystem


_BUFFER_BYTES: Final = 1 << 16


class CommandFaultError(Exception):
    """A command ends with a message after its name, and a code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Output:
    """A command's stdout: collected, and written in large pieces."""

    def __init__(self, sink: OpenFile) -> None:
        self._sink = sink
        self._pieces = bytearray()

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._pieces += data
        if len(self._pieces) >= _BUFFER_BYTES:
            self.flush()

    def line(self, text: object = "") -> None:
        """Write a line."""
        self.write(encoded(f"{text}\n"))

    def flush(self) -> None:
        """Write what is collected."""
        if self._pieces:
            data = bytes(self._pieces)
            self._pieces.clear()
            self._sink.write(data)


class Invocation:
    """What a command works with."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.system: PhoneSystem = launch.system
        self.process: Process = launch.process
        self.name = launch.argv[0].rsplit("/", 1)[-1]
        self.args: Sequence[str] = tuple(launch.argv[1:])
        self.env: Mapping[str, str] = launch.env
        self.cwd = launch.cwd
        self.stdin = launch.fds[0]
        #: Programs write at once, commands by ``out``.
        self.stdout = launch.fds[1]
        self.stderr = launch.fds[2]
        self.out = Output(launch.fds[1])

    @property
    def uid(self) -> int:
        """Who runs the command."""
        return self.process.uid

    @property
    def files(self) -> PhoneTree:
        """The phone's files."""
        return self.system.files

    def need(self, args: Sequence[str]) -> None:
        """End the command when there are no arguments, in toybox's words."""
        if not args:
            self.fail(f'Needs 1 argument (see "{self.name} --help")')

    def each(self, paths: Sequence[str], action: Callable[[str], None]) -> None:
        """Run an action on each path, made absolute; complain of those on which it fails. Meanwhile
        ``shown`` is the path as it was typed.
        """
        self.need(paths)
        for path in paths:
            try:
                self.shown = path
                action(self.path(path))
            except PhoneFileError as exc:
                self.complain(f"{path}: {exc}")
                self.failed = True

    shown = ""
    #: Whether an action failed, for the exit code.
    failed = False

    def path(self, path: str) -> str:
        """Return a phone path, made absolute."""
        return path if path.startswith("/") else f"{self.cwd.rstrip('/')}/{path}"

    def error(self, text: str) -> None:
        """Write a line to stderr."""
        with contextlib.suppress(
            PhoneFileError
        ):  # on a full phone, for example; the line is written nevertheless
            self.out.flush()
        self.stderr.write(encoded(f"{text}\n"))

    def complain(self, message: str) -> None:
        """Write a line to stderr after the command's name."""
        self.error(f"{self.name}: {message}")

    def log(self, tag: str, text: str, priority: LogPriority = "I") -> None:
        """Log a message as the command's process."""
        self.system.logs.log(priority, tag, text, pid=self.process.pid)

    def fail(self, message: str, code: int = 0) -> NoReturn:
        """End the command with a message; grep's exit code 1 means that nothing matched."""
        raise CommandFaultError(message, code or (2 if self.name == "grep" else 1))

    def open(self, path: str) -> OpenFile:
        """Open a file to read; ``-`` is stdin. Raises PhoneFileError."""
        return self.stdin if path == "-" else self.system.files.open_read(self.path(path))

    def each_input(self, paths: Sequence[str], action: Callable[[OpenFile], None]) -> None:
        """Do something with each file, opened to read (stdin when there are none)."""
        self.each(paths or ["-"], lambda path: action(self.open(self.shown)))

    def chunks(self, source: OpenFile) -> Iterator[bytes]:
        """Return a source's bytes piece by piece, looking for signals in between."""
        while piece := source.read(_BUFFER_BYTES):
            yield piece
            self.check_alive()

    def lines(self, source: OpenFile) -> Iterator[bytes]:
        """Return a source's lines without their newlines."""
        rest = b""
        for piece in self.chunks(source):
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def check_alive(self) -> None:
        """End the command when a signal has killed it."""
        if self.process.killed.is_set():
            raise ProgramDiedError(self.process.signal)

    def sleep(self, phone_seconds: float) -> None:
        """Sleep for phone time; a signal ends the command."""
        if self.system.time.sleep(phone_seconds, self.process.killed):
            raise ProgramDiedError(self.process.signal)

    def become(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> int:
        """Go on as another program in the same process (nohup, taskset, env ...)."""
        from benchfarm_virtual.launching import LaunchFaultError, launch

        self.out.flush()
        try:
            return launch(replace(self.launch, argv=argv, env=env or self.env, cwd=cwd or self.cwd))
        except LaunchFaultError as exc:
            words = "No such file or directory" if exc.code == 127 else "Permission denied"
            self.fail(f"exec {argv[0]}: {words}", exc.code)


@dataclass(slots=True)
class Options:
    """Options with their values, and the arguments that are left."""

    values: dict[str, list[str]]
    args: list[str]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def last(self, name: str, default: str = "") -> str:
        """Return the last value given for an option."""
        return self.values.get(name, [default])[-1]


def read_options(
    call: Invocation,
    flags: str,
    values: str = "",
    *,
    long: Sequence[str] = (),
    stop_early: bool = False,
) -> Options:
    """Read a call's options: single letters in ``flags``, those with a value in ``values``, long
    names in ``long``, with a ``=`` those that have a value.

    ``stop_early``: what follows the first argument belongs to another command. Raises
    CommandFaultError.
    """
    letters = flags + "".join(f"{letter}:" for letter in values)
    read = getopt.getopt if stop_early else getopt.gnu_getopt
    try:
        pairs, rest = read(list(call.args), letters, long)
    except getopt.GetoptError as exc:
        call.fail(str(exc))
    parsed = Options({}, rest)
    for name, value in pairs:
        parsed.values.setdefault(name.lstrip("-"), []).append(value)
    return parsed


#: Returns the exit code; None is 0, or 1 when an action has failed.
CommandFunction = Callable[["Invocation"], int | None]
#: By their names, and which phones have them.
_COMMANDS: dict[str, tuple[CommandFunction, Callable[[PhoneSystem], bool]]] = {}


def command(
    *names: str, on: Callable[[PhoneSystem], bool] = lambda system: True
) -> Callable[[CommandFunction], CommandFunction]:
    """Enter a function into the table of commands under its names, for the phones that have it."""

    def enter(function: CommandFunction) -> CommandFunction:
        for name in names:
            _COMMANDS[name] = function, on
        return function

    return enter


@lru_cache(maxsize=1)
def _load() -> None:
    package = importlib.import_module("benchfarm_virtual.commands")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def commands_of(system: PhoneSystem) -> Mapping[str, CommandFunction]:
    """Return the commands of a phone by their names."""
    _load()
    return {name: function for name, (function, on) in _COMMANDS.items() if on(system)}
