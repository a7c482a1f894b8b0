"""Results of runs that benchfarm didn't start, stored and judged as its own; importers are plugins
that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from orchestrator.app.options import Paths, arg, opt
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Origin
from orchestrator.records.run import Attachment, RawOutput
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace
    from orchestrator.engine.reread import ImportBatch, ImportResult
    from orchestrator.report.data import ReportData

#: More than any app writes; a larger file was named by mistake.
_LARGEST_BYTES = 64 << 20
_MOST_FAULTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """Which files are results of what."""

    files: Annotated[
        Paths,
        arg("A bundle, a session's folder, leaderboard JSONL, or a text with benchmark output."),
    ]
    device: Annotated[str, opt("--serial -s", "Serial number or name of the measured phone.")] = ""
    models: Annotated[Paths, opt("--model -m", "Measured model. Repeat for several.")] = ()
    profile: Annotated[str, opt("--profile", "Profile of a phone that isn't known.")] = ""
    app: Annotated[str, opt("--app", "File of the app (with a slash), or its version.")] = ""
    name: Annotated[str, opt("--name", "Name of the campaign.")] = "import"
    out: Annotated[Path | None, opt("--out -o", "File for the HTML report.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import did."""

    result: ImportResult
    #: What people should know beside it.
    notes: Sequence[str] = ()
    #: The cases of what is new as a report shows them, and where that report was written; None when
    #: nothing is new.
    shown: ReportData | None = None
    report: Path | None = None
    #: How many of the source's jobs were left out.
    left_out: int = 0

    @property
    def without_result(self) -> int:
        """How many of the new runs have no result."""
        return sum(run.is_without_result for run in self.result.runs)


def store_import(
    workspace: Workspace,
    batch: ImportBatch,
    *,
    request: ImportRequest,
    origin: Origin | None = None,
    notes: Sequence[str] = (),
) -> Imported:
    """Store a batch as a campaign, and write the report of what is new, by default among the
    campaigns' own reports.
    """
    from orchestrator.app.preparing import new_campaign
    from orchestrator.app.reporting import report_data, write_report
    from orchestrator.engine.reread import import_runs

    campaign = new_campaign(workspace, request.name)
    campaign = replace(campaign, terms=replace(campaign.terms, origin=origin))
    result = import_runs(workspace.store, workspace.tools, campaign, batch, clock=workspace.clock)
    if result.campaign is None:
        return Imported(result=result, notes=notes, left_out=len(batch.faults))
    shown = report_data(workspace, [result.campaign])
    path = write_report(workspace.settings, shown, [result.campaign], request.out)
    return Imported(
        result=result, notes=notes, shown=shown, report=path, left_out=len(batch.faults)
    )


def import_each(
    workspace: Workspace,
    request: ImportRequest,
    read: Callable[[Path], tuple[ImportBatch, Origin]],
    *,
    hint: Callable[[Path], str],
    nothing: str = "nothing to import",
    note: str = "",
) -> list[Imported]:
    """Read the files of a request and store each as a campaign; ``hint`` says what a file needs.

    Raises UsageError with ``nothing``, having stored nothing, where one has no run.
    """
    sources = []
    for path in request.files:
        batch, origin = read(path)
        if not batch.runs:
            raise UsageError(f"{path}: {nothing}{listed(batch.faults)}", hint=hint(path))
        sources.append((batch, origin))
    notes = [note] if note else []
    return [
        store_import(
            workspace,
            batch,
            request=request,
            origin=origin,
            notes=[*notes, *(f"left out: {fault}" for fault in batch.faults)],
        )
        for batch, origin in sources
    ]


def listed(faults: Sequence[str]) -> str:
    """Return faults as lines below a sentence, so many at most."""
    more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
    return "".join(f"\n  {line}" for line in [*map(one_line, faults[:_MOST_FAULTS]), *more])


def raw_output(
    path: Path,
    attachments: Sequence[Attachment],
    *,
    command: str = "",
    at: datetime | None = None,
) -> RawOutput:
    """Return what an imported run left behind; where nothing says when it was made, the file's time
    is taken.
    """
    return RawOutput(
        command=command,
        exit_code=None,
        timed_out=False,
        started_at=at or datetime.fromtimestamp(path.stat().st_mtime, UTC),
        duration_s=0.0,
        attachments=tuple(attachments),
    )


def require_printable(**options: str) -> None:
    """Raise UsageError for an option that isn't text to be shown in one line; ``serial`` and
    ``name`` aren't empty.
    """
    for option, value in options.items():
        if not value.isprintable() or (option in {"serial", "name"} and not value.strip()):
            raise UsageError(f"--{option} {value!r} isn't a text that can be shown")


def read_source(path: Path) -> bytes:
    """Return a file's bytes; raises UsageError."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise UsageError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB, which no app writes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
