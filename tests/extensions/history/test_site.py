"""Pages of a site: what is where, in which order, and what a folder on the disk keeps and loses."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import urljoin

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.site import gather
from orchestrator.extensions.history.site_folder import MANIFEST, SiteFolder
from orchestrator.records.campaign import Pairing
from orchestrator.records.case import Pass
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Finding, Grade, Quality, QualityVerdict, Severity
from orchestrator.store.opening import MemoryStore
from orchestrator.tables.labels import page_name
from tests.samples.history_lab import NIGHTS, fill

HOSTILE = "../../<img src=x onerror=alert(1)>\u202e\n"


@pytest.fixture(scope="module")
def site():
    store = MemoryStore()
    fill(store)
    return gather(store, since=None)[0]


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("href", "src")]


def links_of(html):
    parser = Links()
    parser.feed(html)
    return parser.found


def write_all(site, folder):
    pages = site_pages.all_pages(site)
    target = SiteFolder(folder, pages)
    for path, page in pages.items():
        target.write(path, page().encode())
    return target.finish()


def test_series_that_became_slower_come_first_unless_it_was_expected_or_refuted(site):
    slow = [row.label for row in site.series[:2]]
    assert all("Pixel 4 (pixel-4-a), gpu" in label for label in slow)
    states = {row.newest.state for row in site.series if row.newest is not None}
    assert states == {"not confirmed yet", "expected", "refuted"}
    assert all(first.badness >= second.badness for first, second in pairwise(site.series))


def test_a_night_has_the_interval_over_its_invocations_and_its_campaign(site):
    row = site.series[0]
    nights = site.nights_of(row)
    assert len(nights) == NIGHTS
    assert all(night.low_us < night.median_us < night.high_us for night in nights)
    assert [night.invocations for night in nights] == [2] * NIGHTS
    assert [night.is_trusted for night in nights].count(False) == 1
    assert all(len(night.campaigns) == 1 for night in nights)


def test_a_series_page_tells_change_cause_events_and_every_night(site):
    html = site_pages.series_page(site, site.series[0])
    assert '<td data-label="what changed with it"><bdi>GPU driver 1 -&gt; 2' in html
    assert html.count('<tr><th scope="row">2026') == NIGHTS
    assert '<span class="badge">build</span>' in html
    assert '<span class="badge">system</span> <bdi>GPU driver 1 -&gt; 2</bdi>' in html
    assert "suspect" in html
    assert "virtual</span>" not in html


@pytest.mark.slow
def test_a_night_without_a_figure_says_what_became_of_it_and_outputs_that_turned_wrong_are_told():
    store = MemoryStore()
    fill(store)
    runs = list(store.runs())
    night = max(run.campaign_id for run in runs)
    case = next(run.case for run in runs if run.case.serial == "virtual-pixel-3")
    model = next(run for run in runs if run.case.series_key == case.series_key)
    timed_out = {"outcome": Outcome.TIMED_OUT, "reason_code": "timed-out", "report": None}
    wrong = QualityVerdict(
        quality=Quality.REJECTED,
        findings=(Finding(code="wrong-outputs", severity=Severity.ERROR, message="", evidence=""),),
    )
    for number, changes in enumerate(
        (timed_out, timed_out, {"run_pass": Pass.PARITY, "verdict": wrong})
    ):
        run = replace(
            model, campaign_id=night, invocation=number, run_id=f"later-{number}", **changes
        )
        assert store.append_run(run)

    site = gather(store, since=None)[0]

    (row,) = [item for item in site.series if item.key == case.series_key]
    events = {(event.kind, event.text) for event in row.events}
    assert {
        ("no figure", "timed-out (2 times)"),
        ("outputs", "outputs not compared before -> wrong"),
    } <= events
    html = site_pages.series_page(site, row)
    assert '<span class="badge">no figure</span> <bdi>timed-out (2 times)</bdi>' in html


def outputs_of(run, number, verdict):
    """Return a run of the next night that compared the outputs of a run's case."""
    codes = {"wrong": "wrong-outputs", "drift": "outputs-drift"}
    finding = Finding(code=codes[verdict], severity=Severity.ERROR, message="", evidence="")
    judged = QualityVerdict(quality=Quality.REJECTED, findings=(finding,))
    return replace(
        run, run_id=f"compared-{number}", invocation=number, run_pass=Pass.PARITY, verdict=judged
    )


@pytest.mark.slow
def test_outputs_that_turned_wrong_are_on_top_of_the_overview_and_no_night_of_theirs_is_trusted():
    store = MemoryStore()
    fill(store)
    newest = max(run.campaign_id for run in store.runs())
    runs = [
        run
        for run in store.runs(campaign_ids=[newest])
        if run.case.serial == "pixel-6-a" and run.invocation == 0
    ]
    by_model = {(run.case.model_name, run.case.delegate.value): run for run in runs}
    wrong, drifting = by_model["resnet.tflite", "xnnpack"], by_model["mobilenet.tflite", "gpu"]
    store.append_run(outputs_of(wrong, 7, "wrong"))
    store.append_run(outputs_of(drifting, 8, "drift"))

    site = gather(store, since=None)[0]

    html = site_pages.overview_page(site)
    told = re.findall(
        r"<li><bdi>(.*?)</bdi>: <b>outputs (\w+)</b> since (\S+)\s+\(not compared before\)", html
    )
    assert [(label.split(",")[0], verdict) for label, verdict, _ in told] == [
        ("resnet.tflite on Google Pixel 6 (pixel-6-a)", "wrong"),
        ("mobilenet.tflite on Google Pixel 6 (pixel-6-a)", "drift"),
    ]
    assert re.search(r"<dt>series whose outputs are wrong or drift</dt><dd>2</dd>", html)
    assert html.index("<b>outputs wrong</b>") < html.index(site.groups[0].sentence)
    assert f'<a href="series/{page_name(wrong.case.series_key)}.html">its nights</a>' in html
    first = site.series[0]
    assert first.key == wrong.case.series_key
    page = site_pages.series_page(site, first)
    assert "<dt>last night</dt><dd>outputs wrong</dd>" in page
    # One of the nights is a suspect one.
    assert (page.count("<td>outputs wrong</td>"), page.count("<td>clean")) == (
        1,
        NIGHTS - 2,
    )
    (row,) = [item for item in site.series if item.key == drifting.case.series_key]
    assert "<dt>last night</dt><dd>outputs drift</dd>" in site_pages.series_page(site, row)


def test_outputs_that_are_wrong_are_the_news_where_no_series_changed():
    store = MemoryStore()
    fill(store, nights=6)
    assert "No series changed in these nights." in site_pages.overview_page(
        gather(store, since=None)[0]
    )
    store.append_run(outputs_of(max(store.runs(), key=lambda run: run.campaign_id), 7, "wrong"))
    html = site_pages.overview_page(gather(store, since=None)[0])
    assert "No series changed in these nights." not in html
    assert "<b>outputs wrong</b>" in html


def test_with_too_few_nights_the_pages_say_how_many_are_needed():
    store = MemoryStore()
    fill(store, nights=4)
    site, _ = gather(store, since=None)
    for page in (site_pages.overview_page(site), site_pages.series_page(site, site.series[0])):
        assert (
            "Too few nights to find a change: it takes at least 6, half of them on each side. "
            "There are 4, so 2 more." in page
        )


def test_the_grade_is_that_of_the_runs_that_the_figure_is_of():
    store = MemoryStore()
    fill(store, nights=4)
    newest = max(run.campaign_id for run in store.runs())
    runs = {run.case.series_key: run for run in store.runs(campaign_ids=[newest])}
    throttled, rejected, paired = list(runs.values())[:3]
    grade = {row.key: row.grade for row in gather(store, since=None)[0].series}

    def graded(run, number, quality, **changes):
        verdict = QualityVerdict(quality=quality, grade=Grade.D)
        return replace(run, run_id=f"later-{number}", invocation=number, verdict=verdict, **changes)

    store.append_run(graded(throttled, 7, Quality.SUSPECT))
    store.append_run(graded(rejected, 8, Quality.REJECTED))
    campaign = store.campaign(newest)
    pairing = Pairing(
        sides=(),
        baseline="old",
        candidate="new",
        kind="build",
        detect=0.02,
        level=0.99,
        threshold=0.02,
    )
    turns = replace(
        campaign, campaign_id="in-turns", terms=replace(campaign.terms, pairing=pairing)
    )
    store.begin_campaign(turns, devices=(), models=(), builds=())
    store.append_run(graded(paired, 9, Quality.TRUSTED, campaign_id="in-turns"))
    again = {row.key: row.grade for row in gather(store, since=None)[0].series}
    assert {
        again[key] for key in (run.case.series_key for run in (throttled, rejected, paired))
    } == {"C"}
    assert again == grade
    store.append_run(graded(throttled, 10, Quality.TRUSTED))
    assert {row.key: row.grade for row in gather(store, since=None)[0].series}[
        throttled.case.series_key
    ] == "D"


def test_a_note_is_text_on_the_page_of_its_series(site):
    noted = [row for row in site.series if any(event.kind == "note" for event in row.events)]
    assert {row.label.split(" on ")[0] for row in noted} == {"mobilenet"}
    html = site_pages.series_page(site, noted[0])
    assert "quantised &lt;b&gt;again&lt;/b&gt;" in html
    assert "<b>again" not in html


def test_every_relative_link_leads_to_a_page(site):
    pages = {path: page() for path, page in site_pages.all_pages(site).items()}
    known = {*pages, *(f"campaigns/{item.page}" for item in site.campaigns)}
    known |= {item.path for item in site_pages.shared_files()}
    assert len(known) > NIGHTS
    for path, html in pages.items():
        for link in links_of(html):
            if link == "data:," or link.startswith("#"):
                continue
            assert not re.match(r"[a-z]+:|/", link), link
            assert urljoin(path, link) in known, (path, link)


def test_virtual_phones_are_labelled_on_overview_and_series(site):
    assert "Virtual phones." in site_pages.overview_page(site)
    virtual = next(row for row in site.series if row.is_virtual)
    html = site_pages.series_page(site, virtual)
    assert "Every figure on this page comes from benchfarm's own virtual phone" in html
    assert 'class="badge virtual"' in html
    assert virtual.silent_nights == NIGHTS - 35


def test_names_are_never_paths_and_never_markup():
    store = MemoryStore()
    fill(store, nights=4, names=(HOSTILE, "b"), campaign=HOSTILE)
    site = gather(store, since=None, title=HOSTILE)[0]
    for page in site_pages.all_pages(site).values():
        html = page()
        assert "<img" not in html
        assert "\u202e" not in html
    for identity in (
        HOSTILE,
        "..",
        "",
        "con",
        "A" * 300,
        "a/b",
        "20260301-nightly",
        "x-1",
        "\udcff",
    ):
        assert re.fullmatch(r"[a-z0-9-]{1,80}", page_name(identity)), identity
    assert page_name("20260301-220000-aa") == "20260301-220000-aa"
    assert page_name("con") != "con"
    assert page_name("Ab") != page_name("ab")


def test_pages_that_are_gone_are_removed_and_other_files_stay(site, tmp_path):
    folder = tmp_path / "out"
    write_all(site, folder)
    foreign = folder / "series" / "mine.html"
    foreign.write_text("mine")
    target = SiteFolder(folder, ["index.html"])
    target.write("index.html", site_pages.overview_page(site).encode())
    assert {name: count for name, count in target.finish().items() if name != "size_bytes"} == {
        "written": 0, "unchanged": 1, "removed": 13,
    }  # fmt: skip
    assert [path.name for path in (folder / "series").iterdir()] == ["mine.html"]
    # A build that was cut off is finished by the next.
    first, page = next(iter(site_pages.all_pages(site).items()))
    SiteFolder(folder, [first, "index.html"]).write(first, page().encode())
    again = SiteFolder(folder, ["index.html"])
    again.write("index.html", site_pages.overview_page(site).encode())
    assert again.finish()["removed"] == 1
    assert foreign.read_text() == "mine"


def test_a_foreign_file_in_the_place_of_a_page_ends_the_build_before_anything_is_written(
    site, tmp_path
):
    (tmp_path / "index.html").write_text("my home page")
    with pytest.raises(UsageError, match="was not made by"):
        write_all(site, tmp_path)
    assert (tmp_path / "index.html").read_text() == "my home page"
    assert not list((tmp_path / "series").iterdir())


def test_links_and_a_manifest_lead_nowhere_outside(site, tmp_path):
    outside, folder, precious = tmp_path / "outside", tmp_path / "out", tmp_path / "precious.html"
    outside.mkdir()
    folder.mkdir()
    precious.write_text("x")
    (folder / "series").symlink_to(outside)
    with pytest.raises(UsageError, match="is a link"):
        write_all(site, folder)
    (folder / "series").unlink()
    write_all(site, folder)
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(precious)
    manifest = folder / MANIFEST
    listed = json.loads(manifest.read_text())
    manifest.write_text(
        json.dumps({**listed, "series/../../precious.html": "", "../precious.html": ""})
    )
    write_all(site, folder)
    assert not (folder / "index.html").is_symlink()
    assert precious.read_text() == "x"
    assert not list(outside.iterdir())
    manifest.write_text("{")
    with pytest.raises(UsageError, match="can't be read"):
        write_all(site, folder)


def test_a_folder_that_cant_be_written_is_told(site, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory"):
        write_all(site, tmp_path / "file" / "out")
