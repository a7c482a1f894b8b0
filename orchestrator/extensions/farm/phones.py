"""The phones of a farm: those that a plan selects, now and later; serial numbers that several phones
have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from orchestrator.clock import Deadline
from orchestrator.errors import BenchfarmError, DeviceBusyError, NoDeviceError, PlanError
from orchestrator.extensions.farm.job_table import NO_JOBS, can_have_jobs
from orchestrator.extensions.farm.manifest import (
    dump,
    read_facts,
    read_labels,
    read_manifest,
)
from orchestrator.extensions.farm.queue import GONE_S, IN_QUARANTINE, Announced, FarmQueue
from orchestrator.plugins import (
    Attached,
    LiveInventory,
    PhoneCache,
    Workspace,
    attached_devices,
    away_since,
    check_selection,
    choose,
    is_tcp,
    mismatch_reason,
    open_phone,
    restore_phones,
    with_stored_gpu,
)
from orchestrator.ports import Observer
from orchestrator.records import frozen
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, Labels, phone_differences
from orchestrator.records.plan import DeviceSelection
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

_Row = Mapping[str, Any]


def choose_phones(
    queue: FarmQueue, selection: DeviceSelection
) -> tuple[list[DeviceFacts], dict[str, str], dict[str, str]]:
    """Return the announced phones that a plan selects, each once; the others with the reason; and
    those of the others that the plan expects nevertheless (named, or offline), with the reason.

    A phone's pools and tags are those that any of its hosts announces. Raises NoDeviceError when
    none is selected.
    """
    candidates, left_out = usable(queue.phones(), selection.serials)
    offline = {row["serial"]: row for row in queue.away() if can_have_jobs(row["serial"])}
    away = {
        serial: f"away {away_since(offline[serial])}" for serial in _fitting(selection, offline)
    }
    left_out |= away
    if serials := selection.serials:
        left_out = {
            serial: left_out.get(serial, "no host has announced it")
            for serial in serials
            if serial not in candidates
        }
        candidates = {serial: row for serial, row in candidates.items() if serial in serials}
    facts, labels = _facts_and_labels(candidates)
    choice = choose(selection, facts, labels)
    missed = dict(left_out) if serials and selection.any is None else away
    left_out |= {str(serial): why for serial, why in {**choice.unfit, **choice.unneeded}.items()}
    if not choice.chosen:
        reasons = "".join(f"\n  {serial}: {reason}" for serial, reason in left_out.items())
        raise NoDeviceError(
            f"no phone that a host has announced fits the plan{reasons}",
            hint="'benchfarm farm status' lists what is announced",
        )
    if choice.lacking:
        left_out["plan"] = choice.lacking
    return [item for item in facts if item.serial in choice.chosen], left_out, missed


def check_names(workspace: Workspace, queue: FarmQueue, selection: DeviceSelection) -> None:
    """Raise UsageError for a profile that neither this computer nor any host has, and for a pool or
    tag that no host has announced; this computer's own ones don't count.
    """
    rows = [*queue.away(), *queue.phones()]
    facts = [read_facts(row["facts"]) for row in rows if row["facts"]]
    check_selection(workspace, selection, facts, [read_labels(row["labels"]) for row in rows])


def _facts_and_labels(
    announced: Mapping[str, _Row],
) -> tuple[list[DeviceFacts], dict[Serial, Labels]]:
    """Return facts and labels of announced phones; raises PlanError for unreadable ones."""
    facts = [read_facts(row["facts"]) for row in announced.values()]
    return facts, {Serial(key): read_labels(row["labels"]) for key, row in announced.items()}


def usable(
    rows: Iterable[_Row], serials: Collection[str]
) -> tuple[dict[str, _Row], dict[str, str]]:
    """Return the phones that can have a job, each with the row of its best host, and the others
    with the reason.

    A phone in ``serials`` may wait until it is usable, but not one without facts, nor one whose
    serial number several phones have: their results would be mixed.
    """

    def rank(row: _Row) -> tuple[object, ...]:
        is_unknown = row["serial"] in serials and not row["facts"]
        return is_unknown, row["silent_s"] > GONE_S, bool(row["unusable"]), row["silent_s"]

    best: dict[str, _Row] = {}
    for row in sorted(rows, key=rank):
        best.setdefault(row["serial"], row)
    excluded = {}
    for serial, row in best.items():
        may_wait = serial in serials and row["facts"]
        if not can_have_jobs(serial):
            excluded[serial] = NO_JOBS
        elif row["state"] == "clash":
            excluded[serial] = row["reason"]
        elif serial not in serials and row["silent_s"] > GONE_S:
            excluded[serial] = f"{row['host']} wasn't heard for {format_duration(row['silent_s'])}"
        elif row["unusable"] and not may_wait:
            excluded[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in excluded}, excluded


#: A serial number and two hosts' facts of it that differ only by the boot.
Doubt = tuple[str, str, str]


def add_new_phones(
    queue: FarmQueue, phones: Mapping[str, Announced], doubts: set[Doubt]
) -> list[str]:
    """Record serial numbers that several phones have, and add a host's other phones to the open
    submissions that select them; return lines for people.

    ``doubts`` are passed from call to call.
    """
    serials = [serial for serial, item in phones.items() if item.facts and can_have_jobs(serial)]
    sightings = queue.sightings(serials)
    lines = _clashes(queue, sightings, doubts)
    labels = {row["serial"]: row["labels"] for row in sightings if row["is_live"]}
    free: dict[str, _Row] = {
        serial: {"facts": phones[serial].facts, "labels": labels.get(serial, ())}
        for serial in sorted({*serials} - queue.clashes().keys())
        if not phones[serial].unusable
    }
    for name, document in queue.to_join(free) if free else ():
        try:
            fitting = _fitting(read_manifest(document).plan.devices, free)
            added = queue.join(name, {serial: free[serial]["facts"] for serial in fitting})
        except PlanError as error:
            # One unreadable submission mustn't hide the others.
            lines.append(f"{name}: no phone can be added: {error}")
            continue
        lines += [f"{name}: {serial} is new and was added" for serial in added]
    return lines


def _fitting(selection: DeviceSelection, rows: Mapping[str, _Row]) -> list[str]:
    """Return the serial numbers of the phones that match a selection, by the pools and tags of all
    their hosts; raises PlanError.

    Empty for a plan for a number of phones, or for one of each kind: it chooses among the phones
    that are there at submission.
    """
    if selection.any is not None or selection.one_of_each:
        return []
    facts, labels = _facts_and_labels(rows)
    return [
        item.serial
        for item in facts
        if (not selection.serials or item.serial in selection.serials)
        and not mismatch_reason(selection, item, labels.get(item.serial))
    ]


def _clashes(queue: FarmQueue, sightings: Sequence[_Row], doubts: set[Doubt]) -> list[str]:
    """Record serial numbers of which hosts have seen two different phones; return lines for people.

    A phone that was just restarted looks like two, until both hosts have probed it again.
    """
    lines, before = [], set(doubts)
    doubts.clear()
    for row, other in combinations(sightings, 2):
        if row["serial"] != other["serial"]:
            continue
        first, second = read_facts(row["facts"]), read_facts(other["facts"])
        are_there = row["is_live"] and other["is_live"]
        differences = phone_differences(first, second, at_once=are_there)
        doubt = (row["serial"], row["facts"], other["facts"])
        if differences == "boot" and doubt not in before:
            doubts.add(doubt)
        elif differences:
            reason = (
                f"several phones have this serial number: a {first.title} at {row['host']}, a"
                f" {second.title} at {other['host']} (not the same {differences});"
                f" 'benchfarm farm forget phone:{row['serial']}' when only one is left"
            )
            queue.remember_clash(row["serial"], reason)
            lines.append(f"{row['serial']}: {reason}")
    return lines


#: Seconds in which a reconnected phone must answer.
_ANSWER_S: Final = 10.0
_HANGS: Final = "it stopped answering while it had no job; its host keeps reconnecting it"
_RESTORING: Final = "it is being restored, as a job or command that ended early left it changed"
#: Seconds for which the other phones wait until changed ones are restored.
_RESTORED_S: Final = 20.0
_UNSEEN: Final = "its host can't check its phones now"
#: Logs a text as one line for people; ``level`` and further keys are for logs that programs read.
Say = Callable[..., None]


@frozen
class Shared:
    """State that a host's jobs and checks share for opening its phones."""

    settings: Settings
    #: Cached identities of phones; one that is forgotten there is asked at the next check.
    known_phones: PhoneCache = field(default_factory=PhoneCache)
    #: One store for all: a connection per job, on fifty hosts, is more than a database allows.
    store: Store | None = None
    inventory: LiveInventory | None = None

    def open(self, observer: Observer | None = None) -> Workspace:
        """Open this host's phones."""
        workspace = Workspace(self.settings, store=self.store, observer=observer)
        workspace.known_phones, workspace.live_inventory = self.known_phones, self.inventory
        return workspace


class HostPhones:
    """This host's phones, checked at each poll."""

    def __init__(
        self, shared: Shared, queue: FarmQueue, host: str, *, idle_check_s: float, say: Say
    ) -> None:
        """``idle_check_s``: interval of the checks whether idle phones answer; 0: no checks."""
        self._shared = shared
        self._queue = queue
        self._host = host
        self._idle_check_s = idle_check_s
        self._say = say
        self._next_check = Deadline(idle_check_s)
        self._phones: Mapping[str, Announced] = {}
        #: Phones that hung at the last check.
        self._hung: dict[str, Attached] = {}
        #: The restorings of phones since they appeared, or since the last check of idle phones.
        self._restorings: dict[str, threading.Thread] = {}
        #: The fault of this host; empty for none.
        self.fault = ""

    def check(self, busy: Collection[str]) -> Mapping[str, Announced]:
        """Return the phones by serial number. Phones that were left changed are restored
        first; facts are probed when a phone appears or reappears.

        ``busy`` phones, and those that others measure, aren't probed: that would disturb the
        measurement. If the check fails, ``fault`` has the reason and no phone is usable. A fault of
        devices.yaml is reported there too; its previous content stays in force.
        """
        fault, phones = "", None
        try:
            with self._shared.open() as workspace:
                phones = self._checked_phones(workspace, busy)
                inventory = self._shared.inventory
                # Read also for a host without phones.
                if workspace.inventory is not None and inventory is not None and inventory.fault:
                    fault = f"the previous devices.yaml stays in force: {inventory.fault}"
        except BenchfarmError as error:
            fault = f"its phones can't be checked: {error}"
        except Exception as error:  # noqa: BLE001 - the next check may go better
            fault = f"its phones can't be checked: {type(error).__name__}: {error}"
        before, self.fault = self.fault, one_line(fault)
        if self.fault not in {"", before}:
            self._say(self.fault, level="error")
        if phones is None:
            return {
                serial: replace(item, unusable=_UNSEEN) for serial, item in self._phones.items()
            }
        self._phones = phones | self._unprobed(phones, busy)
        return phones

    def _unprobed(
        self, phones: Mapping[str, Announced], busy: Collection[str]
    ) -> dict[str, Announced]:
        """Return the busy phones that were away: they are probed when their jobs are over."""
        return {
            serial: replace(before, unusable=_UNSEEN)
            for serial, before in self._phones.items()
            if serial in busy and (before.unusable or serial not in phones)
        }

    def _checked_phones(self, workspace: Workspace, busy: Collection[str]) -> dict[str, Announced]:
        elsewhere = self._queue.busy_elsewhere(self._host)
        for serial in self._queue.take_releases(self._host):
            if reason := workspace.quarantine.release(Serial(serial)):
                message = f"{serial} is released from quarantine on request: {reason}"
                self._say(message)
        users = {
            **dict.fromkeys(elsewhere, "another host"),
            **workspace.lease.live_holders(),
            **dict.fromkeys(busy, "a job"),
        }
        is_due = self._idle_check_s > 0 and self._next_check.expired
        if is_due:
            self._next_check = Deadline(self._idle_check_s)
            # A phone in use answers by its work.
            for serial in self._phones.keys() - users.keys():
                self._shared.known_phones.forget(serial)
        phones: dict[str, Announced] = {}
        attached = attached_devices(workspace)
        present = {item.seen.serial for item in attached if item.seen.usable}
        self._restorings = {
            serial: thread
            for serial, thread in self._restorings.items()
            if thread.is_alive() or (serial in present and not is_due)
        }
        self._restore(present.intersection(workspace.unrestored_phones()) - users.keys())
        for item in attached:
            serial = item.seen.name
            phone = self._announced(workspace, item, self._phones.get(serial), users.get(serial))
            if not (serial in phones and phone.unusable):
                phones[serial] = phone
        if self._idle_check_s:
            self._hung = self._hanging(attached, users)
        for serial in self._hung.keys() - users.keys() if is_due else ():
            self._reconnect(serial, self._hung[serial])
        # Also while its server doesn't list it: it must not look unplugged.
        hung = self._hung.keys() & self._phones.keys()
        return phones | {serial: replace(self._phones[serial], unusable=_HANGS) for serial in hung}

    def _restore(self, changed: Collection[str]) -> None:
        """Restore phones that were left changed: if their jobs were cancelled, nobody else would.
        Slow ones don't delay the others.
        """
        started = {
            serial: threading.Thread(
                target=self._restore_one, args=(serial,), name=f"restore {serial}", daemon=True
            )
            for serial in sorted({*changed} - self._restorings.keys())
        }
        for thread in started.values():
            thread.start()
        self._restorings |= started
        deadline = Deadline(_RESTORED_S)
        for thread in started.values():
            thread.join(deadline.remaining_s)

    def _restore_one(self, serial: str) -> None:
        """Restore a phone and log that; skip one that another computer uses."""
        try:
            with self._shared.open() as workspace:
                (item,) = restore_phones(workspace, [serial])
        except BenchfarmError as error:
            self._say(str(error), level="error")
            return
        if item.error is None:
            # Also by a job of this worker, which lost the phone.
            message = f"{item.name} was left changed by a job or command that ended early"
            text = "; ".join([message, "it is restored", *item.notes])
            self._say(text, serial=item.name)
        elif not isinstance(item.error, DeviceBusyError):
            message = f"{item.name} was left changed, and can't be restored: {item.error}"
            self._say(message, level="error", serial=item.name)

    def _hanging(self, attached: Sequence[Attached], used: Collection[str]) -> dict[str, Attached]:
        """Return the phones that hang now: those that hung before, and unused ones.

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
            self._say(f"{serial} is still away: {error}")

    def _announced(
        self,
        workspace: Workspace,
        attached: Attached,
        before: Announced | None,
        user: str | None,
    ) -> Announced:
        """Return a phone's announcement; without facts it is unusable, with the reason."""
        serial = Serial(attached.seen.name)
        unusable = "" if attached.seen.usable else attached.seen.reason
        if not can_have_jobs(serial):
            unusable = NO_JOBS
        elif (thread := self._restorings.get(serial)) is not None and thread.is_alive():
            unusable = _RESTORING
        elif not unusable and (reason := workspace.quarantine.reason(serial)):
            unusable = f"{IN_QUARANTINE}{reason}"
        facts = before.facts if before is not None else ""
        if not unusable and (before is None or before.unusable):
            if user is None:
                try:
                    now = open_phone(workspace, attached)[1]
                    facts = dump(with_stored_gpu(now, workspace.store.devices()))
                except BenchfarmError as error:
                    # One unreachable phone mustn't hide the others.
                    unusable = one_line(str(error))
                    if before is None or before.unusable != unusable:
                        message = f"{serial} can't be checked: {error}"
                        self._say(message, level="error", serial=serial)
            elif not facts:
                unusable = f"in use by {user}"
        entry = workspace.inventory.get(serial)
        labels = dump(entry) if entry is not None else ""
        return Announced(facts=facts, unusable=unusable, labels=labels)
