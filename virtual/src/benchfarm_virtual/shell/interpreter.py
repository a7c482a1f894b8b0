"""The shell itself: walks a script's statements in one process of the phone's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_virtual.contract import (
    PhoneFileError,
    ProgramDiedError,
    StreamClosedError,
    decoded,
    encoded,
)
from benchfarm_virtual.files import PhoneTree
from benchfarm_virtual.launching import Launch
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.processes import SIGNAL_WORDS, Process, acting_for, listed
from benchfarm_virtual.shell.expansion import Expander, calculated
from benchfarm_virtual.shell.parsing import parse_script
from benchfarm_virtual.shell.statements import (
    RedirectFaultError,
    execute,
    redirected,
    release_all,
    retained,
    run_simple,
    start_job,
)
from benchfarm_virtual.shell.syntax import (
    Block,
    ExitError,
    LeaveLoopError,
    Redirect,
    Redirected,
    ShellFaultError,
    ShellKilledError,
    Simple,
    Statement,
    Subshell,
)

#: Signals after which mksh exits with 128 + the signal instead of dying of it.
_SHELL_EXITS: Final = frozenset({1, 2, 3, 15})


class Shell:
    """One shell process (or a subshell of it)."""

    def __init__(self, launch: Launch, *, name: str, positional: Sequence[str] = ()) -> None:
        """``launch`` is the start of ``sh`` or of a script that becomes this shell."""
        self.system = launch.system
        self.process = launch.process
        self.name = name
        self.positional: list[str] = list(positional)
        self.values = {"IFS": " \t\n", **launch.env, "PWD": launch.cwd}
        self.values["PPID"] = str(self.process.ppid)
        #: The variables that programs inherit.
        self.exported = frozenset(launch.env)
        self.cwd = launch.cwd
        self.fds: dict[int, OpenFile] = dict(launch.fds)
        #: Whether the open files are this shell's to let go of; else they are borrowed from whom it
        #: runs for.
        self.owns_fds = False
        #: Has the lender let go of them too, where the lender is a shell that this process was
        #: before.
        self.surrender = launch.surrender
        self.functions: dict[str, Statement] = {}
        self.traps: dict[int, str] = {}
        self.status = 0
        #: Whether a command was substituted since the last reset.
        self.has_substituted = False
        self.last_background = 0
        self.jobs: list[Process] = []
        self.shell_pid = self.process.pid
        self.expander = Expander(self)

    # For expansion

    @property
    def uid(self) -> int:
        """Who runs the shell."""
        return self.process.uid

    @property
    def files(self) -> PhoneTree:
        """The phone's files."""
        return self.system.files

    def absolute(self, path: str) -> str:
        """Return a phone path, made absolute."""
        return path if path.startswith("/") else f"{self.cwd.rstrip('/')}/{path}"

    def lookup(self, name: str) -> str:
        """Return a variable or special parameter, "" for one that isn't set."""
        if name in self.values:
            return self.values[name]
        if name.isdigit():
            parameters = [self.name, *self.positional]
            return parameters[int(name)] if int(name) < len(parameters) else ""
        special = {
            "?": self.status,
            "$": self.shell_pid,
            "#": len(self.positional),
            "!": self.last_background or "",
        }
        return str(special.get(name, ""))

    def calculate(self, expression: str) -> int:
        """Return the value of an arithmetic expression; raise ShellFaultError."""
        return calculated(expression, self.lookup)

    def assign(self, name: str, value: str) -> None:
        """Set a variable; raise ShellFaultError for one that changes how words are split."""
        if name == "IFS":
            raise ShellFaultError("IFS: a virtual phone splits at white space")
        self.values[name] = value

    def substitute(self, script: Block) -> str:
        """Run ``$(script)`` in a subshell and return its output."""
        collected = bytearray()
        child = self.fork({**self.fds, 1: OpenFile(put=collected.extend)})
        self.status = child.live(lambda: child.block(script))
        self.has_substituted = True
        return decoded(collected.rstrip(b"\n").replace(b"\0", b""))

    # Running

    def run(self, script: str) -> int:
        """Run a whole script, whose only statement takes this process over; return its status."""
        block = parse_script(script)
        if len(block.statements) == 1 and not block.statements[0][1]:
            return self.alone(block.statements[0][0])
        return self.block(block)

    def live(self, body: Callable[[], int]) -> int:
        """Run something in this shell, whose process and open files end with it."""

        def run() -> int:
            try:
                return self.run_as_subshell(body)
            finally:
                self.close()

        return self.system.processes.run(self.process, run)

    def run_as_subshell(self, body: Callable[[], int]) -> int:
        """Run something to the end of this shell: exit, signals and faults dealt with."""
        with acting_for(self.process):
            try:
                self.status = self._guarded(body)
                if last := self.traps.pop(0, ""):
                    status = self.status
                    self._guarded(lambda: self.run_text(last, keep=True))
                    self.status = status
            except ShellKilledError:
                self.status = 128 + self.process.signal
        return self.status

    def _guarded(self, body: Callable[[], int]) -> int:
        try:
            return body()
        except ExitError as exc:
            return exc.status
        except LeaveLoopError:
            return self.status
        except ShellFaultError as exc:
            self.complain(str(exc))
            return 1
        except RecursionError:
            self.complain("too deeply nested")
            return 1
        except StreamClosedError:
            return 128 + 13
        except (
            ProgramDiedError
        ) as exc:  # a builtin was waiting for something when the shell was killed
            raise ShellKilledError from exc

    def run_text(self, script: str, *, keep: bool = False) -> int:
        """Run a script in this shell (eval, source, traps); ``keep`` leaves ``$?`` as it was."""
        status = self.status
        result = self.block(parse_script(script))
        if keep:
            self.status = status
        return result

    def block(self, block: Block) -> int:
        """Run statements one after another."""
        self.status = 0 if not block.statements else self.status
        for statement, background in block.statements:
            self.check_signals()
            if background:
                self.status = start_job(self, statement)
            else:
                self.status = execute(self, statement)
        self.check_signals()
        return self.status

    def check_signals(self) -> None:
        """Run traps of signals that have arrived; raise ShellKilledError when one has ended the
        shell.
        """
        if self.process.killed.is_set():
            raise ShellKilledError
        while self.process.pending:
            script = self.traps.get(self.process.pending.pop(0))
            if script:
                self.run_text(script, keep=True)

    # Subshells and what they end with

    def fork(self, fds: Mapping[int, OpenFile]) -> Shell:
        """Return a subshell in a process of its own; the open files are only borrowed."""
        process = self.system.processes.spawn(
            [self.name], uid=self.uid, parent=self.process, group=self.process.group, is_shell=True
        )
        launch = Launch(
            system=self.system, process=process, argv=[self.name], env={}, cwd=self.cwd, fds=fds
        )
        child = Shell(launch, name=self.name, positional=self.positional)
        child.values, child.exported = dict(self.values), self.exported
        child.functions = dict(self.functions)
        child.traps = {signal: script for signal, script in self.traps.items() if not script}
        child.status = self.status
        child.last_background = self.last_background
        child.shell_pid = self.shell_pid
        return child

    def close(self) -> None:
        """Let go of the open files that are this shell's own."""
        if self.owns_fds:
            self.owns_fds = False
            release_all(self.fds)
        elif self.surrender is not None:
            self.surrender()
            self.surrender = None

    def alone(self, statement: Statement) -> int:
        """Run the only statement of a subshell: its redirections are those of the whole process.

        So a job that has its output elsewhere holds nothing of its parent's, and a simple command
        or an inner subshell takes this process over.
        """
        match statement:
            case Redirected():
                self.take_redirects(statement.redirects)
                return self.alone(statement.body)
            case Subshell():
                return self.block(statement.body)
            case Simple():
                return run_simple(self, statement, replace=True)
        return execute(self, statement)

    def take_redirects(self, redirects: Sequence[Redirect], *, special: bool = False) -> None:
        """Redirect the shell's own open files for good; a failure ends the shell."""
        try:
            fds, opened = redirected(self, redirects, special=special)
        except RedirectFaultError as exc:
            raise ExitError(1) from exc
        held = retained(fds)
        for handle in opened:
            handle.release()
        self.close()
        self.fds, self.owns_fds = held, True

    def wait_for(self, process: Process) -> bool:
        """Wait until a process has ended; False when a caught signal came first.

        Raises ShellKilledError.
        """
        stirred = threading.Event()
        with listed(self.process.wakers, stirred.set), listed(process.end_wakers, stirred.set):
            while not process.done.is_set():
                if self.process.killed.is_set():
                    raise ShellKilledError
                if self.process.pending:
                    return False
                stirred.wait()
                stirred.clear()
        return True

    def ended(self, process: Process, status: int) -> int:
        """Say, as mksh does, by which signal a command ended; a shell ends by itself when it gets
        most of them.
        """
        words = SIGNAL_WORDS.get(process.signal) if process.signal else None
        if process.is_shell and process.signal in _SHELL_EXITS:
            words = None
        if words is not None and status == 128 + process.signal:
            self.error(f"{words} ")
        return status

    # Messages

    def write(self, descriptor: int, data: bytes) -> None:
        """Write to one of the shell's open files; raise StreamClosedError, PhoneFileError."""
        handle = self.fds.get(descriptor)
        if handle is not None and data:
            handle.write(data)

    def error(self, text: str) -> None:
        """Write a line to stderr, if anyone reads it."""
        with contextlib.suppress(StreamClosedError, PhoneFileError, ProgramDiedError):
            self.write(2, encoded(f"{text}\n"))

    def complain(self, message: str) -> None:
        """Write a line to stderr after the shell's name."""
        self.error(f"{self.name}: {message}")
