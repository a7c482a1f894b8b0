"""The comparison table: the published guide cell for cell, and a store's figures beside it, never
mixed with it."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.interop.guide_table import Configuration, parse_configuration
from orchestrator.extensions.interop.published import load_published
from orchestrator.records.campaign import Pairing, Terms
from orchestrator.records.case import BuildSha, CampaignId, DelegateName, ModelSha, RunId, ToolName
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from tests.samples.command import Cli
from tests.samples.sample_lab import (
    CAMPAIGN,
    MOBILENET,
    NATIVE,
    PIXEL_3,
    PIXEL_4,
    REAL_PIXEL,
    campaign_of,
    case,
    lab_of,
    parity,
    series,
    small_lab,
)
from tests.samples.stored_lab import stored

AS_THE_GUIDE = ("--config", "CPU, 4 threads", "--config", "GPU", "--config", "NNAPI")


def table(home, *options):
    return Cli(home=home)("table", "--all", *options).ok().stdout


class Cells(HTMLParser):
    """The cells of all tables of a page, row by row, with row spans spread out."""

    def __init__(self):
        super().__init__()
        self.rows, self.cell, self.left = [], None, 0

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
            if self.left:
                self.rows[-1].append(self.rows[-2][0])
                self.left -= 1
        elif tag in {"td", "th"}:
            self.cell = ""
            self.left = max(self.left, int(dict(attrs).get("rowspan") or 1) - 1)

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in {"td", "th"} and self.cell is not None:
            if self.rows:
                self.rows[-1].append(" ".join(self.cell.split()))
            self.cell = None


def cells_of(html):
    parser = Cells()
    parser.feed(html)
    return [row for row in parser.rows if len(row) > 3]


@pytest.mark.parametrize(
    ("devices", "configurations"),
    [
        ("pixel-3,pixel-4", AS_THE_GUIDE),
        ("iphone-xs", ("--config", "CPU, 2 threads", "--config", "GPU")),
    ],
)
def test_the_published_table_is_reproduced_cell_for_cell(tmp_path, devices, configurations):
    page = table(
        tmp_path, "--source", "published", "--serial", devices, *configurations, "--format", "html"
    )
    shown = cells_of(page)
    drawn = {
        (row[0], row[1], head): text
        for row in shown[1:]
        for head, text in zip(shown[0][2:], row[2:], strict=True)
    }
    names = {"pixel-3": "Pixel 3", "pixel-4": "Pixel 4", "iphone-xs": "iPhone XS"}
    wanted = {
        (
            figure.model,
            figure.device,
            Configuration(delegate=figure.delegate, threads=figure.threads).label,
        ): figure.text or "---"
        for figure in load_published()
        if figure.device in {names[device] for device in devices.split(",")}
    }
    assert len(wanted) in {36, 12}
    assert drawn == wanted


def test_own_figures_stand_in_rows_of_their_own_and_virtual_ones_say_so(tmp_path):
    home = stored(tmp_path / "home", small_lab())
    both = ("--source", "store,published")
    shown = json.loads(table(home, *both, "--serial", "pixel-3,Pixel 4", *AS_THE_GUIDE, "--json"))
    own = [row for row in shown["rows"] if "benchfarm" in row["source"]]
    assert {row["is_virtual"] for row in own} == {True}
    assert {row["is_virtual"] for row in shown["rows"] if row not in own} == {False}
    pixel_3 = next(
        row for row in own if "Pixel 3" in row["device"] and row["model"] == MOBILENET.name
    )
    cpu, gpu, nnapi = pixel_3["cells"]
    assert cpu["text"] == "23.9 ms"
    assert cpu["notes"] == ["XNNPACK"]
    assert gpu["text"] == "6.45 ms"
    # It fell back: its figure is the CPU's and must not stand here.
    assert nnapi == {
        "text": "---",
        "latency_us": None,
        "tokens_per_s": None,
        "notes": ["no figure: delegate-fell-back"],
        "campaign_id": "",
    }
    pixel_4 = next(
        row for row in own if "Pixel 4" in row["device"] and row["model"] == MOBILENET.name
    )
    assert "suspect: see the findings in its report" in pixel_4["cells"][0]["notes"]
    assert "a part of the operators ran on the CPU" in pixel_4["cells"][1]["notes"]
    for form in ("text", "markdown", "html", "csv", "latex"):
        text = table(
            home, "--serial", "pixel-3", *AS_THE_GUIDE, "--source", "store", "--format", form
        )
        assert "23.9" in text
        assert "(virtual)" in text.replace("\\", "")


def test_the_newest_campaign_wins_and_a_title_that_two_phones_share_gets_their_serials(tmp_path):
    old = series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 9_000)
    other = replace(REAL_PIXEL, serial="OTHER1")
    new = series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 7_000, campaign_id="newer")
    new += series(case(other, MOBILENET, DelegateName.GPU, 1), 7_500, campaign_id="newer")
    first = campaign_of(old)
    second = campaign_of(new, campaign_id="newer", created_at=first.created_at.replace(year=2027))
    lab = replace(lab_of(old + new, REAL_PIXEL, other), campaigns=[first, second])
    home = stored(tmp_path / "home", lab)
    rows = json.loads(table(home, "--source", "store", "--config", "GPU", "--json"))["rows"]
    assert [(row["device"], row["cells"][0]["text"]) for row in rows] == [
        ("Google Pixel 3 (89AX0KQ3H)", "7.00 ms"),
        ("Google Pixel 3 (OTHER1)", "7.50 ms"),
    ]
    rows = json.loads(table(home, "--source", "store", "--campaign", first.campaign_id, "--json"))[
        "rows"
    ]
    assert [row["cells"][0]["text"] for row in rows] == ["9.00 ms"]


def test_hostile_names_stay_text_in_every_format(tmp_path):
    name = "a|b`<script>alert(1)</script>\n\\end{tabular}$&=cmd()"
    phone = replace(PIXEL_4, model="=<img src=x>|Pixel")
    model = replace(MOBILENET, name=name)
    runs = series(case(phone, model, DelegateName.GPU, 1), 7_000)
    home = stored(tmp_path / "home", lab_of(runs, phone, models=[model]))
    page = table(home, "--source", "store", "--format", "html")
    assert "<script>" not in page
    assert "<img" not in page
    markdown = table(home, "--source", "store", "--format", "markdown")
    assert "<script>" not in markdown
    row = next(line for line in markdown.splitlines() if "alert" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 4
    latex = table(home, "--source", "store", "--format", "latex")
    assert latex.count(r"\end{tabular}") == 1
    (record,) = csv.DictReader(io.StringIO(table(home, "--source", "store", "--format", "csv")))
    assert not record["device"].startswith("=")
    assert "\n" not in record["model"]


def test_what_others_published_is_shown_only_where_it_is_asked_for(tmp_path):
    empty = Cli(home=tmp_path / "new")
    refused = empty("table").ended_with(2)
    assert refused.stdout == ""
    assert "the store has no results yet" in refused.stderr
    assert "--source published" in refused.stderr
    assert "23.9 ms" in table(tmp_path / "new", "--source", "published")
    assert "no figure" in table(tmp_path / "new", "--source", "published", "--serial", "pixel-8")
    own = json.loads(table(stored(tmp_path / "home", small_lab()), "--json"))["rows"]
    assert own
    assert all("benchfarm" in row["source"] for row in own)


@pytest.mark.parametrize(
    "devices", [("pixle-3",), ("pixel-4,pixle-3",), ("pixel-4", "--serial", "pixle-3")]
)
def test_a_device_that_nothing_is_known_of_is_refused_with_the_nearest_name(tmp_path, devices):
    refused = Cli(home=tmp_path)("table", "--serial", *devices).ended_with(2)
    assert "there is no device 'pixle-3'" in refused.stderr
    assert "did you mean 'pixel-3'?" in refused.stderr


@pytest.mark.parametrize("text", ["", "TPU", "CPU, four threads", "GPU,", "CPU, 4 threads, fast"])
def test_a_configuration_that_means_nothing_is_refused(text):
    with pytest.raises(UsageError, match="is no configuration"):
        parse_configuration(text)


def test_configurations_are_read_as_people_write_them():
    assert parse_configuration("cpu,4 threads").label == "CPU, 4 threads"
    assert parse_configuration("Core ML").delegate is DelegateName.COREML
    assert parse_configuration("XNNPACK, 1 thread").threads == 1
    assert parse_configuration("gpu").threads is None


def test_virtual_and_real_phones_of_one_kind_are_different_rows(tmp_path):
    runs = series(case(PIXEL_3, MOBILENET, DelegateName.GPU, 1), 6_450)
    runs += series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 6_800)
    home = stored(tmp_path / "home", lab_of(runs, PIXEL_3, REAL_PIXEL))
    rows = json.loads(table(home, "--source", "store", "--json"))["rows"]
    assert sorted((row["device"], row["is_virtual"]) for row in rows) == [
        ("Google Pixel 3", False),
        ("Google Pixel 3 (virtual)", True),
    ]


def test_replayed_old_builds_are_in_the_table_only_when_asked_for_and_the_fastest_of_builds_says_so(
    tmp_path,
):
    old = replace(NATIVE, name="old", sha256=BuildSha("0" * 64))
    owner = case(REAL_PIXEL)
    night = series(owner, 30_000)
    replay = [
        replace(run, campaign_id=CampaignId("replay"), run_id=RunId(f"again-{run.run_id}"))
        for run in night
    ]
    faster = series(
        replace(owner, build_sha256=old.sha256), 20_000, campaign_id=CampaignId("replay")
    )
    pairing = Pairing(
        sides=(),
        baseline="a",
        candidate="b",
        kind="build",
        detect=0.03,
        level=0.95,
        threshold=0.01,
        warmup=0,
    )
    begun = campaign_of(night)
    later = replace(
        campaign_of([*replay, *faster]),
        campaign_id=CampaignId("replay"),
        created_at=begun.created_at + timedelta(days=1),
        terms=Terms(pairing=pairing),
    )
    lab = lab_of([*night, *replay, *faster], REAL_PIXEL)
    builds = {NATIVE.sha256: NATIVE, old.sha256: old}
    home = stored(tmp_path / "home", replace(lab, campaigns=[begun, later], builds=builds))
    assert "30.0 ms" in table(home, "--source", "store")
    named = table(home, "--source", "store", "--campaign", "replay")
    assert "20.0 ms" in named
    assert "fastest of 2 builds" in named


def rows_of(tmp_path, runs, *options, models=(MOBILENET,)):
    home = stored(tmp_path / "home", lab_of(runs, REAL_PIXEL, models=models))
    return json.loads(table(home, "--source", "store", *options, "--json"))["rows"]


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (
            {"flags": (("gpu_precision_loss_allowed", "true"),)},
            "with gpu_precision_loss_allowed=true",
        ),
        ({"tool": ToolName.APK}, "measured by apk"),
        ({"affinity": "all"}, "on the cores all"),
    ],
)
def test_a_cell_is_of_the_plain_case_and_a_stand_in_says_what_it_is(tmp_path, other, note):
    fast = series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1, **other), 4_000)
    plain = series(case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1), 9_000)
    (row,) = rows_of(tmp_path / "both", [*fast, *plain])
    assert (row["cells"][0]["text"], row["cells"][0]["notes"]) == ("9.00 ms", [])
    (row,) = rows_of(tmp_path / "alone", fast)
    assert row["cells"][0]["text"] == "4.00 ms"
    assert note in row["cells"][0]["notes"]


def test_two_contents_of_one_name_are_two_rows(tmp_path):
    other = replace(MOBILENET, sha256=ModelSha("f" * 64))
    runs = series(case(REAL_PIXEL, MOBILENET, threads=4), 9_000) + series(
        case(REAL_PIXEL, other, threads=1), 7_000
    )
    rows = rows_of(tmp_path, runs, models=(MOBILENET, other))
    figures = {row["model"]: [cell["text"] for cell in row["cells"]] for row in rows}
    assert figures == {
        f"{MOBILENET.name} ({MOBILENET.sha256[:16]})": ["---", "9.00 ms"],
        f"{MOBILENET.name} ({'f' * 16})": ["7.00 ms", "---"],
    }


GPU = case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1)
REBUILT = replace(NATIVE, name="rebuilt", sha256=BuildSha("e" * 64))
EARLIER, NIGHT = CampaignId("earlier"), CampaignId("night")


def nights_of(tmp_path, earlier, night, *, models=(MOBILENET,)):
    """Return the rows of a store with two nights."""
    older, newer = (
        [replace(run, campaign_id=name) for run in runs]
        for name, runs in ((EARLIER, earlier), (NIGHT, night))
    )
    older = [replace(run, run_id=RunId(f"earlier-{run.run_id}")) for run in older]
    begun = campaign_of(older, campaign_id=EARLIER)
    later = campaign_of(newer, campaign_id=NIGHT, created_at=begun.created_at + timedelta(days=1))
    builds = {build.sha256: build for build in (NATIVE, REBUILT)}
    whole = lab_of([*older, *newer], REAL_PIXEL, models=models)
    lab = replace(whole, campaigns=[begun, later], builds=builds)
    return json.loads(table(stored(tmp_path / "home", lab), "--source", "store", "--json"))["rows"]


@pytest.mark.parametrize(
    ("earlier", "night", "figure", "passed_over"),
    [
        ({"count": 40}, {"count": 1}, "9.00 ms", "7.00 ms (one invocation, campaign night)"),
        (
            {"count": 40},
            {"count": 8, "quality": Quality.SUSPECT},
            "9.00 ms",
            "7.00 ms (suspect, campaign night)",
        ),
        ({"count": 40}, {"count": 12}, "7.00 ms", ""),
        ({"count": 1}, {"count": 1}, "7.00 ms", ""),
        ({"count": 8, "quality": Quality.SUSPECT}, {"count": 1}, "7.00 ms", ""),
    ],
    ids=[
        "a smoke test",
        "a suspect night",
        "an equal night",
        "two smoke tests",
        "clean after suspect",
    ],
)
def test_a_newer_figure_replaces_only_what_is_known_no_better(
    tmp_path, earlier, night, figure, passed_over
):
    (row,) = nights_of(tmp_path, series(GPU, 9_000, **earlier), series(GPU, 7_000, **night))
    cell = row["cells"][0]
    assert cell["text"] == figure
    assert [note for note in cell["notes"] if "newer" in note] == [
        f"newer but known less well: {text}" for text in [passed_over] if text
    ]
    assert cell["campaign_id"] == ("earlier" if passed_over else "night")


def test_every_figure_says_which_campaign_it_is_from(tmp_path):
    rows_of(tmp_path / "one", series(GPU, 9_000))
    nights_of(tmp_path / "two", series(GPU, 9_000), series(case(REAL_PIXEL, MOBILENET), 30_000))
    for form in ("text", "markdown", "html", "latex"):
        shown = table(tmp_path / "one" / "home", "--source", "store", "--format", form)
        assert f"campaign {CAMPAIGN}" in shown
        shown = table(tmp_path / "two" / "home", "--source", "store", "--format", form)
        assert all(f"campaign {name}" in shown for name in (EARLIER, NIGHT))


def test_an_older_figure_says_that_newer_runs_gave_none(tmp_path):
    failed = series(
        GPU,
        5_000,
        outcome=Outcome.FAILED,
        quality=Quality.REJECTED,
        truth=DelegateTruth.FAILED,
        reason_code="gpu-init-failed",
    )
    failed = [replace(run, report=None) for run in failed]
    (row,) = nights_of(tmp_path / "failed", series(GPU, 9_000), failed)
    assert [(cell["text"], cell["notes"]) for cell in row["cells"]] == [
        ("9.00 ms", ["newer runs: gpu-init-failed"])
    ]
    unfit = [
        replace(run, outcome=Outcome.UNFIT, reason_code="too-hot", report=None) for run in failed
    ]
    (row,) = nights_of(tmp_path / "unfit", series(GPU, 9_000), unfit)
    assert [(cell["text"], cell["notes"]) for cell in row["cells"]] == [("9.00 ms", [])]


def test_no_older_figure_is_shown_of_what_is_known_to_compute_wrong_outputs(tmp_path):
    other = series(case(REAL_PIXEL, MOBILENET, DelegateName.XNNPACK, 4), 30_000)
    wrong = parity(GPU, ParityVerdict.WRONG, 0.8)
    for name, night in (("timed", [*series(GPU, 5_000), wrong]), ("only compared", [wrong])):
        (row,) = nights_of(tmp_path / name, [*series(GPU, 9_000), *other], night)
        assert [(cell["text"], cell["notes"]) for cell in row["cells"]] == [
            ("30.0 ms", []),
            ("---", ["no figure: wrong-outputs"]),
        ]


def test_wrong_outputs_of_a_new_build_are_a_note_at_the_figure_of_the_old_one(tmp_path):
    rebuilt = replace(GPU, build_sha256=REBUILT.sha256)
    night = [*series(rebuilt, 5_000), parity(rebuilt, ParityVerdict.WRONG, 0.8)]
    (row,) = nights_of(tmp_path, series(GPU, 9_000), night)
    assert [(cell["text"], cell["notes"]) for cell in row["cells"]] == [
        ("9.00 ms", ["newer runs: wrong-outputs"])
    ]


def test_the_table_for_a_pull_request_has_the_fastest_of_each_model_and_phone(tmp_path):
    home = stored(tmp_path / "home", small_lab())
    rows = json.loads(Cli(home=home)("table", "--json").ok().stdout)["rows"]
    places = [(row["model"], row["serial"]) for row in rows]
    assert len(places) == len(set(places)) > 2
    every = json.loads(table(home, "--json"))["rows"]
    assert len(every) == len(places)
    gpu = [row for row in rows if (row["configuration"] or "").startswith("gpu")]
    assert {(row["winner"], row["outputs"]) for row in gpu} == {("clear", "not checked")}
    text = Cli(home=home)("table", "--format", "markdown").ok().stdout
    lines = text.splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(rows) + 2
    assert len([line for line in lines if line and not line.startswith("|")]) <= 3
    report = Cli(home=home)("report", "--format", "markdown").ok().stdout
    assert lines[0] in report
