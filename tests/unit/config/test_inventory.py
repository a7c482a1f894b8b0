"""What phones are for, as a file says that is changed while it is read."""

from pathlib import Path

import pytest

from orchestrator.config.declarations import LiveInventory
from orchestrator.errors import PlanError


def test_what_an_inventory_said_counts_while_the_file_has_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    kept = LiveInventory(path)
    assert (dict(kept.read()), kept.fault) == ({}, "")
    path.write_text("devices: {A: {pools: [nightly]}}")
    assert [labels.pools for labels in kept.read().values()] == [("nightly",)]
    path.write_text("devices: {A: {pool: [release]}}")
    assert [labels.pools for labels in kept.read().values()] == [("nightly",)]
    assert f"{path}:1:" in kept.fault
    # One that has a fault at first is refused.
    with pytest.raises(PlanError, match="unknown key"):
        LiveInventory(path)
    path.write_text("devices: {A: {pools: [release]}}")
    assert [labels.pools for labels in kept.read().values()] == [("release",)]
    assert kept.fault == ""
