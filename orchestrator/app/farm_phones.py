"""Which of the phones that hosts have announced a plan means, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Final

from orchestrator.bootstrap import Farm
from orchestrator.config.farm_documents import read_facts, read_labels, read_manifest
from orchestrator.errors import NoDeviceError
from orchestrator.planning.selection import choose, misfit
from orchestrator.predicates import Labels
from orchestrator.queueing.newcomers import GONE_S
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.submissions import Submission
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial, campaign_id_of
from orchestrator.records.plan import DeviceSelection
from orchestrator.store.opening import Store
from orchestrator.units import format_duration

#: What a host said that wasn't heard for so long may be of a phone that is elsewhere by now.
_HEARD_S: Final = 60.0


def choose_phones(farm: Farm, queue: FarmQueue, wanted: DeviceSelection) -> tuple[list[DeviceFacts], dict[str, str]]:
    """Return the announced phones that a plan means, each once, and why not the others.

    A phone's pools and tags are those of this computer's inventory, or else its host's. One that is named and of which
    nothing is known is no reason not to measure the others. Raises NoDeviceError when none is meant.
    """
    rows = queue.phones()
    announced, left_out = usable(rows, wanted.serials)
    known = {row["serial"] for row in rows}
    left_out |= {str(serial): "no host has announced it" for serial in wanted.serials if serial not in known}
    facts, labels = facts_and_labels(announced, farm.inventory)
    named = [item for item in facts if not wanted.serials or item.serial in wanted.serials]
    left_out = {name: why for name, why in left_out.items() if not wanted.serials or name in wanted.serials}
    left_out |= away_meant(queue, wanted, farm.inventory)
    choice = choose(wanted, named, labels)
    left_out |= {str(serial): reason for serial, reason in {**choice.unfit, **choice.unneeded}.items()}
    if not choice.chosen:
        reasons = "".join(f"\n  {serial}: {reason}" for serial, reason in left_out.items())
        raise NoDeviceError(
            f"no phone that a host has announced fits the plan{reasons}",
            hint="'benchfarm farm status' lists what is announced",
        )
    if choice.lacking:
        left_out["plan"] = choice.lacking
    return [item for item in named if item.serial in choice.chosen], left_out


def check_names(farm: Farm, queue: FarmQueue, wanted: DeviceSelection) -> None:
    """Raise UsageError for a profile, pool or tag that neither this computer nor any host knows."""
    if wanted.profiles or wanted.pools or wanted.tags:
        rows = [*queue.away(), *queue.phones()]
        facts = [read_facts(row["facts"]) for row in rows if row["facts"]]
        farm.check_names(wanted, facts, [read_labels(row["labels"]) for row in rows])


def meant(
    store: Store, submission: Submission, kept: Mapping[str, str], phones: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the phones that a submission means beside those that it has (queueing.newcomers.Choose).

    Raises PlanError for what can't be read, StoreError.
    """
    manifest = read_manifest(submission.document)
    wanted = manifest.plan.devices
    announced, _ = usable(phones, ())
    facts, labels = facts_and_labels(announced, {Serial(key): item for key, item in manifest.labels.items()})
    fitting = [
        item
        for item in facts
        if (not wanted.serials or item.serial in wanted.serials) and not misfit(wanted, item, labels.get(item.serial))
    ]
    # Whatever is said of them now: those that have their jobs keep their places.
    counted = DeviceSelection(one_of_each=wanted.one_of_each, most=wanted.most)
    present = [read_facts(document) for document in kept.values() if document]
    choice = choose(counted, [*present, *fitting], {}, kept=[Serial(serial) for serial in kept])
    return {
        serial: announced[serial]["facts"]
        for serial in choice.chosen
        if serial not in kept
        # A campaign of this name is an earlier submission's, whose jobs are deleted.
        and store.campaign(campaign_id_of(submission.submission, serial)) is None
    }


def away_meant(queue: FarmQueue, wanted: DeviceSelection, inventory: Mapping[Serial, Labels]) -> dict[str, str]:
    """Return the phones that are away and that a plan means by what they were last, with since when.

    None when any few of several are wanted. Raises PlanError for what can't be read.
    """
    if wanted.most is not None or wanted.one_of_each:
        return {}
    rows = {row["serial"]: row for row in queue.away()}
    facts, labels = facts_and_labels(rows, inventory)
    return {
        str(item.serial): away_text(rows[item.serial])
        for item in facts
        if (not wanted.serials or item.serial in wanted.serials) and not misfit(wanted, item, labels.get(item.serial))
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
    return facts, {Serial(key): read_labels(row["labels"]) for key, row in announced.items()} | dict(inventory)


def usable(
    rows: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Return the phones that can have a job, each by the best of the hosts that have it, and why the others can't.

    One that is named may wait for what ails it, but not one that nobody knows yet, nor one whose serial number several
    phones have: their results would be mixed. Raises PlanError for facts that can't be read.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(
        rows,
        key=lambda row: (
            row["serial"] in named and not row["facts"],
            row["silent_s"] > GONE_S,
            bool(row["unusable"]),
            row["silent_s"],
        ),
    ):
        best.setdefault(row["serial"], row)
    out = {}
    several = of_several(rows)
    for serial, row in sorted(best.items()):
        if serial in several:
            out[serial] = several[serial]
        elif serial not in named and row["silent_s"] > GONE_S:
            out[serial] = f"its host {row['host']} wasn't heard for {format_duration(row['silent_s'])}"
        elif row["unusable"] and (serial not in named or not row["facts"]):
            out[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in out}, out


def of_several(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the serial numbers under which hosts see different phones now, with the reason."""
    seen: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["silent_s"] <= _HEARD_S and not row["unusable"]:
            seen.setdefault(row["serial"], {}).setdefault(row["facts"], row)
    out = {}
    for serial, documents in seen.items():
        if len(documents) == 1:
            continue
        phones = [(read_facts(document), row["host"]) for document, row in documents.items()]
        if any(_differ(phones[0][0], other) for other, _ in phones[1:]):
            named = ", ".join(f"a {facts.title} at {host}" for facts, host in phones)
            out[serial] = f"several phones have this serial number: {named}"
    return out


def _differ(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Whether they are of two phones: what both know of themselves isn't the same, or they were booted apart."""
    known = zip(_identity(one), _identity(other), strict=True)
    return any(own and others and own != others for own, others in known)


def _identity(facts: DeviceFacts) -> tuple[str, ...]:
    return facts.manufacturer, facts.model, facts.fingerprint, facts.boot_id
