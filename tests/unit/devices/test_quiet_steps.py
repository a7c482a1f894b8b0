"""Steps that a real shell runs as a phone's would, over files in the place of sysfs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.devices.quiet import QuietStep, is_network_serial, steps_for
from orchestrator.records.plan import Quiet
from tests.samples.records import facts_of

KGSL = "/sys/class/kgsl/kgsl-3d0/devfreq"
#: Programs of a phone whose shell user becomes root by ``su``, and may read no clock otherwise.
PROGRAMS = {
    "id": "echo ${RIGHTS:-2000}",
    "su": 'shift; RIGHTS=0 exec "$@"',
    "cat": '[ "$RIGHTS" = 0 ] && exec /bin/cat "$@"; echo "Permission denied" >&2; exit 1',
}


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    folder = tmp_path / "devfreq"
    folder.mkdir()
    (folder / "min_freq").write_text("257000000\n")
    (folder / "max_freq").write_text("710000000\n")
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    return folder


@pytest.fixture
def step() -> QuietStep:
    rooted = facts_of("R", is_rooted=True)
    quiet = Quiet(pin_gpu=True)
    return next(item for item in steps_for(quiet, rooted, over_network=False) if "GPU" in item.name)


def shell(command: str, gpu: Path) -> str:
    environ = {**os.environ, "PATH": f"{gpu.parent / 'bin'}:{os.environ['PATH']}"}
    script = command.replace(KGSL, str(gpu))
    return subprocess.run(
        ["sh", "-c", script], env=environ, capture_output=True, text=True, check=False
    ).stdout.strip()


def test_clocks_that_only_root_may_read_are_pinned_and_restored(gpu: Path, step: QuietStep) -> None:
    told = shell(step.read, gpu)
    assert told == f"{gpu} 257000000 710000000"
    assert not step.accepts(told)
    shell(step.apply, gpu)
    assert step.accepts(shell(step.read, gpu))
    shell(step.undo(told), gpu)
    assert shell(step.read, gpu) == told


@pytest.mark.parametrize("unreadable", ["min_freq", "max_freq"])
def test_a_gpu_of_which_one_clock_is_not_told_is_taken_for_one_without(
    gpu: Path, step: QuietStep, unreadable: str
) -> None:
    (gpu / unreadable).write_text("")
    assert shell(step.read, gpu) == ""


@pytest.mark.parametrize(
    ("name", "is_reached_over_network"),
    [
        ("R58M123ABC", False),
        ("emulator-5554", False),
        ("192.168.1.20:5555", True),
        ("[fe80::1%wlan0]:37001", True),
        ("adb-R58M123ABC-x7Kd2q (2)._adb-tls-connect._tcp.", True),
        ("adb-R58M123ABC._adb._tcp", True),
    ],
)
def test_a_name_with_a_port_or_by_mdns_is_of_a_phone_on_a_network(
    name: str, is_reached_over_network: bool
) -> None:
    assert is_network_serial(name) is is_reached_over_network
