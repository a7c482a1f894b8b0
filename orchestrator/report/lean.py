"""Which runs a report holds: of several campaigns the newest of each case, without what isn't shown.

Between two nights the phone, its heat or its system may have changed: their invocations put
together would make a figure of neither, with an interval that says nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.passes import shown
from orchestrator.records.case import FIGURE_PASS, CampaignId, CaseKey, Pass
from orchestrator.records.device import DeviceState
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.report.assembly import Stored
from orchestrator.units import counted


def lean_runs(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield runs without what no report shows, which is most of their room: echoed parameters, and
    most of the device's state. The mean clock of the samples stays, in the report's ``extra``.
    """
    for run in runs:
        report = run.report
        if report is not None:
            share = mean_clock_share(run)
            extra = {**report.extra, MEAN_CLOCK: share} if share else report.extra
            report = replace(report, echoed={}, warmup=None, extra=extra)
        yield replace(
            run,
            attachments=(),
            report=report,
            state_before=_lean_state(run.state_before),
            state_after=_lean_state(run.state_after),
        )


def _lean_state(state: DeviceState | None) -> DeviceState | None:
    if state is None:
        return None
    return replace(
        state, cooling={}, clock_floor_khz={}, governors={}, time_in_state={}, gpu_time_in_state={}
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
