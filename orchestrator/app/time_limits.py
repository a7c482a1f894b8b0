"""The time limits of a campaign, from options and plan, and the cases left out because of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.records import frozen
from orchestrator.records.case import (
    CampaignId,
    Case,
    DelegateName,
    Serial,
    SkippedCase,
    ToolName,
    grouped,
)
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.run import OUT_OF_TIME
from orchestrator.tables.labels import no_time_text
from orchestrator.units import parse_age, parse_seconds

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


def limited(plan: Plan, limits: PlanOptions, now: datetime) -> Plan:
    """Return the plan with the limits ``budget``, which only narrows its time, and ``until``, as
    typed.

    Raises PlanError, UsageError.
    """
    from orchestrator.config.plan import terms_from_options

    if budget := limits.get("budget"):
        seconds = terms_from_options(budget=budget).budget
        plan = replace(plan, budget=min(filter(None, (seconds, plan.budget))))
    if until := limits.get("until"):
        plan = replace(plan, until=moment_of(until, now))
    return plan


def span_of(option: str, text: str) -> float:
    """Return the seconds of an option's text, 0 for an empty one; raises UsageError."""
    return _seconds(option, text, parse_seconds) if text else 0.0


def age_of(option: str, text: str) -> float:
    """Return the seconds of the age in an option's text; raises UsageError."""
    return _seconds(option, text, parse_age, hint="a number with its unit, for example 90d")


def _seconds(option: str, text: str, parse: Callable[[str], float], hint: str = "") -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=hint) from error


def moment_of(text: str, now: datetime) -> datetime:
    """Return the moment (UTC) of ``06:00`` (the next one here) or of a date with a time.

    Raises UsageError.
    """
    try:
        if len(text) <= 5:
            time_of_day, today = time.fromisoformat(text.rjust(5, "0")), now.astimezone().date()
            local_times = [
                datetime.combine(today + timedelta(days=day), time_of_day) for day in (0, 1)
            ]
        else:
            local_times = [datetime.fromisoformat(text)]
        # Times of the first and the last year may not exist in UTC.
        moments = [moment for local in local_times for moment in _moments(local)]
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--until: {error}", hint="for example 06:00 or 2026-11-23T06:00"
        ) from error
    moment = next((moment for moment in moments if moment > now), None)
    if moment is None:
        raise UsageError(f"--until {text} has passed")
    return moment


def _moments(local: datetime) -> list[datetime]:
    """Return the moments (UTC) of a local time: two in the hour that the end of summer time
    repeats.

    A time that doesn't exist when summer time begins counts as the time an hour later.
    """
    moments = sorted(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if local.tzinfo is not None:
        return moments[:1]
    is_there = [item for item in moments if item.astimezone().replace(tzinfo=None, fold=0) == local]
    return is_there or moments[1:]


@frozen
class LeftOut:
    """A case that a campaign had no time for, or some of its invocations."""

    serial: Serial
    model: str
    delegate: DelegateName
    threads: int
    tool: ToolName
    #: None for the whole case.
    invocations: int | None
    reason: str


def _left_out(case: SkippedCase | Case, invocations: int | None, reason: str) -> LeftOut:
    return LeftOut(
        serial=case.serial,
        model=case.model_name,
        delegate=case.delegate,
        threads=case.threads,
        tool=case.tool,
        invocations=invocations,
        reason=reason,
    )


def stored_left_out(
    store: Store, campaign_ids: Sequence[CampaignId]
) -> Mapping[CampaignId, Sequence[LeftOut]]:
    """Return the cases, then the single invocations, that stored campaigns had no time for;
    campaigns with time for all are left out.

    Only the runs without time are read.
    """
    skips = store.skips(campaign_ids, OUT_OF_TIME)
    runs = store.runs(campaign_ids=campaign_ids, reason_codes=[OUT_OF_TIME]) if campaign_ids else ()
    late = grouped(runs, lambda run: run.campaign_id)
    return {
        name: [
            *(_left_out(skip, None, skip.reason) for skip in skips.get(name, ())),
            *(
                _left_out(alike[0].case, len(alike), alike[0].reason)
                for alike in grouped(late.get(name, ()), lambda run: run.case.case_key).values()
            ),
        ]
        for name in dict.fromkeys(campaign_ids)
        if name in skips or name in late
    }


def left_out_text(left_out: Sequence[LeftOut]) -> str:
    """Return one line about the cases and invocations without time, empty when all was measured."""
    cases = sum(item.invocations is None for item in left_out)
    return no_time_text(cases, sum(item.invocations or 0 for item in left_out))
