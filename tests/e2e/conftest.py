"""The installed command, in a home of its own, against virtual phones in a process of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.samples.command import Cli, ended_since, started
from tests.samples.faulty_lab import PROFILES, answer_of, clear, give, quarantined
from tests.samples.places import MODELS

if TYPE_CHECKING:
    from tests.samples.farm_hosts import Database, FarmOfHosts

#: Phone seconds in a real one: campaigns of minutes in seconds.
SPEED = 40


@pytest.fixture(scope="session")
def make_cli() -> Callable[[Path], Cli]:
    """Return the command in a home."""
    return lambda home: Cli(home=home)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command in an empty home; no lab is up."""
    return Cli(home=tmp_path / "home")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A running lab and the command that sees it."""

    cli: Cli
    serials: tuple[str, ...]

    @property
    def serial(self) -> str:
        """The first phone's."""
        return self.serials[0]

    def fault(self, serial: str, kind: str, *options: str) -> None:
        give(self, serial, kind, *options)

    def shell(self, serial: str, command: str) -> str:
        """Ask the phone itself, by the plain adb command."""
        return answer_of(self, serial, command)

    def clear(self) -> None:
        """Take all faults back."""
        clear(self)

    def tidy(self) -> None:
        """Take all faults back, and let phones in again that were kept out for one."""
        self.clear()
        for serial in quarantined(self):
            self.cli("device release", serial).ok()


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """End what a failed test left running, and put its phones back: else the next try would meet
    it."""
    before = len(started)
    yield
    for cli in ended_since(before):
        cli("device restore")


@pytest.fixture(scope="module")
def lab_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Lab]]:
    """Bring a lab up in a home of its own: ``lab_of("pixel-3", "--rooted")``; both are gone when
    the module ends.
    """
    commands: list[Cli] = []

    def bring_up(*words: str) -> Lab:
        command = Cli(home=tmp_path_factory.mktemp("lab") / "home")
        commands.append(command)
        up = command.json("virtual up", "--speed", SPEED, *words)
        return Lab(cli=command, serials=tuple(phone["serial"] for phone in up["phones"]))

    try:
        yield bring_up
    finally:
        for command in commands:
            command("virtual down")
            shutil.rmtree(command.home, ignore_errors=True)


@pytest.fixture(scope="module")
def running_lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-3", "pixel-4")


@pytest.fixture(scope="module")
def four_phones(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of(*PROFILES)


@pytest.fixture
def matrix_lab(four_phones: Lab) -> Iterator[Lab]:
    """Four phones without faults, before and after."""
    yield four_phones
    four_phones.tidy()


@pytest.fixture
def lab(running_lab: Lab) -> Iterator[Lab]:
    """Two virtual phones, without faults before and after."""
    yield running_lab
    running_lab.tidy()


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database that can be stopped."""
    from tests.samples.farm_hosts import private_database

    with private_database() as database:
        yield database


@pytest.fixture(scope="module")
def two_hosts(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FarmOfHosts]:
    """Two hosts with a phone each; their workers go on from one test to the next."""
    from tests.samples.farm_hosts import running_farm

    homes = [(name, Cli(home=tmp_path_factory.mktemp(name) / "home")) for name in ("one", "two")]
    with running_farm(database, homes) as farm:
        yield farm


@pytest.fixture
def model() -> Path:
    """A small real model."""
    return min(MODELS.glob("*float*.tflite"))


@pytest.fixture
def plan_file(tmp_path: Path, model: Path) -> Callable[..., Path]:
    """Write a plan of one model: ``plan_file(serials, invocations=...)``."""

    def write(
        serials: tuple[str, ...], *, invocations: int = 3, min_secs: float = 0.2, extra: str = ""
    ) -> Path:
        path = tmp_path / "plan.yaml"
        devices = f"devices: {{serials: {json.dumps(list(serials))}}}\n" if serials else ""
        path.write_text(
            f"name: nightly\nmodels: [{json.dumps(str(model))}]\n"
            f"matrix: {{delegates: [xnnpack, gpu], threads: [1, 2], every_thread_count: true}}\n"
            f"{devices}settings: {{min_secs: {min_secs}, warmup_min_secs: 0.1}}\ninvocations: {invocations}\n{extra}"
        )
        return path

    return write
