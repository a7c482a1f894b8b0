"""An Android phone behind the Device port, and its log."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.discovery import NOT_BOOTED
from orchestrator.devices.link import PhoneLink
from orchestrator.devices.probes import (
    FACTS_COMMANDS,
    GPU_COMMANDS,
    STATE_COMMANDS,
    facts_from,
    state_from,
)
from orchestrator.devices.runs import DetachedRuns
from orchestrator.devices.sockets import EXIT, STDERR, STDOUT, Connection, packets
from orchestrator.devices.transfer import (
    InstalledApps,
    PlacedFiles,
)
from orchestrator.errors import (
    DeviceChangedError,
    DeviceCommandError,
    DeviceTimeoutError,
    DeviceUnusableError,
    LinkLostError,
    LogOverrunError,
    SystemDownError,
)
from orchestrator.ports import ListedPhone
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.scripts import failure_reason, service_failure

#: After this time without a line the follower gets ``b""``.
MOMENT_S: Final = 0.1
_BEGIN_TIMEOUT_S: Final = 15.0
#: Following the log has no deadline of its own: the caller has one.
_FOREVER_S: Final = 7 * 24 * 3600.0
#: A longer line isn't from logcat, whose entries have at most 4 KB.
_LONGEST_LINE_BYTES: Final = 1 << 20
#: The timestamp at the begin of a line.
_MOMENT: Final = re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d\.\d+")
#: Limit of the kept error output.
_COMPLAINT_BYTES: Final = 200


def _open_log(
    link: PhoneLink, buffers: Sequence[str], since: str
) -> tuple[Iterator[bytes], Connection]:
    """Return the log's lines since a moment (a shell word), and their connection."""
    ready = f"follow-{secrets.token_hex(8)}"
    chosen = " ".join(f"-b {quote(buffer)}" for buffer in buffers)
    # The shell becomes logcat, so that it is logcat that gets SIGHUP when we hang up.
    command = f't={since}; echo {ready}; exec logcat -v threadtime {chosen} -T "$t" </dev/null'
    deadline = Deadline(_BEGIN_TIMEOUT_S, link.clock)
    connection = link.open("shell,v2,raw:" + command, deadline=deadline, action="logcat")
    try:
        lines = log_lines(connection)
        for line in lines:
            if line == ready.encode():
                break
        connection.deadline = Deadline(_FOREVER_S, link.clock)
    except BaseException:
        connection.close()
        raise
    return lines, connection


def _continued_lines(
    lines: Iterator[bytes], begin: Callable[[str], Iterator[bytes]]
) -> Iterator[bytes]:
    """Yield each line once; reopen the log when it ends because it was overwritten."""
    moment = b""
    #: The lines of the last moment, which are repeated after reopening -> their number so far.
    moment_lines: Counter[bytes] = Counter()
    while True:
        repeated, is_new = moment_lines.copy(), False
        try:
            for line in lines:
                if (stamp := _MOMENT.match(line)) is None:
                    yield line
                    continue
                if stamp[0] == moment and repeated[line]:
                    repeated[line] -= 1
                    continue
                if stamp[0] != moment:
                    moment, moment_lines = stamp[0], Counter()
                moment_lines[line] += 1
                is_new = True
                yield line
        except LogOverrunError:
            if not is_new:
                raise
            lines = begin(quote(moment.decode()))


def log_lines(connection: Connection) -> Generator[bytes]:
    """Yield logcat's lines, and ``b""`` after a moment without one; raise the error of its end."""
    rest, complaint, tail = b"", b"", b""
    for packet in packets(connection, wait_s=MOMENT_S):
        if packet is None:
            yield b""
            continue
        packet_id, payload = packet
        if packet_id == STDOUT:
            *lines, rest = (rest + payload).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                lines, rest = [*lines, rest], b""
            yield from filter(None, lines)
            tail = payload[-_COMPLAINT_BYTES:]
        elif packet_id == STDERR:
            complaint = (complaint + payload)[-_COMPLAINT_BYTES:]
        elif packet_id == EXIT:
            reason = (complaint or tail).decode("utf-8", "replace").strip()
            ending = f"logcat ended with exit code {payload[0] if payload else '?'}"
            raise service_failure(reason, serial=connection.serial, action=ending) or LinkLostError(
                f"{ending}: {reason!r}", serial=connection.serial
            )


#: The one folder where the shell user may write and execute on every phone.
WORK_FOLDER: Final = "/data/local/tmp/benchfarm"
_PROBE_TIMEOUT_S: Final = 60.0
_GPU_TIMEOUT_S: Final = 15.0
_OPEN_TIMEOUT_S: Final = 15.0
_HEARTBEAT_TIMEOUT_S: Final = 10.0
_HEALTH_TIMEOUT_S: Final = 20.0

#: Returns the name of the DeviceProfile for a phone's facts; empty for none.
ProfileMatcher = Callable[[DeviceFacts], str]


class AdbDevice(DetachedRuns, PlacedFiles, InstalledApps):
    """A phone, identified by its ``ro.serialno`` and its boot id, wherever it is attached.

    Used by one thread at a time; ``cancelled`` events may be set by any other.
    """

    kind = DeviceKind.ANDROID

    def __init__(
        self,
        server: AdbServer,
        transport: str,
        *,
        listed: ListedPhone | None = None,
        clock: Clock | None = None,
        work_folder: str = WORK_FOLDER,
    ) -> None:
        """Open the phone with the server's ``transport`` (its USB serial or host:port).

        The serial number of a listing, ``listed``, isn't asked again; reading its facts checks that
        it is still the same phone.

        Raises DeviceUnusableError, LinkLostError, DeviceTimeoutError, AdbUnavailableError.
        """
        #: Its USB port, as printed by the server: ``usb:1-4.2``.
        self.usb_path = listed.usb if listed is not None else ""
        PhoneLink.__init__(self, server, transport, clock=clock)
        #: ``ro.serialno`` of the phone.
        listed_serial = listed.serial if listed is not None else ""
        # Some phones (and emulators) have no serial number: the transport replaces it.
        self.serial = Serial(
            listed_serial
            or self.retry(lambda: self.ask_serial(timeout_s=_OPEN_TIMEOUT_S))
            or transport
        )
        #: Our folder on the phone.
        self.work_folder = work_folder
        #: Returns the name of the profile for its facts.
        self.match_profile: ProfileMatcher = lambda facts: ""
        self._facts: DeviceFacts | None = None
        #: Whether its facts lack the GPU because the compositor didn't answer.
        self.compositor_hangs = False
        DetachedRuns.__init__(self, f"{work_folder}/runs")
        PlacedFiles.__init__(self, work_folder)

    def send_heartbeat(self) -> None:
        """Send an empty command, only to renew our claim; from any thread.

        Raises DeviceError kinds.
        """
        self.shell(":", timeout_s=_HEARTBEAT_TIMEOUT_S, action="renewing our lease")

    def facts(self) -> DeviceFacts:
        """See Device.facts: two round trips, once per boot."""
        if self._facts is None:
            sections = self._ask(FACTS_COMMANDS, action="reading its facts") | self._ask_gpu()
            facts = facts_from(sections, serial=self.serial)
            if not facts.properties:
                output = sections["properties"].strip()[-200:]
                raise DeviceCommandError(
                    f"its properties can't be read: getprop says {output!r}",
                    serial=self.serial,
                    hint="reboot the phone",
                )
            if facts.serial != self.serial:
                raise DeviceChangedError(
                    f"{self.transport} is now another phone, {facts.serial}", serial=self.serial
                )
            self._facts = replace(facts, profile=self.match_profile(facts))
        return self._facts

    def state(self) -> DeviceState:
        """See Device.state: one round trip. A new boot id makes the facts be read again."""
        sections = self._ask(
            {"removals": self.with_removals(":"), **STATE_COMMANDS}, action="reading its state"
        )
        state = state_from(sections, read_at=self.clock.now())
        if self._facts is not None and state.boot_id and state.boot_id != self._facts.boot_id:
            self._facts = None
        return state

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Wait until the phone answers, has booted and its package manager works.

        Raises DeviceTimeoutError.
        """
        deadline = Deadline(timeout_s, self.clock)
        while True:
            try:
                self.reconnect(deadline)
                self.check_health(timeout_s=max(0.1, min(_HEALTH_TIMEOUT_S, deadline.remaining_s)))
            except (DeviceUnusableError, LinkLostError, SystemDownError):
                deadline.check("waiting for the phone", serial=self.serial)
                self.clock.wait(0.2)
            else:
                return

    def check_health(self, *, timeout_s: float = _HEALTH_TIMEOUT_S) -> None:
        """Make a round trip that raises the phone's fault, if any.

        Raises DeviceUnusableError (not booted yet), SystemDownError (Android's services don't run),
        DeviceTimeoutError (hangs), LinkLostError.
        """
        scripts = {"booted": "getprop sys.boot_completed", "packages": "pm path android"}
        action = "checking its health"
        answer = self.ask(scripts, timeout_s=timeout_s, action=action)
        if answer.value("booted") in NOT_BOOTED:
            raise DeviceUnusableError(
                "the phone hasn't finished booting", serial=self.serial, hint="wait a minute"
            )
        # Other errors of the package manager don't matter.
        failure = service_failure(failure_reason(answer), serial=self.serial, action=action)
        if answer.exit_code != 0 and isinstance(failure, SystemDownError):
            raise failure

    def reboot(self) -> None:
        """Ask adbd to reboot the phone.

        Raises LinkLostError and others, also when it reboots at once.
        """
        deadline = Deadline(_OPEN_TIMEOUT_S, self.clock)
        with self.open("reboot:", deadline=deadline, action="reboot") as connection:
            connection.read_some()

    def read_file(
        self, path: str, *, package: str = "", limit_bytes: int = 64 << 20
    ) -> bytes | None:
        """See Device.read_file."""
        return self.retry(
            lambda: self.read_files([path], limit_bytes=limit_bytes, package=package)
        )[0]

    @contextlib.contextmanager
    def follow_log(
        self, *, buffers: Sequence[str] = ("main", "crash")
    ) -> Generator[Iterator[bytes]]:
        """See Device.follow_log.

        When the context is entered, the phone has fixed the start time of the lines.

        Lines of up to a second before may come too: old phones' date has whole seconds only. An
        overwritten log is reopened at its last line; LogOverrunError is raised when it then ends
        without a new line.
        """
        with contextlib.ExitStack() as connections:

            def begin(since: str) -> Iterator[bytes]:
                lines, connection = _open_log(self, buffers, since)
                connections.callback(connection.close)
                return (line for line in lines if not line.startswith(b"--------- "))

            yield _continued_lines(begin("$(date '+%m-%d %H:%M:%S.000')"), begin)

    def _ask_gpu(self) -> dict[str, str]:
        """Return the outputs of GPU_COMMANDS; empty when only the compositor hangs."""
        action = "reading the GPU's driver"
        self.compositor_hangs = False
        try:
            return self._ask(GPU_COMMANDS, timeout_s=_GPU_TIMEOUT_S, action=action)
        except DeviceTimeoutError:
            # Raises when the whole phone hangs.
            self.shell(":", timeout_s=_HEARTBEAT_TIMEOUT_S, action="reading its facts")
            self.compositor_hangs = True
            return {}

    def _ask(
        self, scripts: Mapping[str, str], *, timeout_s: float = _PROBE_TIMEOUT_S, action: str
    ) -> dict[str, str]:
        return self.retry(lambda: self.ask(scripts, timeout_s=timeout_s, action=action)).texts()
