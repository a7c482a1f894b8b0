"""What ``benchfarm status --watch`` reads again at each look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.app.board import StoredRows
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.status import look
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import MemoryStore
from tests.samples.sample_lab import small_lab


class Counting(MemoryStore):
    """A store that counts how often runs and plans were read."""

    reads = 0

    def runs(self, **filters: Any) -> Iterator[RunRecord]:
        """Count, and read."""
        self.reads += 1
        return super().runs(**filters)


def test_a_campaign_that_nobody_runs_is_read_again_only_when_more_of_it_is_stored(tmp_path: Path) -> None:
    lab, store = small_lab(), Counting()
    (campaign, *_), (*runs, last) = lab.campaigns, lab.runs
    cut_off = replace(campaign, status=CampaignStatus.INTERRUPTED)
    store.begin_campaign(cut_off, devices=lab.devices.values(), models=lab.models.values(), builds=lab.builds.values())
    for run in runs:
        store.append_run(run)
    with Farm(Settings.from_environment({}, home=tmp_path), store=store) as farm:
        stored = StoredRows(farm)
        first = look(farm, stored)
        assert look(farm, stored) == first
        assert store.reads == 1
        store.append_run(last)
        assert look(farm, stored) != first
        assert store.reads == 2
