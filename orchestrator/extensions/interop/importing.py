"""What the importers of texts and of sessions share: their files, the options, a campaign each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.plugins import ImportBatch, Imported, ImportRequest, Workspace, store_import
from orchestrator.records.campaign import Origin
from orchestrator.records.run import Attachment, RawOutput
from orchestrator.tables.escapes import one_line
from orchestrator.units import first_few

#: Each run is stored with its whole file, and more memory isn't taken.
_LARGEST_BYTES = 64 << 20
_MOST_FAULTS = 20


def import_each(
    workspace: Workspace,
    request: ImportRequest,
    read: Callable[[Path], tuple[ImportBatch, Origin]],
    *,
    hint: Callable[[Path], str],
    nothing: str = "nothing to import",
) -> list[Imported]:
    """Read the files of a request and store each as a campaign; ``hint`` says what a file needs.

    Raises UsageError for an option that isn't a text to be shown in one line, and with ``nothing``,
    having stored nothing, for a file without a run.
    """
    options = {"app": request.app or "-", "name": request.name, "serial": request.device or "-"}
    for option, value in options.items():
        if not (value.isprintable() and value.strip()):
            raise UsageError(f"--{option} {value!r} isn't a text that can be shown")
    sources = []
    for path in request.files:
        batch, origin = read(path)
        if not batch.runs:
            raise UsageError(f"{path}: {nothing}{listed(batch.faults)}", hint=hint(path))
        sources.append((batch, origin))
    return [
        store_import(
            workspace,
            batch,
            request=request,
            origin=origin,
            notes=[*batch.notes, *(f"left out: {fault}" for fault in batch.faults)],
        )
        for batch, origin in sources
    ]


def listed(faults: Sequence[str]) -> str:
    """Return faults as lines below a sentence, at most ``_MOST_FAULTS``."""
    return "".join(f"\n  {line}" for line in first_few(list(map(one_line, faults)), _MOST_FAULTS))


def raw_output(
    path: Path,
    attachments: Sequence[Attachment],
    *,
    command: str = "",
    at: datetime | None = None,
) -> RawOutput:
    """Return the raw output of an imported run; ``at`` is its start, by default the file's time."""
    return RawOutput(
        command=command,
        exit_code=None,
        timed_out=False,
        started_at=at or datetime.fromtimestamp(path.stat().st_mtime, UTC),
        duration_s=0.0,
        attachments=tuple(attachments),
    )


def require_size(path: Path, size: int, *, hint: str = "import it in parts") -> None:
    """Raise UsageError, with what to do, for a file of more bytes than are imported at once."""
    if size > _LARGEST_BYTES:
        raise UsageError(f"{path}: more than {_LARGEST_BYTES >> 20} MiB", hint=hint)


def read_source(path: Path) -> bytes:
    """Return a file's bytes; raises UsageError."""
    try:
        require_size(path, path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
