"""What the iOS benchmark apps print and show for given parameters, in the words of their sources."""

from collections.abc import Mapping

_ECHOES = (
    ("num_runs", "Min num runs"),
    ("min_secs", "Min runs duration (seconds)"),
    ("max_secs", "Max runs duration (seconds)"),
    ("num_threads", "Num threads"),
    ("benchmark_name", "Benchmark name"),
    ("warmup_runs", "Min warmup runs"),
    ("warmup_min_secs", "Min warmup runs duration (seconds)"),
    ("report_peak_memory_footprint", "Report the peak memory footprint"),
    ("graph", "Graph"),
    ("num_threads", "#threads used for CPU inference"),
    ("use_xnnpack", "Use xnnpack"),
    ("use_gpu", "Use gpu"),
    ("use_coreml", "Use CoreML"),
    ("gpu_wait_type", "GPU delegate wait type"),
)
_PHASE = (
    "INFO: Running benchmark for at least {runs} iterations and at least {least_s} seconds but terminate if exceeding "
    "150 seconds.\n"
)
FULL = "Explicitly applied {name} delegate, and the model graph will be completely executed by the delegate."
PARTIAL = (
    "Explicitly applied {name} delegate, and the model graph will be partially executed by the delegate w/ 3 delegate "
    "kernels."
)


def console(
    params: Mapping[str, str], *, size_bytes: int, mean_us: float = 4000.0, delegate_lines: str = ""
) -> str:
    """Return the console's text of one run."""
    given = {
        **params,
        "graph": f"/private/var/containers/Bundle/TFLiteBenchmark.app/{params['graph']}",
    }
    words = {"true": "1", "false": "0"}
    echoed = "".join(
        f"INFO: {echo}: [{words.get(given[f], given[f])}]\n" for f, echo in _ECHOES if f in given
    )
    count = max(int(params["num_runs"]), round(float(params["min_secs"]) * 1e6 / mean_us))
    stats = f"first={mean_us:.0f} curr={mean_us:.0f} min={mean_us - 90:.0f} max={mean_us + 90:.0f} avg={mean_us:g} std=40"
    return (
        "INFO: Log parameter values verbosely: [0]\n"
        f"{echoed}"
        f"INFO: Loaded model {given['graph']}\n"
        f"{delegate_lines}"
        f"INFO: The input model file size (MB): {size_bytes / 1e6:g}\n"
        "INFO: Initialized session in 23.5ms.\n"
        f"{_PHASE.format(runs=1, least_s=0.5)}"
        f"INFO: count={round(0.5e6 / mean_us)} {stats} p5=3990 median=4000 p95=4010\n\n"
        f"{_PHASE.format(runs=50, least_s=1)}"
        f"INFO: count={count} {stats} p5=3990 median={mean_us:.0f} p95=4010\n\n"
        f"INFO: Inference timings in us: Init: 23500, First inference: 5100, Warmup (avg): {mean_us:g}, "
        f"Inference (avg): {mean_us:g}\n"
    )


def litert_log(
    flags: Mapping[str, str], *, mean_us: float, delegate_lines: str, only_stderr: bool = False
) -> str:
    """Return the log of LiteRT's app for its flags; its first version mirrored standard error
    alone.
    """
    count = max(int(flags["num_runs"]), round(float(flags["min_secs"]) * 1e6 / mean_us))
    stats = f"first={mean_us:.0f} curr={mean_us:.0f} min={mean_us - 90:.0f} max={mean_us + 90:.0f} avg={mean_us:g} std=40"
    stdout = (
        "INFO: STARTING!\n"
        f"INFO: Min num runs: [{flags['num_runs']}]\n"
        f"INFO: Num threads: [{flags['num_threads']}]\n"
        f"INFO: Min warmup runs: [{flags['warmup_runs']}]\n"
        "INFO: Initialized session in 23.5ms.\n"
        f"{_PHASE.format(runs=1, least_s=0.5)}"
        f"INFO: count={round(0.5e6 / mean_us)} {stats} p5=3990 median=4000 p95=4010\n\n"
        f"{_PHASE.format(runs=flags['num_runs'], least_s=flags['min_secs'])}"
        f"INFO: count={count} {stats} p5=3990 median={mean_us:.0f} p95=4010\n\n"
    )
    at = "INFO: [benchmark_litert_model.h"
    banner = (
        f"{at}:89] \n========== BENCHMARK RESULTS ==========\n{at}:94] Model initialization: 23.50 ms\n"
        f"{at}:95] Warmup (first):       5.10 ms\n{at}:97] Warmup (avg):         {mean_us / 1e3:.2f} ms (125 runs)\n"
        f"{at}:99] Inference (avg):      {mean_us / 1e3:.2f} ms ({count} runs)\n"
        f"{at}:103] Inference (min):      {(mean_us - 90) / 1e3:.2f} ms\n"
        f"{at}:105] Inference (max):      {(mean_us + 90) / 1e3:.2f} ms\n{at}:107] Inference (std):      0.04\n"
        f"{at}:115] Throughput:           140.00 MB/s\n{at}:124] \nMemory Usage:\n"
        f"{at}:125] Init footprint:       8.00 MB\n{at}:127] Overall footprint:    12.00 MB\n"
        f"{at}:132] Peak memory usage not available. (peak_mem_mb <= 0)\n"
        f"{at}:138] ======================================\n\n"
        f"{at}:177] Saving benchmark result to: {flags['result_file_path']}\n"
        f"{at}:181] Saved benchmark result to: {flags['result_file_path']}\n"
    )
    return ("" if only_stderr else stdout) + delegate_lines + banner
