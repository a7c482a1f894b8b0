"""How a farm knows a host again."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.app.farm_host import host_id
from orchestrator.errors import HostStorageError


def test_a_host_is_the_same_each_time_and_no_other_one(tmp_path: Path) -> None:
    one = host_id(tmp_path / "one" / "state")
    assert host_id(tmp_path / "one" / "state") == one
    assert host_id(tmp_path / "two" / "state") != one
    assert [path.name for path in (tmp_path / "one" / "state").iterdir()] == ["farm-host"]


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(HostStorageError, match="state"):
        host_id(tmp_path / "state")
