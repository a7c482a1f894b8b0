"""``models.yaml``: the models of a folder, how each is had again, and how accurate it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from orchestrator.config.yaml_file import Faults, Section, checked, read_yaml
from orchestrator.files import keep_file
from orchestrator.records.model import ManifestEntry

MANIFEST_NAME = "models.yaml"


class ManifestSection(Section):
    """The whole file."""

    models: tuple[ManifestEntry, ...] = ()


def load_manifest(path: Path) -> Mapping[str, ManifestEntry]:
    """Return the models that a manifest names, by sha256; nothing when there is no such file.

    Raises:
        PlanError: with one line for each fault.
    """
    if not path.exists():
        return {}
    file = read_yaml(path)
    section = checked(file, ManifestSection)
    faults = Faults(file)
    folder = path.absolute().parent
    found: dict[str, ManifestEntry] = {}
    names: dict[str, str] = {}
    for number, entry in enumerate(section.models):
        if names.setdefault(entry.name, entry.sha256) != entry.sha256:
            faults.add(
                ("models", number, "name"), f"{entry.name!r} is already the name of another model"
            )
        path = folder / entry.path.expanduser()
        found[entry.sha256] = dataclasses.replace(entry, path=path)
    faults.raise_if_any()
    return found


def named_models(folders: Iterable[Path]) -> Mapping[str, ManifestEntry]:
    """Return the models of several folders' manifests by name, the first folder's first.

    Raises PlanError.
    """
    found: dict[str, ManifestEntry] = {}
    for folder in folders:
        for entry in load_manifest(folder / MANIFEST_NAME).values():
            found.setdefault(entry.name, entry)
    return found


def add_to_manifest(path: Path, entries: Iterable[ManifestEntry]) -> None:
    """Write entries into a manifest, in the place of those with the same name or content; the rest
    stays.

    What people wrote as comments is lost; an accuracy that they wrote stays unless the entry brings
    one, as long as the content is the same.

    Raises:
        PlanError: the manifest that is there has faults.
        HostStorageError: it can't be written.
    """
    there = dict(load_manifest(path))
    for given in entries:
        before = there.get(given.sha256)
        known = before.accuracy if before is not None else None
        entry = dataclasses.replace(given, accuracy=given.accuracy or known)
        there = {
            sha256: other
            for sha256, other in there.items()
            if other.name != entry.name and sha256 != entry.sha256
        }
        there[entry.sha256] = entry
    folder = path.absolute().parent
    rows = [_row(entry, folder) for entry in sorted(there.values(), key=lambda entry: entry.name)]
    text = yaml.dump(
        {"models": rows}, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=120
    )
    keep_file(path, text, is_private=False)


def _row(entry: ManifestEntry, folder: Path) -> dict[str, object]:
    file = entry.path.relative_to(folder) if entry.path.is_relative_to(folder) else entry.path
    accuracy = dataclasses.asdict(entry.accuracy) if entry.accuracy else None
    row: dict[str, object] = {
        "name": entry.name,
        "file": str(file),
        "sha256": entry.sha256,
        "command": entry.command,
        "url": entry.url,
    }
    row |= {"note": entry.note, "build": dict(entry.build), "accuracy": accuracy}
    return {key: value for key, value in row.items() if value}
