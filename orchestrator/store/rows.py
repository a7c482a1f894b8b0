"""Records as rows of the tables, and back: a column of a record's own attribute bears its name."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import RowMapping, Table

from orchestrator.documents import dump_document, load_document, to_text
from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.campaign import Campaign, CampaignStatus, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import CaseKey, Serial, SeriesKey, content_key
from orchestrator.records.run import LatencySummary, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, ToolName
from orchestrator.store.failures import warn
from orchestrator.store.tables import CAMPAIGNS, OF_INFERENCES, OF_REPORT, RUNS, SERIES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = dict[str, Any]
Record = TypeVar("Record", bound="DataclassInstance")
Word = TypeVar("Word", bound=enum.StrEnum)

_LARGEST_INTEGER: Final = 2**63 - 1
#: What of a case lies in its contents' row.
_CONTENTS: Final = ("model_sha256", "build_sha256", "files")
#: Columns that name a member of an enumeration.
_WORDS: Final[Mapping[str, type[enum.StrEnum]]] = {
    "delegate": DelegateName, "tool": ToolName, "run_pass": Pass, "outcome": Outcome, "quality": Quality,
}  # fmt: skip


def row_of(record: DataclassInstance, table: Table, **more: object) -> Row:
    """Return the columns of a table that a record has attributes of the same names for, and ``more``."""
    found = {name: getattr(record, name) for name in _shared(type(record), table)}
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in found.items()} | more


@functools.cache
def _shared(kind: type[DataclassInstance], table: Table) -> tuple[str, ...]:
    known = {item.name for item in dataclasses.fields(kind)} | vars(kind).keys()
    return tuple(item.name for item in table.c if item.name in known)


def record_of(kind: type[Record], row: RowMapping, where: str, **given: Any) -> Record:  # noqa: ANN401
    """Return a record of what is given and of a row's columns that bear the names of its fields.

    Raises StoreError naming ``where`` for a word that this version doesn't know.
    """
    for item in dataclasses.fields(kind):
        if item.name not in given and item.name in row:
            given[item.name] = row[item.name]
            if item.name in _WORDS:
                given[item.name] = word_of(_WORDS[item.name], row[item.name], where)
    return kind(**given)


def word_of(kind: type[Word], word: str, where: str) -> Word:
    """Return the member of an enumeration that a column names; raises StoreError naming ``where``."""
    try:
        return kind(word)
    except ValueError:
        raise StoreError(
            f"{where}: {word!r} is no {kind.__name__} that this benchfarm knows",
            hint="a newer benchfarm may have written it; upgrade benchfarm and try again",
        ) from None


def campaign_to_row(campaign: Campaign) -> Row:
    """Return a campaign's own row."""
    return row_of(campaign, CAMPAIGNS, seed=str(campaign.seed), terms=dump_document(campaign.terms))


def campaign_from_row(row: RowMapping, **read: Any) -> Campaign:  # noqa: ANN401
    """Return a campaign with what was read beside it."""
    where = f"campaign {row['campaign_id']}"
    try:
        seed = int(row["seed"])
    except ValueError:
        raise StoreError(f"{where}: its seed is {row['seed'][:40]!r}, which is no number") from None
    status = word_of(CampaignStatus, row["status"], where)
    terms = load_document(Terms, row["terms"], where=where)
    return record_of(Campaign, row, where, seed=seed, status=status, terms=terms, **read)


def device_from_row(row: RowMapping) -> DeviceFacts:
    """Return what a device was when it was seen."""
    return load_document(DeviceFacts, row["facts"], where=f"device {row['serial']}")


def known_device_from_row(row: RowMapping) -> DeviceFacts:
    """Return a device; of one whose facts can't be read, with a warning, what its own columns say."""
    try:
        return device_from_row(row)
    except StoreError as error:
        warn(error)
        return DeviceFacts(serial=Serial(row["serial"]), kind=DeviceKind.ANDROID, is_virtual=row["is_virtual"])


def model_from_row(row: RowMapping) -> Model:
    """Return a model that is known from the store only."""
    where = f"model {row['sha256']}"
    try:
        return load_document(Model, row["document"], where=where)
    except StoreError as error:
        warn(error)
        return record_of(Model, row, where)


def without_paths(build: Build) -> Build:
    """Return a build without where its files lie on this host."""
    companions = tuple(dataclasses.replace(companion, path=None) for companion in build.companions)
    return dataclasses.replace(build, path=None, companions=companions)


def build_from_row(row: RowMapping) -> Build:
    """Return a build that is known from the store only."""
    where = f"build {row['sha256']}"
    try:
        return load_document(Build, row["document"], where=where)
    except StoreError as error:
        warn(error)
        return record_of(Build, row, where, abi="")


def series_to_row(case: Case) -> Row:
    """Return the row of a case's series, without its device's number and mark."""
    document = json.loads(dump_document(case))
    for name in _CONTENTS:
        del document[name]
    return row_of(case, SERIES, document=to_text(document))


def contents_to_row(case: Case) -> Row:
    """Return the row of what a case is of, by content."""
    files = [list(file) for file in case.files]
    key = content_key([case.model_sha256, case.build_sha256, files])[:32]
    return {
        "contents_key": key,
        "model_sha256": case.model_sha256,
        "build_sha256": case.build_sha256,
        "files": to_text(files),
    }


def case_from_row(row: RowMapping) -> Case:
    """Return a case, put together from its series and contents, under the key that it was stored with.

    The key isn't computed again: a version that knows one more thing which may change the number would compute
    another one, and tear the series of years apart.
    """
    where = f"case {row['case_key']}"
    # Both are JSON objects, joined as text: documents may hold what JSON proper doesn't know.
    contents = f'"model_sha256":{to_text(row["model_sha256"])},"build_sha256":{to_text(row["build_sha256"])}'
    document = f'{row["document"].rstrip().removesuffix("}")},{contents},"files":{row["files"]}}}'
    case = load_document(Case, document, where=where)
    vars(case)["case_key"] = CaseKey(row["case_key"])
    vars(case)["series_key"] = SeriesKey(row["series_key"])
    return case


def run_to_row(run: RunRecord) -> Row:
    """Return a run's row, without the numbers of its campaign and case and without its body."""
    return row_of(run, RUNS, quality=run.verdict.quality.value, **summary_of(run))


def documents_of(run: RunRecord) -> dict[str, str | None]:
    """Return what of a run lies in its body beside the raw output, by name."""
    records = {name: getattr(run, name) for name in ("report", "verdict", "state_before", "state_after")}
    documents = {name: None if record is None else dump_document(record) for name, record in records.items()}
    return {"command": run.command, **documents}


def summary_of(run: RunRecord) -> Row:
    """Return the summary columns of a run; what a database's number can't hold is left out of them."""
    report = run.report or ToolReport(outcome="")
    inference = report.inference or LatencySummary(count=0)
    count = inference.count
    return {
        "latency_us": _figure(run.latency_us),
        **{name: _figure(getattr(inference, name)) for name in OF_INFERENCES},
        **{name: _figure(getattr(report, name)) for name in OF_REPORT},
        "inference_count": count if report.inference and count is not None and abs(count) <= _LARGEST_INTEGER else None,
        "delegate_actual": None if run.report is None else report.delegate.actual,
        "delegate_truth": None if run.report is None else report.delegate.truth.value,
    }


def run_from_row(row: RowMapping, documents: Mapping[str, str], **read: Any) -> RunRecord:  # noqa: ANN401
    """Return a run with the documents of its body, and with the case and attachments that were read before."""
    where = f"run {row['run_id']}"

    def record(name: str, kind: type[Any]) -> Any:  # noqa: ANN401
        return load_document(kind, documents[name], where=where) if name in documents else None

    if not {"command", "verdict"} <= documents.keys():
        raise StoreCorruptError(f"{where}: its command or verdict is missing")
    return record_of(
        RunRecord,
        row,
        where,
        command=documents["command"],
        report=record("report", ToolReport),
        verdict=record("verdict", QualityVerdict),
        state_before=record("state_before", DeviceState),
        state_after=record("state_after", DeviceState),
        **read,
    )


def _figure(value: float | None) -> float | None:
    """Return a float that a column takes: what a phone printed may be no number, or one beyond all bounds."""
    try:
        return None if value is None or not math.isfinite(number := float(value)) else number
    except OverflowError:
        return None
