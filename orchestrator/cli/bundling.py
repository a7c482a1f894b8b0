"""``benchfarm export`` and the import of what it wrote: evidence bundles, and results in other programs' formats."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import write_file
from orchestrator.cli.reports import report_data
from orchestrator.cli.result import CommandResult
from orchestrator.cli.stored import named_campaigns
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import RunId
from orchestrator.records.run import RunRecord

#: Form -> whether it is written to a folder.
FORMATS = {"bundle": False, "csv": False, "parquet": False, "json": False, "bencher": False, "asv": True, "proto": True}
ROWS = ("cases", "invocations")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """The options of ``benchfarm export``."""

    campaigns: tuple[str, ...]
    runs: tuple[str, ...]
    form: str
    rows: str
    commit: str
    out: Path


def export(settings: Settings, request: ExportRequest) -> CommandResult:
    """Write campaigns, or some of their runs, to a file or folder."""
    if request.form not in FORMATS:
        raise UsageError(f"there is no export format {request.form!r}", hint=f"choose one of {', '.join(FORMATS)}")
    if request.rows not in ROWS:
        raise UsageError(f"there are no rows of {request.rows!r}", hint=f"choose one of {', '.join(ROWS)}")
    if request.runs and request.form not in {"bundle", "proto"}:
        raise UsageError(f"--run chooses runs for bundles and protos; {request.form} is about whole campaigns")
    if FORMATS[request.form] and request.out.is_file():
        raise UsageError(f"{request.out}: is a file; {request.form} is written to a folder")
    with Farm(settings, makes_store=False) as farm:
        chosen = named_campaigns(farm.store, request.campaigns or ("",))
        if request.form == "bundle":
            return _bundle(farm, chosen, request)
        written = _protos(farm, chosen, request) if request.form == "proto" else _results(farm, chosen, request)
    names = [str(path) for path in written]
    text = names[0] if len(names) == 1 else f"{request.out}: {len(names)} files"
    return CommandResult(text=text, data={"format": request.form, "files": names})


def is_bundle(path: Path) -> bool:
    """Whether a file looks like a bundle."""
    return zipfile.is_zipfile(path)


def take_in(settings: Settings, path: Path) -> CommandResult:
    """Store what a bundle holds; nothing that is stored already is changed."""
    from orchestrator.engine.review import read_imported
    from orchestrator.store.bundle import Bundle
    from orchestrator.store.bundle import take_in as take_in_bundle

    with Farm(settings) as farm, Bundle(path) as bundle:
        tools = farm.tools

        def read(run: RunRecord, facts: DeviceFacts, campaign: Campaign) -> RunRecord:
            return read_imported(run, facts, tools, campaign.terms.quiet.screen)

        done = take_in_bundle(bundle, farm.store, read=read)
    new = f"{len(done.new_campaigns)} of {len(done.campaigns)} campaigns are new: {', '.join(done.campaigns)}"
    lines = [f"{done.new_runs} runs taken in, {done.known_runs} were there already; {new}"]
    lines.append(f"read again from their raw output; imported from {path.name}, sha256 {done.sha256}")
    if done.other_runs:
        why = "the store holds others in their place, or they are of a campaign of its own"
        lines.append(f"{len(done.other_runs)} runs were left out: {why}")
    return CommandResult(text="\n".join(lines), data=done, exit_code=1 if done.other_runs else 0)


def _bundle(farm: Farm, chosen: Sequence[Campaign], request: ExportRequest) -> CommandResult:
    from orchestrator.store.bundle import write_bundle

    ids = [campaign.campaign_id for campaign in chosen]
    contents = write_bundle(
        request.out, farm.store, ids, run_ids=_run_ids(farm, chosen, request.runs), at=farm.clock.now()
    )
    virtual = f", {contents.virtual_runs} of them virtual" if contents.virtual_runs else ""
    text = f"{request.out}: {contents.runs} runs of {contents.campaigns} campaigns{virtual}"
    return CommandResult(text=text, data={"format": "bundle", "files": [str(request.out)], "contents": contents})


def _run_ids(farm: Farm, chosen: Sequence[Campaign], prefixes: Sequence[str]) -> list[RunId]:
    """Return the runs that a person names by the beginnings of their ids."""
    if not prefixes:
        return []
    known = [run.run_id for run in farm.store.runs(campaign_ids=[campaign.campaign_id for campaign in chosen])]
    found = []
    for prefix in prefixes:
        if not prefix:
            raise UsageError("--run names no run", hint="'benchfarm runs CAMPAIGN' lists them")
        fitting = [run_id for run_id in known if run_id.startswith(prefix)]
        if len(fitting) != 1:
            what = "no run" if not fitting else f"{len(fitting)} runs"
            raise UsageError(
                f"{what} of {', '.join(campaign.campaign_id for campaign in chosen)} begin with {prefix!r}",
                hint="'benchfarm runs CAMPAIGN' lists them",
            )
        found += fitting
    return found


def _protos(farm: Farm, chosen: Sequence[Campaign], request: ExportRequest) -> list[Path]:
    """Write a BenchmarkResult for each run that has figures: what the program wrote, or else what was read of it."""
    from orchestrator.report.escapes import visible
    from orchestrator.tools.protos import encode_result

    wanted = set(_run_ids(farm, chosen, request.runs))
    made: dict[Path, bytes] = {}
    ids = [campaign.campaign_id for campaign in chosen]
    for run in farm.store.runs(campaign_ids=ids, with_attachments=True):
        if (wanted and run.run_id not in wanted) or run.report is None or run.latency_us is None:
            continue
        own = next((item.data for item in run.attachments if item.name == "result.pb"), b"")
        path = request.out / f"{run.run_id}.pb"
        # Programs leave the name empty: here it says what the figures are of, and that virtual ones are none.
        name = f"{run.case.model_name}, {run.case.configuration}{', virtual' if run.is_virtual else ''}"
        made[path] = encode_result(run.report, name=visible(name), own=own)
    new: list[Path] = []
    try:
        for path, data in made.items():
            new += [] if path.exists() else [path]
            write_file(path, data)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    return list(made)


def _results(farm: Farm, chosen: list[Campaign], request: ExportRequest) -> list[Path]:
    from orchestrator.report import exports, exports_for_trackers

    content: str | bytes
    if request.form == "asv":
        if not request.commit:
            raise UsageError("asv keeps results by commit", hint="name the commit of what was measured: --commit HASH")
        files = exports_for_trackers.to_asv(report_data(farm, chosen), commit=request.commit)
        for name, text in files.items():
            write_file(request.out / name, text)
        return [request.out / name for name in files]
    if request.form == "bencher":
        content = exports_for_trackers.to_bencher(report_data(farm, chosen))
    else:
        # Each campaign on its own: a case that was measured on two nights is two results.
        once = {campaign.campaign_id: campaign for campaign in chosen}
        parts = [report_data(farm, [campaign]) for campaign in once.values()]
        rows: Literal["cases", "invocations"] = "invocations" if request.rows == "invocations" else "cases"
        if request.form == "csv":
            content = exports.to_csv(*parts, rows=rows)
        elif request.form == "parquet":
            content = exports.to_parquet(*parts, rows=rows)
        else:
            content = exports.to_json(*parts)
    write_file(request.out, content)
    return [request.out]
