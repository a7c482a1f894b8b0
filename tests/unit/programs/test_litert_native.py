"""How LiteRT's benchmark program is called on a phone, and what libraries a program is told of."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from orchestrator.errors import UsageError
from orchestrator.ports import InvocationRequest
from orchestrator.programs.litert_native import litert_flags
from orchestrator.programs.native import NativeTool
from orchestrator.programs.running.environment import environment
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, ModelSha, RunId, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Pass, ToolName

CASE = Case(
    serial=Serial("S"), model_sha256=ModelSha("a" * 64), model_name="m", delegate=DelegateName.NPU, threads=4,
    tool=ToolName.LITERT_NATIVE, build_sha256=BuildSha("b" * 64),
)  # fmt: skip
REQUEST = InvocationRequest(
    case=CASE,
    run_id=RunId("r"),
    run_pass=Pass.TIMING,
    facts=DeviceFacts(serial=Serial("S"), kind=DeviceKind.ANDROID, is_virtual=False),
    build=Build(name="litert", tool=ToolName.LITERT_NATIVE, sha256=BuildSha("b" * 64), abi="arm64-v8a"),
    model_path="/data/local/tmp/x/m.tflite",
    program_path="/data/local/tmp/x/p/program",
    timeout_s=60.0,
    file_paths={
        "libLiteRtDispatch_Qualcomm.so": "/data/local/tmp/x/p/libLiteRtDispatch_Qualcomm.so",
        "libLiteRtCompilerPlugin_Qualcomm.so": "/data/local/tmp/x/p/libLiteRtCompilerPlugin_Qualcomm.so",
    },
)


def flags(delegate: DelegateName, *own: tuple[str, str], run_pass: Pass = Pass.TIMING) -> dict[str, str]:
    request = replace(REQUEST, case=replace(CASE, delegate=delegate, flags=own), run_pass=run_pass)
    return dict(litert_flags(request, folder="/run"))


def test_each_accelerator_is_asked_for_alone_and_the_cpu_default_is_not_relied_on() -> None:
    for delegate, own in (
        (DelegateName.XNNPACK, "use_cpu"),
        (DelegateName.GPU, "use_gpu"),
        (DelegateName.NPU, "use_npu"),
    ):
        given = flags(delegate)
        assert {name for name in ("use_cpu", "use_gpu", "use_npu") if given[name] == "true"} == {own}
        assert "use_xnnpack" not in given


def test_only_an_npu_is_told_the_folders_of_its_libraries() -> None:
    npu = flags(DelegateName.NPU)
    assert npu["dispatch_library_path"] == npu["compiler_plugin_library_path"] == "/data/local/tmp/x/p"
    assert "dispatch_library_path" not in flags(DelegateName.GPU)


def test_the_profile_and_the_memory_are_passes_without_runtime_info() -> None:
    assert flags(DelegateName.GPU)["model_runtime_info_output_file"] == "/run/runtime_info.pb"
    assert flags(DelegateName.GPU, run_pass=Pass.PROFILE)["use_profiler"] == "true"
    assert flags(DelegateName.GPU, run_pass=Pass.MEMORY)["report_peak_memory_footprint"] == "true"
    for run_pass in (Pass.TIMING, Pass.COLD, Pass.SUSTAINED, Pass.REFERENCE):
        assert "use_profiler" not in flags(DelegateName.GPU, run_pass=run_pass)


@pytest.mark.parametrize(
    ("delegate", "flag", "said"),
    [
        (DelegateName.NPU, ("qualcomm_htp_perfomance_mode", "burst"), "did you mean --qualcomm_htp_performance_mode"),
        (DelegateName.NPU, ("qualcomm_htp_performance_mode", "bursts"), "one of default"),
        (DelegateName.NPU, ("mediatek_nerun_pilot_version", "version8"), "no flag"),
        (DelegateName.GPU, ("qualcomm_profiling", "basic"), "does nothing without --use_npu"),
        (DelegateName.GPU, ("gpu_precision", "fp16"), "did you mean --gpu-precision"),
        (DelegateName.GPU, ("gpu_backend", "cl"), "one of webgpu"),
        (DelegateName.GPU, ("use_cpu", "true"), "can't be set beside them"),
        (DelegateName.NNAPI, ("x", "1"), "has no delegate nnapi"),
    ],
)
def test_a_flag_that_the_program_would_pass_over_is_refused(
    delegate: DelegateName, flag: tuple[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        flags(delegate, flag)


def test_a_dsp_is_told_where_its_libraries_are_and_a_cpu_is_not() -> None:
    words = dict(word.split("=", 1) for word in shlex.split(environment(REQUEST)))
    assert words["LD_LIBRARY_PATH"] == "/data/local/tmp/x/p"
    assert words["ADSP_LIBRARY_PATH"].split(";")[0] == "/data/local/tmp/x/p"
    on_cpu = replace(REQUEST, case=replace(CASE, delegate=DelegateName.XNNPACK))
    assert "ADSP" not in environment(on_cpu)


def test_hexagon_gets_the_folder_of_its_skel_libraries_and_a_placed_file_its_path_on_the_phone() -> None:
    case = replace(
        CASE, tool=ToolName.NATIVE, delegate=DelegateName.HEXAGON, flags=(("delegate_serialize_dir", "@a b"),)
    )
    request = replace(
        REQUEST,
        case=case,
        file_paths={"libhexagon_nn_skel_v66.so": "/x/p/libhexagon_nn_skel_v66.so", "a b": "/x/p/a_b"},
    )
    words = shlex.split(NativeTool().command(request, "/run"))
    assert "--hexagon_lib_path=/x/p" in words
    assert "--delegate_serialize_dir=/x/p/a_b" in words
