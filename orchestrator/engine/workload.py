"""What the devices of a campaign use together, and what its cases refer to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.clock import Clock
from orchestrator.ports import Observer, ParityReference, Tool
from orchestrator.records.campaign import Campaign
from orchestrator.records.workload import Build, Model, ToolName

if TYPE_CHECKING:
    from orchestrator.devices.books import QuarantineFolder
    from orchestrator.devices.conditioning import LadderConditioner
    from orchestrator.devices.lease import FileLease
    from orchestrator.devices.recovery import LadderRescuer
    from orchestrator.store.opening import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every device of a campaign uses together."""

    store: Store
    tools: Mapping[ToolName, Tool]
    lease: FileLease
    conditioner: LadderConditioner
    rescuer: LadderRescuer
    quarantine: QuarantineFolder
    observer: Observer
    clock: Clock
    cancelled: threading.Event
    #: What the pass ``parity`` compares with; None where nothing computes it.
    reference: ParityReference | None = None
    #: How long a device that didn't become fit is left alone.
    unfit_pause_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the cases of a campaign refer to, by content."""

    campaign: Campaign
    models: Mapping[str, Model]
    builds: Mapping[str, Build]
    #: The flags that a build has, by its sha256; those that weren't asked are left out.
    known_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def build(self, sha256: str) -> Build:
        """Return a build that a case names."""
        return self.builds[sha256]

    def of_package(self, package: str) -> set[str]:
        """Return the builds of an app: only one of them can be installed."""
        return {build.sha256 for build in self.builds.values() if build.package == package}
