"""``benchfarm parse``: what runs of ours printed, pipes, and texts of other programs."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM


@pytest.fixture(scope="module")
def running_lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("galaxy-s23")


@pytest.mark.parametrize(
    ("words", "attachment"),
    [
        (("native", "-d", "cpu,gpu"), "stdout"),
        (("apk", "-d", "xnnpack,nnapi"), "logcat"),
    ],
    ids=str,
)
def test_what_a_run_printed_is_read_with_the_figures_that_are_stored(
    lab: Lab, model: Path, words: tuple[str, ...], attachment: str
) -> None:
    done = lab.cli("bench -t 1 --min-secs 0.1 -n 1 --json", model, "--tool", *words)
    assert done.json["runs"]
    for run in done.json["runs"]:
        printed = lab.cli("results log", run["run_id"], "--attachment", attachment, "--json")
        text = printed.ok().json["attachments"][attachment]
        read = lab.cli.json("parse -", stdin=text)
        stored = run["report"]
        for name in ("outcome", "init_us", "inference", "inference_mean_us", "warmup"):
            assert read[name] == stored[name], name


def test_a_process_substitution_is_read_like_a_file(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        "STARTING!\nInference timings in us: Init: 5, First inference: 5, Warmup (avg): 5, Inference (avg): 5\n"
    )
    command = f"{shlex.quote(str(BENCHFARM))} parse --json <(cat {shlex.quote(str(log))})"
    done = subprocess.run(
        ["bash", "-c", command], env=cli.environ(), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["inference_mean_us"] == 5


def test_a_session_whose_activity_was_refused_is_failed_whatever_older_log_stands_below_it(
    cli: Cli,
) -> None:
    session = """\
$ adb install -r android_aarch64_benchmark_model.apk
Performing Streamed Install
Success
$ adb shell am start -S --user 10 -n org.tensorflow.lite.benchmark/.BenchmarkModelActivity \
--es args '"--graph=/x/new.tflite"'
Stopping: org.tensorflow.lite.benchmark
Starting: Intent { cmp=org.tensorflow.lite.benchmark/.BenchmarkModelActivity (has extras) }

Exception occurred while executing 'start':
java.lang.SecurityException: Shell does not have permission to access user 10
	at com.android.server.am.UserController.handleIncomingUser(UserController.java:2412)
	at android.os.ShellCommand.exec(ShellCommand.java:38)
"""
    log = """\
$ adb logcat -d | grep tflite
11-28 10:00:00.123  4711  4711 I tflite  : Running TensorFlow Lite benchmark with args: --graph=/x/old.tflite
11-28 10:00:03.123  4711  4711 I tflite  : Inference timings in us: Init: 5685, First inference: 18535, \
Warmup (avg): 14462.3, Inference (avg): 14575.2
"""
    alone = cli.json("parse -", stdin=session)
    refused, older = cli.json("parse -", stdin=session + log)
    for report in (alone, refused):
        assert (report["outcome"], report["failure_code"]) == ("failed", "activity-refused")
        assert "access user 10" in report["failure_reason"]
    assert (older["outcome"], older["extra"]["graph"], older["inference_mean_us"]) == (
        "ok",
        "/x/old.tflite",
        14575.2,
    )
    assert "new.tflite" not in json.dumps(older)
