"""A farm's numbers and what is wrong with it, on a real PostgreSQL server."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from orchestrator.app.attached import check_selection
from orchestrator.app.doctor import host_findings
from orchestrator.app.farm import read_farm
from orchestrator.app.status import queue_beside
from orchestrator.app.workspace import Workspace
from orchestrator.cli import devices
from orchestrator.errors import (
    BenchfarmError,
    NoDeviceError,
    PlanError,
    StoreAwayError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from orchestrator.extensions.farm import cli as farm
from orchestrator.extensions.farm import source, submissions
from orchestrator.extensions.farm.manifest import dump
from orchestrator.extensions.farm.phones import add_new_phones, check_names, choose_phones
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.extensions.history import web
from orchestrator.extensions.history.api import make_api, release_from_quarantine
from orchestrator.extensions.history.cli import http_address
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.metrics import Numbers
from orchestrator.extensions.history.web import LivePages
from orchestrator.ports import SettingChange
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId, RunId, Serial, campaign_id_of
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.settings import Settings
from tests.conftest import poll_until
from tests.samples.manual_clock import ManualClock
from tests.samples.places import REPO
from tests.samples.records import facts_of, settings_in
from tests.samples.submissions import begin, host_lives, submit

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster


@pytest.fixture
def settings(postgresql: Cluster, postgresql_template: str, tmp_path: Path) -> Settings:
    url = postgresql.url(postgresql.create(postgresql_template))
    return settings_in(tmp_path, store=url)


@pytest.fixture
def queue(settings: Settings) -> Iterator[FarmQueue]:
    with FarmQueue(settings.store) as opened:
        yield opened


def busy_farm(queue: FarmQueue) -> None:
    """One phone works, one is free with a job, one is paused, one can't be used, one has gone with
    its jobs."""
    submit(queue, "A", "B", "C", "GONE", priority=5)
    host_lives(queue, "one", version="0.0.1")
    phones = {serial: Announced(facts="{}") for serial in ("A", "B", "C")}
    queue.announce("one", phones | {"D": Announced(facts="{}", unusable="unauthorized")})
    begin(queue, "A", host="one")
    queue.pause("phone:C")


def heard(queue: FarmQueue, *, but: str = "") -> None:
    """Have all hosts but one be heard now: a busy computer may take so long for a test that they
    would be silent."""
    queue.rows("UPDATE farm_hosts SET seen_at = now() WHERE name <> %s", but)


def found(result: object, level: str) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for item in result.data["findings"]:  # type: ignore[attr-defined]
        if item["level"] == level:
            texts.setdefault(item["check"], []).append(item["text"])
    return texts


def test_numbers_tell_of_jobs_phones_and_how_long_a_free_phones_job_waits(
    queue: FarmQueue, settings: Settings
) -> None:
    busy_farm(queue)
    queue.rows("UPDATE farm_jobs SET again_at = now() - interval '10 minutes'")
    heard(queue)
    lines = metrics(settings, queue).splitlines()
    numbers = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert numbers['benchfarm_queue_jobs{priority="5",state="waits"}'] == "3.0"
    assert numbers['benchfarm_queue_jobs{priority="5",state="runs"}'] == "1.0"
    states = {
        state: numbers[f'benchfarm_phones{{state="{state}"}}']
        for state in ("measuring", "free", "paused", "unusable")
    }
    assert states == {"measuring": "1.0", "free": "1.0", "paused": "1.0", "unusable": "1.0"}
    assert 590 < float(numbers["benchfarm_queue_lag_seconds"]) < 700
    with Workspace(settings) as late:
        late.clock = ManualClock(queue.now() + timedelta(hours=1))
        assert read_farm(late, queue).lag_s < 700
    # Without the free phone nothing waits that could run.
    queue.pause("phone:B")
    assert "benchfarm_queue_lag_seconds 0.0" in metrics(settings, queue)


def states(settings: Settings, *, silent: str = "") -> dict[str, tuple[str, str]]:
    """Return what ``farm status`` tells of each phone."""
    with FarmQueue(settings.store) as queue:
        heard(queue, but=silent)
        result = farm.farm_status(settings)
    told = {}
    for phone in result.data["devices"]:  # type: ignore[index]
        line = next(
            line for line in result.text.splitlines() if line.startswith(f"{phone.serial} ")
        )
        assert phone.state in line
        assert phone.reason in line
        told[phone.serial] = phone.state, phone.reason
    return told


def test_only_a_phone_that_may_get_a_job_is_told_as_free(
    queue: FarmQueue, settings: Settings
) -> None:
    busy_farm(queue)
    host_lives(queue, "two", version="1")
    queue.announce("two", {serial: Announced(facts="{}") for serial in ("E", "F")})
    submit(queue, "F", name="late")
    begin(queue, "F", host="two")
    assert states(settings) == {
        "A": ("measuring", ""),
        "B": ("free", ""),
        "C": ("paused", "paused: phone:C"),
        "D": ("unusable", "unauthorized"),
        "E": ("free", ""),
        "F": ("measuring", ""),
    }
    for scope in ("host:two", "farm"):
        queue.pause(scope)
    assert states(settings)["E"] == ("paused", "paused: farm, host:two")
    queue.resume("farm")
    queue.rows("UPDATE farm_hosts SET seen_at = now() - interval '1 minute' WHERE name = 'two'")
    told = states(settings, silent="two")
    assert (told["E"], told["B"][0]) == (("silent", "its host two is silent"), "free")


def test_a_host_that_is_gone_for_good_is_forgotten_with_all_that_was_its_own(
    queue: FarmQueue, settings: Settings
) -> None:
    from orchestrator import __version__

    busy_farm(queue)
    queue.pause("host:one")
    with pytest.raises(UsageError, match="unknown, or still there: host:one"):
        submissions.forget(settings, ["host:one"])
    assert len(queue.phones()) == 4
    queue.rows("UPDATE farm_hosts SET seen_at = now() - interval '1 minute'")
    host_lives(queue, "two", version=__version__)
    queue.announce("two", {"B": Announced(facts="{}")})
    for wrong in ("host:three", "one"):
        with pytest.raises(UsageError, match=f"still there: {wrong}"):
            submissions.forget(settings, [wrong])
    result = submissions.forget(settings, ["host:one"])
    assert (result.text, result.data) == ("host:one: forgotten", {"forgotten": ["host:one"]})
    assert [row["name"] for row in queue.hosts()] == ["two"]
    assert queue.pauses() == ["phone:C"]
    # Its job waits for another one.
    assert [row["status"] for row in queue.jobs() if row["serial"] == "A"] == ["waits"]
    problems = found(devices.doctor(settings, farm=True), "problem")
    assert "hosts" not in problems


def test_a_watch_ends_with_an_error_that_stays(queue: FarmQueue, settings: Settings) -> None:
    submit(queue, "A")
    queue.rows("DROP TABLE farm_pauses")
    with pytest.raises(StoreError, match='"farm_pauses" does not exist'):
        farm.farm_status(settings, watch=True)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("53100", StoreAwayError, "the database server's disk is full"),
        ("55P03", StoreBusyError, "kept the store locked"),
        ("57P01", StoreAwayError, "ended the connection"),
        ("42501", StoreError, "the database refused: no"),
    ],
)
def test_what_the_database_says_is_told_as_of_a_store(
    queue: FarmQueue, code: str, kind: type[BenchfarmError], told: str
) -> None:
    with pytest.raises(kind, match=told) as raised:
        queue.rows(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END $$")
    assert raised.type is kind


def test_the_status_of_a_submission_tells_what_each_phone_had_no_time_for(
    queue: FarmQueue, settings: Settings, samples
) -> None:
    submit(queue, "A", "B", "C", "D")
    names = [campaign_id_of("night", Serial(serial)) for serial in "ABCD"]
    (other,) = samples.campaign().skipped
    late = replace(other, reason_code="out-of-time")
    with Workspace(settings) as opened:
        # Of D nothing is stored.
        for name, skipped in zip(names, ((late, other), (other,), ()), strict=False):
            samples.begin(opened.store, samples.campaign(name, skipped=skipped))
        for number, code in enumerate(("out-of-time", "out-of-time", "oom")):
            run = samples.run(
                number,
                campaign_id=names[2],
                run_id=RunId(f"run-{number}"),
                outcome=Outcome.SKIPPED,
                reason_code=code,
            )
            opened.store.append_run(run)
    result = farm.farm_status(settings, "night")
    cut = result.data["no_time_for"]  # type: ignore[index]
    assert {serial: [item.invocations for item in items] for serial, items in cut.items()} == {
        "A": [None],
        "C": [2],
    }
    assert "A: out of time: 1 case left out" in result.text
    assert "C: out of time: 2 invocations not started" in result.text
    assert result.exit_code == 6


def test_what_is_submitted_once_stays_so_when_its_jobs_are_deleted_and_its_phones_are_away(
    queue: FarmQueue, settings: Settings, samples, plan_file: Callable[..., Path]
) -> None:
    serial = samples.phone.serial
    begun = samples.campaign(campaign_id_of("night", serial))
    with Workspace(settings) as opened:
        samples.begin(opened.store, begun)
    submit(queue, serial)
    taken = pytest.raises(UsageError, match="night: a submission of this name exists already")
    # Also before its first run.
    with taken:
        farm.submit(settings, plan_file((serial,)), name="night")
    queue.end(begin(queue, serial, host="one"), "done", "")
    assert farm.clean(settings, "0 s").data["farm"].jobs == 1  # type: ignore[index]
    done = farm.submit(settings, plan_file((serial,)), once="night")
    assert done.exit_code == 0
    assert done.text == "night: submitted before, its results are stored"
    with taken:
        farm.submit(settings, plan_file((serial,)), name="night")
    assert queue.jobs() == []


def test_what_is_paused_is_a_part_of_the_farm_and_is_told(
    queue: FarmQueue, settings: Settings
) -> None:
    busy_farm(queue)
    with pytest.raises(UsageError, match="host:two, phone:Z"):
        submissions.pause(settings, ["phone:A", "phone:Z", "host:two"])
    assert queue.pauses() == ["phone:C"]
    told = submissions.pause(settings, ["host:one", "farm"]).text
    assert told == "paused: farm, host:one, phone:C"
    assert told in farm.farm_status(settings).text
    with pytest.raises(UsageError, match="not paused: phone:A"):
        submissions.resume(settings, ["host:one", "phone:A"])
    assert queue.pauses() == ["farm", "host:one", "phone:C"]
    assert submissions.resume(settings, ["host:one", "farm"]).text == "paused: phone:C"
    assert submissions.resume(settings, ["phone:C"]).text == "paused: nothing"


def failed(queue: FarmQueue, submission: str, *serials: str, plan: str = "p") -> None:
    """Submit jobs, and let the first one fail."""
    submit(queue, *serials, name=submission, plan_name=plan, priority=9)
    begun = begin(queue, serials[0], host="one")
    assert begun.submission == submission
    assert queue.end(begun, "failed", f"{submission} went wrong") is not None


def test_a_failed_job_is_a_problem_until_its_plan_is_submitted_again(
    queue: FarmQueue, settings: Settings
) -> None:
    def problems() -> list[str]:
        told = found(devices.doctor(settings, farm=True), "problem").get("queue", [])
        return [text for text in told if "failed" in text]

    host_lives(queue, "one")
    queue.announce("one", {serial: Announced(facts="{}") for serial in ("A", "B", "C")})
    failed(queue, "first", "A", "B")
    failed(queue, "other", "A", plan="q")
    other = "other: the job of A failed: other went wrong"
    assert problems() == ["first: the job of A failed: first went wrong", other]
    submit(queue, "B", name="older", plan_name="r")
    failed(queue, "newer", "A", plan="r")
    told = problems()
    assert "newer: the job of A failed: newer went wrong" in told
    # A phone that comes later makes no older submission the newest.
    assert queue.join("older", {"C": "C"}) == ["C"]
    assert problems() == told
    submit(queue, "A", name="second")
    assert problems() == told[1:]


@pytest.fixture
def reader(settings: Settings) -> Iterator[Settings]:
    """The same farm as a role of the database sees it that may read the store's tables and nothing
    else."""
    role = f"reader_{uuid.uuid4().hex}"
    with psycopg.connect(settings.store) as connection:
        connection.execute(
            f"CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}".encode()
        )
    yield replace(settings, store=settings.store.replace("benchfarm@", f"{role}@"))
    with psycopg.connect(settings.store) as connection:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def served(settings: Settings) -> tuple[bytes, str]:
    """Return the first page and the numbers as ``benchfarm serve`` gives them."""
    with ExitStack() as stack:
        opened = stack.enter_context(Workspace(settings))
        queue = queue_beside(settings, stack)
        now = farm_of(opened, queue)
        page = LivePages(opened, now, since="").page("")
        numbers = Numbers(opened, now, list)
        assert page is not None
        return page.content, numbers.page().content.decode()


def test_pages_and_numbers_are_served_to_a_role_that_may_only_read(
    reader: Settings, settings: Settings
) -> None:
    with (
        psycopg.connect(reader.store) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM campaigns")
    # There is no queue, and none is made.
    page, numbers = served(reader)
    assert b"nights" in page
    assert 'benchfarm_up{source="store"} 1.0' in numbers
    assert "benchfarm_queue" not in numbers
    with FarmQueue(settings.store) as queue:
        busy_farm(queue)
        # There is one, which the role may not read.
        assert "benchfarm_queue" not in served(reader)[1]
        role = reader.store.partition("://")[2].partition("@")[0]
        queue.rows(f"GRANT USAGE ON SCHEMA benchfarm_queue TO {role}")
        queue.rows(f"GRANT SELECT ON ALL TABLES IN SCHEMA benchfarm_queue TO {role}")
    assert 'benchfarm_phones{state="measuring"} 1.0' in served(reader)[1]


def test_the_api_names_the_phones_of_a_submission_without_a_job(
    queue: FarmQueue, settings: Settings
) -> None:
    document = json.dumps({"left_out": {"A": "has a job now", "B": "away since noon"}})
    submit(queue, "A", document=document)
    with Workspace(settings) as opened, web.listen("127.0.0.1", 0) as listening:
        farm_now = farm_of(opened, queue)
        site = LivePages(opened, farm_now, since="").site
        answers = make_api(opened, queue, site, farm_now)
        app = web.make_app(lambda path: None, access=web.Access(), api_app=answers)
        server = web.make_server(app)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            url = f"{http_address(listening)}/api/v1/submissions/night/left_out"
            with urllib.request.urlopen(url, timeout=60) as response:
                assert json.load(response) == [{"serial": "B", "reason": "away since noon"}]
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url.replace("night", "other"), timeout=60)
        finally:
            server.should_exit = True
            thread.join(60)


def test_a_farm_in_order_has_no_problem_and_what_ails_a_host_is_told(
    queue: FarmQueue, settings: Settings
) -> None:
    from orchestrator import __version__

    host_lives(queue, "one", version=__version__)
    queue.announce("one", {"A": Announced(facts="{}")})
    result = devices.doctor(settings, farm=True)
    assert (result.exit_code, found(result, "problem"), found(result, "warning")) == (0, {}, {})
    # One host says what is wrong with it.
    ails = "its phones can't be checked: no adb server answers at 127.0.0.1:5999"
    host_lives(queue, "two", version=__version__)
    host_lives(queue, "one", version=__version__, note=ails)
    result = devices.doctor(settings, farm=True)
    assert found(result, "problem")["hosts"] == [f"one: {ails}"]
    assert ails in farm.farm_status(settings).text
    host_lives(queue, "one", version=__version__)
    assert ails not in farm.farm_status(settings).text


def test_two_phones_of_one_serial_number_are_a_problem_and_not_usable(
    queue: FarmQueue, settings: Settings
) -> None:
    for host, model in (("one", "Pixel 3"), ("two", "Pixel 4")):
        host_lives(queue, host, version="1")
        facts = facts_of("0123", is_virtual=True, model=model)
        phones = {"0123": Announced(facts=dump(facts))}
        queue.announce(host, phones)
        add_new_phones(queue, phones, set())
    result = devices.doctor(settings, farm=True)
    same, none = found(result, "problem")["phones"]
    assert same.startswith("0123: several phones have this serial number: a ")
    assert "Pixel 3 (virtual) at one" in same
    assert "Pixel 4 (virtual) at two" in same
    assert none == "no phone can be used"
    assert same.removeprefix("0123: ") in farm.farm_status(settings).text
    assert 'benchfarm_phones{state="clash"} 1.0' in metrics(settings, queue)
    assert "phones" not in found(result, "warning")


def test_a_database_that_is_away_is_a_problem_with_a_next_step_beside_the_checks_of_this_host(
    tmp_path: Path,
) -> None:
    url = "postgresql://benchfarm:two%20words@127.0.0.1:1/none?connect_timeout=2"
    known = settings_in(tmp_path, store=url)
    result = devices.doctor(known)
    assert result.exit_code == 1
    assert "connection failed" in found(result, "problem")["queue"][0]
    assert {"disk", "quarantine"} <= found(result, "ok").keys()
    steps = [item["next_step"] for item in result.data["findings"] if item["check"] == "queue"]  # type: ignore[index]
    assert "$BENCHFARM_STORE" in steps[0]


def test_a_database_that_ends_each_connection_is_asked_once() -> None:
    refused = list[object]()

    def refuse(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, address = server.accept()
                refused.append(address)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=refuse, args=[server], daemon=True).start()
        url = f"postgresql://benchfarm@127.0.0.1:{server.getsockname()[1]}/none"
        with (
            pytest.raises(StoreAwayError, match="connection failed"),
            FarmQueue(f"{url}?sslmode=disable&gssencmode=disable"),
        ):
            pass
        server.shutdown(socket.SHUT_RDWR)
    assert len(refused) == 1


def test_a_database_without_a_free_connection_is_asked_again(postgresql: Cluster) -> None:
    name = postgresql.create()
    url = postgresql.url(name)
    refusal, log = f'too many connections for role "{name}"', postgresql.folder / "log"

    def open_queue() -> None:
        with FarmQueue(url.replace("benchfarm@", f"{name}@"), is_guest=True):
            pass

    with psycopg.connect(url, autocommit=True) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 0".encode())
        opening = pool.submit(open_queue)
        try:
            poll_until(lambda: refusal in log.read_text(), what="it is refused")
        finally:
            connection.execute(f"ALTER ROLE {name} CONNECTION LIMIT -1".encode())
        opening.result()


class OtherClock(FarmQueue):
    """A queue whose database has another time."""

    def now(self) -> datetime:
        return super().now() - timedelta(seconds=100)


def test_a_database_with_another_time_is_a_problem(settings: Settings) -> None:
    with OtherClock(settings.store) as queue:
        assert source._clock(queue).level == "problem"


def test_what_is_wrong_with_a_farm_is_told_with_a_next_step(
    queue: FarmQueue, settings: Settings
) -> None:
    busy_farm(queue)
    queue.rows("UPDATE farm_jobs SET again_at = now() - interval '10 minutes'")
    result = devices.doctor(settings, farm=True)
    problems, warnings = found(result, "problem"), found(result, "warning")
    assert result.exit_code == 1
    assert "though its phone is free" in problems["queue"][0]
    assert "phones that no host has: GONE" in problems["queue"][1]
    assert problems["phones"] == ["D at one: unusable: unauthorized"]
    assert "has benchfarm 0.0.1" in warnings["hosts"][0]
    assert warnings["pauses"] == ["phone:C is paused"]
    assert all(item["next_step"] for item in result.data["findings"] if item["level"] != "ok")  # type: ignore[index]
    queue.rows("UPDATE farm_hosts SET seen_at = now() - interval '1 hour'")
    result = devices.doctor(settings, farm=True)
    assert "was last heard" in found(result, "problem")["hosts"][0]


def test_what_dead_processes_left_on_a_host_is_told_with_a_next_step(
    samples, tmp_path: Path
) -> None:
    with Workspace(settings_in(tmp_path)) as workspace:
        workspace.quarantine.put(Serial("KEPT-OUT"), "battery swollen")
        workspace.conditioner.journal.add(
            Serial("CHANGED"), SettingChange(what="airplane mode", undo="settings put x")
        )
        samples.begin(workspace.store, samples.campaign("open"))
        workspace.store.set_status(CampaignId("open"), CampaignStatus.INTERRUPTED, None)
        future = workspace.clock.now() + timedelta(days=400)
        samples.begin(
            workspace.store,
            samples.campaign("future", created_at=future, invocations=(), skipped=()),
        )
        workspace.store.set_status(CampaignId("future"), CampaignStatus.FINISHED, future)
        result = devices.findings_result(host_findings(workspace))
    problems, warnings = found(result, "problem"), found(result, "warning")
    assert "KEPT-OUT: battery swollen" in problems["quarantine"][0]
    assert problems["journals"] == ["CHANGED was left changed by a process that ended"]
    assert "future began" in problems["clock"][0]
    assert "open (nightly) is open: 0/8 runs stored" in warnings["campaigns"][0]
    steps = {item["check"]: item["next_step"] for item in result.data["findings"]}  # type: ignore[index]
    assert steps["journals"] == "benchfarm device restore CHANGED"
    assert "benchfarm device release KEPT-OUT" in steps["quarantine"]


def test_each_check_of_a_host_that_finds_a_fault_says_so_and_the_others_are_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "devices.yaml").write_text("devices:\n  A: {pools: [nightly], tag: [rooted]}\n")
    environ = {"BENCHFARM_ADB_SERVER": "127.0.0.1:1"}
    settings = Settings.from_environment(environ, home=tmp_path)
    with Workspace(settings) as opened:
        result = devices.findings_result(host_findings(opened))
    problems = found(result, "problem")
    assert "isn't a benchfarm store" in problems["store"][0]
    (text,) = problems["devices.yaml"]
    assert "devices.yaml:2:" in text
    assert "tag: unknown key" in text
    (text,) = problems["adb"]
    assert text.startswith(
        "no adb server answers at 127.0.0.1:1, which $BENCHFARM_ADB_SERVER names: "
    )
    (step,) = (item["next_step"] for item in result.data["findings"] if item["check"] == "adb")  # type: ignore[index]
    assert "adb -P 1 start-server" in step
    assert "unset $BENCHFARM_ADB_SERVER" in step
    # Nobody looked: nothing is said of phones.
    assert not [item for item in result.data["findings"] if item["check"] == "phones"]  # type: ignore[index]
    assert {"disk", "journals", "quarantine"} <= found(result, "ok").keys()
    with pytest.raises(PlanError, match="unknown key"):
        devices.list_attached(settings_in(tmp_path))


def test_phones_that_a_plan_names_and_of_which_nothing_is_known_keep_no_other_from_being_measured(
    queue: FarmQueue, settings: Settings
) -> None:
    host_lives(queue, "one", version="1")
    queue.announce("one", {"A": Announced(facts="", unusable="in quarantine: battery swollen")})
    assert states(settings) == {"A": ("quarantined", "battery swollen")}
    wanted = DeviceSelection(serials=(Serial("A"), Serial("B"), Serial("C")))
    with pytest.raises(NoDeviceError) as caught:
        choose_phones(queue, wanted)
    ails = {"A": "in quarantine: battery swollen", "B": "no host has announced it"}
    assert all(f"{serial}: {why}" in str(caught.value) for serial, why in ails.items())
    announced = {
        serial: Announced(facts=dump(facts_of(serial, is_virtual=True))) for serial in ("C", "D")
    }
    queue.announce("one", {"A": Announced(facts="", unusable=ails["A"]), **announced})
    chosen, left_out, lacking = choose_phones(queue, wanted)
    assert ([facts.serial for facts in chosen], left_out, lacking) == (["C"], ails, ails)


@pytest.mark.parametrize("serial", ["host", "A" * 113, "A\x07"])
def test_a_phone_whose_serial_number_no_job_can_have_keeps_no_other_from_being_measured(
    queue: FarmQueue, serial: str
) -> None:
    host_lives(queue, "one")
    phones = {name: Announced(facts=dump(virtual_facts(name))) for name in (serial, "B")}
    queue.announce("one", phones)
    chosen, left_out, missed = choose_phones(queue, DeviceSelection())
    assert ([facts.serial for facts in chosen], left_out.keys(), missed) == (["B"], {serial}, {})
    queue.announce("one", {"B": phones["B"]})
    _, left_out, missed = choose_phones(queue, DeviceSelection())
    assert (left_out, missed) == ({}, {})


def test_a_plan_that_names_a_build_of_a_program_that_it_does_not_use_is_not_queued(
    queue: FarmQueue, settings: Settings, plan_file: Callable[..., Path]
) -> None:
    host_lives(queue, "one")
    facts = virtual_facts("A", abis=("arm64-v8a",))
    queue.announce("one", {"A": Announced(facts=dump(facts))})
    plan = plan_file(("A",), extra="builds: {apk: nightly}\n")
    with pytest.raises(UsageError, match="a build is for apk, and these devices run native"):
        farm.submit(settings, plan)
    assert queue.jobs() == []


def virtual_facts(serial: str, **changes: object) -> DeviceFacts:
    return facts_of(serial, is_virtual=True, **changes)  # type: ignore[arg-type]


def away_farm(queue: FarmQueue) -> None:
    """A is there, B was unplugged, the worker of C's host has ended, and of U nobody ever knew who
    it is."""
    nightly = '{"pools": ["nightly"]}'
    phones = {
        serial: Announced(facts=dump(virtual_facts(serial)), labels=labels)
        for serial, labels in (("A", nightly), ("B", nightly), ("C", ""))
    }
    host_lives(queue, "one", version="1")
    queue.announce(
        "one",
        {"A": phones["A"], "B": phones["B"], "U": Announced(facts="", unusable="unauthorized")},
    )
    queue.announce("one", {"A": phones["A"]})
    host_lives(queue, "two", version="1")
    queue.announce("two", {"C": phones["C"]})
    queue.leave("two")


def test_phones_that_went_are_told_with_when_and_where_until_they_are_back_or_long_gone(
    queue: FarmQueue, settings: Settings
) -> None:
    away_farm(queue)
    (seen_at,) = {f"{row['seen_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC" for row in queue.away()}
    told = {
        serial: f"since {seen_at}, seen last at {host}"
        for serial, host in (("B", "one"), ("C", "two"))
    }
    assert {
        serial: reason for serial, (state, reason) in states(settings).items() if state == "away"
    } == told
    warnings = found(devices.doctor(settings, farm=True), "warning")["phones"]
    assert warnings == [f"{serial} is away {text}" for serial, text in told.items()]
    assert 'benchfarm_phone_seen_timestamp_seconds{serial="B"}' in metrics(settings, queue)
    queue.announce(
        "one", {serial: Announced(facts=dump(virtual_facts(serial))) for serial in ("A", "B")}
    )
    assert [row["serial"] for row in queue.away()] == ["C"]
    queue.rows(
        "UPDATE farm_phones SET gone_at = now() - interval '8 days' WHERE gone_at IS NOT NULL"
    )
    assert queue.away() == []


def test_a_phone_or_host_that_is_away_can_be_paused_before_it_comes_back(
    queue: FarmQueue, settings: Settings
) -> None:
    away_farm(queue)
    assert submissions.pause(settings, ["phone:B"]).text == "paused: phone:B"
    phones = {serial: Announced(facts=dump(virtual_facts(serial))) for serial in ("A", "B")}
    queue.announce("one", phones)
    assert states(settings)["B"] == ("paused", "paused: phone:B")
    queue.leave("one")
    assert submissions.pause(settings, ["host:one"]).text == "paused: host:one, phone:B"


def farm_of(workspace: Workspace, queue: FarmQueue | None) -> FarmNow:
    return FarmNow(workspace, queue)


def metrics(settings: Settings, queue: FarmQueue) -> str:
    with Workspace(settings) as opened:
        return Numbers(opened, farm_of(opened, queue), list).page().content.decode()


@pytest.mark.parametrize(
    ("wanted", "missed"),
    [
        (DeviceSelection(), {"B", "C"}),
        (DeviceSelection(pools=("nightly",)), {"B"}),
        (DeviceSelection(serials=(Serial("A"), Serial("C"))), {"C"}),
        (DeviceSelection(any=1), set()),
    ],
    ids=["all", "pool", "named", "any"],
)
def test_a_plan_that_means_a_phone_which_is_away_says_so(
    queue: FarmQueue, settings: Settings, wanted: DeviceSelection, missed: set[str]
) -> None:
    away_farm(queue)
    chosen, left_out, lacking = choose_phones(queue, wanted)
    assert [facts.serial for facts in chosen] == ["A"]
    away = {serial for serial, text in left_out.items() if text.startswith("away since ")}
    assert (away, lacking.keys()) == (missed, missed)


def test_a_phone_at_two_hosts_has_the_pools_and_tags_of_both_whichever_was_heard_last(
    queue: FarmQueue,
) -> None:
    both = DeviceSelection(pools=("nightly",), tags=("rooted",))
    said = {"one": '{"pools": ["nightly"]}', "two": '{"pools": ["other"], "tags": ["rooted"]}'}
    for host, labels in said.items():
        host_lives(queue, host)
        queue.announce(host, {"A": Announced(facts=dump(virtual_facts("A")), labels=labels)})
    for host in ("one", "two", "one"):
        host_lives(queue, host)
        chosen, left_out, _ = choose_phones(queue, both)
        assert ([facts.serial for facts in chosen], left_out) == (["A"], {})


def test_a_name_that_neither_this_computer_nor_a_host_knows_is_refused(
    queue: FarmQueue, settings: Settings
) -> None:
    away_farm(queue)
    phone = Announced(
        facts=dump(virtual_facts("D", profile="prototype")), labels='{"tags": ["rooted"]}'
    )
    queue.announce("one", {"A": Announced(facts="", labels='{"pools": ["release"]}'), "D": phone})
    settings.data_folder.mkdir(parents=True, exist_ok=True)
    (settings.data_folder / "devices.yaml").write_text("devices: {A: {pools: [mine]}}")
    with Workspace(settings) as here:
        known = DeviceSelection(
            profiles=("prototype", "pixel-3"), pools=("nightly", "release"), tags=("rooted",)
        )
        check_names(here, queue, known)
        # One that only the submitter knows doesn't count.
        check_selection(here, DeviceSelection(pools=("mine",)))
        with pytest.raises(UsageError, match="there is no pool 'mine'"):
            check_names(here, queue, DeviceSelection(pools=("mine",)))
        for wrong, meant in (
            (DeviceSelection(profiles=("pixel-3", "prototyp")), "prototype"),
            (DeviceSelection(pools=("nigthly",)), "nightly"),
            (DeviceSelection(tags=("roted",)), "rooted"),
        ):
            with pytest.raises(UsageError) as caught:
                check_names(here, queue, wrong)
            assert caught.value.hint == f"did you mean {meant!r}?"


def test_a_phone_that_is_gone_for_good_is_forgotten_and_one_that_is_there_is_not(
    queue: FarmQueue, settings: Settings
) -> None:
    away_farm(queue)
    queue.pause("phone:B")
    for scope in ("phone:A", "phone:Z", "host:nope", "fone:C"):
        with pytest.raises(UsageError, match=f"unknown, or still there: {scope}"):
            submissions.forget(settings, ["phone:B", scope])
    # All or none.
    assert ([row["serial"] for row in queue.away()], queue.pauses()) == (["B", "C"], ["phone:B"])
    result = submissions.forget(settings, ["phone:B", "phone:C"])
    assert result.text == "phone:B: forgotten\nphone:C: forgotten"
    assert (queue.away(), queue.pauses()) == ([], [])


def test_a_phone_is_released_from_quarantine_by_its_host_though_somebody_else_asks(
    queue: FarmQueue, settings: Settings, tmp_path: Path
) -> None:
    """The host keeps it; whoever looks at the farm's page may be anywhere."""
    from orchestrator.extensions.farm.phones import HostPhones, Shared

    host_lives(queue, "one", version="0.0.1")
    queue.announce(
        "one", {"A": Announced(facts="", unusable="in quarantine: it moved (since yesterday)")}
    )
    heard(queue)
    elsewhere = settings_in(tmp_path / "elsewhere", store=settings.store)
    with Workspace(elsewhere) as watched, Workspace(settings) as own:
        own.quarantine.put(Serial("A"), "it moved")
        now = FarmNow(watched, queue, can_be_steered=True)
        (shown,) = now.read().devices
        assert (shown.state, shown.reason) == ("quarantined", "it moved (since yesterday)")
        assert "its host one releases it" in release_from_quarantine(watched, queue, "A").text
        with pytest.raises(UsageError, match="isn't in quarantine"):
            release_from_quarantine(watched, queue, "B")
        said: list[str] = []
        HostPhones(
            Shared(settings=settings), queue, "one", idle_check_s=0,
            say=lambda text, /, **_: said.append(text),
        ).check(())  # fmt: skip
        assert own.quarantine.reasons() == {}
        assert "A is released from quarantine on request: it moved" in said[0]


def test_page_numbers_and_exit_code_agree_on_what_gave_no_result(settings: Settings) -> None:
    from tests.samples import live_farm

    rejected = QualityVerdict(quality=Quality.REJECTED)
    changes: list[dict[str, Any]] = [
        {"verdict": rejected},
        {"outcome": Outcome.FAILED, "reason_code": "oom"},
        {"outcome": Outcome.SKIPPED, "reason_code": "abandoned"},
        {"outcome": Outcome.SKIPPED, "reason_code": "out-of-time", "verdict": rejected},
        {"outcome": Outcome.UNFIT, "reason_code": "too-hot", "verdict": rejected},
    ]
    with Workspace(settings) as opened:
        run = live_farm.begin_tonight(opened.store)[0]
        for number, fields in enumerate(changes, start=9):
            changed = replace(run, invocation=number, run_id=RunId(f"run-{number}"), **fields)
            assert opened.store.append_run(changed)
        night = farm_of(opened, None).read().night
        text = Numbers(opened, farm_of(opened, None), list).page().content.decode()
        # Which makes the exit code of bench.
        counts = opened.store.result_counts([run.campaign_id])[run.campaign_id]
    assert (counts.made, counts.without_result) == (7, 3)
    assert (night.with_result, night.without_result) == (4, 3)
    failures = re.findall(r'^benchfarm_recent_failures\{code="(.*?)"', text, re.M)
    assert failures == ["abandoned", "oom", "rejected"]


def test_the_dashboard_asks_for_numbers_and_labels_that_there_are(
    queue: FarmQueue, settings: Settings, tmp_path: Path
) -> None:
    from tests.samples import live_farm
    from tests.samples.history_lab import fill

    live_farm.fill_queue(queue)
    with Workspace(settings) as opened:
        fill(opened.store, nights=3)
        live_farm.begin_tonight(opened.store)
        text = Numbers(opened, farm_of(opened, queue), list).page().content.decode()
    given: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(benchfarm_\w+)(?:\{(.*)\})? ", text, re.M):
        given.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    # One that has no sample now has its name in the answer all the same.
    known = set(re.findall(r"^# TYPE (benchfarm_\w+)", text, re.M))
    dashboard = json.loads((REPO / "examples" / "grafana" / "benchfarm.json").read_text("utf-8"))
    asked = [
        (panel["title"], target) for panel in dashboard["panels"] for target in panel["targets"]
    ]
    for title, target in asked:
        for name, matched in re.findall(r"(benchfarm_\w+)(?:\{(.*?)\})?", target["expr"]):
            assert name in known, f"{title}: {name}"
            labels = {
                *re.findall(r"(\w+)\s*(?:=|!=|=~)", matched),
                *re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]),
            }
            assert labels <= given.get(name, labels), (
                f"{title}: {name} has no {labels - given[name]}"
            )
    names = " ".join(target["expr"] for _, target in asked)
    for wanted in (
        "benchfarm_changed_series",
        "benchfarm_phone_seen_timestamp_seconds",
        "benchfarm_night_invocations",
    ):
        assert wanted in names
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert 'benchfarm_night_invocations{state="with_result"} 4.0' in text
    assert 'benchfarm_night_invocations{state="left"} 2.0' in text
