"""The lab commands with so many phones that several processes run them."""

import json
import os
import signal
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


def test_a_lab_says_which_phones_went_with_a_process_and_takes_them_again(big_lab: Cli) -> None:
    listed = big_lab("lab", "list", "--json").ok().json
    serials = [phone["serial"] for phone in listed["phones"]]
    assert len(serials) == PHONES
    assert listed["lost"] == []
    killed = pids(big_lab)[1]
    os.kill(killed, signal.SIGKILL)

    lost = big_lab("lab", "list", "--json").ok().json["lost"][0]["serials"]
    assert lost == serials[1::2]
    told = f"process {killed} of the virtual lab was ended by SIGKILL"
    assert f"lost: {', '.join(lost)}: {told}" in big_lab("lab", "list").ok().stdout.splitlines()
    refused = big_lab("lab", "fault", lost[0], "cut")
    assert refused.exit_code == 3
    assert f"{lost[0]}: gone: {told}" in refused.stderr

    assert lost[0] in big_lab("lab", "add", "pixel-3").ok().stdout
    for serial in lost[1:]:
        big_lab("lab", "remove", serial).ok()
    listed = big_lab("lab", "list", "--json").ok().json
    assert [phone["serial"] for phone in listed["phones"]] == [*serials[::2], lost[0]]
    assert listed["lost"] == []


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
