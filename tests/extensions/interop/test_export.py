"""Out of a store and into another: bundles, and the formats of other programs, through the command
line."""

import csv
import hashlib
import json
import re
import shutil
import sqlite3
import zipfile
from dataclasses import replace
from datetime import timedelta

import pandas as pd
import pytest

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import DelegateName, Pass, ToolName
from orchestrator.records.history import is_pruned
from orchestrator.records.run import Attachment
from orchestrator.records.verdict import Quality
from orchestrator.settings import this_computer
from orchestrator.store.opening import open_store
from tests.samples.command import Cli
from tests.samples.places import DATA, REPO
from tests.samples.sample_lab import (
    HOST,
    MOBILENET,
    REAL_PIXEL,
    START,
    campaign_of,
    case,
    lab_of,
    series,
    small_lab,
    stored,
)

#: A benchmark that never came to a figure.
RAW = b"STARTING!\nLog parameter values verbosely: [0]\nERROR: Failed to load model\nBenchmarking failed.\n"

#: Numbers that a run is known by: others are refused.
KEPT = frozenset({"invocation", "number", "threads", "duration_s"})


def benchfarm(home, *words, code=0):
    return Cli(home=home)(*words).ended_with(code).said


def runs_of(home):
    store = open_store(home / "store.sqlite")
    found = list(store.runs(with_attachments=True))
    store.close()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a lab and its bundle, of which each test gets a copy."""
    folder = tmp_path_factory.mktemp("made")
    benchfarm(stored(folder / "lab", small_lab()), "export --out", folder / "evidence.zip")
    return folder


@pytest.fixture
def lab(made, tmp_path):
    return shutil.copytree(made / "lab", tmp_path / "lab")


@pytest.fixture
def bundle(made, tmp_path):
    return shutil.copy(made / "evidence.zip", tmp_path / "evidence.zip")


def changed(bundle, tmp_path, change):
    """Return a copy of a bundle with another content in some members; the manifest's sha256 is
    right again.
    """
    path = tmp_path / "changed.zip"
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(path, "w") as new:
        members = change({name: old.read(name) for name in old.namelist()})
        if "manifest.json" in members and "records.jsonl" in members:
            manifest = json.loads(members["manifest.json"])
            manifest["records_sha256"] = hashlib.sha256(members["records.jsonl"]).hexdigest()
            members["manifest.json"] = json.dumps(manifest).encode()
        for name, data in members.items():
            new.writestr(name, data)
    return path


def test_another_lab_gets_every_run_byte_for_byte_and_can_read_and_compare_it(
    lab, bundle, tmp_path
):
    other = tmp_path / "other"
    told = benchfarm(other, "import", bundle)
    theirs, ours = runs_of(other), runs_of(lab)
    assert f"{len(ours)} runs imported" in told
    assert {run.run_id: run.attachments for run in theirs} == {
        run.run_id: run.attachments for run in ours
    }
    # Whoever writes a file can name any device: theirs keep apart from ours, and are told as
    # imported.
    assert {run.case.serial for run in theirs} == {f"{run.case.serial}@lab-01" for run in ours}
    assert "Pixel 3 (imported) (virtual)" in benchfarm(other, "report --format text")
    sum_of_file = hashlib.sha256(bundle.read_bytes()).hexdigest()
    assert f"imported from evidence.zip, sha256 {sum_of_file}" in told
    origin = f"imported from evidence.zip (sha256 {sum_of_file[:12]})"
    assert origin in " ".join(benchfarm(other, "report --format text").split())
    assert "(imported)" in benchfarm(other, "results list")
    assert "(imported)" in benchfarm(other, "report --format csv")
    (listed,) = json.loads(benchfarm(other, "results list --json"))
    assert listed["origin"] == {"file": "evidence.zip", "sha256": sum_of_file}
    assert "(imported)" not in benchfarm(lab, "report --format text")


def test_the_mark_of_an_import_stands_wherever_its_figures_stand(tmp_path):
    logs = {
        DelegateName.XNNPACK: "default_float_10_224.txt",
        DelegateName.GPU: "gpu_ok_backend_cl_fp32.txt",
    }
    runs = [
        run
        for delegate, name in logs.items()
        for run in series(
            case(REAL_PIXEL, delegate=delegate),
            10_000,
            3,
            log=(REPO / "tests/data/native" / name).read_bytes(),
        )
    ]
    bundle, other = tmp_path / "evidence.zip", tmp_path / "other"
    benchfarm(stored(tmp_path / "lab", lab_of(runs, REAL_PIXEL)), "export --out", bundle)
    benchfarm(other, "import", bundle)
    mark = f"imported from evidence.zip (sha256 {hashlib.sha256(bundle.read_bytes()).hexdigest()[:12]})"
    compared = ("compare", "--by", "delegate", "gpu", "xnnpack", "--fail-on", "never", "--format")
    for words in (
        ("report", "--format", "text"),
        ("report", "--format", "json"),
        ("table", "--all"),
        ("table", "--all", "--json"),
        (*compared, "text"),
        (*compared, "markdown"),
        (*compared, "junit"),
        (*compared, "json"),
    ):
        told = (
            Cli(home=other)(*words)
            .stdout.replace("\\_", "_")
            .replace("\\(", "(")
            .replace("\\)", ")")
        )
        assert mark in " ".join(told.split()), words
    pages = {"report": tmp_path / "report.html", "compare": tmp_path / "compare.html"}
    Cli(home=other)("report", "--out", pages["report"])
    Cli(home=other)(*compared, "html", "--out", pages["compare"])
    benchfarm(other, "history site --out", tmp_path / "site")
    for page in (
        *pages.values(),
        *(tmp_path / "site").rglob("campaigns/*.html"),
        *tmp_path.rglob("series/*.html"),
    ):
        assert mark in page.read_text("utf-8"), page
    for rows in ("cases", "invocations"):
        path = tmp_path / f"{rows}.csv"
        benchfarm(other, "export --format csv --rows", rows, "--out", path)
        assert set(pd.read_csv(path).origin) == {mark}
    benchfarm(other, "export --format json --out", tmp_path / "exported.json")
    assert mark in (tmp_path / "exported.json").read_text("utf-8")


def test_figures_and_verdicts_of_a_bundle_are_read_from_its_raw_output(lab, bundle, tmp_path):
    """A forged report says what it likes: the raw output decides."""

    def forged(members):
        lines = []
        for line in members["records.jsonl"].splitlines():
            entry = json.loads(line)
            if entry["kind"] == "run" and entry["record"]["report"]:
                entry["record"]["report"]["inference"] = {
                    "count": 50,
                    "median_us": 1.0,
                    "mean_us": 1.0,
                }
                entry["record"] |= {"outcome": "completed", "verdict": {"quality": "trusted"}}
                entry["left"] = [["stdout", hashlib.sha256(RAW).hexdigest()]]
            lines.append(json.dumps(entry).encode())
        return members | {
            "records.jsonl": b"\n".join(lines) + b"\n",
            f"blobs/{hashlib.sha256(RAW).hexdigest()}": RAW,
        }

    other = tmp_path / "other"
    benchfarm(other, "import", changed(bundle, tmp_path, forged))
    read = [run for run in runs_of(other) if run.run_pass is Pass.TIMING and run.report is not None]
    assert len(read) > 10
    assert all(run.report.inference is None for run in read)
    assert all(run.verdict.quality is not Quality.TRUSTED for run in read)


@pytest.mark.parametrize(
    "words",
    [
        ("export",),
        ("export", "--format", "csv"),
        ("report",),
        ("compare", "--by", "delegate", "cpu", "gpu", "--format", "html"),
    ],
    ids=" ".join,
)
def test_a_file_in_a_folder_that_is_not_there_makes_none_and_the_folder_is_named(
    lab, tmp_path, words
):
    missing = tmp_path / "misspelt"
    said = benchfarm(lab, *words, "--out", missing / "within" / "file", code=2)
    assert f"there is no folder {missing / 'within'}" in said
    assert not missing.exists()


def test_a_bundle_whose_raw_output_was_deleted_before_is_told(lab, tmp_path):
    benchfarm(lab, "store prune --older-than 0s")
    pruned, other = tmp_path / "pruned.zip", tmp_path / "other"
    exported = benchfarm(lab, "export --out", pruned)
    imported = benchfarm(other, "import", pruned)
    unread = {
        run.run_id
        for run in runs_of(other)
        if "imported-unread" in {item.code for item in run.verdict.findings}
    }
    assert unread == {
        run.run_id for run in runs_of(lab) if is_pruned(run.attachments) and run.report is not None
    }
    assert unread
    assert f"; {len(unread)} without raw output" in exported
    assert f"{len(unread)} of {len(runs_of(other))} have no raw output" in imported
    assert "suspect (imported-unread)" in imported
    assert "read again from their raw output" not in imported
    again = benchfarm(other, "import", pruned)
    assert "0 runs imported" in again
    assert "imported-unread" not in again


@pytest.mark.parametrize("value", [2**63 - 1, 5e-324], ids=str)
def test_a_bundle_of_the_largest_numbers_is_shown(bundle, tmp_path, value):
    def extreme(item, key=""):
        if isinstance(item, dict):
            return {name: extreme(inner, name) for name, inner in item.items()}
        if isinstance(item, list):
            return [extreme(inner, key) for inner in item]
        is_number = isinstance(item, int | float) and not isinstance(item, bool) and key not in KEPT
        return item if not is_number or isinstance(item, int) > isinstance(value, int) else value

    def changes(members):
        lines = [
            json.dumps(extreme(json.loads(line))) for line in members["records.jsonl"].splitlines()
        ]
        return members | {"records.jsonl": "\n".join(lines).encode() + b"\n"}

    other = tmp_path / "other"
    benchfarm(other, "import", changed(bundle, tmp_path, changes))
    for words in (
        f"report --out {tmp_path}/report.html",
        "report --format text",
        f"history site --out {tmp_path}/site",
        "history changes --fail-on never",
        "results list",
        "results runs",
        "results runs --json",
        "table --all",
        f"export --format csv --out {tmp_path}/cases.csv",
        f"export --format json --out {tmp_path}/cases.json",
    ):
        benchfarm(other, words)


@pytest.mark.parametrize("number", [b"9" * 400, b"NaN"])
def test_a_number_beyond_all_bounds_is_refused_with_its_place(bundle, tmp_path, number):
    def changes(members):
        # An emoji is written as surrogates, beside which nothing may be converted.
        records = re.sub(
            rb'"memory_bytes":\d+', b'"memory_bytes":' + number, members["records.jsonl"]
        )
        records = records.replace(b'"manufacturer":"', b'"manufacturer":"\\ud83d\\ude00')
        return members | {"records.jsonl": records}

    assert "memory_bytes" in benchfarm(
        tmp_path / "other", "import", changed(bundle, tmp_path, changes), code=5
    )


def test_importing_twice_changes_nothing(lab, bundle, tmp_path):
    other = tmp_path / "other"
    benchfarm(other, "import", bundle)
    before = runs_of(other)
    told = benchfarm(other, "import", bundle)
    assert "0 runs imported" in told
    assert f"{len(before)} already stored" in told
    assert runs_of(other) == before
    # And into the very store that it comes from.
    assert "0 runs imported" in benchfarm(lab, "import", bundle)


def test_an_import_never_changes_what_is_stored(lab, bundle, tmp_path):
    mine = small_lab()
    first = mine.runs[0]
    mine.runs[0] = replace(
        first, run_id="mine", attachments=(Attachment(name="stdout", data=b"mine"),)
    )
    home = stored(tmp_path / "mine", mine)
    told = benchfarm(home, "import", bundle, code=1)
    assert "1 run left out" in told
    assert runs_of(home)[0].attachments[0].data == b"mine"
    another = replace(
        mine, campaigns=[replace(item, plan_text="another plan") for item in mine.campaigns]
    )
    refused = benchfarm(stored(tmp_path / "another", another), "import", bundle, code=5)
    assert "is another one" in refused


def test_chosen_runs_come_with_what_they_refer_to_and_no_more(lab, tmp_path):
    chosen = next(run for run in runs_of(lab) if run.case.delegate is DelegateName.GPU)
    path = tmp_path / "one.zip"
    benchfarm(lab, "export --run", chosen.run_id, "--out", path)
    other = tmp_path / "other"
    benchfarm(other, "import", path)
    (taken,) = runs_of(other)
    assert (taken.run_id, taken.attachments) == (chosen.run_id, chosen.attachments)
    store = open_store(other / "store.sqlite")
    assert set(store.devices()) == {f"{chosen.case.serial}@lab-01"}
    assert set(store.models()) == {chosen.case.model_sha256}
    store.close()
    assert "no run" in benchfarm(lab, "export --run zzz --out", tmp_path / "none.zip", code=2)
    assert not (tmp_path / "none.zip").exists()


def test_a_bundle_says_what_is_in_it_and_holds_no_path_of_this_computer(made, lab, bundle):
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        records = archive.read("records.jsonl").decode()
    assert manifest["schema"] == "benchfarm-bundle"
    assert manifest["has_virtual"] is True
    assert manifest["runs"] == len(runs_of(lab))
    assert str(made) not in records


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (lambda members: members | {"records.jsonl": b"{}\n"}, 5, "records.jsonl:1"),
        (
            lambda members: {name: data for name, data in members.items() if "blobs" not in name},
            5,
            "blobs/",
        ),
        (
            lambda members: {
                name: data for name, data in members.items() if name != "records.jsonl"
            },
            5,
            "records.jsonl",
        ),
        (
            lambda members: (
                members | dict.fromkeys([name for name in members if "blobs" in name], b"x")
            ),
            5,
            "content",
        ),
        (
            lambda members: (
                members
                | {
                    "records.jsonl": members["records.jsonl"].replace(
                        b'"run_id":"', b'"run_id":"../'
                    )
                }
            ),
            5,
            "no id",
        ),
        (
            lambda members: (
                members
                | {
                    "manifest.json": members["manifest.json"].replace(
                        b'"schema_version": 1', b'"schema_version": 99'
                    )
                }
            ),
            5,
            "upgrade",
        ),
        (lambda members: {"readme.txt": b"hello"}, 2, "no figure of a benchmark program"),
    ],
    ids=["no records", "no blobs", "no member", "other blobs", "path", "newer", "other zip"],
)
def test_a_damaged_or_hostile_bundle_is_refused_and_stores_no_run(
    bundle, tmp_path, change, code, told
):
    other = tmp_path / "other"
    assert told in benchfarm(other, "import", changed(bundle, tmp_path, change), code=code)
    store = open_store(other / "store.sqlite")
    assert not store.campaigns()
    store.close()


def test_a_bundles_own_words_do_not_drive_a_terminal(bundle, tmp_path):
    def hostile(members):
        manifest = json.loads(members["manifest.json"]) | {
            "schema_version": 99,
            "benchfarm_version": "9\x1b[2J\u202e",
        }
        return members | {"manifest.json": json.dumps(manifest).encode()}

    path = changed(bundle, tmp_path, hostile)
    for words in ((), ("--json",)):
        told = benchfarm(tmp_path / "other", "import", path, *words, code=5)
        assert "\x1b" not in told
        assert "\u202e" not in told
        assert "202e" in told


def test_an_import_that_was_cut_off_leaves_nothing_to_resume_and_is_gone_on_with(
    lab, bundle, tmp_path
):
    other = tmp_path / "other"

    def without_a_run(members):
        lines = members["records.jsonl"].splitlines(keepends=True)
        run = next(line for line in lines if line.startswith(b'{"kind":"run"'))
        return members | {"records.jsonl": members["records.jsonl"].replace(run, b"")}

    benchfarm(other, "import", changed(bundle, tmp_path, without_a_run))
    store = open_store(other / "store.sqlite")
    assert {campaign.status for campaign in store.campaigns()} == {CampaignStatus.FINISHED}
    store.close()
    benchfarm(other, "import", bundle)
    assert len(runs_of(other)) == len(runs_of(lab))


def test_an_import_that_was_cut_off_is_hidden_until_it_is_whole(bundle, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    open_store(other / "store.sqlite").close()
    full = "WHEN (SELECT count(*) FROM runs) = 1 BEGIN SELECT RAISE(ABORT, 'full'); END"
    with sqlite3.connect(other / "store.sqlite") as connection:
        connection.execute(f"CREATE TRIGGER full BEFORE INSERT ON runs {full}")
    benchfarm(other, "import", bundle, code=5)
    assert "no campaign matches" in benchfarm(other, "results", "list")
    for command in ("run --resume", "results close"):
        assert "import evidence.zip again" in benchfarm(other, command, "2026", code=2)
    with sqlite3.connect(other / "store.sqlite") as connection:
        connection.execute("DROP TRIGGER full")
    benchfarm(other, "import", bundle)
    assert "finished" in benchfarm(other, "results", "list")


def test_a_moment_without_a_zone_is_refused_with_its_place(bundle, tmp_path):
    def naive(members):
        records = members["records.jsonl"].decode()
        moment = START.isoformat()
        assert moment in records
        return members | {"records.jsonl": records.replace(moment, moment[:19]).encode()}

    said = benchfarm(tmp_path / "other", "import", changed(bundle, tmp_path, naive), code=5)
    assert "fault in benchfarm" not in said


@pytest.mark.parametrize("kept", [0.0, 0.999])
def test_a_bundle_that_was_cut_off_is_no_bundle(bundle, tmp_path, kept):
    data = bundle.read_bytes()
    cut = tmp_path / "cut.zip"
    cut.write_bytes(data[: int(len(data) * kept)])
    # Without its directory at the end it doesn't look like one, and the other kinds of results need
    # to be named.
    assert "error" in benchfarm(tmp_path / "other", "import", cut, code=2)


def test_several_campaigns_give_a_row_for_each_case_and_campaign(tmp_path):
    first = small_lab()
    again = [replace(run, campaign_id="night-2", run_id=f"{run.run_id}-2") for run in first.runs]
    both = replace(
        first,
        campaigns=[
            *first.campaigns,
            replace(
                first.campaigns[0], campaign_id="night-2", created_at=START + timedelta(days=2)
            ),
        ],
        runs=[*first.runs, *again],
    )
    home = stored(tmp_path / "two", both)
    ids = [first.campaigns[0].campaign_id, "night-2"]
    for rows in ("cases", "invocations"):
        path = tmp_path / f"{rows}.parquet"
        benchfarm(home, "export", *ids, "--format", "parquet", "--rows", rows, "--out", path)
        frame = pd.read_parquet(path)
        assert frame.attrs == {"schema": f"benchfarm-{rows}", "schema_version": 1}
        counts = frame["campaign_id"].value_counts()
        assert counts[ids[0]] == counts["night-2"] > 5
    cases = pd.read_parquet(tmp_path / "cases.parquet")
    assert not cases.duplicated(["campaign_id", "case_key"]).any()
    assert set(cases["grade"].dropna()) <= {"A", "B", "C", "D"}


def test_runs_are_exported_of_whatever_campaign(tmp_path):
    old = series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 9_000)
    new = [
        replace(run, run_id=f"other-{run.run_id}", campaign_id="newer")
        for run in series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 9_000)
    ]
    first = campaign_of(old)
    second = campaign_of(new, campaign_id="newer", created_at=START.replace(year=2027))
    lab = replace(lab_of(old + new, REAL_PIXEL), campaigns=[first, second])
    home = stored(tmp_path / "home", lab)
    words = ("--run", old[0].run_id, "--out", tmp_path / "x")
    told = benchfarm(home, "export", first.campaign_id, *words, code=2)
    assert "name campaigns or runs, not both" in told
    assert "1 run of 1 campaign" in benchfarm(home, "export", *words)


def test_a_bundle_never_counts_as_measured_on_this_computer(tmp_path):
    runs = series(case(HOST, MOBILENET, DelegateName.XNNPACK, 1, ToolName.LITERT), 18_000)
    home = stored(tmp_path / "home", lab_of(runs, HOST, host=this_computer()))
    benchfarm(home, "export --out", tmp_path / "b.zip")
    other = tmp_path / "other"
    benchfarm(other, "import", tmp_path / "b.zip")
    # Whoever writes a bundle can name any computer in it, this one too.
    assert {run.case.serial for run in runs_of(other)} == {f"host@{this_computer()}"}


def test_what_is_no_text_with_a_figure_is_not_imported(tmp_path):
    assert "no such file" in benchfarm(tmp_path / "home", "import", tmp_path / "nope.zip", code=2)
    path = tmp_path / "my report.json"
    for text in ("{}", "command: ls\nhello\n"):
        path.write_text(text)
        told = benchfarm(tmp_path / "home", "import", path, code=2)
        assert f"{path}: no figure of a benchmark program is in it" in told
        assert f"benchfarm parse '{path}'" in told


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "xml"),
        ("--rows", "cells"),
        ("--format", "json", "--rows", "invocations"),
        ("--format", "csv", "--run", "a"),
        ("--run", ""),
    ],
)
def test_what_can_not_be_exported_is_refused(lab, tmp_path, words):
    told = benchfarm(lab, "export --out", tmp_path / "x", *words, code=2)
    assert ("--rows doesn't apply to json" in told) == ("invocations" in words)
    assert not (tmp_path / "x").exists()


def test_a_text_of_unknown_origin_is_imported_as_parse_reads_it_and_called_so(tmp_path):
    cli, log = Cli(home=tmp_path / "home"), DATA / "native" / "default_float_025_128.txt"
    read = cli.json("parse", log)
    done = cli.json("import", log)
    (run,) = cli.json("results runs", done["campaign_id"])
    assert run["report"]["inference"]["median_us"] == read["inference"]["median_us"]
    assert run["case"]["tool"] == "text"
    assert re.fullmatch(rf"unknown-[0-9a-f]{{8}}@{re.escape(log.name)}", run["case"]["serial"])
    text = cli("report --format text", done["campaign_id"]).ok().stdout
    assert "unknown phone (imported)" in text
    assert f"imported from {log.name} (sha256 " in text
    renamed = tmp_path / log.name.upper()
    shutil.copy(log, renamed)
    for same in (log, renamed):
        assert "1 were there already" in cli("import", same).ok().stdout
    both = Cli(home=tmp_path / "both")("import", log, renamed)
    assert both.ok().stdout.count("1 were there already") == 1
    assert "1 run parsed again, 0 changed" in cli("results reparse").ok().stdout


REPLACED = "Replacing {} node(s) with delegate ({}) node, yielding 2 partitions for subgraph 0 ()."


@pytest.mark.parametrize(
    ("lines", "delegate"),
    [
        (["Apply accelerator LiteRT GPU"], "gpu"),
        (
            [
                REPLACED.format("9 out of 10", "LITERT_CL"),
                REPLACED.format("1 out of 2", "TfLiteXNNPackDelegate"),
            ],
            "gpu",
        ),
        # LiteRT applies it whatever was asked for.
        (["Apply accelerator NpuAccelerator"], "text.unknown"),
        (["YNNPACK CPU accelerator registered."], "text.unknown"),
        ([], "text.unknown"),
    ],
)
def test_a_text_of_litert_is_of_the_cpu_only_where_it_says_so(tmp_path, lines, delegate):
    banner = ["Model initialization: 3.10 ms", "Inference (avg):      2.39 ms (10 runs)"]
    head = "09-28 06:21:39.336 19416 19416 I litert  : [compiled_model.cc:1003] "
    log = tmp_path / "log.txt"
    log.write_text("".join(f"{head}{line}\n" for line in lines + banner))
    cli = Cli(home=tmp_path / "home")
    campaign = cli.json("import -s Phone", log)["campaign_id"]
    (run,) = cli.json("results runs", campaign)
    assert run["case"]["delegate"] == delegate
    is_shown = any("Replacing" in line for line in lines)
    findings = str(run["verdict"]["findings"])
    assert ("nothing shows where the operators ran" in findings) != is_shown


def test_nothing_is_overwritten_without_force_and_each_format_has_a_name_of_its_own(
    lab, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    export = Cli(home=lab)
    export("export").ok()
    whole = (tmp_path / "benchfarm-bundle.zip").read_bytes()
    assert export.json("export", "--format", "csv")["files"] == ["benchfarm-results.csv"]
    assert (tmp_path / "benchfarm-bundle.zip").read_bytes() == whole
    for words in ((), ("--format", "csv"), ("--out", "benchfarm-bundle.zip")):
        assert "exists already" in export("export", *words).ended_with(2).said
    assert (tmp_path / "benchfarm-bundle.zip").read_bytes() == whole
    (tmp_path / "benchfarm-bundle.zip").write_bytes(b"old")
    (tmp_path / "benchfarm-results.csv").write_bytes(b"old")
    export("export", "--force").ok()
    assert zipfile.is_zipfile(tmp_path / "benchfarm-bundle.zip")
    export("export", "--format", "csv", "--force").ok()
    assert (tmp_path / "benchfarm-results.csv").read_bytes() != b"old"
    (tmp_path / "link.csv").symlink_to("linked.csv")
    for words in ((), ("--force",)):
        no_file = export("export", "--out", "link.csv", *words).ended_with(2).said
        assert "link.csv exists already and is no file" in no_file
        assert "replace it with --force" not in no_file
    (tmp_path / "linked.csv").write_bytes(b"old")
    export("export", "--out", "link.csv", "--force").ok()
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "linked.csv").read_bytes() != b"old"


def test_a_list_is_printed_in_every_form_from_the_same_columns(lab):
    (listed,) = json.loads(benchfarm(lab, "results list --json"))
    head, row = csv.reader(benchfarm(lab, "results list --format csv").splitlines())
    assert dict(zip(head, row, strict=True))["campaign_id"] == listed["campaign_id"]
    assert set(head) < set(listed)
    assert 'id="pack-campaigns"' in benchfarm(lab, "results list -f html")
