"""Which runs a report holds: of several campaigns the newest of each case, a fifth of its size each.

Between two nights the phone, its heat or its system may have changed: their invocations put together would make a
figure of neither, with an interval that says nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceState
from orchestrator.records.identity import CampaignId, CaseKey
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.records.workload import Pass
from orchestrator.report.data import RUN_PLACE, ReportData

#: One for all: an empty mapping takes room too.
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
Value = TypeVar("Value")
Cpu = TypeVar("Cpu", int, str)
Figure = TypeVar("Figure", int, float)


def lean_runs(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield runs without what no report shows: echoed parameters, and most of the looks at the device.

    The mean clock that those looks tell stays, in the report's ``extra``. What the invocations of a case tell in the
    same words, such as where the operators ran, is there once for all of them; the run's number in a command is
    ``RUN_PLACE`` for that.
    """
    known = _Known()
    for run in runs:
        key = run.case.case_key
        yield replace(
            run,
            campaign_id=CampaignId(intern(run.campaign_id)),
            attachments=(),
            command=known.equal(run.command.replace(run.run_id, RUN_PLACE), key, "command"),
            report=None if run.report is None else _lean_report(run, run.report, known),
            verdict=known.equal(run.verdict, key, "verdict"),
            state_before=_lean_state(run.state_before, known, key),
            state_after=_lean_state(run.state_after, known, key),
        )


class _Known:
    """What was seen before; whatever is equal to it needn't be held beside it."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, object] = {}
        self._figures: dict[Hashable, Any] = {}

    def equal(self, value: Value, *place: Hashable) -> Value:
        """Return what was seen last at this place if it is equal, else the value."""
        known = self._newest.get(place)
        if type(known) is type(value) and known == value:
            return known
        self._newest[place] = value
        return value

    def table(self, values: Mapping[Cpu, Figure]) -> dict[Cpu, Figure]:
        """Return a mapping whose keys and figures are held once."""
        figures = self._figures
        return {
            intern(key) if isinstance(key, str) else key: figures.setdefault((type(value), value), value)
            for key, value in values.items()
        }


def _lean_report(run: RunRecord, report: ToolReport, known: _Known) -> ToolReport:
    key = run.case.case_key
    extra = {intern(name): known.equal(value, key, name) for name, value in report.extra.items()}
    if share := mean_clock_share(run):
        extra[MEAN_CLOCK] = share
    delegate = known.equal(report.delegate, key, "delegate")
    return replace(
        report, outcome=intern(report.outcome), echoed=_NONE, warmup=None, delegate=delegate, extra=extra or _NONE
    )


def _lean_state(state: DeviceState | None, known: _Known, key: Hashable) -> DeviceState | None:
    if state is None:
        return None
    return DeviceState(
        at=state.at,
        heat_c=known.table(state.heat_c),
        cooling=_NONE,
        thermal_status=state.thermal_status,
        battery_percent=state.battery_percent,
        battery_heat_c=state.battery_heat_c,
        battery_charge_uah=state.battery_charge_uah,
        battery_health=intern(state.battery_health),
        plugged=intern(state.plugged),
        clock_khz=known.table(state.clock_khz),
        clock_limit_khz=known.equal(state.clock_limit_khz, key, "limits"),
        clock_floor_khz=_NONE,
        governors=_NONE,
        time_in_state=_NONE,
        gpu_time_in_state=_NONE,
        load_1min=state.load_1min,
        memory_available_bytes=state.memory_available_bytes,
    )


#: Profiles of several campaigns are shown beside each other.
_SIDE_BY_SIDE = frozenset({Pass.PROFILE})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRuns:
    """Which campaign counts for each case and pass."""

    newest: Mapping[tuple[CaseKey, Pass], CampaignId]
    #: Cases whose runs of older campaigns are left out.
    repeated: frozenset[CaseKey]
    #: Of each campaign the cases that it counts for.
    counted: Mapping[CampaignId, frozenset[CaseKey]]

    def of(self, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
        """Yield the runs that count."""
        for run in runs:
            newest = self.newest.get((run.case.case_key, run.run_pass), run.campaign_id)
            if newest == run.campaign_id or run.run_pass in _SIDE_BY_SIDE:
                yield run

    def terms_of(self, campaigns: Sequence[Campaign]) -> list[Campaign]:
        """Return the campaigns; one of which nothing counts has no stopping rule that could be told of."""
        return [
            item
            if self.counted.get(item.campaign_id) or not self.repeated
            else replace(item, terms=replace(item.terms, stopping=None))
            for item in campaigns
        ]

    def told(self, data: ReportData) -> ReportData:
        """Return a report that says what is left out."""
        if not self.repeated:
            return data
        count = len(self.repeated)
        cases = "1 case was" if count == 1 else f"{count} cases were"
        text = (
            f"{data.headline.scope} {cases} run in several of these campaigns: the newest one's figures are shown, and "
            "'benchfarm compare' sets campaigns side by side."
        )
        return replace(data, headline=replace(data.headline, scope=text))


def newest_runs(campaigns: Sequence[Campaign], runs: Iterable[RunRecord]) -> NewestRuns:
    """Return which campaign counts, the newest in which a case was run at all; unfit runs wait for another try."""
    order = {item.campaign_id: item.created_at for item in campaigns}
    newest: dict[tuple[CaseKey, Pass], CampaignId] = {}
    repeated = set()
    for run in runs:
        if run.outcome is Outcome.UNFIT or run.campaign_id not in order:
            continue
        key = run.case.case_key, run.run_pass
        known = newest.setdefault(key, run.campaign_id)
        if known == run.campaign_id:
            continue
        if run.run_pass not in _SIDE_BY_SIDE and run.run_pass is not Pass.REFERENCE:
            repeated.add(run.case.case_key)
        if order[run.campaign_id] > order[known]:
            newest[key] = run.campaign_id
    counted: dict[CampaignId, set[CaseKey]] = {}
    for (case_key, run_pass), campaign_id in newest.items():
        if run_pass is not Pass.REFERENCE:
            counted.setdefault(campaign_id, set()).add(case_key)
    return NewestRuns(
        newest={key: value for key, value in newest.items() if key[1] is not Pass.REFERENCE},
        repeated=frozenset(repeated),
        counted={campaign_id: frozenset(keys) for campaign_id, keys in counted.items()},
    )
