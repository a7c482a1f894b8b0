"""benchmark_litert_model: the newer runtime's program, with the same core and a banner of its own
on stderr.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.programs.benchmark import BenchmarkRun, Results
from benchfarm_virtual.programs.delegates import DELEGATES
from benchfarm_virtual.programs.flags import (
    FLAGS,
    FlagError,
    Parameters,
    parse_flags,
    part_flags,
    usage,
)
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    RuntimeSeverity,
    Transcript,
    announce,
)
from benchfarm_virtual.programs.reports import save_result

#: Flags of the delegates that only this program has.
_DELEGATE_FLAGS: Final = tuple(flag for delegate in DELEGATES for flag in delegate.litert_flags)
LITERT_FLAGS: Final = (*part_flags("core", "litert"), *_DELEGATE_FLAGS, *FLAGS["litert_options"])
#: Flags of the vendors' options; the program first removes them from argv, whatever their values.
_VENDOR: Final = re.compile(r"--(no)?(qualcomm|mediatek|google_tensor|intel_openvino|samsung)_.*")
_FILE: Final = "benchmark_litert_model.h"


def run_litert(call: Invocation, version: str) -> int:
    """Run it; return its exit code (0 also for --help)."""
    say = Transcript(call)
    announce(call, "start")
    name, *all_arguments = call.launch.argv
    arguments = [argument for argument in all_arguments if not _VENDOR.fullmatch(argument)]
    if "--help" in arguments or "-h" in arguments:
        say.error(usage(name, LITERT_FLAGS))
        return 0
    say.info("STARTING!")
    try:
        parameters = parse_flags(LITERT_FLAGS, arguments)
        if parameters.unconsumed:
            say.warn("Unconsumed cmdline flags: " + " ".join(parameters.unconsumed))
        shared = _as_benchmark_model(parameters)
        results = BenchmarkRun(call, say, shared, version, is_litert=True).run()
    except FlagError as error:
        say.error(str(error))
        say.error(usage(name, LITERT_FLAGS))
        return 1
    except BenchmarkFailedError:
        say.error("Benchmarking failed.")
        return 1
    _banner(call, parameters, say, results)
    return 0


def _banner(call: Invocation, parameters: Parameters, say: Transcript, results: Results) -> None:
    runs, warmup, footprint = results.runs, results.warmup, results.footprint
    _log(say, 89, "\n========== BENCHMARK RESULTS ==========")
    _log(say, 94, f"Model initialization: {results.init_us / 1e3:.2f} ms")
    _log(say, 95, f"Warmup (first):       {results.first_us / 1e3:.2f} ms")
    _log(say, 97, f"Warmup (avg):         {warmup.average / 1e3:.2f} ms ({warmup.count} runs)")
    if runs.count:
        values = runs.values
        _log(say, 99, f"Inference (avg):      {runs.average / 1e3:.2f} ms ({runs.count} runs)")
        _log(say, 103, f"Inference (min):      {int(values.min()) / 1e3:.2f} ms")
        _log(say, 105, f"Inference (max):      {int(values.max()) / 1e3:.2f} ms")
        _log(say, 107, f"Inference (std):      {runs.deviation / 1e3:.2f}")
        _log(
            say,
            115,
            f"Throughput:           {results.input_bytes / 2**20 / (runs.average / 1e6):.2f} MB/s",
        )
    else:
        _log(say, 110, "No inference runs were performed.")
    _log(say, 124, "\nMemory Usage:")
    _log(say, 125, f"Init footprint:       {footprint.init_kb / 1024:.2f} MB")
    _log(say, 127, f"Overall footprint:    {footprint.overall_kb / 1024:.2f} MB")
    if parameters.switch("report_peak_memory_footprint"):
        _log(say, 130, f"Peak memory:          {footprint.peak_kb / 1024:.2f} MB")
    else:
        _log(say, 132, "Peak memory usage not available. (peak_mem_mb <= 0)")
    _log(say, 138, "======================================\n")
    save_result(
        call,
        parameters,
        results,
        lambda text: _log(say, 177, text),
        lambda text: _log(say, 184, text, severity="ERROR"),
    )


def _log(say: Transcript, line: int, message: str, *, severity: RuntimeSeverity = "INFO") -> None:
    """Log a message with its source line, as the newer runtime does."""
    say.runtime(severity, f"[{_FILE}:{line}] {message}")


def _as_benchmark_model(parameters: Parameters) -> Parameters:
    """Return the shared core's flags for the same run, without its own last lines."""
    # Without their echo: this program doesn't log them.
    hidden = (*part_flags("model", "xnnpack", "gpu"), *_DELEGATE_FLAGS)
    shared = Parameters([*FLAGS["core"], *(replace(flag, echo="") for flag in hidden)])
    # The result's file is written by this program itself.
    for name in parameters.explicit - {"result_file_path"}:
        shared.set(name, parameters.values[name])
    if parameters.switch("use_gpu"):
        shared.set("gpu_precision_loss_allowed", parameters.text("gpu-precision") != "fp32")
    shared.set("enable_op_profiling", parameters.switch("use_profiler"))
    shared.set("export_model_runtime_info", "model_runtime_info_output_file" in parameters.explicit)
    return shared
