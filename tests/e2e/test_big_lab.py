"""The lab commands with so many phones that several processes run them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import poll_until
from tests.samples.command import Cli

PHONES = 6


@pytest.fixture
def big_lab(cli: Cli) -> Iterator[Cli]:
    try:
        cli("lab", "up", *["pixel-3"] * PHONES, "--speed", "20").ok()
        yield cli
    finally:
        cli("lab", "down")


def pids(cli: Cli) -> list[int]:
    return json.loads((cli.home / "state" / "lab" / "lab.json").read_text())["pids"]


def test_phones_of_all_processes_are_usable_and_go_down_together(big_lab: Cli) -> None:
    found = big_lab("devices", "--json").ok().json
    assert [item["usable"] for item in found] == [True] * PHONES
    running = pids(big_lab)
    assert len(running) == 2
    big_lab("lab", "down").ok()
    poll_until(lambda: not any(map(is_of_a_lab, running)), "all of its processes have ended")


def is_of_a_lab(pid: int) -> bool:
    try:
        return b"benchfarm_lab" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
