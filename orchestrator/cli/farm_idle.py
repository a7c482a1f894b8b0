"""Phones without a job: asked now and then whether they still answer, and connected anew when they don't."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from orchestrator.bootstrap import Attached
from orchestrator.clock import Deadline
from orchestrator.devices.discovery import KnownPhones, look_at
from orchestrator.errors import BenchfarmError

#: How long a phone may take to answer once it is connected anew.
_ANSWER_S: Final = 10.0
_AT_ONCE: Final = 8
_REASON: Final = "it stopped answering while it had no job; it is connected anew again and again"


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
        self, attached: Sequence[Attached], busy: Collection[str], *, cycle_port: Callable[[str], bool]
    ) -> Mapping[str, str]:
        """Connect those anew that hang, all at once and again and again; return who is away, with the reason.

        ``cycle_port`` powers a USB port off and on: it is asked for only while no phone of this host does a job.
        """
        now_s = time.monotonic()
        for item in attached:
            serial = item.seen.serial
            if item.seen.usable and self._away.pop(serial, None) is not None:
                self._say(f"{serial} answers again")
            elif serial and item.seen.hangs and serial not in busy and self._every_s:
                self._away.setdefault(serial, item)
        due = [
            item
            for serial, item in self._away.items()
            if serial not in busy and now_s - self._woken_at.get(serial, -self._every_s) >= self._every_s
        ]
        self._woken_at |= {item.seen.serial: now_s for item in due}
        if due:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(due))) as pool:
                list(pool.map(lambda item: self._connect_anew(item, None if busy else cycle_port), due))
        return dict.fromkeys(self._away, _REASON)

    def _connect_anew(self, item: Attached, cycle_port: Callable[[str], bool] | None) -> None:
        name = item.seen.serial
        self._say(f"{name} has no job and doesn't answer; it is connected anew")
        try:
            item.server.reconnect(item.seen.address, Deadline(_ANSWER_S), anew=True)
            seen = look_at(item.server, item.seen.address)
        except BenchfarmError as error:
            self._say(f"{name} is still away: {error}")
            return
        if seen is not None and seen.hangs and cycle_port is not None and cycle_port(item.seen.usb):
            self._say(f"{name}: its USB port was powered off and on")
