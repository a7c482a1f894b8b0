"""The columns of a stored run, as lists of runs and exports have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from orchestrator.records.run import RunRecord, ToolReport
from orchestrator.tables.column import DATA, Column, Kind
from orchestrator.units import US_PER_MS


def _report(name: str, head: str, value: Callable[[ToolReport], Any], **other: Any) -> Column[RunRecord]:  # noqa: ANN401
    return Column(name, head, value, **other).of(lambda run: run.report)


_MS: Final[dict[str, Any]] = {"kind": Kind.NUMBER, "unit": "ms", "scale": 1 / US_PER_MS, "forms": DATA}
RUNS: Final[Sequence[Column[RunRecord]]] = (
    Column("run_id", "run", lambda run: run.run_id, shown=lambda run: run.run_id[:12]),
    Column("campaign_id", "campaign", lambda run: run.campaign_id, forms=DATA),
    Column("case_key", "case", lambda run: run.case.case_key, forms=DATA),
    Column("pass", "pass", lambda run: run.run_pass),
    Column("invocation", "#", lambda run: run.invocation + 1, Kind.COUNT),
    Column("outcome", "outcome", lambda run: run.outcome),
    Column("reason_code", "why", lambda run: run.reason_code, is_optional=True),
    Column("reason", "reason", lambda run: run.reason, forms=DATA),
    Column("quality", "quality", lambda run: run.verdict.quality, shown=lambda run: run.verdict.quality.word),
    _report("inferences", "inferences", lambda report: report.inference and report.inference.count,
            kind=Kind.COUNT, forms=DATA),
    _report("init_us", "init", lambda report: report.init_us, **_MS),
    _report("first_inference_us", "first inference", lambda report: report.first_inference_us, **_MS),
    Column("started_at", "started", lambda run: run.started_at, Kind.MOMENT, forms=DATA),
    Column("duration_s", "took", lambda run: run.duration_s, Kind.NUMBER, "s", digits=1, forms=DATA),
    Column("exit_code", "exit code", lambda run: run.exit_code, Kind.COUNT, forms=DATA),
)  # fmt: skip
