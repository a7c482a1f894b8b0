"""The iOS benchmark app: parameters for a case, and telling whether a text is of that case."""

from dataclasses import replace

import pytest

from orchestrator.errors import OutputParseError, UsageError
from orchestrator.programs.ios_app import benchmark_params, flag_faults, mismatches, read_results
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.run import DelegateTruth
from orchestrator.records.workload import Case, DelegateName, Pass, ToolName
from tests.samples.iphone_output import FULL, PARTIAL, console, view
from tests.samples.places import NATIVE

RESULT = (NATIVE / "files" / "benchmark_result.pb").read_bytes()
SIZE_BYTES = 918_004
CASE = Case(
    serial=Serial("lab-xs"), model_sha256=ModelSha("a" * 64), model_name="net", delegate=DelegateName.GPU, threads=2,
    tool=ToolName.IOS_APP, build_sha256=BuildSha("b" * 64), affinity="all",
)  # fmt: skip


def params(case: Case = CASE, run_pass: Pass = Pass.TIMING) -> dict[str, str]:
    return benchmark_params(case, run_pass, resource="net.tflite")


def faults(text: str, case: Case = CASE, *, size_bytes: int = SIZE_BYTES) -> str:
    (report,) = read_results(text.encode(), delegate=case.delegate)
    return "\n".join(mismatches(report, params(case), model_size_bytes=size_bytes))


@pytest.mark.parametrize(
    ("delegate", "expected"),
    [
        (DelegateName.CPU, {"use_xnnpack": "false"}),
        (DelegateName.XNNPACK, {"use_xnnpack": "true"}),
        (DelegateName.GPU, {"use_gpu": "true", "use_xnnpack": "false"}),
        (DelegateName.COREML, {"use_coreml": "true", "use_xnnpack": "false"}),
    ],
)
def test_parameters_ask_for_the_delegate_and_leave_nothing_to_the_runtime(
    delegate: DelegateName, expected: dict[str, str]
) -> None:
    found = params(replace(CASE, delegate=delegate))
    assert {name: value for name, value in found.items() if name.startswith("use_")} == expected
    assert all(isinstance(value, str) for value in found.values())
    assert found["graph"] == "net.tflite"
    assert found["num_threads"] == "2"


def test_a_memory_pass_samples_memory_and_a_timing_pass_does_not() -> None:
    assert params(run_pass=Pass.MEMORY)["report_peak_memory_footprint"] == "true"
    assert "report_peak_memory_footprint" not in params()


def test_a_delegate_that_no_iphone_has_is_refused() -> None:
    with pytest.raises(UsageError, match="nnapi"):
        params(replace(CASE, delegate=DelegateName.NNAPI))


@pytest.mark.parametrize(
    ("flag", "is_known"),
    [
        (("gpu_wait_type", "aggressive"), True),
        (("allow_fp16", "true"), True),
        (("coreml_version", "3"), True),
        (("gpu_backend", "cl"), False),
        (("nnapi_accelerator_name", "x"), False),
        (("num_threads", "3"), False),
        (("no_such_flag", "1"), False),
        (("coreml_version", "three"), False),
    ],
)
def test_only_flags_that_the_app_has_are_taken(flag: tuple[str, str], is_known: bool) -> None:
    assert (flag_faults((flag,)) == ()) is is_known


def test_a_console_text_of_the_case_is_taken_and_its_delegate_judged() -> None:
    text = console(params(), size_bytes=SIZE_BYTES, delegate_lines=f"INFO: {FULL.format(name='GPU')}\n")
    (report,) = read_results(text.encode(), delegate=CASE.delegate)
    assert mismatches(report, params(), model_size_bytes=SIZE_BYTES) == ()
    assert (report.delegate.truth, report.delegate.actual) == (DelegateTruth.FULL, "gpu")
    assert report.inference_mean_us == 4000.0
    assert "unidentified" not in report.extra


@pytest.mark.parametrize(
    ("line", "truth"),
    [
        (f"INFO: {PARTIAL.format(name='COREML')}\n", DelegateTruth.PARTIAL),
        ("WARN: CoreML acceleration is unsupported on this platform.\n", DelegateTruth.FELL_BACK),
        ("", DelegateTruth.FELL_BACK),
    ],
)
def test_core_ml_is_believed_only_where_the_console_shows_it(line: str, truth: DelegateTruth) -> None:
    case = replace(CASE, delegate=DelegateName.COREML)
    text = console(params(case), size_bytes=SIZE_BYTES, delegate_lines=line)
    (report,) = read_results(text.encode(), delegate=case.delegate)
    assert mismatches(report, params(case), model_size_bytes=SIZE_BYTES) == ()
    assert report.delegate.truth is truth


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"num_threads": "4"}, "Num threads: [4]"),
        ({"graph": "other.tflite"}, "Graph: [other.tflite]"),
        ({"use_gpu": "false"}, "Use gpu: [0]"),
        ({"use_coreml": "true"}, "Use CoreML: [1]"),
        ({"benchmark_name": "mine"}, "Benchmark name: [mine]"),
        ({"report_peak_memory_footprint": "true"}, "peak memory"),
        ({"warmup_min_secs": "2"}, "warmup"),
    ],
)
def test_a_console_text_of_other_parameters_is_told_by_what_it_echoes(changed: dict[str, str], word: str) -> None:
    assert word in faults(console({**params(), **changed}, size_bytes=SIZE_BYTES))


def test_a_model_of_another_size_is_told() -> None:
    assert "MB" in faults(console(params(), size_bytes=315_688))


def test_a_view_is_taken_and_named_as_one_that_shows_nothing_but_figures() -> None:
    assert faults(view()) == ""
    (report,) = read_results(view().encode(), delegate=CASE.delegate)
    assert report.inference_mean_us == 4000.0
    assert report.extra["unidentified"]
    assert (report.delegate.requested, report.delegate.truth) == ("gpu", DelegateTruth.UNKNOWN)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (view(runs=20), "20 inferences"),
        (view(runs=2500), "10 s"),
        (view(warmup_runs=1000), "warm-up"),
    ],
)
def test_a_view_whose_counts_can_not_be_of_the_case_is_told(text: str, word: str) -> None:
    assert word in faults(text)


def test_a_measurement_that_its_longest_time_cut_off_may_have_fewer_inferences() -> None:
    case = replace(CASE, max_secs=1.0, min_secs=0.5, warmup_min_secs=0.5)
    assert faults(view(runs=10, mean_ms=100.0, warmup_runs=5), case) == ""
    assert "10 inferences" in faults(view(runs=10, mean_ms=20.0, warmup_runs=25), case)


def test_a_result_proto_alone_is_read_and_shows_the_model_s_size() -> None:
    (report,) = read_results(b"", result_pb=RESULT, delegate=CASE.delegate)
    assert report.inference is not None
    assert report.inference.count == 2160
    assert report.extra["unidentified"]
    assert mismatches(report, params(), model_size_bytes=1_875_852) == ()
    assert mismatches(report, params(), model_size_bytes=SIZE_BYTES)


def test_a_result_proto_beside_a_console_text_is_compared_with_it() -> None:
    text = console(params(), size_bytes=SIZE_BYTES).encode()
    (report,) = read_results(text, result_pb=RESULT, delegate=CASE.delegate)
    assert report.inference_mean_us == 4000.0
    assert report.disagreements


@pytest.mark.parametrize("text", [view() + "\n" + view(), view()])
def test_a_result_proto_beside_anything_but_one_console_text_is_refused(text: str) -> None:
    with pytest.raises(OutputParseError):
        read_results(text.encode(), result_pb=RESULT, delegate=CASE.delegate)


def test_a_view_pasted_below_its_console_text_changes_nothing() -> None:
    text = console(params(), size_bytes=SIZE_BYTES)
    assert read_results((text + view()).encode(), delegate=CASE.delegate) == read_results(
        text.encode(), delegate=CASE.delegate
    )


def test_several_runs_of_one_console_are_several_reports() -> None:
    text = console(params(), size_bytes=SIZE_BYTES) + console(params(), size_bytes=SIZE_BYTES, mean_us=5000.0)
    reports = read_results(text.encode(), delegate=CASE.delegate)
    assert [report.inference_mean_us for report in reports] == [4000.0, 5000.0]


def test_a_model_that_is_not_in_the_bundle_is_a_failure_with_its_line() -> None:
    text = "INFO: Log parameter values verbosely: [0]\nFATAL: Couldn't find 'net.tflite' in bundle.\n"
    (report,) = read_results(text.encode(), delegate=CASE.delegate)
    assert (report.outcome, report.failure_code) == ("failed", "model-not-found")
