"""Advice from what a report shows, as text, Markdown and the list of allowed configurations that an app can embed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.analysis.advice import advise, alike, fleet_choice
from orchestrator.analysis.advice_case import AdviceCase
from orchestrator.analysis.case_result import comparable
from orchestrator.analysis.compare import best_of
from orchestrator.records.advice import Advice, AdviceReport
from orchestrator.records.device import DeviceFacts
from orchestrator.records.verdict import Quality
from orchestrator.report.columns import picked
from orchestrator.report.data import ReportData
from orchestrator.report.escapes import markdown_table, markdown_text, visible
from orchestrator.report.passes import EnergyRow
from orchestrator.report.rows import ResultRow

ALLOW_LIST_FORMAT: Final = "benchfarm-allow-list"
ALLOW_LIST_VERSION: Final = 1


def advice_of(data: ReportData, *, inferences: int | None = None) -> AdviceReport:
    """Return what a report's cases advise."""
    return advise([_case(row) for row in data.results], inferences=inferences)


def _case(row: ResultRow) -> AdviceCase:
    delegate, facts = row.delegate, row.device.facts
    profile = row.profiles[-1] if row.profiles else None
    return AdviceCase(
        case=row.case,
        result=row.result,
        device=row.device.title,
        big_cores=len(facts.big_cores) if facts is not None else 0,
        is_virtual=row.is_virtual,
        init_us=row.init_us,
        memory_mib=row.overall_memory_mib,
        energy_uj=_energy_uj(row.energy),
        energy_blocks={(row.energy.grade, *key): value for key, value in row.energy.blocks.items()}
        if row.energy
        else {},
        accuracy=row.accuracy,
        evaluated=row.evaluation.found if row.evaluation is not None else None,
        parity_error=row.result.parity_error,
        delegated_nodes=delegate.delegated_nodes if delegate is not None else None,
        total_nodes=delegate.total_nodes if delegate is not None else None,
        cpu_operators=delegate.cpu_operators if delegate is not None else (),
        operators=tuple((each.node_type, each.name, each.share) for each in profile.rows if not each.is_partition)
        if profile is not None
        else (),
        islands=profile.islands if profile is not None else 0,
    )


def _energy_uj(energy: EnergyRow | None) -> float | None:
    if energy is None or energy.net_uj is None or energy.quality is not Quality.TRUSTED:
        return None
    return energy.net_uj.value


def format_text(advice: AdviceReport) -> str:
    """Return advice for a terminal: model and device, then a line for each rule with evidence and source."""
    lines: list[str] = []
    head = ""
    for item in advice.lines:
        about = f"{visible(item.model)} on {visible(item.device)}"
        if about != head:
            lines += ["", about] if lines else [about]
            head = about
        lines.append(f"  {item.rule}: {visible(item.text)}")
        lines.append(f"      {len(item.evidence)} runs: {_runs(item, ', ')}; rule: {item.source}")
    lines += ["", _basis(advice)] if lines else [_basis(advice)]
    return "\n".join(lines)


def format_markdown(advice: AdviceReport) -> str:
    """Return advice as a Markdown table."""
    rows = [
        (item.model, item.device, item.rule, item.text, f"{len(item.evidence)}: {_runs(item, ' ')}", item.source)
        for item in advice.lines
    ]
    heads = ("model", "device", "rule", "advice", "runs", "source")
    lines = markdown_table(heads, ([markdown_text(cell) for cell in row] for row in rows))
    return "\n".join([*lines, "", _basis(advice)])


def _runs(item: Advice, between: str) -> str:
    """Return the first of the runs that a line comes from."""
    return between.join(run[:12] for run in item.evidence[:3]) + (" ..." if len(item.evidence) > 3 else "")


def _basis(advice: AdviceReport) -> str:
    text = f"From {advice.judged} of {advice.cases} cases, those whose figures count."
    if not advice.judged:
        text = f"None of {advice.cases} cases has a figure that counts, so there is no advice."
    return (
        f"{text} Figures of virtual phones are among them: they advise nothing about real ones."
        if (advice.is_virtual)
        else text
    )


def allow_list(data: ReportData, *, need_parity: bool = False) -> str:
    """Return the configurations that an app may use, as JSON: for each model the best on each phone and one for all.

    Phones are matched by their ``Build`` properties. The one for all is that of the real phones; of virtual ones only
    where there are no others. ``need_parity`` leaves out configurations whose outputs weren't found to agree with the
    reference.
    """
    models: dict[str, dict[tuple[str, bool], list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for row in data.results:
        is_sure = not need_parity or (row.result.parity is not None and row.result.parity.value == "same")
        if row.result.is_judged and is_sure:
            models[row.model.subject][row.device.serial, row.is_virtual].append(row)
    listed = {}
    for sha256, by_device in models.items():
        listed[sha256] = {
            "name": next(iter(by_device.values()))[0].case.model_name,
            "default": _default(by_device),
            "devices": [_entry(members) for members in by_device.values()],
        }
    document = {
        "format": ALLOW_LIST_FORMAT,
        "version": ALLOW_LIST_VERSION,
        "campaigns": [item.campaign_id for item in data.campaigns],
        "is_virtual": data.has_virtual,
        "models": listed,
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _default(by_device: Mapping[tuple[str, bool], Sequence[ResultRow]]) -> Mapping[str, object] | None:
    """Return the configuration for all phones; None where none has a figure on every one."""
    is_virtual = all(flag for _, flag in by_device)
    shown = {serial: rows for (serial, flag), rows in by_device.items() if flag is is_virtual}
    choice = fleet_choice({serial: alike([_case(row) for row in rows]) for serial, rows in shown.items()})
    if choice is None:
        return None
    name, regrets = choice
    chosen = next(row for rows in shown.values() for row in rows if row.case.configuration == name)
    return {**_configuration(chosen), "worst_regret": max(regrets.values()), "is_virtual": is_virtual}


def _entry(members: list[ResultRow]) -> Mapping[str, object]:
    """Return a phone with its fastest configuration."""
    results = comparable({row.key: row.result for row in members})
    found = best_of({key: result.summary for key, result in results.items() if result.summary is not None})
    assert found is not None
    best = next(row for row in members if row.key == found.fastest)
    summary = best.result.summary
    assert summary is not None
    interval = summary.interval
    return {
        "match": _match(best.device.facts),
        "is_virtual": best.is_virtual,
        "configuration": _configuration(best),
        "latency_us": summary.median_us,
        "interval_us": None if interval is None else [interval.low, interval.high],
        "parity": best.result.parity.value if best.result.parity is not None else None,
        "tied": [_configuration(row) for row in members if row.key in found.tied],
        "runs": list(best.result.used),
    }


def _configuration(row: ResultRow) -> dict[str, object]:
    case = row.case
    return {"delegate": case.delegate.value, "threads": case.threads, "flags": dict(case.flags)}


def _match(facts: DeviceFacts | None) -> Mapping[str, object]:
    known = picked(facts, "manufacturer model device=codename soc sdk fingerprint")
    return {name: value for name, value in known.items() if value}
