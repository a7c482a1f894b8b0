"""A phone without a job that hangs is noticed by its host's worker, told everywhere, and got back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.attached import attached_devices, open_phone, pick
from orchestrator.app.workspace import Workspace
from orchestrator.extensions.farm.manifest import read_labels
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.ports import SettingChange
from orchestrator.settings import Settings
from tests.conftest import poll_until
from tests.samples.farm_hosts import PATIENCE_S, Database
from tests.samples.submissions import begin, host_lives, submit

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab


@pytest.fixture
def worker(lab: Lab, database: Database, tmp_path: Path) -> Iterator[Path]:
    """A worker that often looks at its idle phones; give its log."""
    log = tmp_path / "worker.log"
    words = ("farm", "worker", "--name", "host", "--every", "0.3", "--idle-every", "3")
    with log.open("w") as out:
        process = lab.cli.process(words, {"BENCHFARM_STORE": database.url}, stdout=out, stderr=out)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def test_a_fault_of_the_devices_file_is_told_once_and_what_it_said_before_counts(
    lab: Lab, database: Database, worker: Path
) -> None:
    inventory, serial = lab.cli.home / "devices.yaml", lab.serial

    def told() -> tuple[set[str], list[str], str]:
        status = lab.cli.json("farm status", BENCHFARM_STORE=database.url)
        with FarmQueue(database.url) as queue:
            rows = [row for row in queue.phones() if row["serial"] == serial]
        pools = [pool for row in rows for pool in read_labels(row["labels"]).pools]
        return (
            {phone["state"] for phone in status["devices"]},
            pools,
            "".join(host["note"] for host in status["hosts"]),
        )

    inventory.write_text(f"devices:\n  {serial}: {{pools: [nightly]}}\n")
    try:
        poll_until(
            lambda: told() == ({"free"}, ["nightly"], ""), "the pool is announced", PATIENCE_S
        )
        inventory.write_text(f"devices:\n  {serial}: {{pool: [release]}}\n")
        poll_until(lambda: bool(told()[2]), "the fault is told", PATIENCE_S)
        states, pools, note = told()
        assert (states, pools) == ({"free"}, ["nightly"])
        assert f"{inventory}:2:" in note
        assert worker.read_text().count(f"{inventory}:2:") == 1
    finally:
        inventory.unlink()
    poll_until(lambda: told() == ({"free"}, [], ""), "it is mended", PATIENCE_S)


def test_a_phone_whose_serial_number_no_job_can_have_is_left_out_and_the_others_get_theirs(
    lab: Lab, database: Database, worker: Path, plan_file: Callable[..., Path]
) -> None:
    def farm(*words: object) -> Any:
        done = lab.cli("farm", *words, "--json", BENCHFARM_STORE=database.url)
        return done.ok().json

    def states() -> dict[str, str]:
        return {phone["serial"]: phone["state"] for phone in farm("status")["devices"]}

    lab.cli("virtual up pixel-4 --serial host").ok()
    try:
        poll_until(lambda: len(states()) == 3, "all are announced", PATIENCE_S)
        assert states() == {**dict.fromkeys(lab.serials, "free"), "host": "unusable"}
        farm("pause")
        # A test that is tried once more is another submission.
        name = f"s-{secrets.token_hex(3)}"
        sent = farm("submit", plan_file(()), "--name", name)
        assert [job["serial"] for job in sent["jobs"]] == sorted(lab.serials)
        assert sent["left_out"]["host"].startswith("no job can be given to its serial number")
        farm("cancel", name)
    finally:
        lab.cli("virtual down host")
        with FarmQueue(database.url) as queue:
            queue.resume("farm")


def test_a_phone_that_hangs_while_it_is_restored_keeps_no_other_from_being_offered(
    lab: Lab, database: Database, request: pytest.FixtureRequest
) -> None:
    changed, other = lab.serials
    settings = Settings.from_environment(lab.cli.environ(), store=database.url)
    with Workspace(settings) as workspace:
        item = pick(workspace, changed, attached_devices(workspace))
        device = open_phone(workspace, item)[0]
        workspace.conditioner.hold(device, SettingChange(what="a note", undo=":"), ":")
    lab.fault(changed, "hang", "moment=tool", "subject=*settings")
    request.getfixturevalue("worker")
    with FarmQueue(database.url) as queue:

        def told() -> dict[str, str]:
            rows = [row for row in queue.phones() if row["host"] == "host"]
            return {row["serial"]: row["unusable"].partition(",")[0] for row in rows}

        poll_until(
            lambda: told() == {changed: "it is being restored", other: ""},
            "the other one is offered",
            PATIENCE_S,
        )
        lab.clear()
        poll_until(lambda: told() == {changed: "", other: ""}, "both are offered", PATIENCE_S)
    with Workspace(settings) as workspace:
        assert workspace.unrestored_phones() == []
    # Who left it changed isn't gone, as a worker isn't whose job lost its phone.
    log = request.getfixturevalue("worker").read_text()
    assert f"{changed} was left changed by a job or command that ended early; it is restored" in log


def test_an_idle_phone_that_hangs_is_told_and_comes_back_and_one_that_another_host_measures_is_left_alone(
    lab: Lab, database: Database, worker: Path
) -> None:
    measured, free = lab.serials

    with FarmQueue(database.url) as queue:

        def states() -> dict[str, str]:
            host_lives(queue, "other")
            return {
                row["serial"]: row["unusable"] for row in queue.phones() if row["host"] == "host"
            }

        host_lives(queue, "other", version="1")
        poll_until(
            lambda: states() == {measured: "", free: ""}, "both phones are announced", PATIENCE_S
        )
        queue.pause("host:host")
        # Longer than a look of the worker, which would take the job.
        beats = queue.rows("SELECT seen_at FROM farm_hosts WHERE name = 'host'")
        poll_until(
            lambda: queue.rows("SELECT seen_at FROM farm_hosts WHERE name = 'host'") != beats,
            "it has heard",
            PATIENCE_S,
        )
        # A test that is tried once more is another submission.
        submission = f"s-{secrets.token_hex(3)}"
        submit(queue, measured, name=submission)
        begun = begin(queue, measured, host="other")
        for serial in (measured, free):
            lab.fault(serial, "hang")
        # Both were due at the same look.
        poll_until(
            lambda: "stopped answering" in states()[free], "the free one is told", PATIENCE_S
        )
        assert states()[measured] == ""
        doctor = lab.cli("doctor --farm --json", BENCHFARM_STORE=database.url).json
        assert any(
            item["level"] == "problem" and free in item["text"] for item in doctor["findings"]
        ), doctor
        said = "has no job and doesn't answer; it is being reconnected"
        poll_until(lambda: f"{free} {said}" in worker.read_text(), "it is woken", PATIENCE_S)
        assert f"{measured} {said}" not in worker.read_text()
        queue.end(begun, "done", "")
        poll_until(
            lambda: "stopped answering" in states()[measured],
            "so is the other one then",
            PATIENCE_S,
        )
        lab.clear()
        poll_until(lambda: states() == {measured: "", free: ""}, "both are back", PATIENCE_S)
        queue.leave("other")
        queue.resume("host:host")
