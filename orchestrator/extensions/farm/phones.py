"""Which of the phones that hosts have announced a plan means, now and later, and which two have one
serial number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Any, Final

from orchestrator.app.attached import check_selection
from orchestrator.errors import BenchfarmError, NoDeviceError
from orchestrator.extensions.farm.manifest import (
    PhoneLabels,
    read_facts,
    read_labels,
    read_manifest,
)
from orchestrator.extensions.farm.queue import Announced, FarmQueue, can_have_jobs
from orchestrator.extensions.history.farm_now import away_since
from orchestrator.planning.selection import choose, misfit
from orchestrator.plugins import Workspace
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, told_apart
from orchestrator.records.plan import DeviceSelection
from orchestrator.units import format_duration

#: Phones of a host that is silent for so long aren't chosen.
GONE_S: Final = 900.0
_Row = Mapping[str, Any]


def choose_phones(
    queue: FarmQueue, wanted: DeviceSelection
) -> tuple[list[DeviceFacts], dict[str, str], dict[str, str]]:
    """Return the announced phones that a plan means, each once; why not the others; and of these
    those that it means all the same.

    A phone's pools and tags are those that its host announces. Raises NoDeviceError when none is
    meant.
    """
    known, left_out = usable(queue.phones(), wanted.serials)
    away: dict[str, str] = {}
    if wanted.any is None and not wanted.one_of_each:
        absent = {row["serial"]: row for row in queue.away()}
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
        if row["state"] == "clash":
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
    lines = _clashes(queue, known, doubts)
    free = {
        serial: phones[serial]
        for serial in sorted({*known} - queue.clashes().keys())
        if not phones[serial].unusable
    }
    for name, document in queue.to_join(free) if free else ():
        try:
            added = queue.join(name, _meant(document, free))
        except BenchfarmError as error:
            # One submission that can't be read here mustn't hide the others.
            lines.append(f"{name}: no phone can be added: {error}")
            continue
        lines += [f"{name}: {serial} came and is measured too" for serial in added]
    return lines


def _meant(document: str, phones: Mapping[str, Announced]) -> dict[str, str]:
    """Return the facts of the phones that a submission means; raises PlanError.

    One that wants a number of phones, or one of each kind, chose them when it was made.
    """
    wanted = read_manifest(document).plan.devices
    if wanted.any is not None or wanted.one_of_each:
        return {}
    rows = {
        serial: {"facts": phone.facts, "labels": phone.labels} for serial, phone in phones.items()
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


def _clashes(queue: FarmQueue, serials: Collection[str], doubts: set[Doubt]) -> list[str]:
    """Remember serial numbers of which hosts have seen two phones.

    One that was just restarted looks like two, until both hosts have asked it again.
    """
    lines, before = [], set(doubts)
    doubts.clear()
    for one, other in combinations(queue.sightings(serials), 2):
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
