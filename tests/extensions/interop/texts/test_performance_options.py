"""The options of benchmark_model_performance_options, in outputs of real programs."""

from __future__ import annotations

import pytest

from orchestrator.analysis.outcome import ending_of
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.records.run import DelegateTruth, Outcome
from tests.samples.places import NATIVE


@pytest.mark.parametrize(
    "name", ["perf_all", "perf_all_gpu_real_ok", "perf_cpu", "perf_int8", "perf_peak_mem"]
)
def test_each_run_of_a_real_program_is_one_report_beside_its_row(name: str) -> None:
    output = (NATIVE / f"{name}.txt").read_bytes()
    reports = parse_text(output)
    assert len(reports) > 1
    assert all(report.label and not report.disagreements for report in reports)


def test_a_gpu_row_that_is_the_cpus_time_is_no_result_of_the_gpu() -> None:
    reports = parse_text((NATIVE / "perf_all.txt").read_bytes())
    gpu = [report for report in reports if report.label.startswith("gpu")]
    assert gpu
    assert {report.delegate.truth for report in gpu} == {DelegateTruth.FELL_BACK}
    endings = {ending_of(report, exit_code=0, timed_out=False).outcome for report in gpu}
    assert endings == {Outcome.FAILED}


def test_a_flag_that_one_process_left_unused_is_told_of_every_option_of_it() -> None:
    with_flag = (NATIVE / "perf_unknown_flag.txt").read_bytes()
    without = (NATIVE / "perf_cpu.txt").read_bytes()
    flags = [report.unconsumed_flags for report in parse_text(with_flag + without)]
    assert flags == [("--foo=1",)] * 6 + [()] * 6


def test_options_before_the_one_that_failed_keep_their_results() -> None:
    *well, failed = parse_text((NATIVE / "perf_all_gpu_real_fail_shuffle.txt").read_bytes())
    assert well
    assert {report.outcome for report in well} == {"ok"}
    assert failed.failure_code == "gpu-init-failed"
