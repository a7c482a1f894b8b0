"""A case beside loads: its figures by load, and their table."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.energy import Mean, ratio_of
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import LOAD_DIED, NO_LOAD
from orchestrator.records.run import RunRecord
from orchestrator.tables.column import NESTED, PEOPLE, Column, Kind
from orchestrator.tables.passes import MS, PassTable, Round, half_words, known_median


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """A case beside one load."""

    load: str
    #: Microseconds, over the runs.
    median_us: float | None
    #: Times as long as without a load, by the rounds that have both.
    factor: Mean | None
    count: int
    #: Cores that the load kept busy, of those it was seen to.
    cores: float | None
    #: Runs whose load didn't run all the time.
    died: int


def load_rows(runs: Sequence[RunRecord], campaigns: Mapping[str, Campaign]) -> tuple[LoadRow, ...]:
    """Return a case's figures by load, from its runs of that pass, without a load first; campaigns
    by their names.
    """
    seen: dict[str, dict[Round, float]] = {}
    cores: dict[str, list[float]] = defaultdict(list)
    died: Counter[str] = Counter()
    for run in runs:
        if run.report is None or "load" not in run.report.extra:
            continue
        load, latency_us = str(run.report.extra["load"]), run.report.latency_us()
        own = seen.setdefault(load, {})
        died[load] += run.reason_code == LOAD_DIED
        if not run.is_without_result and latency_us is not None:
            campaign = campaigns.get(run.campaign_id)
            width = 1 + len(campaign.terms.contention) if campaign is not None else 1
            own[str(run.campaign_id), run.invocation // width] = latency_us
            if "load_cores" in run.report.extra:
                cores[load].append(float(run.report.extra["load_cores"]))
    return tuple(
        LoadRow(
            load=load,
            median_us=known_median(own.values()),
            factor=ratio_of(own, seen.get(NO_LOAD, {})) if load != NO_LOAD else None,
            count=len(own),
            cores=statistics.fmean(cores[load]) if cores[load] else None,
            died=died[load],
        )
        for load, own in sorted(seen.items(), key=lambda item: (item[0] != NO_LOAD, item[0]))
    )


_COLUMNS: Final[Sequence[Column[LoadRow]]] = (
    Column("load", "load", lambda load: load.load, is_choice=True),
    Column("median_us", "median", lambda load: load.median_us, **MS),
    Column("factor", "times as long", lambda load: load.factor, Kind.RECORD, forms=NESTED),
    Column(
        "factor",
        "times as long",
        lambda load: load.factor and load.factor.value,
        Kind.NUMBER,
        digits=3,
        forms=PEOPLE,
    ),
    Column(
        "factor_half",
        "±95 %",
        lambda load: load.factor and load.factor.half_width,
        Kind.NUMBER,
        "%",
        100,
        digits=1,
        forms=PEOPLE,
        shown=lambda load: half_words(load.factor, getattr(load.factor, "half_width", None)),
    ),
    Column("runs", "runs", lambda load: load.count, Kind.COUNT),
    Column("cores", "load kept busy", lambda load: load.cores, Kind.NUMBER, "cores", digits=1),
    Column(
        "died",
        "load died",
        lambda load: load.died,
        Kind.COUNT,
        shown=lambda load: "" if not load.died else None,
    ),
)
TABLE: Final = PassTable(
    name="loads",
    key="contention",
    title="Beside a load",
    legend="The pass contention: each case alone and beside loads, in turns. Times as long: the geometric mean over "
    "rounds, against the same round without a load. A run whose load didn't run from begin to end isn't in it.",
    caption=lambda cases: "Each case beside a load, against itself alone",
    columns=_COLUMNS,
    lines=load_rows,
)
