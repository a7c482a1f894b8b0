"""Everything that a report shows, derived from stored records and not yet laid out."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build
from orchestrator.report.headline import Headline
from orchestrator.report.winners import Contest
from orchestrator.tables.operators import DiffPair
from orchestrator.tables.rows import DeviceRow, ModelRow, ResultRow, SkipRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows."""

    campaigns: tuple[Campaign, ...]
    devices: tuple[DeviceRow, ...]
    models: tuple[ModelRow, ...]
    builds: tuple[Build, ...]
    #: By model, device and configuration, in the order in which people read them.
    results: tuple[ResultRow, ...]
    skipped: tuple[SkipRow, ...]
    headline: Headline
    #: By model and device, in the order of the results.
    contests: tuple[Contest, ...]
    #: Where profiles were taken: of one case over campaigns, and of a delegate against the CPU.
    diffs: tuple[DiffPair, ...] = ()

    @property
    def has_virtual(self) -> bool:
        """Whether anything in the report comes from a virtual phone."""
        return any(device.is_virtual for device in self.devices) or any(
            row.is_virtual for row in self.results
        )

    @property
    def has_real(self) -> bool:
        """Whether anything in the report comes from a real device."""
        return any(not row.is_virtual for row in self.results)
