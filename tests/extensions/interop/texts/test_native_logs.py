"""Some 220 real runs of benchmark_model; expectations read from each file, figures found again by
other means.
"""

import json
import re

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.reading.report import parse_run
from orchestrator.records.run import ToolReport
from tests.samples.places import DATA, NATIVE
from tests.samples.tools import raw_of

EXPECTED = json.loads((DATA / "native_expected.json").read_text(encoding="utf-8"))
PERFORMANCE = sorted(name for name in EXPECTED if isinstance(EXPECTED[name], list))
SINGLE = sorted(set(EXPECTED) - set(PERFORMANCE))
#: Programs that never print a line of a benchmark: only the exit code tells.
SHELL_ONLY = {"exec_not_found.txt"}


def body_and_exit(name: str) -> tuple[bytes, int]:
    """Return what the program printed, without the lines that were put around it, and its exit
    code."""
    data = (NATIVE / name).read_bytes()
    first, _, rest = data.partition(b"\n")
    assert first.startswith(b"# cmd: ")
    match = re.search(rb"# exit: (\d+)[^\n]*\n?$", rest)
    assert match
    return rest[: match.start()], int(match[1])


def described(report: ToolReport) -> dict[str, object]:
    delegate = report.delegate
    row: dict[str, object] = {"outcome": report.outcome}
    if report.failure_code:
        row["failure_code"] = report.failure_code
    row["delegate"] = f"{delegate.requested or '?'} -> {delegate.actual or '?'}: {delegate.truth}"
    if delegate.delegated_nodes is not None:
        row["nodes"] = [delegate.delegated_nodes, delegate.total_nodes, delegate.partitions]
    if delegate.kernels is not None:
        row["kernels"] = delegate.kernels
    if report.operators:
        row["operator_rows"] = len(report.operators)
    if report.label:
        row["label"] = report.label
    return row


def run_report(name: str) -> ToolReport:
    body, exit_code = body_and_exit(name)
    return parse_run(raw_of(body, exit_code=exit_code))


def test_every_file_has_an_expectation() -> None:
    assert {path.name for path in NATIVE.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", PERFORMANCE)
def test_each_performance_option_is_a_run_of_its_own(name: str) -> None:
    body, _ = body_and_exit(name)
    try:
        reports = parse_text(body)
    except OutputParseError:
        reports = ()
    assert [described(report) for report in reports] == EXPECTED[name]


@pytest.mark.parametrize("name", SINGLE)
def test_a_run_is_read_as_expected_with_the_figures_of_its_result_line_and_second_statistics_line(
    name: str,
) -> None:
    body, _ = body_and_exit(name)
    text = body.decode("utf-8", "replace")
    result = re.search(
        r"timings in us: Init: (\d+), First inference: (\d+), Warmup \(avg\): (\S+), Inference \(avg\): (\S+)",
        text,
    )
    counts = re.findall(r"^INFO: count=(\d+)(.*)$", text, re.MULTILINE)
    report = run_report(name)
    assert described(report) == EXPECTED[name]
    if name not in SHELL_ONLY:
        # A paste without its exit code never shows another number.
        (pasted,) = parse_text(body)
        assert (pasted.inference, pasted.inference_mean_us, pasted.delegate.requested) == (
            report.inference,
            report.inference_mean_us,
            report.delegate.requested,
        )
    if result is None:
        assert report.inference is None
        assert report.inference_mean_us is None
        return
    assert len(counts) == 2
    assert report.init_us == float(result[1])
    measured = int(counts[1][0])
    assert report.inference is not None
    assert report.inference.count == measured
    if measured == 0:
        assert report.inference_mean_us is None
        assert report.outcome == "failed"
        return
    assert report.inference_mean_us == float(result[4])
    assert report.warmup is not None
    assert report.warmup.count == int(counts[0][0])
    for field, key in (
        ("median_us", "median"),
        ("p95_us", "p95"),
        ("p5_us", "p5"),
        ("current_us", "curr"),
    ):
        printed = re.search(rf" {key}=(\d+)", counts[1][1])
        assert printed
        assert getattr(report.inference, field) == float(printed[1])


def test_streams_apart_read_like_streams_together() -> None:
    body, _ = body_and_exit("gpu_partial.txt")
    lines = body.decode().splitlines(keepends=True)
    refused = lines.index("ERROR: Following operations are not supported by GPU delegate:\n")
    runtime = [
        line
        for line in lines
        if line.startswith(("ERROR", "INFO: Created", "INFO: Loaded Op", "INFO: Initialized Op"))
    ]
    runtime[runtime.index(lines[refused]) + 1 : runtime.index(lines[refused]) + 1] = lines[
        refused + 1 : refused + 3
    ]
    tool = [line for line in lines if line not in runtime]
    apart = parse_run(
        raw_of("".join(tool), stderr="".join(runtime).encode()),
        requested="gpu",
    )
    together = parse_run(raw_of(body), requested="gpu")
    assert apart.delegate.cpu_operators == (("TOPK_V2", "Operation is not supported."),)
    assert (apart.delegate.truth, apart.inference) == (together.delegate.truth, together.inference)


def test_a_whole_result_and_a_hang_at_exit_keep_the_number_and_say_so() -> None:
    body, _ = body_and_exit("hang_at_exit_after_results.txt")
    report = parse_run(raw_of(body, exit_code=None, timed_out=True))
    assert (report.outcome, report.failure_code) == ("ok", "hung-at-exit")
    # 255 is no signal.
    harmed = parse_run(raw_of(body, exit_code=255))
    assert (harmed.outcome, harmed.failure_reason.partition(";")[0]) == ("failed", "exit code 255")
    assert report.inference_mean_us == 16305.0


def test_warm_up_of_a_killed_run_is_not_its_result() -> None:
    report = run_report("kill9_midway_profiling.txt")
    assert report.warmup is not None
    assert report.warmup.count == 43
    assert report.inference is None
    assert report.inference_mean_us is None


@pytest.mark.parametrize(
    "name", ["err_gather_out_of_range_10_warmups.txt", "ext_dummy_invoke_error.txt"]
)
def test_times_of_failing_calls_are_no_figures(name: str) -> None:
    report = run_report(name)
    assert report.outcome == "failed"
    assert report.warmup is None
    assert report.warmup_mean_us is None
    assert report.first_inference_us is None


def test_a_flag_that_one_process_left_unused_is_told_of_every_option_of_it() -> None:
    with_flag = (NATIVE / "perf_unknown_flag.txt").read_bytes()
    without = (NATIVE / "perf_cpu.txt").read_bytes()
    flags = [report.unconsumed_flags for report in parse_text(with_flag + without)]
    assert flags == [("--foo=1",)] * 6 + [()] * 6
