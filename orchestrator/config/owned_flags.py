"""Flags of the benchmark programs that follow from a plan's own keys, and can't be set beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OWNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "models sets it": ("graph",),
    "matrix.threads sets it": ("num_threads",),
    "matrix.delegates sets it": ("use_gpu", "use_nnapi", "use_hexagon", "use_coreml"),
    "settings sets it": ("num_runs", "min_secs", "max_secs", "warmup_runs", "warmup_min_secs"),
    "passes says what each invocation is for": (
        "enable_op_profiling", "op_profiling_output_mode", "op_profiling_output_file", "profiling_output_csv_file",
        "report_peak_memory_footprint",
    ),
    "benchfarm sets it for each run": (
        "result_file_path", "export_model_runtime_info", "model_runtime_info_output_file",
    ),
    "with it nothing is measured": ("help", "dry_run", "list_signatures"),
}  # fmt: skip

#: Flag -> who sets it. The programs take the first of two equal flags and hardly mention the second.
OWNED_FLAGS: Final[Mapping[str, str]] = {name: owner for owner, names in _OWNERS.items() for name in names}
