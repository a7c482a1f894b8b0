"""Which of the phones that hosts have announced a plan means, why not the others, and which two
have one number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Any, Final

from orchestrator.errors import BenchfarmError, NoDeviceError
from orchestrator.extensions.farm.manifest import read_facts, read_labels, read_manifest
from orchestrator.extensions.farm.queue import Announced, FarmQueue, Submission, can_have_jobs
from orchestrator.planning.selection import choose, misfit
from orchestrator.plugins import Workspace
from orchestrator.predicates import Labels
from orchestrator.records.case import Serial, campaign_id_of
from orchestrator.records.device import DeviceFacts, told_apart
from orchestrator.records.plan import DeviceSelection
from orchestrator.store.opening import Store
from orchestrator.units import format_duration

#: Phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0


def choose_phones(
    workspace: Workspace, queue: FarmQueue, wanted: DeviceSelection
) -> tuple[list[DeviceFacts], dict[str, str]]:
    """Return the announced phones that a plan means, each once, and why not the others.

    A phone's pools and tags are those of this computer's inventory, or else its host's. One that is
    named and of which nothing is known is no reason not to measure the others. Raises NoDeviceError
    when none is meant.
    """
    rows = queue.phones()
    announced, left_out = usable(rows, wanted.serials)
    known = {row["serial"] for row in rows}
    left_out |= {
        str(serial): "no host has announced it" for serial in wanted.serials if serial not in known
    }
    facts, labels = facts_and_labels(announced, workspace.inventory)
    named = [item for item in facts if not wanted.serials or item.serial in wanted.serials]
    left_out = {
        name: why for name, why in left_out.items() if not wanted.serials or name in wanted.serials
    }
    left_out |= away_meant(queue, wanted, workspace.inventory)
    choice = choose(wanted, named, labels)
    left_out |= {
        str(serial): reason for serial, reason in {**choice.unfit, **choice.unneeded}.items()
    }
    if not choice.chosen:
        reasons = "".join(f"\n  {serial}: {reason}" for serial, reason in left_out.items())
        raise NoDeviceError(
            f"no phone that a host has announced fits the plan{reasons}",
            hint="'benchfarm farm status' lists what is announced",
        )
    if choice.lacking:
        left_out["plan"] = choice.lacking
    return [item for item in named if item.serial in choice.chosen], left_out


def check_names(workspace: Workspace, queue: FarmQueue, wanted: DeviceSelection) -> None:
    """Raise UsageError for a profile, pool or tag that neither this computer nor any host knows."""
    if wanted.profiles or wanted.pools or wanted.tags:
        rows = [*queue.away(), *queue.phones()]
        facts = [read_facts(row["facts"]) for row in rows if row["facts"]]
        workspace.check_names(wanted, facts, [read_labels(row["labels"]) for row in rows])


def away_meant(
    queue: FarmQueue, wanted: DeviceSelection, inventory: Mapping[Serial, Labels]
) -> dict[str, str]:
    """Return the phones that are away and that a plan means by what they were last, with since
    when.

    None when any few of several are wanted. Raises PlanError for what can't be read.
    """
    if wanted.any is not None or wanted.one_of_each:
        return {}
    rows = {row["serial"]: row for row in queue.away()}
    facts, labels = facts_and_labels(rows, inventory)
    return {
        str(item.serial): away_text(rows[item.serial])
        for item in facts
        if (not wanted.serials or item.serial in wanted.serials)
        and not misfit(wanted, item, labels.get(item.serial))
    }


def away_text(row: Mapping[str, Any]) -> str:
    """Return since when a phone is away, and where it was last."""
    return f"away since {row['seen_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC, seen last at {row['host']}"


def facts_and_labels(
    announced: Mapping[str, Mapping[str, Any]], inventory: Mapping[Serial, Labels]
) -> tuple[list[DeviceFacts], dict[Serial, Labels]]:
    """Return the facts of announced phones, and their labels: the inventory's go before a host's.

    Raises PlanError for what can't be read.
    """
    facts = [read_facts(row["facts"]) for row in announced.values()]
    return facts, {
        Serial(key): read_labels(row["labels"]) for key, row in announced.items()
    } | dict(inventory)


def usable(
    rows: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Return the phones that can have a job, each by the best of the hosts that have it, and why
    the others can't.

    One that is named may wait for what ails it, but not one that nobody knows yet, nor one whose
    serial number several phones have: their results would be mixed.
    """

    def rank(row: Mapping[str, Any]) -> tuple[object, ...]:
        is_unknown = row["serial"] in named and not row["facts"]
        return is_unknown, row["silent_s"] > GONE_S, bool(row["unusable"]), row["silent_s"]

    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=rank):
        best.setdefault(row["serial"], row)
    out = {}
    for serial, row in sorted(best.items()):
        if row["state"] == "clash":
            out[serial] = row["reason"]
        elif serial not in named and row["silent_s"] > GONE_S:
            out[serial] = (
                f"its host {row['host']} wasn't heard for {format_duration(row['silent_s'])}"
            )
        elif row["unusable"] and (serial not in named or not row["facts"]):
            out[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in out}, out


class Newcomers:
    """What becomes of the phones that a host announces: each may join what is open, unless two have
    one number.
    """

    def __init__(self, queue: FarmQueue, store: Store) -> None:
        self._queue = queue
        self._store = store
        #: Pairs of phones of one number that differ by nothing but their boot, when they were last
        #: looked at.
        self._doubted: set[tuple[str, str, str]] = set()

    def announced(self, phones: Mapping[str, Announced]) -> list[str]:
        """Remember serial numbers that several phones have, and let the others join; return lines
        for people.
        """
        known = {
            serial: phone
            for serial, phone in phones.items()
            if phone.facts and can_have_jobs(serial)
        }
        lines = self._clashes(known)
        clashes = self._queue.clashes()
        free = {
            serial: phone
            for serial, phone in known.items()
            if not phone.unusable and serial not in clashes
        }
        for name, submission in self._queue.to_join(free).items() if free else ():
            try:
                joined = self._queue.join(name, partial(self._meant, submission, phones=free))
            except BenchfarmError as error:
                # One submission that can't be read here mustn't hide the others.
                lines.append(f"{name}: no phone can be added: {error}")
                continue
            lines += [f"{name}: {serial} came and is measured too" for serial in joined]
        return lines

    def _meant(
        self, submission: Submission, kept: Mapping[str, str], phones: Mapping[str, Announced]
    ) -> dict[str, str]:
        """Return the phones that a submission means beside those that it has.

        Raises PlanError, StoreError.
        """
        manifest = read_manifest(submission.document)
        wanted = manifest.plan.devices
        rows = {
            serial: {"facts": phone.facts, "labels": phone.labels}
            for serial, phone in phones.items()
        }
        facts, labels = facts_and_labels(
            rows, {Serial(key): item for key, item in manifest.labels.items()}
        )
        fitting = [
            item
            for item in facts
            if item.serial not in kept
            and (not wanted.serials or item.serial in wanted.serials)
            and not misfit(wanted, item, labels.get(item.serial))
        ]
        # Whatever is said of them now: those that have their jobs keep their places.
        counted = DeviceSelection(one_of_each=wanted.one_of_each, any=wanted.any)
        present = [read_facts(document) for document in kept.values() if document]
        choice = choose(counted, [*present, *fitting], {}, kept=[Serial(serial) for serial in kept])
        return {
            serial: phones[serial].facts
            for serial in choice.chosen
            if serial not in kept
            # A campaign of this name is an earlier submission's, whose jobs are deleted.
            and self._store.campaign(campaign_id_of(submission.submission, serial)) is None
        }

    def _clashes(self, phones: Collection[str]) -> list[str]:
        seen: dict[str, list[Mapping[str, Any]]] = {}
        for row in self._queue.sightings(phones):
            seen.setdefault(row["serial"], []).append(row)
        lines, doubted = [], set[tuple[str, str, str]]()
        for serial, rows in seen.items():
            for number, one in enumerate(rows):
                for other in rows[number + 1 :]:
                    first, second = read_facts(one["facts"]), read_facts(other["facts"])
                    are_there = one["is_live"] and other["is_live"]
                    differences = told_apart(first, second, at_once=are_there)
                    pair = (serial, str(one["facts"]), str(other["facts"]))
                    if differences == "boot" and pair not in self._doubted:
                        # One that was just restarted looks so too, until both hosts have asked it
                        # again.
                        doubted.add(pair)
                    elif differences:
                        reason = (
                            f"several phones have this serial number: a {first.title} at {one['host']}, a"
                            f" {second.title} at {other['host']} (not the same {differences});"
                            f" 'benchfarm farm forget phone:{serial}' when only one is left"
                        )
                        self._queue.remember_clash(serial, reason, [one["facts"], other["facts"]])
                        lines.append(f"{serial}: {reason}")
        self._doubted = doubted
        return lines
