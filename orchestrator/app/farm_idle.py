"""Phones without a job: asked now and then whether they still answer, and reconnected when they don't."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from orchestrator.bootstrap import Attached
from orchestrator.clock import Deadline
from orchestrator.devices.discovery import KnownPhones, look_at
from orchestrator.devices.server import AdbServer
from orchestrator.errors import BenchfarmError

#: How long a phone may take to answer once it is reconnected.
_ANSWER_S: Final = 10.0
_AT_ONCE: Final = 8
_REASON: Final = "it stopped answering while it had no job; it is reconnected again and again"


class IdlePhones:
    """Knows when each phone of a host was last asked; a phone that does a job, or is held, is never asked."""

    def __init__(self, asked: KnownPhones, *, every_s: float, say: Callable[[str], None]) -> None:
        """``asked`` has a phone asked at the next look once it forgets it; ``every_s``: 0 is never."""
        self._asked = asked
        self._every_s = every_s
        self._say = say
        self._asked_at: dict[str, float] = {}
        self._woken_at: dict[str, float] = {}
        #: Phones that hung when they were last seen.
        self._away: dict[str, Attached] = {}

    def have_asked(self, serials: Iterable[str], *, in_use: Callable[[str], bool]) -> None:
        """Have those asked at the next look whose time has come; one in use shows by its work that it answers."""
        now_s = time.monotonic()
        for serial in serials:
            if now_s - self._asked_at.setdefault(serial, now_s) < self._every_s or not self._every_s:
                continue
            self._asked_at[serial] = now_s
            if not in_use(serial):
                self._asked.forget(serial)

    def wake(
        self,
        attached: Sequence[Attached],
        *,
        used: Callable[[], Collection[str]],
        elsewhere: Callable[[], Collection[str]],
        cycle_port: Callable[[str], bool],
    ) -> Mapping[str, str]:
        """Reconnect those that hang, all at once and again and again; return who is away, with the reason.

        ``used`` are those that do a job or that any process of this host uses: they are left alone. ``elsewhere`` are
        those that other hosts can use: one of them that this host has no more is forgotten. ``cycle_port`` powers a
        USB port off and on, and with it maybe others of its hub: it is asked for only while no phone is used.
        """
        # One that works by one of its transports isn't away.
        usable = {item.seen.serial for item in attached if item.seen.usable}
        for serial in usable & self._away.keys():
            del self._away[serial]
            self._say(f"{serial} answers again")
        self._forget_moved(attached, elsewhere)
        in_use = used()
        for item in attached:
            serial = item.seen.serial
            if serial and item.seen.hangs and serial not in usable and serial not in in_use and self._every_s:
                self._away.setdefault(serial, item)
        now_s = time.monotonic()
        due = [
            item
            for serial, item in self._away.items()
            if serial not in in_use and now_s - self._woken_at.get(serial, -self._every_s) >= self._every_s
        ]
        self._woken_at |= {item.seen.serial: now_s for item in due}
        if due:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(due))) as pool:
                list(pool.map(lambda item: self._connect_again(item, used, cycle_port), due))
        return dict.fromkeys(self._away, _REASON)

    def _forget_moved(self, attached: Sequence[Attached], elsewhere: Callable[[], Collection[str]]) -> None:
        """Forget those that were plugged into another host."""
        gone = self._away.keys() - {item.seen.serial for item in attached if item.seen.state == "device"}
        for serial in gone.intersection(elsewhere()) if gone else ():
            del self._away[serial]
            self._say(f"{serial} is at another host now")

    def _connect_again(
        self, item: Attached, used: Callable[[], Collection[str]], cycle_port: Callable[[str], bool]
    ) -> None:
        name = item.seen.serial
        if name in used() or not isinstance(item.server, AdbServer):
            return
        self._say(f"{name} has no job and doesn't answer; it is reconnected")
        try:
            item.server.reconnect(item.seen.address, Deadline(_ANSWER_S), fresh=True)
            seen = look_at(item.server, item.seen.address)
        except BenchfarmError as error:
            self._say(f"{name} is still away: {error}")
            return
        # Whoever began to use a phone meanwhile is seen, too.
        if seen is not None and seen.hangs and not used() and cycle_port(item.seen.usb):
            self._say(f"{name}: its USB port was powered off and on")
