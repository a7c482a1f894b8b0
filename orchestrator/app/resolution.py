"""What a phone can resolve: one configuration measured in several sessions (A/A)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.resolution import Resolution, SmallestChange, campaign_session
from orchestrator.app.attached import Needs
from orchestrator.app.measuring import MeasuredCampaign, run_plan
from orchestrator.app.workspace import Workspace
from orchestrator.errors import BenchfarmError
from orchestrator.records.case import FIGURE_PASS, grouped
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan
from orchestrator.tables.table import Column, Kind, Table
from orchestrator.units import format_percent

#: The name of its campaigns, by which stored ones are found.
NAME: Final = "aa"
#: The newest sessions that are used: older ones say little about the phone's present state.
_NEWEST: Final = 12
SMALLEST_CHANGES: Final[Sequence[Column[SmallestChange]]] = (
    Column("how", "comparison", lambda row: row.how),
    Column("minutes", "takes", lambda row: row.minutes, Kind.NUMBER, "min", digits=1),
    Column(
        "change",
        "smallest change found",
        lambda row: row.change,
        Kind.NUMBER,
        shown=lambda row: format_percent(row.change),
    ),
)


def measure_equal_sides(
    workspace: Workspace, plan: Plan, *, sessions: int
) -> Sequence[MeasuredCampaign]:
    """Measure a plan in several sessions, each a campaign of its own with its part of the budget.

    Raises as ``measuring.run_plan``, and what ended a device's part. Sessions that were measured before
    an error are stored; a notice reports their results.
    """
    measured: list[MeasuredCampaign] = []
    budget = plan.budget and plan.budget / sessions
    session_plan = replace(
        plan, name=NAME, check_outputs=False, reference_check=False, budget=budget
    )
    for _ in range(sessions):
        try:
            measured.append(run_plan(workspace, session_plan, Needs.EACH).checked())
        except BenchfarmError:
            # Where the store can't be read either, the error has the next step.
            with suppress(BenchfarmError):
                lines = [item.text for item in measured_resolutions(workspace, measured)]
                for text in dict.fromkeys([*lines, *problems_of(measured)]):
                    workspace.notice("report", text)
            raise
    return measured


def problems_of(measured: Iterable[MeasuredCampaign]) -> list[str]:
    """Return the problems of campaigns that were measured, each once."""
    return list(dict.fromkeys(text for item in measured for text in item.problems))


def measured_resolutions(
    workspace: Workspace, measured: Iterable[MeasuredCampaign]
) -> list[Resolution]:
    """Return the resolutions of the phones of some campaigns, from the newest stored sessions."""
    serials = {item.case.serial for done in measured for item in done.campaign.invocations}
    facts = [item for item in workspace.store.devices().values() if item.serial in serials]
    return stored_resolutions(workspace, facts)


def sample_model() -> Path:
    """Return the default model."""
    from orchestrator.models.inspect import sample_models

    return sample_models()[0]


def stored_resolutions(workspace: Workspace, devices: Iterable[DeviceFacts]) -> list[Resolution]:
    """Return each phone's resolutions from its newest stored sessions; none without a session."""
    facts = {device.serial: device for device in devices}
    campaigns = [item.campaign_id for item in workspace.store.campaigns() if item.name == NAME]
    runs = (
        workspace.store.runs(campaign_ids=campaigns, serials=list(facts), run_passes=[FIGURE_PASS])
        if campaigns and facts
        else ()
    )
    resolutions = []
    for of_case in grouped(runs, lambda run: run.case.case_key).values():
        of_campaigns = grouped(of_case, lambda run: run.campaign_id).values()
        sessions = [
            item
            for session_runs in of_campaigns
            if (item := campaign_session(session_runs)) is not None
        ]
        if sessions:
            case = of_case[0].case
            resolutions.append(
                Resolution(
                    serial=case.serial,
                    title=facts[case.serial].title,
                    configuration=f"{case.model_name}, {case.configuration}",
                    sessions=tuple(sessions[-_NEWEST:]),
                )
            )
    return resolutions


def resolution_table(resolution: Resolution) -> Table[SmallestChange]:
    """Return the smallest changes that a phone can show, by minutes of measuring."""
    return Table(
        name=f"resolution {resolution.serial}",
        caption="What the phone can resolve",
        columns=SMALLEST_CHANGES,
        rows=resolution.visible,
        nothing="too few processes to say what can be resolved",
    )
