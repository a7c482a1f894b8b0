"""What a client can open on a phone: shell, exec, sync and reboot.

The names are those of SERVICES.TXT in the Android Open Source Project's adb.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchfarm_lab.connection import Service
from benchfarm_lab.contract import SHELL_UID, ShellSession
from benchfarm_lab.faults import FaultTable
from benchfarm_lab.shell_stream import STDERR, STDOUT, FramedInput, Outlet, Output
from benchfarm_lab.stream import Stream, StreamReader
from benchfarm_lab.sync import SyncService

if TYPE_CHECKING:
    from benchfarm_lab.files import PhoneTree
    from benchfarm_lab.userland import PhoneUserland

#: What a phone says it can do; only what is served here.
FEATURES: Final = (
    "shell_v2", "cmd", "fixed_push_mkdir", "fixed_push_symlink_timestamp",
)  # fmt: skip
#: What an ``adb shell`` without a command runs.
_NO_COMMAND: Final = "echo 'a virtual phone has no shell to type in: adb shell COMMAND' >&2; exit 1"
#: A phone from before Android 7 has none of them but ``cmd``'s forerunner, pm.
LEGACY_FEATURES: Final[tuple[str, ...]] = ()


@dataclass(slots=True, kw_only=True)
class ServiceDesk:
    """Maps the name of a service to what runs it, for one phone."""

    userland: PhoneUserland
    files: PhoneTree
    faults: FaultTable
    #: True for a phone without shell_v2, whose v1 shell is a terminal.
    legacy: bool
    #: Restart into a mode ("" is the system).
    reboot: Callable[[str], None]

    def service_for(self, name: str) -> Service | None:
        """Return what runs the service, or None when there is none of this name."""
        head, _, rest = name.partition(":")
        kind, *options = head.split(",")
        if kind == "shell":
            return self._shell(options, rest)
        if kind == "exec":
            return lambda stream: self._run_plain(stream, rest, "exec")
        if kind == "sync":
            return SyncService(self.files, self.faults, uid=SHELL_UID)
        if kind == "reboot":
            return lambda stream: self.reboot(rest)
        return None

    # Commands

    def _shell(self, options: list[str], command: str) -> Service | None:
        command = command or _NO_COMMAND
        if "v2" in options:
            return None if self.legacy else lambda stream: self._run_framed(stream, command, pty="pty" in options)
        if self.legacy:
            return lambda stream: self._run_terminal(stream, command)
        return lambda stream: self._run_plain(stream, command, "shell")

    def _run_framed(self, stream: Stream, command: str, *, pty: bool) -> None:
        outlet = Outlet(stream, self.faults, "shell")
        stdout = Output(outlet, framed_as=STDOUT)
        session = ShellSession(
            stdin=FramedInput(StreamReader(stream)),
            stdout=stdout,
            stderr=stdout if pty else Output(outlet, framed_as=STDERR),
            hangup=stream.hangup,
            pty=pty,
        )
        outlet.exit(self.userland.run(command, session))

    def _run_terminal(self, stream: Stream, command: str) -> None:
        """Run in a terminal without frames: one stream for everything, and the exit code is lost."""
        screen = Output(Outlet(stream, self.faults, "shell"))
        self.userland.run(
            command,
            ShellSession(stdin=StreamReader(stream), stdout=screen, stderr=screen, hangup=stream.hangup, pty=True),
        )

    def _run_plain(self, stream: Stream, command: str, moment: str) -> None:
        """Run with stdout and stderr as one stream of bytes, untouched; the exit code is lost."""
        output = Output(Outlet(stream, self.faults, moment))
        self.userland.run(
            command,
            ShellSession(stdin=StreamReader(stream), stdout=output, stderr=output, hangup=stream.hangup),
        )
