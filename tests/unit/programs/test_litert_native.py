"""How LiteRT's benchmark program is called on a phone, and what libraries a program is told of."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from orchestrator.errors import UsageError
from orchestrator.programs.litert_native import litert_flags
from orchestrator.programs.native import NativeTool
from orchestrator.programs.running import environment
from orchestrator.records.case import DelegateName, Pass, ToolName
from tests.samples import sample_lab
from tests.samples.tools import request_of

CASE = sample_lab.case(tool=ToolName.LITERT_NATIVE, delegate=DelegateName.NPU)
REQUEST = request_of(
    CASE,
    file_paths={
        f"libLiteRt{what}_Qualcomm.so": f"/x/p/{what}.so" for what in ("Dispatch", "CompilerPlugin")
    },
)


def flags(
    delegate: DelegateName, *own: tuple[str, str], run_pass: Pass = Pass.TIMING
) -> dict[str, str]:
    request = replace(REQUEST, case=replace(CASE, delegate=delegate, flags=own), run_pass=run_pass)
    return litert_flags(request, folder="/run")


def test_only_an_npu_is_told_the_folders_of_its_libraries() -> None:
    npu = flags(DelegateName.NPU)
    assert npu["dispatch_library_path"] == npu["compiler_plugin_library_path"] == "/x/p"
    assert "dispatch_library_path" not in flags(DelegateName.GPU)


def test_a_cold_start_has_no_cache() -> None:
    caches = (
        ("compiler_cache_path", "/c"),
        ("gpu_model_cache_key", "m"),
        ("gpu_serialization_dir", "/c"),
        ("xnnpack_weight_cache_file_path", "/c/x"),
    )
    timing = flags(DelegateName.GPU, *caches[1:]) | flags(DelegateName.NPU, *caches[:1])
    assert timing.items() >= set(caches)
    for delegate, own in ((DelegateName.GPU, caches[1:]), (DelegateName.NPU, caches[:1])):
        assert "/c" not in str(flags(delegate, *own, run_pass=Pass.COLD))


def test_the_profile_and_the_memory_are_passes_without_runtime_info() -> None:
    assert flags(DelegateName.GPU)["model_runtime_info_output_file"] == "/run/runtime_info.pb"
    assert flags(DelegateName.GPU, run_pass=Pass.PROFILE)["use_profiler"] == "true"
    assert flags(DelegateName.GPU, run_pass=Pass.MEMORY)["report_peak_memory_footprint"] == "true"
    for run_pass in (Pass.TIMING, Pass.COLD, Pass.SUSTAINED, Pass.REFERENCE):
        assert "use_profiler" not in flags(DelegateName.GPU, run_pass=run_pass)


@pytest.mark.parametrize(
    ("delegate", "flag", "said"),
    [
        (
            DelegateName.NPU,
            ("qualcomm_htp_perfomance_mode", "burst"),
            "did you mean --qualcomm_htp_performance_mode",
        ),
        (DelegateName.NPU, ("qualcomm_htp_performance_mode", "bursts"), "one of default"),
        (DelegateName.NPU, ("mediatek_nerun_pilot_version", "version8"), "no flag"),
        (DelegateName.GPU, ("qualcomm_profiling", "basic"), "does nothing without --use_npu"),
        (DelegateName.GPU, ("gpu_precision", "fp16"), "did you mean --gpu-precision"),
        (DelegateName.GPU, ("gpu_backend", "cl"), "one of webgpu"),
        (DelegateName.GPU, ("use_cpu", "true"), "can't be set as a flag"),
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
    assert words["LD_LIBRARY_PATH"] == "/x/p"
    assert words["ADSP_LIBRARY_PATH"].split(";")[0] == "/x/p"
    on_cpu = replace(REQUEST, case=replace(CASE, delegate=DelegateName.XNNPACK))
    assert "ADSP" not in environment(on_cpu)


def test_hexagon_gets_the_folder_of_its_skel_libraries_and_a_placed_file_its_path_on_the_phone() -> (
    None
):
    case = replace(
        CASE,
        tool=ToolName.NATIVE,
        delegate=DelegateName.HEXAGON,
        flags=(("delegate_serialize_dir", "@a b"),),
    )
    request = replace(
        REQUEST,
        case=case,
        file_paths={
            "libhexagon_nn_skel_v66.so": "/x/p/libhexagon_nn_skel_v66.so",
            "a b": "/x/p/a_b",
        },
    )
    words = shlex.split(NativeTool().command(request, "/run"))
    assert "--hexagon_lib_path=/x/p" in words
    assert "--delegate_serialize_dir=/x/p/a_b" in words
