"""A measured case of one campaign: its runs, their result and their device. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import filterfalse

from orchestrator.analysis.case_result import (
    CaseResult,
    OutputChecks,
    device_autocorrelations,
    has_comparison,
    judge_case,
)
from orchestrator.delegates import DELEGATES, place_of
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign, Terms
from orchestrator.records.case import FIGURE_PASS, Build, CampaignId, Case, grouped
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Claim, Grade, Outputs, Severity, outputs_of


@frozen
class Measured:
    """One case in one campaign, with its timing invocations and their result."""

    case: Case
    campaign_id: CampaignId
    runs: tuple[RunRecord, ...]
    result: CaseResult
    device: str
    build: str
    is_virtual: bool
    #: The operating system's fingerprint when the campaign began; empty when it wasn't kept.
    system: str = ""
    #: Where the campaign was imported from, in words; empty for this lab's own.
    origin: str = ""
    #: Of a campaign whose pairs ended as soon as their verdict was known: when a change was claimed.
    #: None for any other.
    claim: Claim | None = None

    @property
    def outputs(self) -> Outputs:
        """The state of the outputs that belong to its figure."""
        is_builtin = DELEGATES[self.case.delegate].is_builtin
        return outputs_of(self.result.parity, is_builtin=is_builtin)

    @property
    def used(self) -> dict[int, RunRecord]:
        """Invocation number -> run, of those that the figure comes from."""
        chosen = set(self.result.used)
        return {run.invocation: run for run in self.runs if run.run_id in chosen}

    @property
    def codes(self) -> frozenset[str]:
        """Codes of the warnings of the runs that the figure comes from, and of the figure itself."""
        findings = [each for run in self.used.values() for each in run.verdict.findings]
        return frozenset(
            each.code
            for each in (*findings, *self.result.findings)
            if each.severity is Severity.WARNING
        )

    @property
    def grade(self) -> Grade | None:
        """The worst grade among the runs used; None when one of them has none."""
        return self.result.grade

    @property
    def actual(self) -> str:
        """Where the operators of the runs used ran."""
        return actual_of(self.used.values())


def measured_cases(
    runs: Iterable[RunRecord],
    *,
    devices: Mapping[str, DeviceFacts],
    builds: Mapping[str, Build],
    campaigns: Iterable[Campaign] = (),
) -> list[Measured]:
    """Return the measured cases, one for each campaign and case, campaign by campaign in the order
    in which they were stored.

    ``campaigns`` give the devices' systems, the origin of imports, earlier output checks and the
    claims of A/B comparisons.
    """
    campaigns_by_id = {campaign.campaign_id: campaign for campaign in campaigns}
    relevant_runs = [
        run
        for run in runs
        if run.outcome is not Outcome.UNFIT and (has_comparison(run) or run.run_pass is FIGURE_PASS)
    ]
    cases: list[Measured] = []
    for campaign_id, campaign_runs in grouped(relevant_runs, lambda run: run.campaign_id).items():
        campaign = campaigns_by_id.get(campaign_id)
        terms = Terms() if campaign is None else campaign.terms
        checks = OutputChecks([terms.output_checks])
        for run in campaign_runs:
            checks.learn(run)
        timed = grouped(filterfalse(has_comparison, campaign_runs), lambda run: run.case.case_key)
        compared = grouped(filter(has_comparison, campaign_runs), lambda run: run.case.case_key)
        autocorrelations = device_autocorrelations(timed, campaign)
        for key, timings in timed.items():
            case = timings[0].case
            facts, build = devices.get(case.serial), builds.get(case.build_sha256)
            measured = Measured(
                case=case,
                campaign_id=campaign_id,
                runs=tuple(timings),
                result=replace(
                    judge_case(
                        [*timings, *compared.get(key, ())],
                        others=autocorrelations[key],
                        check=checks.of(case),
                    ),
                    precision_goal=(terms.stopping or StoppingRule()).half_width,
                ),
                device=facts.title if facts is not None else str(case.serial),
                build=" ".join([*([build.name] if build else []), case.build_sha256[:8]]),
                is_virtual=any(run.is_virtual for run in timings),
                system=terms.fingerprints.get(case.serial, ""),
                origin=terms.origin.text if terms.origin is not None else "",
                claim=terms.pairing.claim if terms.pairing is not None else None,
            )
            cases.append(measured)
    return cases


def actual_of(runs: Iterable[RunRecord]) -> str:
    """Return where the operators of some runs ran: ``gpu, partial``; empty when nothing shows it."""
    reports = [run.report for run in runs if run.report is not None]
    places = sorted({place_of(report.delegate) for report in reports if report.delegate.actual})
    truths = sorted({report.delegate.truth.value for report in reports})
    return ", ".join([*places, *truths]) if places else ""
