"""What benchfarm keeps on this computer's disk, and what frees it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.bootstrap import Settings
from orchestrator.tables.column import DATA, EVERYWHERE, Column, Kind
from orchestrator.tables.table import Table
from orchestrator.units import format_bytes

_MADE_AGAIN: Final = "delete it: what is needed is made or fetched again"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """One kind of file."""

    name: str
    path: Path
    files: int
    size_bytes: int
    #: What frees its space.
    freed_by: str


_COLUMNS: Final[Sequence[Column[DiskUse]]] = (
    Column("kind", "kind", lambda use: use.name),
    Column("files", "files", lambda use: use.files, Kind.COUNT),
    Column(
        "size_bytes",
        "size",
        lambda use: use.size_bytes,
        Kind.NUMBER,
        shown=lambda use: format_bytes(use.size_bytes),
        forms=EVERYWHERE,
    ),
    Column("path", "", lambda use: use.path, forms=DATA),
    Column("freed_by", "freed by", lambda use: use.freed_by),
)


def disk_usage(settings: Settings) -> Table[DiskUse]:
    """Return what the store, its reports and the cache take; what isn't there takes nothing."""
    return Table(
        name="usage",
        caption="What is kept on this disk",
        columns=_COLUMNS,
        rows=list(_uses(settings)),
    )


def _uses(settings: Settings) -> Iterator[DiskUse]:
    if (store := settings.store_file) is not None:
        files = [store, *(store.with_name(f"{store.name}{end}") for end in ("-wal", "-shm"))]
        sizes = [path.stat().st_size for path in files if path.is_file()]
        yield DiskUse(
            name="store",
            path=store,
            files=len(sizes),
            size_bytes=sum(sizes),
            freed_by="benchfarm store prune --older-than 90d --compact; benchfarm results remove",
        )
    for name, folder, freed_by in (
        (
            "reports",
            settings.data_folder / "reports",
            "delete it: benchfarm report writes it again",
        ),
        ("checks", settings.data_folder / "checks", "delete what isn't needed"),
        ("cache", settings.cache_folder, _MADE_AGAIN),
    ):
        sizes = list(_sizes(folder))
        yield DiskUse(
            name=name, path=folder, files=len(sizes), size_bytes=sum(sizes), freed_by=freed_by
        )


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of a folder's files; what vanishes meanwhile, or can't be read, is left out."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(f"{place}/{name}").st_size
            except OSError:
                continue
