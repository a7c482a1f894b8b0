"""What a phone can resolve, by sessions of one configuration (A/A)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

from orchestrator.analysis.case_result import judge_latency
from orchestrator.analysis.effect import compare_samples, detectable_in_pairs
from orchestrator.analysis.outcome import of_one_kind
from orchestrator.analysis.summary import session_noise, summarize
from orchestrator.frozen import frozen
from orchestrator.records.case import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.units import counted, format_change, format_latency

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
class SmallestChange:
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
        """The smallest change that 'benchfarm compare' usually detects between two sessions; None with
        fewer than three.
        """
        if len(self.sessions) < 3:
            return None
        latencies = [session.latencies_us for session in self.sessions]
        before, after = map(summarize, latencies[-2:])
        return compare_samples(before, after, sessions=session_noise(latencies)).detectable

    @property
    def visible(self) -> list[SmallestChange]:
        """The smallest visible changes, by the minutes of measuring."""
        count = sum(session.processes for session in self.sessions)
        process_s = sum(session.seconds for session in self.sessions) / count
        noise = self.pair_noise
        rows = [
            SmallestChange(
                how=f"ab, {pairs} pairs",
                minutes=2 * pairs * process_s / 60,
                change=detectable_in_pairs(noise, pairs),
            )
            for pairs in _PAIRS
            if noise is not None
        ]
        if (between := self.between) is not None:
            session_s = statistics.median(session.seconds for session in self.sessions)
            rows.append(
                SmallestChange(how="two sessions", minutes=2 * session_s / 60, change=between)
            )
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


def campaign_session(runs: Sequence[RunRecord]) -> Session | None:
    """Return the session of one campaign's runs of a case; None where they have no figure."""
    summary = judge_latency(runs).own_summary
    ended = sorted(
        (run for run in runs if run.outcome is Outcome.COMPLETED), key=lambda run: run.started_at
    )
    figures = [latency_us for _, latency_us in of_one_kind(ended)[1]]
    if summary is None or not figures:
        return None
    return Session(
        median_us=summary.median_us,
        seconds=(ended[-1].ended_at - ended[0].started_at).total_seconds(),
        pairs=tuple(
            math.log(after / before)
            for before, after in zip(figures[::2], figures[1::2], strict=False)
        ),
        processes=len(figures),
        latencies_us=tuple(figures),
    )
