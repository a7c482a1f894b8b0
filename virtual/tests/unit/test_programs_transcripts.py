"""The fake binaries against recorded outputs of the real programs: same command, same lines,
numbers aside."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.samples.places import NATIVE

#: Recorded with builds that lack the GPU, NNAPI and Hexagon.
CPU_ONLY = {"stock_use_gpu_unknown_flag", "help_bare", "stock_flag_bad_bool"}
#: What a build for Android logs and one for Linux doesn't.
ANDROID_ONLY = re.compile(
    r"VERBOSE: |INFO: (NNAPI accelerators available|Max number of delegated partitions: \[0\]"
    r"|Allow lower precision in gpu: \[[01]\]|Use NNAPI: \[0\]|Use Hexagon: \[0\])"
)
#: The recordings that a phone must repeat word for word.
_NAMES = """
all_stable_delegate_missing default_float_025_128 default_static_10_224
default_tiny_float err_corrupt_garbage err_corrupt_truncated err_custom_op err_flex_op
err_missing_file export_model_runtime_info ext_dummy_conv ext_dummy_conv_noxnn ext_dummy_full
ext_dummy_none ext_dummy_plus_xnnpack_order1
ext_missing_so ext_missing_so_require_full gpu_ok_backend_cl_fp32
gpu_ok_quant gpu_ok_sustained gpu_partial gpu_partial_max_partitions2 gpu_partial_require_full
gpu_partial_xnnpack_first gpu_partial_xnnpack_true gpu_serialize_first max_secs_negative
max_secs_zero model_embedding_gather name_and_prefix output_filepath peak_memory
perf_none require_full_delegation_no_delegate_fail result_file_path
run_delay run_frequency runs0_min0 runs1_min0 runs5_min0 runs_negative stock_flag_bool_no_value
stock_flag_dup stock_use_gpu_unknown_flag
stock_wrong_flag threads_4 use_caching warmup_runs0 xnnpack_default_partial xnnpack_false
xnnpack_force_fp16 xnnpack_true xnnpack_true_fully_delegated xnnpack_true_fully_delegated_uint8io
xnnpack_true_int8 xnnpack_true_not_delegated xnnpack_true_partial
xnnpack_true_require_full_delegation_fail xnnpack_weight_cache_first
"""
COMPARED = _NAMES.split()


def normalised(text: str) -> list[str]:
    """Return lines with every number as #; without what only Android says, and the shape of the
    statistics kept.
    """
    lines = []
    for line in text.splitlines():
        if line.startswith("# ") or ANDROID_ONLY.match(line):
            continue
        line = re.sub(
            r"INFO: count=[1-9].*", "INFO: count=N", line
        )  # its forms have tests of their own
        line = re.sub(r"0x[0-9a-f]+", "0x#", line)
        lines.append(re.sub(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", "#", line))
    return lines


def prepare(phone, models, words):
    """Put the files that a recorded command uses on the phone; return its arguments."""
    words = words[next(i for i, word in enumerate(words) if word.startswith("benchmark_model")) :]
    for word in words:
        if word.startswith("--graph="):
            name = word.removeprefix("--graph=")
            if name in models.BY_NAME:
                phone.put(name, models.BY_NAME[name]())
            elif name.startswith("corrupt_"):
                whole = models.BY_NAME["tiny_cnn_float.tflite"]()
                contents = {"garbage": b"garbage" * 99, "truncated": whole[: len(whole) // 2]}
                phone.put(name, contents[name.removeprefix("corrupt_").removesuffix(".tflite")])
    return words


@pytest.mark.parametrize("name", COMPARED)
def test_a_fake_binary_prints_what_the_real_program_printed(name, bench_phone, models):
    text = (NATIVE / f"{name}.txt").read_text()
    command = text.splitlines()[0].removeprefix("# cmd: ").split("; ")[-1]
    expected_code = int(text.rstrip().splitlines()[-1].removeprefix("# exit: "))
    # The recorded programs were built without Hexagon, and so is a phone without it.
    phone = bench_phone("galaxy-s21-exynos")
    words = prepare(phone, models, shlex.split(command))
    from benchfarm_virtual.samples import benchmark_elf

    phone.put("libdummy_external_delegate.so", benchmark_elf("dummy_external_delegate"))
    phone.files.make_folders("/data/local/tmp/ser")
    program = words[0].removesuffix("_all").removesuffix("_gpu")
    run = phone.run(*words[1:], program="benchmark_model_cpu_only" if name in CPU_ONLY else program)
    expected, found = normalised(text), normalised(run.text)
    if name == "stock_flag_bool_no_value":
        assert "STARTING!" in run.stdout
    assert found == expected
    assert run.exit_code == expected_code


def test_streams_are_told_apart_as_the_real_program_does(bench_phone, models):
    phone = bench_phone()
    phone.put("m.tflite", models.BY_NAME["tiny_cnn_float.tflite"]())
    run = phone.run("--graph=m.tflite", "--num_runs=5", "--min_secs=0", "--warmup_min_secs=0")
    assert all(
        line.startswith(("INFO: ", "WARN: ")) or not line for line in run.stdout.splitlines()
    )
    created, replacing = run.stderr.splitlines()
    assert created == "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."
    assert replacing == (
        "VERBOSE: Replacing 4 out of 4 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 1 partitions for "
        "subgraph 0 (main)."
    )
    failed = phone.run("--graph=/nonexistent.tflite")
    assert "ERROR" not in failed.stdout
    assert failed.stderr.splitlines()[-1] == "ERROR: Benchmarking failed."
