"""The last runs of series: when each began and how long it took, in an SQL database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, select

from orchestrator.records.identity import SeriesKey
from orchestrator.records.night import RecentRun
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass
from orchestrator.store.tables import CASES, RUNS, SERIES

#: A new build makes a new case of a series; older ones than these say little about how long it takes now.
_CASES_MOST: Final = 16
#: Outcomes of what didn't take a phone's time.
NOT_RUN: Final = (Outcome.UNFIT, Outcome.SKIPPED)


def read_recent_runs(
    connection: Connection, series_keys: Sequence[SeriesKey], *, limit: int
) -> Mapping[SeriesKey, Sequence[RecentRun]]:
    """Return the newest runs of each series, newest first, no more than ``limit`` of each.

    A question for each series: each is answered from two indexes, whatever the store holds beside it.
    """
    not_run = tuple(outcome.value for outcome in NOT_RUN)
    found: dict[SeriesKey, Sequence[RecentRun]] = {}
    for series_key in series_keys:
        newest = (
            select(CASES.c.case_no)
            .join_from(CASES, SERIES, CASES.c.series_no == SERIES.c.series_no)
            .where(SERIES.c.series_key == series_key)
            .order_by(CASES.c.case_no.desc())
            .limit(_CASES_MOST)
        )
        query = (
            select(RUNS.c.run_pass, RUNS.c.started_at, RUNS.c.duration_s, RUNS.c.outcome, RUNS.c.campaign_no)
            .where(RUNS.c.case_no.in_(newest), RUNS.c.outcome.not_in(not_run))
            .order_by(RUNS.c.run_no.desc())
            .limit(limit)
        )
        runs = [
            RecentRun(
                run_pass=Pass(row.run_pass),
                started_at=row.started_at,
                duration_s=row.duration_s,
                outcome=Outcome(row.outcome),
                campaign=str(row.campaign_no),
            )
            for row in connection.execute(query)
        ]
        if runs:
            found[series_key] = runs
    return found
