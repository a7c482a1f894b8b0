"""push, by the plain adb command."""

import os

import pytest

TMP = "/data/local/tmp"


@pytest.mark.parametrize(("mode", "on_phone"), [(0o755, 0o777), (0o644, 0o666), (0o500, 0o555)])
def test_mtime_and_the_owners_mode_bits_go_with_a_file(link, tmp_path, mode, on_phone):
    there = tmp_path / "tool"
    there.write_bytes(b"x")
    there.chmod(mode)
    os.utime(there, (1_500_000_000, 1_500_000_000))
    link.adb("push", there, f"{TMP}/tool")
    stat = link.phone.userland.files.stat(f"{TMP}/tool")
    assert (stat.mode & 0o7777, stat.mtime_s) == (on_phone, 1_500_000_000)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/system/f", "couldn't create file: Read-only file system"),
        (f"{TMP}/new/", "couldn't create file: Is a directory"),
        ("/dev/null", "1 file pushed"),
    ],
)
def test_push_says_what_the_place_makes_of_it(link, tmp_path, target, words):
    (tmp_path / "f").write_bytes(bytes(5_000_000))
    result = link.adb("push", tmp_path / "f", target)
    assert words in (result.stderr + result.stdout).decode()
    assert result.returncode == int(words.startswith("couldn't"))
    assert link.shell(f"ls -d {TMP}/new || echo none") == "none\n"
