"""macOS has no /proc: phones are measured, held and released on a computer without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.samples.command import BENCHFARM, Cli

#: A mount namespace of its own whose /proc is empty.
_WITHOUT = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
_EMPTY_PROC = 'mount -t tmpfs none /proc && exec "$@"'


def without_proc(cli: Cli, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_WITHOUT, _EMPTY_PROC, "sh", BENCHFARM, *map(str, words)],
        env=cli.environ(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="taking /proc away takes root")
def test_phones_are_measured_told_and_released_without_proc(tmp_path: Path, model: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    up = without_proc(cli, "virtual", "up", "pixel-3", "--speed", 60)
    try:
        assert up.returncode == 0, up.stderr
        words = ("-d", "xnnpack,gpu", "-n", 2, "--min-secs", 0.1, "--json")
        done = without_proc(cli, "bench", model, *words)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        doctor = without_proc(cli, "doctor")
        assert doctor.returncode == 0, doctor.stderr
        assert "no phone is in use" in doctor.stdout
    finally:
        down = without_proc(cli, "virtual", "down")
    assert down.returncode == 0, down.stderr
    runs = cli("results", "runs", "--json").ok().json
    assert [run["outcome"] for run in runs] == ["completed"] * 4
    assert cli("virtual", "list", "--json").ok().json["phones"] == []
