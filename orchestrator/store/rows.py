"""Records as rows of the tables, and back."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from sqlalchemy import RowMapping

from orchestrator.documents import dump_document, load_document, to_text
from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.identity import CampaignId, CaseKey, ModelSha, RunId, Serial, SeriesKey, content_key
from orchestrator.records.run import Attachment, LatencySummary, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, SkippedCase, ToolName
from orchestrator.store.blobs import PackedBlob, unpack
from orchestrator.store.unreadable import warn

Row = dict[str, Any]
Word = TypeVar("Word", bound=enum.StrEnum)

_LARGEST_INTEGER = 2**63 - 1
#: What of a case lies in its contents' row.
_CONTENTS: Final = ("model_sha256", "build_sha256", "files")


def campaign_to_row(campaign: Campaign) -> Row:
    """Return a campaign's own row."""
    return {
        "campaign_id": campaign.campaign_id,
        "name": campaign.name,
        "created_at": campaign.created_at,
        "finished_at": campaign.finished_at,
        "status": campaign.status.value,
        "plan_text": campaign.plan_text,
        "seed": str(campaign.seed),
        "benchfarm_version": campaign.benchfarm_version,
        "host": campaign.host,
        "terms": dump_document(campaign.terms),
    }


def campaign_from_row(
    row: RowMapping, *, invocations: tuple[Invocation, ...] = (), skipped: tuple[SkippedCase, ...] = ()
) -> Campaign:
    """Return a campaign with what was read beside it."""
    where = f"campaign {row['campaign_id']}"
    return Campaign(
        campaign_id=CampaignId(row["campaign_id"]),
        name=row["name"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        status=_word(CampaignStatus, row["status"], where),
        plan_text=row["plan_text"],
        seed=_seed(row["seed"], where),
        benchfarm_version=row["benchfarm_version"],
        host=row["host"],
        terms=load_document(Terms, row["terms"], where=where),
        invocations=invocations,
        skipped=skipped,
    )


def _seed(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise StoreError(f"{where}: its seed is {text[:40]!r}, which is no number") from None


def skip_to_row(skip: SkippedCase) -> Row:
    """Return the row of a combination that isn't run."""
    return {
        "serial": skip.serial,
        "model_name": skip.model_name,
        "delegate": skip.delegate.value,
        "threads": skip.threads,
        "tool": skip.tool.value,
        "reason_code": skip.reason_code,
        "reason": skip.reason,
    }


def skip_from_row(row: RowMapping) -> SkippedCase:
    """Return a combination that isn't run."""
    where = f"skip {row['position']} of campaign number {row['campaign_no']}"
    return SkippedCase(
        serial=Serial(row["serial"]),
        model_name=row["model_name"],
        delegate=_word(DelegateName, row["delegate"], where),
        threads=row["threads"],
        tool=_word(ToolName, row["tool"], where),
        reason_code=row["reason_code"],
        reason=row["reason"],
    )


def invocation_from_row(case: Case, run_pass: str, number: int) -> Invocation:
    """Return a planned invocation of a case that was read already."""
    return Invocation(case=case, run_pass=_word(Pass, run_pass, f"case {case.case_key}"), number=number)


def invocation_key_from_row(row: RowMapping) -> tuple[CaseKey, Pass, int]:
    """Return by what a stored run is known within its campaign."""
    run_pass = _word(Pass, row["run_pass"], f"case {row['case_key']}")
    return CaseKey(row["case_key"]), run_pass, row["invocation"]


def device_to_row(facts: DeviceFacts) -> Row:
    """Return a device's row, without when it was seen."""
    return {"serial": facts.serial, "is_virtual": facts.is_virtual, "facts": dump_document(facts)}


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


def sighting_of(document: str) -> dict[str, str]:
    """Return what of a device's facts may change between two nights and its numbers with it, by the name people use.

    Empty for facts that can't be read.
    """
    try:
        return load_document(DeviceFacts, document, where="device").versions
    except StoreError:
        return {}


def model_to_row(model: Model) -> Row:
    """Return a model's row; where its file lies on this host isn't kept."""
    document = dump_document(dataclasses.replace(model, path=None))
    return {"sha256": model.sha256, "name": model.name, "size_bytes": model.size_bytes, "document": document}


def model_from_row(row: RowMapping) -> Model:
    """Return a model that is known from the store only."""
    try:
        return load_document(Model, row["document"], where=f"model {row['sha256']}")
    except StoreError as error:
        warn(error)
        return Model(name=row["name"], sha256=ModelSha(row["sha256"]), size_bytes=row["size_bytes"])


def build_to_row(build: Build) -> Row:
    """Return a build's row; where its files lie on this host isn't kept."""
    companions = tuple(dataclasses.replace(companion, path=None) for companion in build.companions)
    return {
        "sha256": build.sha256,
        "name": build.name,
        "tool": build.tool.value,
        "is_virtual": build.is_virtual,
        "document": dump_document(dataclasses.replace(build, path=None, companions=companions)),
    }


def build_from_row(row: RowMapping) -> Build:
    """Return a build that is known from the store only."""
    where = f"build {row['sha256']}"
    try:
        return load_document(Build, row["document"], where=where)
    except StoreError as error:
        warn(error)
        tool = _word(ToolName, row["tool"], where)
        return Build(name=row["name"], tool=tool, sha256=row["sha256"], abi="", is_virtual=row["is_virtual"])


def series_to_row(case: Case) -> Row:
    """Return the row of a case's series, without its device's number and mark."""
    document = json.loads(dump_document(case))
    for name in _CONTENTS:
        del document[name]
    return {
        "series_key": case.series_key,
        "model_name": case.model_name,
        "delegate": case.delegate.value,
        "threads": case.threads,
        "tool": case.tool.value,
        "document": to_text(document),
    }


def contents_to_row(case: Case) -> Row:
    """Return the row of what a case is of, by content."""
    files = [list(file) for file in case.files]
    return {
        "contents_key": content_key([case.model_sha256, case.build_sha256, files])[:32],
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
    """Return a run's row, without the numbers of its campaign and case."""
    return {
        "run_id": run.run_id,
        "is_virtual": run.is_virtual,
        "run_pass": run.run_pass.value,
        "invocation": run.invocation,
        "started_at": run.started_at,
        "duration_s": run.duration_s,
        "exit_code": run.exit_code,
        **reading_to_row(run),
    }


def documents_of(run: RunRecord) -> dict[str, str | None]:
    """Return what of a run lies in its body beside the raw output, by name."""
    return {
        "command": run.command,
        "report": None if run.report is None else dump_document(run.report),
        "verdict": dump_document(run.verdict),
        "state_before": None if run.state_before is None else dump_document(run.state_before),
        "state_after": None if run.state_after is None else dump_document(run.state_after),
    }


def reading_to_row(run: RunRecord) -> Row:
    """Return the part of a run's row that was read from its raw output, and can be read again."""
    return {
        "outcome": run.outcome.value,
        "reason_code": run.reason_code,
        "reason": run.reason,
        "quality": run.verdict.quality.value,
        **summary_of(run),
    }


def summary_of(run: RunRecord) -> Row:
    """Return the summary columns of a run; what a database's number can't hold is left out of them."""
    report = run.report or ToolReport(outcome="")
    inference = report.inference or LatencySummary(count=0)
    figures: Mapping[str, float | None] = {
        "latency_us": run.latency_us,
        "first_us": inference.first_us,
        "min_us": inference.min_us,
        "max_us": inference.max_us,
        "mean_us": inference.mean_us,
        "std_us": inference.std_us,
        "p5_us": inference.p5_us,
        "median_us": inference.median_us,
        "p95_us": inference.p95_us,
        "init_us": report.init_us,
        "first_inference_us": report.first_inference_us,
        "warmup_mean_us": report.warmup_mean_us,
        "init_memory_mib": report.init_memory_mib,
        "overall_memory_mib": report.overall_memory_mib,
        "peak_memory_mib": report.peak_memory_mib,
    }
    return {
        **{name: _figure(value) for name, value in figures.items()},
        "inference_count": report.inference and _count(report.inference.count),
        "delegate_actual": None if run.report is None else report.delegate.actual,
        "delegate_truth": None if run.report is None else report.delegate.truth.value,
    }


def run_from_row(
    row: RowMapping, documents: Mapping[str, str | None], *, case: Case, attachments: tuple[Attachment, ...]
) -> RunRecord:
    """Return a run of a case that was read already, with the documents of its body."""
    run_id = row["run_id"]
    where = f"run {run_id}"
    report, before, after = (documents.get(name) for name in ("report", "state_before", "state_after"))
    command, verdict = documents.get("command"), documents.get("verdict")
    if command is None or verdict is None:
        raise StoreCorruptError(f"{where}: its command or verdict is missing")
    return RunRecord(
        run_id=RunId(run_id),
        campaign_id=CampaignId(row["campaign_id"]),
        case=case,
        run_pass=_word(Pass, row["run_pass"], where),
        invocation=row["invocation"],
        outcome=_word(Outcome, row["outcome"], where),
        reason_code=row["reason_code"],
        reason=row["reason"],
        is_virtual=row["is_virtual"],
        started_at=row["started_at"],
        duration_s=row["duration_s"],
        command=command,
        exit_code=row["exit_code"],
        attachments=attachments,
        report=None if report is None else load_document(ToolReport, report, where=where),
        verdict=load_document(QualityVerdict, verdict, where=where),
        state_before=None if before is None else load_document(DeviceState, before, where=where),
        state_after=None if after is None else load_document(DeviceState, after, where=where),
    )


def attachment_from_row(row: RowMapping) -> Attachment:
    """Return raw output joined with its blob, unpacked and checked; raises StoreCorruptError."""
    if row["data"] is None:
        raise StoreCorruptError(f"raw output {row['sha256']} ({row['name']}): its bytes are missing")
    blob = PackedBlob(
        sha256=row["sha256"], size_bytes=row["size_bytes"], packing=row["packing"], data=bytes(row["data"])
    )
    return Attachment(name=row["name"], data=unpack(blob))


def _figure(value: float | None) -> float | None:
    """Return a float that a column takes: what a phone printed may be no number, or one beyond all bounds."""
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: int) -> int | None:
    return value if abs(value) <= _LARGEST_INTEGER else None


def _word(words: type[Word], word: str, where: str) -> Word:
    """Return the member of an enumeration that a column names."""
    try:
        return words(word)
    except ValueError:
        raise StoreError(
            f"{where}: {word!r} is no {words.__name__} that this benchfarm knows",
            hint="a newer benchfarm may have written it; upgrade benchfarm and try again",
        ) from None
