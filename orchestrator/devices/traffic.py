"""Files on their way to phones beside phones that measure: never on one USB hub at the same time, unless allowed.

Phones of one hub share its way to the computer, so a file for one of them slows and disturbs what another one tells
while it measures. Each hub has turns: all measurements together, then all pushes that waited for their end, then all
measurements that waited for those. What begins to wait is in the next turn, so none waits for more than one turn of
each kind, however many phones there are. Nothing that waits holds anything that others wait for.

Among processes of one computer turns and limits hold by locks on files of a folder (hub_folder.py, hub_locks.py): a
process has the hub for its measurements or for its pushes, and begins no more of them when another process waits. A
process that gave no sign of life for five minutes isn't waited for: turns keep runs from being disturbed, they don't
hold up the night.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.devices.hub_locks import MEASURES, PUSHES, HubLocks
from orchestrator.errors import InterruptedByUserError
from orchestrator.records.plan import PushLimits
from orchestrator.units import format_duration

#: How often one who waits looks whether all was cancelled.
_LOOK_S: Final = 0.2
#: So often a hub's measurements may go on over a push that the computer's other pushes leave no place for.
_PASSED_OVER_MAX: Final = 3
#: After so long without a sign of life another process (a stopped one, say) isn't waited for any more. Those that live
#: are, however long their runs and pushes take.
_SILENT_S: Final = 300.0
#: So many signs of life a process gives in that time.
_SIGNS: Final = 10
#: So long somebody has waited when it is said for which processes.
_TOLD_S: Final = 60.0


def _not_told(text: str) -> None:
    """Take a note that nobody wants to have."""


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
    hub: str
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

    def __init__(self, folder: Path | None = None, *, silent_s: float = _SILENT_S, told_s: float = _TOLD_S) -> None:
        """Without a folder other processes aren't looked at.

        ``silent_s``: when a process without a sign of life isn't waited for any more; ``told_s``: how long somebody
        has waited when it is told for which processes.
        """
        self._locks = HubLocks(folder, silent_s=silent_s)
        self._silent_s = silent_s
        self._told_s = told_s
        self._gives_signs = False
        #: Whether other processes keep anybody of this one from beginning.
        self._is_held_up = False
        self._changed = threading.Condition()
        self._hubs: dict[str, _Hub] = {}
        self._numbers = itertools.count()
        #: Files on their way from this computer.
        self._pushing = 0

    @contextlib.contextmanager
    def measuring(
        self, hub: str, *, cancelled: threading.Event | None = None, on_note: Callable[[str], None] = _not_told
    ) -> Generator[None]:
        """Keep files off a hub while the context lasts; raises InterruptedByUserError when cancelled while waiting.

        ``on_note`` hears which processes are waited for, after a while, and which aren't any more.
        """
        if not hub:
            yield
            return
        with self._changed:
            ticket = _Ticket(number=next(self._numbers), hub=hub)
            self._hub(hub, has_turns=True).wants_to_measure.append(ticket)
        try:
            self._wait(ticket, cancelled, on_note)
            yield
        finally:
            with self._changed:
                if not self._withdraw(ticket):
                    self._hubs[hub].measuring -= 1
                self._settle()

    @contextlib.contextmanager
    def pushing(
        self,
        hub: str,
        limits: PushLimits,
        *,
        cancelled: threading.Event | None = None,
        on_note: Callable[[str], None] = _not_told,
    ) -> Generator[None]:
        """Send one file while the context lasts; waits for the hub's measurements, then within the limits.

        Raises InterruptedByUserError when cancelled while waiting. ``on_note``: see `measuring`.
        """
        # Where both are allowed at once the hub's turns don't matter, its number of pushes does.
        name = f"{hub} beside" if hub and limits.beside_measurements else hub
        with self._changed:
            ticket = _Ticket(number=next(self._numbers), hub=name, limits=limits)
            self._hub(name, has_turns=bool(hub) and name == hub).wants_to_push.append(ticket)
        try:
            self._wait(ticket, cancelled, on_note)
            yield
        finally:
            with self._changed:
                if not self._withdraw(ticket):
                    self._hubs[name].pushing -= 1
                    self._pushing -= 1
                    self._locks.free(ticket.places)
                self._settle()

    def _hub(self, name: str, *, has_turns: bool) -> _Hub:
        return self._hubs.setdefault(name, _Hub(name=name, has_turns=has_turns))

    def _wait(self, ticket: _Ticket, cancelled: threading.Event | None, on_note: Callable[[str], None]) -> None:
        told_s = time.monotonic() + self._told_s
        with self._changed:
            self._settle()
        while True:
            with self._changed:
                if ticket.is_in:
                    silent = self._locks.take_passed_over(ticket.hub)
                    break
                if cancelled is not None and cancelled.is_set():
                    raise InterruptedByUserError
                if not self._changed.wait(_LOOK_S) and self._is_held_up:
                    self._settle()
                others = self._locks.waited_for(ticket.hub) if self._is_held_up and not ticket.is_in else ()
            if others and time.monotonic() >= told_s:
                told_s = math.inf
                on_note(
                    f"waits for its turn on its hub: {_processes(others)} measures, sends files or waits to; after "
                    f"{format_duration(self._silent_s)} without a sign of life it isn't waited for any more"
                )
        if silent:
            on_note(
                f"goes on without its turn on its hub: {_processes(silent)} has the turn and gave no sign of life for "
                f"{format_duration(self._silent_s)}; is it stopped?"
            )

    def _give_signs(self) -> None:
        """Show other processes that this one lives, as long as they may have to wait for it."""
        while True:
            time.sleep(self._silent_s / _SIGNS)
            with self._changed:
                if not self._locks.renew():
                    self._gives_signs = False
                    return

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
        if self._locks.are_held and not self._gives_signs:
            self._gives_signs = True
            threading.Thread(target=self._give_signs, name="hub locks", daemon=True).start()
        self._changed.notify_all()

    def _settle_hub(self, hub: _Hub, *, shares: bool) -> None:
        self._begin_pushes(hub, shares=shares)
        if hub.pushing or (hub.turn and not self._is_passed_over(hub)):
            if not hub.wants_to_measure:
                self._begin_turn(hub, shares=shares)
            return
        if hub.turn:
            hub.wants_to_push[:0] = hub.turn
            hub.turn.clear()
        if hub.measuring:
            # Who comes while a push waits is in the next turn.
            if not hub.wants_to_push:
                self._begin_measurements(hub)
            return
        if hub.wants_to_push and not (hub.wants_to_measure and hub.pushed_last):
            if self._is_passed_over(hub):
                if self._begin_measurements(hub):
                    hub.passed_over += 1
                return
            self._begin_turn(hub, shares=shares)
            return
        self._begin_measurements(hub)

    def _begin_turn(self, hub: _Hub, *, shares: bool) -> None:
        hub.turn += hub.wants_to_push
        hub.wants_to_push.clear()
        self._begin_pushes(hub, shares=shares)

    def _is_passed_over(self, hub: _Hub) -> bool:
        """Whether a hub's measurements go before its pushes, which have no place: it needn't stand still for those."""
        if not hub.wants_to_measure or hub.passed_over >= _PASSED_OVER_MAX:
            return False
        first = (*hub.turn, *hub.wants_to_push)[0]
        assert first.limits is not None, "pushes have limits"
        if self._is_full(first):
            return True
        places = self._locks.places([("", first.limits.per_host)])
        if places is None:
            self._is_held_up = True
            return True
        self._locks.free(places)
        return False

    def _is_full(self, ticket: _Ticket) -> bool:
        return ticket.limits is not None and self._pushing >= ticket.limits.per_host

    def _begin_pushes(self, hub: _Hub, *, shares: bool) -> None:
        for ticket in list(hub.turn):
            assert ticket.limits is not None, "pushes have limits"
            if self._is_full(ticket):
                # Others may use the hub meanwhile.
                self._locks.leave_gate(hub.name)
                continue
            if shares and hub.pushing >= ticket.limits.per_hub:
                continue
            if not self._is_let_push(hub, ticket, ticket.limits):
                self._is_held_up = True
                continue
            hub.turn.remove(ticket)
            hub.passed_over, hub.pushed_last = 0, True
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
            self._locks.leave_gate(hub.name)
            return False
        if hub.has_turns and not self._locks.enter(hub.name, PUSHES):
            self._locks.free(places)
            return False
        ticket.places = places
        return True

    def _begin_measurements(self, hub: _Hub) -> bool:
        """Let in all that want to measure; False when there are none or other processes keep them from it."""
        if not hub.wants_to_measure:
            return False
        if (hub.measuring and self._locks.is_awaited(hub.name)) or not self._locks.enter(hub.name, MEASURES):
            self._is_held_up = True
            return False
        for ticket in hub.wants_to_measure:
            ticket.is_in = True
        hub.measuring += len(hub.wants_to_measure)
        hub.pushed_last = False
        hub.wants_to_measure.clear()
        return True


def _processes(pids: Sequence[int]) -> str:
    return f"process {', '.join(map(str, pids))}"


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
        on_note: Callable[[str], None] = _not_told,
    ) -> None:
        """``hub`` is with whom the phone shares its way to the computer; empty when that isn't known.

        ``on_note`` hears which other processes are waited for.
        """
        self.hub = hub
        self._limits = limits
        self._traffic = traffic
        self._cancelled = cancelled
        self._on_note = on_note

    def pushing(self) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.pushing."""
        return self._traffic.pushing(self.hub, self._limits(), cancelled=self._cancelled, on_note=self._on_note)

    def measuring(self, *, cancelled: threading.Event | None = None) -> contextlib.AbstractContextManager[None]:
        """See HubTraffic.measuring."""
        return self._traffic.measuring(self.hub, cancelled=cancelled or self._cancelled, on_note=self._on_note)
