"""Results for other programs and for pull requests: CSV, JSON with a versioned schema, Markdown."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, Literal

from orchestrator import __version__
from orchestrator.analysis.energy import Mean
from orchestrator.analysis.summary import LEVEL
from orchestrator.errors import UsageError
from orchestrator.records.device import DeviceState
from orchestrator.report.data import BestMark, CampaignRow, DeviceRow, InvocationRow, ReportData, ResultRow
from orchestrator.report.energy import EnergyRow
from orchestrator.report.escapes import csv_text, markdown_text
from orchestrator.report.labels import NOTHING, figure_text
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.published import SOURCE
from orchestrator.report.tables import (
    campaign_of,
    delegate_text,
    flat_record,
    has_mean,
    invocation_record,
    quality_text,
    spread_text,
)

SCHEMA: Final = "benchfarm-report"
#: Raised when a key goes away or changes its meaning; new keys don't raise it.
SCHEMA_VERSION: Final = 1
_CAMPAIGN: Final = "campaign_id name status created_at finished_at host origin benchfarm_version seed"
#: Of a table for people, in its order.
HEADERS: Final = ("model", "device", "configuration", "median ms", "spread", "vs CPU", "delegate", "quality")
_BEST_WORDS: Final = {BestMark.BEST: " (fastest)", BestMark.TIED: " (tied)", BestMark.NONE: ""}


def to_csv(*parts: ReportData, rows: Literal["cases", "invocations"] = "cases") -> str:
    """Return the results as CSV (RFC 4180, but lines end in LF), one line a case or one an invocation.

    With a part for each campaign there is a line for each case and campaign. Text is one line each, with controls made
    visible, and can't be taken for a formula by a spreadsheet.
    """
    from orchestrator.report.frames import frame_of

    text: str = frame_of(parts, rows).map(_csv_value).to_csv(index=False, lineterminator="\n")
    return text


def to_parquet(
    *parts: ReportData, rows: Literal["cases", "invocations"] = "cases", text: Callable[[str], str] = str
) -> bytes:
    """Return the same columns as :func:`to_csv` as a Parquet file; it names its schema and version.

    ``text`` makes of each text as it is stored what is written.

    Raises UsageError when pyarrow, the extra ``analytics``, isn't installed.
    """
    from orchestrator.report.frames import frame_of, utf8

    try:
        frame = frame_of(parts, rows)
        attributes = dict(frame.attrs)
        frame = frame.map(lambda value: text(utf8(value)) if isinstance(value, str) else value)
        frame.attrs = attributes
        content: bytes = frame.to_parquet(index=False, engine="pyarrow", compression="zstd")
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which isn't installed", hint="pip install 'benchfarm[analytics]'"
        ) from error
    return content


def to_json(data: ReportData, *further: ReportData) -> str:
    """Return everything as JSON: times in microseconds, text as stored, keys documented in docs/reference/exports.md.

    With further parts, one for each campaign, there is a result for each case and campaign. The headline is of the
    first.
    """
    parts = (data, *further)
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "benchfarm_version": __version__,
        "interval_level": LEVEL,
        "has_virtual": any(part.has_virtual for part in parts),
        "headline": {
            "scope": data.headline.scope,
            "answers": list(data.headline.answers),
            "trust": data.headline.trust,
            "warnings": list(data.headline.warnings),
        },
        "campaigns": _once("campaign_id", (_picked(row, _CAMPAIGN) for part in parts for row in part.campaigns)),
        "devices": _once("serial", (_device(row) for part in parts for row in part.devices)),
        "models": _once(
            "sha256",
            (_picked(row, "sha256 label size_bytes") for part in parts for row in part.models),
        ),
        "builds": _once(
            "sha256", (_picked(row, "sha256 name tool abi version is_virtual") for part in parts for row in part.builds)
        ),
        "results": [_result(row, campaign_of(row, part)) for part in parts for row in part.results],
        "skipped": [
            {
                "campaign_id": part.campaigns[0].campaign_id if len(part.campaigns) == 1 else None,
                **_picked(row.device, "serial device=title is_virtual"),
                **_picked(row, "model=model_name delegate threads tool reason_code reason"),
            }
            for part in parts
            for row in part.skipped
        ],
        "published": [
            {"source": SOURCE} | _picked(figure, "model device configuration latency_us") for figure in data.published
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _once(key: str, records: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the last record of each key, in the order of the first ones."""
    return list({record[key]: record for record in records}.values())


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _picked(record: object, names: str) -> dict[str, object]:
    """Return fields of a record by their names; one that is called otherwise is written ``key=field``."""
    pairs = [word.rpartition("=")[::2] for word in names.split()]
    return {key or field: _plain(getattr(record, field)) for key, field in pairs}


def to_markdown(data: ReportData) -> str:
    """Return the results as Markdown with one table, for pull requests and job summaries."""
    lines = [markdown_text(data.headline.scope), ""]
    lines += [f"- {markdown_text(answer)}" for answer in (*data.headline.answers, data.headline.trust)]
    if data.results:
        decimals = figures_decimals(data.results)
        lines += [
            "",
            f"| {' | '.join(HEADERS)} |",
            "| --- | --- | --- | ---: | ---: | ---: | --- | --- |",
            *(_markdown_line(row, decimals) for row in data.results),
        ]
    if data.headline.warnings:
        lines += ["", "Not to be trusted:", "", *(f"- {markdown_text(text)}" for text in data.headline.warnings)]
    return "\n".join(lines) + "\n"


def _markdown_line(row: ResultRow, decimals: int) -> str:
    model, device, configuration, figure, spread, ratio, delegate, quality = result_cells(row, decimals)
    figure = (f"**{figure}**" if row.best is BestMark.BEST else figure) + _BEST_WORDS[row.best]
    named = map(markdown_text, (model, device, configuration))
    return f"| {' | '.join([*named, figure, spread, ratio, markdown_text(delegate), quality])} |"


def result_cells(row: ResultRow, decimals: int) -> tuple[str, ...]:
    """Return a case's row under HEADERS, nothing of it escaped."""
    own = row.result.own_summary
    return (
        row.model.label,
        row.device.title,
        row.configuration,
        _figure(row, own.median_us if own is not None else None, decimals),
        spread_text(row) if own is not None else NOTHING,
        NOTHING if row.speed_up is None else f"{row.speed_up.value:.2f}x",
        delegate_text(row),
        quality_text(row) + (", virtual" if row.is_virtual else ""),
    )


def _figure(row: ResultRow, latency_us: float | None, decimals: int) -> str:
    unit = " tokens/s" if row.case.is_per_token and latency_us is not None else " (mean)" if has_mean(row) else ""
    return f"{figure_text(row.case, latency_us, decimals)}{unit}"


def _csv_value(value: object) -> object:
    return csv_text(value) if isinstance(value, str) else value


def _device(row: DeviceRow) -> Mapping[str, object]:
    known = _picked(row, "serial label is_virtual")
    if row.facts is not None:
        known |= _picked(
            row.facts,
            "kind is_emulator manufacturer model codename os_version sdk fingerprint security_patch soc abis clusters "
            "memory_bytes gpu gpu_driver profile",
        )
        known["clusters"] = [_picked(cluster, "cpus min_khz max_khz") for cluster in row.facts.clusters]
    return known


def _result(row: ResultRow, campaign: CampaignRow | None) -> Mapping[str, object]:
    return {
        "campaign_id": campaign.campaign_id if campaign is not None else None,
        **flat_record(row),
        "flags": [list(flag) for flag in row.case.flags],
        "notes": list(row.result.notes),
        "stopped": [{"reason": code, "text": text} for code, text in row.stopped],
        "next_step": row.next_step,
        "findings": [
            _picked(finding, "code severity message evidence invocations=count next_step") for finding in row.findings
        ],
        "starts": [
            _picked(start, "stage invocations=count init_us first_inference_us=first_us quality")
            for start in row.starts
        ],
        "energy": _energy(row.energy, per="token" if row.case.is_per_token else "inference"),
        "evaluations": [
            {
                "metric": each.found.metric if each.found is not None else None,
                "percent": each.percent,
                "count": each.found.count if each.found is not None else None,
                "differences": [list(pair) for pair in each.found.differences] if each.found is not None else [],
                "is_shown": each.is_shown,
                "reason": each.reason,
                "evaluated_at": each.evaluated_at.isoformat(),
                "program_sha256": each.program_sha256,
                "command": each.command,
            }
            for each in row.evaluations
        ],
        "contention": [
            _picked(load, "load median_us factor runs=count cores died") | {"factor": _mean(load.factor)}
            for load in row.loads
        ],
        "invocations": [_invocation(row, invocation) for invocation in row.invocations],
    }


def _energy(energy: EnergyRow | None, *, per: str) -> Mapping[str, object] | None:
    if energy is None:
        return None
    return {
        "per": per,
        "net_uj": _mean(energy.net_uj),
        "gross_uj": _mean(energy.gross_uj),
        **_picked(energy, "grade quality rails drift"),
        "missing": [{"reason": reason, "blocks": count} for reason, count in energy.missing],
    }


def _mean(mean: Mean | None) -> Mapping[str, object] | None:
    return None if mean is None else _picked(mean, "value half_width count")


def _invocation(row: ResultRow, invocation: InvocationRow) -> Mapping[str, object]:
    return {
        **invocation_record(row, invocation),
        "state_before": _state(invocation.state_before),
        "state_after": _state(invocation.state_after),
    }


def _state(state: DeviceState | None) -> Mapping[str, object] | None:
    names = (
        "at heat_c thermal_status battery_percent battery_heat_c plugged clock_khz clock_limit_khz load_1min "
        "memory_available_bytes"
    )
    return None if state is None else _picked(state, names)
