"""Declared programs: their real outputs in every form, what is no result, and files that are
refused."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import OutputParseError, PlanError, ProgramInUseError, UsageError
from orchestrator.extensions.interop.cli import to_public
from orchestrator.extensions.interop.texts.output import iterate_file, parse_text
from orchestrator.extensions.runtimes.declaration import (
    SHIPPED,
    Pattern,
    declared,
    load_declared,
    with_files,
)
from orchestrator.extensions.runtimes.declared import DeclaredTool
from orchestrator.extensions.runtimes.output import DeclaredReader, RegexBudget
from orchestrator.reading.lines import parse_decoded
from orchestrator.records.case import DelegateName
from tests.extensions.interop.texts.test_litert_lm import COMMAND as LM_COMMAND
from tests.extensions.interop.texts.test_litert_lm import RESULTS
from tests.samples import sample_lab
from tests.samples.beside import OTHER_PROGRAMS, needs_other_programs
from tests.samples.places import DATA
from tests.samples.tools import raw_of

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.extensions.runtimes.declaration import ProgramSection
    from orchestrator.records.case import Case
    from orchestrator.records.run import DelegateEvidence, ToolReport

#: As the program printed it, with a model of random weights.
LLAMA_BENCH = DATA / "declared" / "llama_bench"
MD = """\
| model        |     size | params | backend | ngl | threads | fa |          test |           t/s |
| ------------ | -------: | -----: | ------- | --: | ------: | -: | ------------: | ------------: |
| llama 8B Q4_0| 4.33 GiB | 8.03 B | OpenCL  |  99 |       4 |  1 |         pp512 | 100.00 ± 0.50 |
| llama 8B Q4_0| 4.33 GiB | 8.03 B | OpenCL  |  99 |       4 |  1 | tg128 @ d4096 |   8.00 ± 0.10 |
| llama 8B Q4_0| 4.33 GiB | 8.03 B | OpenCL  |  99 |       4 |  1 |   pp512+tg128 |  40.00 ± 0.10 |

build: 0123abcd (5000)
"""
JSONL = json.dumps(
    {
        "build_commit": "0123abcd", "backends": "Vulkan,CPU", "n_threads": 4, "n_gpu_layers": 99, "n_prompt": 0,
        "n_gen": 16, "n_depth": 512, "avg_ns": 4_000_000_000, "stddev_ns": 1, "avg_ts": 4.0, "stddev_ts": 0.0,
        "samples_ns": [2_000_000_000, 6_000_000_000], "samples_ts": [8.0, 2.67], "a_key_of_tomorrow": {"x": [1]},
    }
)  # fmt: skip
EXECUTOR = """\
I 00:00:00.000512 executorch:executor_runner.cpp:418] Model file mv2.pte is loaded.
I 00:00:00.000530 executorch:executor_runner.cpp:428] Using method forward
I 00:00:00.112345 executorch:executor_runner.cpp:779] Iteration 1 of 4: 20.000000 ms
I 00:00:00.212345 executorch:executor_runner.cpp:779] Iteration 2 of 4: 10.000000 ms
I 00:00:00.222345 executorch:executor_runner.cpp:779] Iteration 3 of 4: 11.000000 ms
I 00:00:00.232345 executorch:executor_runner.cpp:779] Iteration 4 of 4: 12.000000 ms
I 00:00:00.242345 executorch:executor_runner.cpp:790] Model executed successfully 4 time(s) in 53.000000 ms.
I 00:00:00.242400 executorch:executor_runner.cpp:799] 1 outputs:
"""
MNN = """\
MNN benchmark
Forward type: OpenCL thread=4 precision=2 sparsity=0 sparseBlockOC=1 testQuantizedModel=0
--------> Benchmarking... loop = 10, warmup = 10
Can't Find type=3 backend, use 0 instead
[ - ] a.mnn                       max =   12.000 ms  min =   10.000 ms  avg =   11.000 ms
"""
NCNN = """\
[0 Mali-G72]  queueC=0[2]  queueG=0[2]  queueT=0[2]
loop_count = 8
num_threads = 4
powersave = 2
gpu_device = {gpu}
cooling_down = 1
          squeezenet  min =    3.60  max =    3.70  avg =    3.64
"""
ORT = """\
Setting intra_op_num_threads to 4
Session creation time cost: 0.2 s
First inference time cost: 196 ms
Total inference requests: 5
Average inference time cost{total}: 98.5 ms
Peak working set size: 2097152 bytes
Runs:5
P50 Latency{form}
P95 Latency{form}
"""


def only(text: str) -> ToolReport:
    (report,) = parse_text(text)
    return report


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("md", {"pp64": 1e6 / 145.28, "tg16": 1e6 / 20409.36}),
        ("csv", {"pp64": 19203.621 / 64, "tg16": 9913.639 / 16}),
        ("json", {"pp64": 481.08 / 64, "tg16": 5855.046 / 16}),
        ("jsonl", {"pp64": 481.147 / 64, "tg16": 557.918 / 16}),
        ("sql", {"pp64": 462.205 / 64, "tg16": 517.905 / 16}),
    ],
)
def test_a_real_output_of_llama_bench_gives_the_figures_that_are_printed_in_it(
    form: str, wanted: dict[str, float]
) -> None:
    assert_figures(LLAMA_BENCH / f"debian_sid_0.7.0_host_{form}.txt", wanted)


@needs_other_programs
@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (
            "executorch/etvk_llama_android_vulkan.txt",
            {"prefill": 164e3 / 14, "decode": 1025e3 / 54},
        ),
        ("executorch/voxtral_runner_stats.txt", {"prefill": 5054e3 / 388, "decode": 11167e3 / 99}),
        ("onnxruntime/android_vivo_x300_sme2_armlp.txt", {"": 98961.997}),
        ("onnxruntime/cobalt_linux_armlp.txt", {"": 1857.39}),
        ("qnn/profile_viewer_v1.txt", {"NetRun": 2952}),
    ],
)
def test_a_real_output_gives_the_figures_that_are_printed_in_it(
    file: str, wanted: dict[str, float]
) -> None:
    assert_figures(OTHER_PROGRAMS / file, wanted)


@pytest.mark.parametrize(
    ("form", "steps_us"),
    [
        # Two decimals of a speed, whole nanoseconds, the ends of fractions.
        ("md", {"pp64": 1e4 / 145.28**2, "tg16": 1e4 / 20409.36**2}),
        ("csv", {"pp64": 0.001 / 64, "tg16": 0.001 / 16}),
    ],
)
def test_what_a_figure_is_rounded_to_is_read_from_its_digits(
    form: str, steps_us: dict[str, float]
) -> None:
    reports = list(iterate_file(LLAMA_BENCH / f"debian_sid_0.7.0_host_{form}.txt"))
    found = {report.label: report.extra["resolution_us"] for report in reports}
    assert found == pytest.approx(steps_us, rel=0.05)


def assert_figures(path: Path, wanted: dict[str, float]) -> None:
    reports = list(iterate_file(path))
    assert {report.label: report.inference_mean_us for report in reports} == pytest.approx(
        wanted, rel=1e-5
    )
    assert {report.outcome for report in reports} == {"ok"}


@needs_other_programs
def test_real_tables_of_many_models_give_a_report_for_each_row() -> None:
    path = OTHER_PROGRAMS / "ncnn" / "benchncnn_phones.txt"
    reports = list(iterate_file(path))
    printed = [line.split() for line in path.read_text().splitlines() if " avg = " in line]
    assert [report.label for report in reports] == [words[0] for words in printed]
    assert [report.inference_mean_us for report in reports] == pytest.approx(
        [1e3 * float(row[-1]) for row in printed]
    )
    assert Counter(report.delegate.actual for report in reports) == {"cpu": 614, "gpu": 202}
    for name in ("2019-2-18.md", "2019-5-7.md"):
        reports = list(iterate_file(OTHER_PROGRAMS / "mnn" / name))
        assert Counter(report.delegate.actual for report in reports) == {"cpu": 12, "": 12}


def test_a_missing_model_is_a_failure_though_a_table_was_begun() -> None:
    report = only((LLAMA_BENCH / "debian_sid_missing_model.txt").read_text())
    assert (report.outcome, report.failure_code, report.inference) == (
        "failed",
        "model-not-found",
        None,
    )


def test_columns_of_a_table_may_come_and_go() -> None:
    prefill, decode, both = parse_text(MD)
    assert [each.label for each in (prefill, decode, both)] == ["pp512", "tg128", "pp512+tg128"]
    assert [each.inference_mean_us for each in (prefill, decode, both)] == [10_000, 125_000, 25_000]
    assert (decode.extra["n_depth"], to_public(decode)["tokens_per_s"]) == ("4096", 8.0)
    # Another table may have as many.
    *_, last = parse_text(MD + MD.replace("threads", "n_batch"))
    assert ("threads" in last.extra, last.extra["n_batch"]) == (False, "4")


def test_the_time_of_all_tokens_counts_not_the_mean_of_speeds() -> None:
    report = only(JSONL)
    # The mean of the speeds would be 5.3 tokens/s.
    assert (report.inference_mean_us, to_public(report)["tokens_per_s"]) == (250_000, 4.0)
    assert report.inference is not None
    assert (report.inference.count, report.extra["repetitions_us"]) == (32, "125000 375000")
    # A library that is loaded isn't one that was used.
    assert (report.delegate.actual, report.delegate.truth) == ("", "unknown")


def test_executions_count_without_the_first_and_from_the_phones_log_too() -> None:
    report = only(EXECUTOR)
    assert (report.inference_mean_us, report.inference and report.inference.count) == (11_000, 3)
    logged = "".join(
        f"11-23 10:00:00.000  4242  4242 I ExecuTorch: {line.partition('] ')[2]}\n"
        for line in EXECUTOR.splitlines()
    )
    assert only(logged).inference_mean_us == 11_000
    # Two processes at the same time; what the system says of a third one is no run.
    pairs = zip(logged.splitlines(), logged.replace("4242", "4243").splitlines(), strict=True)
    both = "\n".join(line for one, other in pairs for line in (one, other.replace("11.0", "14.0")))
    linker = '11-23 10:00:00.000  4244  4244 F linker  : CANNOT LINK EXECUTABLE "x"\n'
    means = [each.inference_mean_us for each in parse_text(f"{both}\n{linker}")]
    assert means == [11_000, 12_000]
    old = "".join(line for line in EXECUTOR.splitlines(keepends=True) if "Iteration" not in line)
    assert only(old).inference_mean_us == 53_000 / 4
    for code, line in (("delegate-failed", "Loading of method forward failed with status 0x20"),
                       ("benchmark-failed", "Execution of method forward failed with status 0x12")):  # fmt: skip
        failed = only(
            "".join(EXECUTOR.splitlines(keepends=True)[:2])
            + f"F 00:00:00.1 executorch:r.cpp:1] {line}\n"
        )
        assert (failed.outcome, failed.failure_code) == ("failed", code)


def test_where_a_program_ran_is_told_by_evidence_not_by_what_was_asked() -> None:
    def on_gpu(name: str, text: str) -> DelegateEvidence:
        case = sample_lab.case(tool=declared(name).tool, delegate=DelegateName.GPU)
        return DeclaredTool(declared(name)).parse(raw_of(text), case).delegate

    delegate = on_gpu("mnn-benchmark", MNN)
    assert (delegate.actual, delegate.truth) == ("cpu", "fell-back")
    delegate = on_gpu(
        "mnn-benchmark", MNN.replace("Can't Find type=3 backend, use 0 instead\n", "")
    )
    assert (delegate.actual, delegate.truth) == ("", "unknown")
    # It names the GPU at its start also when it doesn't use it.
    assert only(NCNN.format(gpu=-1)).delegate.actual == "cpu"
    assert on_gpu("benchncnn", NCNN.format(gpu=0)).truth == "full"
    offloaded = f"load_tensors: offloaded 20/33 layers to GPU\n{JSONL}\n"
    delegate = on_gpu("llama-bench", offloaded)
    assert (delegate.truth, delegate.delegated_nodes, delegate.total_nodes) == ("partial", 20, 33)


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_result_is_of_the_gpu_only_by_its_own_line(is_apart: bool) -> None:
    told = [f"load_tensors: offloaded {layers}/33 layers to GPU" for layers in (33, 0)]
    vulkan, cpu = JSONL, JSONL.replace("Vulkan,CPU", "CPU")
    # The other stream may come behind all results; then lines that differ tell nothing.
    lines = [vulkan, vulkan, *told, cpu] if is_apart else [told[0], vulkan, told[1], vulkan, cpu]
    reports = parse_text("\n".join([*lines, ""]))
    found = [(each.delegate.actual, each.delegate.delegated_nodes) for each in reports]
    own = [("", None)] * 2 if is_apart else [("gpu", 33), ("cpu", 0)]
    assert found == [*own, ("cpu", None)]


@pytest.mark.parametrize(
    ("total", "form"), [(" total", ": 0.0985 s"), ("", ": 0.0985 s"), ("", " is 0.0985sec")]
)
def test_three_eras_of_one_program_are_read(total: str, form: str) -> None:
    report = only(ORT.format(total=total, form=form))
    assert (report.inference_mean_us, report.init_us, report.peak_memory_mib) == (
        98_500,
        200_000,
        2.0,
    )
    assert report.inference is not None
    # Of five inferences a percentile is the maximum.
    assert (report.inference.count, report.inference.median_us, report.inference.p95_us) == (
        5,
        98_500,
        None,
    )
    # A median isn't told as a mean that isn't there.
    without = ORT.replace("Average inference time cost{total}: 98.5 ms\n", "")
    alone = only(without.format(form=form))
    assert (alone.inference_mean_us, alone.latency_us()) == (None, 98_500)


LLM_BENCH = """\
{
  "model": "qwen", "modelSize": 1234, "backend": "cpu", "threads": 4, "loading_time": 1.5,
  "results": [
    {"type": "prefill", "prompt_len": 512, "generate_len": 0, "tps": 100.0, "std": 1.0},
    {"type": "decode", "prompt_len": 0, "generate_len": 128, "tps": 10.0, "std": 0.1},
    {"type": "prefill_and_decode", "prompt_len": 64, "generate_len": 32, "prefill_tps": 50.0, "decode_tps": 8.0}
  ]
}
"""
LLM_TABLE = """\
| model | modelSize | backend | threads | precision |  test |           t/s |
| ----- | --------: | ------- | ------: | --------- | ----: | ------------: |
| qwen  |   1.0 GiB | CPU     |       4 | Low       | pp512 | 100.00 ± 1.00 |
| qwen  |   1.0 GiB | CPU     |       4 | Low       | tg128 |  10.00 ± 0.10 |
"""


def test_results_in_a_list_and_a_table_like_another_programs_are_told_apart() -> None:
    reports = parse_text(LLM_BENCH)
    wanted = [("pp512", 10_000), ("tg128", 100_000), ("pp64", 20_000), ("tg32", 125_000)]
    assert [(each.label, each.inference_mean_us) for each in reports] == wanted
    assert {(each.init_us, each.extra["program"]) for each in reports} == {
        (1_500_000, "mnn-llm-bench")
    }
    table = parse_text(LLM_TABLE)
    assert [(each.label, each.inference_mean_us, each.extra["program"]) for each in table] == [
        (*each, "mnn-llm-bench") for each in wanted[:2]
    ]
    assert {each.extra["program"] for each in parse_text(MD)} == {"llama-bench"}
    # As many columns as the other one's table below it.
    rows = [line.split("|") for line in MD.splitlines() if line.startswith("|")]
    narrow = "".join("|".join([*row[:5], row[6], *row[8:]]) + "\n" for row in rows)
    both = parse_text(narrow + LLM_TABLE)
    assert Counter(each.extra["program"] for each in both) == {"llama-bench": 3, "mnn-llm-bench": 2}


def test_a_figure_after_an_error_or_in_a_line_that_is_cut_is_no_result() -> None:
    rows = MD.splitlines(keepends=True)
    reports = parse_text("".join([*rows[:3], "GGML_ASSERT(x) failed\n", *rows[3:]]))
    assert [(each.outcome, each.inference is None) for each in reports] == [
        ("ok", False),
        *[("failed", True)] * 2,
    ]
    for text in (
        JSONL[:-40],
        "\n".join(MD.splitlines()[:2]) + "\n",
        EXECUTOR.rpartition("Model exec")[0][:-30],
    ):
        assert [(report.outcome, report.inference) for report in parse_text(text)][-1] in {
            ("truncated", None),
            ("failed", None),
        }
    # What was appended to it is no part of it, but for its own line.
    appended = parse_text(f"{JSONL[:-40]}{JSONL}\n{JSONL}\n")
    assert [(each.outcome, each.inference_mean_us) for each in appended] == [
        ("ok", 250_000),
        ("truncated", None),
    ]
    with pytest.raises(OutputParseError):
        parse_text("load_backend: loaded CPU backend from libggml-cpu.so\n")


BROKEN = """\
name: mine
title: Mine
version: 1
program: ../mine
argv: ["{modle}", "{n}"]
models: [.txt]
parameters: {n: {type: int, default: many}}
delegates: {gpux: {}}
marks: [mine]
lines:
  - {does: row, regex: '^(a)\\1$'}
  - {does: row, regex: '(?=a)b'}
  - {does: jump, regex: 'a'}
results: [{latency: {mean: {field: ms, unit: hours}}}]
shell: rm -rf /
"""


def test_every_fault_of_a_file_is_told_with_its_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(BROKEN)
    with pytest.raises(PlanError) as caught:
        load_declared(path)
    lines = [fault.removeprefix(f"{path}:") for fault in caught.value.faults]
    assert [int(line.partition(":")[0]) for line in lines] == [4, 7, 8, 11, 12, 13, 14, 15]
    assert [line.split(": ")[1] for line in lines] == [
        "program", "parameters.n", "delegates.gpux", "lines[0].regex", "lines[1].regex", "lines[2].does",
        "results[0].latency.mean.unit", "shell",
    ]  # fmt: skip
    mended = (
        BROKEN.replace("../mine", "mine").replace("many", "3").replace("gpux", "gpu")
        .replace("(a)\\1", "(?P<ms>a)").replace("jump", "fail").replace("hours", "ms")
        .replace("shell: rm -rf /\n", "").replace("ms}}}]", "ms}}, figure: decode}]")
    )  # fmt: skip
    for expression, told in (
        ("b", "lines[1]: needs a named group"),
        ("(?P<x>b)", "argv[0]: unknown placeholder {modle}; did you mean 'model'?"),
        ("(?P<x>b)", "the figures prefill and decode have the unit token, and no others do"),
    ):
        path.write_text(mended.replace("(?=a)b", expression))
        with pytest.raises(PlanError) as caught:
            load_declared(path)
        assert told in str(caught.value)


@pytest.mark.slow
def test_an_expression_that_would_take_for_ever_is_an_error_after_a_second(tmp_path: Path) -> None:
    slow = Pattern(r"^(?:(?:a|aa)+b?)+$")
    began = time.process_time()
    with pytest.raises(OutputParseError, match="took more than"):
        slow.find("a" * 5000 + "c")
    assert time.process_time() - began < 30
    # What was measured is a run that failed, also where a result is asked.
    path, slowly = tmp_path / "slow.yaml", "(?:(?:a|aa)+b?)+"
    asking = f"{{where: {{ms: '^{slowly}$'}}, latency"
    path.write_text(SLOW.replace(slowly, ".+").replace("{latency", asking))
    section = load_declared(path)
    raw = raw_of("a" * 5000 + "c\n")
    report = DeclaredTool(section).parse(raw, sample_lab.case(tool=section.tool))
    assert (report.outcome, "took more than 1 s" in report.failure_reason) == ("failed", True)


def test_expressions_that_are_slow_on_every_line_end_the_reading_too(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(SLOW)
    reader = DeclaredReader(load_declared(path), RegexBudget(most_s=0.1))

    def read() -> None:
        for _ in range(20_000):
            reader.feed(parse_decoded("a" * 18 + "c"))

    with pytest.raises(OutputParseError, match="the expressions of slow took"):
        read()


SLOW = """\
name: slow
title: Slow
version: 1
marks: [slow]
lines:
  - {does: row, regex: '^(?P<ms>(?:(?:a|aa)+b?)+)$'}
results: [{latency: {mean: {field: ms, unit: ms}}}]
"""


def case_for(section: ProgramSection, figure: str) -> Case:
    flags = {name: own.default or "[1]" for name, own in section.parameters.items()} | (
        {"figure": figure} if figure else {}
    )
    return sample_lab.case(
        tool=section.tool,
        delegate=DelegateName.CPU,
        flags=tuple(sorted(flags.items())),
        affinity="all",
    )


STARTED: dict[str, tuple[str, str]] = {
    "llama-bench": ("decode", JSONL + "\n"),
    "executor_runner": ("", EXECUTOR),
    "benchncnn": ("", NCNN.format(gpu=-1)),
    "mnn-benchmark": ("", MNN.replace("Can't Find type=3 backend, use 0 instead\n", "")),
    "onnxruntime_perf_test": ("", ORT.format(total=" total", form=": 0.0985 s")),
}
LINKER = 'CANNOT LINK EXECUTABLE "./x": library "libfoo.so" not found: needed by main executable\n'


@pytest.mark.parametrize("name", STARTED)
def test_however_a_program_ends_badly_its_run_has_no_figure(name: str) -> None:
    figure, text = STARTED[name]
    section = declared(name)
    case, tool = case_for(section, figure), DeclaredTool(section)
    assert tool.parse(raw_of(text), case).outcome == "ok"
    for told, wanted in (
        (raw_of(text, exit_code=1), ("failed", "benchmark-failed")),
        (raw_of(text, exit_code=134), ("crashed", "aborted")),
        (raw_of(text, exit_code=137), ("truncated", "killed")),
        (raw_of(text, exit_code=None, timed_out=True), ("truncated", "timed-out")),
        (raw_of(text + text), ("failed", "benchmark-failed")),
        (raw_of(""), ("failed", "no-result")),
        (raw_of("", exit_code=126), ("failed", "not-executable")),
        (raw_of(LINKER + text), ("failed", "missing-library")),
        (raw_of("not executable: 64-bit ELF file\n", exit_code=1), ("failed", "wrong-abi")),
        (
            raw_of("x: error while loading shared libraries: liby.so\n", exit_code=127),
            ("failed", "missing-library"),
        ),
        # A wrapper may end well though what it started didn't.
        (raw_of(text + "Segmentation fault\n"), ("failed", "segfault")),
        (raw_of(text + "Segmentation fault\n", exit_code=139), ("crashed", "segfault")),
    ):
        report = tool.parse(told, case)
        assert (
            (report.outcome, report.failure_code),
            report.inference,
            report.inference_mean_us,
        ) == (
            wanted,
            None,
            None,
        )
    # Cut off anywhere it has its figure or none, never another one.
    whole = tool.parse(raw_of(text), case).inference_mean_us
    for end in range(0, len(text), 3):
        assert tool.parse(raw_of(text[:end]), case).inference_mean_us in {None, whole}
    for odd in (text.replace("\n", "\r\n"), text.replace("\n", "\n\0\n"), "\x1b[0m\n" + text):
        assert tool.parse(raw_of(odd), case).inference_mean_us == whole


def test_lines_that_a_log_lost_are_told() -> None:
    report = only(EXECUTOR.replace("Iteration 3 of 4", "Iteration"))
    assert report.disagreements == ("3 of 4 times were printed: lines are missing",)
    assert only(EXECUTOR).disagreements == ()


def test_what_a_job_declares_counts_while_it_runs_and_another_job_waits_that_declares_it_otherwise(
    tmp_path: Path,
) -> None:
    text = (SHIPPED / "llama-bench.yaml").read_text().replace("name: llama-bench", "name: of-a-job")
    one, other = tmp_path / "1" / "of-a-job.yaml", tmp_path / "2" / "of-a-job.yaml"
    for path, title in ((one, "first"), (other, "second")):
        path.parent.mkdir()
        path.write_text(text.replace("llama.cpp's llama-bench", title))
    with with_files([one]), with_files([one]):
        assert declared("of-a-job").title == "first"
        with (
            pytest.raises(
                ProgramInUseError, match="another job uses another file that declares of-a-job"
            ),
            with_files([other]),
        ):
            pass
        assert declared("of-a-job").title == "first"
    with with_files([other]):
        assert declared("of-a-job").title == "second"
    with pytest.raises(UsageError, match="no program is declared as 'of-a-job' here"):
        declared("of-a-job")


def test_a_text_of_two_programs_tells_of_both() -> None:
    ran = LM_COMMAND.format(backend="cpu") + RESULTS.format(prefill="10.00", decode="5.00")
    failed = LM_COMMAND.format(backend="cpu") + RESULTS.format(prefill="0.00", decode="0.00")
    for text, outcome in ((ran, "ok"), (failed, "failed")):
        *speeds, own = parse_text(EXECUTOR + text)
        assert [(each.label, each.outcome) for each in speeds] == [
            ("prefill", outcome),
            ("decode", outcome),
        ]
        assert own.inference_mean_us == 11_000
