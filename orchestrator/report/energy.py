"""What the passes ``energy`` and ``contention`` show of a case; never mixed with the figures of other passes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.energy import Mean, mean_of, ratio_of
from orchestrator.records.contention import LOAD_DIED, NO_LOAD
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass

#: Campaign and round: what was measured in one round is a pair.
_Round = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """The energy of a case's inferences, a block being a run between two rests; microjoules."""

    #: None where no block has a figure.
    net_uj: Mean | None = None
    gross_uj: Mean | None = None
    #: ``rails``, ``battery``, ``unverified``.
    grade: str = ""
    rails: tuple[str, ...] = ()
    #: Of the worst block; rejected ones aren't among them.
    quality: Quality
    #: Largest difference of a block's two rests, as a share of its net power.
    drift: float | None = None
    #: Why blocks have no figure, with their number.
    missing: tuple[tuple[str, int], ...] = ()
    #: Net energy by round.
    blocks: Mapping[_Round, float]

    def against(self, other: EnergyRow) -> Mean | None:
        """Return how many times as much as another case it takes, by the rounds that both have."""
        return ratio_of(self.blocks, other.blocks) if self.grade == other.grade else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """A case beside one load."""

    load: str
    #: Microseconds, over the runs.
    median_us: float | None
    #: Times as long as without a load, by the rounds that have both.
    factor: Mean | None
    count: int
    #: Cores that the load kept busy, of those it was seen to.
    cores: float | None
    #: Runs whose load didn't run all the time.
    died: int


def energy_row(runs: Sequence[RunRecord]) -> EnergyRow | None:
    """Return a case's energy, None where no run of the pass is there. Blocks of its commonest grade count."""
    own = [run for run in runs if run.run_pass is Pass.ENERGY and run.report is not None and not run.is_without_result]
    told = [(run, run.report.extra) for run in own if run.report is not None]
    if not told:
        return None
    missing = Counter(str(extra["energy_missing"]) for _, extra in told if "energy_missing" in extra)
    grades = Counter(str(extra["energy_grade"]) for _, extra in told if "energy_grade" in extra)
    grade = grades.most_common(1)[0][0] if grades else ""
    blocks = [(run, extra) for run, extra in told if extra.get("energy_grade") == grade]
    rails = {rail for _, extra in blocks for rail in str(extra.get("energy_rails", "")).split()}
    return EnergyRow(
        net_uj=mean_of([float(extra["energy_net_uj"]) for _, extra in blocks]),
        gross_uj=mean_of([float(extra["energy_gross_uj"]) for _, extra in blocks]),
        grade=grade,
        rails=tuple(sorted(rails)),
        quality=Quality.SUSPECT if any(run.verdict.quality is Quality.SUSPECT for run, _ in told) else Quality.TRUSTED,
        drift=max((_drift(extra) for _, extra in blocks), default=None),
        missing=tuple(missing.most_common()),
        blocks={(str(run.campaign_id), run.invocation): float(extra["energy_net_uj"]) for run, extra in blocks},
    )


def _drift(extra: Mapping[str, float | str]) -> float:
    work, before, after = (float(extra[f"energy_{name}_w"]) for name in ("work", "rest_before", "rest_after"))
    return abs(after - before) / (work - (before + after) / 2)


def load_rows(runs: Sequence[RunRecord], widths: Mapping[str, int]) -> tuple[LoadRow, ...]:
    """Return a case's figures by load, without one first; ``widths`` is how many runs a round has, by campaign."""
    seen: dict[str, dict[_Round, float]] = {}
    cores: dict[str, list[float]] = {}
    died: Counter[str] = Counter()
    for run in runs:
        if run.run_pass is not Pass.CONTENTION or run.report is None or "load" not in run.report.extra:
            continue
        load = str(run.report.extra["load"])
        own = seen.setdefault(load, {})
        died[load] += run.reason_code == LOAD_DIED
        latency_us = run.report.latency_us()
        if not run.is_without_result and latency_us is not None:
            campaign = str(run.campaign_id)
            own[campaign, run.invocation // widths.get(campaign, 1)] = latency_us
            if "load_cores" in run.report.extra:
                cores.setdefault(load, []).append(float(run.report.extra["load_cores"]))
    alone = seen.get(NO_LOAD, {})
    return tuple(
        LoadRow(
            load=load,
            median_us=statistics.median(own.values()) if own else None,
            factor=ratio_of(own, alone) if load != NO_LOAD else None,
            count=len(own),
            cores=statistics.fmean(cores[load]) if load in cores else None,
            died=died[load],
        )
        for load, own in sorted(seen.items(), key=lambda item: (item[0] != NO_LOAD, item[0]))
    )
