"""The documented flags of the benchmark programs: type, default, which build has them, and what
depends on what.

A program's own ``--help`` is the better source where it can be had; these tables add what it
doesn't say. Facts from the sources of August 2026.

A vendor's options are looked at only with ``use_npu``. The program removes every flag that begins
with a vendor's name from the command line, known or not, and so never says that one is misspelt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: One row: name, type, default, build, meaning. A type as ``cl|gl`` lists the only values that a
#: string may have; another is ignored without a word or refused at start. Builds: "all", "android",
#: "ios", "gpu" (built with the GPU delegate), "hexagon", "ynnpack", "nnapi", "coreml", "stable"
#: (built with that provider).
Row = tuple[str, str, str, str, str]

CORE: Final[tuple[Row, ...]] = (
    (
        "num_runs",
        "int32",
        "50",
        "all",
        "least number of measured inferences; min_secs may make it more",
    ),
    ("min_secs", "float", "1", "all", "least duration of the measurement in seconds"),
    (
        "max_secs",
        "float",
        "150",
        "all",
        "longest duration in seconds, of warm-up and measurement each",
    ),
    ("run_delay", "float", "-1", "all", "pause between inferences in seconds; 0 or less is none"),
    (
        "run_frequency",
        "float",
        "-1",
        "all",
        "inferences per second at a fixed rate; overrides run_delay",
    ),
    ("num_threads", "int32", "-1", "all", "CPU threads; -1 leaves it to the runtime"),
    ("use_caching", "bool", "false", "all", "cache packed weights (Ruy)"),
    ("benchmark_name", "string", "", "all", "a label that is only echoed"),
    ("output_prefix", "string", "", "all", "a label that is only echoed"),
    ("warmup_runs", "int32", "1", "all", "least number of warm-up inferences"),
    ("warmup_min_secs", "float", "0.5", "all", "least duration of the warm-up in seconds"),
    ("verbose", "bool", "false", "all", "echo every parameter, not only those given"),
    ("dry_run", "bool", "false", "all", "load and prepare without inference; prints count=0"),
    (
        "report_peak_memory_footprint",
        "bool",
        "false",
        "all",
        "sample memory in a thread of its own; perturbs times",
    ),
    (
        "memory_footprint_check_interval_ms",
        "int32",
        "50",
        "all",
        "sampling interval in milliseconds, above 0",
    ),
    (
        "gpu_invoke_loop_times",
        "int32",
        "1",
        "all",
        "GPU invocations per inference, in special builds",
    ),
)
MODEL: Final[tuple[Row, ...]] = (
    ("graph", "string", "", "all", "the model file, or fd:N:offset:size"),
    (
        "signature_to_run_for",
        "string",
        "",
        "all",
        "which signature; needed when the model has several",
    ),
    ("list_signatures", "bool", "false", "all", "list the signatures and exit with 1"),
    (
        "input_layer",
        "string",
        "",
        "all",
        "names of the inputs in the model's order, comma-separated",
    ),
    ("input_layer_shape", "string", "", "all", "shapes of the inputs, as 1,224,224,3:1,20; no -1"),
    (
        "input_layer_value_range",
        "string",
        "",
        "all",
        "range of random inputs, as name,low,high:..., whole numbers",
    ),
    (
        "input_layer_value_files",
        "string",
        "",
        "all",
        "input files, as name:path,...; of exactly the tensor's bytes",
    ),
    ("allow_fp16", "bool", "false", "all", "let float32 be computed in float16 where a kernel can"),
    (
        "require_full_delegation",
        "bool",
        "false",
        "all",
        "fail when an applied delegate leaves operators to the CPU",
    ),
    ("enable_op_profiling", "bool", "false", "all", "time each operator; perturbs latency"),
    (
        "op_profiling_output_mode",
        "stdout|csv|proto",
        "stdout",
        "all",
        "form of the profile: stdout, csv or proto",
    ),
    ("op_profiling_output_file", "string", "", "all", "where the profile goes; empty is the log"),
    ("max_profiling_buffer_entries", "int32", "1024", "all", "first size of the profiling buffer"),
    (
        "allow_dynamic_profiling_buffer_increase",
        "bool",
        "false",
        "all",
        "let the profiling buffer grow",
    ),
    (
        "profiling_output_csv_file",
        "string",
        "",
        "all",
        "deprecated: op_profiling_output_file with mode csv",
    ),
    ("export_model_runtime_info", "bool", "false", "all", "write which delegate took which node"),
    ("model_runtime_info_output_file", "string", "", "all", "where the runtime info goes"),
    (
        "print_preinvoke_state",
        "bool",
        "false",
        "all",
        "print the interpreter before the inferences",
    ),
    (
        "print_postinvoke_state",
        "bool",
        "false",
        "all",
        "print the interpreter after the inferences",
    ),
    ("release_dynamic_tensors", "bool", "false", "all", "free dynamic tensors when unused"),
    (
        "optimize_memory_for_large_tensors",
        "int32",
        "0",
        "all",
        "size in bytes from which tensors are freed early",
    ),
    (
        "disable_delegate_clustering",
        "bool",
        "false",
        "all",
        "don't join nodes into larger partitions",
    ),
    ("enable_builtin_cast_constant_cache", "bool", "false", "all", "cache CAST of constants"),
    ("output_filepath", "string", "", "all", "where the raw outputs of the last inference go"),
    ("output_proto_filepath", "string", "", "all", "where the outputs go as a tensorflow.Example"),
    ("result_file_path", "string", "", "all", "where the result proto goes"),
    ("tensor_name_display_length", "int32", "25", "all", "width in the state dump"),
    ("tensor_type_display_length", "int32", "15", "all", "width in the state dump"),
    ("alloc_type_display_length", "int32", "18", "all", "width in the state dump"),
)
DELEGATES: Final[tuple[Row, ...]] = (
    ("help", "bool", "false", "all", "print the flags and exit with 1"),
    (
        "max_delegated_partitions",
        "int32",
        "0",
        "all",
        "most partitions for GPU, NNAPI, Hexagon, Core ML; 0 is theirs",
    ),
    (
        "min_nodes_per_partition",
        "int32",
        "0",
        "all",
        "least nodes per partition for Hexagon, Core ML",
    ),
    (
        "first_delegate_node_index",
        "int32",
        "0",
        "all",
        "first node that may be delegated, in debug builds",
    ),
    (
        "last_delegate_node_index",
        "int32",
        "2147483647",
        "all",
        "last node that may be delegated, in debug builds",
    ),
    (
        "delegate_serialize_dir",
        "string",
        "",
        "all",
        "folder for compiled delegates; needs delegate_serialize_token",
    ),
    (
        "delegate_serialize_token",
        "string",
        "",
        "all",
        "name of the model there; needs delegate_serialize_dir",
    ),
    (
        "use_xnnpack",
        "bool",
        "false",
        "all",
        "apply XNNPACK; unless it is given, the runtime applies it by itself",
    ),
    ("xnnpack_force_fp16", "bool", "false", "all", "compute in float16"),
    ("xnnpack_weight_cache_file_path", "string", "", "all", "file that keeps packed weights"),
    ("xnnpack_runtime_flags", "int32", "0", "all", "further flags of XNNPACK's runtime"),
    ("use_ynnpack", "bool", "false", "ynnpack", "apply YNNPACK"),
    ("ynnpack_static_shape", "bool", "false", "ynnpack", "assume fixed shapes"),
    ("ynnpack_fast_math", "bool", "false", "ynnpack", "allow faster, less exact arithmetic"),
    ("ynnpack_consistent_arithmetic", "bool", "false", "ynnpack", "the same results everywhere"),
    ("ynnpack_no_excess_precision", "bool", "false", "ynnpack", "no more precision than asked"),
    ("use_gpu", "bool", "false", "gpu", "apply the GPU delegate"),
    ("gpu_precision_loss_allowed", "bool", "true", "gpu", "compute in float16"),
    ("gpu_experimental_enable_quant", "bool", "true", "gpu", "take quantised models"),
    (
        "gpu_inference_for_sustained_speed",
        "bool",
        "false",
        "gpu",
        "prefer throughput over a single answer",
    ),
    ("gpu_backend", "cl|gl", "", "gpu", "force a backend: cl or gl"),
    (
        "gpu_wait_type",
        "passive|active|do_not_wait|aggressive",
        "",
        "ios",
        "passive, active, do_not_wait or aggressive",
    ),
    ("use_nnapi", "bool", "false", "nnapi", "apply the NNAPI delegate"),
    (
        "nnapi_execution_preference",
        "fast_single_answer|sustained_speed|low_power|undefined",
        "",
        "nnapi",
        "fast_single_answer, sustained_speed, low_power, undefined",
    ),
    (
        "nnapi_execution_priority",
        "default|low|medium|high",
        "",
        "nnapi",
        "default, low, medium or high (Android 11 and later)",
    ),
    ("nnapi_accelerator_name", "string", "", "nnapi", "which accelerator (Android 10 and later)"),
    ("disable_nnapi_cpu", "bool", "true", "nnapi", "keep NNAPI from its own CPU implementation"),
    ("nnapi_allow_fp16", "bool", "false", "nnapi", "let float32 be computed in float16"),
    ("nnapi_allow_dynamic_dimensions", "bool", "false", "nnapi", "take models with dynamic shapes"),
    (
        "nnapi_use_burst_mode",
        "bool",
        "false",
        "nnapi",
        "keep the accelerator's resources between inferences",
    ),
    (
        "nnapi_support_library_path",
        "string",
        "",
        "nnapi",
        "a support library instead of the system's NNAPI",
    ),
    ("use_hexagon", "bool", "false", "hexagon", "apply the Hexagon delegate"),
    (
        "hexagon_lib_path",
        "string",
        "/data/local/tmp",
        "hexagon",
        "folder of the libhexagon_nn_skel libraries",
    ),
    ("hexagon_profiling", "bool", "false", "hexagon", "profile on the DSP; the figures are cycles"),
    ("use_coreml", "bool", "false", "coreml", "apply the Core ML delegate"),
    ("coreml_version", "int32", "0", "coreml", "2 or 3; 0 is the newest"),
    (
        "external_delegate_path",
        "string",
        "",
        "all",
        "library of an external delegate; a bad path falls back silently",
    ),
    ("external_delegate_options", "string", "", "all", "its options, as key:value;key:value"),
    (
        "stable_delegate_settings_file",
        "string",
        "",
        "stable",
        "settings of a stable delegate, JSON",
    ),
)
LITERT: Final[tuple[Row, ...]] = (
    ("graph", "string", "", "all", "the model file"),
    ("signature_to_run_for", "string", "", "all", "which signature; empty is the first"),
    ("use_cpu", "bool", "true", "all", "allow the CPU; incompatible with require_full_delegation"),
    ("use_gpu", "bool", "false", "all", "use the GPU accelerator"),
    ("use_npu", "bool", "false", "all", "use the NPU through a vendor's dispatch library"),
    ("dispatch_library_path", "string", "", "all", "folder of the dispatch library"),
    ("compiler_plugin_library_path", "string", "", "all", "folder of the compiler plugin"),
    ("compiler_cache_path", "string", "", "all", "folder that keeps compiled models"),
    (
        "require_full_delegation",
        "bool",
        "false",
        "all",
        "fail when operators stay on the CPU; needs use_cpu=false",
    ),
    ("use_profiler", "bool", "false", "all", "time each operator; lowers the GPU's priority"),
    ("enable_perfetto", "bool", "false", "all", "write trace events"),
    ("gpu_backend", "webgpu|opengl|gl", "", "all", "webgpu, opengl or gl; empty is OpenCL"),
    ("gpu-precision", "auto|fp16|fp32", "auto", "all", "auto, fp16 or fp32"),
    ("gpu_low_priority", "bool", "false", "all", "run below other GPU work"),
    ("enable_weight_sharing", "bool", "false", "all", "share weights between signatures"),
    ("convert_weights_on_gpu", "bool", "false", "all", "convert weights on the GPU"),
    (
        "gpu_serialize_external_tensors",
        "bool",
        "false",
        "all",
        "keep external tensors in the cache",
    ),
    ("gpu_prefer_texture_weights", "bool", "false", "all", "keep weights in textures"),
    (
        "gpu_wait_for_weights_conversion_complete",
        "bool",
        "false",
        "all",
        "wait for the conversion of weights",
    ),
    ("gpu_cache_compiled_programs_only", "bool", "false", "all", "cache programs without weights"),
    (
        "gpu_serialization_dir",
        "string",
        "",
        "all",
        "folder of the GPU cache; needs gpu_model_cache_key",
    ),
    (
        "gpu_model_cache_key",
        "string",
        "",
        "all",
        "name of the model there; needs gpu_serialization_dir",
    ),
    ("xnnpack_weight_cache_file_path", "string", "", "all", "file that keeps packed weights"),
    ("result_file_path", "string", "", "all", "where the result proto goes"),
    ("model_runtime_info_output_file", "string", "", "all", "where the runtime info goes"),
    (
        "input_layer_value_range",
        "string",
        "",
        "all",
        "range of random inputs, as name,low,high:...",
    ),
)

#: A flag that does nothing unless another is set (to true, or to anything where that is a string).
#: One that begins with a delegate's name needs the delegate's switch where nothing else is said.
NEEDS: Final[Mapping[str, str]] = {
    "gpu_invoke_loop_times": "",
    "op_profiling_output_mode": "enable_op_profiling",
    "op_profiling_output_file": "enable_op_profiling",
    "profiling_output_csv_file": "enable_op_profiling",
    "max_profiling_buffer_entries": "enable_op_profiling",
    "allow_dynamic_profiling_buffer_increase": "enable_op_profiling",
    "model_runtime_info_output_file": "export_model_runtime_info",
    "export_model_runtime_info": "model_runtime_info_output_file",
    "memory_footprint_check_interval_ms": "report_peak_memory_footprint",
    "delegate_serialize_dir": "delegate_serialize_token",
    "delegate_serialize_token": "delegate_serialize_dir",
    "disable_nnapi_cpu": "use_nnapi",
    "external_delegate_options": "external_delegate_path",
}
LITERT_NEEDS: Final[Mapping[str, str]] = {
    "gpu_invoke_loop_times": "",
    "xnnpack_weight_cache_file_path": "",
    "dispatch_library_path": "use_npu",
    "compiler_plugin_library_path": "use_npu",
    "compiler_cache_path": "use_npu",
    "gpu-precision": "use_gpu",
    "convert_weights_on_gpu": "use_gpu",
    "gpu_serialization_dir": "gpu_model_cache_key",
    "gpu_model_cache_key": "gpu_serialization_dir",
    "memory_footprint_check_interval_ms": "report_peak_memory_footprint",
}


TRAPS: Final[Mapping[str, str]] = {
    "num_runs": "min_secs keeps the program running beyond it, and max_secs may end it before",
    "min_secs": "below 1 a short run mostly measures how the clocks rise after a pause",
    "max_secs": "looked at between inferences only, so that one long inference outlasts it",
    "run_delay": "ignored when run_frequency is above 0",
    "num_threads": "defined twice, by the program and by its delegates, and listed twice by --help; XNNPACK makes "
    "no thread pool for 1 or less",
    "warmup_runs": "the first inference of the warm-up is what is reported as the first inference",
    "dry_run": "prints count=0 and all-zero figures, and ends with exit code 0",
    "help": "ends with exit code 1 and 'Benchmarking failed.'",
    "list_signatures": "ends with exit code 1 and 'Benchmarking failed.'",
    "report_peak_memory_footprint": "samples in a thread of its own, which perturbs the times",
    "memory_footprint_check_interval_ms": "0 or less is replaced by 50 with a warning",
    "input_layer_value_range": "takes whole numbers only, also for floats",
    "input_layer_value_files": "a ':' in a path is written '::', whatever --help says; a file of another size than the "
    "tensor aborts the program",
    "input_layer_shape": "-1 is refused; the shapes must name every input",
    "require_full_delegation": "doesn't count the XNNPACK that the runtime applies by itself: without a delegate of "
    "its own a run always fails",
    "enable_op_profiling": "a model of microseconds runs many times slower with it; warm-up inferences aren't profiled",
    "op_profiling_output_mode": "in csv, commas within a node type aren't escaped",
    "profiling_output_csv_file": "deprecated, and forces the mode csv",
    "use_xnnpack": "left out, the runtime applies XNNPACK all the same; only false means builtin kernels. benchfarm "
    "always passes it",
    "xnnpack_weight_cache_file_path": "the first run writes the file and gains nothing",
    "delegate_serialize_dir": "the folder must exist; it is read by the GPU and NNAPI delegates only, and by neither "
    "without delegate_serialize_token",
    "delegate_serialize_token": "the same token for another model makes the two overwrite each other's cache",
    "use_gpu": "a program built without the GPU delegate, or on a system without one, goes on on the CPU and ends "
    "with exit code 0",
    "gpu_backend": "any value but cl and gl is ignored without a word; without the flag OpenGL stands in for OpenCL",
    "gpu_precision_loss_allowed": "true is the default: figures of the GPU are float16 unless this is false",
    "use_nnapi": "without a driver the program goes on on the CPU and ends with exit code 0",
    "nnapi_accelerator_name": "'nnapi-reference' is NNAPI's own CPU implementation, no accelerator",
    "disable_nnapi_cpu": "ignored when an accelerator is named",
    "nnapi_support_library_path": "needs nnapi_accelerator_name as well",
    "use_hexagon": "needs libhexagon_interface.so and skel libraries of one version on the phone",
    "hexagon_profiling": "its figures are cycles of the DSP, no times",
    "external_delegate_path": "a library that can't be loaded is passed over without a word, and the CPU is measured",
    "external_delegate_options": "separated by ';' although the program's help says comma; malformed pairs are dropped",
    "coreml_version": "2 or 3; anything else is the newest",
    "first_delegate_node_index": "looked at by debug builds only",
    "last_delegate_node_index": "looked at by debug builds only",
    "result_file_path": "figures in it are rounded to 7 digits, those in the log to 6",
    "use_profiler": "with the GPU it also lowers the GPU's priority: such times can't be compared",
    "use_cpu": "true by default, so that operators which the accelerator leaves run on the CPU unnoticed",
}


_HTP_MODES: Final = (
    "default|sustained_high_performance|burst|high_performance|power_saver|low_power_saver|high_power_saver"
    "|low_balanced|balanced"
)
#: Vendors' options by their names without the vendor's, each with its type and its default. Retired
#: ones and those that can't be reached aren't among them.
VENDORS: Final[Mapping[str, str]] = {
    "qualcomm": f"""
        log_level:off|error|warn|info|verbose|debug=info htp_performance_mode:{_HTP_MODES}|extreme_power_saver=default
        dsp_performance_mode:{_HTP_MODES}=default htp_perf_ctrl_mode:manual|auto=manual
        dsp_perf_ctrl_mode:manual|auto=manual graph_io_tensor_mem_type:raw|memhandle=memhandle
        profiling:off|basic|detailed|linting|optrace=off optimization_level:O1|O2|O3=O3
        graph_priority:default|low|normal|normal_high|high=default backend:gpu|htp|dsp|ir|lpai=htp
        lpai_target:x86|arm|adsp|tensilica=adsp lpai_client_perf_type:default|real_time|non_real_time=default
        lpai_core_affinity_type:default|soft|hard=default enable_weight_sharing:bool=false
        enable_just_in_time:bool=false use_int64_bias_as_int32:bool=true use_conv_hmx:bool=true use_fold_relu:bool=true
        vtcm_size:int32=0 num_hvx_thread:int32=0 htp_p_point:int32=0 lpai_fps:int32=1 lpai_ftrt_ratio:int32=10
        lpai_core_selection:int32=0 dump_tensor_ids:string= ir_json_dir:string= dlc_dir:string= graph_transform:string=
        saver_output_dir:string= schematic_dir:string= custom_op_package:string=
    """,
    "mediatek": """
        sdk_version_type:version7|version8|version9=version8
        performance_mode_type:low_power|fast_single_answer|sustained_speed|turbo_boost=sustained_speed
        optimization_hint:normal|low_latency|deep_fusion|batch_processing=normal
        enable_gemma_compiler_optimizations:bool=false enable_l1_cache_optimizations:bool=false
        disable_dla_dir_removal:bool=false dla_dir:string= aot_compilation_options:string=
    """,
    "google_tensor": """
        truncation_type:auto|no_truncation|bfloat16|half=auto
        sharding_intensity:unspecified|minimal|moderate|extensive|maximum=unspecified
        performance_mode:extreme_power_saver|power_saver|balanced|high_performance|sustained_performance|burst=balanced
        int64_to_int32:bool=false dump_op_timings:bool=false enable_large_model_support:bool=false
        enable_4bit_compilation:bool=false enable_dynamic_range_quantization:bool=false op_filters_proto:string=
        extra_options_path:string= extra_options:string=
    """,
    "intel_openvino": """
        performance_mode:latency|throughput|cumulative_throughput=latency configs_map:string= graph_backends:string=
        graph_configs_map:string=
    """,
    "samsung": """
        large_model_support:bool=false soc_model:string=E9965
    """,
}
