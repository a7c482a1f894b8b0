"""How the fake binaries behave on a phone: delegates, faults, heat, killing, the app, performance
options, LiteRT."""

from __future__ import annotations

import dataclasses
import re

import pytest

from benchfarm_virtual.faults import Fault, FaultKind
from benchfarm_virtual.programs.delegates import DELEGATES
from benchfarm_virtual.samples import HEXAGON_LIBRARIES, NPU_LIBRARIES
from virtual.tests.unit.bench_phone import FOLDER

SHORT = ("--num_runs=20", "--min_secs=0", "--warmup_min_secs=0.05")


@pytest.fixture
def phone(bench_phone, models):
    made = bench_phone()
    made.put("tiny_cnn_float.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    return made


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(bench_phone, models):
    texts = []
    for seed in (4, 4, 5):
        phone = bench_phone(seed=seed)
        phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
        texts.append(
            phone.run(
                "--graph=m.tflite", "--num_runs=30", "--min_secs=0", "--warmup_min_secs=0"
            ).text
        )
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_phone_whose_nnapi_compiler_fails_says_so(bench_phone, models):
    phone = bench_phone("pixel-8")
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run("--graph=m.tflite", "--use_nnapi=true", *SHORT)
    assert "ERROR: NN API returned error ANEURALNETWORKS_OP_FAILED" in run.stderr
    assert "ERROR: Node number 4 (TfLiteNnapiDelegate) failed to prepare." in run.stderr
    assert run.exit_code == 1


# The app
# --------------------------------------------------------------------------------------------------------------


def log_lines(phone) -> list[tuple[str, str, str]]:
    return [(e.priority, e.tag, e.message.decode()) for e in phone.logs.entries(["main", "crash"])]


def test_the_app_speaks_through_the_log_without_prefixes(phone):
    args = "--graph=/data/local/tmp/tiny_cnn_float.tflite --num_runs=5 --min_secs=0 --warmup_min_secs=0 --use_gpu=true"
    run = phone.run(group="top-app", extras={"args": args})
    assert run.exit_code == 0
    assert not run.writes
    lines = log_lines(phone)
    assert lines[0] == (
        "I",
        "tflite_BenchmarkModelActivity",
        f"Running TensorFlow Lite benchmark with args: {args}",
    )
    assert lines[1] == ("I", "tflite", "Log parameter values verbosely: [0]")
    assert {tag for _, tag, _ in lines[1:]} == {"tflite"}
    assert not any(
        "STARTING!" in text or text.startswith(("INFO", "VERBOSE")) for _, _, text in lines
    )
    assert any(
        text.startswith("Replacing 4 out of 4 node(s) with delegate (TfLiteGpuDelegateV2)")
        for *_, text in lines
    )
    assert any(text.startswith("Inference timings in us:") for *_, text in lines)


# Performance options
# --------------------------------------------------------------------------------------------------

PERFORMANCE = {"program": "benchmark_model_performance_options"}


def test_performance_options_list_their_own_flags(phone):
    help_ = phone.run("--help", **PERFORMANCE)
    assert "--perf_options_list=all" in help_.text
    assert "--num_threads" not in help_.text


# LiteRT
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own",
    # A library that isn't there is passed over without a word.
    [own for own in DELEGATES if own.flags and own.name != "external"],
    ids=lambda own: own.name,
)
def test_each_delegate_of_benchmark_model_is_created_or_says_why_not(phone, own):
    value = "true" if own.flag.startswith("use_") else "libraries/none"
    run = phone.run("--graph=tiny_cnn_float.tflite", f"--{own.flag}={value}", *SHORT)
    created = f"{own.provider} delegate created" in run.text
    assert created or re.search("WARN|ERROR", run.text)
    assert not created or "will not be executed" not in run.text, "it takes no operator"


def test_a_fault_of_the_npu_is_called_by_its_name(bench_phone, models):
    phone = bench_phone("galaxy-s23")
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    phone.put_libraries(NPU_LIBRARIES)
    phone.faults.add(Fault(kind=FaultKind.DELEGATE_PARTIAL, subject="npu", args={"share": 0.0}))
    folders = [f"--{name}_library_path={FOLDER}" for name in ("dispatch", "compiler_plugin")]
    words = ("--graph=m.tflite", "--use_npu=true", *folders, *SHORT)
    texts = [phone.run(*words, program="benchmark_litert_model").stderr for _ in range(2)]
    assert ["(DispatchDelegate)" in text for text in texts] == [False, True]


def test_each_of_two_delegates_computes_on_its_own_device(bench_phone, models):
    phone = bench_phone("pixel-4")
    phone.put("m.tflite", models.BY_NAME["mobilenet_v1_0.25_128_int8.tflite"]())
    phone.put_libraries(HEXAGON_LIBRARIES)
    one, both = (
        phone.run("--graph=m.tflite", "--use_xnnpack=false", "--use_hexagon=true", *more, *SHORT)
        for more in ((), ("--use_nnapi=true",))
    )
    assert "(TfLiteHexagonDelegate)" in both.stderr
    medians = [int(re.findall(r"median=(\d+)", run.stdout)[-1]) for run in (one, both)]
    assert medians[1] == pytest.approx(medians[0], rel=0.2)


def test_litert_program_takes_opengl_where_there_is_no_opencl(bench_phone, models):
    phone = bench_phone("moto-e5-play")
    phone.put("tiny_cnn_float.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run(
        "--graph=tiny_cnn_float.tflite", "--use_gpu=true", *SHORT, program="benchmark_litert_model"
    )
    assert "OpenCL not supported on this platform. Using OpenGL instead." in run.stderr
    assert "with delegate (LITERT_OPENGL)" in run.stderr


ONNX = b"\x08\x07\x12\x05maker\x3a\xe0\xd4\x03" + bytes(60_000)
#: A flatbuffer's beginning: where its root table is, an empty list of fields, and the table.
MNN = b"\x0c\0\0\0" + bytes(4) + b"\x04\0\x04\0\x04\0\0\0" + bytes(60_000)


def onnx_words(model: str, provider: str, *words: str) -> tuple[str, ...]:
    return ("-I", "-s", "-m", "times", "-r", "3", "-x", "1", "-e", provider, *words, model)


def test_onnxruntime_leaves_to_the_cpu_what_a_provider_lacks_unless_told_not_to(phone):
    phone.put("m.onnx", ONNX)
    strict = ("-C", "session.disable_cpu_ep_fallback|1")
    ran = {
        words: phone.run(*onnx_words("m.onnx", *words), program="onnxruntime_perf_test")
        for words in (("cpu",), ("nnapi",), ("xnnpack", *strict), ("nnapi", *strict))
    }
    assert [run.exit_code for run in ran.values()] == [0, 0, 0, 255]
    assert "P999 Latency: " in ran["nnapi",].stdout
    assert "disable_cpu_ep_fallback" in ran["nnapi", *strict].stderr
    longest = re.search(r"Max Latency: (\S+)", ran["cpu",].stdout)[1]
    assert f"P999 Latency: {longest} s" in ran["cpu",].stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "File doesn't exist"),
        (b"\x08\x07", "Protobuf parsing failed"),
    ],
)
def test_onnxruntime_looks_at_the_whole_model_first(phone, content, said):
    if content is not None:
        phone.put("m.onnx", content)
    words = onnx_words("m.onnx", "nnapi", "-C", "session.disable_cpu_ep_fallback|1")
    run = phone.run(*words, program="onnxruntime_perf_test")
    assert (run.exit_code, run.stdout) == (255, "")
    assert said in run.stderr
    assert "Load model from m.onnx failed:" in run.stderr


def test_llama_bench_tells_where_layers_are_only_when_asked(phone):
    phone.put("m.gguf", b"GGUF\x03" + bytes(60_000))
    words = ("-m", "m.gguf", "-p", "8", "-n", "4", "-t", "1", "-r", "2", "-o", "jsonl")
    told = [phone.run(*words, *more, program="llama-bench").stderr for more in ((), ("-v",))]
    assert ["offloaded 3/3 layers to GPU" in text for text in told] == [False, True]


def test_benchncnn_names_its_gpu_before_anything_else(phone):
    words = ("2", "1", "2", "0", "0", "param=nope.param", "shape=[8,8,3]")
    lines = phone.run(*words, program="benchncnn").stderr.splitlines()
    assert lines[0].startswith("[0 Adreno")
    assert lines[1] == "loop_count = 2"
    assert lines[-1] == "fopen nope.param failed"


def test_mnn_says_once_and_first_that_there_is_no_gpu_and_takes_whole_models_only(bench_phone):
    phone = bench_phone("moto-e5-play")
    phone.hardware.profile = dataclasses.replace(phone.profile, gpu=None)
    for name, content in (("a.mnn", MNN), ("b.mnn", MNN), ("c.mnn", b"\xff\xff\0\0" + MNN[4:99])):
        phone.put(name, content)
    run = phone.run(".", "2", "1", "5", "1", "2", program="benchmark.out")
    assert "Forward type: N/A thread=1" in run.stdout
    lines = run.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["Can't", "[", "["]
    assert run.stderr == "Buffer is not a valid model\n"
