"""Progress and answers as lines of JSON; and readers of them that go away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM

KEYS = {"at", "level", "event", "text", "pid", "benchfarm"}
NO_DATABASE = "postgresql://benchfarm@127.0.0.1:1/none?connect_timeout=2"


def lines_of(stderr: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stderr.splitlines()]
    assert all(line.keys() >= KEYS for line in lines), stderr
    return lines


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (["--nope"], 2, "No such option: --nope"),
        (["farm"], 2, "benchfarm farm needs a command"),
        (["farm", "nope"], 2, "No such command 'nope'"),
        (["reprot"], 2, "Did you mean 'report'"),
        (["run", "--nope"], 2, "No such option: --nope"),
        (["farm", "worker"], 2, "PostgreSQL"),
        (
            ["--store", NO_DATABASE, "farm", "worker"],
            5,
            "the farm's queue: the database server can't be reached",
        ),
        (["serve", "--host", "0.0.0.0"], 2, "token"),
        (["--debug", "run", "missing.yaml"], 2, "missing.yaml: can't be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused_is_one_line(cli: Cli, words: list[str], exit_code: int, told: str) -> None:
    # Not by the fixture's call, which takes any traceback for a fault.
    process = cli.start(*words, BENCHFARM_LOG="json")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == exit_code, stderr
    (line,) = lines_of(stderr)
    assert (line["event"], line["level"], line["exit_code"]) == ("error", "error", exit_code)
    assert told in line["text"]
    assert line["code"]
    assert ("Traceback" in line.get("traceback", "")) == ("--debug" in words)


def test_the_option_counts_before_it_is_read(cli: Cli) -> None:
    for words in (("--log-format", "json", "--nope"), ("--log-format=json", "--nope")):
        (line,) = lines_of(cli(*words).stderr)
        assert "--nope" in line["text"]
    # For people as ever.
    assert "see 'benchfarm run -h'" in cli("run --nope").stderr
    # With --json standard output says the same.
    refused = cli("--log-format json run --nope --json")
    assert refused.json["error"]["message"] == lines_of(refused.stderr)[0]["text"]


def test_a_format_that_is_none_is_refused_by_the_name_of_where_it_was_given(cli: Cli) -> None:
    # By what needs no settings, too.
    for words in ("devices", "explain trusted"):
        told = cli("--log-format bogus", *words.split()).ended_with(2).stderr
        assert "error: --log-format is 'bogus', neither text nor json" in told
    assert "error: BENCHFARM_LOG is 'bogus'" in cli("devices", BENCHFARM_LOG="bogus").stderr


def test_a_thread_that_ends_by_an_error_is_told_as_json() -> None:
    program = (
        "import threading; from orchestrator.cli.output import logs_as_json; logs_as_json(); "
        "threading.Thread(target=lambda: 1 / 0, name='reader').start()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = lines_of(done.stderr)
    assert line["text"] == "reader ended: ZeroDivisionError: division by zero"
    assert "Traceback" in line["traceback"]


def test_all_that_is_told_while_phones_are_worked_with_is_json(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    serial = lab.serial
    plan = plan_file(lab.serials, invocations=2)
    # However late the kill comes, the campaign isn't over before.
    lab.fault(lab.serials[1], "program-hang")
    process = lab.cli.start("--log-format json run", plan)
    assert process.stderr is not None
    begun = [json.loads(next(process.stderr))["event"] for _ in range(3)]
    assert begun[0] == "campaign-started"
    process.kill()
    process.communicate(timeout=180)
    lab.clear()
    resumed = lab.cli("run --resume", BENCHFARM_LOG="json").ok()
    assert {"campaign-resumed", "campaign-ended"} <= {
        line["event"] for line in lines_of(resumed.stderr)
    }
    lines_of(
        lab.cli(
            "device quiet --option sync_off -n 4 --min-secs 0.05", serial, BENCHFARM_LOG="json"
        ).stderr
    )
    lines_of(lab.cli("doctor", BENCHFARM_LOG="json").stderr)


def test_a_server_tells_its_address_in_json(cli: Cli) -> None:
    process = cli.start("--log-format json serve --port 0")
    try:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        assert (first["event"], first["url"].startswith("http://127.0.0.1:")) == ("serving", True)
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=180)
    lines_of(rest)


def without_streams(cli: Cli, words: str) -> int:
    command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", BENCHFARM, *words.split()]
    return subprocess.run(command, env=cli.environ(), timeout=180, check=False).returncode


def on_a_full_disk(cli: Cli, words: str) -> int:
    with (
        Path("/dev/full").open("w") as full,
        cli.process([words], {}, stderr=full) as process,
    ):
        process.communicate(timeout=180)
        return process.returncode


def to_a_reader_of_one_line(cli: Cli, words: str) -> int:
    with cli.process([words], {}, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        return process.wait(180)


@pytest.mark.parametrize("lost", [to_a_reader_of_one_line, on_a_full_disk, without_streams])
def test_losing_the_progress_stream_stops_no_campaign(
    lab: Lab, model: Path, lost: Callable[[Cli, str], int]
) -> None:
    words = f"bench {model} -s {lab.serial} -d xnnpack --min-secs 0.1 -n 2 -t 1"
    assert lost(lab.cli, words) == 0
    campaign = lab.cli.json("results list")[0]
    assert (campaign["status"], campaign["stored"]) == ("finished", 2)


def test_a_locale_without_a_sign_shows_the_figures(cli: Cli) -> None:
    assert "Written ?x %." in cli("explain interval", PYTHONIOENCODING="ascii").ok().stdout
    as_json = cli.json("explain interval", PYTHONIOENCODING="ascii")
    assert as_json == cli.json("explain interval")


def test_an_answer_that_nobody_reads_is_no_answer(cli: Cli) -> None:
    read, write = os.pipe()
    os.close(read)
    with cli.process(["flags --json"], {}, stdout=write) as process:
        os.close(write)
        process.communicate(timeout=180)
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [("flags --json", 5), ("report x --json", 2), ("-h", 5), ("status -h", 5)],
)
def test_an_answer_that_a_full_disk_loses_is_no_fault_of_benchfarm(
    cli: Cli, words: str, exit_code: int
) -> None:
    with (
        Path("/dev/full").open("w") as full,
        cli.process([words], {}, stdout=full) as process,
    ):
        _, stderr = process.communicate(timeout=180)
    assert process.returncode == exit_code, stderr
    assert stderr.startswith("benchfarm: error: ")
