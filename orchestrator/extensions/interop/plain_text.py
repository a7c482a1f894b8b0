"""A text of unknown origin: what a benchmark program printed somewhere, for somebody, at some time.

Its runs are stored with what the text itself says; the phone, the program and the moment are
unknown, and are called so.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from orchestrator.app.importing import (
    Imported,
    raw_output,
    read_source,
    require_printable,
    store_import,
)
from orchestrator.app.stored import LOG_START
from orchestrator.engine.reread import ForeignRun, ImportBatch
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.texts.output import parse_text
from orchestrator.plugins import ImportRequest, Workspace
from orchestrator.ports import Tool
from orchestrator.programs import programs
from orchestrator.programs.foreign_app import ImportedTool, foreign_build, source_of
from orchestrator.programs.specification import Program
from orchestrator.records.campaign import Origin
from orchestrator.records.case import (
    BUILTIN,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Serial,
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import ToolReport
from orchestrator.tables.escapes import one_line

_NOTE: Final = "text of unknown origin: what measured it, on what and when, nobody has proven"


def read(text: str) -> list[ToolReport]:
    """Return the runs of a text, as ``benchfarm parse`` shows them; none where there is none."""
    if text.startswith(LOG_START):
        from orchestrator.extensions.interop.cli import read_logs

        tools: dict[ToolName, Tool] = {own.name: own.tool() for own in programs()}
        if own := read_logs(text, tools):
            return list(own)
    try:
        return list(parse_text(text))
    except OutputParseError:
        return []


def _configuration(report: ToolReport) -> tuple[DelegateName, int]:
    """Return a run's delegate and threads by its text: the builtin kernels, and -1, where it says
    nothing.
    """
    known = {name.value: name for name in DelegateName}
    delegate = known.get(report.delegate.requested or report.delegate.actual, BUILTIN)
    threads = report.echoed.get("Num threads", "")
    return delegate, int(threads) if threads.isascii() and threads.isdigit() else -1


PROGRAM = Program(
    name=ToolName.TEXT,
    tool=lambda: ImportedTool(ToolName.TEXT, read),
    has_flags=False,
    title="text of unknown origin",
)


def import_texts(workspace: Workspace, request: ImportRequest) -> list[Imported]:
    """Store the runs of texts, each a campaign of a phone that nobody knows.

    Raises UsageError, having stored nothing, for one without a figure.
    """
    require_printable(app=request.app, name=request.name)
    if request.device:
        require_printable(serial=request.device)
    done, batches = [], []
    for path in request.files:
        data = read_source(path)
        batch = _batch(path, data, request)
        if not batch.runs:
            reasons = "".join(f"\n  {fault}" for fault in batch.faults)
            raise UsageError(
                f"{path}: no figure of a benchmark program is in it{reasons}",
                hint=f"'benchfarm parse {path}' shows what is read from it",
            )
        batches.append((Origin(file=path.name, sha256=hashlib.sha256(data).hexdigest()), batch))
    for origin, batch in batches:
        notes = [_NOTE, *(f"left out: {fault}" for fault in batch.faults)]
        done.append(store_import(workspace, batch, request=request, origin=origin, notes=notes))
    return done


def _batch(path: Path, data: bytes, request: ImportRequest) -> ImportBatch:
    """Return the runs of one text, and what they are of as far as it says.

    Texts of one name are of phones that nothing says are the same: their sums part them.
    """
    serial = Serial(f"unknown-{hashlib.sha256(data).hexdigest()[:8]}@{one_line(path.name)}")
    facts = DeviceFacts(
        serial=serial,
        kind=DeviceKind.ANDROID,
        is_virtual=False,
        model=request.device or "unknown phone",
        is_imported=True,
    )
    build = foreign_build(PROGRAM, request.app)
    batch = ImportBatch(devices={serial: facts}, builds={build.sha256: build})
    for number, report in enumerate(read(data.decode("utf-8", "replace"))):
        if report.latency_us() is None:
            batch.faults.append(one_line(f"{path.name}, run {number + 1}: it shows no latency"))
            continue
        model, (delegate, threads) = _model(report), _configuration(report)
        batch.models[model.sha256] = model
        case = Case(
            serial=serial,
            model_sha256=model.sha256,
            model_name=model.name,
            delegate=delegate,
            threads=threads,
            tool=ToolName.TEXT,
            build_sha256=build.sha256,
            affinity="all",
        )
        batch.runs.append(ForeignRun(case=case, raw=raw_output(path, source_of(data, number))))
    return batch


def _model(report: ToolReport) -> Model:
    """Return the model as the text calls it; its content was never seen."""
    graph = report.echoed.get("Graph", "") or str(report.extra.get("graph", "")) or report.label
    name = one_line(graph.rpartition("/")[2].removesuffix(".tflite")) or "unknown model"
    size_bytes = round((report.model_size_mb or 0.0) * 1e6)
    sha256 = ModelSha(content_key({"named": name, "bytes": size_bytes}))
    return Model(name=name, sha256=sha256, size_bytes=size_bytes)
