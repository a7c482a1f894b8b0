"""The store of a command, which may be opened before it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import StoreError


def test_a_store_that_could_not_be_opened_ahead_is_told_to_who_asks_for_it_and_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite"
    file.write_text("no database")
    with Farm(Settings.from_environment({}, home=tmp_path)) as farm:
        farm.open_store_ahead()
        with pytest.raises(StoreError, match=r"store\.sqlite"):
            _ = farm.store
        file.unlink()
        assert farm.store.campaign_count() == 0


def test_a_store_that_nobody_asked_for_is_closed_too(tmp_path: Path) -> None:
    with Farm(Settings.from_environment({}, home=tmp_path)) as farm:
        farm.open_store_ahead()
    assert (tmp_path / "store.sqlite").is_file()
    assert not (tmp_path / "store.sqlite-wal").exists()
