"""Cases that equal phones share: who measures which of their invocations. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import Serial, content_key
from orchestrator.records.plan import Shard
from orchestrator.records.workload import Case, Pass


def equality_of(facts: DeviceFacts) -> tuple[str, ...]:
    """Return what must be the same of phones that share cases; empty where it isn't known whole, or no phone."""
    parts = (facts.manufacturer, facts.model or facts.codename, facts.soc or facts.platform, facts.fingerprint)
    is_phone = facts.kind is DeviceKind.ANDROID
    return (*parts, str(facts.is_virtual)) if is_phone and all(parts[1:]) else ()


def equal_phones(devices: Iterable[DeviceFacts]) -> tuple[Shard, ...]:
    """Return the groups of two or more phones of one model, chip and system build."""
    groups: dict[tuple[str, ...], list[DeviceFacts]] = defaultdict(list)
    for facts in sorted(devices, key=lambda facts: facts.serial):
        if equality := equality_of(facts):
            groups[equality].append(facts)
    return tuple(
        Shard(title=shard_title(group[0]), serials=tuple(facts.serial for facts in group))
        for group in groups.values()
        if len(group) > 1
    )


def shard_title(facts: DeviceFacts) -> str:
    """Return what equal phones are called: by model and chip, which stay the same when the system is updated."""
    return f"{facts.model or facts.codename}, {facts.soc or facts.platform}"


def share_key(item: Invocation) -> tuple[str, Pass, int]:
    """Return what an invocation is among equal phones, whichever of them runs it."""
    row = {name: value for name, value in item.case.to_row().items() if name not in {"serial", "shard"}}
    return content_key(row), item.run_pass, item.number


def share_out(
    queues: Mapping[Serial, tuple[Invocation, ...]], shards: Sequence[Shard]
) -> dict[Serial, tuple[Invocation, ...]]:
    """Return the queues with each shared invocation left to one phone of its group.

    Every phone gets a part of every case, as evenly as their number allows: a difference between phones then touches
    all cases alike.
    """
    shared = dict(queues)
    for shard in shards:
        having: dict[tuple[str, Pass, int], list[Serial]] = defaultdict(list)
        for serial in shard.serials:
            for item in queues.get(serial, ()):
                having[share_key(item)].append(serial)
        place = {case_key: number for number, case_key in enumerate(sorted({key[0] for key in having}))}
        owner = {key: serials[(place[key[0]] + key[2]) % len(serials)] for key, serials in having.items()}
        for serial in shard.serials:
            shared[serial] = tuple(
                replace(item, case=replace(item.case, shard=shard.title))
                for item in queues.get(serial, ())
                if owner[share_key(item)] == serial
            )
    return shared


def moved(item: Invocation, serial: Serial) -> Invocation:
    """Return an invocation as another phone's."""
    case: Case = replace(item.case, serial=serial)
    return replace(item, case=case)
