"""A lab of many phones in several processes: the leader answers for all of them, and they end
together.

Phones of one process share an interpreter lock and hold each other up, as real phones don't. The
leader starts the other processes (``python -m benchfarm_virtual share``) and asks each one through its
standard input and output, one line of JSON a request. A share ends when its standard input does;
when a share ends or doesn't answer, the whole lab ends.
"""

from __future__ import annotations

import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchfarm_virtual.control import Answer, Desk, PhoneDesk, Request, answer_of, spec_of
from benchfarm_virtual.errors import DeviceError, UsageError
from benchfarm_virtual.farm import open_lab
from benchfarm_virtual.lab import SOURCES, LabSettings, result_of
from benchfarm_virtual.loop import take_short_turns
from benchfarm_virtual.spec import PhoneSpec

#: A process runs this many phones before another one is worth its start and memory.
_PHONES_EACH: Final = 5
#: More processes than cores gain little, and each takes memory and a start, unless one has more
#: phones than _CROWD.
_LEAST_OF_MANY: Final = 2
_CROWD: Final = 25
_MOST_PROCESSES: Final = 8
#: Less than the patience of those who ask the leader.
_ANSWER_S: Final = 10.0
_START_S: Final = 25.0
_END_S: Final = 3.0

_LOG: Final = logging.getLogger(__name__)


def processes_for(phones: int, *, cores: int) -> int:
    """Return how many processes run this number of phones."""
    most = min(_MOST_PROCESSES, max(_LEAST_OF_MANY, cores, math.ceil(phones / _CROWD)))
    return max(1, min(most, math.ceil(phones / _PHONES_EACH)))


class Share:
    """A process that runs some of the lab's phones, as its leader sees it."""

    def __init__(
        self, settings: LabSettings, *, lock: int, on_end: Callable[[Share], None]
    ) -> None:
        """Start the process without phones; raise DeviceError when that can't be done.

        It inherits the descriptor ``lock``, so that the folder is locked until it ends. ``on_end``
        is called in a thread of its own when the process has ended.
        """
        self._turn = threading.Lock()
        try:
            self._process = subprocess.Popen(
                settings.command("share"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[lock],
                cwd=SOURCES,
            )
        except OSError as fault:
            raise DeviceError(
                f"the virtual lab can't start another process: {fault.strerror}"
            ) from None
        self.pid = self._process.pid
        self._on_end = on_end
        self._end = threading.Thread(target=self._wait, daemon=True)
        self._end.start()

    def ask(self, request: Request, *, timeout_s: float = _ANSWER_S) -> Answer:
        """Return the answer to a request; raises the error that it is answered with.

        A process that ended or doesn't answer in time is ended, and DeviceError raised: it might do
        what it was asked at any later time, and nobody would know.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = None
        with self._turn:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                if select.select([self._process.stdout], [], [], timeout_s)[0]:
                    answer = json.loads(self._process.stdout.readline())
            except (OSError, ValueError):
                pass  # it has ended; its own words are in the log
        if answer is None:
            self._process.kill()
            raise DeviceError(f"process {self.pid} of the virtual lab doesn't answer; the lab ends")
        return result_of(answer)

    def _wait(self) -> None:
        self._process.wait()
        self._on_end(self)

    def release(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already

    def close(self) -> None:
        """Return when it has ended, by force after a while."""
        self.release()
        self._end.join(_END_S)
        self._process.kill()
        self._end.join()


def serve_share(settings: LabSettings) -> None:
    """Answer requests until standard input ends. Raises what VirtualLab raises."""
    take_short_turns()
    # Ctrl-C reaches all processes of a terminal; the leader ends its shares in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed isn't an answer
    with open_lab(settings) as lab:
        desk = PhoneDesk(lab)
        for line in sys.stdin.buffer:
            answers.write(json.dumps(answer_of(desk, json.loads(line))).encode() + b"\n")


def _leave(*_: object) -> None:
    raise SystemExit(0)


class SpreadLab:
    """The desk of a whole lab: answers requests about the phones of this process and passes on the
    others'.
    """

    def __init__(
        self,
        here: PhoneDesk,
        start_share: Callable[[Callable[[Share], None]], Share],
        *,
        processes: int = 0,
        stop: Callable[[], None],
    ) -> None:
        """Make the desk. ``start_share`` starts a process, which calls its argument at its end.

        ``processes`` is how many there are at most; 0: as suits the phones and this computer.
        ``stop`` ends the lab.
        """
        self._here = here
        self._start_share = start_share
        self._processes = processes
        self._stop = stop
        #: Called when phones came or went.
        self.changed: Callable[[], None] = lambda: None
        #: Held while a phone comes or goes, which may start a process.
        self._changing = threading.Lock()
        self._closing = False
        self._shares: list[Share] = []
        #: Where each phone runs, in the order in which they were added.
        self._homes: dict[str, Desk] = {}

    @property
    def pids(self) -> list[int]:
        """All processes, the leader first."""
        return [os.getpid(), *(share.pid for share in self._shares)]

    def phones(self) -> list[Answer]:
        """Return what each phone is now, in the order in which they were added."""
        desks = [self._here, *self._shares]
        with ThreadPoolExecutor(len(desks)) as pool:
            parts = list(pool.map(lambda desk: desk.ask({"request": "list"})["phones"], desks))
        found = {about["serial"]: about for part in parts for about in part}
        return [found[serial] for serial in list(self._homes) if serial in found]

    def add_all(self, specs: Sequence[PhoneSpec]) -> None:
        """Switch phones on; raises as :meth:`ask` does for a request to add one."""
        with self._changing:
            self._make_room(len(specs))
            for spec in specs:
                self._add(spec)

    def ask(self, request: Request) -> Answer:
        """Answer a request.

        Raises UsageError for a wrong one, DeviceError when it can't be done.
        """
        named = str(request.get("serial", ""))
        match request.get("request"):
            case "list":
                return {"phones": self.phones()}
            case "add":
                spec = spec_of(request)
                with self._changing:
                    self._make_room(len(self._homes) + 1)
                    about = self._add(spec)
                self.changed()
                return {"phone": about}
            case "remove":
                with self._changing:
                    serial = self._serial_of(named)
                    self._homes[serial].ask({**request, "serial": serial})
                    del self._homes[serial]
                self.changed()
                return {}
            case "fault" | "clear":
                serial = self._serial_of(named)
                return self._homes[serial].ask({**request, "serial": serial})
            case "stop":
                self._stop()
                return {}
            case _:
                return self._here.ask(request)

    def close(self) -> None:
        """End the shares; this process's phones belong to its lab."""
        self._closing = True
        for share in self._shares:
            share.release()
        for share in self._shares:
            share.close()

    def _make_room(self, phones: int) -> None:
        """Start the processes that this number of phones wants, all at once, since each takes a
        while.

        Raises DeviceError when one doesn't start.
        """
        wanted = (
            min(phones, self._processes)
            if self._processes
            else processes_for(phones, cores=os.cpu_count() or 1)
        )
        fresh = [self._start_share(self._ended) for _ in range(wanted - len(self.pids))]
        self._shares += fresh
        for share in fresh:
            share.ask({"request": "list"}, timeout_s=_START_S)

    def _add(self, spec: PhoneSpec) -> Answer:
        if spec.serial in self._homes:
            raise UsageError(f"there is a virtual phone {spec.serial} already")
        running = list(self._homes.values())
        desks: list[Desk] = [self._here, *self._shares]
        desk = min(desks, key=running.count)
        about: Answer = desk.ask({"request": "add", "phone": spec.to_json()})["phone"]
        self._homes[spec.serial] = desk
        return about

    def _serial_of(self, named: str) -> str:
        """Return the serial number of a phone that is named by that or its address; raise
        UsageError without one.
        """
        if named in self._homes:
            return named
        for phone in self.phones():
            if phone["address"] == named:
                return str(phone["serial"])
        raise UsageError(
            f"there is no virtual phone {named!r}; there are: {', '.join(self._homes) or 'none'}"
        )

    def _ended(self, share: Share) -> None:
        if not self._closing:
            _LOG.warning("process %d of the virtual lab has ended, and the lab with it", share.pid)
            self._stop()
