"""What a client can open on a phone: shell, exec, abb, sync, reboot and what is refused with a word.

The names are those of SERVICES.TXT in the Android Open Source Project's adb.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from benchfarm_lab.connection import Service
from benchfarm_lab.contract import SHELL_UID, PhoneFiles, ShellSession, StreamClosedError, Userland
from benchfarm_lab.faults import FaultTable
from benchfarm_lab.shell_stream import STDERR, STDOUT, FramedInput, Outlet, Output, TerminalInput
from benchfarm_lab.stream import Stream, StreamReader
from benchfarm_lab.sync import SyncService

#: What a phone says it can do; only what is served here.
FEATURES: Final = (
    "shell_v2", "cmd", "stat_v2", "ls_v2", "fixed_push_mkdir", "fixed_push_symlink_timestamp", "abb", "abb_exec",
    "sendrecv_v2", "sendrecv_v2_dry_run_send",
)  # fmt: skip
#: A phone from before Android 7 has none of them but ``cmd``'s forerunner, pm.
LEGACY_FEATURES: Final[tuple[str, ...]] = ()

_ANSWERS: Final[Mapping[str, str]] = {
    "root": "adbd cannot run as root in production builds\n",
    "unroot": "adbd not running as root\n",
    "remount": 'Not running as root. Try "adb root" first.\n',
    "disable-verity": 'Not running as root. Try "adb root" first.\n',
    "enable-verity": 'Not running as root. Try "adb root" first.\n',
    "usb": "error: a virtual phone has no USB port\n",
}


@dataclass(slots=True, kw_only=True)
class ServiceDesk:
    """Maps the name of a service to what runs it, for one phone."""

    userland: Userland
    files: PhoneFiles
    faults: FaultTable
    #: True for a phone without shell_v2, whose v1 shell is a terminal.
    legacy: bool
    #: Restart into a mode ("" is the system).
    reboot: Callable[[str], None]
    #: Listen on another port from now on; raises OSError.
    listen_on: Callable[[int], None]
    #: Close every connection of the phone.
    drop_connections: Callable[[], None]

    def service_for(self, name: str) -> Service | None:
        """Return what runs the service, or None when there is none of this name."""
        head, _, rest = name.partition(":")
        kind, *options = head.split(",")
        if kind == "shell":
            return self._shell(options, rest)
        if kind == "exec":
            return lambda stream: self._run_plain(stream, rest, "exec")
        if kind in ("abb", "abb_exec") and not self.legacy:
            return self._abb(kind, rest)
        if kind == "sync":
            return SyncService(self.files, self.faults, uid=SHELL_UID)
        if kind == "reboot":
            return lambda stream: self.reboot(rest)
        if kind == "tcpip":
            return lambda stream: self._listen(stream, rest)
        if kind == "reverse":
            return lambda stream: stream.write(_reverse_answer(rest))
        if kind == "reconnect":
            return self._reconnect
        if kind in _ANSWERS:
            return lambda stream: stream.write(_ANSWERS[kind].encode())
        return None

    # Commands

    def _shell(self, options: list[str], command: str) -> Service | None:
        if "v2" in options:
            if self.legacy:
                return None
            terminal = "pty" in options or (not command and "raw" not in options)
            return lambda stream: self._run_framed(stream, command, terminal=terminal)
        if self.legacy or not command:
            return lambda stream: self._run_terminal(stream, command)
        return lambda stream: self._run_plain(stream, command, "shell")

    def _abb(self, kind: str, rest: str) -> Service:
        # The arguments come apart by NUL; to the userland they are words for ``cmd``, whatever is in them.
        command = shlex.join(["cmd", *rest.split("\0")])
        if kind == "abb":
            return lambda stream: self._run_framed(stream, command, terminal=False, moment="abb")
        return lambda stream: self._run_plain(stream, command, "abb")

    def _run_framed(self, stream: Stream, command: str, *, terminal: bool, moment: str = "shell") -> None:
        outlet = Outlet(stream, self.faults, moment)
        stdout = Output(outlet, framed_as=STDOUT)
        keys = FramedInput(StreamReader(stream))
        session = ShellSession(
            stdin=TerminalInput(keys, stdout) if terminal else keys,
            stdout=stdout,
            stderr=stdout if terminal else Output(outlet, framed_as=STDERR),
            hangup=stream.hangup,
            pty=terminal,
        )
        outlet.exit(self.userland.run(command, session))

    def _run_terminal(self, stream: Stream, command: str) -> None:
        """Run in a terminal without frames: one stream for everything, and the exit code is lost."""
        screen = Output(Outlet(stream, self.faults, "shell"))
        keys = TerminalInput(StreamReader(stream), screen)
        self.userland.run(
            command, ShellSession(stdin=keys, stdout=screen, stderr=screen, hangup=stream.hangup, pty=True)
        )

    def _run_plain(self, stream: Stream, command: str, moment: str) -> None:
        """Run with stdout and stderr as one stream of bytes, untouched; the exit code is lost."""
        output = Output(Outlet(stream, self.faults, moment))
        self.userland.run(
            command,
            ShellSession(stdin=StreamReader(stream), stdout=output, stderr=output, hangup=stream.hangup),
        )

    # The phone itself

    def _listen(self, stream: Stream, text: str) -> None:
        port = int(text) if text.isascii() and text.isdigit() else 0
        if not 0 < port < 65536:
            stream.write(b"invalid port\n")
            return
        _write_and_wait(stream, f"restarting in TCP mode port: {port}\n".encode())
        try:
            self.listen_on(port)
        except OSError:
            pass  # adbd promises before it tries, too; the phone stays where it was

    def _reconnect(self, stream: Stream) -> None:
        _write_and_wait(stream, b"done")
        self.drop_connections()


def _write_and_wait(stream: Stream, data: bytes) -> None:
    """Write a last word and give the client the time to close: the connection goes right after."""
    try:
        stream.write(data)
    except StreamClosedError:
        return
    stream.finish()
    stream.hangup.wait(5.0)


def _reverse_answer(request: str) -> bytes:
    verb, _, rest = request.partition(":")
    if verb == "list-forward":
        return b"0000"
    if verb == "killforward-all":
        return b"OKAY"
    if verb == "killforward":
        text = f"listener '{rest}' not found"
    else:
        text = "a virtual phone opens no sockets: nothing can be forwarded from it"
    return f"FAIL{len(text):04x}{text}".encode()
