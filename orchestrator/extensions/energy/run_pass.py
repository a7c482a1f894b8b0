"""The record of the pass ``energy``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.analysis.effect import Mean, mean_of, ratio_of
from orchestrator.analysis.quality import worst_quality
from orchestrator.extensions.energy.figure import (
    LEAST_REST_S,
    LEAST_WORK_S,
    MeterBook,
    PowerSource,
)
from orchestrator.passes.specification import (
    OVERHEAD_S,
    PassServices,
    PassSpec,
    RunProgram,
    rounds,
    why_not_executable,
)
from orchestrator.plugins import Program
from orchestrator.ports import Tool
from orchestrator.records import frozen
from orchestrator.records.case import Case, Pass
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import Quality
from orchestrator.report.advice import Sentence, times_as_long
from orchestrator.report.winners import by_threads, fastest_row
from orchestrator.tables.passes import PassTable, Round, interval_words, quality_class, quality_word
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import PAGE, PEOPLE, Column, Form, Kind
from orchestrator.units import counted, format_percent

#: Rounds where no fixed number is given.
_ROUNDS: Final = 6


def _runner(services: PassServices) -> RunProgram:
    from orchestrator.extensions.energy.measuring import EnergyMeter

    return EnergyMeter(services.hold, MeterBook(services.folder("meters")), services.hub_power).run


def _read(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    from orchestrator.extensions.energy.measuring import with_energy

    return with_energy(tool, report, raw, case)


def _numbers(plan: Plan, case: Case, program: Program) -> range:
    return range(rounds(plan, _ROUNDS))


def _least_s(case: Case, terms: PlanTerms) -> float:
    # With rails; a battery takes five times as long.
    return (
        OVERHEAD_S
        + 2 * LEAST_REST_S[PowerSource.RAILS]
        + max(LEAST_WORK_S[PowerSource.RAILS], case.min_secs)
    )


@frozen
class EnergyRow:
    """The energy of a case's inferences, a block being a run between two rests; microjoules."""

    #: None where no block has a figure.
    net_uj: Mean | None = None
    gross_uj: Mean | None = None
    #: ``rails``, ``battery``, ``unverified``; empty where no block has a figure.
    grade: str = ""
    rails: tuple[str, ...] = ()
    #: Of the worst block, without rejected ones. None where no block has a figure.
    quality: Quality | None
    #: Largest difference of a block's two rests, as a share of its net power.
    drift: float | None = None
    #: Reasons why blocks have no figure, with their number.
    missing: tuple[tuple[str, int], ...] = ()
    #: Net energy by round.
    blocks: Mapping[Round, float]

    def against(self, other: EnergyRow) -> Mean | None:
        """Return the ratio of the net energy to another case's, by the rounds that both have."""
        return ratio_of(self.blocks, other.blocks) if self.grade == other.grade else None


def energy_row(runs: Sequence[RunRecord]) -> EnergyRow | None:
    """Return a case's energy by its runs of that pass, None without any; blocks of its commonest
    grade count.
    """
    run_extras = [
        (run, run.report.extra)
        for run in runs
        if run.report is not None and not run.is_without_result
    ]
    if not run_extras:
        return None
    missing = Counter(
        str(extra["energy_missing"]) for _, extra in run_extras if "energy_missing" in extra
    )
    grades = Counter(
        str(extra["energy_grade"]) for _, extra in run_extras if "energy_grade" in extra
    )
    grade = grades.most_common(1)[0][0] if grades else ""
    blocks = [(run, extra) for run, extra in run_extras if extra.get("energy_grade") == grade]
    return EnergyRow(
        net_uj=mean_of([float(extra["energy_net_uj"]) for _, extra in blocks]),
        gross_uj=mean_of([float(extra["energy_gross_uj"]) for _, extra in blocks]),
        grade=grade,
        rails=tuple(
            sorted(
                {rail for _, extra in blocks for rail in str(extra.get("energy_rails", "")).split()}
            )
        ),
        quality=worst_quality(run for run, _ in run_extras) if blocks else None,
        drift=max((_drift(extra) for _, extra in blocks), default=None),
        missing=tuple(missing.most_common()),
        blocks={
            (str(run.campaign_id), run.invocation): float(extra["energy_net_uj"])
            for run, extra in blocks
        },
    )


def _drift(extra: Mapping[str, float | str]) -> float:
    work, before, after = (
        float(extra[f"energy_{name}_w"]) for name in ("work", "rest_before", "rest_after")
    )
    return abs(after - before) / (work - (before + after) / 2)


def _share(mean: Mean | None) -> float | None:
    return None if mean is None or mean.half_width is None else mean.half_width / mean.value


def _missing(item: EnergyRow) -> str:
    return "; ".join(f"{why} ({count})" for why, count in item.missing)


def _missing_text(item: EnergyRow) -> str:
    blocks = sum(count for _, count in item.missing)
    return f"{counted(blocks, 'block')} without a figure: {_missing(item)}" if blocks else ""


_TEXT: Final = frozenset({Form.TEXT})
_COLUMNS: Final[Sequence[Column[EnergyRow]]] = (
    Column(
        "energy_net_uj",
        "net",
        lambda item: item.net_uj and item.net_uj.value,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
    ),
    Column(
        "energy_net_half_uj",
        "±95 %",
        lambda item: item.net_uj and item.net_uj.half_width,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
        shown=lambda item: interval_words(item.net_uj, _share(item.net_uj)),
    ),
    Column(
        "energy_gross_uj",
        "gross",
        lambda item: item.gross_uj and item.gross_uj.value,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
    ),
    Column("energy_grade", "by", lambda item: item.grade or None, is_choice=True),
    Column("blocks", value=lambda item: len(item.blocks), kind=Kind.COUNT, forms=PEOPLE),
    Column(
        "drift",
        "rests differ by",
        lambda row: row.drift,
        kind=Kind.NUMBER,
        unit="%",
        scale=100,
        digits=1,
        forms=PAGE,
    ),
    Column(
        "quality",
        value=lambda row: row.quality,
        shown=quality_word,
        tone=quality_class,
        forms=PEOPLE,
    ),
    Column("rails", value=lambda item: " ".join(item.rails), is_optional=True, forms=PEOPLE),
    Column("missing", "blocks without a figure", _missing, is_optional=True, forms=PEOPLE - _TEXT),
    # The text is below the row, uncut, where there is no room.
    Column("missing", "", _missing_text, is_optional=True, forms=_TEXT),
)


def _caption(cases: Sequence[Case]) -> str:
    unit = " or ".join(sorted({"token" if case.is_per_token else "inference" for case in cases}))
    return f"Energy per {unit}, net of the phone's at rest"


def _record(lines: Sequence[EnergyRow], case: Case) -> Mapping[str, object] | None:
    if not lines:
        return None
    (energy,) = lines
    return {
        "per": "token" if case.is_per_token else "inference",
        "net_uj": energy.net_uj,
        "gross_uj": energy.gross_uj,
        "grade": energy.grade,
        "quality": energy.quality,
        "rails": energy.rails,
        "drift": energy.drift,
        "missing": [{"reason": reason, "blocks": count} for reason, count in energy.missing],
    }


TABLE: Final = PassTable(
    name="energy",
    key="energy",
    title="Energy",
    legend="Means over blocks of the pass energy: a rest, inferences, a rest. Net is above the phone's power at rest, "
    "gross with it. By rails: the sum of the chip's rails that are named, without display and radios; by battery: the "
    "whole phone. The two are never compared. Meters differ by some percent between phones.",
    caption=_caption,
    columns=_COLUMNS,
    lines=lambda runs, campaigns: [row] if (row := energy_row(runs)) is not None else [],
    record=_record,
    is_single=True,
)


def _energy_uj(row: ResultRow) -> float | None:
    for energy in row.pass_lines.get(TABLE.name, ()):
        if energy.quality is Quality.TRUSTED and energy.net_uj is not None:
            return float(energy.net_uj.value)
    return None


def threads_energy(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    """Yield the extra energy of the fastest number of threads against the most frugal one."""
    for group in by_threads(row for row in rows if _energy_uj(row) is not None):
        fastest, frugal = fastest_row(group), min(group, key=lambda row: _energy_uj(row) or 0.0)
        (fastest_energy,), (frugal_energy,) = (
            row.pass_lines[TABLE.name] for row in (fastest, frugal)
        )
        ratio = fastest_energy.against(frugal_energy)
        if (
            fastest is frugal
            or ratio is None
            or ratio.half_width is None
            or ratio.value <= 1 + ratio.half_width
        ):
            continue
        many, fewer = (counted(row.case.threads, "thread") for row in (fastest, frugal))
        low, high = (
            ratio.value / (1 + ratio.half_width) - 1,
            ratio.value * (1 + ratio.half_width) - 1,
        )
        unit = "a token" if fastest.case.is_per_token else "an inference"
        text = (
            f"{fastest.configuration}: {fewer} would take {times_as_long(frugal, fastest)} as long; {many} cost "
            f"{format_percent(ratio.value - 1)} more energy {unit} [{format_percent(low)}, {format_percent(high)}]"
        )
        yield Sentence(text, [fastest, frugal])


PASS = PassSpec(
    name=Pass("energy"),
    about="The energy of an inference, by the phone's own meters",
    guide="in-use",
    runner=_runner,
    kinds=frozenset({DeviceKind.ANDROID}),
    needs=why_not_executable,
    numbers=_numbers,
    turn=lambda terms: 1,
    least_s=_least_s,
    read=_read,
    table=TABLE,
    advice={"energy-of-threads": threads_energy},
    names_suspect_runs=True,
)
