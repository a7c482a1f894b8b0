"""Which runs a report holds: of several campaigns the newest of each case, a fifth of its size
each.

Between two nights the phone, its heat or its system may have changed: their invocations put
together would make a figure of neither, with an interval that says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.passes import shown
from orchestrator.records.case import FIGURE_PASS, CampaignId, CaseKey, Pass
from orchestrator.records.device import DeviceState
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.report.assembly import Stored
from orchestrator.units import counted

#: One for all: an empty mapping takes room too.
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
Value = TypeVar("Value")


def lean_runs(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield runs without what no report shows: echoed parameters, and most of the device's state.

    The mean clock of the samples stays, in the report's ``extra``. What the invocations of a case
    have in common, such as where the operators ran, is held once for all of them.
    """
    known = _Known()
    for run in runs:
        key = run.case.case_key
        yield replace(
            run,
            campaign_id=CampaignId(intern(run.campaign_id)),
            attachments=(),
            report=None if run.report is None else _lean_report(run, run.report, known),
            verdict=known.equal(run.verdict, key, "verdict"),
            state_before=_lean_state(run.state_before, known, key),
            state_after=_lean_state(run.state_after, known, key),
        )


class _Known:
    """What was seen before; whatever is equal to it needn't be held beside it."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, Any] = {}

    def equal(self, value: Value, *place: Hashable) -> Value:
        """Return what was seen last at this place if it is equal, else the value."""
        known = self._newest.get(place)
        if type(known) is type(value) and known == value:
            return known
        self._newest[place] = value
        return value

    def table(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a mapping whose keys and figures are held once."""
        seen = self._newest.setdefault
        return {
            intern(key) if isinstance(key, str) else key: seen((type(value), value), value)
            for key, value in values.items()
        }


def _lean_report(run: RunRecord, report: ToolReport, known: _Known) -> ToolReport:
    key = run.case.case_key
    extra = {intern(name): known.equal(value, key, name) for name, value in report.extra.items()}
    if share := mean_clock_share(run):
        extra[MEAN_CLOCK] = share
    delegate = known.equal(report.delegate, key, "delegate")
    return replace(
        report,
        outcome=intern(report.outcome),
        echoed=_NONE,
        warmup=None,
        delegate=delegate,
        extra=extra or _NONE,
    )


def _lean_state(state: DeviceState | None, known: _Known, key: Hashable) -> DeviceState | None:
    if state is None:
        return None
    return replace(
        state,
        heat_c=known.table(state.heat_c),
        battery_health=intern(state.battery_health),
        plugged=intern(state.plugged),
        clock_khz=known.table(state.clock_khz),
        clock_limit_khz=known.equal(state.clock_limit_khz, key, "limits"),
        cooling=_NONE,
        clock_floor_khz=_NONE,
        governors=_NONE,
        time_in_state=_NONE,
        gpu_time_in_state=_NONE,
    )


def newest_runs(stored: Stored) -> Stored:
    """Return what counts of several campaigns: the runs, the timing runs beside them in these
    campaigns, and a sentence about what is left out.

    Of each case and pass the newest campaign counts in which it was run at all; unfit runs wait for
    another try. A campaign of which nothing counts loses its stopping rule.
    """
    campaigns, runs = stored.campaigns, list(stored.runs)
    order = {item.campaign_id: item.created_at for item in campaigns}
    ran_in: dict[tuple[CaseKey, Pass], set[CampaignId]] = defaultdict(set)
    for run in runs:
        if run.outcome is not Outcome.UNFIT and run.campaign_id in order:
            ran_in[run.case.case_key, run.run_pass].add(run.campaign_id)
    newest = {key: max(names, key=order.__getitem__) for key, names in ran_in.items()}
    repeated = {
        case_key
        for (case_key, run_pass), names in ran_in.items()
        if len(names) > 1 and not shown(run_pass).keeps_all_campaigns
    }
    counting = {
        campaign for (_, run_pass), campaign in newest.items() if shown(run_pass).is_in_plans
    }
    kept: list[RunRecord] = []
    beside: list[RunRecord] = []
    for run in runs:
        if shown(run.run_pass).keeps_all_campaigns or (
            newest.get((run.case.case_key, run.run_pass), run.campaign_id) == run.campaign_id
        ):
            kept.append(run)
        elif run.run_pass is FIGURE_PASS and run.campaign_id in counting:
            beside.append(run)
    stored = replace(stored, runs=kept, beside=beside)
    if not repeated:
        return stored
    ruled = [
        item
        if item.campaign_id in counting
        else replace(item, terms=replace(item.terms, stopping=None))
        for item in campaigns
    ]
    left_out = (
        f"{counted(len(repeated), 'case')} ran in several of these campaigns: the newest one's figures are shown, and "
        "'benchfarm compare' sets campaigns side by side."
    )
    return replace(stored, campaigns=ruled, left_out=left_out)
