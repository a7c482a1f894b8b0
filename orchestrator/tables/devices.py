"""The columns of devices, models, programs and campaigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build
from orchestrator.records.device import DeviceFacts
from orchestrator.tables.labels import moment_text
from orchestrator.tables.table import (
    DATA,
    EVERYWHERE,
    IS_VIRTUAL,
    LINES,
    NESTED,
    NOTHING,
    PAGE,
    Column,
    Kind,
)
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.tables.rows import DeviceRow, ModelRow

_PAGE_DATA: Final = DATA | PAGE


def _fact(
    name: str, head: str = "", kind: Kind = Kind.TEXT, *, is_of_lists: bool = False
) -> Column[DeviceFacts]:
    """Return a column of a device's fact; without a head it is only for exports."""
    forms = EVERYWHERE if is_of_lists else _PAGE_DATA if head else DATA
    return Column(name, head, kind=kind, is_optional=True, forms=forms)


def _clusters(facts: DeviceFacts) -> list[Mapping[str, object]]:
    return [
        {"cpus": cluster.cpus, "min_khz": cluster.min_khz, "max_khz": cluster.max_khz}
        for cluster in facts.clusters
    ]


def _clusters_text(facts: DeviceFacts) -> str:
    """Return the CPU's clusters: ``4 x 1.77 GHz + 4 x 2.80 GHz``; the clock is left out where it
    isn't known.
    """
    parts = [
        f"{len(cluster.cpus)} x {cluster.max_khz / 1e6:.2f} GHz"
        if cluster.max_khz
        else f"{len(cluster.cpus)} cores"
        for cluster in facts.clusters
    ]
    return " + ".join(parts) or NOTHING


#: The facts that a device reports.
FACTS: Final[Sequence[Column[DeviceFacts]]] = (
    _fact("kind"),
    replace(_fact("is_emulator", "emulator", Kind.FLAG), shown=lambda f: "yes" * f.is_emulator),
    _fact("manufacturer"),
    _fact("model"),
    _fact("codename"),
    Column("os_version", "system", lambda row: row.os_version, shown=lambda facts: facts.system),
    _fact("sdk", "SDK", Kind.COUNT),
    _fact("security_patch"),
    _fact("soc", "SoC", is_of_lists=True),
    _fact("abis"),
    Column("clusters", "CPU", _clusters, Kind.RECORD, shown=_clusters_text, forms=NESTED | PAGE),
    _fact("gpu", "GPU"),
    _fact("gpu_driver", "driver of the GPU"),
    replace(
        _fact("memory_bytes", "memory", Kind.COUNT),
        shown=lambda facts: format_bytes(facts.memory_bytes),
    ),
    _fact("fingerprint", "build"),
    _fact("profile", "profile", is_of_lists=True),
)
_LABEL: Final[Column[DeviceRow]] = Column("label", "phone", lambda row: row.label)
DEVICES: Final[Sequence[Column[DeviceRow]]] = (
    replace(_LABEL, forms=_PAGE_DATA),
    replace(_LABEL, shown=lambda row: row.title, forms=LINES),
    Column("serial", value=lambda row: row.serial),
    IS_VIRTUAL,
    *(column.of(lambda row: row.facts) for column in FACTS),
)
MODELS: Final[Sequence[Column[ModelRow]]] = (
    Column("label", "model", lambda row: row.label),
    Column(
        "size_bytes",
        "size",
        lambda row: row.size_bytes,
        kind=Kind.COUNT,
        shown=lambda row: format_bytes(row.size_bytes),
    ),
    Column("sha256", value=lambda row: row.sha256),
)
BUILDS: Final[Sequence[Column[Build]]] = (
    Column("name", "program", lambda row: row.name),
    Column("tool", value=lambda row: row.tool),
    Column("abi", "ABI", lambda row: row.abi, is_optional=True),
    Column("version", value=lambda row: row.version, is_optional=True),
    IS_VIRTUAL,
    Column("sha256", value=lambda row: row.sha256),
)


def origin_of(campaign: Campaign) -> str:
    """Return where a campaign was imported from: ``imported from night.zip ...``; empty for this
    store's own.
    """
    return campaign.terms.origin.text if campaign.terms.origin is not None else ""


CAMPAIGNS: Final[Sequence[Column[Campaign]]] = (
    Column("name", value=lambda row: row.name, shown=lambda item: item.name or item.campaign_id),
    Column(
        "created_at",
        "started",
        lambda row: row.created_at,
        shown=lambda item: moment_text(item.created_at),
    ),
    Column(
        "finished_at",
        "finished",
        lambda row: row.finished_at,
        shown=lambda item: moment_text(item.finished_at),
    ),
    Column("status", value=lambda row: row.status),
    Column("host", value=lambda row: row.host, is_optional=True),
    Column("benchfarm_version", "benchfarm", lambda row: row.benchfarm_version),
    Column("seed", value=lambda row: row.seed, kind=Kind.COUNT),
    Column("campaign_id", "identity", lambda row: row.campaign_id),
    Column("origin", value=origin_of, is_optional=True),
)
