"""The phones of a farm: those of a host as its worker announces them, asked now and then whether they
still answer; which of all of them a plan means, now and later; and which two have one serial number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from orchestrator.app.attached import (
    Attached,
    attached_devices,
    check_selection,
    open_phone,
    with_known_gpu,
)
from orchestrator.app.phones import restore_phones
from orchestrator.app.workspace import Workspace
from orchestrator.clock import Deadline
from orchestrator.config.declarations import KeptInventory
from orchestrator.devices.adb_server import is_tcp
from orchestrator.devices.discovery import KnownPhones
from orchestrator.errors import BenchfarmError, DeviceBusyError, NoDeviceError
from orchestrator.extensions.farm.manifest import (
    PhoneLabels,
    dump,
    read_facts,
    read_labels,
    read_manifest,
)
from orchestrator.extensions.farm.queue import (
    GONE_S,
    IN_QUARANTINE,
    NO_JOBS,
    Announced,
    FarmQueue,
    can_have_jobs,
)
from orchestrator.extensions.history.farm_now import away_since
from orchestrator.frozen import frozen
from orchestrator.planning.selection import choose, misfit
from orchestrator.ports import Observer
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, told_apart
from orchestrator.records.plan import DeviceSelection
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


_Row = Mapping[str, Any]


def choose_phones(
    queue: FarmQueue, wanted: DeviceSelection
) -> tuple[list[DeviceFacts], dict[str, str], dict[str, str]]:
    """Return the announced phones that a plan means, each once; why not the others; and of these
    those that it means all the same.

    A phone's pools and tags are those that any of its hosts announces. Raises NoDeviceError when
    none is meant.
    """
    known, left_out = usable(queue.phones(), wanted.serials)
    away: dict[str, str] = {}
    if wanted.any is None and not wanted.one_of_each:
        absent = {row["serial"]: row for row in queue.away() if can_have_jobs(row["serial"])}
        away = {serial: f"away {away_since(absent[serial])}" for serial in _fitting(wanted, absent)}
    left_out |= away
    if named := wanted.serials:
        left_out = {
            serial: left_out.get(serial, "no host has announced it")
            for serial in named
            if serial not in known
        }
        known = {serial: row for serial, row in known.items() if serial in named}
    facts, labels = _facts_and_labels(known)
    choice = choose(wanted, facts, labels)
    missed = dict(left_out) if named and wanted.any is None else away
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


def check_names(workspace: Workspace, queue: FarmQueue, wanted: DeviceSelection) -> None:
    """Raise UsageError for a profile that neither this computer nor any host knows, and a pool or
    tag that no host has announced: what this computer calls them doesn't count.
    """
    rows = [*queue.away(), *queue.phones()]
    facts = [read_facts(row["facts"]) for row in rows if row["facts"]]
    check_selection(workspace, wanted, facts, [read_labels(row["labels"]) for row in rows])


def _facts_and_labels(
    announced: Mapping[str, _Row],
) -> tuple[list[DeviceFacts], dict[Serial, PhoneLabels]]:
    """Return facts and labels of announced phones; raises PlanError for what can't be read."""
    facts = [read_facts(row["facts"]) for row in announced.values()]
    return facts, {Serial(key): read_labels(row["labels"]) for key, row in announced.items()}


def usable(rows: Iterable[_Row], named: Collection[str]) -> tuple[dict[str, _Row], dict[str, str]]:
    """Return the phones that can have a job, each by the best of the hosts that have it, and why
    the others can't.

    One that is named may wait for what ails it, but not one that nobody knows yet, nor one whose
    serial number several phones have: their results would be mixed.
    """

    def rank(row: _Row) -> tuple[object, ...]:
        is_unknown = row["serial"] in named and not row["facts"]
        return is_unknown, row["silent_s"] > GONE_S, bool(row["unusable"]), row["silent_s"]

    best: dict[str, _Row] = {}
    for row in sorted(rows, key=rank):
        best.setdefault(row["serial"], row)
    out = {}
    for serial, row in best.items():
        may_wait = serial in named and row["facts"]
        if not can_have_jobs(serial):
            out[serial] = NO_JOBS
        elif row["state"] == "clash":
            out[serial] = row["reason"]
        elif serial not in named and row["silent_s"] > GONE_S:
            out[serial] = f"{row['host']} wasn't heard for {format_duration(row['silent_s'])}"
        elif row["unusable"] and not may_wait:
            out[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in out}, out


#: Two hosts' facts of one serial number that differ by nothing but the boot.
Doubt = tuple[str, str, str]


def welcome(queue: FarmQueue, phones: Mapping[str, Announced], doubts: set[Doubt]) -> list[str]:
    """Remember serial numbers that several phones have, and give the other phones of a host their
    jobs of open submissions; return lines for people.

    ``doubts`` are kept from call to call.
    """
    known = [serial for serial, item in phones.items() if item.facts and can_have_jobs(serial)]
    seen = queue.sightings(known)
    lines = _clashes(queue, seen, doubts)
    labels = {row["serial"]: row["labels"] for row in seen if row["is_live"]}
    free = {
        serial: phones[serial]
        for serial in sorted({*known} - queue.clashes().keys())
        if not phones[serial].unusable
    }
    for name, document in queue.to_join(free) if free else ():
        try:
            added = queue.join(name, _meant(document, free, labels))
        except BenchfarmError as error:
            # One submission that can't be read here mustn't hide the others.
            lines.append(f"{name}: no phone can be added: {error}")
            continue
        lines += [f"{name}: {serial} came and is measured too" for serial in added]
    return lines


def _meant(
    document: str, phones: Mapping[str, Announced], labels: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the facts of the phones that a submission means, by what all hosts say of their pools
    and tags; raises PlanError.

    One that wants a number of phones, or one of each kind, chose them when it was made.
    """
    wanted = read_manifest(document).plan.devices
    if wanted.any is not None or wanted.one_of_each:
        return {}
    rows = {
        serial: {"facts": phone.facts, "labels": labels.get(serial, ())}
        for serial, phone in phones.items()
    }
    return {serial: phones[serial].facts for serial in _fitting(wanted, rows)}


def _fitting(wanted: DeviceSelection, rows: Mapping[str, _Row]) -> list[str]:
    """Return the phones that a plan means by what they are; raises PlanError."""
    facts, labels = _facts_and_labels(rows)
    return [
        item.serial
        for item in facts
        if (not wanted.serials or item.serial in wanted.serials)
        and not misfit(wanted, item, labels.get(item.serial))
    ]


def _clashes(queue: FarmQueue, seen: Sequence[_Row], doubts: set[Doubt]) -> list[str]:
    """Remember serial numbers of which hosts have seen two phones, as the sightings tell.

    One that was just restarted looks like two, until both hosts have asked it again.
    """
    lines, before = [], set(doubts)
    doubts.clear()
    for one, other in combinations(seen, 2):
        if one["serial"] != other["serial"]:
            continue
        first, second = read_facts(one["facts"]), read_facts(other["facts"])
        are_there = one["is_live"] and other["is_live"]
        differences = told_apart(first, second, at_once=are_there)
        doubt = (one["serial"], one["facts"], other["facts"])
        if differences == "boot" and doubt not in before:
            doubts.add(doubt)
        elif differences:
            reason = (
                f"several phones have this serial number: a {first.title} at {one['host']}, a"
                f" {second.title} at {other['host']} (not the same {differences});"
                f" 'benchfarm farm forget phone:{one['serial']}' when only one is left"
            )
            queue.remember_clash(one["serial"], reason)
            lines.append(f"{one['serial']}: {reason}")
    return lines


#: How long a phone may take to answer once it is reconnected.
_ANSWER_S: Final = 10.0
_HANGS: Final = "it stopped answering while it had no job; it is being reconnected again and again"
_RESTORING: Final = "it is being restored, as a process that is gone left it changed"
#: How long phones that are restored are waited for before the others are offered.
_RESTORED_S: Final = 20.0
_UNSEEN: Final = "its host can't look at its phones now"
#: Logs a line for people; ``level`` and further keys are for logs that programs read.
Say = Callable[..., None]


@frozen
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
        #: Phones that were to be restored since they came, or since the last check of idle phones.
        self._restored: set[str] = set()
        #: Those that take long, as long as they do.
        self._restoring: dict[str, threading.Thread] = {}
        #: What is wrong with this host, empty for nothing.
        self.fault = ""

    def check(self, busy: Collection[str]) -> Mapping[str, Announced]:
        """Return the phones by serial number; facts are probed when a phone comes, and when it
        comes back. What processes that are gone left changed is restored before.

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
        here = {item.seen.serial for item in attached if item.seen.usable}
        self._restored &= set() if is_due else here
        self._restore(here.intersection(workspace.left_changed()) - used)
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

    def _restore(self, changed: Collection[str]) -> None:
        """Restore phones that a process that is gone left changed: their jobs may be cancelled
        since, so that nobody else would. Those that take long don't hold the others up.
        """
        due = sorted({*changed} - self._restored - self._restoring.keys())
        self._restored.update(due)
        for serial in due:
            self._restoring[serial] = threading.Thread(
                target=self._restore_one, args=(serial,), name=f"restore {serial}", daemon=True
            )
            self._restoring[serial].start()
        deadline = Deadline(_RESTORED_S)
        for serial in due:
            self._restoring[serial].join(deadline.remaining_s)
        self._restoring = {
            serial: thread for serial, thread in self._restoring.items() if thread.is_alive()
        }

    def _restore_one(self, serial: str) -> None:
        """Restore a phone and tell of it; one that another computer uses is left alone."""
        try:
            with self._shared.open() as workspace:
                (item,) = restore_phones(workspace, [serial])
        except BenchfarmError as error:
            self._say(one_line(str(error)), level="error")
            return
        if item.error is None:
            told = f"{item.name} was left changed by a process that is gone; it is restored"
            self._say(one_line("; ".join([told, *item.notes])), serial=item.name)
        elif not isinstance(item.error, DeviceBusyError):
            told = f"{item.name} was left changed, and can't be restored: {item.error}"
            self._say(one_line(told), level="error", serial=item.name)

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
        if not can_have_jobs(serial):
            unusable = NO_JOBS
        elif serial in self._restoring:
            unusable = _RESTORING
        elif not unusable and (kept_out := workspace.quarantine.reason(serial)):
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
