"""Exports of results: CSV, Parquet, JSON with a versioned schema, Markdown for pull requests, and a
run as text for a program's issue tracker.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from orchestrator import __version__
from orchestrator.analysis.summary import LEVEL
from orchestrator.delegates import place_of
from orchestrator.installation import require_packages
from orchestrator.passes import pass_tables
from orchestrator.records import frozen
from orchestrator.records.case import Build, Model
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Attachment, RunRecord
from orchestrator.report.data import ReportData
from orchestrator.report.winners import fastest_table
from orchestrator.tables.devices import BUILDS, CAMPAIGNS, DEVICES, MODELS
from orchestrator.tables.escapes import markdown_text, one_line, visible_block
from orchestrator.tables.findings import skips_table
from orchestrator.tables.renderers import as_frame, as_markdown, csv_lines, utf8
from orchestrator.tables.results import exported_table, invocations_table, results_table
from orchestrator.tables.runs import excerpt
from orchestrator.tables.table import Form, Kind, Table, fields_of, record_of
from orchestrator.units import format_bytes, format_figure

if TYPE_CHECKING:
    import pandas as pd


SCHEMA: Final = "benchfarm-report"
#: Increased when a key or column is removed or changes its meaning, not for new ones.
SCHEMA_VERSION: Final = 1
#: The rows of a row group of a Parquet file.
_GROUP_ROWS: Final = 1 << 12
Rows = Literal["cases", "invocations"]
Item = TypeVar("Item")


def table_of(parts: Iterable[ReportData], rows: Rows = "cases") -> Table[Any]:
    """Return the table of all parts, with a row for each case and campaign, or for each invocation.

    Its rows are an iterator that holds one part at a time.
    """
    if rows == "invocations":
        return invocations_table(row for part in parts for row in part.results)
    return exported_table((row for part in parts for row in part.results), pass_tables())


def frame_of(data: ReportData, rows: Rows = "cases") -> pd.DataFrame:
    """Return the table as a frame; its attributes name its schema."""
    frame = as_frame(table_of([data], rows))
    frame.attrs.update(_attributes(rows))
    return frame


def _attributes(rows: Rows) -> dict[str, Any]:
    """Return the attributes with the schema's name for frames and Parquet files of these rows."""
    return {"schema": f"benchfarm-{rows}", "schema_version": SCHEMA_VERSION}


def write_parquet(
    path: Path,
    parts: Iterable[ReportData],
    rows: Rows = "cases",
    *,
    text: Callable[[str], str] = str,
) -> None:
    """Write the columns of :func:`table_of` as a Parquet file, which names its schema.

    ``text`` converts each stored text before it is written.

    Raises MissingPackageError when pyarrow, the extra ``analytics``, isn't installed.
    """
    require_packages("Parquet", "pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {Kind.NUMBER: pa.float64(), Kind.COUNT: pa.int64(), Kind.FLAG: pa.bool_()}
    table = table_of(parts, rows)
    fields = [(column.name, kinds.get(column.kind, pa.string())) for column in table.of(Form.FRAME)]
    schema = pa.schema(fields, metadata={"PANDAS_ATTRS": json.dumps(_attributes(rows))})

    def words(record: dict[str, Any]) -> dict[str, Any]:
        return {
            name: text(utf8(value)) if isinstance(value, str) else value
            for name, value in record.items()
        }

    rows_left = iter(table.rows)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := [
            words(table.record(row, Form.FRAME)) for row in itertools.islice(rows_left, _GROUP_ROWS)
        ]:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def json_pieces(parts: Iterable[ReportData]) -> Iterator[str]:
    """Yield the report as JSON: times in microseconds, texts as stored, keys documented in
    docs/reference/exports.md.

    Several parts, one for each campaign, give a result for each case and campaign, and the headline
    of the first. One part is held at a time.
    """
    head = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "benchfarm_version": __version__,
        "interval_level": LEVEL,
    }
    yield f'{_inner(head).removesuffix("}").rstrip()},\n "results": ['
    #: The last record of each key, in the order of the first ones.
    campaigns: dict[str, object] = {}
    devices: dict[str, object] = {}
    models: dict[str, object] = {}
    builds: dict[str, object] = {}
    skipped: list[Mapping[str, object]] = []
    tail: dict[str, object] = {"has_virtual": False, "headline": None}
    separator = "\n"
    for part in parts:
        tail["has_virtual"] = tail["has_virtual"] or part.has_virtual
        tail["headline"] = tail["headline"] or fields_of(
            part.headline, "scope", "answers", "trust", "warnings"
        )
        campaigns |= {str(item.campaign_id): record_of(CAMPAIGNS, item) for item in part.campaigns}
        devices |= {row.serial: record_of(DEVICES, row) for row in part.devices}
        models |= {row.sha256: record_of(MODELS, row) for row in part.models}
        builds |= {build.sha256: record_of(BUILDS, build) for build in part.builds}
        campaign_id = part.campaigns[0].campaign_id if len(part.campaigns) == 1 else None
        skips = skips_table(part.skipped)
        skipped += ({"campaign_id": campaign_id, **skips.record(row)} for row in skips.listed)
        table = table_of([part])
        for row in table.rows:
            yield f"{separator}  {_inner(table.record(row), depth=2)}"
            separator = ",\n"
    tail |= {
        "campaigns": list(campaigns.values()),
        "devices": list(devices.values()),
        "models": list(models.values()),
        "builds": list(builds.values()),
        "skipped": skipped,
    }
    yield f"\n ],{_inner(tail).removeprefix('{')}\n"


def _inner(value: object, *, depth: int = 0) -> str:
    """Return a value as JSON for a document that indents by one, at this depth."""
    # JSON escapes line breaks of texts: each one here is the encoder's.
    return json.dumps(value, indent=1, allow_nan=False).replace("\n", "\n" + " " * depth)


def to_csv(*parts: ReportData, rows: Rows = "cases") -> str:
    """Return the table of all parts as CSV."""
    return "".join(csv_lines(table_of(parts, rows)))


def to_json(*parts: ReportData) -> str:
    """Return all of :func:`json_pieces`."""
    return "".join(json_pieces(parts))


def to_markdown(data: ReportData) -> str:
    """Return the results as Markdown, the fastest first, for pull requests and job summaries."""
    lines = [markdown_text(data.headline.scope), ""]
    lines += [
        f"- {markdown_text(answer)}" for answer in (*data.headline.answers, data.headline.trust)
    ]
    if len(data.contests) > 1:
        lines += ["", as_markdown(fastest_table(data.contests)).rstrip("\n")]
    if data.results:
        lines += ["", as_markdown(results_table(data.results)).rstrip("\n")]
    if data.headline.warnings:
        lines += [
            "",
            "Problems:",
            "",
            *(f"- {markdown_text(text)}" for text in data.headline.warnings),
        ]
    return "\n".join(lines) + "\n"


_LOG_CHARACTERS: Final = 12_000
#: A path of this computer or of benchfarm's folder on a phone; only its last part is needed.
_PATH: Final = re.compile(
    r"(?<![\w./-])(?:/(?!(?:system|vendor|apex|odm|product|proc|sys|dev)/)[\w.@%+,~-]+)+/([\w.@%+,~-]+)"
)
_ADDRESSES: Final = (
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{2,5})?\b"), "ADDRESS"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "ADDRESS"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "MAIL"),
)
_SHORTEST_PRIVATE: Final = 3


@frozen
class Reported:
    """A run with its device, model, program and attachments."""

    run: RunRecord
    facts: DeviceFacts | None
    model: Model | None
    build: Build | None
    attachments: Sequence[Attachment]
    benchfarm_version: str
    #: Words that must not be shown: serial numbers, names of users and computers, home folders.
    private: Sequence[str]


def issue_text(reported: Reported) -> str:
    """Return an issue about a run as Markdown, its title first.

    It has no serial number, path, user or computer; it has the names of models and files, which the
    question is about.
    """
    run, case = reported.run, reported.run.case
    figure = ""
    if run.latency_us is not None:
        figure = format_figure(run.latency_us, is_per_token=case.is_per_token)
    findings = [(item.code, item.message) for item in run.verdict.findings]
    summary = run.reason_code or (findings[0][0] if findings else "") or figure or run.outcome
    parts = [
        f"# {case.model_name} with {case.delegate} ({case.tool}): {summary}",
        "## What happens",
        _bullets(
            [
                ("outcome", f"{run.outcome} {run.reason_code}"),
                ("reason", run.reason),
                ("exit code", "" if run.exit_code is None else f"{run.exit_code}"),
                ("figure", figure),
                *findings,
            ]
        ),
        "## Where",
        _bullets(_where(reported).items()),
        "## Where the operators ran",
        _bullets(_operators(run)),
        "## Command",
        _block([run.command]),
        "## Output",
    ]
    for stream in reported.attachments:
        log = excerpt([stream], _LOG_CHARACTERS) if stream.data.strip() else None
        if log is not None:
            parts += [f"{stream.name}:", _block([log.text])]
    return without_private("\n\n".join(parts), reported.private) + "\n"


def _where(reported: Reported) -> dict[str, str]:
    facts, build, model, case = reported.facts, reported.build, reported.model, reported.run.case
    rows = {}
    if reported.run.is_virtual:
        rows["NOTE"] = "measured on a virtual phone, which no maintainer can help with"
    if facts is not None:
        # A computer's model would be its name.
        is_phone = bool(facts.kind.system)
        rows |= {
            "device": f"{facts.manufacturer} {facts.model}" if is_phone else "a computer",
            "system": f"{facts.kind.system} {facts.os_version} {facts.fingerprint}",
            "chip": f"{facts.soc} {facts.gpu} {facts.gpu_driver}",
        }
    if build is not None:
        rows["program"] = f"{build.name} {build.version}"
    size = f", {format_bytes(model.size_bytes)}" if model is not None else ""
    return rows | {
        "program's sha256": case.build_sha256,
        **{f"beside it: {name}": sha256 for name, sha256 in case.files},
        "model": f"{case.model_name}{size}, sha256 {case.model_sha256}",
        "requested delegate": case.delegate,
        "threads": f"{case.threads}",
        "flags": " ".join(f"--{name}={value}" for name, value in case.flags),
        "measured with": f"benchfarm {reported.benchfarm_version}",
    }


def _operators(run: RunRecord) -> list[tuple[str, str]]:
    if run.report is None:
        return [("evidence", "none, nothing was read")]
    evidence = run.report.delegate
    share = evidence.share_text
    return [
        ("ran on", f"{place_of(evidence) or 'unknown'} ({evidence.truth})"),
        ("operators taken", share and f"{share}{evidence.partitions_text}"),
        # An operator may be listed with several reasons.
        *(
            (f"left to the CPU: {name}", reason or "no reason printed")
            for name, reason in evidence.cpu_operators[:10]
        ),
        *((f"printed ({place})", line) for place, line in enumerate(evidence.lines[:10], start=1)),
    ]


def without_private(text: str, private: Iterable[str]) -> str:
    """Return a text without these words, folders of files, and addresses."""
    text = _PATH.sub(r"./\1", text)
    for word in sorted(set(private), key=len, reverse=True):
        if len(word) >= _SHORTEST_PRIVATE:
            pattern_text = rf"(?<!\w){re.escape(word)}(?!\w)"
            text = re.sub(pattern_text, "PRIVATE", text, flags=re.IGNORECASE)
    for pattern, replacement in _ADDRESSES:
        text = pattern.sub(replacement, text)
    return text


def _bullets(rows: Iterable[tuple[str, str]]) -> str:
    items = ((name, " ".join(one_line(value).split())) for name, value in rows)
    return "\n".join(f"- {name}: {value}" for name, value in items if value)


def _block(lines: Iterable[str]) -> str:
    text = visible_block("\n".join(lines))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
