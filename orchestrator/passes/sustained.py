"""The pass ``sustained``: latency against time, heat and throttling."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from orchestrator.passes.specification import PassSpec, Repetition
from orchestrator.records.case import Case, Pass
from orchestrator.tables.passes import SUSTAINED, PassTable, sustained_rows

#: The least seconds of an invocation.
_MIN_SECS: Final = 5.0


def _as_run(case: Case) -> Case:
    """Return the case for many short processes back to back: only the phone warms up."""
    min_secs = max(case.min_secs, _MIN_SECS)
    return replace(
        case,
        num_runs=1,
        min_secs=min_secs,
        max_secs=max(case.max_secs, min_secs),
        warmup_runs=1,
        warmup_min_secs=0.0,
    )


PASS = PassSpec(
    name=Pass.SUSTAINED,
    about="Latency over time while the phone gets hot, and when throttling begins",
    guide="in-use",
    repetition=Repetition.FOR_A_TIME,
    as_run=_as_run,
    takes_declared=True,
    least_s=lambda case, terms: terms.sustained,
    table=PassTable(
        name="sustained",
        key="sustained",
        title="Sustained",
        legend=(
            "Invocations directly one after the other. Burst is the median of the beginning, steady that of the last "
            "quarter; slower from is the moment from which it stays more than 5 % above burst, if it does."
        ),
        caption=lambda cases: "Sustained runs: how fast at first, how fast when warm",
        columns=SUSTAINED,
        lines=sustained_rows,
    ),
    prints_latency=True,
)
