"""One lab over several processes: which of them runs which phone, and what became of those that ended.

Phones of one process share an interpreter lock and hold each other up, as real phones don't. A lab of few phones is the
leader's process alone; one of many has shares beside it (share.py).
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from benchfarm_lab.control import Answer, Desk, PhoneDesk, Request, spec_of
from benchfarm_lab.errors import DeviceError, UsageError
from benchfarm_lab.share import AGAIN, Share
from benchfarm_lab.spec import PhoneSpec

#: So many phones a process runs before another one is worth its start and memory.
_PHONES_EACH: Final = 5
#: More processes than cores gain little, and each takes memory and a start ...
_LEAST_OF_MANY: Final = 2
#: ... as long as no process has more phones than this.
_CROWD: Final = 25
_MOST_PROCESSES: Final = 8
_END_S: Final = 3.0

_LOG: Final = logging.getLogger(__name__)


def processes_for(phones: int, *, cores: int) -> int:
    """Return over how many processes so many phones are spread."""
    most = min(_MOST_PROCESSES, max(_LEAST_OF_MANY, cores, math.ceil(phones / _CROWD)))
    return max(1, min(most, math.ceil(phones / _PHONES_EACH)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """Where a phone runs, and what was last told about it."""

    desk: Desk
    about: Answer


class SpreadLab:
    """The desk of a whole lab: answers requests about the phones of this process and passes on those about others."""

    def __init__(
        self, here: PhoneDesk, start_share: Callable[[Callable[[Share], None]], Share], *, processes: int = 0,
        stop: Callable[[], None],
    ) -> None:  # fmt: skip
        """Make the desk. ``start_share`` starts a process, which calls its argument at its end.

        ``processes`` is how many there are at most; 0: as suits the phones and this computer. ``stop`` is called when
        the lab is to end.
        """
        self._here = here
        self._start_share = start_share
        self._processes = processes
        self._stop = stop
        #: Called when phones came or went.
        self.changed: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        #: Held while a phone is added, since that may start a process.
        self._adding = threading.Lock()
        self._closing = False
        self._shares: list[Share] = []
        self._homes: dict[str, _Home] = {}
        #: Phone -> why it is gone, until it is removed or added again.
        self._lost: dict[str, str] = {}

    @property
    def phones(self) -> list[Answer]:
        """What was last told about each phone, in the order they were added."""
        with self._lock:
            return [home.about for home in self._homes.values()]

    @property
    def pids(self) -> list[int]:
        """All processes, the leader first."""
        with self._lock:
            return [os.getpid(), *(share.pid for share in self._shares)]

    def add_all(self, specs: Sequence[PhoneSpec]) -> None:
        """Switch phones on; raises as :meth:`ask` does for a request to add one."""
        with self._adding:
            self._make_room(len(specs))
            for spec in specs:
                self._add(spec)

    def ask(self, request: Request) -> Answer:
        """Answer a request; raises UsageError for a wrong one, DeviceError when it can't be done."""
        match request.get("request"):
            case "list":
                return self._list()
            case "add":
                spec = spec_of(request)
                with self._adding:
                    self._make_room(len(self.phones) + 1)
                    about = self._add(spec)
                self.changed()
                return {"phone": about}
            case "remove":
                self._remove(str(request.get("serial", "")))
                self.changed()
                return {}
            case "fault" | "clear":
                serial, home = self._find(str(request.get("serial", "")))
                return self._ask(home.desk, {**request, "serial": serial})
            case "stop":
                self._stop()
                return {}
            case _:
                return self._here.ask(request)

    def connected(self) -> bool:
        """Say whether an adb server is connected to a phone."""
        return any(phone["connections"] for phone in self._list()["phones"])

    def close(self) -> None:
        """End the shares; this process's phones belong to its lab."""
        with self._lock:
            self._closing = True
            shares = list(self._shares)
        for share in shares:
            share.release()
        end_s = time.monotonic() + _END_S
        for share in shares:
            share.close(end_s)

    # Phones

    def _make_room(self, phones: int) -> None:
        """Start the processes that so many phones want: all at once, since each takes a while.

        Raises DeviceError when one doesn't start; none of them is there then.
        """
        wanted = min(phones, self._processes) if self._processes else processes_for(phones, cores=os.cpu_count() or 1)
        fresh: list[Share] = []
        try:
            for _ in range(wanted - len(self.pids)):
                fresh.append(self._start_share(self._lose))
                with self._lock:
                    self._shares.append(fresh[-1])
            for share in fresh:
                share.wait_until_ready()
        except BaseException:
            for share in fresh:
                share.end()
                self._lose(share)
            raise

    def _add(self, spec: PhoneSpec) -> Answer:
        with self._lock:
            if spec.serial in self._homes:
                raise UsageError(f"there is a virtual phone {spec.serial} already")
            running = [home.desk for home in self._homes.values()]
            desks: list[Desk] = [self._here, *self._shares]
        desk = min(desks, key=running.count)
        about: Answer = self._ask(desk, {"request": "add", "phone": spec.to_json()})["phone"]
        with self._lock:
            self._homes[spec.serial] = _Home(desk=desk, about=about)
            self._lost.pop(spec.serial, None)
        if isinstance(desk, Share) and desk.ended:
            self._lose(desk)  # it ended before it was known to have this phone
        return about

    def _remove(self, named: str) -> None:
        with self._lock:
            if self._lost.pop(named, None) is not None:
                return
        serial, home = self._find(named)
        self._ask(home.desk, {"request": "remove", "serial": serial})
        with self._lock:
            self._homes.pop(serial, None)

    def _ask(self, desk: Desk, request: Request) -> Answer:
        """Ask for something that changes a phone: a process that ended over it is known to have when this returns."""
        try:
            return desk.ask(request)
        except DeviceError:
            if isinstance(desk, Share) and desk.ended:
                self._lose(desk)
            raise

    def _find(self, named: str) -> tuple[str, _Home]:
        """Return a phone by its serial number or its address; raise UsageError when there is none."""
        with self._lock:
            if named in self._homes:
                return named, self._homes[named]
            if named in self._lost:
                raise DeviceError(f"gone: {self._lost[named]}", serial=named, hint=AGAIN)
        self._list()  # an address may have changed
        with self._lock:
            for serial, home in self._homes.items():
                if home.about["address"] == named:
                    return serial, home
            known = ", ".join(self._homes) or "none"
        raise UsageError(f"there is no virtual phone {named!r}; there are: {known}")

    def _list(self) -> Answer:
        with self._lock:
            desks = list(dict.fromkeys(home.desk for home in self._homes.values()))
        with ThreadPoolExecutor(max(1, len(desks))) as pool:
            told = dict(zip(desks, pool.map(_phones_of, desks), strict=True))
        with self._lock:
            for phones in told.values():
                for about in phones if isinstance(phones, list) else ():
                    if home := self._homes.get(about["serial"]):
                        self._homes[about["serial"]] = dataclasses.replace(home, about=about)
            lost: dict[str, list[str]] = {}
            for serial, reason in self._lost.items():
                lost.setdefault(reason, []).append(serial)
            listed = []
            for serial, home in self._homes.items():
                if isinstance(reason_now := told.get(home.desk), str):
                    lost.setdefault(reason_now, []).append(serial)
                else:
                    listed.append(home.about)
        return {
            "phones": listed,
            "lost": [{"serials": serials, "reason": reason} for reason, serials in lost.items()],
        }  # fmt: skip

    def _lose(self, share: Share) -> None:
        """Note that a share has ended, and its phones with it."""
        with self._lock:
            if self._closing:
                return
            is_news = share in self._shares
            if is_news:
                self._shares.remove(share)
            lost = [serial for serial, home in self._homes.items() if home.desk is share]
            for serial in lost:
                del self._homes[serial]
                self._lost[serial] = share.ending
        if not is_news and not lost:
            return
        _LOG.warning("%s; its phones are gone: %s", share.ending, ", ".join(lost) or "none")
        self.changed()


def _phones_of(desk: Desk) -> list[Answer] | str:
    """Return what a process tells about its phones, or why it doesn't."""
    try:
        phones: list[Answer] = desk.ask({"request": "list"})["phones"]
    except DeviceError as error:
        return str(error)
    return phones
