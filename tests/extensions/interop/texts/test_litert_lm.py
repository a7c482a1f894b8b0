"""What LiteRT-LM prints: two figures of each process, and none where only the exit code says that
all was well."""

import pytest

from orchestrator.analysis.findings import repetition_findings
from orchestrator.extensions.interop.cli import describe, to_public
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.records.run import DelegateTruth, ToolReport
from tests.samples.beside import OTHER_PROGRAMS

RECORDINGS = OTHER_PROGRAMS / "litert_lm"
CREATED = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
NODES = (
    "VERBOSE: Replacing 80 out of 87 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 3 partitions for "
    "subgraph 0 (decode).\nVERBOSE: Replacing 62 out of 69 node(s) with delegate (TfLiteXNNPackDelegate) node, "
    "yielding 3 partitions for subgraph 1 (prefill_128).\n"
)
RULE = "-" * 50 + "\n"
HEAD = "I0000 00:00:1795379608.295143   21611 litert_lm_lib.cc:424] "
COMMAND = """\
Benchmarking model: tiny.litertlm (/models/tiny.litertlm)
Backend                    : {backend}
Number of tokens in prefill: 128
Number of tokens in decode : 64
Max number of tokens       : 512
Cache                      : no
Speculative decoding       : auto
Running warmup..
Running iteration 1 of 1..
"""
RESULTS = """\
----- Results -----
Prefill speed:        {prefill} tokens/s
Decode speed:         {decode} tokens/s
Init time:            0.0154 s
Time to first token:  0.0054 s
"""


def block(
    prefill: tuple[int, str], decode: tuple[int, str], *, init: str = "580.10", head: str = HEAD
) -> str:
    """A repetition as it is printed since 2026."""
    return (
        f"{head}BenchmarkInfo:\n  Init Phases (2):\n    - Init Executor: 577.30 ms\n    - Init Total: {init} ms\n{RULE}"
        f"  Time to first token: 0.92 s\n{RULE}  Prefill Turns (Total 1 turns):\n"
        f"    Prefill Turn 1: Processed {prefill[0]} tokens in {prefill[1]} duration.\n"
        f"      Prefill Speed: 1.00 tokens/sec.\n{RULE}  Decode Turns (Total 1 turns):\n"
        f"    Decode Turn 1: Processed {decode[0]} tokens in {decode[1]} duration.\n"
        f"      Decode Speed: 1.00 tokens/sec.\n{RULE}{RULE}\n"
    )


def read(text: str) -> tuple[ToolReport, ToolReport]:
    prefill, decode = parse_text(text)
    assert (prefill.label, decode.label) == ("prefill", "decode")
    return prefill, decode


def test_a_duration_may_have_minutes() -> None:
    prefill, _ = read(block((100, "1m2.5s"), (100, "1s")))
    assert prefill.inference_mean_us == 625_000


def test_results_of_two_engines_are_of_two_processes() -> None:
    one, two = block((100, "1s"), (100, "2s")), block((100, "3s"), (100, "4s"), init="900.00")
    for gpu in ("", "Created OpenCL device\n"):
        reports = parse_text(f"{CREATED}### CPU\n{one}### GPU\n{gpu}{two}")
        assert [(each.init_us, each.inference_mean_us) for each in reports] == [
            (580_100, 10_000), (580_100, 20_000), (900_000, 30_000), (900_000, 40_000),
        ]  # fmt: skip
        actual = "" if gpu else "xnnpack"
        assert [each.delegate.actual for each in reports] == [actual, actual, "", ""]


def test_results_below_two_headings_are_of_two_processes_where_no_init_time_was_copied() -> None:
    one, two = (
        RULE + block((100, first), (100, second)).partition(RULE)[2]
        for first, second in (("1s", "2s"), ("3s", "4s"))
    )
    for marks in ("## {}\n", "==== {} ====\n"):
        text = f"{marks.format('CPU')}{CREATED}{one}{marks.format('GPU')}{two}"
        assert [each.inference_mean_us for each in parse_text(text)] == [
            10_000, 20_000, 30_000, 40_000,
        ]  # fmt: skip


def test_a_command_s_second_results_are_another_process_s_of_unknown_settings() -> None:
    first, second = (RESULTS.format(prefill=speed, decode=speed) for speed in ("100.00", "200.00"))
    reports = parse_text(COMMAND.format(backend="cpu") + first + second)
    assert [(each.delegate.requested, to_public(each)["tokens_per_s"]) for each in reports] == [
        ("xnnpack", 100), ("xnnpack", 100), ("", 200), ("", 200),
    ]  # fmt: skip


def test_a_heading_in_an_answer_begins_no_process() -> None:
    times = ((100, "9s"), (100, "9s")), ((100, "1s"), (100, "2s"))
    prefill, _ = read("## How light travels\n".join(block(*each) for each in times))
    assert (prefill.warmup_mean_us, prefill.inference_mean_us) == (90_000.0, 10_000.0)


def test_a_repetition_is_read_by_its_tokens_and_times() -> None:
    prefill, decode = read(
        CREATED + NODES + "The lighthouse stood.\n\n" + block((1024, "1.024s"), (256, "5.12s"))
    )
    assert (prefill.inference_mean_us, decode.inference_mean_us) == (1000.0, 20000.0)
    assert (to_public(prefill)["tokens_per_s"], to_public(decode)["tokens_per_s"]) == (1000, 50)
    assert (prefill.init_us, prefill.extra["derived_first_token_us"]) == (580_100.0, 1_044_000.0)
    assert (
        prefill.delegate.truth,
        prefill.delegate.delegated_nodes,
        prefill.delegate.total_nodes,
    ) == (
        DelegateTruth.PARTIAL,
        62,
        69,
    )
    assert (decode.delegate.delegated_nodes, decode.delegate.partitions) == (80, 3)
    assert "  tokens_per_s: 50" in describe(decode)
    # `litert benchmark` shows no rule of a phone's log.
    shown = read(block((1024, "1.024s"), (256, "5.12s")).replace(RULE, ""))
    assert [each.inference_mean_us for each in shown] == [1000.0, 20000.0]


DISPATCH, OPENCL, XNNPACK = "DispatchDelegate", "LITERT_CL", "TfLiteXNNPackDelegate"


def replaced(nodes: int, total: int, delegate: str, graph: str) -> str:
    return (
        f"VERBOSE: Replacing {nodes} out of {total} node(s) with delegate ({delegate}) node, yielding 2 partitions "
        f"for subgraph {graph}.\n"
    )


#: Models beside the language model, which always run on the CPU.
BESIDE = "".join(
    replaced(nodes, total, XNNPACK, graph)
    for nodes, total, graph in (
        (3, 4, "0 (decode_embedder)"),
        (3, 4, "1 (prefill_embedder_128)"),
        (10, 12, "2 (decode_rope)"),
        (52, 52, "4 (decode_cache_update)"),
        (60, 112, "5 (prefill_cache_update_128)"),
    )
)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            replaced(1, 1, DISPATCH, "0 (decode)") + replaced(1, 1, DISPATCH, "1 (prefill_128)"),
            [("npu", DelegateTruth.FULL, 1, 1)] * 2,
        ),
        (
            replaced(2, 30, DISPATCH, "0 (decode)") + replaced(3, 31, DISPATCH, "1 (prefill_128)"),
            [("npu", DelegateTruth.PARTIAL, 3, 31), ("npu", DelegateTruth.PARTIAL, 2, 30)],
        ),
        # What the GPU leaves is XNNPACK's, and no part of the GPU's.
        (
            replaced(9, 430, OPENCL, "0 (prefill_128)")
            + replaced(430, 430, OPENCL, "1 (prefill_1024)")
            + replaced(12, 420, OPENCL, "2 (decode)")
            + replaced(408, 417, XNNPACK, "2 (decode)"),
            [("gpu", DelegateTruth.PARTIAL, 9, 430), ("gpu", DelegateTruth.PARTIAL, 12, 420)],
        ),
        # Graphs without names.
        (
            replaced(796, 796, OPENCL, "0")
            + replaced(782, 782, OPENCL, "1")
            + replaced(1, 3, XNNPACK, "0"),
            [("gpu", DelegateTruth.FULL, 796, 796)] * 2,
        ),
    ],
)
def test_a_delegates_share_is_its_own_of_the_language_models_graph(
    lines: str, wanted: list[tuple[str, DelegateTruth, int, int]]
) -> None:
    reports = read(lines + CREATED + BESIDE + block((10, "1s"), (10, "1s")))
    for report, told in zip(reports, wanted, strict=True):
        own = report.delegate
        assert (own.actual, own.truth, own.delegated_nodes, own.total_nodes) == told


def test_the_first_of_several_repetitions_warms_up_and_the_median_of_all_is_none_of_them() -> None:
    aggregated = (
        f"{HEAD}Aggregated BenchmarkInfo (median of 3 iterations):\n"
        + block((100, "1ms"), (100, "1ms"), head="").partition("\n")[2]
    )
    text = (
        block((100, "9s"), (100, "9s"))
        + block((100, "1s"), (100, "2s"))
        + block((100, "3s"), (100, "2s"))
    )
    prefill, decode = read(text + aggregated + "Peak system ram usage: 812.5MB.\n")
    assert (prefill.warmup_mean_us, prefill.inference_mean_us) == (90_000.0, 20_000.0)
    # Of the speeds 100 and 33.3 the mean by time is 50, not 66.7.
    assert to_public(prefill)["tokens_per_s"] == 50
    assert (prefill.extra["repetitions_us"], decode.extra["repetitions_us"]) == (
        "10000 30000",
        "20000 20000",
    )
    assert decode.peak_memory_mib == 812.5


def test_each_engine_is_a_process_of_its_own() -> None:
    one = CREATED + block((10, "1s"), (10, "1s"))
    reports = parse_text(one + one.replace("1s", "2s"))
    assert [(each.label, each.inference_mean_us) for each in reports] == [
        ("prefill", 1e5), ("decode", 1e5), ("prefill", 2e5), ("decode", 2e5),
    ]  # fmt: skip


def test_the_command_is_read_by_its_speeds_and_its_sum_of_phases_is_no_init() -> None:
    text = (
        COMMAND.format(backend="cpu")
        + CREATED
        + NODES
        + RESULTS.format(prefill="30183.56", decode="900.66")
    )
    prefill, decode = read(text)
    assert (to_public(prefill)["tokens_per_s"], to_public(decode)["tokens_per_s"]) == (
        30183.56,
        900.66,
    )
    assert (prefill.init_us, prefill.extra["printed_init_us"]) == (None, 15400.0)
    # The last of two decimals of a speed, as the time of a token.
    for report, speed in ((prefill, 30183.56), (decode, 900.66)):
        step_us = 1e6 / (speed - 0.005) - 1e6 / (speed + 0.005)
        assert report.extra["resolution_us"] == pytest.approx(step_us, rel=1e-3)
    assert (decode.delegate.requested, decode.delegate.actual) == ("xnnpack", "xnnpack")


@pytest.mark.parametrize(
    ("backend", "said", "code"),
    [
        ("cpu", RESULTS.format(prefill="0.00", decode="0.00"), "no-inferences"),
        ("cpu", "", "no-result"),
        (
            "cpu",
            "E0000 00:00:1.5 18782 engine.cc:1060] Failed to generate content: INVALID_ARGUMENT: Input token ids are "
            "too long. Exceeding the maximum number of tokens allowed: 600 >= 512\n"
            + RESULTS.format(prefill="7.00", decode="7.00"),
            "context-too-small",
        ),
        (
            "gpu",
            "ERROR: [delegate_webgpu.cc:359] Failed to initialize: INTERNAL: No adapters found\n",
            "gpu-init-failed",
        ),
        (
            "npu",
            "E0000 00:00:1.5 21633 engine.cc:854] Failed to create engine: UNKNOWN: x\n",
            "npu-init-failed",
        ),
        (
            "cpu",
            "An error occurred during benchmarking\nTraceback (most recent call last):\n",
            "benchmark-failed",
        ),
    ],
)
def test_a_failure_that_ends_with_0_is_a_failure(backend: str, said: str, code: str) -> None:
    for report in read(COMMAND.format(backend=backend) + said):
        assert (report.outcome, report.failure_code, report.inference_mean_us) == (
            "failed",
            code,
            None,
        )
        assert to_public(report)["next_step"]


def test_a_phones_program_that_says_what_it_reads_begins_a_process() -> None:
    failed = (
        f"{HEAD}Model path: /data/a.litertlm\n{HEAD}Choose backend: gpu\n"
        "E0000 00:00:1.5 21633 engine.cc:854] Failed to create engine: UNKNOWN: x\n"
    )
    reports = parse_text(failed + failed.replace("a.lit", "b.lit").replace("gpu", "npu"))
    assert [(report.extra["graph"], report.failure_code) for report in reports] == [
        *[("/data/a.litertlm", "gpu-init-failed")] * 2,
        *[("/data/b.litertlm", "npu-init-failed")] * 2,
    ]


def test_an_answer_that_stopped_at_the_contexts_end_is_told() -> None:
    text = COMMAND.format(backend="cpu").replace("decode : 64", "decode : 600") + RESULTS.format(
        prefill="10.00", decode="10.00"
    )
    assert "cut short" in read(text)[1].disagreements[0]


def test_repetitions_that_jump_are_suspect() -> None:
    speeds = (22.073, 21.686, 28.116, 20.783)
    findings = repetition_findings([1e6 / speed for speed in speeds])
    assert [finding.code for finding in findings] == ["unsteady"]


@pytest.mark.skipif(
    not RECORDINGS.is_dir(),
    reason="the recordings of LiteRT-LM, ../shared/logs/programs, aren't here",
)
@pytest.mark.parametrize(
    ("name", "speeds"),
    [
        ("cli_0.18.1_host_OK_tiny_bundle", (30183.56, 900.66)),
        ("cli_0.18.1_host_verbose", (18934.48, 1035.49)),
        ("v0.10.2_2026_windows_cpu_tail", (19.51, 10.11)),
        ("v0.8_2025-12_linux_cpu_cmake_readme", (7.79, 11.21)),
        ("cli_0.18.1_host_FAILED_exit0", None),
        ("cli_0.18.1_host_gpu_absent", None),
    ],
)
def test_recordings_are_read_as_they_say(name: str, speeds: tuple[float, float] | None) -> None:
    reports = read((RECORDINGS / f"{name}.txt").read_text(encoding="utf-8", errors="replace"))
    for report, speed in zip(reports, speeds or (None, None), strict=True):
        found = to_public(report).get("tokens_per_s")
        assert found is None if speed is None else round(float(str(found)), 2) == speed


GPU_NODES = "Replacing 54 out of 559 node(s) with delegate (TfLiteGpuDelegateV2) node, yielding 3 partitions"


@pytest.mark.parametrize("is_before", [True, False])
def test_what_another_process_of_the_log_runs_on_is_not_the_model_s(is_before: bool) -> None:
    own = "".join(
        f"11-30 10:00:00.000 11787 11787 I tflite  : {line}\n"
        for line in (CREATED + block((128, "11.2ms"), (64, "92.4ms"))).splitlines()
    )
    other = f"11-30 10:00:00.000 20033 20033 I tflite  : {GPU_NODES}\n"
    for report in read(other + own if is_before else own + other):
        assert report.delegate.actual == "xnnpack"
        assert report.delegate.total_nodes is None


@pytest.mark.parametrize("is_before", [True, False])
def test_what_another_program_of_the_text_ran_on_is_not_the_model_s(is_before: bool) -> None:
    own = block((128, "11.2ms"), (64, "92.4ms"))
    other = (
        f"Loaded model /data/local/tmp/a.tflite\n{CREATED}{GPU_NODES}\n"
        "Inference timings in us: Init: 22483, First inference: 29129, Warmup (avg): 14069, "
        "Inference (avg): 13604.3\n"
    )
    reports = parse_text(other + own if is_before else own + other)
    assert {report.label: report.delegate.actual for report in reports if report.label} == {
        "prefill": "",
        "decode": "",
    }


@pytest.mark.parametrize("at", range(1, 12, 2))
def test_another_program_that_prints_between_its_lines_takes_no_figure_away(at: int) -> None:
    own = block((128, "11.2ms"), (64, "92.4ms")).splitlines(keepends=True)
    other = f"STARTING!\nLoaded model /data/local/tmp/a.tflite\n{CREATED}{GPU_NODES}\n"
    alone = read("".join(own))
    mixed = [
        report for report in parse_text("".join([*own[:at], other, *own[at:]])) if report.label
    ]
    assert [report.inference_mean_us for report in mixed] == [
        report.inference_mean_us for report in alone
    ]
    assert {report.delegate.truth for report in mixed} == {DelegateTruth.UNKNOWN}
