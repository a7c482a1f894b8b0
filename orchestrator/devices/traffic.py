"""Files on their way to phones beside phones that measure: never on one USB hub at the same time, unless allowed.

Phones of one hub share its way to the computer, so a file for one of them slows and disturbs what another one tells
while it measures. Each hub has turns: all measurements together, then all pushes that waited for their end, then all
measurements that waited for those. What begins to wait is in the next turn, so none waits for more than one turn of
each kind, however many phones there are. Nothing that waits holds anything that others wait for.

Among processes of one computer and user turns and limits hold by locks on files (hub_locks.py): a process has the hub
for its measurements or for its pushes, and begins no more of them when another process waits.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.devices.hub_locks import MEASURES, PUSHES, HubLocks, free
from orchestrator.errors import InterruptedByUserError
from orchestrator.records.plan import PushLimits

#: How often one who waits looks whether all was cancelled.
_LOOK_S: Final = 0.2
#: So often a hub's measurements may go on over a push that the computer's other pushes leave no place for.
_PASSED_OVER_MAX: Final = 3


def hub_of(usb: str) -> str:
    """Return the hub that a USB path leads through: ``1-2`` for ``usb:1-2.3`` and for ``1-2.3.1``; empty for no path.

    A hub behind a hub shares the first one's way to the computer. A phone at a port of the computer itself shares it
    with nobody, and is told by that port.
    """
    found = re.fullmatch(r"(?:usb:)?(\d+-\d+)(?:\.\d+)*", usb.strip())
    return found[1] if found else ""


@dataclass(slots=True, eq=False)
class _Ticket:
    number: int
    limits: PushLimits | None = None
    is_in: bool = False
    #: Among all processes' pushes.
    places: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Hub:
    name: str
    #: Whether measurements and pushes take turns there.
    has_turns: bool
    measuring: int = 0
    pushing: int = 0
    wants_to_measure: list[_Ticket] = field(default_factory=list)
    wants_to_push: list[_Ticket] = field(default_factory=list)
    #: Pushes of the present turn that haven't begun yet, because of the limits.
    turn: list[_Ticket] = field(default_factory=list)
    passed_over: int = 0
    pushed_last: bool = False

    @property
    def oldest(self) -> int:
        """The number of the push that has waited longest; a high one for none."""
        return min((ticket.number for ticket in (*self.turn, *self.wants_to_push)), default=1 << 62)

    @property
    def is_idle(self) -> bool:
        return not (self.measuring or self.pushing or self.wants_to_measure or self.wants_to_push or self.turn)


class HubTraffic:
    """Who may push and who may measure, for all phones of a process, beside others that use the same folder."""

    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder other processes aren't looked at."""
        self._locks = HubLocks(folder)
        #: Whether other processes keep anybody of this one from beginning.
        self._is_held_up = False
        self._changed = threading.Condition()
        self._hubs: dict[str, _Hub] = {}
        self._numbers = itertools.count()
        #: Files on their way from this computer.
        self._pushing = 0

    @contextlib.contextmanager
    def measuring(self, hub: str, *, cancelled: threading.Event | None = None) -> Generator[None]:
        """Keep files off a hub while the context lasts; raises InterruptedByUserError when cancelled while waiting."""
        if not hub:
            yield
            return
        with self._changed:
            ticket = _Ticket(number=next(self._numbers))
            self._hub(hub, has_turns=True).wants_to_measure.append(ticket)
        try:
            self._wait(ticket, cancelled)
            yield
        finally:
            with self._changed:
                if not self._withdraw(ticket):
                    self._hubs[hub].measuring -= 1
                self._settle()

    @contextlib.contextmanager
    def pushing(self, hub: str, limits: PushLimits, *, cancelled: threading.Event | None = None) -> Generator[None]:
        """Send one file while the context lasts; waits for the hub's measurements, then within the limits.

        Raises InterruptedByUserError when cancelled while waiting.
        """
        # Where both are allowed at once the hub's turns don't matter, its number of pushes does.
        name = f"{hub} beside" if hub and limits.beside_measurements else hub
        with self._changed:
            ticket = _Ticket(number=next(self._numbers), limits=limits)
            self._hub(name, has_turns=bool(hub) and name == hub).wants_to_push.append(ticket)
        try:
            self._wait(ticket, cancelled)
            yield
        finally:
            with self._changed:
                if not self._withdraw(ticket):
                    self._hubs[name].pushing -= 1
                    self._pushing -= 1
                    free(ticket.places)
                self._settle()

    def _hub(self, name: str, *, has_turns: bool) -> _Hub:
        return self._hubs.setdefault(name, _Hub(name=name, has_turns=has_turns))

    def _wait(self, ticket: _Ticket, cancelled: threading.Event | None) -> None:
        with self._changed:
            self._settle()
            while not ticket.is_in:
                if cancelled is not None and cancelled.is_set():
                    raise InterruptedByUserError
                if not self._changed.wait(_LOOK_S) and self._is_held_up:
                    self._settle()

    def _withdraw(self, ticket: _Ticket) -> bool:
        """Forget one who waits; False for one who was let in."""
        if ticket.is_in:
            return False
        for hub in self._hubs.values():
            for queue in (hub.wants_to_measure, hub.wants_to_push, hub.turn):
                if ticket in queue:
                    queue.remove(ticket)
        return True

    def _settle(self) -> None:
        """Let in everybody who may go on now."""
        self._is_held_up = False
        # The push that waited longest has the first claim to a place.
        for name, hub in sorted(self._hubs.items(), key=lambda item: item[1].oldest):
            # Those whose phones share nothing that is known keep to the computer's limit only.
            if not name:
                hub.turn += hub.wants_to_push
                hub.wants_to_push.clear()
            if not (hub.measuring or hub.pushing):
                self._locks.leave_room(name)
            self._settle_hub(hub, shares=bool(name))
            if hub.is_idle:
                self._locks.leave(name)
                del self._hubs[name]
        self._changed.notify_all()

    def _settle_hub(self, hub: _Hub, *, shares: bool) -> None:
        self._begin_pushes(hub, shares=shares)
        if hub.pushing or hub.turn:
            if not hub.wants_to_measure:
                self._begin_turn(hub, shares=shares)
            return
        if hub.measuring:
            # Who comes while a push waits is in the next turn.
            if not hub.wants_to_push:
                self._begin_measurements(hub)
            return
        if hub.wants_to_push and not (hub.wants_to_measure and hub.pushed_last):
            if hub.wants_to_measure and self._is_full(hub.wants_to_push[0]) and hub.passed_over < _PASSED_OVER_MAX:
                # Other hubs' pushes leave no place: it needn't stand still for that.
                hub.passed_over += 1
                self._begin_measurements(hub)
                return
            self._begin_turn(hub, shares=shares)
            return
        self._begin_measurements(hub)

    def _begin_turn(self, hub: _Hub, *, shares: bool) -> None:
        hub.passed_over, hub.pushed_last = 0, True
        hub.turn += hub.wants_to_push
        hub.wants_to_push.clear()
        self._begin_pushes(hub, shares=shares)

    def _is_full(self, ticket: _Ticket) -> bool:
        return ticket.limits is not None and self._pushing >= ticket.limits.per_host

    def _begin_pushes(self, hub: _Hub, *, shares: bool) -> None:
        for ticket in list(hub.turn):
            assert ticket.limits is not None, "pushes have limits"
            if self._is_full(ticket) or (shares and hub.pushing >= ticket.limits.per_hub):
                continue
            if not self._is_let_push(hub, ticket, ticket.limits):
                self._is_held_up = True
                continue
            hub.turn.remove(ticket)
            hub.pushing += 1
            self._pushing += 1
            ticket.is_in = True

    def _is_let_push(self, hub: _Hub, ticket: _Ticket, limits: PushLimits) -> bool:
        """Whether no other process keeps a push from beginning; it has its places then."""
        if hub.has_turns and hub.pushing and self._locks.is_awaited(hub.name):
            return False
        wanted = [("", limits.per_host), *([(hub.name, limits.per_hub)] if hub.name else [])]
        places = self._locks.places(wanted)
        if places is None:
            return False
        if hub.has_turns and not self._locks.enter(hub.name, PUSHES):
            free(places)
            return False
        ticket.places = places
        return True

    def _begin_measurements(self, hub: _Hub) -> None:
        if not hub.wants_to_measure:
            return
        if (hub.measuring and self._locks.is_awaited(hub.name)) or not self._locks.enter(hub.name, MEASURES):
            self._is_held_up = True
            return
        for ticket in hub.wants_to_measure:
            ticket.is_in = True
        hub.measuring += len(hub.wants_to_measure)
        hub.pushed_last = False
        hub.wants_to_measure.clear()


@cache
def traffic_in(folder: Path) -> HubTraffic:
    """Return the traffic of the processes that share a folder: all phones share their computer's way to them."""
    return HubTraffic(folder)


#: Of phones that are looked at and not measured.
_TRAFFIC: Final = HubTraffic()


class Lane:
    """One phone's part of the traffic."""

    def __init__(
        self,
        hub: str = "",
        limits: Callable[[], PushLimits] = PushLimits,
        *,
        traffic: HubTraffic = _TRAFFIC,
        cancelled: threading.Event | None = None,
    ) -> None:
        """``hub`` is with whom the phone shares its way to the computer; empty when that isn't known."""
        self.hub = hub
        self._limits = limits
        self._traffic = traffic
        self._cancelled = cancelled

    def pushing(self) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.pushing."""
        return self._traffic.pushing(self.hub, self._limits(), cancelled=self._cancelled)

    def measuring(self, *, cancelled: threading.Event | None = None) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.measuring."""
        return self._traffic.measuring(self.hub, cancelled=cancelled or self._cancelled)
