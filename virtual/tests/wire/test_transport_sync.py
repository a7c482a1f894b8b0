"""push, by the plain adb command."""

import os
import random

import pytest

from benchfarm_virtual.faults import parse_fault

TMP = "/data/local/tmp"


@pytest.mark.parametrize("size_bytes", [0, 65_535, 65_536, 65_537, 3_000_000])
def test_file_of_any_size_arrives_as_it_went(link, tmp_path, size_bytes):
    there = tmp_path / "there"
    there.write_bytes(random.Random(size_bytes).randbytes(size_bytes))
    pushed = link.adb("push", there, f"{TMP}/file")
    assert pushed.returncode == 0, pushed
    assert link.adb("exec-out", f"cat {TMP}/file").stdout == there.read_bytes()


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


def test_push_cut_by_the_client_leaves_no_partial_file(link, tmp_path, wait_until):
    link.phone.faults.add(parse_fault("slow", ["bytes_per_s=2000000"]))
    (tmp_path / "f").write_bytes(bytes(50_000_000))
    pushing = link.popen("push", tmp_path / "f", f"{TMP}/cut")
    wait_until(lambda: "cut" in link.phone.userland.files.list(TMP), "the file grows")
    pushing.kill()
    pushing.communicate()
    link.phone.faults.clear()
    wait_until(lambda: "cut" not in link.shell(f"ls {TMP}").split(), "the partial file is removed")
