"""The main job: models on phones, judged, stored, reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.samples.command import Cli, heard
from tests.samples.places import REPO


def runs_of(cli: Cli, campaign: str = "") -> list[dict[str, Any]]:
    return cli.json("results runs", *filter(None, [campaign]))


def bench(lab: Lab, *words: object, serial: int = 0, exit_code: int = 0) -> dict[str, Any]:
    which = () if "-d" in words else ("-d", "xnnpack")
    done = lab.cli("bench --min-secs 0.2 -n 2 --json -s", lab.serials[serial], *which, *words)
    assert done.exit_code == exit_code, done.stdout + done.stderr
    return done.json


def test_all_that_is_stored_is_counted_alike_wherever_it_is_told(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    words = f"-s {lab.serials[1]} -d gpu -t 1,2 -n 3 --min-secs 0.1"
    done = lab.cli(f"bench {words}", model).ok()
    found = re.search(r"(\d+) runs, (\d+) left out; report: ", done.stdout)
    assert found is not None, done.stdout
    ran, left_out = map(int, found.groups())
    stored = ran + left_out
    assert f" finished: {stored} stored ({left_out} of them left out), 0 left" in done.stderr
    (line, *_) = re.findall(r"finished +(\S+)", lab.cli("results list").ok().stdout)
    assert line == f"{stored}/{stored}"
    rows = tmp_path / "rows.csv"
    lab.cli("export newest -f csv --rows invocations -o", rows).ok()
    assert len(rows.read_text("utf-8").splitlines()) == 1 + stored


def test_attached_virtual_phones_are_listed_as_virtual(lab: Lab) -> None:
    found = lab.cli.json("devices")
    assert [item["serial"] for item in found] == list(lab.serials)
    assert all(item["usable"] and item["facts"]["is_virtual"] for item in found)
    assert [item["facts"]["profile"] for item in found] == ["pixel-3", "pixel-4"]
    assert lab.cli("devices").ok().stdout.count("(virtual)") == 2


def test_a_model_is_measured_with_each_delegate_and_thread_count(lab: Lab, model: Path) -> None:
    result = bench(lab, model, "-d", "cpu,xnnpack,gpu", "-t", "1,2")
    runs = result["runs"]
    assert len(runs) == 3 * 2 * 2
    # The GPU takes all operators: its figure doesn't depend on threads and is shown once.
    skipped = [run for run in runs if run["outcome"] == "skipped"]
    assert (result["stored"], result["not_run"]) == (len(runs), len(skipped))
    assert {
        (run["case"]["delegate"], run["case"]["threads"], run["reason_code"]) for run in skipped
    } == {("gpu", 2, "threads-unused")}
    assert all(
        run["is_virtual"] and run["outcome"] == "completed" for run in runs if run not in skipped
    )
    for run in (run for run in runs if run not in skipped):
        assert run["report"]["delegate"]["requested"] == run["case"]["delegate"]
        assert run["report"]["delegate"]["truth"] in {"full", "partial"}
        assert run["report"]["inference"]["median_us"] > 0
        assert run["state_before"]["boot_id"] == run["state_after"]["boot_id"] != ""
        assert "virtual-device" in {finding["code"] for finding in run["verdict"]["findings"]}
    report = Path(result["report"]).read_text("utf-8")
    assert "virtual" in report.lower()
    # A good run's log is asked for nothing.
    good = next(run["run_id"] for run in runs if run not in skipped)
    assert lab.cli("results log --attachment logcat", good).exit_code == 2


def test_without_a_delegate_what_is_there_is_tried_and_the_winner_named(
    lab: Lab, model: Path
) -> None:
    quick = f"-s {lab.serial} --min-secs 0.2 -n 2"
    done = lab.cli.json(f"bench {quick}", model)
    measured = {
        (run["case"]["delegate"], run["case"]["threads"], run["case"]["tool"])
        for run in done["runs"]
        if run["outcome"] == "completed"
    }
    cpu = {(delegate, threads, "native") for delegate in ("cpu", "xnnpack") for threads in (1, 4)}
    assert measured - cpu <= {("gpu", 1, "native"), ("npu", 1, "litert-native")}
    assert measured > cpu
    (winner,) = done["winners"]
    assert winner["is_virtual"]
    fastest = min(
        (run for run in done["runs"] if run["report"]),
        key=lambda run: run["report"]["inference"]["median_us"],
    )
    assert fastest["case"]["delegate"] in {
        name.partition(",")[0] for name in [winner["configuration"], *winner["tied"]]
    }
    assert re.search(r"benchfarm (ab|bench) ", "".join(done["next"]))


def test_lists_have_limits_and_filters(lab: Lab, model: Path) -> None:
    result = bench(lab, model, "-d", "cpu,gpu", "-t", "4")
    assert len(lab.cli.json("results list --limit 1")) == 1
    assert "no campaign matches" in lab.cli("results list --name", "no such").ok().stdout
    gpu = lab.cli.json("results runs -d GPU", result["campaign_id"])
    assert {run["case"]["delegate"] for run in gpu} == {"gpu"}
    shown = lab.cli("results runs --limit 1", result["campaign_id"]).ok().stdout
    assert shown.startswith("3 earlier runs: --limit 0")
    # Whoever pipes it into grep finds all of a run in its line.
    piped = lab.cli("results runs", result["campaign_id"], COLUMNS="40").ok().stdout
    assert len(piped.splitlines()) == 1 + 4
    fitting = lab.cli("results runs -d nnapi").ok().stdout
    assert f"campaign {result['campaign_id']} has no matching run" in fitting
    for words, told in {
        "--status faild": "did you mean 'failed'?",
        "-d gpi": "did you mean 'gpu'?",
        "-s VIRTUAL-PIXL-3": f"did you mean '{lab.serial}'?",
        "-s bogus": "no phone 'bogus' is stored",
    }.items():
        assert told in lab.cli(f"results runs {words}").ended_with(2).stderr


def test_files_are_pushed_once(lab: Lab, model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.tflite"
    own.write_bytes(model.read_bytes() + b"\0" * 16)
    first = lab.cli(f"bench -d xnnpack --min-secs 0.1 -n 1 -s {lab.serial}", own).ok()
    assert "sent own.tflite" in first.stderr
    again = lab.cli(f"bench -d xnnpack --min-secs 0.1 -n 1 -s {lab.serial}", own).ok()
    assert "own.tflite is there already" in again.stderr
    assert "sent" not in again.stderr


def test_models_of_any_name_are_measured_under_that_name(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    names = ["-leading a b", "quo'te\"$(reboot)", "new\nline", "模型✓;b&c|d"]
    odd = [shutil.copy(model, tmp_path / f"{name}.tflite") for name in names]
    runs = bench(lab, *odd, "--tool", "native,apk", "-n", "1")["runs"]
    assert {run["outcome"] for run in runs} == {"completed"}
    assert {run["case"]["model_name"] for run in runs} == {*names}
    lab.cli("report --format text").ok()
    lab.cli("report").ok()


def test_this_computer_is_measured_for_real(cli: Cli, model: Path) -> None:
    words = "bench -d xnnpack -s host --min-secs 0.1 -n 1 -t 1 --json"
    done = cli(words, model, "--flag", "signature_to_run_for=serving_default")
    # On a busy computer its figure is suspect, and nothing else was measured.
    assert done.exit_code == int(bool(done.json["nothing_clean"])), done.stderr
    (run,) = done.json["runs"]
    assert (run["is_virtual"], run["case"]["tool"]) == (False, "litert")
    assert run["report"]["delegate"]["truth"] in {"full", "partial"}
    assert run["report"]["inference"]["median_us"] > 0
    assert run["report"]["extra"]["signature"] == "serving_default"
    # No server for phones was started.
    servers = cli.json("adb status")["servers"]
    assert [server for server in servers if server["ours"]] == []


def test_ctrl_c_names_the_phones_that_could_not_be_restored(lab: Lab, model: Path) -> None:
    serial = lab.serial
    words = "ab threads:1 threads:4 -d xnnpack --runs 4 --min-secs 4"
    process = lab.cli.start(words, "-m", model, "-s", serial)
    heard(process, f" {serial}: 2/")
    for subject in ("settings", "svc"):
        lab.fault(serial, "shell-restricted", f"subject={subject}")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=180)
    lab.clear()
    assert (
        f"left changed: {serial}: benchfarm device restore {serial}"
        in lab.cli("status").ok().stdout
    )
    assert lab.cli.json("status")["changed"] == [serial]
    lab.cli("device restore", serial).ok()
    assert process.returncode == 130, rest
    assert f"what was measured is kept, but {serial} couldn't be restored" in rest
    assert "the phones were restored" not in rest
    # What was measured is shown as at the end, pairs as pairs.
    assert "A/B in turns" in rest, rest
    assert "median ms" not in rest


def test_ctrl_c_names_a_phone_that_could_not_be_released_though_nothing_is_changed_on_it(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    large, serial = tmp_path / "large.tflite", lab.serial
    large.write_bytes(model.read_bytes() + bytes(40_000_000))
    lab.fault(serial, "slow", "bytes_per_s=1000000")
    process = lab.cli.start("bench -d xnnpack -n 1 -s", serial, large)
    poll_until(lambda: "gets large" in lab.cli("status").stdout, "the model is on its way")
    lab.fault(serial, "unauthorized")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=180)
    lab.clear()
    assert process.returncode == 130, rest
    assert f"{serial}: problem: could not be released" in rest, rest
    assert f"but {serial} couldn't be released: a program may still run there" in rest
    assert "the phones were restored" not in rest
    assert lab.cli.json("status")["changed"] == []


#: Ctrl-C after the first run, and a listener that fails when it hears of the stop.
STOPPED_IN_PYTHON = """
import os, signal, sys
import benchfarm

def hear(progress):
    if ": 1/" in progress.text:
        os.kill(os.getpid(), signal.SIGINT)
    if progress.text.startswith("stopping"):
        raise ValueError("a listener's own fault")

with benchfarm.Lab(progress=hear) as lab:
    try:
        lab.bench(sys.argv[1], devices=[sys.argv[2]], delegates=["xnnpack"], threads=[1], invocations=4, min_secs=2)
    except benchfarm.InterruptedByUserError:
        print("stopped")
"""


def test_a_phone_is_restored_also_where_a_listener_fails_at_the_stop(lab: Lab, model: Path) -> None:
    serial = lab.serial
    original = stay_on(lab, serial)
    environ = {**os.environ, "BENCHFARM_HOME": str(lab.cli.home), "ANDROID_ADB_SERVER_PORT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_IN_PYTHON, str(model), serial],
        env=environ,
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "stopped\n", done.stderr
    assert stay_on(lab, serial) == original
    assert not list((lab.cli.home / "state/journals").glob("*.undo"))


def stay_on(lab: Lab, serial: str) -> str:
    return lab.shell(serial, "settings get global stay_on_while_plugged_in")


def test_a_stop_does_not_wait_for_a_file_that_is_on_its_way(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    large, serial = tmp_path / "large.tflite", lab.serial
    large.write_bytes(model.read_bytes() + bytes(40_000_000))
    original = stay_on(lab, serial)
    lab.fault(serial, "slow", "bytes_per_s=1000000")
    process = lab.cli.start("bench -d xnnpack -n 1 -s", serial, large)
    poll_until(lambda: "gets large" in lab.cli("status").stdout, "the model is on its way")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=180)
    lab.clear()
    assert process.returncode == 130, rest
    assert "sent large" not in rest
    assert "the phones were restored" in rest
    assert stay_on(lab, serial) == original
    # What came of it is no file.
    campaign = lab.cli.json("results list")[0]["campaign_id"]
    assert "sent large" in lab.cli("run --resume", campaign).ok().stderr
    models = "/data/local/tmp/benchfarm/models"
    assert "large" in lab.shell(serial, f"ls {models}/*")
    assert lab.shell(serial, f"echo {models}/*/.*.part") == f"{models}/*/.*.part"
    lab.shell(serial, f": > {models}/.1.part")
    assert lab.shell(serial, f"echo {models}/.*.part") == f"{models}/.1.part"
    lab.shell(serial, f"rm {models}/.1.part")


@pytest.mark.parametrize("line_of", ["campaign ", " 2/2 "])
def test_a_stop_names_its_campaign_also_where_no_phone_is_at_work(
    lab: Lab, model: Path, line_of: str
) -> None:
    words = "bench -d xnnpack --min-secs 0.1 -n 2 -t 1 --json -s"
    process = lab.cli.start(words, lab.serial, model)
    heard(process, line_of)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=180)
    told = json.loads(stdout)
    stored = lab.cli.json("results list")[0]
    campaign, is_whole = stored["campaign_id"], line_of != "campaign "
    assert stored["status"] == ("finished" if is_whole else "interrupted"), stderr
    if process.returncode != 130:
        # It came when all was told.
        assert (is_whole, told["campaign_id"]) == (True, campaign), stderr
        return
    assert told["error"]["hint"].startswith("all of it" if is_whole else "resume it"), stdout
    assert told["error"]["campaign_id"] == campaign, stdout
    assert campaign in told["error"]["hint"], stdout
    lab.cli("report", campaign, "--out", lab.cli.home / "stopped.html").ok()


def test_further_signals_lose_nothing_of_what_a_stopped_campaign_has_to_tell(
    lab: Lab, model: Path
) -> None:
    words = "bench -d xnnpack --min-secs 4 -n 4 -t 1 -s"
    process = lab.cli.start(words, lab.serial, model)
    told = ""
    # The third one comes when the phone is restored.
    waits = f"stopping: waiting for {lab.serial}"
    for awaited in (" 1/4 ", waits, " interrupted: "):
        told += heard(process, awaited)
        process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=180)
    assert process.returncode == 130, told + rest
    assert "median ms" in rest
    assert "resume it: benchfarm run --resume" in rest


@pytest.mark.parametrize(("stop", "runs"), [(signal.SIGHUP, True), (signal.SIGTERM, False)])
def test_one_phone_is_restored_however_the_command_is_stopped(
    lab: Lab, model: Path, stop: signal.Signals, runs: bool
) -> None:
    """Also when the program is only about to be started."""
    original = stay_on(lab, lab.serial)
    process = lab.cli.start(
        f"bench -d xnnpack --min-secs 600 --max-secs 900 -s {lab.serial}", model
    )
    heard(process, "virtual benchmark_model")
    poll_until(lambda: stay_on(lab, lab.serial) != original, "the phone is kept awake")
    if runs:
        poll_until(
            lambda: lab.shell(lab.serial, "pidof virtual_benchmark_model"), "the program runs"
        )
    process.send_signal(stop)
    _, rest = process.communicate(timeout=180)
    assert process.returncode == 130, rest
    assert stay_on(lab, lab.serial) == original
    assert lab.cli.json("device restore") == {"restored": {}, "failed": {}, "notes": {}}
    assert lab.shell(lab.serial, "pidof virtual_benchmark_model") == ""


def test_the_app_is_read_right_when_the_phones_clock_goes_back(lab: Lab, model: Path) -> None:
    words = ("--tool", "apk", "-n", "1")
    (first,) = bench(lab, model, *words, serial=1)["runs"]
    lab.fault(lab.serials[1], "clock-jump", "seconds=-86400")
    (again,) = bench(lab, model, *words, "--inferences", "777", serial=1)["runs"]
    assert first["report"]["inference_mean_us"] != again["report"]["inference_mean_us"]
    assert again["report"]["inference"]["count"] >= 777


def test_an_app_that_was_left_running_does_not_spoil_the_next_run(lab: Lab, model: Path) -> None:
    process = lab.cli.start(
        f"bench -d xnnpack --tool apk --min-secs 600 --max-secs 900 -s {lab.serials[1]}", model
    )
    poll_until(
        lambda: lab.shell(lab.serials[1], "pidof org.tensorflow.lite.benchmark"), "the app runs"
    )
    process.kill()
    process.communicate()
    assert bench(lab, model, serial=1)["runs"][0]["outcome"] == "completed"
    assert lab.shell(lab.serials[1], "pidof org.tensorflow.lite.benchmark") == ""
    assert [run["outcome"] for run in bench(lab, model, "--tool", "apk", serial=1)["runs"]] == [
        "completed"
    ] * 2


def test_a_missing_delegate_is_never_reported_under_its_name(lab: Lab, model: Path) -> None:
    lab.fault(lab.serial, "delegate-missing", "subject=gpu", "times=0")
    result = bench(lab, model, "-d", "gpu", "-n", "3", exit_code=1)
    first, second, third = result["runs"]
    assert first["outcome"] == second["outcome"] == "failed"
    assert first["reason_code"].startswith(("delegate-", "gpu-"))
    assert (third["outcome"], third["reason_code"]) == ("skipped", "failed-before")
    (row,) = json.loads(lab.cli("report --format json").ok().stdout)["results"]
    assert row["status"] in {"fell-back", "failed"}
    assert row["median_us"] is None


def test_a_process_without_a_result_is_told_beside_the_figure_of_the_others(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serial, "segv", "moment=run")
    words = f"-s {lab.serial} -d xnnpack,gpu -t 4 -n 4"
    text = " ".join(lab.cli(f"bench {words}", model).ended_with(1).stdout.split())
    told = r"(gpu|xnnpack) on Google Pixel 3 \(virtual\): 1 of 4 processes failed: segfault"
    assert re.search(told, text)
    assert re.search(r" \d+ runs \(1 without a result\); report: ", text)
    markdown = lab.cli("report newest -f markdown").ok().stdout.replace("\\", "")
    assert re.search(
        r"2 of 2 results clean.* 1 of \d+ invocations that ran gave no result", markdown
    )
    assert re.search(rf"Problems:\n\n- {told}", markdown)
    assert "1 invocation gave no result (segfault)" in lab.cli("table").ok().stdout


def test_measuring_without_any_clean_result_ends_with_1_and_the_reason(
    lab: Lab, model: Path
) -> None:
    done = bench(lab, model, "-n", "1", "--inferences", "3", "--min-secs", "0.001", exit_code=1)
    assert "no result is clean (suspect (few-inferences))" in done["nothing_clean"]
    assert [run["outcome"] for run in done["runs"]] == ["completed"]


def test_a_changed_model_is_not_resumed_under_the_old_ones_name(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "m.tflite"
    own.write_bytes(model.read_bytes())
    lab.fault(lab.serials[1], "program-hang")
    process = lab.cli.start(
        f"bench -d xnnpack -n 2 --min-secs 8 -s {lab.serial} -s {lab.serials[1]}", own
    )
    heard(process, " 1/2 ")
    process.kill()
    process.communicate()
    lab.clear()
    own.write_bytes(model.read_bytes() + b"\0" * 8)
    refused = lab.cli("run --resume")
    assert refused.exit_code == 2
    assert str(own) in refused.stderr
    own.write_bytes(model.read_bytes())
    assert lab.cli.json("run --resume")["left"] == 0


def test_a_model_that_has_enough_runs_may_be_gone_when_the_others_are_resumed(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    first.write_bytes(model.read_bytes())
    second.write_bytes(model.read_bytes() + b"\0" * 8)
    words = f"bench -d cpu -n 2-3 --precision 50% --min-secs 0.1 -s {lab.serial}"
    lab.cli(words, first, second).ok()
    last = [run["run_id"] for run in runs_of(lab.cli) if run["case"]["model_name"] == "second"][-1]
    newest = "campaign_no = (SELECT max(campaign_no) FROM campaigns)"
    with closing(sqlite3.connect(lab.cli.home / "store.sqlite")) as rows, rows:
        rows.execute("DELETE FROM runs WHERE run_id = ?", [last])
        rows.execute(f"UPDATE campaigns SET status = 'running', finished_at = NULL WHERE {newest}")
    first.unlink()
    assert lab.cli.json("run --resume")["left"] == 0


def test_a_phone_that_can_not_be_used_is_named(lab: Lab, model: Path) -> None:
    lab.fault(lab.serial, "unauthorized")
    done = lab.cli("bench -d xnnpack --where virtual --min-secs 0.1 -n 1 --json", model).ok()
    assert len(done.json["left_out"]) == 1
    assert "not used" in done.stderr
    # A list with a phone that can't be used isn't all well; the others are ready all the same.
    listed = lab.cli("devices --json").ended_with(3).json
    assert [item["usable"] for item in listed if item["serial"] == lab.serial] in ([False], [])
    assert sum(item["usable"] for item in listed) == len(listed) - 1
    named = lab.cli(f"bench -d xnnpack -s {lab.serial}", model, BENCHFARM_ADB_SERVER="127.0.0.1:1")
    assert named.exit_code == 3


STAGES = ["first-load", "process-cold", "cache-warm"]


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_a_warm_start_uses_the_cache_that_the_first_load_wrote(
    lab: Lab, model: Path, tool: str
) -> None:
    words = f"--pass cold -d xnnpack,gpu --tool {tool} -n 1 --json"
    result = lab.cli(f"bench {words} -s {lab.serials[1]}", model).ok().json
    runs = {(run["case"]["delegate"], run["invocation"]): run["report"] for run in result["runs"]}
    assert len(runs) == 6
    for delegate in ("xnnpack", "gpu"):
        assert [runs[delegate, number]["extra"]["start_stage"] for number in range(1, 4)] == STAGES
        assert runs[delegate, 1]["extra"]["cache_bytes_before"] == 0
        assert runs[delegate, 3]["extra"]["cache_bytes_before"] > 0
        assert runs[delegate, 3]["init_us"] < runs[delegate, 1]["init_us"]
    assert "from serialized data" in runs["gpu", 3]["extra"]["from_cache"]
    assert not [run for run in result["runs"] if run["verdict"]["quality"] != "trusted"]
    shown = lab.cli("report --format json", result["campaign_id"]).ok().json["results"]
    assert [[start["stage"] for start in row["starts"]] for row in shown] == [STAGES, STAGES]
    assert all(row["median_us"] is None for row in shown)


def test_a_phone_that_is_nearly_named_is_told(lab: Lab, model: Path) -> None:
    small = lab.cli("bench", model, "-s", lab.serial.lower()).ended_with(3).stderr
    assert f"did you mean '{lab.serial}'?" in small
    assert "--profile pixel-3" in lab.cli("bench -s pixel3", model).ended_with(3).stderr
