"""Files of a folder in one transfer, by a real shell."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.devices.detached import FileBundle

FILES = {"out": b"a line\n", "err": b"", "result.pb": bytes(range(256)) * 9}
NAMES = ("out", "err", "missing", "result.pb")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def sent(bundle: FileBundle, folder: Path) -> tuple[bytes, str]:
    done = subprocess.run(["sh", "-c", bundle.script], cwd=folder, capture_output=True, check=True)
    return done.stdout, done.stderr.decode()


def test_files_come_whole_and_those_that_are_not_there_are_left_out(folder: Path) -> None:
    bundle = FileBundle(NAMES, limit_bytes=1 << 20)
    assert bundle.cut(*sent(bundle, folder)) == FILES


def test_one_file_comes_too(folder: Path) -> None:
    bundle = FileBundle(("out",), limit_bytes=1 << 20)
    assert bundle.cut(*sent(bundle, folder)) == {"out": FILES["out"]}


def test_a_shell_that_was_killed_before_it_told_of_any_file_is_not_taken_for_no_files(folder: Path) -> None:
    assert FileBundle(NAMES, limit_bytes=1 << 20).cut(b"", "") is None


def test_nothing_comes_of_files_that_are_too_large_together(folder: Path) -> None:
    bundle = FileBundle(NAMES, limit_bytes=1000)
    output, notes = sent(bundle, folder)
    assert output == b""
    assert bundle.cut(output, notes) is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b"A" + data[1:]])
def test_files_that_were_cut_or_changed_on_their_way_are_refused(folder: Path, damage: "object") -> None:
    bundle = FileBundle(NAMES, limit_bytes=1 << 20)
    output, notes = sent(bundle, folder)
    assert callable(damage)
    assert bundle.cut(damage(output), notes) is None


def test_checksums_of_old_phones_are_understood(folder: Path) -> None:
    bundle = FileBundle(NAMES, limit_bytes=1 << 20)
    bundle.script = bundle.script.replace("command -v sha256sum >/dev/null", "false")
    output, notes = sent(bundle, folder)
    assert bundle.cut(output, notes) == FILES
