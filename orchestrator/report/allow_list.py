"""The list of allowed configurations that an app can embed: for each model the best on each phone, and one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.records.parity import ParityVerdict
from orchestrator.records.workload import grouped
from orchestrator.report.advice import fleet_choice
from orchestrator.report.columns import picked
from orchestrator.report.data import ReportData
from orchestrator.report.rows import ResultRow
from orchestrator.report.winners import Contest, contest_of, figure_of

ALLOW_LIST_FORMAT: Final = "benchfarm-allow-list"
ALLOW_LIST_VERSION: Final = 1


def allow_list(data: ReportData, *, need_parity: bool = False) -> dict[str, object]:
    """Return the configurations that an app may use: for each model the best on each phone and one for all.

    Phones are matched by their ``Build`` properties. The one for all is that of the real phones; of virtual ones only
    where there are no others. ``need_parity`` leaves out configurations whose outputs weren't found to agree with the
    reference.
    """
    contests = []
    for item in data.contests:
        rows = [row for row in item.clean if not need_parity or row.result.parity is ParityVerdict.SAME]
        contests += [contest_of(rows)] if rows else []
    models = grouped(contests, lambda item: item.shown.model.subject)
    return {
        "format": ALLOW_LIST_FORMAT,
        "version": ALLOW_LIST_VERSION,
        "campaigns": [item.campaign_id for item in data.campaigns],
        "is_virtual": data.has_virtual,
        "models": {
            subject: {
                "name": members[0].shown.case.model_name,
                "default": _default(members),
                "devices": [_entry(item) for item in members],
            }
            for subject, members in models.items()
        },
    }


def _default(contests: Sequence[Contest]) -> Mapping[str, object] | None:
    """Return the configuration for all phones; None where none has a figure on every one."""
    is_virtual = all(item.shown.is_virtual for item in contests)
    shown = [item for item in contests if item.shown.is_virtual is is_virtual]
    choice = fleet_choice({item.shown.device.serial: item.rows for item in shown})
    if choice is None:
        return None
    rows, regrets = choice
    return {**_configuration(rows[0]), "worst_regret": max(regrets), "is_virtual": is_virtual}


def _entry(contest: Contest) -> Mapping[str, object]:
    """Return a phone with its fastest configuration."""
    best = contest.shown
    figure = figure_of(best)
    known = picked(best.device.facts, "manufacturer model device=codename soc sdk fingerprint")
    return {
        "match": {name: value for name, value in known.items() if value},
        "is_virtual": best.is_virtual,
        "configuration": _configuration(best),
        "latency_us": figure.median_us,
        "interval_us": None if figure.interval is None else [figure.interval.low, figure.interval.high],
        "parity": best.result.parity.value if best.result.parity is not None else None,
        "tied": [_configuration(row) for row in contest.tied],
        "runs": list(best.result.used),
    }


def _configuration(row: ResultRow) -> dict[str, object]:
    return {"delegate": row.case.delegate.value, "threads": row.case.threads, "flags": dict(row.case.flags)}
