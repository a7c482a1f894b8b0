"""What is to be undone is never taken for nothing because it couldn't be read."""

from pathlib import Path

import pytest

from orchestrator.devices.journal import Change, UndoJournal
from orchestrator.errors import HostStorageError
from orchestrator.records.identity import Serial

PHONE = Serial("R58M12")
FIRST, SECOND = Change(what="first", undo="true"), Change(what="second", undo="true")


def test_a_journal_that_can_not_be_read_is_not_overwritten(tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path)
    journal.add(PHONE, FIRST)
    (file,) = tmp_path.iterdir()
    kept = file.rename(tmp_path / "kept")
    # As a fault of the disk: there is something, and it can't be read.
    file.symlink_to(file.name)
    with pytest.raises(HostStorageError, match="R58M12 can't be read from"):
        journal.add(PHONE, SECOND)
    file.unlink()
    kept.rename(file)
    assert journal.pending(PHONE) == [FIRST]
    file.write_bytes(b"\xff")
    with pytest.raises(HostStorageError):
        journal.pending(PHONE)


def test_a_phone_without_a_journal_has_nothing_pending(tmp_path: Path) -> None:
    assert UndoJournal(tmp_path / "none").pending(PHONE) == []
