"""``benchfarm trace`` over a real adb server."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.e2e.conftest import Lab
from tests.samples.command import heard

PROPERTY = "debug.tflite.trace"


@pytest.fixture(scope="module")
def tracing_lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-4")


@pytest.fixture
def lab(tracing_lab: Lab) -> Iterator[Lab]:
    yield tracing_lab
    tracing_lab.tidy()


def traced(lab: Lab, *words: object) -> Any:
    (found,) = lab.cli.json("trace", *words)["traces"]
    return found


def leftovers(lab: Lab, serial: str) -> str:
    """What a recording would leave on a phone."""
    return lab.shell(
        serial,
        f"getprop {PROPERTY}; ls /data/misc/perfetto-traces /data/local/tmp/benchfarm/traces; pidof perfetto; "
        "getprop debug.atrace.app_number",
    )


def clean(text: str) -> bool:
    lines = [line for line in text.split() if not line.startswith("/data/")]
    return lines in (["0"], [])


def operators(found: Any) -> dict[str, Any]:
    return {
        f"{item['name']}@{item['node']}/{item['subgraph']}": item
        for item in found["summary"]["operators"]
    }


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_perfetto_records_each_operator_of_each_inference(
    lab: Lab, model: Path, tmp_path: Path, tool: str
) -> None:
    found = traced(
        lab,
        model,
        "-s",
        lab.serial,
        "--tool",
        tool,
        "--inferences",
        "7",
        "--out",
        tmp_path / "traces",
    )
    trace = Trace()
    trace.ParseFromString(Path(found["file"]).read_bytes())
    kinds = {
        event.WhichOneof("event") for packet in trace.packet for event in packet.ftrace_events.event
    }
    assert kinds == {"print", "sched_switch", "cpu_frequency"}
    found_operators = operators(found)
    counts = {item["count"] for item in found_operators.values()}
    assert len(counts) == 1
    assert counts.pop() > 7
    assert "CONV_2D@0/0" in found_operators
    assert sum(item["share"] for item in found_operators.values()) == pytest.approx(1.0)
    assert found["summary"]["gaps"] == []
    assert clean(leftovers(lab, lab.serial))


def test_a_traced_run_is_stored_and_its_latency_is_no_result(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    made = lab.cli.json(f"trace -s {lab.serial}", model, "--out", tmp_path)
    (run,) = lab.cli.json("results runs", made["campaign_id"])
    assert run["run_pass"] == "trace"
    report = lab.cli("report --format json", made["campaign_id"]).ok().json
    assert [row["median_us"] for row in report["results"]] == [None]
    page = lab.cli(f"trace -s {lab.serial}", model, "--out", tmp_path).ok().stdout
    assert "(virtual)" in page
    assert "no result" in page


def test_names_that_lead_elsewhere_stay_in_the_folder(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "..$(reboot)`id`;<b>.tflite"
    shutil.copy(model, odd)
    found = traced(lab, odd, "-s", lab.serial, "--out", tmp_path / "traces")
    path = Path(found["file"])
    assert path.parent == tmp_path / "traces"
    assert not set(path.name) & set("$(`;<>/ ")
    assert found["summary"]["operators"]


def test_a_value_that_was_there_before_comes_back(lab: Lab, model: Path, tmp_path: Path) -> None:
    lab.shell(lab.serial, f'setprop {PROPERTY} "it\'s 0"')
    try:
        traced(lab, model, "-s", lab.serial, "--out", tmp_path)
        assert lab.shell(lab.serial, f"getprop {PROPERTY}") == "it's 0"
    finally:
        lab.shell(lab.serial, f"setprop {PROPERTY} ''")


def test_after_kill_9_restore_ends_the_recording_and_puts_the_property_back(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    lab.fault(serial, "program-hang")
    process = lab.cli.start(f"trace -s {serial}", model)
    try:
        wait_for(lab, serial, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert lab.shell(serial, f"getprop {PROPERTY}") == "1"
    assert not clean(leftovers(lab, serial))
    lab.clear()
    restored = json.loads(lab.cli("device restore", serial, "--json").ok().stdout)["restored"][
        serial
    ]
    assert {"a trace being recorded", f"operators being traced ({PROPERTY})"} <= set(restored)
    assert clean(leftovers(lab, serial))


def test_ctrl_c_puts_everything_back(lab: Lab, model: Path) -> None:
    lab.fault(lab.serial, "program-hang")
    process = lab.cli.start(f"trace -s {lab.serial}", model)
    wait_for(lab, lab.serial, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "run 'benchfarm trace' again" in said
    assert "--resume" not in said
    assert clean(leftovers(lab, lab.serial))


def test_a_phone_that_is_missing_is_told_and_the_exit_code_says_so(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    words = ("trace", model, "-s", lab.serial, "-s", "GONE", "--out", tmp_path)
    done = lab.cli(*words, "--json").ended_with(1)
    assert done.json["missing"] == {"GONE": "is not attached"}
    assert done.json["problems"] == ["GONE: not measured: is not attached"]
    assert [item["outcome"] for item in done.json["traces"]] == ["completed"]


@pytest.mark.parametrize("kind", ["cut", "reboot"])
def test_a_phone_that_is_lost_while_it_records_is_restored(
    lab: Lab, model: Path, tmp_path: Path, kind: str
) -> None:
    lab.fault(lab.serial, kind, "moment=run")
    found = traced(lab, model, "-s", lab.serial, "--out", tmp_path)
    assert "CONV_2D@0/0" in operators(found)
    assert clean(leftovers(lab, lab.serial))


def test_a_plan_may_have_a_trace_beside_timing(lab: Lab, model: Path) -> None:
    done = lab.cli(f"bench -s {lab.serial} --pass trace,timing -n 2 --json", model)
    runs = done.ok().json["runs"]
    assert sorted(run["run_pass"] for run in runs) == ["timing", "timing", "trace"]
    assert clean(leftovers(lab, lab.serial))


def test_what_cannot_be_traced_is_refused_at_once(lab: Lab, model: Path) -> None:
    for tool in ("text", "litert"):
        done = lab.cli(f"trace -s {lab.serial} --tool {tool}", model)
        assert done.exit_code == 2
        assert "nothing can be measured" in done.stderr
    done = lab.cli("trace", model, "-s host").ended_with(2)
    assert "not on this computer" in done.said
    done = lab.cli(f"trace -s {lab.serial}", model, "--out", model)
    assert done.exit_code == 2
    assert "is no folder" in done.stderr
    done = lab.cli(f"trace -s {lab.serial}", model, "--out", model / "traces")
    assert (done.exit_code, "campaign" in done.stderr) == (2, False)


def wait_for(lab: Lab, serial: str, process: Any) -> None:
    """Wait until the traced program runs on the phone."""
    while process.poll() is None:
        if lab.shell(serial, f"getprop {PROPERTY}; pidof virtual_benchmark_model").split()[1:]:
            return
    raise AssertionError(process.communicate())


def test_a_bare_resume_takes_the_measurement_that_was_cut_off_and_not_the_trace_after_it(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    for words in (
        ("bench", model, "-d", "xnnpack", "-s", serial, "-t", "1", "-n", "2", "--min-secs", "0.1"),
        ("trace", model, "-s", serial),
    ):
        lab.fault(serial, "program-hang")
        process = lab.cli.start(*words)
        heard(process, "campaign")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        lab.clear()
    trace, bench = lab.cli.json("results list")[:2]
    assert (trace["name"], trace["status"], bench["status"]) == ("trace", "cut off", "cut off")
    done = lab.cli("run --resume --json").ok()
    assert done.json["campaign_id"] == bench["campaign_id"]
    assert f"resumes campaign {bench['campaign_id']} ({model.stem}, " in done.stderr
    refused = lab.cli("run --resume")
    assert refused.exit_code == 2
    assert f"{trace['campaign_id']} is a trace" in refused.stderr
    assert lab.cli("run --resume", trace["campaign_id"]).exit_code == 0
