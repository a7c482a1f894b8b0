"""Which pools and tags the phones of a lab have: ``devices.yaml`` in the data folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from orchestrator.config.faults import Section, checked
from orchestrator.config.fields import OneOrMany, Text
from orchestrator.config.yaml_file import read_yaml
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
