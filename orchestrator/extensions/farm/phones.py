"""The phones of a farm: those that a plan selects, now and later; serial numbers that several phones
have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NoDeviceError, PlanError
from orchestrator.extensions.farm.job_table import NO_JOBS, can_have_jobs
from orchestrator.extensions.farm.manifest import (
    read_facts,
    read_labels,
    read_manifest,
)
from orchestrator.extensions.farm.queue import GONE_S, Announced, FarmQueue
from orchestrator.plugins import away_since, check_selection, choose, mismatch_reason
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, Labels, phone_differences
from orchestrator.records.plan import DeviceSelection
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.plugins import Workspace

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
