"""The columns of a phone or a computer that was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from orchestrator.records.device import DeviceFacts
from orchestrator.tables.column import DATA, Column, Kind
from orchestrator.tables.rows import DeviceRow


def _fact(
    name: str, head: str = "", value: Callable[[DeviceFacts], Any] | None = None, kind: Kind = Kind.TEXT
) -> Column[DeviceRow]:
    """Return a column of what the device said of itself; programs alone get it without a head."""
    own = Column(name, head, value or (lambda facts: getattr(facts, name)), kind, is_optional=True)
    return own.of(lambda row: row.facts, **({} if head else {"forms": DATA}))


def _clusters(facts: DeviceFacts) -> list[Mapping[str, object]]:
    return [
        {"cpus": cluster.cpus, "min_khz": cluster.min_khz, "max_khz": cluster.max_khz} for cluster in facts.clusters
    ]


DEVICES: Final[Sequence[Column[DeviceRow]]] = (
    Column("serial", "serial", lambda row: row.serial),
    Column("label", "phone", lambda row: row.label, shown=lambda row: row.title),
    Column("is_virtual", "virtual", lambda row: row.is_virtual, Kind.FLAG, forms=DATA),
    _fact("kind"),
    _fact("is_emulator", kind=Kind.FLAG),
    _fact("manufacturer"),
    _fact("model"),
    _fact("codename"),
    _fact("os_version", "system"),
    _fact("sdk", kind=Kind.COUNT),
    _fact("fingerprint"),
    _fact("security_patch"),
    _fact("soc", "SoC"),
    _fact("abis"),
    _fact("clusters", value=_clusters, kind=Kind.RECORD),
    _fact("memory_bytes", kind=Kind.COUNT),
    _fact("gpu"),
    _fact("gpu_driver"),
    _fact("profile", "profile"),
)
