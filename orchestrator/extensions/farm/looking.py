"""The phones of a farm's host as its worker announces them; those without a job are asked whether
they still answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from orchestrator.app.status import IN_QUARANTINE
from orchestrator.bootstrap import Attached, Settings, Workspace
from orchestrator.clock import Deadline
from orchestrator.config.profiles import KeptInventory
from orchestrator.devices.adb_server import is_tcp
from orchestrator.devices.discovery import KnownPhones, look_at
from orchestrator.errors import BenchfarmError, StoreError
from orchestrator.extensions.farm.manifest import dump, labels_of
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.ports import Observer
from orchestrator.records.case import Serial
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: How long a phone may take to answer once it is reconnected.
_ANSWER_S: Final = 10.0
_AT_ONCE: Final = 8
_REASON: Final = "it stopped answering while it had no job; it is reconnected again and again"


class Say(Protocol):
    """Tells people; ``level`` and further keys are for logs that programs read."""

    def __call__(self, text: str, /, *, level: str = "info", **keys: object) -> None:
        """Tell of something that happened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of a look at a host's phones."""

    #: None when it couldn't look.
    phones: Mapping[str, Announced] | None
    #: What is wrong with the host, empty for nothing.
    ails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What each of a host's jobs and looks opens its phones with."""

    settings: Settings
    #: What phones answered; one that is forgotten there is asked at the next look.
    asked: KnownPhones = field(default_factory=KnownPhones)
    #: One for all: jobs with connections of their own, on fifty hosts, are more than a database
    #: takes.
    store: Store | None = None
    inventory: KeptInventory | None = None

    def open(self, observer: Observer | None = None) -> Workspace:
        """Open this host's phones."""
        return Workspace(
            self.settings,
            known=self.asked,
            store=self.store,
            inventory=self.inventory,
            observer=observer,
        )


def usable_of(attached: Iterable[Attached]) -> set[str]:
    """Return the phones that work by one of their transports."""
    return {item.seen.serial for item in attached if item.seen.usable}


def hanging(
    before: Mapping[str, Attached],
    attached: Sequence[Attached],
    in_use: Collection[str],
    elsewhere: Callable[[], Collection[str]],
) -> dict[str, Attached]:
    """Return the phones that hang now: those that did before, and those of the attached ones that
    nobody uses.

    A phone on a cable that isn't listed was unplugged; one on a network is back only when it is
    connected here, or ``elsewhere``, at another host.
    """
    new = {
        item.seen.serial: item
        for item in reversed(attached)
        if item.seen.hangs and item.seen.serial not in in_use
    }
    found, listed, usable = (
        {**new, **before},
        {item.seen.serial for item in attached},
        usable_of(attached),
    )
    away = elsewhere() if found.keys() - listed else ()
    return {
        serial: item
        for serial, item in found.items()
        if serial and serial not in usable
        if serial in listed or (is_tcp(item.seen.address) and serial not in away)
    }


class HostPhones:
    """This host's phones, looked at again and again; one that has no job and hangs is reconnected."""

    def __init__(
        self, shared: Shared, queue: FarmQueue, host: str, *, idle_look_s: float, say: Say
    ) -> None:
        """Every ``idle_look_s`` (0: never) each phone without a job is asked whether it still
        answers.
        """
        self._shared = shared
        self._queue = queue
        self._host = host
        self._idle_look_s = idle_look_s
        self._say = say
        self._asked_at: dict[str, float] = {}
        self._woken_at: dict[str, float] = {}
        #: Phones that hung when they were last seen.
        self._hung: dict[str, Attached] = {}

    def look(self, known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        """Return the phones by serial number; facts are probed when a phone comes, and when it
        comes back.

        Of ``busy`` ones, and of those that others measure, nothing is probed: it would be measured
        with what they do. A fault of devices.yaml is reported too; meanwhile what it said before
        counts.
        """
        try:
            with self._shared.open() as workspace:
                found = self._look(workspace, known, busy)
                # Read also for a host without phones.
                kept = self._shared.inventory
                fault = kept.fault if workspace.inventory is not None and kept is not None else ""
            ails = f"what devices.yaml said before stays in force: {fault}" if fault else ""
            return Look(phones=found, ails=one_line(ails))
        except BenchfarmError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the next look may go better
            reason = f"{type(error).__name__}: {error}"
        return Look(phones=None, ails=one_line(f"its phones can't be looked at: {reason}"))

    def _look(
        self, workspace: Workspace, known: Mapping[str, Announced], busy: Collection[str]
    ) -> dict[str, Announced]:
        elsewhere, releases = self._elsewhere()

        def user_of(serial: str) -> str:
            """Return who uses a phone, empty for nobody; while the queue can't be asked, another
            host may.
            """
            if serial in busy:
                return "a job"
            is_elsewhere = elsewhere is None or serial in elsewhere
            return workspace.lease.live_holder(Serial(serial)) or (
                "another host" if is_elsewhere else ""
            )

        def used() -> Collection[str]:
            measured = known if elsewhere is None else known.keys() & set(elsewhere)
            return {*busy, *workspace.lease.live_holders(), *measured}

        for serial in self._due(known, self._asked_at):
            # One in use shows by its work that it answers.
            if not user_of(serial):
                self._shared.asked.forget(serial)
        for serial in releases:
            if reason := workspace.quarantine.release(Serial(serial)):
                self._say(
                    one_line(
                        f"{serial} is released from quarantine, as somebody asked for: {reason}"
                    )
                )
        found: dict[str, Announced] = {}
        attached = workspace.attached()
        for item in attached:
            # One that never said who it is goes by its server's name for it, which over USB is its
            # serial number.
            serial = item.seen.serial or item.seen.address
            phone = self._announced(workspace, item, known.get(serial), user_of)
            if not (serial in found and phone.unusable):
                found[serial] = phone
        self._wake(workspace, attached, used)
        # Also while its server lists it no more: it mustn't look as if somebody had unplugged it.
        return found | {
            serial: replace(known[serial], unusable=_REASON)
            for serial in self._hung
            if serial in known
        }

    def _due(self, serials: Iterable[str], last: dict[str, float]) -> list[str]:
        """Return the phones whose time has come again, noted in ``last``; a phone that is new there
        has just had it.
        """
        now_s = time.monotonic()
        due = [
            item
            for item in serials
            if self._idle_look_s and now_s - last.setdefault(item, now_s) >= self._idle_look_s
        ]
        last |= dict.fromkeys(due, now_s)
        return due

    def _wake(
        self,
        workspace: Workspace,
        attached: Sequence[Attached],
        used: Callable[[], Collection[str]],
    ) -> None:
        """Reconnect the phones that hang, all at once and again and again; those that are used are
        left alone.
        """
        if not self._idle_look_s:
            return
        for serial in sorted(usable_of(attached) & self._hung.keys()):
            self._say(f"{serial} answers again")
        in_use = used()
        self._hung = hanging(self._hung, attached, in_use, self._usable_elsewhere)
        for serial in self._hung:
            self._woken_at.setdefault(serial, -self._idle_look_s)
        if due := self._due(self._hung.keys() - in_use, self._woken_at):
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(due))) as pool:
                list(
                    pool.map(
                        lambda serial: self.connect_again(workspace, self._hung[serial], used), due
                    )
                )

    def connect_again(
        self, workspace: Workspace, item: Attached, used: Callable[[], Collection[str]]
    ) -> None:
        """Reconnect a phone; its USB port, and with it maybe others of its hub, is powered while no
        phone is used.
        """
        name = item.seen.serial
        if name in used() or item.server is None:
            return
        self._say(f"{name} has no job and doesn't answer; it is reconnected")
        try:
            item.server.reconnect(item.seen.address, Deadline(_ANSWER_S), fresh=True)
            seen = look_at(item.server, item.seen.address)
        except BenchfarmError as error:
            self._say(f"{name} is still away: {error}")
            return
        # Whoever began to use a phone meanwhile is seen, too.
        if (
            seen is not None
            and seen.hangs
            and not used()
            and workspace.rescuer.cycle_port(item.seen.usb)
        ):
            self._say(f"{name}: its USB port was powered off and on")

    def _elsewhere(self) -> tuple[Collection[str] | None, Collection[str]]:
        """Return the phones that other hosts measure, and this host's that are to be released from
        quarantine.

        None and nothing while the queue can't be asked.
        """
        try:
            return self._queue.busy_elsewhere(self._host), self._queue.take_releases(self._host)
        except StoreError:
            return None, ()

    def _usable_elsewhere(self) -> Collection[str]:
        usable = {"busy", "free", "held"}
        return {
            row["serial"]
            for row in self._queue.phones()
            if row["host"] != self._host and row["state"] in usable
        }

    def _announced(
        self,
        workspace: Workspace,
        attached: Attached,
        known: Announced | None,
        user_of: Callable[[str], str],
    ) -> Announced:
        """Return what is announced of a phone; one of which nothing is known can't be used, for a
        reason.
        """
        serial = Serial(attached.seen.serial or attached.seen.address)
        unusable = "" if attached.seen.usable else attached.seen.reason
        if not unusable and (kept_out := workspace.quarantine.reason(serial)):
            unusable = f"{IN_QUARANTINE}{kept_out}"
        facts = known.facts if known is not None else ""
        if not unusable and (known is None or known.unusable):
            user = user_of(serial)
            if not user:
                try:
                    facts = dump(workspace.open_phone(attached)[1])
                except BenchfarmError as error:
                    # One phone that doesn't answer mustn't hide the others.
                    unusable = one_line(str(error))
                    if known is None or known.unusable != unusable:
                        self._say(
                            one_line(f"{serial} can't be looked at: {error}"),
                            level="error",
                            serial=serial,
                        )
            elif not facts:
                unusable = f"in use by {user}"
        labels = workspace.inventory.get(serial)
        return Announced(
            facts=facts,
            unusable=unusable,
            labels=dump(labels_of(labels)) if labels is not None else "",
        )
