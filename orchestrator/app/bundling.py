"""Evidence bundles, written and taken in, and results in other programs' formats."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from orchestrator.app.options import Campaigns, Texts, opt
from orchestrator.app.reporting import report_data
from orchestrator.app.stored import named_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import RunId
from orchestrator.records.run import RunRecord

if TYPE_CHECKING:
    from orchestrator.store.bundle import BundleContents
    from orchestrator.store.taking_in import TakenIn

#: Form -> the file or, without a suffix, the folder that it is written to by default.
FORMATS = {
    "bundle": Path("benchfarm-bundle.zip"),
    "csv": Path("benchfarm-results.csv"),
    "parquet": Path("benchfarm-results.parquet"),
    "json": Path("benchfarm-results.json"),
    "bencher": Path("benchfarm-bencher.json"),
    "proto": Path("benchfarm-protos"),
    "leaderboard": Path("benchfarm-measurements.jsonl"),
}
ROWS = ("cases", "invocations")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported, and where to; ``form`` is one of ``FORMATS`` then."""

    campaigns: Campaigns = ()
    out: Annotated[
        Path | None,
        opt("--out -o", "File, or folder for proto (default: benchfarm-... in this folder, by format)."),
    ] = None
    form: Annotated[
        str,
        opt(
            "--format -f",
            "bundle, csv, parquet, json, bencher, proto or leaderboard (default: by --out, else bundle).",
        ),
    ] = ""
    runs: Annotated[Texts, opt("--run", "Export only this run, by id or its beginning. Repeat for several.")] = ()
    rows: Annotated[str, opt("--rows", "Rows of csv and parquet: cases or invocations.")] = "cases"
    force: Annotated[bool, opt("--force", "Replace an existing file.")] = False

    @property
    def target(self) -> Path:
        """The file or folder to write."""
        return self.out or FORMATS[self.form]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    files: Sequence[Path]
    #: Of a bundle.
    contents: BundleContents | None = None


def export(settings: Settings, request: ExportRequest) -> Exported:
    """Write campaigns, or some of their runs, to a file or folder.

    Raises:
        UsageError: An unknown run or campaign; a file that exists, without ``force``.
    """
    if request.rows not in ROWS:
        raise UsageError(f"there are no rows of {request.rows!r}", hint=f"choose one of {', '.join(ROWS)}")
    if request.runs and request.form not in {"bundle", "proto"}:
        raise UsageError(f"--run chooses runs for bundles and protos; {request.form} is about whole campaigns")
    is_folder = not FORMATS[request.form].suffix
    if is_folder and request.target.is_file():
        raise UsageError(f"{request.target}: is a file; {request.form} is written to a folder")
    if not is_folder and not request.force and os.path.lexists(request.target):
        raise _exists(request.target)
    with Farm(settings, makes_store=False) as farm:
        chosen = named_campaigns(farm.store, request.campaigns or ("",))
        if request.form == "bundle":
            return _bundle(farm, chosen, request)
        return Exported(files=_results(farm, chosen, request))


def is_bundle(path: Path) -> bool:
    """Whether a file looks like a bundle."""
    return zipfile.is_zipfile(path)


def take_in(settings: Settings, path: Path) -> TakenIn:
    """Store what a bundle holds; nothing that is stored already is changed."""
    from orchestrator.engine.review import read_imported
    from orchestrator.store.bundle import Bundle
    from orchestrator.store.taking_in import take_in as take_in_bundle

    with Farm(settings) as farm, Bundle(path) as bundle:
        tools = farm.tools

        def read(run: RunRecord, facts: DeviceFacts, campaign: Campaign) -> RunRecord:
            return read_imported(run, facts, tools, campaign.terms.quiet.screen)

        return take_in_bundle(bundle, farm.store, read=read)


def _bundle(farm: Farm, chosen: Sequence[Campaign], request: ExportRequest) -> Exported:
    from orchestrator.store.bundle import write_bundle

    ids = [campaign.campaign_id for campaign in chosen]
    out = request.target
    run_ids = _run_ids(farm, chosen, request.runs)
    if request.force and out.is_dir():
        raise UsageError(f"{out}: is a folder")
    # With --force the file that exists stays until the new one is whole.
    made = out.with_name(f".{out.name}.{os.getpid()}.new") if request.force else out
    contents = write_bundle(made, farm.store, ids, run_ids=run_ids, folders=_folders(farm), at=farm.clock.now())
    made.replace(out)
    return Exported(files=[out], contents=contents)


def _folders(farm: Farm) -> Sequence[Path]:
    return (farm.settings.data_folder, farm.settings.cache_folder, farm.settings.state_folder)


def _run_ids(farm: Farm, chosen: Sequence[Campaign], prefixes: Sequence[str]) -> list[RunId]:
    """Return the runs that a person names by the beginnings of their ids."""
    if not prefixes:
        return []
    known = [run.run_id for run in farm.store.runs(campaign_ids=[campaign.campaign_id for campaign in chosen])]
    found = []
    for prefix in prefixes:
        if not prefix:
            raise UsageError("--run names no run", hint="'benchfarm results runs CAMPAIGN' lists them")
        fitting = [run_id for run_id in known if run_id.startswith(prefix)]
        if len(fitting) != 1:
            what = "no run" if not fitting else f"{len(fitting)} runs"
            raise UsageError(
                f"{what} of {', '.join(campaign.campaign_id for campaign in chosen)} begin with {prefix!r}",
                hint="'benchfarm results runs CAMPAIGN' lists them",
            )
        found += fitting
    return found


def _results(farm: Farm, chosen: list[Campaign], request: ExportRequest) -> list[Path]:
    """Write what another program reads: one file, or a folder of them."""
    if FORMATS[request.form].suffix:
        write_file(request.target, _content(farm, chosen, request))
        return [request.target]
    made = _protos(farm, chosen, request)
    for path, data in made.items():
        is_other = os.path.lexists(path) and not (path.is_file() and path.read_bytes() == data)
        if is_other and not request.force:
            raise _exists(path)
    new = [path for path in made if not path.exists()]
    try:
        for path, data in made.items():
            write_file(path, data)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    return list(made)


def _protos(farm: Farm, chosen: Sequence[Campaign], request: ExportRequest) -> dict[Path, bytes]:
    """Return a BenchmarkResult for each run that has figures: what the program wrote, or else what was read of it."""
    from orchestrator.reading.protos import encode_result
    from orchestrator.tables.escapes import visible

    wanted = set(_run_ids(farm, chosen, request.runs))
    made: dict[Path, bytes] = {}
    ids = [campaign.campaign_id for campaign in chosen]
    origins = {item.campaign_id: f", {item.terms.origin.text}" for item in chosen if item.terms.origin is not None}
    for run in farm.store.runs(campaign_ids=ids, with_attachments=True):
        if (wanted and run.run_id not in wanted) or run.report is None or run.latency_us is None:
            continue
        own = next((item.data for item in run.attachments if item.name == "result.pb"), b"")
        # Programs leave the name empty: here it says what the figures are of, and that virtual ones are none.
        virtual = ", virtual" if run.is_virtual else ""
        name = f"{run.case.model_name}, {run.case.configuration}{virtual}{origins.get(run.campaign_id, '')}"
        made[request.target / f"{run.run_id}.pb"] = encode_result(run.report, name=visible(name), own=own)
    return made


def _content(farm: Farm, chosen: list[Campaign], request: ExportRequest) -> str | bytes:
    from orchestrator.report import exports
    from orchestrator.store.own_folders import own_folders

    if request.form == "leaderboard":
        from orchestrator.report.leaderboard import to_leaderboard

        store = farm.store
        runs = store.runs(campaign_ids=[campaign.campaign_id for campaign in chosen])
        return to_leaderboard(runs, devices=store.devices(), models=store.models(), builds=store.builds())
    if request.form == "bencher":
        return exports.to_bencher(report_data(farm, chosen))
    # Each campaign on its own: a case that was measured on two nights is two results.
    once = {campaign.campaign_id: campaign for campaign in chosen}
    parts = [report_data(farm, [campaign]) for campaign in once.values()]
    rows: Literal["cases", "invocations"] = "invocations" if request.rows == "invocations" else "cases"
    hide = own_folders(farm.store, chosen, _folders(farm)).hide
    if request.form == "parquet":
        return exports.to_parquet(*parts, rows=rows, text=hide)
    return hide(exports.to_csv(*parts, rows=rows) if request.form == "csv" else exports.to_json(*parts))


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path}: is there already", hint="name another file with --out, or replace it with --force")
