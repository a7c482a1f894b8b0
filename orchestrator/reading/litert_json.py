"""The JSON that ``litert-benchmark`` writes, whose figures are hundredths of a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from orchestrator.records.run import TOO_FAST, DelegateEvidence, LatencySummary, ToolReport
from orchestrator.units import US_PER_MS, counted, format_latency

#: What the program's figures are rounded to, in microseconds.
RESOLUTION_US: Final = 10.0


def is_result(document: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON document is what the program writes."""
    latency = document.get("latency") if isinstance(document, dict) else None
    return isinstance(latency, dict) and {"avg_ms", "num_runs"} <= latency.keys()


def report_of(result: Mapping[str, Any]) -> ToolReport:
    """Return what the program's JSON says.

    Raises TypeError or ValueError for what it doesn't write.
    """
    latency = result["latency"]

    def us(name: str) -> float | None:
        value = latency.get(name)
        return None if value is None else round(float(value) * US_PER_MS, 3)

    count = int(latency.get("num_runs", 0))
    figures = {
        f"{name}_us": us(f"{name}_ms") for name in ("min", "max", "std", "p5", "median", "p95")
    }
    inference = LatencySummary(count=count, mean_us=us("avg_ms"), **figures)
    if count == 0:
        return ToolReport(
            outcome="failed",
            failure_code="no-inferences",
            failure_reason="the program measured no inference",
        )
    if not inference.mean_us or inference.median_us == 0:
        reason = f"{counted(count, 'inference')} took less than the {format_latency(RESOLUTION_US)} that it rounds to"
        return ToolReport(outcome="failed", failure_code=TOO_FAST, failure_reason=reason)
    warmups = int(latency.get("num_warmup_runs", 0))
    size_mib = result.get("model_size_mb")
    return ToolReport(
        outcome="ok",
        init_us=us("init_ms"),
        first_inference_us=us("warmup_first_ms") if warmups else None,
        warmup_mean_us=us("warmup_avg_ms") if warmups else None,
        inference_mean_us=inference.mean_us,
        warmup=LatencySummary(
            count=warmups, first_us=us("warmup_first_ms"), mean_us=us("warmup_avg_ms")
        ),
        inference=inference,
        model_size_mb=None if size_mib is None else float(str(size_mib)) * 1.048576,
        delegate=DelegateEvidence(lines=(f"fully_accelerated: {result.get('fully_accelerated')}",)),
        echoed={"Num threads": str(result.get("num_threads", ""))},
        extra={"resolution_us": RESOLUTION_US},
    )
