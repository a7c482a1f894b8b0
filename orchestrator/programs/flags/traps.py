"""What surprises people about single flags of the benchmark programs: facts of their sources and of real runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
    "result_file_path": "figures in it are rounded to 7 digits, those in the log to 6; performance_options overwrites "
    "it with each option",
    "perf_options_list": "the program stops at the first option that fails, and prints no summary then",
    "use_profiler": "with the GPU it also lowers the GPU's priority: such times can't be compared",
    "use_cpu": "true by default, so that operators which the accelerator leaves run on the CPU unnoticed",
}
