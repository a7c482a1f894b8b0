"""Which device measures what: one rule for sharing cases, for devices that join and for spare devices. Pure.

:func:`assign` is asked when a campaign is planned, and again whenever a device comes, is replaced or has nothing left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import CaseKey, Serial, content_key
from orchestrator.records.plan import Shard
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Pass

#: What an invocation, or its run, is known by in a campaign.
RunKey = tuple[CaseKey, Pass, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who measures what: each invocation names its device."""

    #: Each device's in their order, also those that are stored.
    invocations: tuple[Invocation, ...] = ()
    #: Equal phones that share their cases.
    shards: tuple[Shard, ...] = ()
    #: Lost devices, with the spare devices that took their places.
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def work(self) -> dict[Serial, tuple[Invocation, ...]]:
        """Each device's invocations."""
        found: dict[Serial, list[Invocation]] = defaultdict(list)
        for item in self.invocations:
            found[item.case.serial].append(item)
        return {serial: tuple(items) for serial, items in found.items()}

    def group_of(self, serial: Serial) -> tuple[Serial, ...]:
        """Return the phones that share their cases with one, itself included; empty for one that shares none."""
        return next((shard.serials for shard in self.shards if serial in shard.serials), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A device of a campaign, or one that comes to it."""

    facts: DeviceFacts
    #: What the plan means on it; empty for one that has its work already.
    invocations: tuple[Invocation, ...] = ()
    #: The lost device whose place it takes.
    instead_of: Serial | None = None


def assign(
    before: Assignment,
    devices: Sequence[Present],
    settled: Collection[RunKey] = frozenset(),
    *,
    idle: Sequence[Serial] = (),
) -> Assignment:
    """Return which device measures what, from the assignment before and the devices that are there.

    - A device that comes measures what the plan means on it. Where it equals phones that share, it shares with them.
    - Equal phones get a part of every case each, as evenly as their number allows: a difference between phones then
      touches all cases alike.
    - An idle device takes over half of what is open at the equal phone that has most left, the last half of its queue.
      Half, so that a whole queue moves in a few steps.
    - A device that is replaced keeps nothing open but what it shared, for its equals; not that either without one.

    Args:
        before: As it was; for a campaign that is planned, empty but for the groups that share.
        devices: Those that come, and those that they may equal, lost ones too.
        settled: What is stored, or is run right now: it stays where it is.
        idle: Devices that have nothing left.
    """
    now = _shared_out(before, devices)
    for device in devices:
        now = _joined(now, device, devices)
    for device in devices:
        if device.instead_of is not None:
            now = _without_lost(now, device.instead_of, device.facts.serial, settled)
    for serial in idle:
        now = _taken_over(now, serial, settled)
    return now


def key_of(item: Invocation | RunRecord) -> RunKey:
    """Return what an invocation, or its run, is known by."""
    return item.case.case_key, item.run_pass, item.number if isinstance(item, Invocation) else item.invocation


def share_key(item: Invocation) -> tuple[str, Pass, int]:
    """Return what an invocation is among equal phones, whichever of them runs it."""
    row = {name: value for name, value in item.case.to_row().items() if name not in {"serial", "shard"}}
    return content_key(row), item.run_pass, item.number


def equal_phones(devices: Iterable[DeviceFacts]) -> tuple[Shard, ...]:
    """Return the groups of two or more phones of one model, chip and system build."""
    groups: dict[tuple[str, ...], list[DeviceFacts]] = defaultdict(list)
    for facts in sorted(devices, key=lambda facts: facts.serial):
        if equality := _equality_of(facts):
            groups[equality].append(facts)
    return tuple(
        # Model and chip stay the same when the system is updated.
        Shard(
            title=f"{group[0].model or group[0].codename}, {group[0].soc or group[0].platform}",
            serials=tuple(facts.serial for facts in group),
        )
        for group in groups.values()
        if len(group) > 1
    )


def _equality_of(facts: DeviceFacts) -> tuple[str, ...]:
    """Return what must be the same of phones that share cases; empty where it isn't known whole, or no phone."""
    parts = (facts.manufacturer, facts.model or facts.codename, facts.soc or facts.platform, facts.fingerprint)
    is_phone = facts.kind is DeviceKind.ANDROID
    return (*parts, str(facts.is_virtual)) if is_phone and all(parts[1:]) else ()


def _shared_out(now: Assignment, devices: Sequence[Present]) -> Assignment:
    """Give each invocation that equal phones bring to one of those that bring it."""
    having_work = {item.case.serial for item in now.invocations}
    brought = {device.facts.serial: device.invocations for device in devices}
    for shard in now.shards:
        if having_work & set(shard.serials):
            continue
        items = [item for serial in shard.serials for item in brought.get(serial, ())]
        having: dict[tuple[str, Pass, int], list[Serial]] = defaultdict(list)
        for item in items:
            having[share_key(item)].append(item.case.serial)
        place = {case_key: number for number, case_key in enumerate(sorted({key[0] for key in having}))}
        owner = {key: serials[(place[key[0]] + key[2]) % len(serials)] for key, serials in having.items()}
        shared = (
            replace(item, case=replace(item.case, shard=shard.title))
            for item in items
            if owner[share_key(item)] == item.case.serial
        )
        now = replace(now, invocations=(*now.invocations, *shared))
    return now


def _joined(now: Assignment, device: Present, devices: Sequence[Present]) -> Assignment:
    serial, equality = device.facts.serial, _equality_of(device.facts)
    if not device.invocations or now.group_of(serial):
        return now
    twins = {other.facts.serial for other in devices if equality and _equality_of(other.facts) == equality}
    for shard in now.shards:
        if twins & set(shard.serials):
            larger = replace(shard, serials=(*shard.serials, serial))
            return replace(now, shards=tuple(larger if item is shard else item for item in now.shards))
    known = {key_of(item) for item in now.invocations}
    new = (item for item in device.invocations if key_of(item) not in known)
    return replace(now, invocations=(*now.invocations, *new))


def _without_lost(now: Assignment, lost: Serial, spare: Serial, settled: Collection[RunKey]) -> Assignment:
    """Take away what a lost device has open; what it shared only when none of its group is left."""
    replaced, group = {**now.replaced, lost: spare}, now.group_of(lost)
    is_over = all(serial in replaced for serial in group)

    def is_gone(item: Invocation) -> bool:
        is_ours = is_over and item.case.serial in group if item.case.shard else item.case.serial == lost
        return is_ours and key_of(item) not in settled

    return replace(now, replaced=replaced, invocations=tuple(item for item in now.invocations if not is_gone(item)))


def _taken_over(now: Assignment, serial: Serial, settled: Collection[RunKey]) -> Assignment:
    left: dict[Serial, list[Invocation]] = {other: [] for other in now.group_of(serial)}
    for item in now.invocations:
        if item.case.shard and item.case.serial in left and key_of(item) not in settled:
            left[item.case.serial].append(item)
    source = max(left, key=lambda other: (len(left[other]), other), default=serial)
    if not left or left[serial]:
        return now
    taken = {key_of(item) for item in left[source][len(left[source]) // 2 :]}
    moved = (
        replace(item, case=replace(item.case, serial=serial)) if key_of(item) in taken else item
        for item in now.invocations
    )
    return replace(now, invocations=tuple(moved))
