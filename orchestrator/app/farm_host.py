"""The phones of a farm's host as its worker announces them; those without a job are asked whether they still answer."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.bootstrap import Attached, Farm
from orchestrator.clock import Deadline
from orchestrator.config.farm_documents import dump, labels_of
from orchestrator.config.profiles import KeptInventory
from orchestrator.devices.discovery import KnownPhones, look_at
from orchestrator.devices.lease import own_boot
from orchestrator.devices.server import AdbServer
from orchestrator.errors import BenchfarmError, HostStorageError, StoreError
from orchestrator.files import write_whole
from orchestrator.queueing.newcomers import GONE_S
from orchestrator.queueing.queue import Announced, FarmQueue
from orchestrator.queueing.submissions import IN_QUARANTINE
from orchestrator.queueing.worker import Look, Say
from orchestrator.records.identity import Serial
from orchestrator.report.escapes import one_line

#: How long a phone may take to answer once it is reconnected.
_ANSWER_S: Final = 10.0
_AT_ONCE: Final = 8
_REASON: Final = "it stopped answering while it had no job; it is reconnected again and again"


class HostPhones:
    """This host's phones, looked at again and again."""

    def __init__(
        self,
        open_farm: Callable[[], Farm],
        queue: FarmQueue,
        host: str,
        idle: IdlePhones,
        *,
        inventory: KeptInventory | None = None,
        say: Say,
    ) -> None:
        """``open_farm`` opens this host's phones, with the ``inventory``."""
        self._open_farm = open_farm
        self._queue = queue
        self._host = host
        self._idle = idle
        self._inventory = inventory
        self._say = say

    def look(self, known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        """Return the phones by serial number; facts are probed when a phone comes, and when it comes back.

        Of ``busy`` ones, and of those that others measure, nothing is probed: it would be measured with what they do.
        A fault of devices.yaml is reported too; meanwhile what it said before counts.
        """
        try:
            with self._open_farm() as farm:
                found = self._look(farm, known, busy)
                # Read also for a host without phones.
                fault = self._inventory.fault if farm.inventory is not None and self._inventory is not None else ""
            ails = f"what devices.yaml said before stays in force: {fault}" if fault else ""
            return Look(phones=found, ails=one_line(ails))
        except BenchfarmError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the next look may go better
            reason = f"{type(error).__name__}: {error}"
        return Look(phones=None, ails=one_line(f"its phones can't be looked at: {reason}"))

    def _look(self, farm: Farm, known: Mapping[str, Announced], busy: Collection[str]) -> dict[str, Announced]:
        elsewhere, releases = self._elsewhere()

        def user_of(serial: str) -> str:
            """Return who uses a phone, empty for nobody; while the queue can't be asked, another host may."""
            if serial in busy:
                return "a job"
            is_elsewhere = elsewhere is None or serial in elsewhere
            return farm.lease.live_holder(Serial(serial)) or ("another host" if is_elsewhere else "")

        def used() -> Collection[str]:
            measured = known if elsewhere is None else known.keys() & set(elsewhere)
            return {*busy, *farm.lease.live_holders(), *measured}

        self._idle.have_asked(known, in_use=lambda serial: bool(user_of(serial)))
        for serial in releases:
            if reason := farm.quarantine.release(Serial(serial)):
                self._say(one_line(f"{serial} is released from quarantine, as somebody asked for: {reason}"))
        found: dict[str, Announced] = {}
        attached = farm.attached()
        for item in attached:
            # One that never said who it is goes by its server's name for it, which over USB is its serial number.
            serial = item.seen.serial or item.seen.address
            phone = self._announced(farm, item, known.get(serial), user_of)
            if not (serial in found and phone.unusable):
                found[serial] = phone
        away = self._idle.wake(
            attached, used=used, elsewhere=self._usable_elsewhere, cycle_port=farm.rescuer.cycle_port
        )
        # Also when its server lists it no more: it mustn't look as if somebody had unplugged it.
        return found | {
            serial: replace(known[serial], unusable=reason) for serial, reason in away.items() if serial in known
        }

    def _elsewhere(self) -> tuple[Collection[str] | None, Collection[str]]:
        """Return the phones that other hosts measure, and this host's that are to be released from quarantine.

        None and nothing while the queue can't be asked.
        """
        try:
            return self._queue.busy_elsewhere(self._host), self._queue.take_releases(self._host)
        except StoreError:
            return None, ()

    def _usable_elsewhere(self) -> Collection[str]:
        return {
            row["serial"]
            for row in self._queue.phones()
            if row["host"] != self._host and row["silent_s"] <= GONE_S and not row["unusable"]
        }

    def _announced(
        self, farm: Farm, attached: Attached, known: Announced | None, user_of: Callable[[str], str]
    ) -> Announced:
        """Return what is announced of a phone; one of which nothing is known can't be used, for a reason."""
        serial = Serial(attached.seen.serial or attached.seen.address)
        unusable = "" if attached.seen.usable else attached.seen.reason
        if not unusable and (kept_out := farm.quarantine.reason(serial)):
            unusable = f"{IN_QUARANTINE}{kept_out}"
        facts = known.facts if known is not None else ""
        if not unusable and (known is None or known.unusable):
            user = user_of(serial)
            if not user:
                try:
                    facts = dump(farm.open_phone(attached)[1])
                except BenchfarmError as error:
                    # One phone that doesn't answer mustn't hide the others.
                    unusable = one_line(str(error))
                    if known is None or known.unusable != unusable:
                        self._say(one_line(f"{serial} can't be looked at: {error}"), level="error", serial=serial)
            elif not facts:
                unusable = f"in use by {user}"
        labels = farm.inventory.get(serial)
        return Announced(
            facts=facts, unusable=unusable, labels=json.dumps(labels_of(labels)) if labels is not None else ""
        )


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
        gone = self._away.keys() - {item.seen.serial for item in attached if item.seen.state == "device"}
        for serial in gone.intersection(elsewhere()) if gone else ():
            del self._away[serial]
            self._say(f"{serial} is at another host now")
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


def host_id(state_folder: Path) -> str:
    """Return what no other computer has, the same one until this one is restarted; raises HostStorageError."""
    kept = state_folder / "farm-host"
    try:
        if not kept.exists():
            write_whole(kept, secrets.token_hex(16))
        own = kept.read_text("utf-8")
    except OSError as error:
        raise HostStorageError(f"{error.filename or kept}: {error.strerror}") from error
    # Computers that are copies of each other differ by it.
    return f"{own} {own_boot()}".strip()
