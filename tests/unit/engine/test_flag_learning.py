"""Programs are asked for their own flags once, where nobody is disturbed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.devices.host import HostDevice
from orchestrator.devices.lease import FileLease
from orchestrator.engine.flag_check import ask_for_flags, learn_flags
from orchestrator.programs.flags import FlagBook
from orchestrator.records.case import Build, BuildSha, Serial, Skip, ToolName
from orchestrator.records.device import DeviceKind
from tests.samples.places import NATIVE
from tests.samples.records import facts_of

HELP = NATIVE / "help_true.txt"
FACTS = facts_of("host", kind=DeviceKind.HOST)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[HostDevice]:
    host = HostDevice(tmp_path / "host")
    yield host
    host.close()


@pytest.fixture
def book(tmp_path: Path) -> FlagBook:
    return FlagBook(tmp_path / "flags")


@pytest.fixture
def lease(tmp_path: Path) -> FileLease:
    return FileLease(tmp_path / "leases")


def program(
    folder: Path, script: str, *, tool: ToolName = ToolName.NATIVE, is_virtual: bool = False
) -> Build:
    """A shell script in a program's place."""
    path = folder / "benchmark_model"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    sha256 = BuildSha(hashlib.sha256(path.read_bytes()).hexdigest())
    return Build(
        name="benchmark_model",
        tool=tool,
        sha256=sha256,
        abi="x86_64",
        path=path,
        is_virtual=is_virtual,
    )


def counted(folder: Path) -> Build:
    return program(folder, f'echo "$*" >> {folder}/asked; grep "^.--" {HELP} >&2; exit 1')


def learn(book: FlagBook, lease: FileLease, device: HostDevice, build: Build | Skip) -> None:
    learn_flags(book, lease, [(device, FACTS)], {(FACTS.serial, ToolName.NATIVE): build})


def test_a_program_is_asked_with_help_and_never_again(
    book: FlagBook, lease: FileLease, device: HostDevice, tmp_path: Path
) -> None:
    build = counted(tmp_path)
    learn(book, lease, device, build)
    learn(FlagBook(tmp_path / "flags"), lease, device, build)
    assert "num_threads" in book.names(build)
    assert (tmp_path / "asked").read_text() == "--help\n"


def test_a_device_that_somebody_uses_is_left_alone(
    book: FlagBook, lease: FileLease, device: HostDevice, tmp_path: Path
) -> None:
    build = counted(tmp_path)
    with lease.acquire(Serial("host")):
        learn(book, lease, device, build)
    assert not (tmp_path / "asked").exists()
    assert book.names(build) == frozenset()


@pytest.mark.parametrize(
    "script", ["exit 127", "kill -9 $$", "echo STARTING!", "head -c 100000 /dev/urandom"]
)
def test_a_program_that_says_nothing_of_its_flags_is_no_error(
    book: FlagBook, lease: FileLease, device: HostDevice, tmp_path: Path, script: str
) -> None:
    build = program(tmp_path, script)
    learn(book, lease, device, build)
    assert book.names(build) == frozenset()
    assert ask_for_flags(book, device, build) is False


def test_nothing_is_asked_where_there_is_nothing_to_ask(
    book: FlagBook, lease: FileLease, device: HostDevice, tmp_path: Path
) -> None:
    learn(book, lease, device, Skip(reason_code="no-build", reason="none"))
    for build in (
        program(tmp_path, f"touch {tmp_path}/asked", tool=ToolName.APK),
        program(tmp_path, f"touch {tmp_path}/asked", is_virtual=True),
    ):
        learn(book, lease, device, build)
    assert not (tmp_path / "asked").exists()
