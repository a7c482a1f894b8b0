"""Several campaigns in one report: of a case that several of them ran, the newest one's figures count alone.

Between two nights the phone, its heat or its system may have changed: their invocations put together would make a
figure of neither, with an interval that says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId, CaseKey
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass
from orchestrator.report.data import ReportData

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
        if run.run_pass not in _SIDE_BY_SIDE and run.run_pass is not Pass.SENTINEL:
            repeated.add(run.case.case_key)
        if order[run.campaign_id] > order[known]:
            newest[key] = run.campaign_id
    counted: dict[CampaignId, set[CaseKey]] = {}
    for (case_key, run_pass), campaign_id in newest.items():
        if run_pass is not Pass.SENTINEL:
            counted.setdefault(campaign_id, set()).add(case_key)
    return NewestRuns(
        newest={key: value for key, value in newest.items() if key[1] is not Pass.SENTINEL},
        repeated=frozenset(repeated),
        counted={campaign_id: frozenset(keys) for campaign_id, keys in counted.items()},
    )
