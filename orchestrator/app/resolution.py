"""What a phone can resolve: one configuration measured in several sessions (A/A)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.case_result import judge_latency
from orchestrator.analysis.effect import compare_samples, detectable_in_pairs
from orchestrator.analysis.outcome import of_one_kind
from orchestrator.analysis.summary import session_noise, summarize
from orchestrator.app.attached import Needs
from orchestrator.app.measuring import MeasuredCampaign, run
from orchestrator.app.workspace import Workspace
from orchestrator.engine.events import Notice
from orchestrator.errors import BenchfarmError
from orchestrator.frozen import frozen
from orchestrator.records.case import FIGURE_PASS, Serial, grouped
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.tables.table import Column, Kind, Table
from orchestrator.units import counted, format_change, format_latency, format_percent

#: The name of its campaigns, by which stored ones are found.
NAME: Final = "aa"
#: The newest sessions that are used: older ones say little about the phone's present state.
_NEWEST: Final = 12
#: The numbers of pairs for which the smallest visible change is listed.
_PAIRS: Final = (5, 10, 20, 40, 80)


@frozen
class Session:
    """One campaign of a configuration on one phone."""

    median_us: float
    seconds: float
    #: Logarithms of the ratios of neighbouring processes, in pairs.
    pairs: tuple[float, ...]
    processes: int
    #: One for each process, in the order of the runs.
    latencies_us: tuple[float, ...]


@frozen
class Visible:
    """The smallest change that a comparison of some length can show."""

    how: str
    minutes: float
    change: float


@frozen
class Resolution:
    """The sessions of equal sides on a phone, and the changes that it can show."""

    serial: Serial
    title: str
    configuration: str
    sessions: tuple[Session, ...]

    @property
    def pair_noise(self) -> float | None:
        """The standard deviation of the ratio of two processes in turns; None with too few."""
        ratios = [ratio for session in self.sessions for ratio in session.pairs]
        return statistics.stdev(ratios) if len(ratios) > 2 else None

    @property
    def between(self) -> float | None:
        """The smallest change that 'benchfarm compare' mostly shows between two sessions; None with
        fewer than three.
        """
        if len(self.sessions) < 3:
            return None
        latencies = [session.latencies_us for session in self.sessions]
        before, after = map(summarize, latencies[-2:])
        return compare_samples(before, after, sessions=session_noise(latencies)).detectable

    @property
    def visible(self) -> list[Visible]:
        """The smallest visible changes, by the minutes of measuring."""
        count = sum(session.processes for session in self.sessions)
        process_s = sum(session.seconds for session in self.sessions) / count
        noise = self.pair_noise
        rows = [
            Visible(
                how=f"ab, {pairs} pairs",
                minutes=2 * pairs * process_s / 60,
                change=detectable_in_pairs(noise, pairs),
            )
            for pairs in _PAIRS
            if noise is not None
        ]
        if (between := self.between) is not None:
            session_s = statistics.median(session.seconds for session in self.sessions)
            rows.append(Visible(how="two sessions", minutes=2 * session_s / 60, change=between))
        return rows

    @property
    def text(self) -> str:
        """The sessions in a sentence."""
        medians = [session.median_us for session in self.sessions]
        apart = format_change(max(medians) / min(medians))
        return (
            f"{self.serial} ({self.title}), {self.configuration}: {counted(len(medians), 'session')}, "
            f"{format_latency(min(medians))} to {format_latency(max(medians))} ({apart})"
        )


VISIBLE: Final[Sequence[Column[Visible]]] = (
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

    Raises as ``measuring.run``, and what ended a device's part. Sessions that were measured before
    an error are stored; a notice reports their results.
    """
    measured: list[MeasuredCampaign] = []
    budget = plan.budget and plan.budget / sessions
    session_plan = replace(
        plan, name=NAME, check_outputs=False, reference_check=False, budget=budget
    )
    for _ in range(sessions):
        try:
            measured.append(run(workspace, session_plan, Needs.EACH).checked())
        except BenchfarmError:
            # Where the store can't be read either, the error has the next step.
            with suppress(BenchfarmError):
                lines = [item.text for item in measured_resolutions(workspace, measured)]
                for text in dict.fromkeys([*lines, *problems_of(measured)]):
                    workspace.observer.on_event(Notice(event="report", text=text))
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
            item for session_runs in of_campaigns if (item := _session(session_runs)) is not None
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


def _session(runs: Sequence[RunRecord]) -> Session | None:
    """Return the session of one campaign's runs of a case; None where they have no figure."""
    summary = judge_latency(runs).own_summary
    ended = sorted(
        (run for run in runs if run.outcome is Outcome.COMPLETED), key=lambda run: run.started_at
    )
    figures = [latency_us for _, latency_us in of_one_kind(ended)[1]]
    if summary is None or not figures:
        return None
    last = ended[-1]
    seconds = (last.started_at - ended[0].started_at).total_seconds() + last.duration_s
    return Session(
        median_us=summary.median_us,
        seconds=seconds,
        pairs=tuple(
            math.log(after / before)
            for before, after in zip(figures[::2], figures[1::2], strict=False)
        ),
        processes=len(figures),
        latencies_us=tuple(figures),
    )


def resolution_table(resolution: Resolution) -> Table[Visible]:
    """Return the smallest changes that a phone can show, by minutes of measuring."""
    return Table(
        name=f"resolution {resolution.serial}",
        caption="What the phone can resolve",
        columns=VISIBLE,
        rows=resolution.visible,
        nothing="too few processes to say what can be resolved",
    )
