"""A report in the short words in which tests and collections say what a careful reader finds in an
output."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.delegates.evidence import family
from orchestrator.records.failures import next_step_of
from orchestrator.records.run import DelegateEvidence, DelegateTruth, ToolReport
from orchestrator.units import US_PER_MS, US_PER_S

_OF_SUMMARY = ("min_us", "max_us", "std_us", "p5_us", "median_us", "p95_us")
_WHOLE_NUMBERS = frozenset(
    {"pid", "num_threads", "max_delegated_partitions", "pushed_bytes", "rpc_execute_us"}
)


def found_in(report: ToolReport) -> dict[str, object]:
    """Return what is known, by plain names with units; what isn't known is left out."""
    inference, is_token = report.inference, report.extra.get("unit") == "token"
    public: dict[str, object] = {
        "outcome": report.outcome,
        "name": report.label or None,
        "failure_code": report.failure_code or None,
        "failure_reason": report.failure_reason or None,
        "next_step": next_step_of(report.failure_code, report.failure_reason) or None,
        "init_us": report.init_us,
        "first_inference_us": report.first_inference_us,
        "warmup_avg_us": report.warmup_mean_us,
        "warmup_count": report.warmup.count if report.warmup else None,
        "inference_avg_us": report.inference_mean_us,
    }
    if inference is not None:
        public["inference_count"] = inference.count
        public |= {f"inference_{name}": getattr(inference, name) for name in _OF_SUMMARY}
        if report.label:
            public |= {"first_us": inference.first_us, "last_us": inference.current_us}
    public |= {
        "init_mem_mb": report.init_memory_mib,
        "overall_mem_mb": report.overall_memory_mib,
        "peak_mem_mb": report.peak_memory_mib,
        "model_mb": report.model_size_mb,
    }
    known = _known(public)
    if report.inference_mean_us and is_token:
        known["tokens_per_s"] = float(f"{US_PER_S / report.inference_mean_us:.7g}")
    return (
        known
        | _delegate(report.delegate)
        | _extra(report)
        | {
            name: value
            for name, value in (
                ("missing", "flex" if report.failure_code == "flex-ops-missing" else None),
                ("unconsumed_flags", list(report.unconsumed_flags)),
                ("disagreements", list(report.disagreements)),
                ("op_profile", _profile(report)),
            )
            if value
        }
    )


def _known(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values that there are; a whole number without its fraction."""
    return {
        name: int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        else value
        for name, value in values.items()
        if value is not None
    }


def delegate_status(evidence: DelegateEvidence) -> str:
    """Return "full", "partial", "none", "failed" or "unknown": how much of the model a delegate
    ran.
    """
    truth, own, every = evidence.truth, evidence.delegated_nodes, evidence.total_nodes
    if evidence.actual == "cpu":
        return "none"
    if truth is DelegateTruth.WRONG_BACKEND and evidence.actual == "gpu":
        return "unknown" if None in (own, every) else "full" if own == every else "partial"
    return truth.value if truth.value in {"full", "partial", "failed", "unknown"} else "none"


def _delegate(evidence: DelegateEvidence) -> dict[str, object]:
    public = _known(
        {
            "delegate_status": delegate_status(evidence),
            "delegate_truth": evidence.truth.value,
            "requested_delegate": evidence.requested or None,
            "actual_delegate": evidence.actual or None,
            "delegated_nodes": evidence.delegated_nodes,
            "total_nodes": evidence.total_nodes,
            "partitions": evidence.partitions,
            "delegate_kernels": evidence.kernels,
            "gpu_backend": evidence.backend or None,
            "accelerator": evidence.accelerator or None,
            "unsupported_ops": len(evidence.cpu_operators) or None,
        }
    )
    if evidence.each:
        public["delegates"] = {name: truth.value for name, truth in evidence.each.items()}
    main = evidence.requested.split("+")[0]
    own = [
        s
        for s in evidence.shares
        if family(s.delegate) == (main or evidence.actual) and s.subgraph is not None
    ]
    if len({share.subgraph for share in own}) > 1:
        names = ("subgraph", "delegated_nodes", "total_nodes", "partitions")
        public["subgraphs"] = [{name: getattr(share, name) for name in names} for share in own]
    for side in ("xnnpack", "flex"):
        share = next((s for s in evidence.shares if family(s.delegate) == side), None)
        if share is not None and main not in {side, "cpu", ""}:
            counts = ("delegated_nodes", "total_nodes", "partitions")
            public |= _known({f"{side}_{name}": getattr(share, name) for name in counts})
    if evidence.cpu_operators:
        public["cpu_operators"] = [
            {"operator": name, "reason": reason} for name, reason in evidence.cpu_operators
        ]
    if evidence.lines:
        public["delegate_evidence"] = list(evidence.lines)
    return public


def _extra(report: ToolReport) -> dict[str, object]:
    public: dict[str, object] = {}
    reported: dict[str, object] = {}
    for name, value in report.extra.items():
        if name.startswith("reported_") and name.endswith("_ms"):
            reported[name.removeprefix("reported_").removesuffix("_ms")] = value
        elif name == "peak_available":
            public[name] = value != "no"
        elif name == "graph" and isinstance(value, str):
            public[name] = _file_name(value)
        elif name in _WHOLE_NUMBERS and isinstance(value, float):
            public[name] = int(value)
        else:
            public[name] = value
    if reported:
        public["reported_ms"] = reported
    return public


def _profile(report: ToolReport) -> dict[str, object]:
    """Return the steady profile in short: totals, and time by node type in milliseconds as the
    tables print it.
    """
    if not report.operators and not report.operator_types:
        return {}
    profile: dict[str, object] = {
        "has_start_column": any(block.has_start_column for block in report.profile_blocks)
    }
    types = [
        row for row in report.operator_types if row.phase == "run" and row.block in {"", "main"}
    ]
    if types:
        profile["by_type_avg_ms"] = {row.node_type: _as_ms(row.mean_us) for row in types}
    rows = [row for row in report.operators if row.phase == "run"]
    if rows:
        profile["first_row"] = rows[0].node_type
        profile["first_row_avg_ms"] = _as_ms(rows[0].mean_us)
    for row in report.operators:
        if row.phase == "init" and row.node_type == "ModifyGraphWithDelegate":
            profile["init_ModifyGraphWithDelegate_ms"] = _as_ms(row.mean_us)
            break
    block = next((b for b in report.profile_blocks if b.phase == "run"), None)
    if block is not None:
        timings = block.timings
        figures = {"avg": "mean_us", "min": "min_us", "max": "max_us", "std": "std_us"}
        profile |= _known(
            {
                "nodes_executed": block.nodes_executed,
                "timings_count": timings.count if timings else None,
                **{
                    f"timings_{name}_us": getattr(timings, at, None) for name, at in figures.items()
                },
            }
        )
    return profile


def _as_ms(latency_us: float) -> float:
    return float(f"{latency_us / US_PER_MS:.9g}")


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
