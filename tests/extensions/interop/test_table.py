"""'table': the fastest of each model and phone, all configurations beside each other, and the
published figures beside own ones, never mixed with them."""

import csv
import io
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.installation import data_folder
from orchestrator.records.campaign import CampaignStatus, Origin, Pairing, Terms
from orchestrator.records.case import CampaignId, DelegateName, ModelSha, Pass, RunId
from tests.samples.command import Cli
from tests.samples.sample_lab import (
    CAMPAIGN,
    MOBILENET,
    PIXEL_3,
    REAL_PIXEL,
    campaign_of,
    case,
    lab_of,
    run,
    series,
    small_lab,
    stored,
)

GPU = case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1)
OTHER = replace(REAL_PIXEL, serial="OTHER1")
FIGURE = "gpu, median_us"


def home_of(folder, *nights, planned=()):
    """Return a home with a campaign of each night's runs and of these planned ones, the newest
    last."""
    campaigns = [campaign_of([*runs, *planned], campaign_id=runs[0].campaign_id) for runs in nights]
    lab = lab_of([run for runs in nights for run in runs], REAL_PIXEL, OTHER)
    return stored(folder / "home", replace(lab, campaigns=campaigns))


def table(home, words="", *more):
    return Cli(home=home)(f"table {words}", *more).ok().stdout


def rows_of(home, words="", *more):
    return json.loads(table(home, f"--all --json {words}", *more))


def test_the_published_table_is_reproduced_cell_for_cell(tmp_path):
    path = data_folder("reports") / "published" / "tflite_published.csv"
    published = [row for row in csv.DictReader(path.open(encoding="utf-8")) if row["latency_ms"]]
    shown = csv.DictReader(io.StringIO(table(tmp_path, "--source published --format csv")))
    drawn = {
        (row["model"], row["device"], name.removesuffix(", median_us")): float(value)
        for row in shown
        for name, value in row.items()
        if name.endswith("median_us") and value
    }
    assert drawn == {
        (
            row["model"],
            row["device"],
            row["configuration"].replace("_", ", ", 1).replace("_", " "),
        ): pytest.approx(float(row["latency_ms"]) * 1000)
        for row in published
    }
    text = table(tmp_path, "--source published -s pixel-3 -m Mobilenet_1.0*float*")
    (line,) = [line for line in text.splitlines() if "Pixel 3" in line]
    assert re.search(r"23\.9 +6\.45 +13\.8 +TensorFlow Lite performance guide", line)


def test_language_models_have_each_speed_of_the_shipped_file(tmp_path):
    path = data_folder("reports") / "published" / "litert_lm_published.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    printed = [row[key] for row in rows for key in ("prefill_tok_s", "decode_tok_s") if row[key]]
    text = table(tmp_path, "--source language-models --format markdown")
    heads, _, *lines = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    places = [place for place, head in enumerate(heads) if head.endswith(" tokens/s")]
    shown = [line[place] for line in lines for place in places if line[place] != "---"]
    assert sorted(shown) == sorted(printed)
    assert len(printed) == 79
    # Where a column has times too, each figure has its unit.
    both = table(tmp_path, "--source published,language-models")
    assert "gpu tokens/s" not in both
    assert re.search(r"^Mobilenet_1.0_224\(float\) +Pixel 3 .* 6\.45 ms ", both, re.MULTILINE)
    assert " 2369.0 tokens/s " in both
    text = table(tmp_path, "--source language-models")
    (throttled,) = [line for line in text.splitlines() if " 3.343 " in line]
    assert throttled.startswith("Qwen3-0.6B mixed int4, decode 256 after 1024, context 1280")
    assert "measurements-lm.jsonl" in throttled
    assert "throttled" in throttled


def test_own_figures_stand_in_rows_of_their_own_and_virtual_ones_say_so(tmp_path):
    home = stored(tmp_path / "home", small_lab())
    words = ("--source store,published --serial", "pixel-3,Pixel 4")
    shown, beside = rows_of(home, *words).values()
    own = [row for row in shown if not row["source"]]
    assert {row["is_virtual"] for row in own} == {True}
    assert {row["is_virtual"] for row in shown if row not in own} == {False}
    of_model = {row["device"]: row for row in own if row["model"] == "mobilenet_v1_1.0_224"}
    assert of_model["Google Pixel 3 (virtual)"][
        "xnnpack, 4 threads, native, median_us"
    ] == pytest.approx(23_900, 0.01)
    assert of_model["Google Pixel 3 (virtual)"]["gpu, native, median_us"] == pytest.approx(
        6_450, 0.01
    )
    # It fell back: its figure is the CPU's and must not stand here.
    assert of_model["Google Pixel 3 (virtual)"]["nnapi, native, median_us"] is None
    # Theirs, mine and the ratio of what both have; what isn't clean is set against nobody's.
    assert {(row["model"], row["device"], row["configuration"]) for row in beside} == {
        ("Mobilenet_1.0_224(float)", f"Google Pixel {n} (virtual)", "gpu") for n in (3, 4)
    }
    gpu = beside[0]
    assert (gpu["theirs_us"], gpu["is_virtual"]) == (pytest.approx(6_450), True)
    assert gpu["ratio"] == pytest.approx(gpu["mine_us"] / gpu["theirs_us"])
    text = table(home, *words, "--all")
    assert re.search(rf"gpu +6\.45 +6\.\d+ +{gpu['ratio']:.2f} of theirs", text)
    assert "fell back to CPU" in text
    assert "(suspect" in text
    assert re.search(r"\(partial \d+/\d+", text)
    assert "Google Pixel 3 (virtual)" in text
    assert "no measurement" in text
    for form in ("markdown", "html", "csv"):
        assert "irtual" in table(home, f"--all --format {form}")


def test_own_figures_of_a_real_phone_stand_beside_published_ones_not_virtual_or_imported_ones(
    tmp_path,
):
    words = "--source store,published --serial pixel-3"
    own = series(case(PIXEL_3, MOBILENET, DelegateName.GPU, 1), 5_000) + series(GPU, 7_000)
    theirs = series(replace(GPU, serial=OTHER.serial), 6_000, campaign_id="theirs")
    origin = Origin(file="theirs.zip", sha256="a" * 64)
    imported = campaign_of(theirs, campaign_id="theirs", terms=Terms(origin=origin))
    lab = lab_of(own + theirs, PIXEL_3, REAL_PIXEL, OTHER)
    home = stored(tmp_path / "home", replace(lab, campaigns=[campaign_of(own), imported]))
    (row,) = json.loads(table(home, f"--json {words}"))["beside"]
    assert (row["mine_us"], row["is_virtual"]) == (pytest.approx(7_000, 0.01), False)
    # Without such a figure the shape is the same, and without the store it is one table.
    found = json.loads(table(home, f"--json --campaign theirs {words}"))
    assert list(found) == ["matrix", "beside"]
    assert any("theirs.zip" in row["source"] for row in found["matrix"])
    assert found["beside"] == []
    said = table(home, f"--campaign theirs {words}")
    assert "Nothing that others published has a clean figure" in said
    assert isinstance(json.loads(table(home, "--source published --json")), list)


def test_the_newest_campaign_wins_and_a_title_that_two_phones_share_gets_their_serials(tmp_path):
    old = series(GPU, 9_000)
    new = series(GPU, 7_000, campaign_id="newer")
    new += series(replace(GPU, serial=OTHER.serial), 7_500, campaign_id="newer")
    home = home_of(tmp_path, old, new)
    assert [(row["device"], row[FIGURE]) for row in rows_of(home)] == [
        ("Google Pixel 3 (89AX0KQ3H)", pytest.approx(7_000, 0.01)),
        ("Google Pixel 3 (OTHER1)", pytest.approx(7_500, 0.01)),
    ]
    (row,) = rows_of(home, "--campaign", CAMPAIGN)
    assert row[FIGURE] == pytest.approx(9_000, 0.01)
    told = "Only the newest campaign of each model and phone is shown"
    assert told in table(home)
    assert told in table(home, "--all")
    assert told not in table(home, "--campaign", CAMPAIGN)


def test_of_a_campaign_that_one_model_is_taken_from_the_others_older_figures_stay_out(tmp_path):
    slow = case(REAL_PIXEL, MOBILENET, DelegateName.GPU, 1, min_secs=0.1)
    small = replace(MOBILENET, name="small", sha256=ModelSha("5" * 64))
    other = case(REAL_PIXEL, small, DelegateName.GPU, 1)
    old = series(slow, 5_000) + series(other, 3_000)
    new = series(GPU, 7_000, campaign_id="newer")
    # The newest one was cut off before it measured anything.
    cut = campaign_of(new + old, campaign_id="cut")
    campaigns = [campaign_of(old), campaign_of(new, campaign_id="newer"), cut]
    lab = lab_of(old + new, REAL_PIXEL, models=(MOBILENET, small))
    home = stored(tmp_path / "home", replace(lab, campaigns=campaigns))
    fastest = json.loads(table(home, "--json"))
    assert [(row["model"], row["median_us"]) for row in fastest] == [
        ("mobilenet_v1_1.0_224", pytest.approx(7_000, 0.01)),
        ("small", pytest.approx(3_000, 0.01)),
    ]
    assert [row[FIGURE] for row in rows_of(home)] == [
        pytest.approx(7_000, 0.01),
        pytest.approx(3_000, 0.01),
    ]


@pytest.mark.parametrize("words", ["", "--all", "--campaign newer"])
def test_a_campaign_that_was_cut_off_is_named_below_its_figures(tmp_path, words):
    other = replace(GPU, serial=OTHER.serial)
    old, new = series(other, 9_000), series(GPU, 7_000, campaign_id="newer")
    cut = campaign_of(new, campaign_id="newer", status=CampaignStatus.RUNNING)
    lab = lab_of(old + new, REAL_PIXEL, OTHER)
    home = stored(tmp_path / "home", replace(lab, campaigns=[campaign_of(old), cut]))
    assert "Not finished, figures may change: newer." in table(home, words)
    assert "Not finished" not in table(home, f"--campaign {CAMPAIGN}")
    assert "Not finished" not in table(home, f"-s {OTHER.serial}")


def test_a_newer_campaign_without_a_latency_hides_no_figure(tmp_path):
    timed = series(GPU, 9_000)
    profiled = [run(GPU, run_pass=Pass.PROFILE, campaign_id="profile")]
    home = home_of(tmp_path, timed, profiled)
    (row,) = rows_of(home)
    assert row[FIGURE] == pytest.approx(9_000, 0.01)
    assert "gpu" in table(home)


def test_a_planned_phone_without_a_run_makes_no_older_runs_be_read(tmp_path):
    nights = [series(GPU, 9_000 - 10 * n, campaign_id=f"night-{n}") for n in range(51)]
    home = home_of(tmp_path, *nights, planned=[run(replace(GPU, serial=OTHER.serial))])
    with closing(sqlite3.connect(home / "store.sqlite")) as rows, rows:
        rows.execute("UPDATE runs SET document = x'00' WHERE run_id NOT LIKE 'night-50-%'")
    said = table(home)
    assert "8.50" in said
    assert "The newest 50 campaigns were searched." in said


def test_what_others_published_is_shown_only_where_it_is_asked_for(tmp_path):
    refused = Cli(home=tmp_path / "new")("table").ended_with(2)
    assert refused.stdout == ""
    assert "the store has no results yet" in refused.stderr
    assert "--source published" in refused.stderr
    assert "no figure" in table(tmp_path / "new", "--source published --serial pixel-8")
    unknown = Cli(home=tmp_path / "new")("table", "--source", "rumours").ended_with(2)
    assert "there is no source 'rumours'" in unknown.stderr
    own = rows_of(stored(tmp_path / "home", small_lab()))
    assert own
    assert {row["source"] for row in own} == {""}


@pytest.mark.parametrize("devices", [("pixel-4,pixle-3",), ("pixel-4", "--serial", "pixle-3")])
def test_an_unknown_device_is_refused_with_the_nearest_one_that_has_figures(tmp_path, devices):
    refused = Cli(home=tmp_path)("table", "--source", "published", "--serial", *devices).ended_with(
        2
    )
    assert "there is no device 'pixle-3'" in refused.stderr
    assert "did you mean 'Pixel 3'?" in refused.stderr


def test_virtual_and_real_phones_of_one_kind_and_two_contents_of_one_name_are_different_rows(
    tmp_path,
):
    other = replace(MOBILENET, sha256=ModelSha("f" * 64))
    runs = series(case(PIXEL_3, MOBILENET, DelegateName.GPU, 1), 6_450)
    runs += series(GPU, 6_800)
    runs += series(case(REAL_PIXEL, other, DelegateName.GPU, 1), 7_000)
    lab = lab_of(runs, PIXEL_3, REAL_PIXEL, models=(MOBILENET, other))
    rows = rows_of(stored(tmp_path / "home", lab))
    name = MOBILENET.name.removesuffix(".tflite")
    assert sorted(
        (row["model"], row["is_virtual"], round(row[FIGURE], -2)) for row in rows
    ) == sorted(
        [
            (f"{name} ({MOBILENET.sha256[:16]})", False, 6_800),
            (f"{name} ({MOBILENET.sha256[:16]})", True, 6_400),
            (f"{name} ({'f' * 16})", False, 7_000),
        ]
    )


def test_what_a_comparison_replayed_is_in_the_table_only_when_it_is_asked_for(tmp_path):
    night = series(GPU, 30_000)
    replay = [
        replace(run, campaign_id=CampaignId("replay"), run_id=RunId(f"again-{run.run_id}"))
        for run in series(GPU, 20_000)
    ]
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
        campaign_of(replay),
        campaign_id=CampaignId("replay"),
        created_at=begun.created_at + timedelta(days=1),
        terms=Terms(pairing=pairing),
    )
    lab = replace(lab_of([*night, *replay], REAL_PIXEL), campaigns=[begun, later])
    home = stored(tmp_path / "home", lab)
    assert " 30.0" in table(home)
    assert " 20.0" in table(home, "--campaign replay")
    alone = replace(lab_of(replay, REAL_PIXEL), campaigns=[later])
    refused = Cli(home=stored(tmp_path / "alone", alone))("table").ended_with(2)
    assert "there are only A/B comparisons and campaigns without the pass timing" in refused.stderr
    assert "'benchfarm table --campaign replay'" in refused.stderr


def test_a_gain_over_another_campaigns_cpu_says_that_it_is_between_sessions(tmp_path):
    cpu = series(replace(GPU, delegate=DelegateName.XNNPACK), 20_000)
    gpu = series(GPU, 7_000, campaign_id="newer")
    home = home_of(tmp_path, cpu, gpu)
    both = ("--campaign", CAMPAIGN, "--campaign", "newer")
    assert "vs CPU is between sessions: " in " ".join(table(home, *both).split())
    (row,) = json.loads(table(home, *both, "--json"))
    assert row["lead_is_between_sessions"] is True
    assert "between sessions" not in table(home, "--campaign", CAMPAIGN)


def test_the_table_for_a_pull_request_has_the_fastest_of_each_model_and_phone(tmp_path):
    home = stored(tmp_path / "home", small_lab())
    rows = json.loads(table(home, "--json"))
    places = [(row["model"], row["serial"]) for row in rows]
    assert len(places) == len(set(places)) > 2
    assert len(rows_of(home)) == len(places)
    gpu = [row for row in rows if (row["configuration"] or "").startswith("gpu")]
    assert {(row["winner"], row["outputs"]) for row in gpu} == {("clear", "not checked")}
    # No form names one of several tied ones alone.
    flat = list(csv.DictReader(io.StringIO(table(home, "--format csv"))))
    tied = ["; ".join(row["tied"]) for row in rows]
    assert [row["tied"] for row in flat] == tied
    assert [bool(names) for names in tied] == [row["winner"] == "tied" for row in flat]
    assert any(tied)
    lines = table(home, "--format markdown").splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(rows) + 2
    assert len([line for line in lines if line and not line.startswith("|")]) <= 4
    report = Cli(home=home)("report", "--format", "markdown").ok().stdout
    assert lines[0] in report


@pytest.mark.parametrize("name", ["old[1]", "new.tflite", "n*"])
def test_a_model_is_found_by_each_name_that_it_was_measured_by(tmp_path, name):
    runs = series(replace(GPU, model_name="old[1].tflite", serial=OTHER.serial), 9_000)
    home = home_of(tmp_path, [*runs, *series(replace(GPU, model_name="new.tflite"), 7_000)])
    every = json.loads(table(home, "--json"))
    assert [row["model"] for row in every] == ["new", "new"]
    assert json.loads(table(home, "--json -m", name)) == every
    assert rows_of(home, "-m", name) == rows_of(home)
    # The store knows it, and nothing of it was measured.
    said = table(home, "-m", MOBILENET.name)
    assert "There is no figure for these devices and models." in said


@pytest.mark.parametrize("form", [(), ("--source", "store,published")])
def test_a_model_that_nothing_is_known_of_is_refused_with_what_it_is_like(tmp_path, form):
    home = stored(tmp_path / "home", small_lab())
    refused = Cli(home=home)("table", "-m", "mobilenet_v1_1.0_225", *form).ended_with(2)
    assert "there is no model 'mobilenet_v1_1.0_225'" in refused.stderr
    assert "did you mean 'mobilenet_v1_1.0_224" in refused.stderr
