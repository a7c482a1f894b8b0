"""A private adb server of ours: started where this user alone reaches it, remembered, stopped by
its pid.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from orchestrator.clock import Deadline
from orchestrator.devices.adb_server import (
    AdbServer,
    ServerAddress,
    configured_address,
    parse_address,
)
from orchestrator.errors import AdbUnavailableError, HostStorageError, UsageError
from orchestrator.files import is_private, make_private, own_temporary, write_whole
from orchestrator.locks import Locks
from orchestrator.processes import child_environment, command_line

#: Each names the folder of an Android SDK.
_SDK_VARIABLES: Final = ("ANDROID_HOME", "ANDROID_SDK_ROOT")
_START_TIMEOUT_S: Final = 15.0
_KILL_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.005
#: How long the address of a process that has ended may still be taken.
_LET_GO_S: Final = 1.0
#: A socket's path may have 107 bytes on Linux and 103 on macOS.
_LONGEST_PATH_BYTES: Final = 100
#: What is remembered of the environment, so that a server that has to be started again shows phones
#: the same key.
_KEPT_VARIABLES: Final = ("HOME", "PATH", "TMPDIR", "ADB_VENDOR_KEYS")
#: What would have the server listen elsewhere.
_ADDRESS_VARIABLES: Final = (
    "ADB_SERVER_SOCKET",
    "ANDROID_ADB_SERVER_ADDRESS",
    "ANDROID_ADB_SERVER_PORT",
)


class OwnServer(AdbServer):
    """A private adb server that we start, remember, use again and stop; its record is a file in the
    state folder.
    """

    is_ours = True

    def __init__(
        self,
        address: ServerAddress,
        *,
        binary: Path,
        state_folder: Path,
        environ: Mapping[str, str],
        usb: bool,
    ) -> None:
        """Name one; nothing is started yet."""
        super().__init__(address)
        self._binary, self._state_folder, self._environ, self._usb = (
            binary,
            state_folder,
            environ,
            usb,
        )
        self._pid = 0
        #: Only in the process that started it: to reap it.
        self._popen: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, *, binary: Path, state_folder: Path, environ: Mapping[str, str], usb: bool = True
    ) -> OwnServer:
        """Start a server that this user alone reaches, or use the one started before.

        It listens on a socket in a folder of mode 0700.

        Args:
            binary: The adb program (:func:`find_adb`).
            state_folder: Where its pid, address and log are kept, so that the next command uses it
                again.
            environ: Its environment; HOME there says which key it shows to phones.
            usb: Whether it looks for phones on USB and for emulators; False leaves those to other
                servers.

        Raises AdbUnavailableError with the end of its log.
        """
        with _lock(state_folder, usb=usb):
            if (known := cls.adopt(state_folder, usb=usb)) is not None:
                known._environ = environ
                return known
            failure = AdbUnavailableError(
                f"no folder of this user alone can hold an adb server's socket (tried {state_folder / 'adb'})",
                hint="set $BENCHFARM_HOME to a folder with a short path on a local file system",
            )
            for address in _addresses(state_folder, usb=usb):
                server = cls(
                    address, binary=binary, state_folder=state_folder, environ=environ, usb=usb
                )
                try:
                    server._launch()
                except (
                    AdbUnavailableError
                ) as error:  # a file system without sockets, or a stranger listens there
                    failure = error
                else:
                    return server
            raise failure

    @classmethod
    def adopt(cls, state_folder: Path, *, usb: bool = True) -> OwnServer | None:
        """Return the server that an earlier command started, None when it no longer runs."""
        server = cls._recorded(state_folder, usb=usb)
        return server if server is not None and server._is_running() else None

    @classmethod
    def _recorded(cls, state_folder: Path, *, usb: bool) -> OwnServer | None:
        try:
            known: dict[str, Any] = json.loads(
                (state_folder / f"{_name(usb=usb)}.json").read_text("utf-8")
            )
            server = cls(
                parse_address(str(known["address"]), source=""),
                binary=Path(str(known["binary"])),
                state_folder=state_folder,
                environ={str(name): str(value) for name, value in dict(known["environ"]).items()},
                usb=usb,
            )
            server._pid = int(known["pid"])
            return server
        except (OSError, ValueError, KeyError, TypeError, UsageError):
            return None

    def revive(self) -> None:
        """Start it again at the same address if it has died, because phones and other commands know
        it.

        One that another command has started again meanwhile is taken over, wherever it listens.
        Raises AdbUnavailableError.
        """
        if self._is_running():
            return
        with _lock(self._state_folder, usb=self._usb):
            self._follow()
            if not self._is_running():
                self._kill()
                self._launch()

    def stop(self) -> None:
        """Stop it, also when another command has started it again; wait for its end, and forget it."""
        with _lock(self._state_folder, usb=self._usb):
            self._follow()
            if self._is_alive():
                self._kill()
                Path(self.address.path).unlink(missing_ok=True)
            self._file("json").unlink(missing_ok=True)

    def _file(self, suffix: str) -> Path:
        return self._state_folder / f"{_name(usb=self._usb)}.{suffix}"

    def _follow(self) -> None:
        """Be the server that the record names, once the own process has ended: it was started
        again.
        """
        known = None if self._is_alive() else self._recorded(self._state_folder, usb=self._usb)
        if known is not None and known._is_alive():
            self.address, self._pid, self._popen = known.address, known._pid, None

    def _launch(self) -> None:
        # What listens there would answer in the place of ours, which ends at once. One that was
        # killed lets go last.
        if not _until(lambda: _is_free(self.address.path), _LET_GO_S):
            raise AdbUnavailableError(f"another program listens at {self.address} of this computer")
        environ = child_environment(self._environ, ADB_MDNS="0")
        if not self._usb:
            environ |= {"ADB_USB": "0", "ADB_LIBUSB": "0", "ADB_EMU": "0"}
        try:
            with self._file("log").open("wb") as log:
                # In a session of its own: Ctrl-C mustn't reach it, phones are restored through it
                # afterwards.
                self._popen = subprocess.Popen(
                    [str(self._binary), "-L", self.address.spec, "server", "nodaemon"],
                    env={
                        name: value
                        for name, value in environ.items()
                        if name not in _ADDRESS_VARIABLES
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            raise AdbUnavailableError(f"{self._binary} can't be started: {error}") from error
        self._pid = self._popen.pid
        try:
            self._await_answer(self._popen)
            kept = {name: self._environ[name] for name in _KEPT_VARIABLES if name in self._environ}
            known = {
                "pid": self._pid,
                "address": self.address.spec,
                "binary": str(self._binary),
                "environ": kept,
            }
            write_whole(self._file("json"), json.dumps(known))
        except BaseException:
            # Ctrl-C, a full disk: a server that nobody remembers would run for ever.
            self._kill()
            raise

    def _await_answer(self, popen: subprocess.Popen[bytes]) -> None:
        is_settled = _until(
            lambda: popen.poll() is not None or self.answers(timeout_s=_START_TIMEOUT_S),
            _START_TIMEOUT_S,
        )
        if not is_settled or popen.poll() is not None:
            tail = self._file("log").read_text("utf-8", "replace").strip()[-400:]
            raise AdbUnavailableError(
                f"{self._binary} didn't become a server at {self.address}: {tail or 'it printed nothing'}",
                hint="set $BENCHFARM_ADB to an adb binary that works on this computer",
            )

    def _is_running(self) -> bool:
        """Whether a server listens in a folder that this user alone may enter, which says enough of
        who it is.
        """
        has_ended = self._popen is not None and self._popen.poll() is not None
        return not has_ended and self.answers(timeout_s=_START_TIMEOUT_S)

    def _is_alive(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return self._pid > 0 and self.address.spec in command_line(self._pid)

    def _kill(self) -> None:
        """End the process and wait for that; use force when it doesn't end."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if self._is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, kind)
            _until(lambda: not self._is_alive(), _KILL_TIMEOUT_S)


def _until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so; False when it isn't in time."""
    deadline = Deadline(seconds)
    while not is_so():
        if deadline.expired:
            return False
        time.sleep(_POLL_S)
    return True


def _name(*, usb: bool) -> str:
    return "adb-server" if usb else "adb-server-tcp"


@contextlib.contextmanager
def _lock(state_folder: Path, *, usb: bool) -> Iterator[None]:
    busy = AdbUnavailableError(
        f"another benchfarm command has been starting an adb server for too long ({state_folder})"
    )
    try:
        with Locks(state_folder).held(_name(usb=usb), wait_s=4 * _START_TIMEOUT_S, busy=busy):
            yield
    except (OSError, HostStorageError) as error:
        raise AdbUnavailableError(
            f"an adb server can't be kept in {state_folder}: {error}"
        ) from error


def _addresses(state_folder: Path, *, usb: bool) -> Iterator[ServerAddress]:
    """Yield where a server may listen: sockets in folders that this user alone may enter."""
    name = hashlib.sha256(f"{state_folder.absolute()}\0{usb}".encode()).hexdigest()[:16]
    own = state_folder.absolute() / "adb"
    with contextlib.suppress(OSError):
        make_private(own)
    for folder, file in (
        (own if is_private(own) else None, _name(usb=usb)),
        (own_temporary(), name),
    ):
        path = str(folder / f"{file}.socket") if folder is not None else ""
        if path and len(os.fsencode(path)) <= _LONGEST_PATH_BYTES:
            yield ServerAddress(path=path)


def _is_free(path: str) -> bool:
    """Whether nobody listens at a socket; the file of a process that is gone stays and refuses, and
    adb replaces it.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) in {errno.ENOENT, errno.ECONNREFUSED}


def server_of_phones(
    *, setting: str, environ: Mapping[str, str], state_folder: Path, adb_setting: str = ""
) -> AdbServer:
    """Return the server to use for plugged phones.

    It is the one at the configured address (``setting`` or adb's own variables), which must run;
    else the one at adb's default address when it runs; else a private one of ours. Raises
    AdbUnavailableError, UsageError.
    """
    configured = configured_address(setting, environ)
    server = AdbServer(configured)
    if configured is not None:
        server.version()
    elif not server.answers():
        binary = find_adb(adb_setting, environ)
        return OwnServer.start(binary=binary, state_folder=state_folder, environ=environ)
    return server


def find_adb(setting: str = "", environ: Mapping[str, str] | None = None) -> Path:
    """Return the adb program: ``setting`` ($BENCHFARM_ADB), else the adbutils wheel's, else the one
    in $PATH, else that of an Android SDK ($ANDROID_HOME, $ANDROID_SDK_ROOT).

    The wheel's own finder prefers PATH, which mixes versions on one farm; and importing adbutils
    takes 0.2 s, so the program is looked up in its folder without importing it. Its wheels have a
    program on Linux x86-64 alone among the systems that benchfarm runs on. ``environ`` is this
    process's when left out. Raises AdbUnavailableError.
    """
    environ = environ or {}
    search_path = environ.get("PATH")
    if setting:
        named = shutil.which(setting, path=search_path)
        if named is None:
            raise AdbUnavailableError(
                f"$BENCHFARM_ADB is {setting!r}, which isn't a program",
                hint="name an adb binary, or unset it",
            )
        return Path(named)
    if (bundled := bundled_adb()) is not None:
        return bundled
    if (found := shutil.which("adb", path=search_path)) is not None:
        return Path(found)
    for name in _SDK_VARIABLES:
        program = Path(environ.get(name) or "/nowhere", "platform-tools", "adb")
        if os.access(program, os.X_OK):
            return program
    raise AdbUnavailableError(
        "there is no adb program: the package adbutils has none for this system, and neither has PATH nor $ANDROID_HOME",
        hint="install Android's platform-tools (Debian: apt install adb; macOS: brew install android-platform-tools), "
        "or set $BENCHFARM_ADB to an adb binary",
    )


def bundled_adb() -> Path | None:
    """Return the adb program inside the adbutils wheel, None when this platform's wheel has none."""
    spec = importlib.util.find_spec("adbutils")
    name = "adb.exe" if sys.platform == "win32" else "adb"
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(folder) / "binaries" / name
        if program.is_file() and os.access(program, os.X_OK):
            return program
    return None
