"""Several hosts of a farm: processes of their own, homes and adb servers of their own, one
PostgreSQL server."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchfarm_virtual.samples import benchmark_elf
from orchestrator.app.workspace import Workspace
from orchestrator.records.case import Serial
from tests.samples.command import heard
from tests.samples.farm_hosts import (
    PATIENCE_S,
    FarmOfHosts,
    Host,
    changes,
    stored,
)
from tests.samples.records import settings_in

PlanFile = Callable[..., Path]


@pytest.fixture
def farm(two_hosts: FarmOfHosts) -> Iterator[FarmOfHosts]:
    """The farm, in which a test that fails leaves nothing that the next one would wait for."""
    yield two_hosts
    two_hosts.tidy()


@pytest.fixture
def name() -> str:
    """A submission's name: a test that is tried once more is another one."""
    return f"night-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def before(two_hosts: FarmOfHosts) -> dict[str, str]:
    """What the phones were like before any test: one that failed may have left its phone as it was
    measured."""
    return {host.serial: changes(host) for host in two_hosts.hosts}


def test_everything_that_a_plan_names_reaches_the_hosts(
    farm: FarmOfHosts, tmp_path: Path, before: dict[str, str], name: str
) -> None:
    """Programs, files that flags name, inputs for parity, the reference workload: none of them is
    at the hosts."""
    from tests.e2e.test_programs import tiny

    submitter = farm.one.cli
    program, library, inputs = (
        tmp_path / "benchmark_model",
        tmp_path / "libmine.so",
        tmp_path / "inputs",
    )
    submitter("virtual program", program, "--release", "mine", "--time", "5").ok()
    library.write_bytes(benchmark_elf("dummy_external_delegate"))
    model = tiny(tmp_path, "multi_add.bin")
    inputs.mkdir()
    for number in range(4):
        (inputs / f"{model.stem}.{number}.bin").write_bytes(bytes(1 * 8 * 8 * 3 * 4))
    plan = tmp_path / "plan.yaml"
    flags = {
        "external_delegate_path": f"@{library}",
        "external_delegate_options": "allowed_builtin_code:0",
    }
    plan.write_text(
        f"models: ['{model}']\nmatrix: {{delegates: [external], threads: 1, flags: [{json.dumps(flags)}]}}\n"
        # Of a program that this plan doesn't use, none is needed.
        f"builds: {{native: {json.dumps(str(program))}, litert-lm: nightly}}\npasses: [timing, parity]\nparity_inputs: {inputs}\n"
        "settings: {min_secs: 0.2, warmup_min_secs: 0.1}\ninvocations: 1\nreference_check: true\n"
    )
    farm.until_announced(*farm.hosts)
    begun = {host.name: len(host.log()) for host in farm.hosts}
    sent = farm.one("farm submit", plan, "--name", name)
    assert [job["serial"] for job in sent["jobs"]] == sorted(before)
    # Nothing of it may be needed any more.
    for path in (program, library, *inputs.iterdir()):
        path.unlink()
    jobs = farm.until_ended(name)
    assert {job["serial"]: job["host"] for job in jobs} == {
        host.serial: host.name for host in farm.hosts
    }
    farm.expect_no_loss(name, 2, before)
    for job in jobs:
        runs = farm.two("results runs", job["campaign_id"])
        assert {run["outcome"] for run in runs} == {"completed"}
        assert len({run["case"]["build_sha256"] for run in runs}) == 1
        measured = [run for run in runs if run["run_pass"] != "reference"]
        assert [name for name, _ in measured[0]["case"]["files"]] == ["libmine.so"]
        assert {run["report"]["extra"].get("parity_inputs") for run in measured} == {None, "given"}
        assert len(runs) - len(measured) >= 2
    # A job that begins meets nobody: its own worker isn't another.
    logs = "".join(host.log()[begun[host.name] :] for host in farm.hosts)
    assert [text for text in logs.splitlines() if "in use by" in text] == []


def test_models_that_are_not_tflite_keep_their_ending_and_a_program_of_ones_own_goes_along(
    farm: FarmOfHosts, tmp_path: Path, name: str
) -> None:
    from orchestrator.extensions.runtimes.declaration import SHIPPED
    from tests.extensions.runtimes.e2e.test_language_models import TINY
    from tests.extensions.runtimes.test_declared_programs import GGUF

    gguf, words, plan = tmp_path / "little.gguf", tmp_path / "words.txt", tmp_path / "plan.yaml"
    gguf.write_bytes(GGUF.read_bytes() + name.encode())
    words.write_text("words")

    def written(*models: Path, extra: str = "") -> Path:
        plan.write_text(
            f"models: {json.dumps([str(model) for model in models])}\n"
            f"matrix: {{delegates: [auto], threads: 1{extra}}}\n"
            f"devices: {{serials: ['{farm.one.serial}']}}\ninvocations: 1\nreference_check: false\n"
        )
        return plan

    farm.until_announced(farm.one)
    farm.one("farm submit", written(TINY, gguf), "--name", name)
    (job,) = farm.until_ended(name)
    assert job["status"] == "done", job
    runs = farm.two("results runs", job["campaign_id"])
    assert {(run["case"]["model_name"], run["case"]["tool"]) for run in runs} == {
        ("tiny", "litert-lm"), ("little", "declared:llama-bench")
    }  # fmt: skip
    assert {run["outcome"] for run in runs} == {"completed"}
    # Two submissions declare a program of one name in two ways, and no host has either.
    words.write_bytes(gguf.read_bytes())
    own, shipped = (
        tmp_path / "my-bench.yaml",
        (SHIPPED / "llama-bench.yaml").read_text(),
    )
    for number, tokens in enumerate(("16", "24")):
        text = shipped.replace("name: llama-bench", "name: my-bench").replace(
            "models: [.gguf]", "models: [.txt]"
        )
        own.write_text(
            text.replace("default: 512, meaning: tokens of the prompt", f"default: {tokens}")
        )
        plan = written(
            words, extra=f", tools: ['{own}'], flags: [{{answer_tokens: '4', repetitions: '2'}}]"
        )
        farm.one("farm submit", plan, "--name", f"{name}-{number}")
    own.unlink()
    for number, tokens in enumerate(("16", "24")):
        (job,) = farm.until_ended(f"{name}-{number}")
        assert job["status"] == "done", job
        runs = farm.two("results runs", job["campaign_id"])
        assert {(run["case"]["tool"], run["outcome"]) for run in runs} == {
            ("declared:my-bench", "completed")
        }
        assert {dict(run["case"]["flags"])["prompt_tokens"] for run in runs} == {tokens}
        counts = {
            dict(run["case"]["flags"])["figure"]: run["report"]["inference"]["count"]
            for run in runs
        }
        assert counts == {"prefill": 2 * int(tokens), "decode": 8}
        # Who has neither file reads what was measured.
        assert (
            len(
                json.loads(farm.two.text("report", job["campaign_id"], "--format", "json"))[
                    "results"
                ]
            )
            == 2
        )


@pytest.fixture
def west_of_all(farm: FarmOfHosts) -> Iterator[None]:
    """The store's nights begin at noon twelve hours west of Greenwich: at midnight there."""
    # Who works has made the store.
    farm.until_announced(farm.one)
    zone = "UPDATE public.benchfarm_settings SET value = %s WHERE name = 'timezone' RETURNING value"
    asked = "SELECT value FROM public.benchfarm_settings WHERE name = 'timezone'"
    (before,) = farm.queue.rows(asked)
    farm.queue.rows(zone, "Etc/GMT+12")
    yield
    farm.queue.rows(zone, before["value"])


@pytest.mark.usefixtures("west_of_all")
def test_what_a_timer_submits_has_the_stores_night_is_submitted_once_and_says_what_it_overlaps_with(
    farm: FarmOfHosts, plan_file: PlanFile, name: str
) -> None:
    host = farm.one
    host("farm pause", f"phone:{host.serial}")
    plan = plan_file((host.serial,), invocations=1)
    before = datetime.now(UTC)
    first = host("farm submit", plan, "--once", f"{name}-{{date}}")
    # There it is always the night of the day before.
    nights = {moment.date() - timedelta(days=1) for moment in (before, datetime.now(UTC))}
    assert first["submission"] in {f"{name}-{night:%Y%m%d}" for night in nights}
    # Run again, by another computer too.
    again = farm.two("farm submit", plan, "--once", f"{name}-{{date}}")
    assert (again["is_known"], again["jobs"]) == (True, first["jobs"])
    plan.write_text(plan.read_text().replace("name: nightly", "name: Übung"))
    said = host.cli("farm submit", plan, **host.environ()).ok()
    later = said.stdout.partition(":")[0]
    assert later.startswith("bung-")
    assert f"after the jobs of {first['submission']} on {host.serial}" in said.stdout
    for submission in (first["submission"], later):
        assert len(farm.jobs(submission)) == 1
        host("farm cancel", submission)


def test_a_phone_that_never_came_is_told_as_long_as_there_is_its_submission(
    farm: FarmOfHosts, plan_file: PlanFile, name: str
) -> None:
    host = farm.one
    farm.until_announced(host)
    host("farm pause", f"phone:{host.serial}")
    plan = plan_file((host.serial, "GONE"), invocations=1)
    told = "GONE: no job: no host has announced it"
    for words in (
        ("farm", "submit", plan, "--once", name),
        ("farm", "submit", plan, "--once", name),
        ("farm", "status", name),
    ):
        said = host.cli(*words, **host.environ()).ended_with(1).stdout
        assert told in said.splitlines(), words
    status = host.cli("farm status", name, "--json", **host.environ()).ended_with(1).json
    assert status["left_out"] == {"GONE": "no host has announced it"}
    assert [job["serial"] for job in status["jobs"]] == [host.serial]
    host("farm cancel", name)


def test_a_night_in_which_a_phone_gave_nothing_does_not_look_as_if_all_were_well(
    farm: FarmOfHosts, plan_file: PlanFile, before: dict[str, str], name: str
) -> None:
    farm.until_announced(*farm.hosts)
    plan = plan_file(tuple(host.serial for host in farm.hosts), invocations=1)
    farm.two("virtual fault", farm.two.serial, "segv", "times=0")
    try:
        farm.one("farm submit", plan, "--name", name)
        watched = farm.one.cli("farm status", name, "--watch", **farm.one.environ())
    finally:
        farm.two("virtual fault", farm.two.serial, "clear")
    for host in farm.hosts:
        assert re.search(rf"{name}\s+{host.serial}\s+done", watched.ended_with(1).stdout)
    # Each failure is stored as one.
    farm.expect_no_loss(name, 4, before)
    cli, environ = farm.one.cli, farm.one.environ()
    twice = cli("farm submit", plan, "--name", name, **environ).ended_with(2)
    assert "a submission of this name exists already" in twice.stderr
    status = cli("farm status", name, "--json", **environ)
    assert (status.exit_code, status.json["without_result"]) == (1, {farm.two.serial: 4})
    assert (status.json["night"]["with_result"] >= 4, status.json["night"]["left"]) == (True, 0)
    assert {item["doing"][:5] for item in status.json["devices"]} == {"last:"}
    notes = {job["serial"]: job["note"] for job in status.json["jobs"]}
    assert (notes[farm.one.serial], notes[farm.two.serial]) == (
        "4 stored",
        "4 stored; 4 of 4 without a result",
    )


@pytest.fixture
def waiting(farm: FarmOfHosts, plan_file: PlanFile, before: dict[str, str], name: str) -> Host:
    """A host with a job of its phone, which is paused."""
    host = farm.one
    farm.until_announced(host)
    host("farm pause", f"phone:{host.serial}")
    host("farm submit", plan_file((host.serial,), invocations=1), "--name", name)
    return host


def test_a_phone_that_only_has_the_same_serial_number_is_not_measured(
    farm: FarmOfHosts, waiting: Host, name: str
) -> None:
    host = waiting
    facts = "jsonb_set(facts::jsonb, '{model}', '\"Pixel 9\"')::text"
    farm.queue.rows(f"UPDATE farm_jobs SET facts = {facts} WHERE submission = %s", name)
    host("farm pause --undo", f"phone:{host.serial}")
    farm.until(lambda: farm.jobs(name)[0]["tries"] > 0)
    # A further try would take the note away.
    host("farm pause", f"phone:{host.serial}")
    farm.until(lambda: farm.jobs(name)[0]["status"] == "waits")
    host("farm cancel", name)
    (job,) = farm.until_ended(name)
    assert (
        f"the phone {host.serial} here is a Google Pixel 3 (virtual), the job is for a"
        in job["note"]
    )
    assert stored(farm.one.url, job["campaign_id"]) == {}


def test_a_submission_that_is_watched_as_json_is_told_once_when_its_jobs_are_over(
    farm: FarmOfHosts, waiting: Host, name: str
) -> None:
    words = ("farm status", name, "--watch", "--json")
    watched = waiting.cli.start(*words, **waiting.environ())
    assert waiting("farm status", name)["jobs"][0]["status"] == "waits"
    waiting("farm pause --undo", f"phone:{waiting.serial}")
    stdout, _ = watched.communicate(timeout=PATIENCE_S)
    assert [job["status"] for job in json.loads(stdout)["jobs"]] == ["done"]
    assert watched.returncode == 0


def test_a_submission_is_watched_further_when_its_database_is_back(
    farm: FarmOfHosts, waiting: Host, name: str
) -> None:
    watched = waiting.cli.start("farm status", name, "--watch", **waiting.environ())
    assert watched.stdout is not None
    assert watched.stdout.readline()
    waiting("farm pause --undo", f"phone:{waiting.serial}")
    farm.until_stored(farm.jobs(name)[0]["campaign_id"], 1)
    farm.database.server.stop("immediate")
    heard(watched, "trying again")
    farm.database.server.start()
    stdout, _ = watched.communicate(timeout=PATIENCE_S)
    assert " stored" in stdout
    assert watched.returncode == 0
    # It is no fault of the phone.
    assert [job["tries"] for job in farm.jobs(name)] == [0]


def test_a_job_whose_campaign_somebody_else_runs_is_done_when_that_is_over(
    farm: FarmOfHosts, waiting: Host, before: dict[str, str], name: str
) -> None:
    host = waiting
    (job,) = farm.jobs(name)
    settings = settings_in(host.cli.home, store=host.url)
    with Workspace(settings) as other:
        release = other.campaigns.take(job["campaign_id"])
        assert release is not None
        other.at_exit.callback(release)
        host("farm pause --undo", f"phone:{host.serial}")
        farm.until(lambda: "is run by" in farm.jobs(name)[0]["note"])
        (job,) = farm.jobs(name)
        assert (job["status"], job["tries"]) == ("waits", 0)
    farm.until_ended(name)
    farm.expect_no_loss(name, 4, before)


def test_a_phone_whose_job_was_cancelled_while_its_host_was_dead_is_restored_once_nobody_uses_it(
    farm: FarmOfHosts, plan_file: PlanFile, before: dict[str, str], name: str
) -> None:
    host = farm.one
    farm.until_announced(host)
    host("farm submit", plan_file((host.serial,), invocations=30), "--name", name)
    (job,) = farm.jobs(name)
    farm.until_stored(job["campaign_id"], 1)
    host.kill()
    # Its host is silent: nobody is to begin it again.
    farm.until_status(name, "waits")
    assert host("farm cancel", name)["running"] == 0
    assert changes(host) != before[host.serial]
    settings = settings_in(host.cli.home, store=host.url)

    def told() -> list[str]:
        return [row["unusable"] for row in farm.queue.phones() if row["host"] == host.name]

    with Workspace(settings) as other, other.lease.acquire(Serial(host.serial)):
        host.work()
        farm.until(lambda: any("in use by" in text for text in told()))
        assert changes(host) != before[host.serial]
    farm.until(lambda: told() == [""])
    assert changes(host) == before[host.serial]
    said = f"{host.serial} was left changed by a job or command that ended early; it is restored"
    assert said in host.log()
    assert farm.jobs(name)[0]["status"] == "cancelled"


def meaning(path: Path, devices: str) -> Path:
    """Let a plan mean other devices."""
    path.write_text(re.sub(r"devices: .*", f"devices: {{{devices}}}", path.read_text()))
    return path


def test_a_phone_whose_host_comes_after_the_submission_is_measured_too(
    farm: FarmOfHosts, plan_file: PlanFile, before: dict[str, str], name: str
) -> None:
    farm.until_announced(*farm.hosts)
    farm.two.rest()
    # Else its job might be over before the other host has come.
    farm.one("farm pause", f"phone:{farm.one.serial}")
    plan = meaning(plan_file((farm.one.serial,), invocations=1), "where: virtual")
    sent = (
        farm.one.cli("farm submit", plan, "--name", name, "--json", **farm.one.environ())
        .ended_with(1)
        .json
    )
    assert [job["serial"] for job in sent["jobs"]] == [farm.one.serial]
    why = sent["left_out"][farm.two.serial]
    status = farm.one.cli("farm status", name, "--json", **farm.one.environ())
    assert status.ended_with(1).json["left_out"] == {farm.two.serial: why}
    plan.unlink()
    farm.until_announced(farm.two)
    farm.until(lambda: len(farm.jobs(name)) > 1)
    farm.one("farm pause --undo", f"phone:{farm.one.serial}")
    jobs = farm.until_ended(name)
    assert {job["serial"]: job["host"] for job in jobs} == {
        farm.one.serial: "one",
        farm.two.serial: "two",
    }
    farm.expect_no_loss(name, 4, before)
    # It has come: nothing is left out any more, and the exit code is 0.
    assert farm.one("farm status", name)["left_out"] == {}
    said = f"{name}: {farm.two.serial} is new and was added"
    assert (farm.one.log() + farm.two.log()).count(said) == 1


def test_pause_keeps_jobs_waiting_the_urgent_one_goes_first_cancel_stops_it_and_the_worker_ends(
    farm: FarmOfHosts, plan_file: PlanFile, before: dict[str, str], name: str
) -> None:
    host = farm.two
    farm.until_announced(host)
    host("farm pause", f"phone:{host.serial}")
    usual, urgent = f"{name}-usual", f"{name}-urgent"
    host("farm submit", plan_file((host.serial,), invocations=1), "--name", usual)
    host(
        "farm submit",
        plan_file((host.serial,), invocations=30),
        "--name",
        urgent,
        "--priority",
        "5",
    )
    assert host("farm status", usual)["jobs"][0]["status"] == "waits"
    host("farm pause --undo", f"phone:{host.serial}")
    (job,) = farm.jobs(urgent)
    farm.until_stored(job["campaign_id"], 1)
    assert [job["status"] for job in farm.jobs(usual)] == ["waits"]
    host("farm pause host:two")
    host("farm cancel", urgent, "--serial", host.serial)
    (ended,) = farm.until_ended(urgent)
    assert ended["status"] == "cancelled", ended
    host.rest()
    assert changes(host) == before[host.serial]
    assert not list((host.cli.home / "state" / "journals").glob("*.json*"))
    assert [job["status"] for job in farm.jobs(usual)] == ["waits"]
    # Nobody is to resume it.
    (left,) = [item for item in host("results list") if item["campaign_id"] == job["campaign_id"]]
    assert left["status"] == "closed"
    status = host.cli("farm status", urgent, "--json", **host.environ()).ended_with(1).json
    assert status["without_result"] == {host.serial: left["abandoned"]}
    assert left["stored"] + left["abandoned"] == left["planned"]
    host("farm pause --undo host:two")
    farm.until_announced(host)
    farm.until_ended(usual)
    farm.expect_no_loss(usual, 4, before)
