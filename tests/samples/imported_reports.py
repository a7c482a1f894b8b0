"""What the Firebase game-loop app and the Delegate Performance Benchmark app write, in the forms of their sources."""

import json


def firebase_csv(label: str, mean_us: float, *, size_mb: float) -> str:
    """Return the CSV file of one scenario."""
    head = (
        "config_key,model_size,init_time,warmup_avg,warmup_min,warmup_max,warmup_stddev,inference_avg,inference_min,"
        "inference_max,inference_stddev,init_max_rss,init_total_alloc,init_in_use_alloc,overall_max_rss,"
        "overall_total_alloc,overall_in_use_alloc"
    )
    inference = f"{mean_us:g},{mean_us - 50:g},{mean_us + 80:g},20"
    return f"{head}\n{label},{size_mb:g},3452,9000,8000,9500,300,{inference},12.5,0,4.1,14,0,5\n"


def firebase_json(label: str, mean_us: float, status: str = "OK") -> str:
    """Return the JSON object of one scenario."""
    record = {"name": "TFLite benchmark", "benchmark config": label, "status": status}
    if status == "OK":
        record["average time in us"] = f"init: 3452, warmup: 9000, inference: {mean_us:g}"
        record["overall memory usage"] = "max resident set size/physical footprint = 14 MB"
    return json.dumps(record, indent=2) + "\n"


TARGET = "NONE (/data/local/tmp/stable_delegate_settings.json)"
DEFAULT = "NONE (default_delegate)"
GPU = "GPU (/data/local/tmp/gpu,fast.json)"
METRICS = {
    "model_size_megabyte": (-1.0e-6, -1.0e-6, -1.0e-6),
    "initialization_latency_us": (515667.0, 844938.0, 1007529.0),
    "warmup_latency_average_us": (334263.5, 1666704.0, 4000.0),
    "inference_latency_average_us": (316702.6, 630715.5, 3890.5),
    "inference_latency_min_us": (308218.0, 314117.0, 3800.0),
    "overall_memory_max_rss_mebibyte": (0.0, 50.371094, 0.0),
    "startup_overhead_latency_us": (533227.9, 1880926.5, 1007638.5),
}
#: The test target comes first, then the references.
IDENTIFIERS = (TARGET, DEFAULT, GPU)


def delegate_report_json(*models: str) -> str:
    """Return ``report.json`` of the latency activity."""
    reports = [
        {
            "model": model,
            "result": "PASS",
            "metrics": [
                {
                    "delegate_identifier": identifier,
                    "result": "NOT_APPLICABLE" if place == 0 else "PASS",
                    "metrics": {
                        name: {"value": values[place], "regression": "N/A", "result": "NOT_APPLICABLE"}
                        for name, values in METRICS.items()
                    },
                    "is_test_target": place == 0,
                }
                for place, identifier in enumerate(IDENTIFIERS)
            ],
            "max_regression_percentage_allowed": {"inference_latency_average_us": 5},
        }
        for model in models
    ]
    return json.dumps({"name": "report", "reports": reports, "result": "PASS"}, indent=4)
