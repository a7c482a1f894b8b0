"""Stored campaigns and runs: found by name, printed, parsed again, pruned, copied and reported; and
the use of this disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.measured import measured_cases
from orchestrator.app import time_limits
from orchestrator.app.status import ending_text, figure_of, nodes_of
from orchestrator.app.workspace import Workspace
from orchestrator.errors import NotFoundError, PlanError, UsageError
from orchestrator.files import check_folder, write_file
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, Pass, RunId, campaign_id_of
from orchestrator.records.history import Pruned
from orchestrator.records.model import is_model_file
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.settings import Settings, this_computer
from orchestrator.tables.escapes import one_line
from orchestrator.tables.labels import short_names
from orchestrator.tables.runs import runs_table
from orchestrator.tables.table import DATA, EVERYWHERE, Column, Kind, Table
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.engine.reread import Review
    from orchestrator.report.data import ReportData
    from orchestrator.store.opening import Store


def find_campaigns(store: Store, *words: str) -> list[Campaign]:
    """Return the campaigns of some words, in their order: one campaign each, or a farm's submission
    with a campaign for each phone.

    A word is as for find_campaign, or a submission's name. ``newest`` and ``previous`` mean whole
    submissions too. Raises UsageError.
    """
    return [campaign for word in words for campaign in _of_word(store, word)]


def _of_word(store: Store, word: str) -> list[Campaign]:
    if word == "previous":
        newest = _of_word(store, "newest")
        ids = {item.campaign_id for item in newest}
        earlier = [item for item in store.campaigns() if item.campaign_id not in ids]
        if not earlier:
            raise NotFoundError(
                f"there is no previous campaign in {store.name}",
                hint="'benchfarm results list' lists what is stored",
            )
        return _with_its_submission(store, _previous(store, newest, earlier))
    if word in {"", "newest"}:
        return _with_its_submission(store, find_campaign(store, word))
    check_stored(word)
    jobs = [] if store.campaign(CampaignId(word)) is not None else _jobs_of(store, word)
    campaign = find_campaign(store, word) if not jobs else jobs[0]
    if not jobs and not campaign.campaign_id.startswith(word):
        # The word is the plan's name, which all phones of a submission share.
        jobs = _with_its_submission(store, campaign)
    return jobs or [campaign]


def resume_notes(*campaigns: Campaign) -> tuple[str, ...]:
    """Return a sentence for each campaign that isn't over."""
    return tuple(
        f"Runs are left to measure: 'benchfarm run --resume {item.campaign_id}'."
        for item in campaigns
        if not item.status.is_over
    )


def check_stored(*words: str) -> None:
    """Raise UsageError where words name model files instead of stored campaigns."""
    models = [word for word in words if is_model_file(Path(word))]
    if models:
        sides = [*models, "OTHER.tflite"][:2]
        raise UsageError(
            f"{models[0]!r} is a model; compare takes stored campaigns",
            hint="measure two models in turns: benchfarm ab "
            + " ".join(shlex.quote(f"model:{side}") for side in sides),
        )


def _previous(store: Store, newest: Sequence[Campaign], earlier: Sequence[Campaign]) -> Campaign:
    """Return the newest earlier campaign with a case of ``newest``, first those of the same name.

    Without a case in common it is the newest earlier one.
    """
    cases = {_measured_key(item) for campaign in newest for item in campaign.invocations}
    for listed in sorted(earlier, key=lambda item: item.name != newest[0].name):
        campaign = store.campaign(listed.campaign_id)
        if campaign is not None and any(
            _measured_key(item) in cases for item in campaign.invocations
        ):
            return campaign
    return find_campaign(store, earlier[0].campaign_id)


def _measured_key(item: Invocation) -> tuple[str, str, str, Pass]:
    """Return a key that campaigns share when they measure the same: model name, device,
    configuration and pass.
    """
    return item.case.model_name, item.case.serial, item.case.configuration, item.run_pass


def _with_its_submission(store: Store, campaign: Campaign) -> list[Campaign]:
    """Return a campaign with those of the other phones of its submission; alone when it is of none."""
    serials = campaign.serials
    if len(serials) != 1:
        return [campaign]
    suffix = campaign_id_of("", *serials)
    submission = campaign.campaign_id.removesuffix(suffix)
    if submission == campaign.campaign_id:
        return [campaign]
    return _jobs_of(store, submission)


def _jobs_of(store: Store, submission: str) -> list[Campaign]:
    """Return the campaigns of a submission's phones, in the order of their ids."""
    campaigns = map(store.campaign, store.submission(submission))
    return [item for item in campaigns if item is not None]


def find_campaign(store: Store, prefix: str, *, only_open: bool = False) -> Campaign:
    """Return the campaign of a word; raises UsageError.

    A word is an id or the beginning of one, or ``newest`` (as the empty word), or the name of
    campaigns, of which it means the newest that isn't hidden, else the newest.
    """
    if prefix in {"", "newest"}:
        newest = store.campaigns(only_open=only_open, limit=1)
        if not newest:
            kind = "campaign that could be resumed" if only_open else "campaign"
            raise _not_found(store, kind)
        return read_campaign(store, newest[0].campaign_id)
    campaigns = store.campaigns(only_open=only_open, with_hidden=True)
    matching = [item for item in campaigns if item.campaign_id.startswith(prefix)]
    matching = [item for item in matching if item.campaign_id == prefix] or matching
    if len(matching) != 1:
        # A hidden campaign counts where no other one has the name.
        visible = store.campaigns()
        by_name = next((item for item in (*visible, *campaigns) if item.name == prefix), None)
        if by_name is not None:
            matching = [item for item in campaigns if item.campaign_id == by_name.campaign_id]
    if not matching and only_open:
        ended = find_campaign(store, prefix)
        raise UsageError(
            f"campaign {ended.campaign_id} ({ended.name}) is {ended.status}: nothing is left to run",
            hint="'benchfarm status' lists open campaigns",
        )
    if not matching:
        raise _not_found(store, f"campaign {prefix!r}")
    if len(matching) > 1:
        raise _ambiguous(prefix, [item.campaign_id for item in matching])
    return read_campaign(store, matching[0].campaign_id)


def read_campaign(store: Store, campaign_id: CampaignId) -> Campaign:
    """Return a campaign that is known to be stored, with its planned runs and skips."""
    campaign = store.campaign(campaign_id)
    assert campaign is not None, "it has just been listed"
    return campaign


def _not_found(store: Store, subject: str) -> NotFoundError:
    return NotFoundError(
        f"there is no {subject} in {store.name}", hint="'benchfarm results list' lists them"
    )


def _ambiguous(word: str, ids: Sequence[str]) -> UsageError:
    listed = ", ".join(ids[:3]) + (" ..." if len(ids) > 3 else "")
    return UsageError(f"{word!r} fits {listed}", hint="give more letters")


def find_run(store: Store, prefix: str) -> RunRecord:
    """Return the run of the beginning of an id, or of ``newest``; raises UsageError."""
    if prefix == "newest":
        newest = find_campaign(store, "newest")
        runs = store.runs(campaign_ids=[newest.campaign_id])
        last = max(runs, key=lambda run: run.started_at, default=None)
        if last is None:
            raise UsageError(f"campaign {newest.campaign_id} has no run yet")
        prefix = last.run_id
    matching = store.run_ids(prefix)
    if not matching:
        raise NotFoundError(
            f"there is no run {prefix!r} in {store.name}",
            hint="'benchfarm results runs CAMPAIGN' lists a campaign's runs",
        )
    if len(matching) > 1 and prefix not in matching:
        raise _ambiguous(prefix, matching)
    record = store.run(RunId(prefix) if prefix in matching else matching[0])
    assert record is not None
    return record


def load_measured(workspace: Workspace, campaigns: Sequence[Campaign]) -> list[CaseResult]:
    """Return the measured cases of some campaigns."""
    campaign_ids = [campaign.campaign_id for campaign in campaigns]
    runs = workspace.store.runs(campaign_ids=campaign_ids) if campaign_ids else ()
    return judged(workspace, runs, campaigns)


def judged(
    workspace: Workspace, runs: Iterable[RunRecord], campaigns: Sequence[Campaign]
) -> list[CaseResult]:
    """Return the measured cases of some campaigns from their runs."""
    return measured_cases(
        runs,
        devices=workspace.store.devices(),
        builds=workspace.store.builds(),
        campaigns=campaigns,
    )


def reparse_campaigns(workspace: Workspace, words: Iterable[str]) -> Review:
    """Parse the stored output of some campaigns again, by default of all.

    Raises UsageError, StoreError.
    """
    from orchestrator.engine.reread import reparse

    chosen = tuple(campaign.campaign_id for campaign in find_campaigns(workspace.store, *words))
    return reparse(workspace.store, workspace.tools, campaign_ids=chosen)


def prune(settings: Settings, *, older_than: str, is_trial: bool, compact: bool) -> Pruned:
    """Delete the raw output of old campaigns, and return the counts; figures, verdicts and states
    stay.

    Raises UsageError.
    """
    from orchestrator.store.opening import compact as shrink

    keep_s = time_limits.age_of("--older-than", older_than)
    path = settings.store_file
    if compact and path is None:
        raise UsageError(
            "--compact is for a store in a file", hint="PostgreSQL reuses the space by itself"
        )
    with Workspace(settings, makes_store=False) as workspace:
        now = workspace.clock.now()
        policy = f"on {now:%Y-%m-%d}, by 'benchfarm store prune --older-than {older_than.strip()}'"
        pruned = workspace.store.prune_raw(
            now - timedelta(seconds=keep_s), policy=policy, is_trial=is_trial
        )
    if compact and path is not None and path.is_file() and not is_trial:
        shrink(path)
    return pruned


def backup(settings: Settings, out: Path) -> Path:
    """Copy a store that may be in use, whole and checked; return the store's file.

    Raises:
        UsageError: the store isn't a file, or there is none, or the copy's name is taken or its
            folder isn't there.
        StoreError, HostStorageError: it can't be copied; no part of a copy is left.
    """
    from orchestrator.store.opening import copy_to

    path = settings.store_file
    if path is None:
        raise UsageError(
            "this store is in a PostgreSQL database",
            hint="pg_dump --format=custom --file=FILE DATABASE; see docs/guides/operations.md",
        )
    if out.exists():
        raise UsageError(f"{out} exists already", hint="name another file")
    check_folder(out.absolute())
    # A named store that is missing, or isn't benchfarm's, is an error and isn't copied.
    with Workspace(settings, makes_store=False) as workspace:
        workspace.store.campaign_count()
    if not path.is_file():
        raise UsageError(f"nothing is stored yet in {path}", hint="there is nothing to copy")
    copy_to(path, out)
    return path


def listed_runs(runs: Sequence[RunRecord]) -> Table[RunRecord]:
    """Return the table of runs for a terminal; values that all share, or that are usual, are left
    out.

    What didn't complete, or is another delegate's, has no figure.
    """
    table = runs_table(runs)
    columns = {column.name: column for column in table.columns}
    names = short_names((run.case.configuration, run.case) for run in runs)
    several = len({run.case.model_name for run in runs}) > 1

    def worth(run: RunRecord) -> str:
        if run.outcome is not Outcome.COMPLETED:
            return ending_text(run)
        doubts = ", ".join(filter(None, (nodes_of(run), *run.verdict.codes)))
        return ": ".join(filter(None, (run.verdict.quality.word, doubts)))

    return replace(
        table,
        columns=(
            columns["run_id"],
            columns["serial"],
            *([columns["model"]] if several else []),
            replace(columns["configuration"], shown=lambda run: names.of(run.case.configuration)),
            columns["invocation"],
            replace(
                columns["pass"],
                shown=lambda run: "" if run.run_pass is FIGURE_PASS else str(run.run_pass),
                is_optional=True,
            ),
            Column[RunRecord]("figure", value=figure_of),
            Column[RunRecord]("worth", value=worth),
        ),
    )


def log_text(run: RunRecord, attachments: tuple[Attachment, ...]) -> str:
    """Return a run's log as text: its command, its settings, and its output."""
    case = run.case
    flags = one_line(shlex.join(f"--{name}={value}" for name, value in case.flags))
    lines = [
        f"command: {one_line(run.command)}",
        f"exit code: {run.exit_code}{', stopped at its time limit' if run.outcome is Outcome.TIMED_OUT else ''}",
        f"tool: {case.tool.value}",
        f"delegate asked for: {case.delegate}",
        f"threads: {case.threads}",
        *([f"flags: {flags}"] if flags else []),
    ]
    return "\n".join([*lines, *map(_section, attachments)])


def _section(attachment: Attachment) -> str:
    text = attachment.data.decode("utf-8", "replace")
    # Control characters that a phone printed must not reach the terminal.
    return "\n".join(
        [f"--- {attachment.name} ({len(attachment.data)} bytes)", *map(one_line, text.splitlines())]
    )


def issue_report(workspace: Workspace, run: RunRecord) -> str:
    """Return a run as a text for an issue tracker, without names of persons, computers or phones."""
    from orchestrator.report.exports import Reported, issue_text

    store, case = workspace.store, run.case
    campaign = store.campaign(run.campaign_id)
    environ = workspace.settings.environ
    hosts = [this_computer(), campaign.host if campaign is not None else ""]
    words = [environ.get(name, "") for name in ("USER", "LOGNAME", "HOSTNAME", "HOME")]
    words += [host.partition(" ")[0] for host in hosts]
    # "root" and "host" name nobody.
    private = {word for word in words if word not in {"root", "host", "/root"}}
    return issue_text(
        Reported(
            run=run,
            facts=store.devices().get(case.serial),
            model=store.models().get(case.model_sha256),
            build=store.builds().get(case.build_sha256),
            attachments=store.attachments(run.run_id),
            benchfarm_version=__version__,
            private=sorted({*private, *({str(serial) for serial in store.devices()} - {"host"})}),
        )
    )


@frozen
class DiskUse:
    """One kind of file."""

    kind: str
    path: Path
    files: int
    size_bytes: int
    #: How to free its space.
    freed_by: str


_COLUMNS: Final[Sequence[Column[DiskUse]]] = (
    Column("kind", value=lambda row: row.kind),
    Column("files", value=lambda row: row.files, kind=Kind.COUNT),
    Column(
        "size_bytes",
        "size",
        lambda row: row.size_bytes,
        kind=Kind.NUMBER,
        shown=lambda use: format_bytes(use.size_bytes),
        forms=EVERYWHERE,
    ),
    Column("path", value=lambda row: row.path, forms=DATA),
    Column("freed_by", value=lambda row: row.freed_by),
)
_FREED_BY: Final = {
    "store": "benchfarm store prune --older-than 90d --compact; benchfarm results remove CAMPAIGN --yes",
    "reports": "delete it: benchfarm report writes it again",
    "checks": "delete what isn't needed",
    "cache": "delete it: needed files are made or downloaded again",
}


def disk_usage(settings: Settings) -> Table[DiskUse]:
    """Return the space of the store, its reports and the cache; missing ones take none."""
    folder, store = settings.data_folder, settings.store_file
    places = {"reports": folder / "reports", "checks": folder / "checks"}
    places |= {"cache": settings.cache_folder}
    usage = {kind: (path, list(_sizes(_files(path)))) for kind, path in places.items()}
    if store is not None:
        files = [store, *(store.with_name(f"{store.name}{end}") for end in ("-wal", "-shm"))]
        usage = {"store": (store, [*_sizes(files)]), **usage}
    rows = [
        DiskUse(
            kind=kind, path=path, files=len(sizes), size_bytes=sum(sizes), freed_by=_FREED_BY[kind]
        )
        for kind, (path, sizes) in usage.items()
    ]
    return Table(name="usage", caption="What is kept on this disk", columns=_COLUMNS, rows=rows)


def _files(folder: Path) -> Iterator[Path]:
    return (Path(place, name) for place, _, names in os.walk(folder) for name in names)


def _sizes(files: Iterable[Path]) -> Iterator[int]:
    """Yield the sizes of files. Files that vanish meanwhile, or can't be read, are left out."""
    for path in files:
        with suppress(OSError):
            yield path.stat().st_size


def report_data(
    workspace: Workspace,
    campaigns: Sequence[Campaign],
    *,
    has_logs: bool = True,
    is_shown: Callable[[Case, CampaignId], bool] = lambda _case, _campaign_id: True,
) -> ReportData:
    """Return the data of a report on some campaigns, of several on those cases of each that
    ``is_shown``.

    Whole runs aren't held: tens of thousands would take a gigabyte.
    """
    from orchestrator.report.assembly import Stored, build_report_data, newest_runs, slim_runs

    campaign_ids = [item.campaign_id for item in campaigns]
    stored = Stored(
        campaigns=campaigns,
        runs=slim_runs(workspace.store.runs(campaign_ids=campaign_ids)),
        outputs=workspace.store.attachments_of if has_logs else None,
        devices=workspace.store.devices(),
        models=workspace.store.models(),
        builds=workspace.store.builds(),
        accuracy=_manifest_accuracies(workspace.settings),
    )
    return build_report_data(
        newest_runs(stored, is_shown) if len(set(campaign_ids)) > 1 else stored
    )


def _manifest_accuracies(settings: Settings) -> Mapping[str, float]:
    """Return the accuracies that the data folder's models.yaml knows, in percent by sha256.

    Empty for a manifest with faults, so that there is still a report; 'benchfarm model list' lists
    the faults.
    """
    from orchestrator.config.declarations import MANIFEST_NAME, load_manifest

    try:
        entries = load_manifest(settings.data_folder / MANIFEST_NAME)
    except PlanError:
        return {}
    return {
        sha256: entry.accuracy.percent
        for sha256, entry in entries.items()
        if entry.accuracy is not None
    }


def write_html(data: ReportData, path: Path, *, title: str, makes_folder: bool = False) -> None:
    """Write the HTML report; see :func:`orchestrator.files.write_file`."""
    from orchestrator.report.render import render_html

    write_file(path, render_html(data, title=title), makes_folder=makes_folder)


def write_report(
    settings: Settings,
    data: ReportData,
    campaigns: Sequence[Campaign],
    out: Path | None,
    name: str = "",
) -> Path:
    """Write the HTML report of some campaigns, and return its path: by default in the data folder's
    ``reports``, by ``name`` or the first campaign's id.
    """
    name = name or campaigns[0].campaign_id
    path = out or settings.data_folder / "reports" / f"{name}.html"
    write_html(data, path, title=report_title(campaigns), makes_folder=out is None)
    return path


def report_title(campaigns: Sequence[Campaign]) -> str:
    """Return a report's title: the names of its campaigns."""
    return " and ".join(dict.fromkeys(campaign.name for campaign in campaigns))
