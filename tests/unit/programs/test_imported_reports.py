"""Records of the Firebase game-loop app and reports of the Delegate Performance Benchmark app."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.programs.delegate_performance import parse_delegate_performance, setting_of
from orchestrator.programs.firebase import SCENARIOS, parse_firebase
from orchestrator.records.run import DelegateTruth
from orchestrator.records.workload import DelegateName
from tests.samples.imported_reports import (
    DEFAULT,
    GPU,
    IDENTIFIERS,
    TARGET,
    delegate_report_json,
    firebase_csv,
    firebase_json,
)


def test_each_delegate_of_each_model_is_a_result() -> None:
    reports = parse_delegate_performance(delegate_report_json("mobilenet_v1_1.0_224", "odd, name"))
    assert [(report.extra["graph"], report.label) for report in reports] == [
        (model, identifier) for model in ("mobilenet_v1_1.0_224", "odd, name") for identifier in IDENTIFIERS
    ]
    target, default, gpu = reports[:3]
    assert [report.inference_mean_us for report in (target, default, gpu)] == [316702.6, 630715.5, 3890.5]
    assert (target.init_us, target.warmup_mean_us) == (515667.0, 334263.5)
    assert target.extra["inference_latency_min_us"] == 308218.0
    # One process measured all of them: no run's memory is known. Nor is a size of -0.000001.
    assert {report.overall_memory_mib for report in reports} == {None}
    assert {report.model_size_mb for report in reports} == {None}


@pytest.mark.parametrize(
    ("identifier", "delegate", "path"),
    [
        (TARGET, DelegateName.EXTERNAL, "/data/local/tmp/stable_delegate_settings.json"),
        (DEFAULT, DelegateName.CPU, ""),
        (GPU, DelegateName.GPU, "/data/local/tmp/gpu,fast.json"),
        ("XNNPACK (/a (copy).json)", DelegateName.XNNPACK, "/a (copy).json"),
        ("EDGETPU (/e.json)", DelegateName.EXTERNAL, "/e.json"),
    ],
)
def test_an_identifier_names_the_delegate_and_its_settings(identifier: str, delegate: DelegateName, path: str) -> None:
    setting = setting_of(identifier)
    assert setting.delegate is delegate
    assert setting.flags == (((("tflite_settings_file", path),)) if path else ())


def test_a_delegate_whose_run_failed_has_no_number() -> None:
    document = json.loads(delegate_report_json("m"))
    document["reports"][0]["metrics"][2]["metrics"]["inference_latency_average_us"] = {"result": "FAIL"}
    reports = parse_delegate_performance(json.dumps(document))
    assert [report.outcome for report in reports] == ["ok", "ok", "failed"]


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        '{"reports": 3}',
        '{"reports": [1, {"model": "m"}, {"metrics": [2, {"metrics": 3}]}]}',
        '{"reports": [{"model": "m", "metrics": [{"metrics": {"ok": {"value": 1}}}]}]}',
        "[" * 100_000,
    ],
)
def test_a_text_without_a_latency_is_no_report(text: str) -> None:
    assert parse_delegate_performance(text) == []


def test_half_a_character_in_a_name_becomes_text_that_can_be_stored() -> None:
    (report, *_) = parse_delegate_performance(delegate_report_json("half \ud800 and \0 nul"))
    assert report.extra["graph"] == "half ? and  nul"
    (report,) = parse_firebase(firebase_json("half \ud800", 5000))
    assert report.label == "half ?"


@pytest.mark.slow
@given(st.data())
def test_no_damage_makes_reading_fail(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([delegate_report_json("m"), firebase_json("nnapi", 5)]))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.text(max_size=20)) + whole[end:]
    for report in (*parse_delegate_performance(damaged), *parse_firebase(damaged)):
        assert (report.outcome == "ok") == (report.inference_mean_us is not None)


def test_every_scenario_of_the_game_loop_has_its_delegate_and_threads() -> None:
    assert len(SCENARIOS) == 12
    for label, scenario in SCENARIOS.items():
        (report,) = parse_firebase(firebase_json(label, 5000))
        assert report.delegate.requested == scenario.delegate.value
        assert report.inference_mean_us == 5000
        assert (scenario.threads > 0) == ("thread" in label)


def test_nothing_shows_what_the_other_scenarios_ran_on() -> None:
    for label in ("xnnpack_2threads", "gpu_fp16", "nnapi", "dsp_hexagon"):
        (report,) = parse_firebase(firebase_json(label, 5000))
        assert report.delegate.truth is DelegateTruth.UNKNOWN


def test_a_delegate_error_is_a_failed_delegate() -> None:
    (report,) = parse_firebase(firebase_json("nnapi", 0, "TFLite delegate error"))
    assert (report.outcome, report.failure_code) == ("failed", "delegate-failed")
    assert report.delegate.truth is DelegateTruth.FAILED


def test_a_scenario_of_the_csv_file_is_judged_as_its_record_is() -> None:
    text = firebase_csv("cpu_4threads", 4100, size_mb=3.5)
    (report,) = parse_firebase(text)
    assert (report.outcome, report.inference_mean_us, report.init_us, report.model_size_mb) == ("ok", 4100, 3452, 3.5)
    assert (report.init_memory_mib, report.overall_memory_mib) == (12.5, 14)
    assert report.delegate.truth is DelegateTruth.WRONG_BACKEND
    assert parse_firebase(text[:-20]) == []
    assert parse_firebase(firebase_csv("nnapi", 0, size_mb=1))[0].failure_code == "no-inferences"
