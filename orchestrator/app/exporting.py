"""Results of campaigns in files: which formats there are is known by the plugins
(``benchfarm.exporters``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from orchestrator.app.options import Campaigns, Texts, opt
from orchestrator.app.reporting import report_data
from orchestrator.app.stored import find_campaigns
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.errors import UsageError
from orchestrator.files import draft_of, unwritable, write_file
from orchestrator.plugins import Exported, Exporter, find, plugins
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import CampaignId
from orchestrator.report import exports
from orchestrator.report.data import ReportData
from orchestrator.report.exports import Rows

ROWS = ("cases", "invocations")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported, and where to; ``form`` is the name of an exporter then."""

    campaigns: Campaigns = ()
    out: Annotated[
        Path | None,
        opt(
            "--out -o",
            "File, or folder for proto (default: benchfarm-... in this folder, by format).",
        ),
    ] = None
    form: Annotated[
        str,
        opt("--format -f", f"{', '.join(plugins('exporters'))} (default: by --out, else bundle)."),
    ] = ""
    runs: Annotated[
        Texts, opt("--run", "Export only this run, by id or its beginning. Repeat for several.")
    ] = ()
    rows: Annotated[str, opt("--rows", "Rows of csv and parquet: cases or invocations.")] = "cases"
    force: Annotated[bool, opt("--force", "Replace an existing file.")] = False


def export(settings: Settings, request: ExportRequest) -> tuple[Sequence[Path], Exported]:
    """Write campaigns, or some of their runs, to a file or folder; return the files, and what is to
    be told of them.

    Raises:
        UsageError: An unknown format, run or campaign; a file that exists, without ``force``.
    """
    exporter = find("exporters", request.form, Exporter)
    target = request.out or exporter.path
    if request.rows not in ROWS:
        raise UsageError(
            f"there are no rows of {request.rows!r}", hint=f"choose one of {', '.join(ROWS)}"
        )
    if request.runs and not exporter.takes_runs:
        raise UsageError(f"--run chooses runs; {request.form} is about whole campaigns")
    if exporter.is_folder and target.is_file():
        raise UsageError(f"{target}: is a file; {request.form} is written to a folder")
    if not exporter.is_folder and target.is_dir():
        raise UsageError(f"{target}: is a folder")
    if not exporter.is_folder and not request.force and os.path.lexists(target):
        raise _exists(target)
    # What exists stays until the new one is whole.
    made = draft_of(target)
    try:
        with Workspace(settings, makes_store=False) as workspace:
            chosen = _named(workspace, request.campaigns or ("",))
            (made if exporter.is_folder else made.parent).mkdir(parents=True, exist_ok=True)
            done = exporter.write(workspace, chosen, request, made) or Exported()
        files = (
            _files(made, target, force=request.force) if exporter.is_folder else [(made, target)]
        )
        for new, path in files:
            path.parent.mkdir(exist_ok=True)
            new.replace(path)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(made) if exporter.is_folder else made.unlink(missing_ok=True)
    return [path for _, path in files], done


def _files(made: Path, target: Path, *, force: bool) -> list[tuple[Path, Path]]:
    """Return the new files of a folder and where each goes.

    Raises UsageError for another file in its place.
    """
    files = [(new, target / new.name) for new in sorted(made.iterdir())]
    for new, path in files:
        is_other = os.path.lexists(path) and not (
            path.is_file() and path.read_bytes() == new.read_bytes()
        )
        if is_other and not force:
            raise _exists(path)
    return files


def _named(workspace: Workspace, words: Sequence[str]) -> list[Campaign]:
    """Return the campaigns that some words mean, each once and without its invocations.

    Raises UsageError.
    """
    found: dict[CampaignId, Campaign] = {}
    for word in words:
        found |= {
            item.campaign_id: replace(item, invocations=())
            for item in find_campaigns(workspace.store, word)
        }
    return list(found.values())


def _whole(workspace: Workspace, campaigns: Sequence[Campaign]) -> Iterator[Campaign]:
    return (
        item for one in campaigns if (item := workspace.store.campaign(one.campaign_id)) is not None
    )


def _exists(path: Path) -> UsageError:
    return UsageError(
        f"{path}: is there already", hint="name another file with --out, or replace it with --force"
    )


def own_folders_of(workspace: Workspace) -> Sequence[Path]:
    """Return the folders of this computer whose paths are left out of what others get."""
    return (
        workspace.settings.data_folder,
        workspace.settings.cache_folder,
        workspace.settings.state_folder,
    )


_Content = Callable[[Iterable[ReportData], Rows, Callable[[str], str]], Iterable[str | bytes]]


def _results(path: str, content: _Content) -> Exporter:
    """Return the exporter of a file with all results; ``content`` takes them by campaign, its rows,
    and the redaction.

    Each campaign is on its own: a case that was measured on two nights is two results. The runs of
    one case are held at a time.
    """

    def write(
        workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
    ) -> None:
        from orchestrator.store.own_folders import own_folders

        parts = (
            report_data(workspace, [campaign], is_streamed=True)
            for campaign in _whole(workspace, campaigns)
        )
        hide = own_folders(workspace.store, campaigns, own_folders_of(workspace)).hide
        write_file(
            out, content(parts, "invocations" if request.rows == "invocations" else "cases", hide)
        )

    return Exporter(path=Path(path), write=write)


def _bencher(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    data = report_data(workspace, list(_whole(workspace, campaigns)), is_streamed=True)
    write_file(out, exports.to_bencher(data))


# A piece is a whole line or value: no folder's name is torn.
CSV = _results(
    "benchfarm-results.csv", lambda parts, rows, hide: map(hide, exports.csv_pieces(parts, rows))
)
PARQUET = _results(
    "benchfarm-results.parquet",
    lambda parts, rows, hide: exports.parquet_pieces(parts, rows, text=hide),
)
JSON = _results(
    "benchfarm-results.json", lambda parts, _, hide: map(hide, exports.json_pieces(parts))
)
BENCHER = Exporter(path=Path("benchfarm-bencher.json"), write=_bencher)
