"""The flags of the benchmark programs: name, type, default, the words of the echo, and a short
description.

Names, types, defaults, order and echo are facts of the real programs; the descriptions are this
project's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FlagType = Literal["int32", "float", "bool", "string"]
FlagValue = int | float | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag as ``--help`` lists it; ``echo`` is what the parameter log calls it ("" when it
    isn't logged).
    """

    name: str
    type: FlagType
    default: FlagValue
    echo: str
    help: str


def _flags(*rows: tuple[str, FlagType, FlagValue, str, str]) -> tuple[Flag, ...]:
    return tuple(Flag(name=r[0], type=r[1], default=r[2], echo=r[3], help=r[4]) for r in rows)


CORE_FLAGS: Final = _flags(
    ("num_runs", "int32", 50, "Min num runs", "least number of measured runs"),
    (
        "min_secs",
        "float",
        1.0,
        "Min runs duration (seconds)",
        "least duration of the measured runs, in seconds",
    ),
    (
        "max_secs",
        "float",
        150.0,
        "Max runs duration (seconds)",
        "no run begins later than this, in seconds",
    ),
    ("run_delay", "float", -1.0, "Inter-run delay (seconds)", "pause between runs, in seconds"),
    (
        "run_frequency",
        "float",
        -1.0,
        "Number of prorated runs per second",
        "runs a second; overrides run_delay",
    ),
    ("num_threads", "int32", -1, "Num threads", "number of threads"),
    ("use_caching", "bool", False, "Use caching", "keep prepacked weights (Ruy)"),
    ("benchmark_name", "string", "", "Benchmark name", "a label"),
    ("output_prefix", "string", "", "Output prefix", "a label for output"),
    ("warmup_runs", "int32", 1, "Min warmup runs", "least number of warm-up runs"),
    (
        "warmup_min_secs",
        "float",
        0.5,
        "Min warmup runs duration (seconds)",
        "least duration of the warm-up, in seconds",
    ),
    ("verbose", "bool", False, "", "log every parameter, not only those that were given"),
    ("dry_run", "bool", False, "Run w/o invoking kernels", "load and allocate only"),
    (
        "report_peak_memory_footprint",
        "bool",
        False,
        "Report the peak memory footprint",
        "sample the memory in use",
    ),
    (
        "memory_footprint_check_interval_ms",
        "int32",
        50,
        "Memory footprint check interval (ms)",
        "time between two samples of the memory in use",
    ),
    (
        "gpu_invoke_loop_times",
        "int32",
        1,
        "",
        "inferences per measured run, for builds with the invoke loop",
    ),
)

MODEL_FLAGS: Final = _flags(
    ("graph", "string", "", "Graph", "the model file"),
    ("input_layer", "string", "", "Input layers", "names of the inputs"),
    ("input_layer_shape", "string", "", "Input shapes", "shapes of the inputs"),
    (
        "input_layer_value_range",
        "string",
        "",
        "Input value ranges",
        "name,low,high of integer inputs, with ':' between",
    ),
    (
        "input_layer_value_files",
        "string",
        "",
        "Input value files",
        "name:path of input values, with ',' between",
    ),
    ("allow_fp16", "bool", False, "Allow fp16", "let f32 be computed in fp16"),
    (
        "require_full_delegation",
        "bool",
        False,
        "Require full delegation",
        "fail unless a delegate runs all",
    ),
    ("enable_op_profiling", "bool", False, "Enable op profiling", "measure each operator"),
    (
        "op_profiling_output_mode",
        "string",
        "stdout",
        "Op profiling output mode.",
        "'stdout', 'csv' or 'proto'",
    ),
    (
        "op_profiling_output_file",
        "string",
        "",
        "Op profiling output file.",
        "where operator times go",
    ),
    (
        "max_profiling_buffer_entries",
        "int32",
        1024,
        "Max initial profiling buffer entries",
        "size of the profiler's buffer",
    ),
    (
        "allow_dynamic_profiling_buffer_increase",
        "bool",
        False,
        "Allow dynamic increase on profiling buffer entries",
        "let the profiler's buffer grow",
    ),
    (
        "profiling_output_csv_file",
        "string",
        "",
        "CSV File to export profiling data to",
        "old name: operator times as CSV",
    ),
    (
        "export_model_runtime_info",
        "bool",
        False,
        "Enable Model Runtime Info Export",
        "write which node runs where",
    ),
    (
        "model_runtime_info_output_file",
        "string",
        "",
        "Proto File to export model runtime info to",
        "where it is written",
    ),
    (
        "print_preinvoke_state",
        "bool",
        False,
        "Print pre-invoke interpreter state",
        "list tensors and nodes before the runs",
    ),
    (
        "print_postinvoke_state",
        "bool",
        False,
        "Print post-invoke interpreter state",
        "list tensors and nodes after the runs",
    ),
    (
        "release_dynamic_tensors",
        "bool",
        False,
        "Release dynamic tensor memory",
        "free dynamic tensors early",
    ),
    (
        "optimize_memory_for_large_tensors",
        "int32",
        0,
        "Optimize memory usage for large tensors",
        "from how many bytes a tensor is freed early",
    ),
    (
        "disable_delegate_clustering",
        "bool",
        False,
        "Disable delegate clustering",
        "keep partitions as they come",
    ),
    (
        "enable_builtin_cast_constant_cache",
        "bool",
        False,
        "Constant CAST output cache",
        "cast constants once",
    ),
    (
        "output_filepath",
        "string",
        "",
        "File path to export outputs layer to",
        "where raw outputs go",
    ),
    (
        "output_proto_filepath",
        "string",
        "",
        "File path to export outputs layer as tf example to",
        "where outputs go as a tf.Example",
    ),
    (
        "tensor_name_display_length",
        "int32",
        25,
        "Tensor name display length",
        "column width in the state list",
    ),
    (
        "tensor_type_display_length",
        "int32",
        15,
        "Tensor type display length",
        "column width in the state list",
    ),
    (
        "alloc_type_display_length",
        "int32",
        18,
        "Tensor allocation type display length",
        "column width in the state list",
    ),
    (
        "signature_to_run_for",
        "string",
        "",
        "Signature to run",
        "which signature to run; needed with several",
    ),
    (
        "list_signatures",
        "bool",
        False,
        "List signatures from the provided model",
        "list the signatures and end",
    ),
    (
        "result_file_path",
        "string",
        "",
        "File path to save the benchmark result in binary proto format",
        "where the result goes as a proto",
    ),
)

DEFAULT_FLAGS: Final = _flags(
    ("help", "bool", False, "print out all supported flags", "list all flags"),
    (
        "num_threads",
        "int32",
        -1,
        "#threads used for CPU inference",
        "threads for inference on the CPU",
    ),
    (
        "max_delegated_partitions",
        "int32",
        0,
        "Max number of delegated partitions",
        "how many partitions a delegate gets",
    ),
    (
        "min_nodes_per_partition",
        "int32",
        0,
        "Min nodes per partition",
        "least size of a delegated partition",
    ),
    (
        "first_delegate_node_index",
        "int32",
        0,
        "Index of the first node that could be delegated",
        "for debugging builds",
    ),
    (
        "last_delegate_node_index",
        "int32",
        2147483647,
        "Index of the last node that could be delegated",
        "for debugging builds",
    ),
    (
        "gpu_invoke_loop_times",
        "int32",
        -1,
        "Number of GPU delegate invoke loop iterations",
        "for builds with the loop",
    ),
    (
        "delegate_serialize_dir",
        "string",
        "",
        "Directory for delegate serialization",
        "where delegates keep compiled models",
    ),
    (
        "delegate_serialize_token",
        "string",
        "",
        "Model-specific token/key for delegate serialization.",
        "name of the compiled model",
    ),
)

XNNPACK_FLAGS: Final = _flags(
    (
        "use_xnnpack",
        "bool",
        False,
        "Use xnnpack",
        "apply XNNPACK explicitly; false keeps it away altogether",
    ),
    ("xnnpack_force_fp16", "bool", False, "xnnpack_force_fp16", "compute in fp16"),
    (
        "xnnpack_weight_cache_file_path",
        "string",
        "",
        "xnnpack_weight_cache_file_path",
        "keep packed weights in a file",
    ),
    (
        "xnnpack_runtime_flags",
        "int32",
        0,
        "Extra flags for XNNPACK runtime",
        "flags for XNNPACK's runtime",
    ),
)

EXTERNAL_FLAGS: Final = _flags(
    (
        "external_delegate_path",
        "string",
        "",
        "External delegate path",
        "library of another delegate",
    ),
    (
        "external_delegate_options",
        "string",
        "",
        "External delegate options",
        "its options, key:value",
    ),
)

GPU_FLAGS: Final = _flags(
    ("use_gpu", "bool", False, "Use gpu", "apply the GPU delegate"),
    ("gpu_precision_loss_allowed", "bool", True, "Allow lower precision in gpu", "compute in fp16"),
    (
        "gpu_experimental_enable_quant",
        "bool",
        True,
        "Enable running quant models in gpu",
        "take quantized models too",
    ),
    (
        "gpu_inference_for_sustained_speed",
        "bool",
        False,
        "Prefer maximizing the throughput in gpu",
        "prefer throughput to the single answer",
    ),
    ("gpu_backend", "string", "", "GPU backend", "cl or gl"),
)

HEXAGON_FLAGS: Final = _flags(
    ("use_hexagon", "bool", False, "Use Hexagon", "apply the Hexagon delegate"),
    (
        "hexagon_lib_path",
        "string",
        "/data/local/tmp",
        "Hexagon lib path",
        "folder of the DSP libraries",
    ),
    ("hexagon_profiling", "bool", False, "Hexagon profiling", "measure operators on the DSP"),
)

NNAPI_FLAGS: Final = _flags(
    ("use_nnapi", "bool", False, "Use NNAPI", "apply the NNAPI delegate"),
    (
        "nnapi_execution_preference",
        "string",
        "",
        "NNAPI execution preference",
        "fast_single_answer, sustained_speed, low_power or undefined",
    ),
    (
        "nnapi_execution_priority",
        "string",
        "",
        "Model execution priority in nnapi",
        "default, low, medium or high",
    ),
    ("nnapi_accelerator_name", "string", "", "NNAPI accelerator name", "which device to use"),
    ("disable_nnapi_cpu", "bool", True, "Disable NNAPI cpu", "keep the reference device away"),
    ("nnapi_allow_fp16", "bool", False, "Allow fp16 in NNAPI", "let f32 be computed in fp16"),
    (
        "nnapi_allow_dynamic_dimensions",
        "bool",
        False,
        "Allow dynamic dimensions in NNAPI",
        "take dynamic shapes too",
    ),
    ("nnapi_use_burst_mode", "bool", False, "Use burst mode in NNAPI", "use burst execution"),
    ("nnapi_support_library_path", "string", "", "", "a library in place of the phone's NNAPI"),
)

STABLE_FLAGS: Final = _flags(
    (
        "stable_delegate_settings_file",
        "string",
        "",
        "Delegate settings file path",
        "settings of a stable delegate",
    ),
)

#: The flags of a build for Android with every delegate linked, in the order of its --help.
ANDROID_FLAGS: Final = (
    CORE_FLAGS
    + MODEL_FLAGS
    + DEFAULT_FLAGS
    + XNNPACK_FLAGS
    + EXTERNAL_FLAGS
    + GPU_FLAGS
    + HEXAGON_FLAGS
    + NNAPI_FLAGS
    + STABLE_FLAGS
)
#: A build with the CPU's delegates only.
CPU_FLAGS: Final = CORE_FLAGS + MODEL_FLAGS + DEFAULT_FLAGS + XNNPACK_FLAGS + EXTERNAL_FLAGS

#: The flags that performance options has of its own.
PERFORMANCE_FLAGS: Final = _flags(
    ("perf_options_list", "string", "all", "", "which options to run, with commas between"),
    ("option_benchmark_run_delay", "float", -1.0, "", "pause between two options, in seconds"),
    ("random_shuffle_benchmark_runs", "bool", True, "", "run the options in random order"),
    (
        "gpu_invoke_loop_times",
        "int32",
        1,
        "",
        "inferences per measured run, for builds with the invoke loop",
    ),
)

#: Logged only in runs that use NNAPI.
NNAPI_DETAILS: Final = frozenset(flag.name for flag in NNAPI_FLAGS) - {"use_nnapi"}
#: Logged even when they weren't given.
ALWAYS_ECHOED: Final = frozenset({"graph", "signature_to_run_for"})
#: The order of the parameter log where it isn't that of --help.
ECHO_FIRST: Final = ("graph", "signature_to_run_for", "list_signatures")
