"""Results for other programs and for pull requests: CSV, Parquet, JSON with a versioned schema, Bencher, Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from orchestrator import __version__
from orchestrator.analysis.summary import LEVEL
from orchestrator.extras import require_packages
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceState
from orchestrator.report.columns import campaign_of, flat_record, invocation_record, picked
from orchestrator.report.data import ReportData
from orchestrator.report.matrix import figures_decimals
from orchestrator.tables.escapes import csv_text, markdown_table, markdown_text, visible
from orchestrator.tables.labels import NOTHING, figure_text
from orchestrator.tables.passes import EnergyRow
from orchestrator.tables.rows import BestMark, DeviceRow, ResultRow, origin_of

SCHEMA: Final = "benchfarm-report"
#: Raised when a key goes away or changes its meaning; new keys don't raise it.
SCHEMA_VERSION: Final = 1
#: Of a table for people, in its order.
HEADERS: Final = ("model", "device", "configuration", "median ms", "spread", "vs CPU", "delegate", "quality")
_BEST_WORDS: Final = {BestMark.BEST: " (fastest)", BestMark.TIED: " (tied)", BestMark.NONE: ""}
_NS_PER_US: Final = 1_000
_CAMPAIGN: Final = "campaign_id name status created_at finished_at host origin=host benchfarm_version seed"
_FACTS: Final = (
    "kind is_emulator manufacturer model codename os_version sdk fingerprint security_patch soc abis clusters "
    "memory_bytes gpu gpu_driver profile"
)
_FINDING: Final = (
    "code=finding.code severity=finding.severity message=finding.message evidence=finding.evidence invocations=count "
    "next_step"
)
_SKIPPED: Final = (
    "serial=device.serial device=device.title is_virtual=device.is_virtual model=skipped.model_name "
    "delegate=skipped.delegate threads=skipped.threads tool=skipped.tool reason_code=skipped.reason_code "
    "reason=skipped.reason"
)
_STATE: Final = (
    "at heat_c thermal_status battery_percent battery_heat_c plugged clock_khz clock_limit_khz load_1min "
    "memory_available_bytes"
)
_MEAN: Final = "value half_width count"


def to_csv(*parts: ReportData, rows: Literal["cases", "invocations"] = "cases") -> str:
    """Return the results as CSV (RFC 4180, but lines end in LF), one line a case or one an invocation.

    With a part for each campaign there is a line for each case and campaign. Text is one line each, with controls made
    visible, and can't be taken for a formula by a spreadsheet.
    """
    from orchestrator.report.frames import frame_of

    frame = frame_of(parts, rows).map(lambda value: csv_text(value) if isinstance(value, str) else value)
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


def to_parquet(
    *parts: ReportData, rows: Literal["cases", "invocations"] = "cases", text: Callable[[str], str] = str
) -> bytes:
    """Return the same columns as :func:`to_csv` as a Parquet file; it names its schema and version.

    ``text`` makes of each text as it is stored what is written.

    Raises MissingPackageError when pyarrow, the extra ``analytics``, isn't installed.
    """
    from orchestrator.report.frames import frame_of, utf8

    require_packages("Parquet", "pyarrow")
    frame = frame_of(parts, rows)
    attributes = dict(frame.attrs)
    frame = frame.map(lambda value: text(utf8(value)) if isinstance(value, str) else value)
    frame.attrs = attributes
    content: bytes = frame.to_parquet(index=False, engine="pyarrow", compression="zstd")
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
        "headline": picked(data.headline, "scope answers trust warnings"),
        "campaigns": _once(
            "campaign_id",
            (picked(row, _CAMPAIGN) | {"origin": origin_of(row)} for part in parts for row in part.campaigns),
        ),
        "devices": _once("serial", (_device(row) for part in parts for row in part.devices)),
        "models": _once("sha256", (picked(row, "sha256 label size_bytes") for part in parts for row in part.models)),
        "builds": _once(
            "sha256", (picked(row, "sha256 name tool abi version is_virtual") for part in parts for row in part.builds)
        ),
        "results": [_result(row, campaign_of(row, part)) for part in parts for row in part.results],
        "skipped": [
            {
                "campaign_id": part.campaigns[0].campaign_id if len(part.campaigns) == 1 else None,
                **picked(row, _SKIPPED),
            }
            for part in parts
            for row in part.skipped
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _once(key: str, records: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the last record of each key, in the order of the first ones."""
    return list({record[key]: record for record in records}.values())


def _device(row: DeviceRow) -> Mapping[str, object]:
    known = picked(row, "serial label is_virtual")
    if row.facts is not None:
        known |= picked(row.facts, _FACTS)
        known["clusters"] = [picked(cluster, "cpus min_khz max_khz") for cluster in row.facts.clusters]
    return known


def _result(row: ResultRow, campaign: Campaign | None) -> Mapping[str, object]:
    return {
        "campaign_id": campaign.campaign_id if campaign is not None else None,
        **flat_record(row),
        "flags": [list(flag) for flag in row.case.flags],
        "notes": list(row.result.notes),
        "stopped": [{"reason": code, "text": text} for code, text in row.stopped],
        "next_step": row.next_step,
        "findings": [picked(finding, _FINDING) for finding in row.findings],
        "starts": [
            picked(start, "stage invocations=count init_us first_inference_us=first_us quality") for start in row.starts
        ],
        "energy": _energy(row.energy, per="token" if row.case.is_per_token else "inference"),
        "contention": [
            picked(load, "load median_us factor runs=count cores died")
            | {"factor": picked(load.factor, _MEAN) if load.factor is not None else None}
            for load in row.loads
        ],
        "invocations": [
            invocation_record(row, item)
            | {"state_before": _state(item.run.state_before), "state_after": _state(item.run.state_after)}
            for item in row.invocations
        ],
    }


def _state(state: DeviceState | None) -> Mapping[str, object] | None:
    return None if state is None else picked(state, _STATE)


def _energy(energy: EnergyRow | None, *, per: str) -> Mapping[str, object] | None:
    if energy is None:
        return None
    means = {"net_uj": energy.net_uj, "gross_uj": energy.gross_uj}
    return {
        "per": per,
        **{name: picked(mean, _MEAN) if mean is not None else None for name, mean in means.items()},
        **picked(energy, "grade quality rails drift"),
        "missing": [{"reason": reason, "blocks": count} for reason, count in energy.missing],
    }


def to_bencher(data: ReportData) -> str:
    """Return the results in Bencher's metric format: latency in nanoseconds with the ends of its interval.

    Only a case's own figure is exported, never a fallback's; the name says model, device (with ``virtual`` where it is)
    and configuration. Source: https://bencher.dev/docs/reference/bencher-metric-format/
    """
    document = {}
    rows = [(row, row.own) for row in data.results if row.own is not None]
    names = {row.key: visible(f"{row.model.label} / {row.device.title} / {row.configuration}") for row, _ in rows}
    counts = Counter(names.values())
    for row, own in rows:
        latency = {"value": own.median_us * _NS_PER_US}
        if own.interval is not None:
            latency["lower_value"] = own.interval.low * _NS_PER_US
            latency["upper_value"] = own.interval.high * _NS_PER_US
        name = names[row.key]
        # Two phones of one kind, or two builds, are two benchmarks.
        beside = visible(f" / {row.device.serial} / {row.key[:8]}") if counts[name] > 1 else ""
        document[name + beside] = {"latency": latency}
    return json.dumps(document, indent=2) + "\n"


def to_markdown(data: ReportData) -> str:
    """Return the results as Markdown with one table, for pull requests and job summaries."""
    lines = [markdown_text(data.headline.scope), ""]
    lines += [f"- {markdown_text(answer)}" for answer in (*data.headline.answers, data.headline.trust)]
    if data.results:
        decimals = figures_decimals(data.results)
        rows = (_markdown_cells(row, decimals) for row in data.results)
        lines += ["", *markdown_table(HEADERS, rows, right=(3, 4, 5))]
    if data.headline.warnings:
        lines += ["", "Not to be trusted:", "", *(f"- {markdown_text(text)}" for text in data.headline.warnings)]
    return "\n".join(lines) + "\n"


def _markdown_cells(row: ResultRow, decimals: int) -> Sequence[str]:
    model, device, configuration, figure, spread, ratio, delegate, quality = result_cells(row, decimals)
    figure = (f"**{figure}**" if row.best is BestMark.BEST else figure) + _BEST_WORDS[row.best]
    named = map(markdown_text, (model, device, configuration))
    return [*named, figure, spread, ratio, markdown_text(delegate), quality]


def result_cells(row: ResultRow, decimals: int) -> tuple[str, ...]:
    """Return a case's row under HEADERS, nothing of it escaped."""
    unit = " tokens/s" if row.case.is_per_token and row.own is not None else " (mean)" if row.has_mean else ""
    return (
        row.model.label,
        row.device.title,
        row.configuration,
        f"{figure_text(row.case, row.median_us, decimals)}{unit}",
        row.spread_text if row.own is not None else NOTHING,
        NOTHING if row.speed_up is None else f"{row.speed_up.value:.2f}x",
        row.delegate_text,
        row.quality_text + (", virtual" if row.is_virtual else ""),
    )
