"""Pages of a site: what is where, in which order, and what a folder on the disk keeps and loses."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import urljoin

import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.errors import UsageError
from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.pages import MANIFEST
from orchestrator.extensions.history.regressions import Question, find_regressions
from orchestrator.extensions.history.site import gather
from orchestrator.records.campaign import Origin, Terms
from orchestrator.records.case import Pass
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store.opening import MemoryStore, open_store
from orchestrator.tables.labels import page_name
from tests.samples.history_lab import (
    DRIVER,
    NIGHTS,
    copied,
    fill,
    night_of_place,
)
from tests.samples.records import settings_in
from tests.samples.sample_lab import PIXEL_3, START, campaign_of, case, lab_of, run, series

HOSTILE = "../../<img src=x onerror=alert(1)>\u202e\n"


@pytest.fixture(scope="module")
def story():
    """The weeks of a small lab; to be read only."""
    store = MemoryStore()
    fill(store)
    return store


@pytest.fixture(scope="module")
def site(story):
    return gather(story, since=None)


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


def pages_of(site):
    """The pages but the reports, by their paths."""
    return {
        **{f"series/{row.page}": site_pages.series_page(site, row) for row in site.series},
        "campaigns/index.html": site_pages.campaigns_page(site),
        "index.html": site_pages.overview_page(site),
    }


def test_series_that_became_slower_come_first_unless_it_was_expected_or_refuted(site):
    slow = [row.label for row in site.series[:2]]
    assert all("Pixel 4 (pixel-4-a), gpu" in label for label in slow)
    states = {row.newest.state for row in site.series if row.newest is not None}
    assert states == {"not confirmed yet", "expected", "refuted"}
    assert all(first.badness >= second.badness for first, second in pairwise(site.series))


def test_a_series_page_tells_change_cause_events_and_every_night(site):
    html = site_pages.series_page(site, site.series[0])
    assert '<td data-label="what changed with it">GPU driver 1 -&gt; 2' in html
    assert html.count('<tr><th scope="row">2026') == NIGHTS
    assert '<span class="badge">build</span>' in html
    assert '<span class="badge">system</span> <bdi>GPU driver 1 -&gt; 2</bdi>' in html
    assert "suspect" in html
    assert "virtual</span>" not in html


def outputs_of(run, number, verdict):
    """Return a run of the next night that compared the outputs of a run's case."""
    codes = {"wrong": "wrong-outputs", "drift": "outputs-drift"}
    finding = Finding(code=codes[verdict], severity=Severity.ERROR, message="", evidence="")
    judged = QualityVerdict(quality=Quality.REJECTED, findings=(finding,))
    return replace(
        run, run_id=f"compared-{number}", invocation=number, run_pass=Pass.PARITY, verdict=judged
    )


@pytest.mark.slow
def test_outputs_that_turned_wrong_are_on_top_of_the_overview_and_no_night_of_theirs_is_trusted(
    story,
):
    store = copied(story)
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

    site = gather(store, since=None)

    html = site_pages.overview_page(site)
    told = re.findall(
        r"<li><bdi>(.*?)</bdi>: <b>outputs (\w+)</b> since (\S+)\s+\(not compared before\)", html
    )
    assert [(label.split(",")[0], verdict) for label, verdict, _ in told] == [
        ("resnet on Google Pixel 6 (pixel-6-a)", "wrong"),
        ("mobilenet on Google Pixel 6 (pixel-6-a)", "drift"),
    ]
    assert re.search(r"<dt>series whose outputs are wrong or drift</dt><dd>2</dd>", html)
    assert html.index("<b>outputs wrong</b>") < html.index(site.groups[0].sentence)
    first = site.series[0]
    assert first.key == wrong.case.series_key
    page = site_pages.series_page(site, first)
    assert "<dt>last night</dt><dd>outputs wrong</dd>" in page
    # One of the nights is a suspect one.
    assert (page.count("<td>outputs wrong"), page.count("<td>clean")) == (
        1,
        NIGHTS - 2,
    )


@pytest.mark.slow
def test_outputs_that_turned_wrong_before_the_nights_shown_are_wrong_on_each_of_them(story):
    store = copied(story)
    first_runs = {}
    for item in store.runs():
        if item.case.serial == "pixel-6-a" and item.case.delegate == "xnnpack":
            first_runs.setdefault((item.case.model_name, item.campaign_id), item)
    for number, ((model, _), first) in enumerate(first_runs.items()):
        # One is wrong on each of its nights, the other was and is drifting since.
        is_wrong = model == "resnet.tflite" or number < 20
        store.append_run(outputs_of(first, number + 10, "wrong" if is_wrong else "drift"))

    site = gather(store, since=night_of_place(DRIVER))

    by_model = {
        row.case.model_name: row
        for row in site.series
        if row.case.serial == "pixel-6-a" and row.case.delegate == "xnnpack"
    }
    wrong, drifting = by_model["resnet.tflite"], by_model["mobilenet.tflite"]
    assert site.series[0] is wrong
    assert [item.after for item in site.faulty_outputs] == ["wrong", "drift"]
    for row, verdict in ((wrong, "wrong"), (drifting, "drift")):
        nights = site.night_figures(row)
        assert len(nights) == NIGHTS - DRIVER
        assert not any(night.is_clean for night in nights)
        page = site_pages.series_page(site, row)
        assert page.count(f"<td>outputs {verdict}") == len(nights)
        assert f"-&gt; {verdict}</bdi>" in page
    html = site_pages.overview_page(site)
    assert f"<b>outputs wrong</b> since {night_of_place(0)}" in html
    # What began earlier is no change of these nights.
    assert find_regressions(store, Question(since=night_of_place(DRIVER))).outputs == ()


def test_outputs_that_are_wrong_are_the_news_where_no_series_changed():
    store = MemoryStore()
    fill(store, nights=6)
    assert "No series changed in these nights." in site_pages.overview_page(
        gather(store, since=None)
    )
    store.append_run(outputs_of(max(store.runs(), key=lambda run: run.campaign_id), 7, "wrong"))
    html = site_pages.overview_page(gather(store, since=None))
    assert "No series changed in these nights." not in html
    assert "<b>outputs wrong</b>" in html


def test_with_too_few_nights_the_pages_say_how_many_are_needed():
    store = MemoryStore()
    fill(store, nights=4)
    site = gather(store, since=None)
    for page in (site_pages.overview_page(site), site_pages.series_page(site, site.series[0])):
        assert (
            "Too few nights to find a change: it takes at least 6, half of them on each side. "
            "There are 4, so 2 more." in page
        )


def test_a_note_is_text_on_the_page_of_its_series(site):
    noted = [row for row in site.series if any(event.kind == "note" for event in row.events)]
    assert {row.label.split(" on ")[0] for row in noted} == {"mobilenet"}
    html = site_pages.series_page(site, noted[0])
    assert "quantised &lt;b&gt;again&lt;/b&gt;" in html
    assert "<b>again" not in html


def test_every_relative_link_leads_to_a_page(site):
    pages = pages_of(site)
    known = {*pages, *(item.page for item in site.campaigns)}
    known |= site_pages.shared_files().keys()
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


def test_a_series_of_many_imported_files_names_the_newest_ones():
    store = MemoryStore()
    for night in range(12):
        runs = series(case(PIXEL_3), 20_000, campaign_id=f"night-{night}")
        origin = Origin(file=f"night-{night}.zip", sha256="0" * 64)
        at = START + timedelta(days=night)
        planned = campaign_of(
            runs, campaign_id=f"night-{night}", created_at=at, terms=Terms(origin=origin)
        )
        replace(lab_of(runs), campaigns=[planned]).store_in(store)
    site = gather(store, since=None)
    html = site_pages.series_page(site, site.series[0])
    told = re.findall(r"imported from (night-\d+)\.zip", html)
    assert told == ["night-11", "night-10", "night-9"]
    assert "; and 9 more" in html


def test_no_night_is_clean_where_nothing_shows_where_the_operators_ran():
    store = MemoryStore()
    unknown = Finding(code="delegate-unknown", severity=Severity.INFO, message="not reported")
    runs = series(case(PIXEL_3), 20_000, truth=DelegateTruth.UNKNOWN, findings=(unknown,))
    failed = run(case(PIXEL_3), 9, None, outcome=Outcome.FAILED, quality=Quality.REJECTED)
    lab_of([*runs, failed]).store_in(store)
    site = gather(store, since=None)
    (row,) = site.series
    assert [night.is_clean for night in site.night_figures(row)] == [False]
    html = site_pages.series_page(site, row)
    assert "<dt>last night</dt><dd>not confirmed</dd>" in html


def test_a_campaign_of_virtual_phones_says_so_without_a_latency():
    store = MemoryStore()
    lab_of(series(case(PIXEL_3), 20_000, run_pass=Pass.MEMORY)).store_in(store)
    (campaign,) = gather(store, since=None).campaigns
    assert campaign.is_virtual


def test_names_are_never_paths_and_never_markup():
    store = MemoryStore()
    fill(store, nights=4, names=(HOSTILE, "b"), campaign=HOSTILE)
    site = gather(store, since=None)
    for html in pages_of(site).values():
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


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A few nights in a store on the disk."""
    settings = settings_in(tmp_path_factory.mktemp("home"))
    store = open_store(settings.store)
    fill(store, nights=3)
    store.close()
    with Workspace(settings) as workspace:
        yield workspace


def test_only_what_changed_is_written_and_only_what_was_written_is_removed(lab, tmp_path):
    folder, precious = tmp_path / "out", tmp_path / "precious.html"
    precious.write_text("x")
    first = site_pages.build(lab, folder)
    assert (first.reports, first.unchanged, first.removed) == (3, 0, 0)
    foreign = folder / "series" / "mine.html"
    foreign.write_text("mine")
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(precious)
    manifest = folder / MANIFEST
    listed = json.loads(manifest.read_text())
    outside = {"series/../../precious.html": "", "../precious.html": ""}
    manifest.write_text(json.dumps({**listed, **outside}))
    again = site_pages.build(lab, folder)
    assert (again.written, again.unchanged, again.removed) == (1, first.written - 1, 0)
    assert not (folder / "index.html").is_symlink()
    newest = site_pages.build(lab, folder, since="2026-03-03")
    assert (newest.reports, newest.removed) == (1, 2)
    assert (foreign.read_text(), precious.read_text()) == ("mine", "x")


def test_a_folder_of_something_else_is_left_as_it_is(lab, tmp_path):
    taken, linked, file = tmp_path / "taken", tmp_path / "linked", tmp_path / "file"
    taken.mkdir()
    (taken / "index.html").write_text("my home page")
    linked.mkdir()
    (linked / "series").symlink_to(taken)
    (linked / MANIFEST).write_text("{}")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / MANIFEST).write_text("{")
    file.touch()
    for out, told in (
        (taken, "isn't a folder of"),
        (linked, "is a link"),
        (broken, "can't be read"),
        (file / "out", "Not a directory"),
    ):
        with pytest.raises(UsageError, match=told):
            site_pages.build(lab, out)
    assert [path.name for path in taken.iterdir()] == ["index.html"]
