"""Reports as people pass them on: wrapped, numbered, in lists and tables, of several programs,
without the last end."""

import json
import textwrap
from collections.abc import Callable

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.cli import describe
from orchestrator.extensions.interop.texts.output import parse_text
from tests.samples.careful_reader import found_in

HEADER = "07-14 13:16:26.182 23002 23002 I tflite  : "
#: What a phone's log holds of a run of benchmark_model.
LOG = """\
Log parameter values verbosely: [0]
Num threads: [4]
Graph: [/data/local/tmp/ssd_mobilenetv3_large_fp16.tflite]
Loaded model /data/local/tmp/ssd_mobilenetv3_large_fp16.tflite
Created TensorFlow Lite XNNPACK delegate for CPU.
Replacing 431 out of 461 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 58 partitions for subgraph 0.
The input model file size (MB): 4.7767
Initialized session in 58.312ms.
Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.
count=9 first=70225 curr=58557 min=54075 max=70225 avg=57237.2 std=4816 p5=54075 median=55355 p95=70225
Running benchmark for at least 25 iterations and at least 1 seconds but terminate if exceeding 150 seconds.
count=25 first=53752 curr=45884 min=45884 max=62002 avg=52970.5 std=3114 p5=46034 median=53524 p95=55365
Inference timings in us: Init: 58312, First inference: 70225, Warmup (avg): 57237.2, Inference (avg): 52970.5
Memory footprint delta from the start of the tool (MB): init=34.8633 overall=48.7305
""".splitlines()
LOGGED = [HEADER + line for line in LOG]
FIGURES = {
    "outcome": "ok", "init_us": 58312, "inference_avg_us": 52970.5, "inference_count": 25, "inference_std_us": 3114,
    "model_mb": 4.7767, "overall_mem_mb": 48.7305, "delegated_nodes": 431, "total_nodes": 461, "partitions": 58,
    "num_threads": 4, "graph": "ssd_mobilenetv3_large_fp16.tflite",
}  # fmt: skip


def read(text: str) -> list[dict[str, object]]:
    return [found_in(report) for report in parse_text(text)]


def one(text: str) -> dict[str, object]:
    (report,) = read(text)
    return report


def lines(values: list[str]) -> str:
    return "".join(f"{value}\n" for value in values)


DECORATED = {
    "code in a list": lambda number, line: f"- `{line}`",
    "code in a list of a list": lambda number, line: f"    - `{line}`",
    "an ordered list": lambda number, line: f"{number}. {line}",
    "numbers": lambda number, line: f"{number:4d}  {line}",
    "cat -n": lambda number, line: f"{number:6d}\t{line}",
    "grep -Hn": lambda number, line: f"runs/logcat.txt:{number}:{line}",
    "a table's cells": lambda number, line: f"| {line} |",
    "unbroken spaces": lambda number, line: line.replace(" ", "\u00a0"),
    "colours without ESC": lambda number, line: f"[38;5;40m{line}[0m",
    "bold": lambda number, line: f"**{line}**",
    "an omission": lambda number, line: f"... {line}",
}


@pytest.mark.parametrize("form", DECORATED)
@pytest.mark.parametrize("source", [LOG, LOGGED], ids=["console", "logcat"])
def test_what_people_put_around_lines_changes_no_figure(form: str, source: list[str]) -> None:
    report = one(lines([DECORATED[form](number, line) for number, line in enumerate(source, 1)]))
    assert report.items() >= FIGURES.items()


def test_a_log_that_names_threads_and_no_tags_is_read() -> None:
    assert one(lines([f"I(23002:23002) {line}" for line in LOG])).items() >= FIGURES.items()


Wrap = Callable[[str, int], list[str]]


def hard(line: str, width: int) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)]


def at_words(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)


@pytest.mark.parametrize("wrap", [hard, at_words])
@pytest.mark.parametrize("source", [LOG, LOGGED], ids=["console", "logcat"])
def test_a_wrapped_line_has_its_figures_in_any_window(wrap: Wrap, source: list[str]) -> None:
    for width in range(56, 150):
        report = one(lines([part for line in source for part in wrap(line, width)]))
        # The log's last figure is left out where its rest may be the beginning of the next line's
        # date.
        assert {"overall_mem_mb": 48.7305, **report}.items() >= FIGURES.items(), (
            f"at {width} columns"
        )


AROUND: dict[str, Callable[[str], str]] = {
    "indented": "    {}".format,
    "quoted": "> {}".format,
    "double-spaced": "{}\n".format,
}


@pytest.mark.parametrize("form", AROUND)
@pytest.mark.parametrize("source", [LOG, LOGGED], ids=["console", "logcat"])
def test_what_was_wrapped_and_then_indented_quoted_or_spaced_has_its_figures(
    form: str, source: list[str]
) -> None:
    for width in (56, 60, 66, 74, 80, 91, 100, 120):
        wrapped = [AROUND[form](part) for line in source for part in hard(line, width)]
        assert one(lines(wrapped)).items() >= FIGURES.items(), f"at {width} columns"


@pytest.mark.parametrize("around", ["", "> "])
def test_a_piece_that_looks_like_an_item_s_number_belongs_to_its_message(around: str) -> None:
    text = f"""\
{around}Replacing 89 out of 266 node(s) with delegate (TfLiteGpuDelegateV
{around}2) node, yielding 3 partitions for subgraph 0.
"""
    assert one(text).items() >= {"delegated_nodes": 89, "partitions": 3}.items()


def test_a_sentence_below_an_empty_line_takes_no_figure_away() -> None:
    text = f"{lines(LOG[:-1])}\n2026 was the year of this run\n"
    assert one(text)["inference_avg_us"] == 52970.5


def test_a_figure_whose_rest_stands_in_the_next_line_is_joined() -> None:
    text = lines(
        [
            f"{HEADER}Loaded model /data/local/tmp/a.tflite",
            f"{HEADER}The input model file size (MB): 4.7",
        ]
    )
    assert one(f"{text}767\n{HEADER}Initialized session in 58.312ms.\n")["model_mb"] == 4.7767


def test_a_figure_whose_rest_is_lost_is_left_out() -> None:
    text = f"{lines(LOGGED[:12])}{HEADER}Memory footprint delta from the start of the tool (MB): init=34.8633 overall=4\n"
    assert "overall_mem_mb" not in one(f"{text}8.7 30 and more\n")


def test_a_wrapped_accelerator_is_joined() -> None:
    (report,) = parse_text("STARTING!\nNNAPI accelerator name: [nnapi-ref\nerence]\nGraph: [m]\n")
    assert report.echoed == {"NNAPI accelerator name": "nnapi-reference", "Graph": "m"}


def test_a_sentence_wrapped_at_a_comma_is_whole() -> None:
    text = (
        "Replacing 366 out of 366 node(s) with delegate (LITERT_CL) node,\n"
        "yielding 1 partitions for subgraph 0 (main).\n"
    )
    quoted = text.replace("Replacing", "\t> Replacing").replace("yielding", "\t> yielding")
    for each in (text, quoted):
        assert one(each).items() >= {"partitions": 1, "delegate_status": "full"}.items()


NCNN = "loop_count = 4\nnum_threads = 4\ngpu_device = -1\n  squeezenet  min =    2.60  max =    2.66  avg =    2.64\n"
MNN = (
    "Forward type: CPU thread=4 precision=0\n--------> Benchmarking... loop = 10, warmup = 2\n"
    "[ - ] a_320.mnn                max =   14.762ms  min =   14.539ms  avg =   14.697ms\n"
)
BRIEF = (
    "adb shell /data/local/tmp/benchmark_model --graph=/data/local/tmp/a.tflite --num_threads=4 --use_xnnpack=true\n"
    "Inference timings in us: Init: 22483, First inference: 29129, Warmup (avg): 14069, Inference (avg): 13604.3\n"
)


@pytest.mark.parametrize("ours", [lines(LOG), BRIEF], ids=["whole", "one line"])
@pytest.mark.parametrize(("other", "mean_us"), [(NCNN, 2640), (MNN, 14697)], ids=["ncnn", "MNN"])
def test_two_programs_in_one_text_are_both_read(ours: str, other: str, mean_us: float) -> None:
    (alone,) = read(ours)
    for text in (ours + other, other + ours):
        first, second = read(text)
        assert first == alone
        assert second["inference_avg_us"] == mean_us


def test_a_failure_of_ours_beside_another_programs_result_is_told_too() -> None:
    ours, other = read(lines(LOG[:8]) + "Segmentation fault\n" + NCNN)
    assert (ours["outcome"], ours["failure_code"]) == ("crashed", "segfault")
    assert other["inference_avg_us"] == 2640


BANNER = """\
========== BENCHMARK RESULTS ==========
INFO: [{source}:57] Model initialization: {init} ms
INFO: [{source}:63] Inference (avg):      {mean} ms ({count} runs)
INFO: [{source}:101] ======================================
"""
SOURCE = "benchmark_litert_model.h"


@pytest.mark.parametrize("heading", [True, False])
def test_each_of_litert_s_banners_is_a_run(heading: bool) -> None:
    text = BANNER.format(source=SOURCE, init="586.76", mean="0.46", count=2166)
    text += BANNER.format(source=SOURCE, init="11.03", mean="10.08", count=100)
    if not heading:
        text = "".join(line for line in text.splitlines(keepends=True) if "RESULTS" not in line)
    found = [
        (run["init_us"], run["inference_avg_us"], run["inference_count"]) for run in read(text)
    ]
    assert found == [(586760, 460, 2166), (11030, 10080, 100)]


def test_commands_and_sources_of_windows_are_read() -> None:
    source = r".\litert/tools/benchmark_litert_model.h"
    text = (
        "C:\\w\\LiteRT>.\\bin\\tools\\benchmark_model.exe --graph=C:\\w\\m\\a.tflite --use_npu=true --num_threads=2\n"
        + BANNER.format(source=source, init="586.76", mean="0.46", count=2166)
        + "C:\\w\\LiteRT>.\\bin\\tools\\benchmark_model.exe ^\n    --graph=C:\\w\\m\\b.tflite ^\n    --use_cpu=true\n"
        + BANNER.format(source=source, init="11.03", mean="10.08", count=100)
    )
    first, second = read(text)
    assert (
        first.items()
        >= {"graph": "a.tflite", "requested_delegate": "npu", "num_threads": 2}.items()
    )
    assert first["inference_avg_us"] == 460
    assert (
        second.items()
        >= {"graph": "b.tflite", "requested_delegate": "cpu", "inference_avg_us": 10080}.items()
    )


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_that_is_whole_counts_without_its_end(end: str) -> None:
    banner = BANNER.format(source=SOURCE, init="586.76", mean="0.46", count=2166).splitlines()[:3]
    assert (
        one("\n".join(banner) + end).items() >= {"outcome": "ok", "inference_avg_us": 460}.items()
    )
    assert one("\n".join(LOG) + end)["overall_mem_mb"] == 48.7305
    assert one("\n".join(LOG[:-1]) + end)["inference_avg_us"] == 52970.5
    assert one(NCNN.rstrip("\n") + end)["inference_avg_us"] == 2640
    alone = "Inference timings in us: Init: 22483, First inference: 29129, Warmup (avg): 14069, Inference (avg): 13604.3"
    assert one(alone + end)["inference_avg_us"] == 13604.3


def test_a_last_figure_that_may_lack_digits_isnt_taken() -> None:
    text = "Inference timings in us: Init: 22483, First inference: 29129, Warmup (avg): 14069, Inference (avg): 1360"
    assert "inference_avg_us" not in one(text)
    assert "overall_mem_mb" not in one("\n".join(LOG)[:-2])


TABLE = """\
| model            |       size |     params | backend    | ngl | fa |            test |                  t/s |
| ---------------- | ---------: | ---------: | ---------- | --: | -: | --------------: | -------------------: |
"""
ROW = "| llama 1B F16     |   2.30 GiB |     1.24 B | OpenCL     |  99 |  {} | {:>15} | {:>20} |\n"


def test_what_tells_two_rows_of_a_table_apart_is_kept_and_shown() -> None:
    text = TABLE + ROW.format(0, "pp512", "198.69 ± 0.59") + ROW.format(1, "pp512", "274.75 ± 1.22")
    assert [(run["fa"], run["tokens_per_s"]) for run in read(text)] == [
        ("0", 198.69),
        ("1", 274.75),
    ]
    assert ["fa: 0" in "\n".join(describe(report)) for report in parse_text(text)] == [True, False]


@pytest.mark.parametrize("rest", ["", "| qwen2 1.5B Q8_0"])
def test_a_table_cut_after_its_head_is_cut_off_and_didnt_fail(rest: str) -> None:
    assert one(TABLE + rest)["outcome"] == "truncated"


@pytest.mark.parametrize(
    ("text", "mean_us"),
    [
        (MNN.splitlines(keepends=True)[2], 14697),
        (NCNN.splitlines(keepends=True)[3], 2640),
        (TABLE + ROW.format(1, "pp512+tg128", "81.58 ± 0.39"), 12257.9),
    ],
    ids=["MNN", "ncnn", "llama-bench"],
)
def test_a_number_of_inferences_that_isnt_printed_is_unknown(text: str, mean_us: float) -> None:
    report = one(text)
    assert report["inference_avg_us"] == pytest.approx(mean_us, abs=0.1)
    assert "inference_count" not in report
    assert "None" not in "\n".join(describe(parse_text(text)[0]))


LITERT_LM = """\
--------------------------------------------------
  Time to first token: 7.14 s
--------------------------------------------------
  Prefill Turns (Total 1 turns):
    Prefill Turn 1: Processed 1024 tokens in 7.044162s duration.
      Prefill Speed: 145.37 tokens/sec.
--------------------------------------------------
  Decode Turns (Total 1 turns):
    Decode Turn 1: Processed 256 tokens in 23.268829s duration.
      Decode Speed: 11.00 tokens/sec.
--------------------------------------------------
"""


@pytest.mark.parametrize("times", [1, 2])
def test_litert_lm_s_results_without_their_heading_are_read(times: int) -> None:
    prefill, decode = read(LITERT_LM * times)
    assert prefill["tokens_per_s"] == pytest.approx(145.37, abs=0.01)
    assert decode["tokens_per_s"] == pytest.approx(11.0, abs=0.01)
    assert (prefill["tokens"], decode["tokens"]) == (1024, 256)
    assert decode["derived_first_token_us"] == pytest.approx(7.14e6, rel=1e-3)


EXECUTORCH = """\
I 00:00:06.95 executorch:stats.h:97]   Prompt Tokens: 5    Generated Tokens: 114
I 00:00:06.95 executorch:stats.h:103]  Model Load Time:                3.926000 (seconds)
I 00:00:06.95 executorch:stats.h:113]  Total inference time:           3.003000 (seconds)  Rate: 37.96 (tokens/second)
I 00:00:06.95 executorch:stats.h:121]          Prompt evaluation:      0.102000 (seconds)  Rate: 49.01 (tokens/second)
I 00:00:06.95 executorch:stats.h:132]          Generated 114 tokens:   2.901000 (seconds)  Rate: 39.29 (tokens/second)
I 00:00:06.95 executorch:stats.h:140]  Time to first generated token:  0.102000 (seconds)
"""
OBSERVER = (
    'PyTorchObserver {"prompt_tokens":5,"generated_tokens":114,"model_load_start_ms":1000,"model_load_end_ms":4926,'
    '"inference_start_ms":4926,"inference_end_ms":7929,"prompt_eval_end_ms":5028,"first_token_ms":5028,'
    '"aggregate_sampling_time_ms":143}\n'
)


@pytest.mark.parametrize(
    "text", [EXECUTORCH, OBSERVER, OBSERVER + EXECUTORCH], ids=["lines", "document", "both"]
)
def test_executorch_s_statistics_are_read_once(text: str) -> None:
    prefill, decode = read(text)
    assert (prefill["inference_count"], decode["inference_count"]) == (5, 114)
    assert prefill["tokens_per_s"] == pytest.approx(49.0196)
    assert decode["tokens_per_s"] == pytest.approx(39.2968)
    assert (prefill["init_us"], prefill["first_token_us"]) == (3_926_000, 102_000)
    # Another process's, without its first line.
    *_, cut = read(EXECUTORCH + EXECUTORCH.partition("Load Time")[2].replace("114", "50"))
    assert cut["tokens_per_s"] == pytest.approx(50 / 2.901)


def test_a_text_with_nothing_of_a_program_is_refused_whatever_is_around_its_lines() -> None:
    with pytest.raises(OutputParseError):
        parse_text("1. bake a cake\n2. count=eggs\n| 3 |\n> Inference\n")


@pytest.mark.parametrize("mean_ms", [0.0, 0.01])
def test_inferences_shorter_than_the_program_rounds_to_are_too_fast_and_were_made(
    mean_ms: float,
) -> None:
    latency = {
        "init_ms": 0.4,
        "num_warmup_runs": 5,
        "avg_ms": mean_ms,
        "median_ms": 0.0,
        "num_runs": 50,
    }
    report = one(json.dumps({"latency": latency}))
    assert (report["outcome"], report["failure_code"]) == ("failed", "too-fast")
    assert "50 inferences took less than the 10.0 us" in str(report["failure_reason"])
    assert "--tool native" in str(report["next_step"])


@pytest.mark.parametrize(
    ("line", "truth"),
    [
        (
            "GPU accelerator could not be loaded and registered: kLiteRtStatusErrorNotFound.",
            "fell-back",
        ),
        ("YNNPACK CPU accelerator registered.", "unknown"),
    ],
)
def test_what_litert_says_of_its_accelerators_is_evidence(line: str, truth: str) -> None:
    command = "adb shell ./benchmark_litert_model --graph=m.tflite --use_gpu=true\n"
    banner = BANNER.format(source=SOURCE, init=1, mean=2, count=3)
    report = one(f"{command}I litert  : [auto_registration.cc:50] {line}\n{banner}")
    assert report["delegate_truth"] == truth
    assert line in str(report["delegate_evidence"])


RESULT_LINE = (
    "Inference timings in us: Init: {}, First inference: {}, Warmup (avg): {}, Inference (avg): {}"
)


@pytest.mark.parametrize("mean", ["378,502", "3 758.79", "2,27617e+06", "3\u2019758.79"])
def test_a_mean_that_may_be_two_numbers_is_none(mean: str) -> None:
    (report,) = parse_text(f"{RESULT_LINE.format(3538, 6880, 3785, mean)}\n")
    assert (report.outcome, report.inference_mean_us) == ("truncated", None)


@pytest.mark.parametrize(
    ("printed", "written", "name"),
    [
        ("init=34.8633", "init=8,464", "init_mem_mb"),
        ("overall=48.7305", "overall=48 730", "overall_mem_mb"),
        # A line that ends inside a figure, and one that the next one's date was joined to.
        ("overall=48.7305", "overall=48.", "overall_mem_mb"),
        ("p95=55365", "p95=5536507-14 13:16:28", "inference_p95_us"),
    ],
)
def test_no_figure_ends_inside_a_word(printed: str, written: str, name: str) -> None:
    text = lines([line for line in LOG if not line.startswith("Inference timings")]).replace(
        printed, written
    )
    assert written in text
    assert name not in one(text)


@pytest.mark.parametrize("below", [" 4 threads", " 07-14 13:16:28.097 I tflite: x", " 2026-07-14"])
def test_what_is_noted_beside_a_figure_is_no_part_of_it(below: str) -> None:
    text = lines([f"{line}{below}" if "=" in line or "us:" in line else line for line in LOG])
    assert one(text) == one(lines(LOG))


def test_zeros_of_a_warm_up_that_wasnt_made_are_no_figures() -> None:
    (report,) = parse_text(f"{RESULT_LINE.format(3538, 0, 0, 3758.79)}\n")
    found = (report.first_inference_us, report.warmup_mean_us, report.inference_mean_us)
    assert found == (None, None, 3758.79)


def test_a_short_result_below_another_run_s_statistics_is_doubted() -> None:
    (report,) = parse_text(lines(LOG[:10]) + "Inference (avg): 1000.91 us\n")
    assert "1000.91 isn't between the minimum, 54075," in str(report.disagreements)


def test_a_row_behind_an_unknown_mark_is_no_model_of_that_name() -> None:
    with pytest.raises(OutputParseError):
        parse_text(lines([f"Phone of Ann: {line}" for line in NCNN.splitlines()]))


@pytest.mark.parametrize("first", ["", "Log parameter values verbosely: [1]\n"])
def test_what_is_echoed_below_a_lost_beginning_may_not_have_been_set(first: str) -> None:
    echo = "Min num runs: [50]\nNum threads: [-1]\nGraph: [a.tflite]\nUse xnnpack: [0]\n"
    (report,) = parse_text(f"{first}{echo}{lines(LOG[3:])}")
    assert report.delegate.truth.value == "partial"
