"""Results for other programs and for pull requests: CSV, JSON with a versioned schema, Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from orchestrator import __version__
from orchestrator.analysis.energy import Mean
from orchestrator.analysis.summary import LEVEL
from orchestrator.errors import UsageError
from orchestrator.records.device import DeviceState
from orchestrator.records.workload import Build
from orchestrator.report.data import BestMark, CampaignRow, DeviceRow, InvocationRow, ReportData, ResultRow, SkipRow
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
    from orchestrator.report.frames import frame_of

    try:
        frame = frame_of(parts, rows)
        attributes = dict(frame.attrs)
        frame = frame.map(lambda value: text(_utf8(value)) if isinstance(value, str) else value)
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
        "campaigns": _once("campaign_id", (_campaign(row) for part in parts for row in part.campaigns)),
        "devices": _once("serial", (_device(row) for part in parts for row in part.devices)),
        "models": _once(
            "sha256",
            (
                {"sha256": row.sha256, "label": row.label, "size_bytes": row.size_bytes}
                for part in parts
                for row in part.models
            ),
        ),
        "builds": _once("sha256", (_build(build) for part in parts for build in part.builds)),
        "results": [_result(row, campaign_of(row, part)) for part in parts for row in part.results],
        "skipped": [_skipped(row, part) for part in parts for row in part.skipped],
        "published": [
            {
                "source": SOURCE,
                "model": figure.model,
                "device": figure.device,
                "configuration": figure.configuration,
                "latency_us": figure.latency_us,
            }
            for figure in data.published
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _once(key: str, records: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the last record of each key, in the order of the first ones."""
    return list({record[key]: record for record in records}.values())


def _campaign(row: CampaignRow) -> Mapping[str, object]:
    return {
        "campaign_id": row.campaign_id,
        "name": row.name,
        "status": row.status,
        "created_at": row.created_at.isoformat(),
        "finished_at": None if row.finished_at is None else row.finished_at.isoformat(),
        "host": row.host,
        "origin": row.origin,
        "benchfarm_version": row.benchfarm_version,
        "seed": row.seed,
    }


def _build(build: Build) -> Mapping[str, object]:
    return {
        "sha256": build.sha256,
        "name": build.name,
        "tool": build.tool.value,
        "abi": build.abi,
        "version": build.version,
        "is_virtual": build.is_virtual,
    }


def _skipped(row: SkipRow, part: ReportData) -> Mapping[str, object]:
    return {
        "campaign_id": part.campaigns[0].campaign_id if len(part.campaigns) == 1 else None,
        "serial": row.device.serial,
        "device": row.device.title,
        "is_virtual": row.device.is_virtual,
        "model": row.model_name,
        "delegate": row.delegate.value,
        "threads": row.threads,
        "tool": row.tool.value,
        "reason_code": row.reason_code,
        "reason": row.reason,
    }


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


def _utf8(value: str) -> str:
    """Return text that Parquet can hold: of a name that wasn't UTF-8, the bytes that aren't are written out."""
    return value.encode(errors="backslashreplace").decode()


def _csv_value(value: object) -> object:
    return csv_text(value) if isinstance(value, str) else value


def _device(row: DeviceRow) -> Mapping[str, object]:
    facts = row.facts
    known: dict[str, object] = {}
    if facts is not None:
        known = {
            "kind": facts.kind.value,
            "is_emulator": facts.is_emulator,
            "manufacturer": facts.manufacturer,
            "model": facts.model,
            "codename": facts.codename,
            "os_version": facts.os_version,
            "sdk": facts.sdk,
            "fingerprint": facts.fingerprint,
            "security_patch": facts.security_patch,
            "soc": facts.soc,
            "abis": list(facts.abis),
            "clusters": [
                {"cpus": list(cluster.cpus), "min_khz": cluster.min_khz, "max_khz": cluster.max_khz}
                for cluster in facts.clusters
            ],
            "memory_bytes": facts.memory_bytes,
            "gpu": facts.gpu,
            "gpu_driver": facts.gpu_driver,
            "profile": facts.profile,
        }
    return {"serial": row.serial, "label": row.label, "is_virtual": row.is_virtual, **known}


def _result(row: ResultRow, campaign: CampaignRow | None) -> Mapping[str, object]:
    return {
        "campaign_id": campaign.campaign_id if campaign is not None else None,
        **flat_record(row),
        "flags": [list(flag) for flag in row.case.flags],
        "notes": list(row.result.notes),
        "stopped": [{"reason": code, "text": text} for code, text in row.stopped],
        "next_step": row.next_step,
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity.value,
                "message": finding.message,
                "evidence": finding.evidence,
                "invocations": finding.count,
                "next_step": finding.next_step,
            }
            for finding in row.findings
        ],
        "starts": [
            {
                "stage": start.stage.value,
                "invocations": start.count,
                "init_us": start.init_us,
                "first_inference_us": start.first_us,
                "quality": start.quality.value,
            }
            for start in row.starts
        ],
        "energy": _energy(row.energy),
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
            {
                "load": load.load,
                "median_us": load.median_us,
                "factor": _mean(load.factor),
                "runs": load.count,
                "cores": load.cores,
                "died": load.died,
            }
            for load in row.loads
        ],
        "invocations": [_invocation(row, invocation) for invocation in row.invocations],
    }


def _energy(energy: EnergyRow | None) -> Mapping[str, object] | None:
    if energy is None:
        return None
    return {
        "net_uj": _mean(energy.net_uj),
        "gross_uj": _mean(energy.gross_uj),
        "grade": energy.grade,
        "quality": energy.quality.value,
        "rails": list(energy.rails),
        "drift": energy.drift,
        "missing": [{"reason": reason, "blocks": count} for reason, count in energy.missing],
    }


def _mean(mean: Mean | None) -> Mapping[str, object] | None:
    if mean is None:
        return None
    return {"value": mean.value, "half_width": mean.half_width, "count": mean.count}


def _invocation(row: ResultRow, invocation: InvocationRow) -> Mapping[str, object]:
    return {
        **invocation_record(row, invocation),
        "state_before": _state(invocation.state_before),
        "state_after": _state(invocation.state_after),
    }


def _state(state: DeviceState | None) -> Mapping[str, object] | None:
    if state is None:
        return None
    return {
        "at": state.at.isoformat(),
        "heat_c": dict(state.heat_c),
        "thermal_status": state.thermal_status,
        "battery_percent": state.battery_percent,
        "battery_heat_c": state.battery_heat_c,
        "plugged": state.plugged,
        "clock_khz": {str(cpu): clock for cpu, clock in state.clock_khz.items()},
        "clock_limit_khz": {str(cpu): clock for cpu, clock in state.clock_limit_khz.items()},
        "load_1min": state.load_1min,
        "memory_available_bytes": state.memory_available_bytes,
    }
