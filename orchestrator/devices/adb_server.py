"""Adb servers: their address (from the user or adb's environment variables), their requests, and
reconnecting phones through them. Also benchfarm's private server: only this user can reach it, the
next command reuses it, and its command line identifies it when it is stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.retries import OFFLINE
from orchestrator.devices.sockets import DEFAULT_PORT, Connection, ServerAddress
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceError,
    DeviceTimeoutError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    HostStorageError,
    LinkLostError,
    NoDeviceError,
    UsageError,
)
from orchestrator.files import is_private, make_private, private_tmp_folder
from orchestrator.processes import Locks, child_environment, end_running, running
from orchestrator.records.failures import next_step_of
from orchestrator.units import format_duration


def parse_address(text: str, *, source: str = "the adb server's address") -> ServerAddress:
    """Read ``host:port``, ``host``, ``port``, ``[v6]:port``, ``tcp:...`` or
    ``localfilesystem:/path``.

    Raises UsageError naming ``source``.
    """
    rest = text.strip().removeprefix("tcp:")
    if rest.startswith("localfilesystem:/"):
        return ServerAddress(path=rest.removeprefix("localfilesystem:"), named_by=source)
    if rest.isdigit():
        rest = f"localhost:{rest}"
    match = re.fullmatch(r"(?:\[([\w:.%]+)\]|([^\s:/\[\]]+))(?::([0-9]{1,5}))?", rest)
    port = int(match[3] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise UsageError(
            f"{source} is {text!r}, which isn't host:port, tcp:host:port or localfilesystem:/path"
        )
    host = match[1] or match[2]
    host = "127.0.0.1" if host == "localhost" else host
    return ServerAddress(host=host, port=port, named_by=source)


def configured_address(setting: str, environ: Mapping[str, str]) -> ServerAddress | None:
    """Return the configured address, or None for adb's default.

    The setting comes first, then ``ADB_SERVER_SOCKET``, then ``ANDROID_ADB_SERVER_ADDRESS`` and
    ``ANDROID_ADB_SERVER_PORT``, in the order in which adb reads them. Raises UsageError.
    """
    host = environ.get("ANDROID_ADB_SERVER_ADDRESS", "").strip()
    port = environ.get("ANDROID_ADB_SERVER_PORT", "").strip()
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    for source, text in (
        ("$BENCHFARM_ADB_SERVER", setting),
        ("$ADB_SERVER_SOCKET", environ.get("ADB_SERVER_SOCKET", "")),
        ("$ANDROID_ADB_SERVER_ADDRESS", f"{bracketed}:{port or DEFAULT_PORT}" if host else ""),
        ("$ANDROID_ADB_SERVER_PORT", f"localhost:{port}" if port else ""),
    ):
        if text.strip():
            return parse_address(text, source=source)
    return None


#: adb 36 doesn't answer before it has looked for USB devices, which takes 3 s where libusb can't
#: start.
ANSWER_TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 15.0
#: From the server's "connected" to the phone's state ``device``; a key that isn't known takes as
#: long to be refused.
_SETTLE_S: Final = 3.0
#: Pause between two polls of an offline phone: short at first, as it may be back at once; longer
#: later, as it may be offline all night.
_SHORTEST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
#: A phone's return is noticed after at most a quarter of the time that it was offline.
_GROWTH: Final = 1.25
#: Next steps for a phone that doesn't know this computer's key, and for one that shows its dialog.
ALLOW_KEY: Final = next_step_of("device-unauthorized", "device unauthorized")
TAP_ALLOW: Final = next_step_of("device-unauthorized", "device still authorizing")


#: Errors of a phone that may return: a rebooting one refuses connections for a while, a hung one
#: doesn't answer, and a server may be restarted by its owner.
_PASSING: Final = (*OFFLINE, NoDeviceError)


class AdbServer:
    """A running adb server, started by somebody else unless it is a PrivateAdbServer.

    All methods may be called from several threads.
    """

    #: Whether we started it.
    is_ours = False

    def __init__(self, address: ServerAddress | None = None) -> None:
        """Name a server; nothing is connected yet."""
        self.address = address or ServerAddress()

    def stop(self) -> bool:
        """Leave a server of others alone; return whether one was ended."""
        return False

    def revive(self) -> None:
        """Leave a server of others as it is, also when it has died."""

    def version(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Return the server's protocol version (29 to 41 so far).

        Raises AdbUnavailableError and others.
        """
        answer = self.ask("host:version", timeout_s=timeout_s)
        try:
            return int(answer, 16)
        except ValueError:
            raise AdbUnavailableError(
                f"what answers at {self.address} isn't an adb server: {answer[:40]!r}"
            ) from None

    def answers(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
        """Whether it runs."""
        try:
            self.version(timeout_s=timeout_s)
        except DeviceError:
            return False
        return True

    def open(self, *services: str, deadline: Deadline, action: str, serial: str = "") -> Connection:
        """Connect to the server and request services in order, each through the one before; the
        caller closes the connection.
        """
        connection = Connection(self.address, deadline, action=action, serial=serial)
        try:
            for service in services:
                connection.request(service)
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, service: str, *, timeout_s: float = ANSWER_TIMEOUT_S, serial: str = "") -> str:
        """Ask the server something and return its answer."""
        deadline = Deadline(timeout_s)
        with self.open(
            service, deadline=deadline, action=f"adb {service}", serial=serial
        ) as connection:
            return connection.read_block().decode("utf-8", "replace")

    def device_list(self) -> str:
        """Return the output of ``adb devices -l`` without its headline."""
        return self.ask("host:devices-l")

    def features(self, transport: str) -> frozenset[str]:
        """Return the features of the phone's adbd (``shell_v2``, ``cmd``, ``stat_v2`` ...)."""
        return frozenset(
            filter(None, self.ask(f"host-serial:{transport}:features", serial=transport).split(","))
        )

    def transport_state(self, transport: str) -> str:
        """Return a transport's state (``device``, ``offline`` ...), empty when the server doesn't
        know it.
        """
        try:
            return self.ask(f"host-serial:{transport}:get-state", serial=transport)
        except (LinkLostError, NoDeviceError):
            return ""
        except DeviceUnusableError:
            return "unauthorized"

    def connect_tcp(self, address: str, *, timeout_s: float = _CONNECT_TIMEOUT_S) -> None:
        """Connect to a phone over TCP (``host:port``) and wait until it is there.

        Raises DeviceUnusableError (not authorized), NoDeviceError (nothing listens there),
        DeviceTimeoutError.
        """
        self._wait_until_online(address, Deadline(timeout_s))

    def pair(self, address: str, code: str) -> None:
        """Pair this computer with a phone that shows a code (Wireless debugging).

        Raises DeviceUnusableError with adb's words.
        """
        hint = "open 'Pair device with pairing code' on the phone again: address and code change each time"
        try:
            answer = self.ask(
                f"host:pair:{code}:{address}", timeout_s=_CONNECT_TIMEOUT_S, serial=address
            )
        except DeviceError as error:
            message = str(error).removeprefix(f"{address}: ").replace(code, "CODE")
            raise DeviceUnauthorizedError(message, serial=address, hint=hint) from error
        if not answer.startswith("Successfully paired"):
            raise DeviceUnauthorizedError(answer, serial=address, hint=hint)

    def disconnect(self, address: str) -> None:
        """Forget a TCP phone; not an error when the server doesn't know it."""
        with contextlib.suppress(DeviceError):
            self.ask(f"host:disconnect:{address}")

    def reconnect(self, transport: str, deadline: Deadline, *, fresh: bool = False) -> None:
        """Reconnect a phone whose link was lost; revives our own server first.

        ``fresh`` drops a TCP connection even if the server reports it as good: a hung phone's state
        stays ``device``. Raises DeviceTimeoutError, DeviceUnusableError, AdbUnavailableError (a
        server of others has stopped, and nobody has restarted it).
        """
        self.revive()
        if fresh and is_tcp(transport):
            self.disconnect(transport)
        self._wait_until_online(transport, deadline, passing=_PASSING)

    def _wait_until_online(
        self, transport: str, deadline: Deadline, *, passing: tuple[type[DeviceError], ...] = ()
    ) -> None:
        """Poll until a phone's state is ``device``, also after ``passing`` errors.

        Raises DeviceTimeoutError.
        """
        read_state = self._connect_once if is_tcp(transport) else self._plugged_state
        pause_s = _SHORTEST_PAUSE_S
        while True:
            state = "absent"
            try:
                state = read_state(transport, deadline)
            except passing as error:
                if isinstance(error, AdbUnavailableError):
                    if deadline.expired:
                        raise
                    self.revive()
            if state == "device":
                return
            if deadline.expired:
                raise DeviceTimeoutError(
                    f"the phone didn't connect within {format_duration(deadline.seconds)} (its state is {state})",
                    serial=transport,
                )
            deadline.wait(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)

    def _plugged_state(self, transport: str, deadline: Deadline) -> str:
        state = self.transport_state(transport)
        if state == "unauthorized" and deadline.remaining_s < deadline.seconds / 2:
            raise _unauthorized(transport)
        return state or "absent"

    def _connect_once(self, address: str, deadline: Deadline) -> str:
        """Try once to connect a TCP phone; return its state afterwards."""
        state = self.transport_state(address)
        if state == "device":
            return state
        if state:
            # "already connected" is also said of an entry that is offline for good.
            self.disconnect(address)
        answer = self.ask(
            f"host:connect:{address}", timeout_s=max(0.05, deadline.remaining_s), serial=address
        )
        if not answer.startswith(("connected to", "already connected to")):
            if "authenticate" in answer:
                raise DeviceUnauthorizedError(answer, serial=address, hint=ALLOW_KEY)
            raise NoDeviceError(
                answer,
                serial=address,
                hint="is the phone on, in this network, and 'adb tcpip' set?",
            )
        # An entry that was being abandoned may vanish after the answer: then it isn't waited for.
        settling = Deadline(min(_SETTLE_S, deadline.remaining_s))
        while (
            (state := self.transport_state(address)) and state != "device" and not settling.expired
        ):
            settling.wait(0.01)
        if state == "unauthorized":
            raise _unauthorized(address)
        return state or "absent"


def _unauthorized(transport: str) -> DeviceUnauthorizedError:
    message = "the phone doesn't know this computer's key"
    return DeviceUnauthorizedError(message, serial=transport, hint=ALLOW_KEY)


def is_tcp(transport: str) -> bool:
    """Whether a transport's name is the host:port of a phone reached over TCP."""
    host, colon, port = transport.rpartition(":")
    return bool(colon and host and port.isdigit())


#: Environment variables that hold the folder of an Android SDK.
_SDK_VARIABLES: Final = ("ANDROID_HOME", "ANDROID_SDK_ROOT")
_START_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.005
#: A socket's path may have 107 bytes on Linux and 103 on macOS.
_LONGEST_PATH_BYTES: Final = 100
#: Variables that would make the server listen elsewhere.
_ADDRESS_VARIABLES: Final = frozenset(
    {"ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT"}
)
_NAME: Final = "adb-server"


class PrivateAdbServer(AdbServer):
    """A private adb server that we start, reuse and stop; its address depends on its folder."""

    is_ours = True

    def __init__(
        self, folder: Path, *, setting: str, environ: Mapping[str, str], usb: bool = True
    ) -> None:
        """Set the folder of the server; nothing is started yet.

        ``setting`` is the adb program (:func:`find_adb`). HOME in ``environ`` decides which key it
        presents to phones. Without ``usb`` it detects neither USB phones nor emulators.
        """
        super().__init__(ServerAddress(path=str(_socket_path(folder))))
        #: The arguments that identify its process, whoever started it.
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
                self._kill()
                self._launch()

    def stop(self) -> bool:
        """Stop it and wait for its end; return whether it ran, also one that didn't answer."""
        is_found = bool(running(self.arguments))
        is_only_answering = not is_found and self.answers()
        if Path(self.address.path).exists():
            with self._locked():
                if is_only_answering:
                    # Its process isn't visible here. The server exits without an answer.
                    with contextlib.suppress(DeviceError):
                        self.ask("host:kill")
                self._kill()
        return is_found or is_only_answering

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

    def _kill(self) -> None:
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
                # In its own session: Ctrl-C mustn't reach it, as phones are restored through it
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
            # Also on Ctrl-C: an unused server would run for ever.
            process.kill()
            process.wait()
            raise
        # It outlives this process; whoever ends it reaps it.
        process.returncode = 0


def _socket_path(folder: Path) -> Path:
    """Return the socket path of a folder's server, in a folder that only this user may enter."""
    path = folder.absolute() / "adb" / f"{_NAME}.socket"
    if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES:
        return path
    short = private_tmp_folder()
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
    takes 0.2 s, so the program is looked up in its folder without importing it. Of the systems that
    benchfarm runs on, its wheels contain a program for Linux x86-64 only. ``environ`` defaults to
    an empty one. Raises AdbUnavailableError.
    """
    environ = environ or {}
    search_path = environ.get("PATH")
    if setting:
        configured = shutil.which(setting, path=search_path)
        if configured is None:
            raise AdbUnavailableError(
                f"$BENCHFARM_ADB is {setting!r}, which isn't a program",
                hint="name an adb binary, or unset it",
            )
        return Path(configured)
    if (bundled := bundled_adb()) is not None:
        return bundled
    if (in_path := shutil.which("adb", path=search_path)) is not None:
        return Path(in_path)
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
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(folder) / "binaries" / "adb"
        if program.is_file() and os.access(program, os.X_OK):
            return program
    return None
