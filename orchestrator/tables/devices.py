"""The columns of a phone or a computer that was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.records.device import DeviceFacts
from orchestrator.tables.column import DATA, EVERYWHERE, NESTED, Column, Kind

if TYPE_CHECKING:
    from orchestrator.tables.rows import DeviceRow


def _fact(name: str, head: str = "", kind: Kind = Kind.TEXT) -> Column[DeviceFacts]:
    """Return a column of what a device said of itself; programs alone get one without a head."""
    forms = EVERYWHERE if head else DATA
    return Column(
        name, head, lambda facts: getattr(facts, name), kind, is_optional=True, forms=forms
    )


def _clusters(facts: DeviceFacts) -> list[Mapping[str, object]]:
    return [
        {"cpus": cluster.cpus, "min_khz": cluster.min_khz, "max_khz": cluster.max_khz}
        for cluster in facts.clusters
    ]


#: What a device says of itself.
FACTS: Final[Sequence[Column[DeviceFacts]]] = (
    _fact("kind"),
    _fact("is_emulator", kind=Kind.FLAG),
    _fact("manufacturer"),
    _fact("model"),
    _fact("codename"),
    Column(
        "os_version", "system", lambda facts: facts.os_version, shown=lambda facts: facts.system
    ),
    _fact("sdk", kind=Kind.COUNT),
    _fact("fingerprint"),
    _fact("security_patch"),
    _fact("soc", "SoC"),
    _fact("abis"),
    Column("clusters", "", _clusters, Kind.RECORD, forms=NESTED),
    _fact("memory_bytes", kind=Kind.COUNT),
    _fact("gpu"),
    _fact("gpu_driver"),
    _fact("profile", "profile"),
)
DEVICES: Final[Sequence[Column[DeviceRow]]] = (
    Column("serial", "serial", lambda row: row.serial),
    Column("label", "phone", lambda row: row.label, shown=lambda row: row.title),
    Column("is_virtual", "virtual", lambda row: row.is_virtual, Kind.FLAG, forms=DATA),
    *(column.of(lambda row: row.facts) for column in FACTS),
)
