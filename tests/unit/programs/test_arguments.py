"""The flags that a case means, and how they reach a program through the device's shell."""

import shlex
from dataclasses import replace

import pytest

from orchestrator.delegates import DELEGATES, FlagFamily
from orchestrator.errors import UsageError
from orchestrator.ports import InvocationRequest
from orchestrator.programs.apk import start_command
from orchestrator.programs.litert import Counts, LitertTool, counts_for, litert_command
from orchestrator.programs.native import NativeTool
from orchestrator.programs.running import affinity_mask, benchmark_flags
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.case import Case, DelegateName, Pass, RunId, Serial, ToolName
from orchestrator.records.device import CpuCluster
from orchestrator.records.run import DelegateTruth, ToolReport
from tests.samples import sample_lab
from tests.samples.records import facts_of
from tests.samples.tools import raw_of, request_of

FACTS = facts_of(
    "PHONE1",
    clusters=(
        CpuCluster(cpus=(0, 1, 2, 3), min_khz=300_000, max_khz=1_800_000),
        CpuCluster(cpus=(4, 5, 6), min_khz=700_000, max_khz=2_400_000),
        CpuCluster(cpus=(7,), min_khz=800_000, max_khz=2_800_000),
    ),
)
CASE = sample_lab.case(tool=ToolName.NATIVE, delegate=DelegateName.XNNPACK)


def request(
    case: Case = CASE, run_pass: Pass = Pass.TIMING, model_path: str = "/data/local/tmp/m.tflite"
) -> InvocationRequest:
    program = "/data/local/tmp/benchfarm/programs/ab/benchmark_model"
    return request_of(
        case, run_id=RunId("r1"), run_pass=run_pass, facts=FACTS, model_path=model_path, program_path=program
    )  # fmt: skip


def flags_of(case: Case, run_pass: Pass = Pass.TIMING) -> dict[str, str]:
    return benchmark_flags(request(case, run_pass), folder="/f")


@pytest.mark.parametrize(
    "delegate",
    [name for name in DelegateName if FlagFamily.BENCHMARK_MODEL in DELEGATES[name].flags],
)
def test_xnnpack_is_never_left_to_the_programs_own_choice(delegate: DelegateName) -> None:
    flags = flags_of(replace(CASE, delegate=delegate))
    assert flags["use_xnnpack"] == ("true" if delegate is DelegateName.XNNPACK else "false")


@pytest.mark.parametrize(
    "delegate",
    [name for name in DelegateName if FlagFamily.BENCHMARK_MODEL not in DELEGATES[name].flags],
)
def test_a_delegate_that_the_program_lacks_is_refused(delegate: DelegateName) -> None:
    with pytest.raises(UsageError, match=delegate.value):
        flags_of(replace(CASE, delegate=delegate))


def test_each_other_pass_asks_for_what_it_is_for() -> None:
    assert flags_of(CASE, Pass.MEMORY)["report_peak_memory_footprint"] == "true"
    profile = flags_of(CASE, Pass.PROFILE)
    assert (profile["enable_op_profiling"], profile["op_profiling_output_mode"]) == (
        "true",
        "proto",
    )


def test_the_plans_flags_win_over_the_delegates_defaults() -> None:
    case = replace(
        CASE, delegate=DelegateName.GPU, flags=(("gpu_backend", "cl"), ("use_xnnpack", "true"))
    )
    flags = flags_of(case)
    assert (flags["use_xnnpack"], flags["gpu_backend"]) == ("true", "cl")


@pytest.mark.parametrize("name", sorted(OWNED_FLAGS))
def test_flags_that_follow_from_the_case_can_not_be_set_beside_it(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        flags_of(replace(CASE, flags=((name, "1"),)))


def test_every_word_reaches_the_program_whole() -> None:
    path = "/data/local/tmp/a b'c\"$(reboot)\n;rm -rf .tflite"
    case = replace(CASE, flags=(("input_layer", "a b;$(x)`y`'z'"),))
    words = shlex.split(NativeTool().command(request(case, model_path=path), "/f"))
    assert words[:3] == ["LD_LIBRARY_PATH=/data/local/tmp/benchfarm/programs/ab", "taskset", "f0"]
    assert f"--graph={path}" in words
    assert "--input_layer=a b;$(x)`y`'z'" in words


def test_the_app_gets_all_flags_as_one_argument() -> None:
    words = shlex.split(
        start_command(request(replace(CASE, flags=(("input_layer", "a'b\"$(c)"),))))
    )
    activity = "org.tensorflow.lite.benchmark/.BenchmarkModelActivity"
    assert words[:-1] == ["am", "start", "-S", "-W", "-n", activity, "--es", "args"]
    assert words[8].split()[0].endswith("/run-r1/result.pb")
    assert "--input_layer=a'b\"$(c)" in words[8].split()


def test_a_value_that_the_app_would_split_is_refused() -> None:
    with pytest.raises(UsageError, match="white space"):
        start_command(request(replace(CASE, flags=(("input_layer", "a\tb"),))))


def test_big_cores_are_all_but_the_slowest_cluster() -> None:
    assert affinity_mask("big", FACTS) == "f0"
    assert affinity_mask("all", FACTS) == ""
    assert affinity_mask("0x80", FACTS) == "80"
    equal = replace(FACTS, clusters=(CpuCluster(cpus=(0, 1), min_khz=1, max_khz=2),))
    assert affinity_mask("big", equal) == ""
    unknown = replace(FACTS, clusters=tuple(replace(item, max_khz=None) for item in FACTS.clusters))
    assert affinity_mask("big", unknown) == ""


COUNTS = Counts(runs=50, warmups=5)
LITERT_CASE = replace(CASE, tool=ToolName.LITERT, serial=Serial("host"))


def litert_read(json_text: str, stderr: str, exit_code: int = 0) -> ToolReport:
    raw = raw_of(exit_code=exit_code, result_json=json_text.encode(), stderr=stderr.encode())
    return LitertTool().parse(raw, LITERT_CASE)


def test_litert_has_a_plans_flags_as_it_spells_them() -> None:
    flags = {
        "dispatch_library_path": "@d.so",
        "require_full_delegation": "true",
        "signature_to_run_for": "encode",
    }
    case = replace(LITERT_CASE, delegate=DelegateName.NPU, flags=tuple(flags.items()))
    given = replace(request(case), file_paths={"d.so": "/f/d.so"})
    assert set(litert_command(given, COUNTS, folder="/f").split()) >= {
        "--dispatch_library_path=/f/d.so", "--no_cpu",
        "--require_full_delegation", "--signature=encode", "--use_npu",
    }  # fmt: skip


def test_litert_refuses_flags_of_the_other_programs() -> None:
    with pytest.raises(UsageError, match="gpu_backend"):
        litert_command(
            request(replace(LITERT_CASE, flags=(("gpu_backend", "cl"),))), COUNTS, folder="/f"
        )
    with pytest.raises(UsageError, match="cpu"):
        litert_command(
            request(replace(LITERT_CASE, delegate=DelegateName.CPU)), COUNTS, folder="/f"
        )


def test_litert_is_kept_to_the_cores_that_a_plan_names() -> None:
    command = litert_command(request(replace(LITERT_CASE, affinity="3")), COUNTS, folder="/f")
    assert command.startswith("taskset 3 ")


def test_litert_figures_come_from_its_json() -> None:
    text = """{"fully_accelerated": true, "num_threads": 2, "model_size_mb": 1.0, "latency": {"init_ms": 5.5,
        "warmup_first_ms": 3.0, "warmup_avg_ms": 2.5, "num_warmup_runs": 5, "avg_ms": 2.1, "min_ms": 2.0, "max_ms": 4.0,
        "median_ms": 2.05, "std_ms": 0.1, "p5_ms": 2.0, "p95_ms": 2.4, "num_runs": 50}}"""
    line = "Created TensorFlow Lite XNNPACK delegate for CPU."
    report = litert_read(text, f"INFO: {line}")
    assert report.outcome == "ok"
    assert report.inference is not None
    assert (report.inference.median_us, report.inference.count) == (2050.0, 50)
    assert (report.init_us, report.first_inference_us) == (5500.0, 3000.0)
    assert report.delegate.truth is DelegateTruth.FULL
    assert report.delegate.lines == ("fully_accelerated: True", line)


@pytest.mark.parametrize(
    "text", ["", "null", "{", "[]", '{"latency": {"num_runs": 0, "avg_ms": 0}}', '{"latency": 3}']
)
def test_litert_without_a_result_is_a_failure_with_the_last_line_as_reason(text: str) -> None:
    report = litert_read(text, "loading\nRuntimeError: no such model")
    assert report.outcome == "failed"
    assert report.inference_mean_us is None
    assert report.failure_reason


def test_litert_counts_keep_the_plans_least_and_greatest_times() -> None:
    case = replace(
        LITERT_CASE, num_runs=50, min_secs=1.0, max_secs=10.0, warmup_runs=1, warmup_min_secs=0.5
    )
    assert counts_for(case, 1_000.0) == Counts(runs=1000, warmups=500)
    assert counts_for(case, 100_000.0) == Counts(runs=50, warmups=5)
    assert counts_for(case, 4_000_000.0) == Counts(runs=2, warmups=1)
    assert counts_for(case, 60_000_000.0) == Counts(runs=1, warmups=1)
    assert counts_for(case, None) == Counts(runs=50, warmups=1)


def test_litert_tells_the_error_and_not_what_it_printed_while_it_ended() -> None:
    log = (
        "INFO: Creating LiteRT environment\n"
        "ERROR: [delegate_webgpu.cc:359] Failed to initialize WebGPU: No adapters found\n"
        "Traceback (most recent call last):\nRuntimeError: ERROR: [a.h:1]\nINFO: DestroyAccelerator\n"
    )
    report = litert_read("", log, exit_code=1)
    assert (
        report.failure_reason
        == "ERROR: [delegate_webgpu.cc:359] Failed to initialize WebGPU: No adapters found"
    )
