"""An Android phone behind the Device port, and its log."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
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
from orchestrator.devices.sockets import (
    EXIT,
    STDERR,
    STDOUT,
    Connection,
    packets,
    quote,
    reason_of,
    service_failure,
)
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
from orchestrator.ports import Seen
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState

#: After so long without a line the follower gets ``b""``.
MOMENT_S: Final = 0.1
_BEGIN_TIMEOUT_S: Final = 15.0
#: Following has no deadline of its own: the caller has one.
_FOREVER_S: Final = 7 * 24 * 3600.0
#: A line longer than that isn't from logcat, whose entries end at 4 KB each.
_LONGEST_LINE_BYTES: Final = 1 << 20
#: How a line of it begins.
_MOMENT: Final = re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d\.\d+")
#: What is kept of its complaints.
_COMPLAINT_BYTES: Final = 200


def _begin_log(
    link: PhoneLink, buffers: Sequence[str], since: str
) -> tuple[Iterator[bytes], Connection]:
    """Return the lines from a moment, which is a word for the phone's shell, and their connection."""
    ready = f"follow-{secrets.token_hex(8)}"
    chosen = " ".join(f"-b {quote(buffer)}" for buffer in buffers)
    # The shell becomes logcat, so that it is logcat that gets SIGHUP when we hang up.
    command = f't={since}; echo {ready}; exec logcat -v threadtime {chosen} -T "$t" </dev/null'
    deadline = Deadline(_BEGIN_TIMEOUT_S, link.clock)
    connection = link.open("shell,v2,raw:" + command, deadline=deadline, what="logcat")
    try:
        lines = _lines(connection)
        for line in lines:
            if line == ready.encode():
                break
        connection.deadline = Deadline(_FOREVER_S, link.clock)
    except BaseException:
        connection.close()
        raise
    return lines, connection


def _going_on(lines: Iterator[bytes], begin: Callable[[str], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield lines, each once, from a log that is opened again where it ends because it was
    overwritten.
    """
    moment = b""
    #: The lines of the last moment, which come again, and how often each was yielded.
    known: Counter[bytes] = Counter()
    while True:
        again, is_new = known.copy(), False
        try:
            for line in lines:
                if (stamp := _MOMENT.match(line)) is None:
                    yield line
                    continue
                if stamp[0] == moment and again[line]:
                    again[line] -= 1
                    continue
                if stamp[0] != moment:
                    moment, known = stamp[0], Counter()
                known[line] += 1
                is_new = True
                yield line
        except LogOverrunError:
            if not is_new:
                raise
            lines = begin(quote(moment.decode()))


def _lines(connection: Connection) -> Generator[bytes]:
    """Yield the lines that logcat prints, ``b""`` when none came for a moment; raise what its end
    means.
    """
    rest, complaint, tail = b"", b"", b""
    for packet in packets(connection, wait_s=MOMENT_S):
        if packet is None:
            yield b""
            continue
        packet_id, payload = packet
        if packet_id == STDOUT:
            *whole, rest = (rest + payload).split(b"\n")
            if len(rest) > _LONGEST_LINE_BYTES:
                whole, rest = [*whole, rest], b""
            yield from filter(None, whole)
            tail = payload[-_COMPLAINT_BYTES:]
        elif packet_id == STDERR:
            complaint = (complaint + payload)[-_COMPLAINT_BYTES:]
        elif packet_id == EXIT:
            reason = (complaint or tail).decode("utf-8", "replace").strip()
            what = f"logcat ended with exit code {payload[0] if payload else '?'}"
            raise service_failure(reason, serial=connection.serial, what=what) or LinkLostError(
                f"{what}: {reason!r}", serial=connection.serial
            )


#: The one folder where the shell user may write and execute on every phone.
WORK_FOLDER: Final = "/data/local/tmp/benchfarm"
_PROBE_TIMEOUT_S: Final = 60.0
_GPU_TIMEOUT_S: Final = 15.0
_OPEN_TIMEOUT_S: Final = 15.0
_BEAT_TIMEOUT_S: Final = 10.0
_HEALTH_TIMEOUT_S: Final = 20.0

#: Names the DeviceProfile that fits a phone's facts; empty when none does.
ProfileMatcher = Callable[[DeviceFacts], str]


class AdbDevice(DetachedRuns, PlacedFiles, InstalledApps):
    """A phone, known by its ``ro.serialno`` and its boot id, wherever it is attached.

    Used by one thread at a time; ``cancelled`` events may be set by any other.
    """

    kind = DeviceKind.ANDROID

    def __init__(
        self,
        server: AdbServer,
        transport: str,
        *,
        seen: Seen | None = None,
        clock: Clock | None = None,
        work_folder: str = WORK_FOLDER,
    ) -> None:
        """Open the phone that the server knows as ``transport`` (its USB serial or host:port).

        What a listing has ``seen`` of it isn't asked again; that it is still the same phone shows
        with its facts.

        Raises DeviceUnusableError, LinkLostError, DeviceTimeoutError, AdbUnavailableError.
        """
        #: Where it is plugged in, as the server tells it: ``usb:1-4.2``.
        self.usb_path = seen.usb if seen is not None else ""
        PhoneLink.__init__(self, server, transport, clock=clock)
        #: ``ro.serialno`` of the phone.
        told = seen.serial if seen is not None else ""
        # Some phones (and emulators) have no serial number of their own: the server's word is all
        # there is.
        self.serial = Serial(
            told or self.again(lambda: self.ask_serial(timeout_s=_OPEN_TIMEOUT_S)) or transport
        )
        #: Our folder on the phone.
        self.work_folder = work_folder
        #: Names the profile that its facts fit.
        self.match_profile: ProfileMatcher = lambda facts: ""
        self._facts: DeviceFacts | None = None
        #: Whether its facts lack what only a compositor tells that doesn't answer.
        self.compositor_hangs = False
        DetachedRuns.__init__(self, f"{work_folder}/runs")
        PlacedFiles.__init__(self, work_folder)

    def beat(self) -> None:
        """Send an empty command, for the renewal of our note alone; from any thread.

        Raises DeviceError kinds.
        """
        self.shell(":", timeout_s=_BEAT_TIMEOUT_S, what="keeping the phone")

    def facts(self) -> DeviceFacts:
        """See Device.facts: two round trips, once per boot."""
        if self._facts is None:
            told = self._ask(FACTS_COMMANDS, what="facts") | self._ask_gpu()
            facts = facts_from(told, serial=self.serial)
            if not facts.properties:
                said = told["properties"].strip()[-200:]
                raise DeviceCommandError(
                    f"its properties can't be read: getprop says {said!r}",
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
        told = self._ask({"removals": self.with_removals(":"), **STATE_COMMANDS}, what="state")
        state = state_from(told, at=self.clock.now())
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
        """Make a round trip, which raises when the phone isn't well.

        Raises DeviceUnusableError (not booted yet), SystemDownError (Android's services don't run),
        DeviceTimeoutError (hangs), LinkLostError.
        """
        scripts = {"booted": "getprop sys.boot_completed", "packages": "pm path android"}
        what = "asking how it is"
        answer = self.ask(scripts, timeout_s=timeout_s, what=what)
        if answer.value("booted") in NOT_BOOTED:
            raise DeviceUnusableError(
                "the phone hasn't finished booting", serial=self.serial, hint="wait a minute"
            )
        # Other words of the package manager don't matter.
        failure = service_failure(reason_of(answer), serial=self.serial, what=what)
        if answer.exit_code != 0 and isinstance(failure, SystemDownError):
            raise failure

    def reboot(self) -> None:
        """Ask adbd to reboot the phone.

        Raises LinkLostError and others, also when it does so at once.
        """
        deadline = Deadline(_OPEN_TIMEOUT_S, self.clock)
        with self.open("reboot:", deadline=deadline, what="reboot") as connection:
            connection.read_some()

    def read_file(
        self, path: str, *, package: str = "", limit_bytes: int = 64 << 20
    ) -> bytes | None:
        """See Device.read_file."""
        return self.again(
            lambda: self.read_files([path], limit_bytes=limit_bytes, package=package)
        )[0]

    @contextlib.contextmanager
    def follow_log(
        self, *, buffers: Sequence[str] = ("main", "crash")
    ) -> Generator[Iterator[bytes]]:
        """See Device.follow_log.

        When the context is entered, the phone has fixed the moment from which lines come.

        Lines of up to a second before may come too: old phones' date has whole seconds only. A log
        that was overwritten is opened again from its last line; LogOverrunError is raised when
        nothing more comes of it.
        """
        with contextlib.ExitStack() as connections:

            def begin(since: str) -> Iterator[bytes]:
                lines, connection = _begin_log(self, buffers, since)
                connections.callback(connection.close)
                return (line for line in lines if not line.startswith(b"--------- "))

            yield _going_on(begin("$(date '+%m-%d %H:%M:%S.000')"), begin)

    def _ask_gpu(self) -> dict[str, str]:
        """Return what the compositor tells of the GPU; nothing where that alone hangs."""
        what = "asking for the GPU's driver"
        self.compositor_hangs = False
        try:
            return self.again(
                lambda: self.ask(GPU_COMMANDS, timeout_s=_GPU_TIMEOUT_S, what=what)
            ).texts()
        except DeviceTimeoutError:
            # Whether it is the phone that doesn't answer.
            self.shell(":", timeout_s=_BEAT_TIMEOUT_S, what="facts")
            self.compositor_hangs = True
            return {}

    def _ask(self, scripts: Mapping[str, str], *, what: str) -> dict[str, str]:
        return self.again(lambda: self.ask(scripts, timeout_s=_PROBE_TIMEOUT_S, what=what)).texts()
