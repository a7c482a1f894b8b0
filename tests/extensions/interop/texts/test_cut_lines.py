"""A text cut inside a line: its figures are right, or not there; where a line end follows all the
same, not trusted.

Copying from a terminal, a pipe that breaks and a full disk cut so, and nothing in the last line
itself shows it.
"""

import dataclasses
import math

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.records.run import ToolReport
from tests.samples.places import NATIVE

#: An iPhone's console of the years before the percentiles.
OLD_IPHONE = """\
INFO: Log parameter values verbosely: [0]
INFO: Min num runs: [50]
INFO: Num threads: [2]
INFO: Graph: [/private/var/containers/Bundle/TFLiteBenchmark.app/mobilenet.tflite]
INFO: Use gpu: [1]
INFO: Loaded model /private/var/containers/Bundle/TFLiteBenchmark.app/mobilenet.tflite
INFO: Created TensorFlow Lite delegate for Metal.
INFO: Explicitly applied GPU delegate, and the model graph will be completely executed by the delegate.
INFO: The input model file size (MB): 16.9005
INFO: Initialized session in 152.331ms.
INFO: Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.
INFO: count=204 first=5140 curr=2411 min=2399 max=5140 avg=2430.51 std=190

INFO: Running benchmark for at least 50 iterations and at least 1 seconds but terminate if exceeding 150 seconds.
INFO: count=414 first=2409 curr=2404 min=2402 max=2511 avg=2407.25 std=9

INFO: Inference timings in us: Init: 152331, First inference: 5140, Warmup (avg): 2430.51, Inference (avg): 2407.25
INFO: Memory footprint delta from the start of the tool (MB): init=31.2969 overall=33.1094
"""
LITERT = """\
INFO: STARTING!
INFO: Num threads: [1]
INFO: Graph: [m.tflite]
INFO: [litert/tools/benchmark_litert_model.cc:137] Loading model from: m.tflite
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
INFO: The input model file size (MB): 3.27774
INFO: Initialized session in 4.478ms.
INFO: Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.
INFO: count=1055 first=1033 curr=473 min=443 max=1033 avg=465.319 std=18 p5=459 median=463 p95=478

INFO: Running benchmark for at least 50 iterations and at least 1 seconds but terminate if exceeding 150 seconds.
INFO: count=2112 first=463 curr=459 min=442 max=979 avg=464.545 std=13 p5=460 median=462 p95=478

INFO: [./litert/tools/benchmark_litert_model.h:81]\x20
========== BENCHMARK RESULTS ==========
INFO: [./litert/tools/benchmark_litert_model.h:82] Model initialization: 4.48 ms
INFO: [./litert/tools/benchmark_litert_model.h:84] Warmup (first):       1.03 ms
INFO: [./litert/tools/benchmark_litert_model.h:86] Warmup (avg):         0.47 ms (1055 runs)
INFO: [./litert/tools/benchmark_litert_model.h:88] Inference (avg):      0.46 ms (2112 runs)
INFO: [./litert/tools/benchmark_litert_model.h:92] Inference (min):      0.44 ms
INFO: [./litert/tools/benchmark_litert_model.h:94] Inference (max):      0.98 ms
INFO: [./litert/tools/benchmark_litert_model.h:96] Inference (std):      0.01
INFO: [./litert/tools/benchmark_litert_model.h:103] Throughput:           7056.2 MB/s
INFO: [./litert/tools/benchmark_litert_model.h:112] Init footprint:       3.72 MB
INFO: [./litert/tools/benchmark_litert_model.h:114] Overall footprint:    4.03 MB
INFO: [./litert/tools/benchmark_litert_model.h:120] Peak memory usage not available.
INFO: [./litert/tools/benchmark_litert_model.h:125] ======================================
"""
IPHONE_VIEW = """\
Startup latency: 12.5 ms

Inference:
 - Num runs: 250
 - Average: 3.25 ms
 - Min: 3.1 ms\x20
 - Max: 14.25 ms\x20
 - Std deviation: 0.11 ms

Warmup:
 - Num runs: 125
 - Average: 19.5 ms
 - Min: 9.25 ms\x20
 - Max: 10.5 ms\x20
 - Std deviation: 0.52 ms
"""
_MEMORY = ("init_memory_mib", "overall_memory_mib", "peak_memory_mib")
_OTHERS = ("init_us", "first_inference_us", "warmup_mean_us", "inference_mean_us", "model_size_mb")
_NODES = ("delegated_nodes", "total_nodes", "partitions", "kernels")


def native(name: str) -> str:
    text = (NATIVE / f"{name}.txt").read_text(encoding="utf-8")
    return "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith(("# cmd:", "# exit:"))
    )


def logcat(text: str, app: str = "06-18 10:20:41.572  4669  4669 I tflite  : ") -> str:
    return "".join(
        app + line.removeprefix("INFO: ") for line in text.splitlines(keepends=True) if line.strip()
    )


LOGS = {
    "native, this year's": native("default_float_025_128"),
    "native, a second and more": native("input_batch_64_scientific"),
    "native, a single inference": native("runs1_min0"),
    "native, equal inferences": native("runs2_all_same"),
    "native, a delegate's part": native("gpu_partial"),
    "native, peak memory": native("peak_memory"),
    "native, operator tables": native("prof_stdout_mode_explicit"),
    "performance options, one": native("perf_none"),
    "performance options, several": native("perf_cpu"),
    "iPhone, console before the percentiles": OLD_IPHONE,
    "iPhone, view": IPHONE_VIEW,
    "app, logcat": logcat(native("default_float_025_128")),
    "app, logcat before the percentiles": logcat(OLD_IPHONE),
    "LiteRT, console": LITERT,
    "LiteRT, logcat": logcat(LITERT),
}


def parsed(text: str | bytes) -> tuple[ToolReport, ...]:
    try:
        return parse_text(text)
    except OutputParseError:
        return ()


def figures(report: ToolReport) -> dict[object, object]:
    found: dict[object, object] = {name: getattr(report, name) for name in (*_MEMORY, *_OTHERS)}
    for name in ("warmup", "inference"):
        summary = getattr(report, name)
        if summary is not None:
            found |= {(name, key): value for key, value in dataclasses.asdict(summary).items()}
    found |= {name: getattr(report.delegate, name) for name in _NODES}
    for row in report.operators:
        found[row.phase, row.block, row.run_order] = (row.mean_us, row.first_us, row.times_called)
    return {key: value for key, value in found.items() if value is not None}


def is_footprint(key: object, value: object, known: object) -> bool:
    """Whether a figure is one that a program could have printed whole: memory comes in pages of 4
    KiB.

    Of hundreds of MiB the sixth digit isn't missed.
    """
    if key not in _MEMORY or not isinstance(value, float):
        return False
    return (value * 256).is_integer() or (
        isinstance(known, float) and math.isclose(value, known, rel_tol=1e-4)
    )


def wrong_cuts(text: str, step: int = 1) -> list[str]:
    whole = [figures(report) for report in parsed(text)]
    assert whole, "the text as a whole must be read"
    wrong = []
    # Only in the last line can a cut leave a wrong figure, and before the first statistics nothing
    # is trusted. The runs before the last are cut as it is.
    first = max(0, text.find("count="), text.rfind("Loaded model "))
    ends = [end for end in range(first, len(text)) if text[end - 1] in "0123456789.+"]
    for end in ends[::step]:
        for place, report in enumerate(parsed(text[:end] + "\n")):
            if report.outcome != "ok" or report.disagreements:
                continue
            known = whole[place] if place < len(whole) else {}
            for key, value in figures(report).items():
                if known.get(key) != value and not is_footprint(key, value, known.get(key)):
                    wrong.append(
                        f"...{text[max(0, end - 40) : end]!r}: {key} is {value}, not {known.get(key)}"
                    )
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_no_cut_gives_a_wrong_figure_that_is_trusted(name: str) -> None:
    assert wrong_cuts(LOGS[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("default_float_025_128", 1), ("input_batch_64_scientific", 3), ("runs2_all_same", 3), ("peak_memory", 5),
        ("gpu_while", 7), ("prof_stdout_mode_explicit", 17), ("prof_proto_nofile", 41), ("perf_none", 7),
    ],
)  # fmt: skip
def test_without_a_line_end_no_cut_turns_a_number_into_another(name: str, step: int) -> None:
    data = (NATIVE / f"{name}.txt").read_bytes()
    (whole,) = parse_text(data)
    known = figures(whole)
    for end in range(0, len(data), step):
        for report in parsed(data[:end]):
            assert figures(report).items() <= known.items(), (
                f"cut at byte {end}: {data[max(0, end - 60) : end]!r}"
            )


@pytest.mark.parametrize("left", ["2", "24", "240", "2407", "2407."])
def test_result_line_cut_inside_its_mean_is_no_result(left: str) -> None:
    (report,) = parse_text(
        OLD_IPHONE[: OLD_IPHONE.index("Inference (avg): ")] + f"Inference (avg): {left}\n"
    )
    assert (report.outcome, report.failure_reason) == ("truncated", "the result line is cut off")
    assert report.inference_mean_us == 2407.25


def test_result_line_that_the_statistics_contradict_is_told() -> None:
    (report,) = parse_text(
        OLD_IPHONE.replace("Inference (avg): 2407.25", "Inference (avg): 2890.5")
    )
    assert report.disagreements == (
        "mean inference (us): the result line says 2890.5, the statistics 2407.25",
        "mean inference (us): 2890.5 isn't between the minimum, 2402, and the maximum, 2511",
    )


def test_cut_row_of_a_summary_names_no_run_that_it_may_not_be_of() -> None:
    text = native("perf_cpu")
    row = text.index("count=20", text.index("Summary of All Runs"))
    reports = parse_text(text[:row] + "count=20 \n")
    assert [report.label for report in reports] == [""] * 6
