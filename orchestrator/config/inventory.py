"""Which pools and tags the phones of a lab have: ``devices.yaml`` in the data folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from orchestrator.config.faults import Section, checked
from orchestrator.config.fields import OneOrMany, Text
from orchestrator.config.yaml_file import read_yaml
from orchestrator.errors import PlanError
from orchestrator.records.identity import Serial


class Labels(Section):
    """What a phone is for."""

    pools: OneOrMany[tuple[Text, ...]] = ()
    tags: OneOrMany[tuple[Text, ...]] = ()
    #: With which other phones it shares its way to the computer, where no USB path tells it.
    hub: Text | None = None


class InventorySection(Section):
    """The whole file: ``devices: {SERIAL: {pools: [nightly], tags: [rooted]}}``."""

    devices: Annotated[dict[str, Labels], Field(default_factory=dict)]


def load_inventory(path: Path) -> Mapping[Serial, Labels]:
    """Return the labels of phones by serial number; nothing when there is no file. Raises PlanError with all faults."""
    if not path.exists():
        return {}
    section = checked(read_yaml(path), InventorySection)
    return {Serial(serial): labels for serial, labels in section.devices.items()}


class KeptInventory:
    """The inventory of a process that goes on for long: each change counts, and as long as one has faults, what it was.

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
