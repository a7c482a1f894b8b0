"""The flags of LiteRT's NPU vendors, as ``benchmark_litert_model`` takes them; facts from the sources of August 2026.

Consulted only with ``use_npu``. The program removes every flag that begins with a vendor's name from the command line,
known or not, and so never says that one is misspelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.records.flag import FlagSpec

_HTP_MODES: Final = (
    "default", "sustained_high_performance", "burst", "high_performance", "power_saver", "low_power_saver",
    "high_power_saver", "low_balanced", "balanced",
)  # fmt: skip

#: Name -> default and the values that it may have.
_CHOICES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "qualcomm_log_level": ("info", ("off", "error", "warn", "info", "verbose", "debug")),
    "qualcomm_htp_performance_mode": ("default", (*_HTP_MODES, "extreme_power_saver")),
    "qualcomm_dsp_performance_mode": ("default", _HTP_MODES),
    "qualcomm_htp_perf_ctrl_mode": ("manual", ("manual", "auto")),
    "qualcomm_dsp_perf_ctrl_mode": ("manual", ("manual", "auto")),
    "qualcomm_graph_io_tensor_mem_type": ("memhandle", ("raw", "memhandle")),
    "qualcomm_profiling": ("off", ("off", "basic", "detailed", "linting", "optrace")),
    "qualcomm_optimization_level": ("O3", ("O1", "O2", "O3")),
    "qualcomm_graph_priority": ("default", ("default", "low", "normal", "normal_high", "high")),
    "qualcomm_backend": ("htp", ("gpu", "htp", "dsp", "ir", "lpai")),
    "qualcomm_lpai_target": ("adsp", ("x86", "arm", "adsp", "tensilica")),
    "qualcomm_lpai_client_perf_type": ("default", ("default", "real_time", "non_real_time")),
    "qualcomm_lpai_core_affinity_type": ("default", ("default", "soft", "hard")),
    "mediatek_sdk_version_type": ("version8", ("version7", "version8", "version9")),
    "mediatek_performance_mode_type": (
        "sustained_speed", ("low_power", "fast_single_answer", "sustained_speed", "turbo_boost"),
    ),
    "mediatek_optimization_hint": ("normal", ("normal", "low_latency", "deep_fusion", "batch_processing")),
    "google_tensor_truncation_type": ("auto", ("auto", "no_truncation", "bfloat16", "half")),
    "google_tensor_sharding_intensity": (
        "unspecified", ("unspecified", "minimal", "moderate", "extensive", "maximum"),
    ),
    "google_tensor_performance_mode": (
        "balanced",
        ("extreme_power_saver", "power_saver", "balanced", "high_performance", "sustained_performance", "burst"),
    ),
    "intel_openvino_performance_mode": ("latency", ("latency", "throughput", "cumulative_throughput")),
}  # fmt: skip
_SWITCHES: Final[Mapping[str, str]] = {
    "qualcomm_enable_weight_sharing": "false",
    "qualcomm_enable_just_in_time": "false",
    "qualcomm_use_int64_bias_as_int32": "true",
    "qualcomm_use_conv_hmx": "true",
    "qualcomm_use_fold_relu": "true",
    "mediatek_enable_gemma_compiler_optimizations": "false",
    "mediatek_enable_l1_cache_optimizations": "false",
    "mediatek_disable_dla_dir_removal": "false",
    "google_tensor_int64_to_int32": "false",
    "google_tensor_dump_op_timings": "false",
    "google_tensor_enable_large_model_support": "false",
    "google_tensor_enable_4bit_compilation": "false",
    "google_tensor_enable_dynamic_range_quantization": "false",
    "samsung_large_model_support": "false",
}
_NUMBERS: Final[Mapping[str, str]] = {
    "qualcomm_vtcm_size": "0",
    "qualcomm_num_hvx_thread": "0",
    "qualcomm_htp_p_point": "0",
    "qualcomm_lpai_fps": "1",
    "qualcomm_lpai_ftrt_ratio": "10",
    "qualcomm_lpai_core_selection": "0",
}
_TEXTS: Final[Mapping[str, str]] = {
    "qualcomm_dump_tensor_ids": "",
    "qualcomm_ir_json_dir": "",
    "qualcomm_dlc_dir": "",
    "qualcomm_graph_transform": "",
    "qualcomm_saver_output_dir": "",
    "qualcomm_schematic_dir": "",
    "qualcomm_custom_op_package": "",
    "mediatek_dla_dir": "",
    "mediatek_aot_compilation_options": "",
    "google_tensor_op_filters_proto": "",
    "google_tensor_extra_options_path": "",
    "google_tensor_extra_options": "",
    "intel_openvino_configs_map": "",
    "intel_openvino_graph_backends": "",
    "intel_openvino_graph_configs_map": "",
    "samsung_soc_model": "E9965",
}


def vendor_flags() -> dict[str, FlagSpec]:
    """Return every vendor flag that has an effect, by its name. Retired ones and unreachable ones aren't among them."""
    return {spec.name: spec for spec in _specs()}


def _specs() -> Iterator[FlagSpec]:
    for kind, table in (("bool", _SWITCHES), ("int32", _NUMBERS), ("string", _TEXTS)):
        for name, default in table.items():
            yield _spec(name, kind, default)
    for name, (default, choices) in _CHOICES.items():
        yield _spec(name, "string", default, choices)


def _spec(name: str, kind: str, default: str, choices: tuple[str, ...] = ()) -> FlagSpec:
    vendor, _, option = name.partition("_")
    meaning = f"option {option} of the vendor's NPU ({vendor})"
    return FlagSpec(
        name=name, kind=kind, default=default, build="npu", meaning=meaning, choices=choices, needs="use_npu"
    )
