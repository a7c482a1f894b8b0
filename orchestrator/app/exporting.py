"""Campaigns written to files, in the core's formats and those of plugins (``benchfarm.exporters``).
Names of folders, which show the user's name and work, don't leave this computer.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

from orchestrator.app.plugin_kinds import Exporter
from orchestrator.errors import UsageError, check_word
from orchestrator.files import (
    check_folder,
    draft_of,
    is_stream,
    link_target,
    unwritable,
    write_file,
)
from orchestrator.installation import find, plugins
from orchestrator.records import Key, frozen
from orchestrator.records.answers import DoneAnswer
from orchestrator.settings import Settings

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace
    from orchestrator.records.campaign import Campaign
    from orchestrator.report.data import ReportData
    from orchestrator.report.exports import Rows


_Content: TypeAlias = "Callable[[Iterable[ReportData], Rows], Iterable[str]]"


def _parts(
    workspace: Workspace, campaigns: Sequence[Campaign]
) -> tuple[Iterator[ReportData], Callable[[str], str]]:
    """Return the report data of each campaign, and the redaction of folders.

    A case that was measured on two nights is two results.
    """
    from orchestrator.app.stored import report_data

    parts = (
        report_data(workspace, [campaign], has_logs=False)
        for listed in campaigns
        if (campaign := workspace.store.campaign(listed.campaign_id)) is not None
    )
    return parts, redaction_of(campaigns, workspace.settings.folders).hide


def _results(path: str, content: _Content, **settings: Any) -> Exporter:  # noqa: ANN401 - Exporter's
    """Return the exporter of a text file with all results; ``content`` takes them by campaign, with
    the kind of rows.
    """

    def write(
        workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
    ) -> None:
        parts, hide = _parts(workspace, campaigns)
        # A piece is a whole line or value: no folder's name is torn.
        write_file(out, map(hide, content(parts, cast("Rows", request.rows))))

    return Exporter(path=Path(path), write=write, **settings)


def _parquet(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    from orchestrator.report import exports

    parts, hide = _parts(workspace, campaigns)
    exports.write_parquet(out, parts, cast("Rows", request.rows), text=hide)


def _csv(parts: Iterable[ReportData], rows: Rows) -> Iterable[str]:
    from orchestrator.report.exports import table_of
    from orchestrator.tables.renderers import csv_lines

    return csv_lines(table_of(parts, rows))


def _json(parts: Iterable[ReportData], rows: Rows) -> Iterable[str]:
    from orchestrator.report import exports

    return exports.json_pieces(parts)


#: The core's own, by the word for ``--format``.
EXPORTERS: Final = {
    "csv": _results(
        "benchfarm-results.csv",
        _csv,
        about="one row for each case and campaign, or with `--rows invocations` one for each process",
        takes_rows=True,
    ),
    "parquet": Exporter(
        path=Path("benchfarm-results.parquet"),
        write=_parquet,
        about="the rows of `csv`; needs the extra `analytics`",
        takes_rows=True,
    ),
    "json": _results(
        "benchfarm-results.json",
        _json,
        about="everything that the report shows: a result for each case and campaign, with its invocations",
    ),
}
#: What ``--format`` takes.
FORMATS: Final = (*EXPORTERS, *plugins("exporters"))
#: What a row of an export is about, the usual one first.
ROWS: Final = ("cases", "invocations")


@frozen
class ExportRequest:
    """The campaigns to export, and the file; ``form`` is the name of an exporter."""

    campaigns: Sequence[str] = ()
    out: Annotated[
        Path | None,
        Key("File (default: benchfarm-... in this folder, by format).", "--out -o"),
    ] = None
    form: Annotated[
        str, Key(f"{', '.join(FORMATS)} (default: by --out, else bundle).", "--format -f")
    ] = ""
    runs: Annotated[
        Sequence[str],
        Key("Export only this run, by id or its beginning. Repeat for several.", "--run"),
    ] = ()
    rows: Annotated[
        str,
        Key(f"One row for each of these, in formats with rows: {' or '.join(ROWS)}.", "--rows"),
    ] = ROWS[0]
    force: Annotated[bool, Key("Replace an existing file.", "--force")] = False


def export(settings: Settings, request: ExportRequest) -> tuple[Path, DoneAnswer]:
    """Write campaigns, or some of their runs, to a file; return it, and the exporter's answer.

    Raises:
        UsageError: An unknown format, run or campaign; a file that exists, without ``force``.
    """
    from orchestrator.app.workspace import Workspace

    exporter = find("exporters", request.form, Exporter, EXPORTERS)
    target = request.out or exporter.path
    check_word("--rows", request.rows, ROWS)
    if request.rows != ROWS[0] and not exporter.takes_rows:
        raise UsageError(f"--rows doesn't apply to {request.form}", hint="leave out --rows")
    if request.runs and not exporter.takes_runs:
        raise UsageError(f"--run doesn't apply to {request.form}, which has whole campaigns")
    check_folder(target)
    # Nothing takes the place of a device, a pipe or an open file.
    is_file = target.is_file() and not is_stream(target)
    if os.path.lexists(target) and not (request.force and is_file):
        raise UsageError(
            f"{target} exists already" + ("" if is_file else " and is no file"),
            hint="name another file with --out"
            + (", or replace it with --force" if is_file else ""),
        )
    # What exists stays until the new one is whole; a link stays one.
    try:
        with (
            draft_of(link_target(target)) as draft,
            Workspace(settings, makes_store=False) as workspace,
        ):
            chosen, run_ids = _chosen(workspace, request)
            request = replace(request, runs=run_ids)
            done = exporter.write(workspace, chosen, request, draft) or DoneAnswer(text="")
    except OSError as error:
        raise unwritable(target, error) from error
    return target, done


def _chosen(workspace: Workspace, request: ExportRequest) -> tuple[list[Campaign], tuple[str, ...]]:
    """Return the requested campaigns, each once and without its invocations, and the full ids of
    the requested runs; raises UsageError.
    """
    from orchestrator.app.stored import find_campaigns, find_run

    if request.runs and request.campaigns:
        raise UsageError("name campaigns or runs, not both")
    runs = [find_run(workspace.store, word) for word in request.runs]
    of_runs = [str(run.campaign_id) for run in runs]
    campaigns = {
        item.campaign_id: replace(item, invocations=())
        for item in find_campaigns(workspace.store, *(of_runs or request.campaigns or [""]))
    }
    return list(campaigns.values()), tuple(run.run_id for run in runs)


#: Replaces a folder that is named without a file in it.
_A_FOLDER: Final = "(a folder)"


class Redaction:
    """Removes folders of this computer from texts; of a path only the part below the folder stays."""

    def __init__(self, folders: Iterable[Path | str | None]) -> None:
        """Remove these folders, and those of the user and of this Python. Relative folders, the
        system's, None and empty texts are skipped.
        """
        paths = {
            str(folder).rstrip("/")
            for folder in (*folders, Path.home(), Path.cwd(), sys.prefix)
            if folder
        }
        names = {
            name for name in paths if name.startswith("/") and not f"{name}/".startswith("/usr/")
        }
        # In JSON, letters beyond ASCII may be written as escapes.
        spelled = {word for name in names for word in (name, json.dumps(name)[1:-1])}
        words = "|".join(re.escape(word) for word in sorted(spelled, key=len, reverse=True))
        # Not the end of a longer path, as /tmp is of /data/local/tmp, and not the beginning of a
        # longer name.
        self._pattern = (
            re.compile(rf"(?<![\w./-])(?:{words})(?:(/+)|(?![\w.-]))") if words else None
        )

    def hide(self, text: str) -> str:
        """Return a text without these folders."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: "" if match[1] else _A_FOLDER, text)

    def hide_bytes(self, data: bytes) -> bytes:
        """Return a program's output without these folders; what isn't text stays as it is."""
        if b"\0" in data:
            return data
        # Bytes that are no UTF-8 come back as they were.
        return self.hide(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def hide_all(self, value: object) -> object:
        """Return a JSON value whose texts are without these folders; keys stay."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_all(item) for item in value]
        if isinstance(value, dict):
            return {key: self.hide_all(item) for key, item in value.items()}
        return value


def redaction_of(campaigns: Sequence[Campaign], further: Iterable[Path]) -> Redaction:
    """Return the redaction of the folders of campaigns' models, programs and plans, and of
    ``further`` ones.
    """
    files = [Path(path) for campaign in campaigns for path in campaign.terms.files.values()]
    folders = [
        folder
        for item in campaigns
        for folder in (item.terms.plan_folder, item.terms.parity_inputs)
    ]
    return Redaction((*folders, *further, *(path.parent for path in files)))
