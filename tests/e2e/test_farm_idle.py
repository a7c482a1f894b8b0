"""A phone without a job that hangs is noticed by its host's worker, told everywhere, and got back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import poll_until
from tests.samples.farm_hosts import PATIENCE_S, Database, private_database
from tests.samples.places import BENCHFARM

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with private_database() as database:
        yield database


@pytest.fixture
def worker(lab: Lab, database: Database, tmp_path: Path) -> Iterator[Path]:
    """A worker that often looks at its idle phones; give its log."""
    log = tmp_path / "worker.log"
    words = ("farm", "worker", "--name", "host", "--every", "0.3", "--idle-every", "3")
    with log.open("w") as out:
        process = subprocess.Popen(
            [BENCHFARM, *words], env=lab.cli.environ(BENCHFARM_STORE=database.url), stdout=out, stderr=out
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def test_an_idle_phone_that_hangs_is_told_and_comes_back(lab: Lab, database: Database, worker: Path) -> None:
    hung, well = lab.serials

    def states() -> dict[str, str]:
        asked = lab.cli("farm", "status", "--json", BENCHFARM_STORE=database.url)
        return {phone["serial"]: phone["unusable"] for phone in asked.ok().json["phones"]}

    poll_until(lambda: states() == {hung: "", well: ""}, "both phones are announced", PATIENCE_S)
    lab.fault(hung, "hang")
    poll_until(lambda: "stopped answering" in states().get(hung, ""), "the hung phone is told", PATIENCE_S)
    assert states()[well] == ""
    doctor = lab.cli("farm", "doctor", "--no-host", "--json", BENCHFARM_STORE=database.url).json
    assert any(item["level"] == "problem" and hung in item["text"] for item in doctor["findings"]), doctor
    poll_until(
        lambda: f"{hung} has no job and doesn't answer; it is connected anew" in worker.read_text(),
        "it is woken",
        PATIENCE_S,
    )
    assert f"{well} has no job" not in worker.read_text()
    lab.clear()
    poll_until(lambda: states() == {hung: "", well: ""}, "it is back", PATIENCE_S)
