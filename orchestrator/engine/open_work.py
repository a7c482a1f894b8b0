"""The open work of a campaign, by its plan and its stored runs: planned, added, sustained,
reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.analysis.drift import checks, is_over
from orchestrator.analysis.rounds import next_round
from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.frozen import frozen
from orchestrator.passes import is_reference_run, is_sustained, stored_pass
from orchestrator.ports import Tool, session_of
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import FIGURE_PASS, Serial, ToolName, grouped
from orchestrator.records.device import DeviceState
from orchestrator.records.run import NOT_BEGUN, Outcome, RunRecord


@frozen
class OpenWork:
    """The open work of a device."""

    #: Invocations of the plan that aren't stored, in their order.
    planned: tuple[Invocation, ...]
    #: The next round beyond the plan; there may be more after it.
    added: tuple[Invocation, ...]
    #: Cases whose sustained measurement isn't whole.
    sustained: tuple[Invocation, ...]
    #: The reference workload, when nothing bracketed the last runs.
    reference_check: tuple[Invocation, ...]

    @property
    def invocations(self) -> tuple[Invocation, ...]:
        """All of it; more may follow."""
        return (*self.planned, *self.added, *self.sustained, *self.reference_check)


def open_work(
    campaign: Campaign, runs: Sequence[RunRecord], serial: Serial, tools: Mapping[ToolName, Tool]
) -> OpenWork:
    """Return the open work of a device; ``runs`` are its runs of this campaign."""
    invocations = tuple(item for item in campaign.invocations if item.case.serial == serial)
    # The work of other devices changes nothing here, and costs time.
    campaign = replace(campaign, invocations=invocations)
    done = {run.key for run in runs if run.outcome is not Outcome.UNFIT}
    planned = tuple(
        item
        for item in invocations
        if not stored_pass(item.run_pass).is_open_ended and item.key not in done
    )
    terms = campaign.terms
    added: tuple[Invocation, ...] = ()
    if terms.pairing is not None:
        from orchestrator.analysis.pairing import PairProgress

        added = tuple(PairProgress(campaign, serial, runs).added()) if not planned else ()
    elif terms.stopping is not None and not any(item.run_pass is FIGURE_PASS for item in planned):
        added = tuple(next_round(campaign, runs, serial, lambda case: session_of(tools, case)))
    return OpenWork(
        planned=planned,
        added=added,
        sustained=_open_sustained(invocations, runs, terms.sustained),
        reference_check=_open_reference(invocations, runs),
    )


def done_count(campaign: Campaign, runs: Sequence[RunRecord], serial: Serial) -> int:
    """Return the number of invocations that a device has done; ``runs`` are its runs of this
    campaign.

    A sustained measurement counts once it is whole; the reference workload never counts.
    """
    stored = sum(
        run.outcome is not Outcome.UNFIT and not stored_pass(run.run_pass).is_open_ended
        for run in runs
    )
    markers = [
        item for item in campaign.invocations if item.case.serial == serial and is_sustained(item)
    ]
    return stored + len(markers) - len(_open_sustained(markers, runs, campaign.terms.sustained))


def open_work_by_serial(
    campaign: Campaign, runs: Iterable[RunRecord], tools: Mapping[ToolName, Tool]
) -> dict[Serial, OpenWork]:
    """Return the open work of each of a campaign's devices; its ``runs`` may be :func:`slim`."""
    planned = grouped(campaign.invocations, lambda item: item.case.serial)
    stored = grouped(runs, lambda run: run.case.serial)
    return {
        serial: open_work(
            replace(campaign, invocations=tuple(planned[serial])), stored[serial], serial, tools
        )
        for serial in dict.fromkeys([*planned, *stored])
    }


def next_sustained(marker: Invocation, runs: Iterable[RunRecord]) -> Invocation:
    """Return the invocation that a sustained measurement would resume; ``runs`` are the device's."""
    case_runs = [run for run in runs if run.case.case_key == marker.case.case_key]
    numbers = [run.invocation for run in case_runs if is_sustained(run)]
    return replace(marker, number=max(numbers, default=marker.number - 1) + 1)


def slim(run: RunRecord) -> RunRecord:
    """Return a run with only what decisions need, a sixth of its size: a campaign's runs stay in
    memory until its end.

    Of the device's states the battery's temperature stays, and the mean clock between them.
    """
    report = run.report
    if report is not None:
        share = mean_clock_share(run)
        report = replace(
            report,
            operators=(),
            operator_types=(),
            profile_blocks=(),
            echoed={},
            delegate=replace(report.delegate, lines=(), cpu_operators=()),
            extra={**report.extra, MEAN_CLOCK: share} if share else report.extra,
        )
    return replace(
        run,
        attachments=(),
        command="",
        report=report,
        state_before=_battery_state(run.state_before) if is_reference_run(run) else None,
        state_after=_battery_state(run.state_after),
    )


def _battery_state(state: DeviceState | None) -> DeviceState | None:
    return None if state is None else DeviceState(at=state.at, battery_heat_c=state.battery_heat_c)


def _open_sustained(
    invocations: Sequence[Invocation], runs: Sequence[RunRecord], sustained_s: float
) -> tuple[Invocation, ...]:
    by_case = grouped(filter(is_sustained, runs), lambda run: run.case.case_key)
    return tuple(
        item
        for item in invocations
        if is_sustained(item) and not is_over(by_case[item.case.case_key], sustained_s)
    )


def _open_reference(
    invocations: Sequence[Invocation], runs: Sequence[RunRecord]
) -> tuple[Invocation, ...]:
    reference_items = [item for item in invocations if is_reference_run(item)]
    if not reference_items:
        return ()
    other_runs = [
        run for run in runs if not is_reference_run(run) and run.outcome is not Outcome.UNFIT
    ]
    # A run that wasn't begun needs no bracket.
    start_times = [run.started_at for run in other_runs if run.reason_code not in NOT_BEGUN]
    if other_runs and not start_times:
        return ()
    check_ends = [check.ended_at for check in checks(runs) if check.is_whole]
    is_bracketed = bool(check_ends) and (not start_times or max(check_ends) >= max(start_times))
    return () if is_bracketed else tuple(reference_items[:1])
