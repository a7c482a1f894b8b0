"""The options of benchmark_model_performance_options, in outputs of real programs."""

from __future__ import annotations

from orchestrator.analysis.outcome import ending_of
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.records.run import DelegateTruth, Outcome
from tests.samples.places import NATIVE


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
