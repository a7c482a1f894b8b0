"""A file is written whole or not at all, and nothing is left beside it."""

from pathlib import Path

import pytest

from orchestrator.files import write_whole


def test_it_is_written_with_its_folder_in_the_place_of_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_whole(path, "ä")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [item.name for item in path.parent.iterdir()] == ["b.json"]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    (taken / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_whole(taken, "text")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "other", "\ud800")
    assert [item.name for item in tmp_path.iterdir()] == ["taken"]
    assert [item.name for item in taken.iterdir()] == ["inside"]
