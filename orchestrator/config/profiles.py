"""What is declared about kinds of phone (docs/reference/profiles.md), and about a lab's phones
(``devices.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from orchestrator.config.yaml_file import Section, checked, load_each, read_named, read_yaml
from orchestrator.errors import PlanError
from orchestrator.fields import OneOrMany, Text
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceProfile


def load_profiles(folders: Sequence[Path]) -> tuple[DeviceProfile, ...]:
    """Read all profiles (``*.yaml``) of some folders, sorted by name; of two with one name the
    first folder's is taken.

    Raises:
        PlanError: with one line for each fault of all files.
    """
    problems: list[str] = []
    found = load_each(folders, load_profile, problems)
    if problems:
        raise PlanError("the device profiles have faults:", faults=problems)
    return tuple(sorted(found.values(), key=lambda profile: profile.name))


def load_profile(path: Path) -> DeviceProfile:
    """Read one profile file; raises PlanError with one line for each fault."""
    return read_named(path, DeviceProfile)


def match_profile(
    profiles: Sequence[DeviceProfile], properties: Mapping[str, str]
) -> DeviceProfile | None:
    """Return the profile whose every property a device has; the one that asks for most when several
    do.

    Texts are compared without regard to case. None when no profile fits.
    """
    fitting = [
        profile
        for profile in profiles
        if all(
            properties.get(name, "").casefold() in {value.casefold() for value in values}
            for name, values in profile.match.items()
        )
    ]
    # Of those that ask for equally much, the one whose name comes first: the same on every
    # computer.
    return min(fitting, key=lambda profile: (-len(profile.match), profile.name), default=None)


class Labels(Section):
    """What a phone is for."""

    pools: OneOrMany[tuple[Text, ...]] = ()
    tags: OneOrMany[tuple[Text, ...]] = ()


class InventorySection(Section):
    """The whole file: ``devices: {SERIAL: {pools: [nightly], tags: [rooted]}}``."""

    devices: Annotated[dict[str, Labels], Field(default_factory=dict)]


def load_inventory(path: Path) -> Mapping[Serial, Labels]:
    """Return the labels of phones by serial number; nothing when there is no file.

    Raises PlanError with all faults.
    """
    if not path.exists():
        return {}
    section = checked(read_yaml(path), InventorySection)
    return {Serial(serial): labels for serial, labels in section.devices.items()}


class KeptInventory:
    """The inventory of a process that goes on for long: each change counts, and as long as one has
    faults, what it was.

    May be used by several threads.
    """

    def __init__(self, path: Path) -> None:
        """Read it for the first time; raises PlanError with all faults."""
        self._path = path
        self._good = load_inventory(path)
        #: What was wrong with the file when it was last read, empty for nothing.
        self.fault = ""

    def read(self) -> Mapping[Serial, Labels]:
        """Return what the file says, or said before it had faults."""
        try:
            self._good, self.fault = load_inventory(self._path), ""
        except PlanError as error:
            self.fault = str(error)
        return self._good
