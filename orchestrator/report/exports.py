"""Results for other programs and for pull requests: CSV, Parquet, JSON with a versioned schema, Bencher, Markdown."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator import __version__
from orchestrator.analysis.summary import LEVEL
from orchestrator.extras import require_packages
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceState
from orchestrator.report.columns import COLUMNS, Rows, campaign_of, flat_record, invocation_record, picked, records
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


#: Rows of a part that are one row group of a Parquet file.
_GROUP_ROWS: Final = 1 << 12


def csv_pieces(parts: Iterable[ReportData], rows: Rows = "cases") -> Iterator[str]:
    """Yield the results as lines of CSV (RFC 4180, but they end in LF), one a case or one an invocation.

    With a part for each campaign there is a line for each case and campaign. Text is one line each, with controls made
    visible, and can't be taken for a formula by a spreadsheet.
    """
    yield _csv_line(COLUMNS[rows])
    for part in parts:
        for record in records(part, rows):
            yield _csv_line(csv_text(value) if isinstance(value, str) else value for value in record.values())


def _csv_line(values: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def parquet_pieces(
    parts: Iterable[ReportData], rows: Rows = "cases", *, text: Callable[[str], str] = str
) -> Iterator[bytes]:
    """Yield the columns of :func:`csv_pieces` as a Parquet file, a row group after the other; it names its schema.

    ``text`` makes of each text as it is stored what is written.

    Raises MissingPackageError when pyarrow, the extra ``analytics``, isn't installed.
    """
    require_packages("Parquet", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    from orchestrator.report.frames import attributes, kind_of, utf8

    types = {"decimal": pa.float64(), "whole": pa.int64(), "yes": pa.bool_(), "text": pa.string()}
    named = {"PANDAS_ATTRS": json.dumps(attributes(rows))}
    schema = pa.schema([(name, types[kind_of(name)]) for name in COLUMNS[rows]], metadata=named)
    written = _Pieces()
    with pq.ParquetWriter(pa.PythonFile(written, mode="w"), schema, compression="zstd") as writer:
        for part in parts:
            left = records(part, rows)
            while group := list(itertools.islice(left, _GROUP_ROWS)):
                cells = [
                    {name: text(utf8(value)) if isinstance(value, str) else value for name, value in record.items()}
                    for record in group
                ]
                writer.write_table(pa.Table.from_pylist(cells, schema=schema))
                yield written.taken()
    yield written.taken()


class _Pieces(io.RawIOBase):
    """A file whose content is taken away while it is written."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._gone = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - typeshed's Buffer is of Python 3.12
        self._held += data
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._gone + len(self._held)

    def taken(self) -> bytes:
        """Return what was written since this was called last."""
        data, self._held = bytes(self._held), bytearray()
        self._gone += len(data)
        return data


def json_pieces(parts: Iterable[ReportData]) -> Iterator[str]:
    """Yield everything as JSON: times in microseconds, text as stored, keys documented in docs/reference/exports.md.

    With several parts, one for each campaign, there is a result for each case and campaign. The headline is of the
    first. One part is held at a time.
    """
    head = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "benchfarm_version": __version__,
        "interval_level": LEVEL,
    }
    yield f'{_inner(head).removesuffix("}").rstrip()},\n "results": ['
    tail = _Tail()
    separator = "\n"
    for part in parts:
        tail.add(part)
        for row in part.results:
            yield f"{separator}  {_inner(_result(row, campaign_of(row, part)), depth=2)}"
            separator = ",\n"
    yield f"\n ],{_inner(tail.document()).removeprefix('{')}\n"


def _inner(value: object, *, depth: int = 0) -> str:
    """Return a value as it stands in a document that indents by one, so deep inside."""
    # A line break in a text is an escape: each one here is the encoder's.
    return json.dumps(value, indent=1, allow_nan=False).replace("\n", "\n" + " " * depth)


class _Tail:
    """What the JSON says beside its results, gathered while they are written."""

    def __init__(self) -> None:
        self._has_virtual = False
        self._headline: Mapping[str, object] | None = None
        self._skipped: list[Mapping[str, object]] = []
        #: The last record of each key, in the order of the first ones.
        self._once: dict[str, dict[object, Mapping[str, object]]] = {
            "campaigns": {},
            "devices": {},
            "models": {},
            "builds": {},
        }

    def add(self, part: ReportData) -> None:
        """Take in what a part says of its campaigns, devices, models and builds."""
        self._has_virtual |= part.has_virtual
        if self._headline is None:
            self._headline = picked(part.headline, "scope answers trust warnings")
        for campaign in part.campaigns:
            known = picked(campaign, _CAMPAIGN) | {"origin": origin_of(campaign)}
            self._once["campaigns"][campaign.campaign_id] = known
        self._once["devices"] |= {row.serial: _device(row) for row in part.devices}
        self._once["models"] |= {row.sha256: picked(row, "sha256 label size_bytes") for row in part.models}
        self._once["builds"] |= {
            build.sha256: picked(build, "sha256 name tool abi version is_virtual") for build in part.builds
        }
        campaign_id = part.campaigns[0].campaign_id if len(part.campaigns) == 1 else None
        self._skipped += ({"campaign_id": campaign_id, **picked(row, _SKIPPED)} for row in part.skipped)

    def document(self) -> Mapping[str, object]:
        """Return all of it by the document's keys."""
        lists = {name: list(items.values()) for name, items in self._once.items()}
        return {"has_virtual": self._has_virtual, "headline": self._headline, **lists, "skipped": self._skipped}


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


def to_csv(*parts: ReportData, rows: Rows = "cases") -> str:
    """Return all of :func:`csv_pieces`."""
    return "".join(csv_pieces(parts, rows))


def to_json(*parts: ReportData) -> str:
    """Return all of :func:`json_pieces`."""
    return "".join(json_pieces(parts))


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
