"""The columns of a stored run and of a stored campaign, as lists and exports have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.records.campaign import Campaign, Progress
from orchestrator.records.run import RunRecord, ToolReport
from orchestrator.tables.column import DATA, MS, NESTED, Column, Kind
from orchestrator.tables.table import Table


def _report(
    name: str,
    head: str,
    value: Callable[[ToolReport], Any],
    **other: Any,  # noqa: ANN401
) -> Column[RunRecord]:
    return Column(name, head, value, **{"forms": DATA, **other}).of(lambda run: run.report)


RUNS: Final[Sequence[Column[RunRecord]]] = (
    Column("run_id", "run", lambda run: run.run_id, shown=lambda run: run.run_id[:12]),
    Column(
        "serial",
        "phone",
        lambda run: run.case.serial,
        shown=lambda run: f"{run.case.serial}{' (virtual)' if run.is_virtual else ''}",
    ),
    Column("is_virtual", "virtual", lambda run: run.is_virtual, Kind.FLAG, forms=DATA),
    Column("model", "model", lambda run: run.case.model_name),
    Column("configuration", "configuration", lambda run: run.case.configuration),
    Column("campaign_id", "campaign", lambda run: run.campaign_id, forms=DATA),
    Column("case_key", "case", lambda run: run.case.case_key, forms=DATA),
    Column("pass", "pass", lambda run: run.run_pass),
    Column("invocation", "#", lambda run: run.invocation + 1, Kind.COUNT),
    Column("outcome", "outcome", lambda run: run.outcome),
    Column("reason_code", "why", lambda run: run.reason_code, is_optional=True),
    Column("reason", "reason", lambda run: run.reason, forms=DATA),
    Column(
        "quality",
        "quality",
        lambda run: run.verdict.quality,
        shown=lambda run: run.verdict.quality.word,
    ),
    Column("latency_us", "latency", lambda run: run.latency_us, **MS),
    _report(
        "inferences",
        "inferences",
        lambda report: report.inference and report.inference.count,
        kind=Kind.COUNT,
    ),
    _report("init_us", "init", lambda report: report.init_us, **MS),
    _report(
        "first_inference_us", "first inference", lambda report: report.first_inference_us, **MS
    ),
    Column("started_at", "started", lambda run: run.started_at, Kind.MOMENT, forms=DATA),
    Column(
        "duration_s", "took", lambda run: run.duration_s, Kind.NUMBER, "s", digits=1, forms=DATA
    ),
    Column("exit_code", "exit code", lambda run: run.exit_code, Kind.COUNT, forms=DATA),
)


def runs_table(runs: Iterable[RunRecord]) -> Table[RunRecord]:
    """Return stored runs, each as it ended; what its case's figure is made of is another question."""
    return Table(
        name="runs",
        caption="Stored runs",
        columns=RUNS,
        rows=runs,
        is_virtual=lambda run: run.is_virtual,
    )


@dataclass(frozen=True, slots=True)
class StoredCampaign:
    """A campaign, how far it is, and whether lists leave it out."""

    campaign: Campaign
    progress: Progress
    is_hidden: bool
    #: As stored, or that another computer runs it or nobody does, or that it was closed.
    state: str

    @property
    def title(self) -> str:
        """Its name, with the word for what isn't usual about it."""
        marks = (" (imported)" if self.campaign.terms.origin else "") + (
            " (hidden)" if self.is_hidden else ""
        )
        return self.campaign.name + marks

    @property
    def runs(self) -> str:
        """Stored of planned; more than planned: options and Flex builds that were found to be
        measured too. Alone where more than those are meant: a curve, or what a rule adds.
        """
        stored, planned, abandoned = self.progress
        is_more = stored >= planned and not self.campaign.status.is_over
        return f"{stored}" if is_more else f"{stored}/{max(stored + abandoned, planned)}"


CAMPAIGNS: Final[Sequence[Column[StoredCampaign]]] = (
    Column("campaign_id", "campaign", lambda row: row.campaign.campaign_id),
    Column("name", "name", lambda row: row.campaign.name, shown=lambda row: row.title),
    Column("created_at", "started", lambda row: row.campaign.created_at, Kind.MOMENT),
    Column("status", "status", lambda row: row.state),
    Column(
        "stored", "runs", lambda row: row.progress.stored, Kind.COUNT, shown=lambda row: row.runs
    ),
    Column("planned", "planned", lambda row: row.progress.planned, Kind.COUNT, forms=DATA),
    Column("abandoned", "abandoned", lambda row: row.progress.abandoned, Kind.COUNT, forms=DATA),
    Column("host", "host", lambda row: row.campaign.host, forms=DATA),
    Column("origin", "origin", lambda row: row.campaign.terms.origin, Kind.RECORD, forms=NESTED),
    Column("hidden", "hidden", lambda row: row.is_hidden, Kind.FLAG, forms=DATA),
)


def campaigns_table(rows: Sequence[StoredCampaign]) -> Table[StoredCampaign]:
    """Return stored campaigns."""
    return Table(
        name="campaigns",
        caption="Stored campaigns",
        columns=CAMPAIGNS,
        rows=rows,
        order="newest first",
    )
