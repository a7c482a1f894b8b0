"""What is to be undone is never taken for nothing because it couldn't be read."""

from pathlib import Path

import pytest

from orchestrator.devices.quiet import UndoJournal
from orchestrator.errors import HostStorageError
from orchestrator.ports import SettingChange
from orchestrator.records.case import Serial

PHONE = Serial("R58M12")
FIRST, SECOND = SettingChange(what="first", undo="true"), SettingChange(what="second", undo="true")


def test_a_journal_that_can_not_be_read_is_not_overwritten(tmp_path: Path) -> None:
    journal = UndoJournal(tmp_path)
    journal.add(PHONE, FIRST)
    (file,) = tmp_path.iterdir()
    kept = file.rename(tmp_path / "kept")
    # As a fault of the disk: there is something, and it can't be read.
    file.symlink_to(file.name)
    with pytest.raises(HostStorageError, match=r"can't be read from .*R58M12"):
        journal.add(PHONE, SECOND)
    file.unlink()
    kept.rename(file)
    assert journal.pending(PHONE) == [FIRST]
    file.write_bytes(b"\xff")
    with pytest.raises(HostStorageError):
        journal.pending(PHONE)


@pytest.mark.parametrize("line", ['{"what": "tw', "[]", '{"what": "two"}', '{"undo": "true"}'])
def test_a_journal_with_a_line_that_can_not_be_read_is_not_empty(tmp_path: Path, line: str) -> None:
    journal = UndoJournal(tmp_path)
    serial = Serial("192.168.7.21:5555/../x")
    journal.add(serial, SettingChange(what="one", undo="true"))
    assert [change.what for change in journal.pending(serial)] == ["one"]
    file = next(tmp_path.iterdir())
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(HostStorageError, match=r"device-192.*line 2"):
        journal.pending(serial)
    with pytest.raises(HostStorageError):
        journal.add(serial, SettingChange(what="three", undo="true"))
    file.write_text("")
    with pytest.raises(HostStorageError, match="it is empty"):
        journal.pending(serial)
    assert journal.serials() == [serial]


def test_a_journal_folder_that_can_not_be_read_is_not_empty(tmp_path: Path) -> None:
    assert UndoJournal(tmp_path / "none").serials() == []
    (tmp_path / "journals").write_text("a file where a folder should be")
    with pytest.raises(HostStorageError, match="journals"):
        UndoJournal(tmp_path / "journals").serials()
