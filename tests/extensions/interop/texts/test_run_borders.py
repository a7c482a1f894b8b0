"""Where one run ends and the next begins, what was asked for, and that none of it takes longer in a
longer text."""

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.extensions.interop.texts.output import iterate_file, parse_text
from orchestrator.records.run import ToolReport

END = (
    "count=50 first=3000 curr=3000 min=2900 max=3100 avg=3000 std=10\n"
    "Inference timings in us: Init: 1500, First inference: 4000, Warmup (avg): 3000, Inference (avg): 3000\n"
)
LITERT = """\
INFO: STARTING!
INFO: Log parameter values verbosely: [0]
INFO: [benchmark_litert_model.cc:201] Loading model from: m.tflite
VERBOSE: Replacing 245 out of 245 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 1 partitions.
INFO: [benchmark_litert_model.h:94] Model initialization: 97.45 ms
INFO: [benchmark_litert_model.h:100] Inference (avg):      10.20 ms (10 runs)
INFO: [benchmark_litert_model.h:103] Inference (min):      9.10 ms
INFO: [benchmark_litert_model.h:105] Inference (max):      12.00 ms
INFO: [benchmark_litert_model.h:107] Inference (std):      0.35
"""
COMMANDS = {
    "a phone's prompt": "oriole:/data/local/tmp $ ./benchmark_litert_model --graph=m.tflite --use_npu=true",
    "an elided command": "oriole:/data/local/tmp $ ./benchmark_model ... --use_npu=true",
    "a comment": "# cmd: ./benchmark_model --graph=m.tflite --use_npu=true",
    "a word": "CMD: benchmark_model --graph=m.tflite --use_npu=true",
    "a shell on the phone": 'adb shell "cd /data/local/tmp && ./benchmark_model --graph=m.tflite --use_npu=true"',
    "a date": "2026-04-19 12:31:07 ./benchmark_model --graph=m.tflite --use_npu=true",
    "several lines": "adb shell ./benchmark_model \\\n  --graph=m.tflite \\\n  --use_npu=true",
    "a quoted several lines": "> $ adb shell ./benchmark_model \\\n>   --graph=m.tflite \\\n>   --use_npu=true",
}


@pytest.mark.parametrize("way", sorted(COMMANDS))
def test_command_that_can_be_read_says_what_was_asked(way: str) -> None:
    (report,) = parse_text(f"{COMMANDS[way]}\n{LITERT}")
    assert (report.delegate.requested, report.delegate.truth.value) == ("npu", "fell-back")


TMP = "/data/local/tmp"
WRAPPED = [
    f"$ adb shell {TMP}/benchmark_model --graph={TMP}/mobilenet_v1_1.0_224_quant.tflite --num_threads=4 --use_gpu=true",
    f'adb shell "cd {TMP} && ./benchmark_model --num_threads=4 --use_gpu=true --graph={TMP}/mobilenet_v1.tflite"',
    f"oriole:{TMP} $ ./benchmark_model --use_gpu=true --num_threads=4 --graph={TMP}/m_1.tflite 2>&1 | tee log.txt",
]


def asked(report: ToolReport) -> tuple[object, ...]:
    return report.delegate.requested, report.extra.get("graph"), report.extra.get("num_threads")


@pytest.mark.parametrize("indent", ["", "    "])
@pytest.mark.parametrize("command", WRAPPED)
def test_command_behind_a_mark_is_read_where_its_rest_is_indented(
    command: str, indent: str
) -> None:
    (report,) = parse_text(f"{indent}# cmd: {command[:70]}\n{indent} {command[70:]}\n{END}")
    assert report.delegate.requested == "gpu"


@pytest.mark.parametrize("indent", ["", "    "])
@pytest.mark.parametrize("command", WRAPPED)
def test_command_that_is_wrapped_inside_a_word_is_read_or_unknown(
    command: str, indent: str
) -> None:
    end = f"Initialized session in 1.5ms.\n{END}"
    (whole,) = parse_text(f"{command}\n{end}")
    assert asked(whole)[::2] == ("gpu", 4)
    read = 0
    for width in range(40, len(command)):
        folded = "".join(
            f"{indent}{command[at : at + width]}\n" for at in range(0, len(command), width)
        )
        (report,) = parse_text(f"{folded}{end}")
        assert asked(report) in {asked(whole), ("", None, None)}, folded
        read += asked(report) == asked(whole)
    assert read > 40


@pytest.mark.parametrize(
    ("start", "rest"),
    [
        ("input_layer=keras_tensor_9", "5:0"),
        ("input_layer_shape=6", "4,224,224,3"),
    ],
)
def test_command_wrapped_inside_an_input_s_name_or_shape_is_read(start: str, rest: str) -> None:
    command = f"$ adb shell {TMP}/benchmark_model --graph={TMP}/m.tflite --{start}"
    (report,) = parse_text(f"{command}\n{rest} --use_gpu=true\n{END}")
    assert asked(report)[:2] == ("gpu", f"{TMP}/m.tflite")


def test_word_below_a_long_command_is_no_part_of_it() -> None:
    command = f"$ adb shell {TMP}/benchmark_model --use_gpu=true --graph={TMP}/mobilenet"
    for below in ("Aborted", "STARTING!", "m.tflite: 1 file pushed", "INFO: STARTING!"):
        (report,) = parse_text(f"{command}\n{below}\nGraph: [m]\n{END}")
        assert report.extra["graph"] == "m"
        (report,) = parse_text(f"{command}\n{below}\n{END}")
        assert report.extra["graph"] == f"{TMP}/mobilenet"


def test_command_whose_rest_is_not_understood_asks_for_nothing_that_is_known() -> None:
    command = f"$ adb shell {TMP}/benchmark_model --graph={TMP}/mobilenet_v1_"
    (report,) = parse_text(f"{command}\nquant (the first).tflite --use_gpu=true\n{END}")
    assert asked(report) == ("", None, None)


@pytest.mark.parametrize(
    ("above", "word", "name"),
    [
        ("model_name = 'small'", "{model_name}.tflite", "small.tflite"),
        ("export M=small.tflite;", "$M", "small.tflite"),
        ("M=other\nM=small", "${M}.tflite", "small.tflite"),
        ("M=small\nfor M in a b; do", "$M.tflite", "$M.tflite"),
        ("M=small\nM=$1", "${M}.tflite", "${M}.tflite"),
        ("M=small", "${M%.*}.tflite", "${M%.*}.tflite"),
    ],
)
def test_variable_of_a_command_is_what_the_script_above_sets_it_to(
    above: str, word: str, name: str
) -> None:
    (report,) = parse_text(f"{above}\n!adb shell {TMP}/benchmark_model --graph={word}\n{END}")
    assert report.extra["graph"] == name


def test_command_above_a_phone_s_log_is_its_first_process_s() -> None:
    flags = "--graph=m --use_gpu=true"
    app = f"adb shell am start -n org.tensorflow.lite.benchmark/.BenchmarkModelActivity --es args '\"{flags}\"'"
    for command in ("$ ./benchmark_model --graph=m --use_gpu=true", app):
        first, second = (
            "".join(f"I/tflite  ({pid}): {line}\n" for line in END.splitlines()) for pid in (11, 12)
        )
        reports = parse_text(f"{command}\n{first}{second}")
        assert [report.delegate.requested for report in reports] == ["gpu", ""]


@pytest.mark.parametrize(
    "failing",
    [
        "ERROR: Please specify the name of your TF Lite input file with --graph\nERROR: Benchmarking failed.\n",
        "FATAL: Incorrect size string specified: 1,x,128,3\n",
    ],
)
def test_what_failed_twice_is_two_runs(failing: str) -> None:
    one = f"INFO: STARTING!\n{failing}"
    assert len(parse_text(one)) == 1
    assert len({report.failure_code for report in parse_text(one * 3)}) == 1
    assert len(parse_text(one * 3)) == 3


CPU_RUN = (
    f"STARTING!\nGraph: [m]\nNum threads: [2]\nLoaded model m\nInitialized session in 1.5ms.\n{END}"
)


@pytest.mark.parametrize("first", ["GPU delegate created.", "INFO: EXTERNAL delegate created."])
def test_delegate_that_is_made_after_a_result_is_the_next_run_s(first: str) -> None:
    name = "EXTERNAL" if "EXTERNAL" in first else "GPU"
    applied = f"Explicitly applied {name} delegate, and the model graph will be completely executed by the delegate."
    cpu, other = parse_text(f"{CPU_RUN}\n{first}\n{applied}\nInference (avg): 700.5 us\n")
    assert (cpu.inference_mean_us, cpu.delegate.requested) == (3000, "cpu")
    assert (other.inference_mean_us, other.delegate.requested) == (700.5, name.lower())


BANNER = "".join(LITERT.splitlines(keepends=True)[4:])


def test_results_of_two_programs_are_two_runs() -> None:
    texts = {10_200: LITERT, 3000: END, 700.5: "Inference (avg): 700.5 us\n"}
    for one, above in texts.items():
        for other, below in {**texts, 10_200: BANNER}.items():
            reports = parse_text(above + below)
            assert [report.inference_mean_us for report in reports] == [one, other]
    tflite, litert = parse_text(f"STARTING!\n{END}{BANNER}")
    assert litert.inference is not None
    assert (tflite.init_us, litert.init_us, litert.inference.count) == (1500, 97_450, 10)


def test_result_below_a_failed_run_is_not_the_failed_one_s() -> None:
    for below in (END, BANNER):
        failed, ok = parse_text(f"STARTING!\nGraph: [m]\nERROR: Benchmarking failed.\n{below}")
        assert (failed.outcome, failed.init_us) == ("failed", None)
        assert ok.inference_mean_us is not None
        assert "graph" not in ok.extra


def of_model(name: str, init_ms: int) -> list[str]:
    session = f"The input model file size (MB): {init_ms}\nInitialized session in {init_ms}ms.\n"
    timings = END.replace("Init: 1500", f"Init: {init_ms}000")
    log = f"STARTING!\nLog parameter values verbosely: [0]\nGraph: [{name}]\nLoaded model {name}\n{session}{timings}"
    return log.splitlines(keepends=True)


@pytest.mark.parametrize("step", [1, 3, 5, 7])
def test_runs_that_print_at_once_are_doubted(step: int) -> None:
    one, other = of_model("a", 11), of_model("b", 22)
    text = ""
    while one or other:
        text += "".join([*one[:step], *other[:step]])
        one, other = one[step:], other[step:]
    figures = [report for report in parse_text(text) if report.inference_mean_us is not None]
    assert figures
    assert all("mixed" in " ".join(report.disagreements) for report in figures)


@pytest.mark.parametrize("lines", range(1, 8))
def test_run_below_one_that_was_killed_is_not_doubted(lines: int) -> None:
    whole = "".join(of_model("b", 22))
    killed = "".join(of_model("a", 11)[:lines])
    *_, report, last = parse_text(f"{killed}{whole}{whole}")
    assert report == last
    assert (report.outcome, report.disagreements) == ("ok", ())


MEMORY = "Memory footprint delta from the start of the tool (MB): init=95.4609 overall=122.793\n"


@pytest.mark.parametrize("below", ["", MEMORY.replace("122.793", "103.793")])
@pytest.mark.parametrize(
    "above",
    [MEMORY, f"{MEMORY}Overall peak memory footprint (MB) via periodic monitoring: 13.9883\n"],
)
def test_end_of_a_run_whose_beginning_is_lost_is_not_the_next_one_s(above: str, below: str) -> None:
    run = "".join([*of_model("b", 22), below])
    assert parse_text(above + run) == parse_text(run)


def test_what_a_delegate_lists_twice_is_not_another_process_s() -> None:
    text = "".join(of_model("b", 22)).replace("Loaded", "t1: [1,1,384]\nt1: [1,384]\nLoaded")
    (report,) = parse_text(text)
    assert report.disagreements == ()


def test_operators_that_the_gpu_counts_are_its_share() -> None:
    text = (
        "STARTING!\nGraph: [m.tflite]\nUse gpu: [1]\nLoaded model m.tflite\nCreated TensorFlow Lite delegate for GPU.\n"
        "Following operations are not supported by GPU delegate:\nCAST: Not supported\n"
        "63 operations will run on the GPU, and the remaining 1 operations will run on the CPU.\n"
    )
    (report,) = parse_text(f"{text}Initialized session in 1.5ms.\n{END}")
    evidence = report.delegate
    assert (evidence.truth.value, evidence.delegated_nodes, evidence.total_nodes) == (
        "partial",
        63,
        64,
    )


def test_switched_off_xnnpack_beside_lines_of_nnapi_is_no_request_for_the_cpu() -> None:
    text = "Graph: [m.tflite]\nUse xnnpack: [0]\nNNAPI accelerators available: [edgetpu,nnapi-reference]\n"
    (report,) = parse_text(f"{text}Loaded model m.tflite\nInitialized session in 1.5ms.\n{END}")
    assert report.delegate.requested == "nnapi"


def test_run_that_ends_in_the_compiler_of_nnapi_has_failed_and_nothing_fell_back() -> None:
    text = "STARTING!\nGraph: [m.tflite]\nUse NNAPI: [1]\nLoaded model m.tflite\n"
    compiler = "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n"
    for end in ("Benchmarking failed.\n", "Aborted\n", ""):
        (report,) = parse_text(f"{text}ERROR: {compiler}{end}")
        assert report.outcome != "ok"
        assert report.delegate.truth.value == "failed"


def test_operator_table_that_can_not_be_of_the_run_is_not_given_to_it() -> None:
    table = (
        "Operator-wise Profiling Info for Regular Benchmark Runs:\n"
        "============================== Run Order ==============================\n"
        "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
        "\tCONV_2D\t{ms}\t{ms}\t100%\t100%\t0.000\t1\t[a]:0\n\n"
        "Timings (microseconds): count=50 first={us} curr={us} min={us} max={us} avg={us} std=1\n"
    )
    (own,) = parse_text(f"STARTING!\n{END}{table.format(ms='2.8', us=2800)}")
    (other,) = parse_text(f"STARTING!\n{END}{table.format(ms='158.7', us=158700)}")
    assert (len(own.operators), own.disagreements) == (1, ())
    assert other.operators == ()
    assert "another run" in other.disagreements[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Performing Push Install\n", ("truncated", "no-result")),
        (
            "Performing Push Install\na.apk: 1 file pushed. 30 MB/s (3000 bytes in 0.1s)\n",
            ("truncated", "no-result"),
        ),
        ("Performing Push Install\nSuccess\n", ("ok", "")),
        ("$ adb shell ls\nerror: no devices/emulators found\n", ("failed", "device-unreachable")),
    ],
)
def test_adb_session_is_told_by_what_it_ends_with(text: str, told: tuple[str, str]) -> None:
    (report,) = parse_text(text)
    assert (report.outcome, report.failure_code) == told


ROWS = (
    "Operator-wise Profiling Info for Regular Benchmark Runs:\n"
    "============================== Run Order ==============================\n"
    "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
)
#: What stands before, a line by its number, what stands after.
LONG: dict[str, tuple[str, Callable[[int], str], str]] = {
    "plain lines": ("", lambda n: f"another program says {n}\n", f"STARTING!\n{END}"),
    "a phone's log": (
        "",
        lambda n: f"06-18 10:20:41.572  {n}  {n} I ActivityManager: Start proc {n} for service\n",
        "".join(f"06-18 10:20:42.000  11  11 I tflite  : {line}\n" for line in END.splitlines()),
    ),
    "delegated subgraphs": (
        "STARTING!\nGraph: [m]\n",
        lambda n: (
            f"Replacing {n} out of {n} node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 1 partitions "
            f"for subgraph {n}.\n"
        ),
        END,
    ),
    "operator rows": (
        f"STARTING!\n{END}{ROWS}",
        lambda n: f"\tCONV_2D\t1.0\t1.0\t1%\t1%\t0.0\t1\t[{n}]:{n}\n",
        "",
    ),
    "runs": ("", lambda n: f"STARTING!\nGraph: [{n}.tflite]\n{END}", ""),
    "a sentence": (
        "STARTING!\nExplicitly applied GPU delegate, and the model\n",
        lambda _: "and the model\n",
        END,
    ),
    "statistics": (
        "STARTING!\n",
        lambda n: f"count={n + 2} first=1 curr=1 min=1 max=1 avg=1 std=0\n",
        END,
    ),
    "refused operators": (
        "STARTING!\nFollowing operations are not supported by GPU delegate:\n",
        lambda n: f"CAST: reason {n}\n",
        END,
    ),
    "errors": ("STARTING!\n", lambda n: f"ERROR: something {n}\n", END),
}


def calls_while_reading(text: str) -> int:
    """Return how many functions are called, which is work that no busy machine changes."""
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        parse_text(text)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(LONG))
def test_four_times_the_text_takes_four_times_the_work(kind: str) -> None:
    before, line, after = LONG[kind]
    few, many = (before + "".join(map(line, range(size))) + after for size in (250, 1000))
    assert calls_while_reading(many) < 4.6 * calls_while_reading(few)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["plain lines", "a phone's log", "delegated subgraphs", "runs", "a sentence", "statistics"],
)
def test_memory_does_not_grow_with_the_text(kind: str, tmp_path: Path) -> None:
    before, line, after = LONG[kind]

    def peak(size: int) -> int:
        path = tmp_path / f"{size}"
        path.write_text(before + "".join(map(line, range(size))) + after, encoding="utf-8")
        tracemalloc.start()
        try:
            assert sum(1 for _ in iterate_file(path)) == (size if kind == "runs" else 1)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Each run is many lines, and each takes its time; a quarter is more than are held back.
    most = 4_500 if kind == "runs" else 12_000
    # The first text also loads what is known of programs.
    peak(most // 12)
    assert peak(most) < 1.3 * peak(most // 4) + 100_000


def test_an_error_counts_although_its_words_were_printed_before_without_a_severity() -> None:
    words = "Something odd"
    (report,) = parse_text(
        f"STARTING!\nGraph: [m]\n{words}\n{words}\nERROR: {words}\n"
        "ERROR: Node number 3 (CONV_2D) failed to prepare.\nERROR: Failed to allocate tensors!\nBenchmarking failed.\n"
    )
    assert report.failure_code == "allocation-failed"
    assert report.failure_reason.startswith(words)
