"""The runs of a report: of several campaigns each case's newest ones, at a fifth of their size.

Between two nightly runs the phone, its temperature or its system may change: a figure of both would
be neither's, with a meaningless interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.passes import stored_pass
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, CaseKey, Pass
from orchestrator.records.device import DeviceState
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.report.assembly import Stored
from orchestrator.units import counted

#: Shared by all runs to save memory.
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
Value = TypeVar("Value")


def slim_runs(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield runs without data that no report shows: echoed parameters, most of the device state.

    The mean clock of the samples stays in the report's ``extra``. Invocations of a case share equal
    values, such as where the operators ran.
    """
    interned = _Interned()
    for run in runs:
        key = run.case.case_key
        yield replace(
            run,
            campaign_id=CampaignId(intern(run.campaign_id)),
            attachments=(),
            report=None if run.report is None else _slim_report(run, run.report, interned),
            verdict=interned.equal(run.verdict, key, "verdict"),
            state_before=_slim_state(run.state_before, interned, key),
            state_after=_slim_state(run.state_after, interned, key),
        )


class _Interned:
    """A cache of values that runs share in memory."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, Any] = {}

    def equal(self, value: Value, *place: Hashable) -> Value:
        """Return the newest value of this place if it is equal, else the value."""
        newest = self._newest.get(place)
        if type(newest) is type(value) and newest == value:
            return newest
        self._newest[place] = value
        return value

    def table(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a mapping whose keys and figures are held once."""
        intern_value = self._newest.setdefault
        return {
            intern(key) if isinstance(key, str) else key: intern_value((type(value), value), value)
            for key, value in values.items()
        }


def _slim_report(run: RunRecord, report: ToolReport, interned: _Interned) -> ToolReport:
    key = run.case.case_key
    extra = {intern(name): interned.equal(value, key, name) for name, value in report.extra.items()}
    if share := mean_clock_share(run):
        extra[MEAN_CLOCK] = share
    delegate = interned.equal(report.delegate, key, "delegate")
    return replace(
        report,
        outcome=intern(report.outcome),
        echoed=_NONE,
        warmup=None,
        delegate=delegate,
        extra=extra or _NONE,
    )


def _slim_state(
    state: DeviceState | None, interned: _Interned, key: Hashable
) -> DeviceState | None:
    if state is None:
        return None
    return replace(
        state,
        heat_c=interned.table(state.heat_c),
        battery_health=intern(state.battery_health),
        plugged=intern(state.plugged),
        clock_khz=interned.table(state.clock_khz),
        clock_limit_khz=interned.equal(state.clock_limit_khz, key, "limits"),
        cooling=_NONE,
        clock_floor_khz=_NONE,
        governors=_NONE,
        time_in_state=_NONE,
        gpu_time_in_state=_NONE,
    )


def newest_runs(stored: Stored, is_shown: Callable[[Case, CampaignId], bool]) -> Stored:
    """Return the runs that count of several campaigns, the other timing runs of the campaigns with
    counted runs, and a sentence about cases that are left out.

    For each case and pass, the newest campaign with a run that isn't unfit counts, of those that
    the case ``is_shown`` of. A campaign without counted runs loses its stopping rule.
    """
    runs = list(stored.runs)
    campaigns = [
        replace(
            item,
            invocations=tuple(
                planned for planned in item.invocations if is_shown(planned.case, item.campaign_id)
            ),
        )
        for item in stored.campaigns
    ]
    order = {item.campaign_id: item.created_at for item in campaigns}
    campaigns_by_case: dict[tuple[CaseKey, Pass], set[CampaignId]] = defaultdict(set)
    for run in runs:
        is_counted = run.campaign_id in order and is_shown(run.case, run.campaign_id)
        if run.outcome is not Outcome.UNFIT and is_counted:
            campaigns_by_case[run.case.case_key, run.run_pass].add(run.campaign_id)
    newest = {key: max(names, key=order.__getitem__) for key, names in campaigns_by_case.items()}
    repeated = {
        case_key
        for (case_key, run_pass), names in campaigns_by_case.items()
        if len(names) > 1 and not stored_pass(run_pass).keeps_all_campaigns
    }
    counting = {
        campaign for (_, run_pass), campaign in newest.items() if stored_pass(run_pass).is_in_plans
    }
    kept_runs: list[RunRecord] = []
    beside_runs: list[RunRecord] = []
    for run in runs:
        if is_shown(run.case, run.campaign_id) and (
            stored_pass(run.run_pass).keeps_all_campaigns
            or newest.get((run.case.case_key, run.run_pass), run.campaign_id) == run.campaign_id
        ):
            kept_runs.append(run)
        elif run.run_pass is FIGURE_PASS and run.campaign_id in counting:
            beside_runs.append(run)
    stored = replace(stored, campaigns=campaigns, runs=kept_runs, beside=beside_runs)
    if not repeated:
        return stored
    with_rules = [
        item
        if item.campaign_id in counting
        else replace(item, terms=replace(item.terms, stopping=None))
        for item in campaigns
    ]
    left_out = (
        f"{counted(len(repeated), 'case')} ran in several of these campaigns: the newest one's figures are shown, and "
        "'benchfarm compare' sets campaigns side by side."
    )
    return replace(stored, campaigns=with_rules, left_out=left_out)
