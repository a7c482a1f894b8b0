"""``benchfarm trace --app`` over a real adb server: an app that isn't ours, on a phone with
perfetto and an old one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchfarm_virtual.samples import benchmark_apk
from tests.e2e.conftest import Lab
from tests.samples.faulty_lab import phones_of, server_of

PACKAGE = "com.example.benchmark"
ACTIVITY = "com.example.benchmark.BenchmarkModelActivity"
PROPERTY = "debug.tflite.trace"


def adb(lab: Lab, serial: str, *words: object) -> None:
    """Run the plain adb command for a phone."""
    server = server_of(lab)
    address = next(phone["address"] for phone in phones_of(lab) if phone["serial"] == serial)
    command = [server["binary"], "-L", server["address"], "-s", address, *map(str, words)]
    subprocess.run(
        command,
        check=True,
        timeout=60,
        capture_output=True,
        env={**os.environ, "HOME": str(lab.cli.home)},
    )


def install(lab: Lab, serial: str, folder: Path, *, debuggable: bool) -> None:
    path = folder / f"app-{debuggable}.apk"
    path.write_bytes(
        benchmark_apk(
            package=PACKAGE,
            activity=".BenchmarkModelActivity",
            abis=("arm64-v8a", "armeabi-v7a"),
            debuggable=debuggable,
        )
    )
    adb(lab, serial, "install", "-r", path)


@pytest.fixture(scope="module")
def app_lab(lab_of: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = lab_of("pixel-4", "moto-e5-play")
    for serial in lab.serials:
        install(lab, serial, tmp_path_factory.mktemp("apk"), debuggable=True)
    return lab


@pytest.fixture
def lab(app_lab: Lab) -> Iterator[Lab]:
    yield app_lab
    app_lab.tidy()


def as_before(lab: Lab, serial: str) -> None:
    told = lab.shell(
        serial,
        f"getprop {PROPERTY}; pidof perfetto; ls /data/misc/perfetto-traces; getprop debug.atrace.app_0",
    )
    assert [line for line in told.split() if not line.startswith("/data/")] in ([], ["0"])


def using(flags: str = "") -> str:
    """Return the phone's command that starts the app with a model."""
    arguments = f"--graph=/data/local/tmp/m.tflite --num_runs=7 --min_secs=0.1 {flags}"
    return f'am start -n {PACKAGE}/{ACTIVITY} --es args "{arguments}"'


def scenario(lab: Lab, flags: str = "--use_xnnpack=false") -> str:
    """Return a command that uses the app and ends when the app does, by an adb that is told the
    phone by nobody."""
    start = f"{using(flags)}; while pidof {PACKAGE} >/dev/null; do sleep 0.2; done"
    return f"{server_of(lab)['binary']} shell '{start}'"


@pytest.mark.parametrize("phone", [0, 1], ids=["perfetto", "atrace"])
def test_an_app_of_ones_own_is_traced_while_a_command_uses_it(
    lab: Lab, model: Path, tmp_path: Path, phone: int
) -> None:
    serial = lab.serials[phone]
    adb(lab, serial, "push", model, "/data/local/tmp/m.tflite")
    lab.shell(serial, f"setprop {PROPERTY} 0")
    words = ("trace", "--app", PACKAGE, "-s", serial, "--during", scenario(lab), "--out", tmp_path)
    found = lab.cli(*words, "--json").ok().json
    summary = found["summary"]
    assert Path(found["file"]).stat().st_size == found["size_bytes"]
    assert PACKAGE in Path(found["file"]).name
    assert summary["inferences"] >= 7
    operators = {item["name"]: item for item in summary["operators"]}
    assert (
        operators["CONV_2D"]["per_inference"]
        == operators["CONV_2D"]["count"] / summary["inferences"]
    )
    times = sum(item["total_us"] for item in summary["operators"]) + summary["between_us"]
    assert times == pytest.approx(summary["total_us"], rel=1e-3)
    assert (summary["unmatched"], found["faults"]) == (0, [])
    assert lab.shell(serial, f"getprop {PROPERTY}") == "0"
    as_before(lab, serial)


def test_the_text_says_what_the_inferences_are_made_of(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    serial = lab.serials[0]
    adb(lab, serial, "push", model, "/data/local/tmp/m.tflite")
    done = lab.cli(
        "trace", "--app", PACKAGE, "-s", serial, "--during", scenario(lab, ""), "--out", tmp_path
    ).ok()
    for words in (
        "(virtual): com.example.benchmark",
        "inferences, ",
        "delegate TfLiteXNNPackDelegate: ",
        "per inference",
        "copies: ",
    ):
        assert words in done.stdout, done.stdout


def test_an_app_that_writes_no_slices_is_told_with_the_next_step(lab: Lab, tmp_path: Path) -> None:
    serial = lab.serials[0]
    words = ("trace", "--app", PACKAGE, "-s", serial, "--out", tmp_path)
    done = lab.cli(*words, "--budget", 0.3)
    assert (done.exit_code, "didn't run meanwhile: name its activity" in done.stdout) == (1, True)
    failed = lab.cli(*words, "--during", "false", "--json")
    assert failed.exit_code == 1
    assert "exit code 1" in failed.json["faults"][0]
    refused = lab.cli(*words, "--budget", 1, "--app", f"{PACKAGE}/.Nowhere")
    assert (refused.exit_code, "can't be started" in refused.stderr) == (3, True)
    as_before(lab, serial)


def test_what_cannot_be_traced_is_refused_before_anything_is_changed(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    old = lab.serials[1]
    install(lab, old, tmp_path, debuggable=False)
    try:
        done = lab.cli("trace", "--app", PACKAGE, "-s", old, "--budget", 1)
    finally:
        install(lab, old, tmp_path, debuggable=True)
    assert (done.exit_code, "neither debuggable nor profileable" in done.stderr) == (2, True)
    for words, text in (
        (("--app", "com.example.none", "--budget", 1), "isn't installed"),
        (("--app", "x; reboot", "--budget", 1), "isn't the name of an Android package"),
        (
            ("--app", f"{PACKAGE}/.A$(id)", "--budget", 1),
            "isn't the name of an activity",
        ),
        (("--app", PACKAGE, "--budget", 1, "--during", "true"), "can't be used together"),
        (("--app", PACKAGE, "--threads", 2), "means nothing with --app"),
        ((model, "--budget", 1), "means nothing without --app"),
        ((), "nothing to trace"),
    ):
        done = lab.cli("trace", *words, "-s", lab.serials[0])
        assert (done.exit_code, text in done.stderr) == (2, True), done.stderr
    as_before(lab, old)


def test_an_app_that_runs_is_left_running_unless_a_restart_is_wanted(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    serial = lab.serials[0]
    adb(lab, serial, "push", model, "/data/local/tmp/m.tflite")
    lab.fault(serial, "program-hang")
    lab.shell(serial, using())
    pid = lab.shell(serial, f"pidof {PACKAGE}")
    words = ("trace", "--app", PACKAGE, "-s", serial, "--out", tmp_path, "--budget", 0.3)
    done = lab.cli(*words)
    assert (done.exit_code, "ran before" in done.stdout, "--restart ends it" in done.stdout) == (
        1,
        True,
        True,
    )
    assert lab.shell(serial, f"pidof {PACKAGE}") == pid
    lab.cli(*words, "--restart")
    assert lab.shell(serial, f"pidof {PACKAGE}") == ""
    as_before(lab, serial)


def test_ctrl_c_ends_the_recording_and_keeps_what_there_is(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    serial = lab.serials[0]
    adb(lab, serial, "push", model, "/data/local/tmp/m.tflite")
    process = lab.cli.start("trace", "--app", PACKAGE, "-s", serial, "--out", tmp_path, "--json")
    assert process.stderr is not None
    assert any("is being recorded" in line for line in process.stderr)
    lab.shell(serial, f"{using()}; while pidof {PACKAGE} >/dev/null; do sleep 0.2; done")
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=120)
    found = json.loads(stdout)
    # The app may have been seen while it ran: then that it ended is told, and nothing else.
    assert not [fault for fault in found["faults"] if "ended while it was recorded" not in fault]
    assert process.returncode == (1 if found["faults"] else 0)
    assert found["summary"]["inferences"] >= 7
    assert Path(found["file"]).stat().st_size == found["size_bytes"]
    as_before(lab, serial)


def test_an_app_that_ends_meanwhile_is_told(lab: Lab, model: Path, tmp_path: Path) -> None:
    serial = lab.serials[1]
    adb(lab, serial, "push", model, "/data/local/tmp/m.tflite")
    lab.fault(serial, "program-hang")
    lab.shell(serial, using())
    process = lab.cli.start(
        "trace", "--app", PACKAGE, "-s", serial, "--out", tmp_path, "--budget", 3, "--json"
    )
    assert process.stderr is not None
    assert any("is being recorded" in line for line in process.stderr)
    lab.shell(serial, f"am force-stop {PACKAGE}")
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert any("ended while it was recorded" in fault for fault in json.loads(stdout)["faults"])
    as_before(lab, serial)
