"""What the iOS benchmark app prints and shows for given parameters, in the words of its sources."""

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


def console(params: Mapping[str, str], *, size_bytes: int, mean_us: float = 4000.0, delegate_lines: str = "") -> str:
    """Return the console's text of one run."""
    given = {**params, "graph": f"/private/var/containers/Bundle/TFLiteBenchmark.app/{params['graph']}"}
    words = {"true": "1", "false": "0"}
    echoed = "".join(f"INFO: {echo}: [{words.get(given[f], given[f])}]\n" for f, echo in _ECHOES if f in given)
    count = max(int(params["num_runs"]), round(float(params["min_secs"]) * 1e6 / mean_us))
    stats = (
        f"first={mean_us:.0f} curr={mean_us:.0f} min={mean_us - 90:.0f} max={mean_us + 90:.0f} avg={mean_us:g} std=40"
    )
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


def view(*, runs: int = 250, mean_ms: float = 4.0, warmup_runs: int = 125) -> str:
    """Return the text of the app's result view."""

    def block(count: int) -> str:
        return (
            f" - Num runs: {count}\n - Average: {mean_ms:g} ms\n - Min: {mean_ms - 0.1:g} ms \n"
            f" - Max: {mean_ms + 0.1:g} ms \n - Std deviation: 0.04 ms\n"
        )

    return f"Startup latency: 23.5 ms\n\nInference:\n{block(runs)}\nWarmup:\n{block(warmup_runs)}"
