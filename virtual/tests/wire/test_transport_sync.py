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


def test_push_to_a_read_only_place_says_why(link, tmp_path):
    (tmp_path / "f").write_bytes(bytes(5_000_000))
    result = link.adb("push", tmp_path / "f", "/system/f")
    assert result.returncode == 1
    assert b"couldn't create file: " in result.stderr + result.stdout
    assert link.shell("echo alive") == "alive\n"
