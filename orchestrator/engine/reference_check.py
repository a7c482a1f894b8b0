"""The reference workload around and within a campaign on one device.

When its figure moved, the device is cooled and checked again, then put in quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.drift import (
    CHECK_INVOCATIONS,
    ReferenceVerdict,
    baseline_of,
    checks,
    history_of,
    reference_doubts,
    verdict_of,
)
from orchestrator.engine.case_runner import CaseRunner
from orchestrator.engine.invocation import CampaignContext
from orchestrator.errors import DeviceSetAsideError
from orchestrator.passes import is_reference_run
from orchestrator.planning.time_budget import CHECK_EVERY_S
from orchestrator.ports import Device
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import CampaignId, CaseKey, Serial, grouped
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Finding, QualityVerdict
from orchestrator.units import format_percent, format_slowdown

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: The finding of a run after which the reference workload had moved.
CODE = "reference-moved"
#: This many earlier checks show a device's noise; more would only take time and memory.
_CHECKS_MAX: Final = 100


def earlier_figures_us(
    store: Store, case_key: CaseKey, campaign_id: CampaignId
) -> tuple[float, ...]:
    """Return the reference workload's last figures that were stored before a campaign's first, one
    for each check.

    Later figures are ignored, so that a campaign is always judged alike.
    """
    return history_of(
        store.earlier_runs(case_key, campaign_id, limit=_CHECKS_MAX * CHECK_INVOCATIONS)
    )


def store_doubts(
    store: Store, campaign_id: CampaignId, *, serials: Sequence[Serial] = ()
) -> tuple[RunRecord, ...]:
    """Store the finding of each run that a check doubts and that doesn't have it yet; return these
    runs as they were.

    For all devices of the campaign, or for ``serials``. Repeating it changes nothing.
    """
    stored = store.runs(campaign_ids=[campaign_id], serials=serials)
    by_device = grouped(stored, lambda run: run.case.serial)
    changed = []
    for runs in by_device.values():
        reference_keys = [run.case.case_key for run in runs if is_reference_run(run)]
        if not reference_keys:
            continue
        findings = reference_doubts(runs, earlier_figures_us(store, reference_keys[0], campaign_id))
        for run in runs:
            # A run without a report has no number that could be doubted.
            if run.run_id not in findings or run.report is None or run.verdict.has(CODE):
                continue
            doubt = with_doubt(run.verdict, findings[run.run_id])
            store.replace_reading(replace(run, verdict=doubt))
            changed.append(run)
    return tuple(changed)


def with_doubt(verdict: QualityVerdict, finding: Finding) -> QualityVerdict:
    """Return a verdict with the finding: at best suspect."""
    findings = (*verdict.findings, finding)
    return replace(verdict, quality=verdict.quality.doubted, findings=findings)


def with_stored_doubt(verdict: QualityVerdict, stored: QualityVerdict) -> QualityVerdict:
    """Return a new verdict with the doubt that the stored verdict has."""
    for finding in stored.findings:
        if finding.code == CODE:
            verdict = with_doubt(verdict, finding)
    return verdict


#: A phone has cooled when its battery is at most this much warmer than at the beginning.
_COOLED_MARGIN_C: Final = 1.0


class ReferenceCheck:
    """The checks of one device in one campaign."""

    def __init__(
        self,
        device: Device,
        context: CampaignContext,
        runner: CaseRunner,
        runs: Sequence[RunRecord],
        marker: Invocation,
    ) -> None:
        """``runs`` are the device's runs of this campaign and grow as they are stored."""
        self._device = device
        self._context = context
        self._runner = runner
        self._runs = runs
        self._case = marker.case
        self._pass = marker.run_pass
        self._checked_at_s = 0.0
        campaign_id = context.campaign.campaign_id
        #: The figures of earlier campaigns, in the order in which they were stored.
        self._history_us = earlier_figures_us(context.store, self._case.case_key, campaign_id)

    def begin(self) -> None:
        """Check the device before its first run.

        Raises DeviceUnusableError for a device to be put in quarantine.
        """
        is_first = all(map(is_reference_run, self._runs))
        verdict = self._check()
        if not verdict.moved:
            return
        if not is_first:
            self._cool_and_recheck(verdict)
            return
        self._runner.note(
            f"the reference workload is {_change_text(verdict)} than in earlier campaigns; it cools and is checked again"
        )
        self._cool()
        verdict = self._check()
        if verdict.moved:
            # A system update moves it for good; that must not keep a phone out.
            self._runner.note(
                f"the reference workload stays {_change_text(verdict)} than in earlier campaigns",
                is_problem=True,
            )

    def between(self) -> None:
        """Check again when the last check is long ago.

        Raises DeviceUnusableError for a device to be put in quarantine.
        """
        if self._context.clock.monotonic_s() - self._checked_at_s < CHECK_EVERY_S:
            return
        verdict = self._check()
        if verdict.moved:
            self._cool_and_recheck(verdict)

    def end(self) -> None:
        """Check after the last run; a move is only reported."""
        verdict = self._check()
        if verdict.moved:
            self._runner.note(
                f"the reference workload is {_change_text(verdict)} than before the campaign",
                is_problem=True,
            )

    def _cool_and_recheck(self, verdict: ReferenceVerdict) -> None:
        self._runner.note(
            f"the reference workload is {_change_text(verdict)} than at the beginning; the phone is cooled"
        )
        self._cool()
        verdict = self._check()
        if verdict.moved:
            raise DeviceSetAsideError(
                f"set aside: after cooling its reference workload is {_change_text(verdict)} than at the beginning "
                f"(more than {format_percent(verdict.limit)})",
                serial=self._device.serial,
                hint="reboot it",
            )
        self._runner.note("after cooling, the reference workload is as at the beginning")

    def _check(self) -> ReferenceVerdict:
        """Run the reference workload, or the rest of a check that was cut off, and judge it."""
        number = (
            max((check.number for check in checks(self._runs) if check.is_whole), default=-1) + 1
        )
        for invocation in range(number * CHECK_INVOCATIONS, (number + 1) * CHECK_INVOCATIONS):
            item = Invocation(case=self._case, run_pass=self._pass, number=invocation)
            while not self._runner.has_stored(item.key):
                self._runner.run_one(item)
        self._checked_at_s = self._context.clock.monotonic_s()
        check = next(check for check in checks(self._runs) if check.number == number)
        verdict = verdict_of(self._runs, check, self._history_us)
        if verdict.moved:
            campaign_id = self._context.campaign.campaign_id
            store_doubts(self._context.store, campaign_id, serials=[self._device.serial])
        return verdict

    def _cool(self) -> None:
        """Wait until the battery is as cool as at the beginning, and nothing limits the clocks."""
        limits = self._context.campaign.terms.limits
        baseline = baseline_of(self._runs)
        heat_c = baseline.battery_heat_c if baseline is not None else None
        limit_c = (
            limits.battery_heat_max
            if heat_c is None
            else min(limits.battery_heat_max, heat_c + _COOLED_MARGIN_C)
        )
        fitness = self._runner.wait_until_fit(
            replace(limits, battery_heat_max=limit_c, thermal_status_max=0)
        )
        if fitness.reason:
            self._runner.note(f"didn't cool to its earlier temperature: {fitness.reason}")


def _change_text(verdict: ReferenceVerdict) -> str:
    return format_slowdown(verdict.ratio or 1.0)
