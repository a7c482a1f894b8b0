"""A file is written whole or not at all, and nothing is left beside it."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.files import (
    BothEnds,
    check_writable,
    head_and_tail,
    keep_file,
    make_private,
    write_file,
    write_whole,
)


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


def test_writers_whose_threads_have_one_number_lose_nothing(tmp_path: Path) -> None:
    """Two containers that share a folder number their threads alike."""
    script = """
import sys, threading
from pathlib import Path
from orchestrator.files import write_whole
threading.get_native_id = lambda: 7
for number in range(200):
    write_whole(Path(sys.argv[1]) / "shared.json", sys.argv[2] * 1000)
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), word], stderr=subprocess.PIPE
        )
        for word in "abcd"
    ]
    assert [writer.communicate()[1] for writer in writers] == [b""] * 4
    assert (tmp_path / "shared.json").read_text() in {word * 1000 for word in "abcd"}
    assert [path.name for path in tmp_path.iterdir()] == ["shared.json"]


def test_a_folder_that_is_made_is_the_users_alone_and_an_older_one_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    make_private(tmp_path / "old" / "a" / "b")
    modes = [
        path.stat().st_mode & 0o777
        for path in (tmp_path / "old", tmp_path / "old/a", tmp_path / "old/a/b")
    ]
    assert modes == [0o755, 0o700, 0o700]
    write_whole(tmp_path / "shown" / "x.html", "x", is_private=False)
    assert (tmp_path / "shown").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("lines", [0, 5, 10, 11, 500])
@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 10_000])
def test_both_ends_of_what_comes_in_pieces_are_those_of_a_file(
    lines: int, piece_bytes: int
) -> None:
    data = b"".join(b"line %03d\n" % number for number in range(lines))
    ends = BothEnds(90)
    for start in range(0, len(data), piece_bytes):
        ends.add(data[start : start + piece_bytes])
    assert ends.content() == head_and_tail(io.BytesIO(data), 90)
    assert (ends.content() == data) == (lines <= 10)


def test_a_file_is_the_users_alone_unless_it_is_for_others(tmp_path: Path) -> None:
    keep_file(tmp_path / "own", "x")
    keep_file(tmp_path / "shown", "x", is_private=False)
    (tmp_path / "usual").write_text("x")
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("own", "shown", "usual")]
    assert modes[0] == 0o600
    assert modes[1] == modes[2]


def test_a_users_older_file_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(0o640)
    write_file(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path: Path) -> None:
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    file.write_text("old")
    link.symlink_to(file)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe):
        check_writable(path)
        write_file(path, ["n", b"ew"])
    assert (os.read(reader, 9), pipe.is_fifo()) == (b"new", True)
    os.close(reader)
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("mode", ["a", "w"])
def test_an_output_that_goes_to_a_file_is_written_and_not_replaced(
    tmp_path: Path, place: str, mode: str
) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom orchestrator.files import write_file\n"
        "write_file(Path(sys.argv[1]), b'one\\n')\nprint('two')"
    )
    path = tmp_path / "log"
    path.write_text("before\n")
    with path.open(mode) as output:
        subprocess.run([sys.executable, "-c", code, place], stdout=output, check=True)
    assert path.read_text() == "before\n" * (mode == "a") + "one\ntwo\n"
