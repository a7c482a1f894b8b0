"""The phones of a farm's host as its worker announces them; those without a job are asked now and
then whether they still answer, and reconnected when they don't.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from orchestrator.app.attached import Attached, attached_devices, open_phone, with_known_gpu
from orchestrator.app.workspace import Workspace
from orchestrator.clock import Deadline
from orchestrator.config.declarations import KeptInventory
from orchestrator.devices.adb_server import is_tcp
from orchestrator.devices.discovery import KnownPhones
from orchestrator.errors import BenchfarmError
from orchestrator.extensions.farm.manifest import PhoneLabels, dump
from orchestrator.extensions.farm.queue import IN_QUARANTINE, Announced, FarmQueue
from orchestrator.ports import Observer
from orchestrator.records.case import Serial
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: How long a phone may take to answer once it is reconnected.
_ANSWER_S: Final = 10.0
_HANGS: Final = "it stopped answering while it had no job; it is being reconnected again and again"
_UNSEEN: Final = "its host can't look at its phones now"
#: Logs a line for people; ``level`` and further keys are for logs that programs read.
Say = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What each of a host's jobs and checks opens its phones with."""

    settings: Settings
    #: What phones answered; one that is forgotten there is asked at the next check.
    asked: KnownPhones = field(default_factory=KnownPhones)
    #: One for all: jobs with connections of their own, on fifty hosts, are more than a database
    #: takes.
    store: Store | None = None
    inventory: KeptInventory | None = None

    def open(self, observer: Observer | None = None) -> Workspace:
        """Open this host's phones."""
        workspace = Workspace(self.settings, store=self.store, observer=observer)
        workspace.known_phones, workspace.kept_inventory = self.asked, self.inventory
        return workspace


class HostPhones:
    """This host's phones, checked again and again."""

    def __init__(
        self, shared: Shared, queue: FarmQueue, host: str, *, idle_check_s: float, say: Say
    ) -> None:
        """Every ``idle_check_s`` (0: never) each phone without a job is asked whether it still
        answers.
        """
        self._shared = shared
        self._queue = queue
        self._host = host
        self._idle_check_s = idle_check_s
        self._say = say
        self._asked_s = time.monotonic()
        self._known: Mapping[str, Announced] = {}
        #: Phones that hung when they were last seen.
        self._hung: dict[str, Attached] = {}
        #: What is wrong with this host, empty for nothing.
        self.fault = ""

    def check(self, busy: Collection[str]) -> Mapping[str, Announced]:
        """Return the phones by serial number; facts are probed when a phone comes, and when it
        comes back.

        Of ``busy`` ones, and of those that others measure, nothing is probed: it would be measured
        with what they do. When it can't be done ``fault`` says why, and no phone is usable. A fault
        of devices.yaml is reported there too; meanwhile what it said before counts.
        """
        fault, found = "", None
        try:
            with self._shared.open() as workspace:
                found = self._checked(workspace, busy)
                kept = self._shared.inventory
                # Read also for a host without phones.
                if workspace.inventory is not None and kept is not None and kept.fault:
                    fault = f"what devices.yaml said before stays in force: {kept.fault}"
        except BenchfarmError as error:
            fault = f"its phones can't be looked at: {error}"
        except Exception as error:  # noqa: BLE001 - the next check may go better
            fault = f"its phones can't be looked at: {type(error).__name__}: {error}"
        before, self.fault = self.fault, one_line(fault)
        if self.fault not in {"", before}:
            self._say(self.fault, level="error")
        if found is None:
            return {serial: replace(item, unusable=_UNSEEN) for serial, item in self._known.items()}
        self._known = found | self._doubted(found, busy)
        return found

    def _doubted(
        self, found: Mapping[str, Announced], busy: Collection[str]
    ) -> dict[str, Announced]:
        """Return the working phones that were away: when their jobs are over they are probed."""
        return {
            serial: replace(before, unusable=_UNSEEN)
            for serial, before in self._known.items()
            if serial in busy and (before.unusable or serial not in found)
        }

    def _checked(self, workspace: Workspace, busy: Collection[str]) -> dict[str, Announced]:
        elsewhere = self._queue.busy_elsewhere(self._host)
        for serial in self._queue.take_releases(self._host):
            if reason := workspace.quarantine.release(Serial(serial)):
                told = f"{serial} is released from quarantine, as somebody asked for: {reason}"
                self._say(one_line(told))
        used = {*busy, *elsewhere, *workspace.lease.live_holders()}
        is_due = 0 < self._idle_check_s <= time.monotonic() - self._asked_s
        if is_due:
            self._asked_s = time.monotonic()
            # One in use shows by its work that it answers.
            for serial in self._known.keys() - used:
                self._shared.asked.forget(serial)

        def user_of(serial: str) -> str:
            if serial in busy:
                return "a job"
            holder = workspace.lease.live_holder(Serial(serial))
            return holder or ("another host" if serial in elsewhere else "")

        found: dict[str, Announced] = {}
        attached = attached_devices(workspace)
        for item in attached:
            # One that never said who it is goes by its server's name for it, which over USB is its
            # serial number.
            serial = item.seen.serial or item.seen.address
            phone = self._announced(workspace, item, self._known.get(serial), user_of)
            if not (serial in found and phone.unusable):
                found[serial] = phone
        if self._idle_check_s:
            self._hung = self._hanging(attached, used)
        for serial in self._hung.keys() - used if is_due else ():
            self._reconnect(serial, self._hung[serial])
        # Also while its server lists it no more: it mustn't look as if somebody had unplugged it.
        hung = self._hung.keys() & self._known.keys()
        return found | {serial: replace(self._known[serial], unusable=_HANGS) for serial in hung}

    def _hanging(self, attached: Sequence[Attached], used: Collection[str]) -> dict[str, Attached]:
        """Return the phones that hang now: those that did before, and those that nobody uses.

        A phone on a cable that isn't listed was unplugged; one on a network is back only when it is
        connected here.
        """
        listed = {item.seen.serial for item in attached}
        usable = {item.seen.serial for item in attached if item.seen.usable}
        for serial in sorted(usable & self._hung.keys()):
            self._say(f"{serial} answers again")
        new = {
            item.seen.serial: item
            for item in attached
            if item.seen.hangs and item.seen.serial and item.seen.serial not in used
        }
        return {
            serial: item
            for serial, item in {**new, **self._hung}.items()
            if serial not in usable and (serial in listed or is_tcp(item.seen.address))
        }

    def _reconnect(self, serial: str, item: Attached) -> None:
        if item.server is None:
            return
        self._say(f"{serial} has no job and doesn't answer; it is being reconnected")
        try:
            item.server.reconnect(item.seen.address, Deadline(_ANSWER_S), fresh=True)
        except BenchfarmError as error:
            self._say(one_line(f"{serial} is still away: {error}"))

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
                    now = open_phone(workspace, attached)[1]
                    facts = dump(with_known_gpu(now, workspace.store.devices()))
                except BenchfarmError as error:
                    # One phone that doesn't answer mustn't hide the others.
                    unusable = one_line(str(error))
                    if known is None or known.unusable != unusable:
                        told = one_line(f"{serial} can't be looked at: {error}")
                        self._say(told, level="error", serial=serial)
            elif not facts:
                unusable = f"in use by {user}"
        said, labels = workspace.inventory.get(serial), ""
        if said is not None:
            labels = dump(PhoneLabels(pools=tuple(said.pools), tags=tuple(said.tags)))
        return Announced(facts=facts, unusable=unusable, labels=labels)
