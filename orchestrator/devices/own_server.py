"""A private adb server of ours: started where this user alone reaches it, used again by the next
command, and found by its command line when it is to end.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.adb_server import AdbServer, ServerAddress
from orchestrator.errors import AdbUnavailableError, HostStorageError
from orchestrator.files import is_private, make_private, own_temporary
from orchestrator.locks import Locks
from orchestrator.processes import child_environment, end_running, running

#: Each names the folder of an Android SDK.
_SDK_VARIABLES: Final = ("ANDROID_HOME", "ANDROID_SDK_ROOT")
_START_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.005
#: A socket's path may have 107 bytes on Linux and 103 on macOS.
_LONGEST_PATH_BYTES: Final = 100
#: What would have the server listen elsewhere.
_ADDRESS_VARIABLES: Final = frozenset(
    {"ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT"}
)
_NAME: Final = "adb-server"


class OwnServer(AdbServer):
    """A private adb server that we start, use again and stop; its address follows from its folder."""

    is_ours = True

    def __init__(
        self, folder: Path, *, setting: str, environ: Mapping[str, str], usb: bool = True
    ) -> None:
        """Name the one of a folder; nothing is started yet.

        ``setting`` names the adb program (:func:`find_adb`). HOME in ``environ`` says which key it
        shows to phones. Without ``usb`` it looks for no phones on USB and no emulators.
        """
        super().__init__(ServerAddress(path=str(_socket_path(folder))))
        #: By which its process is known, whoever started it.
        self.arguments = ("-L", self.address.spec, "server", "nodaemon")
        self._folder, self._setting, self._environ, self._usb = folder, setting, environ, usb

    def revive(self) -> None:
        """Start it unless it answers.

        Raises AdbUnavailableError with the end of its log.
        """
        if self.answers(timeout_s=_START_TIMEOUT_S):
            return
        with self._locked():
            if not self.answers(timeout_s=_START_TIMEOUT_S):
                self._end()
                self._launch()

    def stop(self) -> bool:
        """Stop it and wait for its end; return whether it ran, also one that didn't answer."""
        runs = bool(running(self.arguments)) or self.answers()
        if Path(self.address.path).exists():
            with self._locked():
                self._end()
        return runs

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        busy = AdbUnavailableError(
            f"another benchfarm command has been starting an adb server for too long ({self._folder})"
        )
        try:
            with Locks(self._folder).held(_NAME, wait_s=4 * _START_TIMEOUT_S, busy=busy):
                yield
        except (OSError, HostStorageError) as error:
            raise AdbUnavailableError(
                f"an adb server can't be kept in {self._folder}: {error}"
            ) from error

    def _end(self) -> None:
        """End its process, also one that another command has started."""
        end_running(self.arguments)
        Path(self.address.path).unlink(missing_ok=True)

    def _launch(self) -> None:
        folder, log = Path(self.address.path).parent, self._folder / f"{_NAME}.log"
        make_private(folder)
        if not is_private(folder):
            raise AdbUnavailableError(
                f"others may enter {folder}, where the adb server's socket is to be",
                hint=f"chmod 700 {folder}",
            )
        binary = find_adb(self._setting, self._environ)
        environ = child_environment(self._environ, ADB_MDNS="0")
        if not self._usb:
            environ |= {"ADB_USB": "0", "ADB_LIBUSB": "0", "ADB_EMU": "0"}
        environ = {name: environ[name] for name in environ.keys() - _ADDRESS_VARIABLES}
        try:
            with log.open("wb") as output:
                # In a session of its own: Ctrl-C mustn't reach it, phones are restored through it
                # afterwards.
                process = subprocess.Popen(
                    [binary, *self.arguments],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            raise AdbUnavailableError(f"{binary} can't be started: {error}") from error
        deadline = Deadline(_START_TIMEOUT_S)
        try:
            while not self.answers(timeout_s=_START_TIMEOUT_S):
                if process.poll() is not None or deadline.expired:
                    tail = log.read_text("utf-8", "replace").strip()[-400:]
                    raise AdbUnavailableError(
                        f"{binary} didn't become a server at {self.address}: {tail or 'it printed nothing'}",
                        hint="set $BENCHFARM_ADB to an adb binary that works on this computer, or "
                        "$BENCHFARM_HOME to a folder on a local file system",
                    )
                time.sleep(_POLL_S)
        except BaseException:
            # Also Ctrl-C: a server that nobody uses would run for ever.
            process.kill()
            process.wait()
            raise
        # It goes on without us; a child that ends is reaped by whoever ends it.
        process.returncode = 0


def _socket_path(folder: Path) -> Path:
    """Return where a folder's server listens: in a folder that this user alone may enter."""
    path = folder.absolute() / "adb" / f"{_NAME}.socket"
    if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES:
        return path
    short = own_temporary()
    if short is None:
        raise AdbUnavailableError(
            f"no folder of this user alone can hold an adb server's socket ({path} is too long)",
            hint="set $BENCHFARM_HOME to a folder with a short path on a local file system",
        )
    return short / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.socket"


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
