"""The options of benchmark_model_performance_options, on outputs of real programs and of a fake
binary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.analysis.outcome import ending_of
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.passes import passes
from orchestrator.programs.perf_options import (
    PerformanceOptionsTool,
    label_of,
    options_of,
    split_options,
    summary_rows_in,
)
from orchestrator.records.case import DelegateName, ModelSha, Pass, ToolName
from orchestrator.records.run import DelegateTruth, Outcome
from tests.samples.places import NATIVE
from tests.samples.tools import case_of, raw_of

CPU = case_of(ToolName.PERF_OPTIONS, DelegateName.CPU, threads=1)
GPU = replace(CPU, delegate=DelegateName.GPU, flags=(("gpu_precision_loss_allowed", "false"),))


@pytest.mark.parametrize(
    "name", ["perf_all", "perf_all_gpu_real_ok", "perf_cpu", "perf_int8", "perf_peak_mem"]
)
def test_each_run_of_a_real_program_is_the_row_of_its_summary(name: str) -> None:
    output = (NATIVE / f"{name}.txt").read_bytes()
    rows = summary_rows_in(output)
    blocks = {block.label: block for block in split_options(output)}
    assert rows
    assert set(blocks) == set(rows)
    tool = PerformanceOptionsTool()
    for option in [*options_of(CPU, accelerators=()), GPU]:
        label = label_of(option)
        if label in rows:
            report = tool.parse(raw_of(output), option)
            assert (report.outcome, report.label, report.inference) == ("ok", label, rows[label])
            assert not report.disagreements


def test_a_gpu_row_that_is_the_cpus_time_is_no_result_of_the_gpu() -> None:
    report = PerformanceOptionsTool().parse(raw_of((NATIVE / "perf_all.txt").read_bytes()), GPU)
    assert report.delegate.truth is DelegateTruth.FELL_BACK
    assert ending_of(report, exit_code=0, timed_out=False).outcome is Outcome.FAILED


def test_a_flag_that_the_program_left_unused_is_told_of_every_option() -> None:
    output = (NATIVE / "perf_unknown_flag.txt").read_bytes()
    tool = PerformanceOptionsTool()
    for option in options_of(CPU, accelerators=()):
        assert tool.parse(raw_of(output), option).unconsumed_flags == ("--foo=1",)
    pasted = parse_text(output)
    assert len(pasted) == 6
    assert {report.unconsumed_flags for report in pasted} == {("--foo=1",)}


def test_one_processs_unused_flags_are_not_the_next_ones() -> None:
    with_flag = (NATIVE / "perf_unknown_flag.txt").read_bytes()
    without = (NATIVE / "perf_cpu.txt").read_bytes()
    flags = [report.unconsumed_flags for report in parse_text(with_flag + without)]
    assert flags == [("--foo=1",)] * 6 + [()] * 6


def test_a_process_of_several_options_has_no_memory_of_one() -> None:
    output = (NATIVE / "perf_cpu.txt").read_bytes()
    blocks = split_options(output)
    tool = PerformanceOptionsTool()
    by_label = {label_of(option): option for option in options_of(CPU, accelerators=())}
    assert b"Memory footprint delta" in blocks[0].text
    for option in by_label.values():
        report = tool.parse(raw_of(output), option)
        assert (report.init_memory_mib, report.overall_memory_mib, report.peak_memory_mib) == (
            None,
            None,
            None,
        )
    alone = tool.parse(raw_of(output[: output.index(blocks[1].text)]), by_label[blocks[0].label])
    assert alone.overall_memory_mib is not None
    assert alone.overall_memory_mib > 0


def test_options_before_the_one_that_failed_keep_their_results() -> None:
    output = (NATIVE / "perf_all_gpu_real_fail_shuffle.txt").read_bytes()
    tool = PerformanceOptionsTool()
    assert not summary_rows_in(output)
    *well, failed = split_options(output)
    assert well
    assert tool.parse(raw_of(output), GPU).failure_code == "gpu-init-failed"
    assert failed.label == "gpu-default"
    measured = {block.label for block in well}
    for option in options_of(CPU, accelerators=()):
        report = tool.parse(raw_of(output), option)
        if label_of(option) in measured:
            assert report.outcome == "ok"
        else:
            assert (report.outcome, report.failure_code) == ("failed", "option-not-run")


def test_a_crash_in_a_later_option_takes_no_result_from_an_earlier_one() -> None:
    output = (NATIVE / "perf_cpu.txt").read_bytes()
    blocks = split_options(output)
    start = output.index(blocks[-1].text)
    cut = output[: start + len(blocks[-1].text) // 2]
    tool = PerformanceOptionsTool()
    by_label = {label_of(option): option for option in options_of(CPU, accelerators=())}
    first = tool.parse(raw_of(cut, exit_code=139), by_label[blocks[0].label])
    last = tool.parse(raw_of(cut, exit_code=139), by_label[blocks[-1].label])
    assert (first.outcome, first.failure_code) == ("ok", "")
    assert (last.outcome, last.failure_code) == ("crashed", "segfault")
    timed_out = tool.parse(raw_of(cut, exit_code=None, timed_out=True), by_label[blocks[-1].label])
    assert timed_out.failure_code == "timed-out"


@pytest.mark.parametrize(
    ("name", "code"), [("perf_invalid", "bad-flag"), ("perf_stock_cpu", "provider-missing")]
)
def test_a_program_that_ran_nothing_says_why_although_it_exits_with_0(name: str, code: str) -> None:
    report = PerformanceOptionsTool().parse(raw_of((NATIVE / f"{name}.txt").read_bytes()), CPU)
    assert (report.outcome, report.failure_code) == ("failed", code)


def test_a_summary_that_differs_from_its_run_is_told() -> None:
    output = (NATIVE / "perf_cpu.txt").read_bytes()
    row = next(line for line in output.splitlines() if b"cpu w/ 1 threads: count=" in line)
    report = PerformanceOptionsTool().parse(
        raw_of(output.replace(row, row.replace(b"count=", b"count=9"))), CPU
    )
    assert any("summary" in sentence for sentence in report.disagreements)


def test_one_process_measures_one_group_of_one_model_in_the_timing_pass() -> None:
    tool = PerformanceOptionsTool()
    xnnpack = replace(CPU, delegate=DelegateName.XNNPACK, threads=4)
    assert tool.session(CPU) == tool.session(xnnpack) != ""
    others = [
        GPU,
        replace(CPU, model_sha256=ModelSha("f" * 64)),
        replace(CPU, min_secs=9.0),
        replace(CPU, flags=(("x", "1"),)),
    ]
    assert all(tool.session(other) != tool.session(CPU) for other in others)
    assert [own.name for own in passes() if own.shares_process] == [Pass.TIMING]
