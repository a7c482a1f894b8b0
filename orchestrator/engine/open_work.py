"""What of a campaign is still to be run, as its plan and what is stored say: planned, added,
sustained, reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.analysis.drift import checks, is_over
from orchestrator.analysis.rounds import next_round
from orchestrator.analysis.samples import MEAN_CLOCK, mean_clock_share
from orchestrator.frozen import frozen
from orchestrator.passes import goes_on, is_around_others, shown
from orchestrator.ports import Tool, session_of
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import FIGURE_PASS, Serial, ToolName, grouped
from orchestrator.records.device import DeviceState
from orchestrator.records.run import NOT_BEGUN, Outcome, RunRecord


@frozen
class OpenWork:
    """What a device still has to do."""

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
        """All of it; at least so much is left."""
        return (*self.planned, *self.added, *self.sustained, *self.reference_check)


def open_work(
    campaign: Campaign, runs: Sequence[RunRecord], serial: Serial, tools: Mapping[ToolName, Tool]
) -> OpenWork:
    """Return what is open on a device; ``runs`` are that device's of this campaign."""
    mine = tuple(item for item in campaign.invocations if item.case.serial == serial)
    # What other devices have to do changes nothing here, and would be thought over for each of them
    # again.
    campaign = replace(campaign, invocations=mine)
    done = {run.key for run in runs if run.outcome is not Outcome.UNFIT}
    planned = tuple(
        item for item in mine if not shown(item.run_pass).is_open_ended and item.key not in done
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
        sustained=_open_sustained(mine, runs, terms.sustained),
        reference_check=_open_reference(mine, runs),
    )


def done_count(campaign: Campaign, runs: Sequence[RunRecord], serial: Serial) -> int:
    """Return how much a device has measured that needn't be measured again; ``runs`` are its of
    this campaign.

    A sustained measurement that is cut restarts and counts once it is whole; the reference workload
    never counts.
    """
    stored = sum(
        run.outcome is not Outcome.UNFIT and not shown(run.run_pass).is_open_ended for run in runs
    )
    markers = [
        item for item in campaign.invocations if item.case.serial == serial and goes_on(item)
    ]
    return stored + len(markers) - len(_open_sustained(markers, runs, campaign.terms.sustained))


def open_works(
    campaign: Campaign, runs: Iterable[RunRecord], tools: Mapping[ToolName, Tool]
) -> dict[Serial, OpenWork]:
    """Return what is open on each of a campaign's devices; ``runs`` are the campaign's,
    :func:`slim` ones will do.
    """
    planned = grouped(campaign.invocations, lambda item: item.case.serial)
    stored = grouped(runs, lambda run: run.case.serial)
    return {
        serial: open_work(
            replace(campaign, invocations=tuple(planned[serial])), stored[serial], serial, tools
        )
        for serial in dict.fromkeys([*planned, *stored])
    }


def following(marker: Invocation, runs: Iterable[RunRecord]) -> Invocation:
    """Return the invocation that a sustained measurement would resume; ``runs`` are the device's."""
    own = [run for run in runs if run.case.case_key == marker.case.case_key]
    numbers = [run.invocation for run in own if goes_on(run)]
    return replace(marker, number=max(numbers, default=marker.number - 1) + 1)


def slim(run: RunRecord) -> RunRecord:
    """Return a run with what decisions are made from, a sixth of its size: a campaign's are held
    until its end.

    Of the looks at the device the battery's heat stays, and how high the clocks were between them.
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
        state_before=_battery_of(run.state_before) if is_around_others(run) else None,
        state_after=_battery_of(run.state_after),
    )


def _battery_of(state: DeviceState | None) -> DeviceState | None:
    return None if state is None else DeviceState(at=state.at, battery_heat_c=state.battery_heat_c)


def _open_sustained(
    mine: Sequence[Invocation], runs: Sequence[RunRecord], sustained_s: float
) -> tuple[Invocation, ...]:
    by_case = grouped(filter(goes_on, runs), lambda run: run.case.case_key)
    return tuple(
        item
        for item in mine
        if goes_on(item) and not is_over(by_case[item.case.case_key], sustained_s)
    )


def _open_reference(
    mine: Sequence[Invocation], runs: Sequence[RunRecord]
) -> tuple[Invocation, ...]:
    marks = [item for item in mine if is_around_others(item)]
    aside = [run for run in runs if not is_around_others(run) and run.outcome is not Outcome.UNFIT]
    # What wasn't begun has nothing that could be bracketed.
    others = [run.started_at for run in aside if run.reason_code not in NOT_BEGUN]
    if aside and not others:
        return ()
    whole = [check.ended_at for check in checks(runs) if check.is_whole]
    is_bracketed = bool(whole) and (not others or max(whole) >= max(others))
    return () if is_bracketed else tuple(marks[:1])
