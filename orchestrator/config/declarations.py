"""Declarations other than plans: builds of benchmark programs and models
(docs/reference/models-and-builds.md), kinds of phone (docs/reference/profiles.md), and a lab's
phones (``devices.yaml``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path

import yaml

from orchestrator.config.yaml_file import Faults, checked, load_each, read_named, read_yaml
from orchestrator.errors import PlanError, UsageError
from orchestrator.fields import (
    AnyText,
    FilePath,
    NamedPercent,
    Sha256,
    Text,
    unknown_word_message,
)
from orchestrator.files import expanded, keep_file
from orchestrator.installation import plugins
from orchestrator.program import program_sources
from orchestrator.records import frozen
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import Serial, ToolName
from orchestrator.records.device import DeviceProfile, Labels


def load_builds(folders: Sequence[Path]) -> tuple[BuildSpec, ...]:
    """Read all build files (``*.yaml``) of some folders, by name; of two with one name the first
    folder's is taken.

    Raises:
        PlanError: with one line for each fault of all files.
    """
    specs_by_name = load_each(folders, load_build, label="build files")
    return tuple(spec for specs in specs_by_name.values() for spec in specs)


def load_build(path: Path) -> tuple[BuildSpec, ...]:
    """Read one build file: a BuildSpec for each of its ABIs.

    Raises PlanError with one line for each fault.
    """
    file = read_named(path, BuildSpec, context={"program": tool_of})
    return tuple(replace(file, abi=abi) for abi in file.abis)


def all_tool_names() -> list[str]:
    """Return the names of all tools."""
    declared = (name for source in program_sources() for name in source.names())
    return [*dict.fromkeys([*ToolName, *plugins("programs"), *declared])]


def tool_of(word: object) -> object:
    """Return the tool of a word: one of benchfarm's own, a plugin's, or a declared program by its
    name or file.

    Raises ValueError for one that isn't known.
    """
    if not isinstance(word, str) or word in list(ToolName):
        return word
    if word in plugins("programs"):
        return ToolName(word)
    for source in program_sources():
        if (tool := source.named(word)) is not None:
            return tool
    raise ValueError(unknown_word_message(word, all_tool_names()))


def tool_by_name(word: str) -> ToolName:
    """Return the tool of a name on the command line; raises UsageError for an unknown one."""
    try:
        tool = tool_of(word)
        return tool if isinstance(tool, ToolName) else ToolName(word)
    except ValueError as error:
        raise UsageError(str(error)) from None


def load_profiles(folders: Sequence[Path]) -> tuple[DeviceProfile, ...]:
    """Read all profiles (``*.yaml``) of some folders, sorted by name; of two with one name the
    first folder's is taken.

    Raises:
        PlanError: with one line for each fault of all files.
    """
    return tuple(load_each(folders, load_profile, label="device profiles").values())


def load_profile(path: Path) -> DeviceProfile:
    """Read one profile file; raises PlanError with one line for each fault."""
    return read_named(path, DeviceProfile)


def match_profile(
    profiles: Sequence[DeviceProfile], properties: Mapping[str, str]
) -> DeviceProfile | None:
    """Return the profile whose properties a device has, the one with the most properties if several
    match; None if none does.

    Texts are compared without regard to case.
    """
    fitting = [
        profile
        for profile in profiles
        if all(
            properties.get(name, "").casefold() in {value.casefold() for value in values}
            for name, values in profile.match.items()
        )
    ]
    # Of equally specific ones, the first by name: the same on every computer.
    return min(fitting, key=lambda profile: (-len(profile.match), profile.name), default=None)


@frozen
class Inventory:
    """The whole file: ``devices: {SERIAL: {pools: [nightly], tags: [rooted]}}``."""

    devices: dict[str, Labels] = field(default_factory=dict)


def load_inventory(path: Path) -> Mapping[Serial, Labels]:
    """Return the labels of phones by serial number; nothing when there is no file.

    Raises PlanError with all faults.
    """
    if not path.exists():
        return {}
    inventory = checked(read_yaml(path), Inventory)
    return {Serial(serial): labels for serial, labels in inventory.devices.items()}


class LiveInventory:
    """The inventory of a long-running process, read again on each use; while the file has faults,
    the last valid one counts.

    May be used by several threads.
    """

    def __init__(self, path: Path) -> None:
        """Read it for the first time; raises PlanError with all faults."""
        self._path = path
        self._good = load_inventory(path)
        #: The faults of the file at its last reading, empty for none.
        self.fault = ""

    def read(self) -> Mapping[Serial, Labels]:
        """Return the file's labels; the last valid ones while it has faults."""
        try:
            self._good, self.fault = load_inventory(self._path), ""
        except PlanError as error:
            self.fault = str(error)
        return self._good


MANIFEST_NAME = "models.yaml"


@frozen
class Accuracy:
    """A model's accuracy and its source."""

    percent: NamedPercent
    #: For example ``ImageNet top-1``.
    metric: Text = "top-1"
    #: A page's address, or how it was measured.
    source: Text


@frozen
class ManifestEntry:
    """One model of a ``models.yaml``, with all that is needed to get it again."""

    name: Text
    sha256: Sha256
    #: Absolute; the file's name may start from the manifest's folder.
    path: FilePath
    #: The command that builds or fetches it.
    command: Text = ""
    #: Versions and settings of the build, by name: ``tensorflow``, ``seed``, ``variant`` ...
    build: Mapping[Text, AnyText] = field(default_factory=dict)
    #: Where it was downloaded from.
    url: Text = ""
    accuracy: Accuracy | None = None
    #: For people, for example that its weights are random.
    note: Text = ""


@frozen
class ModelManifest:
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
    manifest = checked(file, ModelManifest)
    faults = Faults(file)
    folder = path.absolute().parent
    entries: dict[str, ManifestEntry] = {}
    names: dict[str, str] = {}
    for number, entry in enumerate(manifest.models):
        if names.setdefault(entry.name, entry.sha256) != entry.sha256:
            faults.add(
                ("models", number, "name"), f"{entry.name!r} is already the name of another model"
            )
        path = folder / expanded(entry.path)
        entries[entry.sha256] = replace(entry, path=path)
    faults.raise_if_any()
    return entries


def named_models(folders: Iterable[Path]) -> Mapping[str, ManifestEntry]:
    """Return the models of several folders' manifests by name, the first folder's first.

    Raises PlanError.
    """
    entries: dict[str, ManifestEntry] = {}
    for folder in folders:
        for entry in load_manifest(folder / MANIFEST_NAME).values():
            entries.setdefault(entry.name, entry)
    return entries


def add_to_manifest(path: Path, entries: Iterable[ManifestEntry]) -> None:
    """Write entries into a manifest, replacing those with the same name or content.

    Comments in the file are lost. An entry without an accuracy keeps that of the entry with the
    same content.

    Raises:
        PlanError: the existing manifest has faults.
        HostStorageError: it can't be written.
    """
    stored = dict(load_manifest(path))
    for new_entry in entries:
        before = stored.get(new_entry.sha256)
        accuracy = before.accuracy if before is not None else None
        entry = replace(new_entry, accuracy=new_entry.accuracy or accuracy)
        stored = {
            sha256: other
            for sha256, other in stored.items()
            if other.name != entry.name and sha256 != entry.sha256
        }
        stored[entry.sha256] = entry
    folder = path.absolute().parent
    rows = [_row(entry, folder) for entry in sorted(stored.values(), key=lambda entry: entry.name)]
    text = yaml.dump(
        {"models": rows}, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=120
    )
    keep_file(path, text, is_private=False)


def _row(entry: ManifestEntry, folder: Path) -> dict[str, object]:
    file = entry.path.relative_to(folder) if entry.path.is_relative_to(folder) else entry.path
    accuracy = asdict(entry.accuracy) if entry.accuracy else None
    row: dict[str, object] = {
        "name": entry.name,
        "file": str(file),
        "sha256": entry.sha256,
        "command": entry.command,
        "url": entry.url,
    }
    row |= {"note": entry.note, "build": dict(entry.build), "accuracy": accuracy}
    return {key: value for key, value in row.items() if value}
