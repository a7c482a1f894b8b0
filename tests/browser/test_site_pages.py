"""The site's pages in a real browser, from the disk: Debian's chromium, driven from outside."""

import re

import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.extensions.history.pages import build
from orchestrator.store.opening import open_store
from tests.browser.conftest import OF_COLOURS, PHONE, WIDE, follow, serious_faults
from tests.conftest import installed
from tests.samples.history_lab import NIGHTS, fill
from tests.samples.records import settings_in

expect = installed("playwright.sync_api").expect
CHART = ".nights-figure > svg"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    settings = settings_in(home)
    store = open_store(settings.store)
    fill(store)
    store.close()
    # A folder with a space in it, as a sub-path.
    out = tmp_path_factory.mktemp("web") / "sub path" / "site"
    with Workspace(settings) as workspace:
        build(workspace, out)
    return out


@pytest.fixture
def open_page(open_address, site):
    """Open a page of the site, which asks for nothing outside of it."""
    home = site.as_uri()

    def open_one(path="index.html", viewport=WIDE, **options):
        return open_address(f"{home}/{path}", viewport, within=home, **options)

    return open_one


def rows_of(page):
    page.locator("[data-fold]").scroll_into_view_if_needed()
    page.wait_for_selector(".grid.drawn tbody tr")
    return page.locator("[data-fold] tbody tr")


def series_of(page):
    """Go to the worst series."""
    follow(page, rows_of(page).first.locator("a.open"))
    page.wait_for_selector(CHART)


def test_overview_shows_the_worst_first_with_a_drawn_line(open_page):
    page = open_page()
    expect(page.locator("#summary")).to_contain_text(
        "Last night, 2026-04-09: 8 of 12 series have a figure."
    )
    rows = rows_of(page)
    expect(rows).to_have_count(12)
    text = rows.first.inner_text()
    assert "Google Pixel 4" in text
    assert "not confirmed yet" in text
    line = rows.first.locator("svg.spark path").first.bounding_box()
    assert line["width"] > 50
    assert line["height"] > 5
    expect(rows.first.locator(".spark .change")).not_to_have_count(0)
    expect(rows.filter(has_text="expected").first.locator(".spark .expected")).to_have_count(1)
    expect(rows.first.locator("td.is-slower").first).to_have_text(re.compile(r"^\+19\.\d$"))
    inner, outer = page.locator(".grid .view").evaluate(
        "view => [view.scrollWidth, view.clientWidth]"
    )
    assert inner <= outer
    expect(rows.filter(has_text="virtual")).to_have_count(4)


def test_on_a_phone_each_row_says_what_tells_it_from_others_of_its_model(open_page):
    page = open_page(viewport=PHONE)
    rows = rows_of(page)
    names = [rows.nth(place).locator("th").inner_text() for place in range(12)]
    assert len(set(names)) == 12, names
    assert "gpu, Google Pixel 4 (pixel-4-a)" in names[0]
    box = rows.first.locator("th small").bounding_box()
    assert box["x"] + box["width"] <= PHONE["width"]


def test_series_opens_from_the_overview_and_leads_to_its_report(open_page):
    page = open_page()
    series_of(page)
    expect(page.locator("table[data-table=nights] tbody tr")).to_have_count(NIGHTS)
    expect(page.locator(f"{CHART} .change")).to_have_count(1)
    expect(page.locator(f"{CHART} g > g:has(circle):has(line)")).to_have_count(NIGHTS)
    expect(page.locator(f"{CHART} .suspect")).to_have_count(1)
    told = page.locator(f"{CHART} g > g > title").first.text_content()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d: \S+ ms \(\S+ to \S+\), clean.*", told)
    follow(page, page.locator("table[data-table=nights] a").first)
    page.wait_for_selector("#results")
    assert (
        page.get_by_role("heading", level=1)
        .inner_text()
        .startswith("nightly: mobilenet and resnet on 2 phones")
    )
    expect(page.locator("svg.dots a.open")).not_to_have_count(0)
    follow(page, page.get_by_role("link", name="All series"))
    page.wait_for_selector("[data-fold]")


def test_without_scripts_there_are_lines_charts_and_links(open_page):
    page = open_page(java_script_enabled=False)
    rows = page.locator("noscript tbody tr, table.cards tbody tr")
    expect(rows).to_have_count(12)
    assert rows.first.locator("svg.spark path").first.bounding_box()["width"] > 50
    follow(page, rows.first.locator("a"))
    expect(page.locator(CHART)).to_be_visible()
    expect(page.locator("#theme")).to_be_hidden()


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"]
)
def test_pages_fit_the_window_and_have_no_serious_fault_of_accessibility(
    open_page, viewport, scheme
):
    page = open_page(viewport=viewport, color_scheme=scheme)

    def check(only=()):
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert serious_faults(page, only=only) == []

    rows_of(page)
    check()
    series_of(page)
    check(OF_COLOURS if scheme == "dark" else ())
    follow(page, page.get_by_role("link", name="Campaigns"))
    check(OF_COLOURS if scheme == "dark" else ())


def test_a_lab_of_many_campaigns_sorts_them_too(open_page, site):
    html = (site / "campaigns/index.html").read_text("utf-8")
    row = re.findall(r"<tbody>(<tr.*?</tr>)", html, re.DOTALL)[0]
    (site / "campaigns/many.html").write_text(html.replace(row, row * 400), "utf-8")
    page = open_page("campaigns/many.html")
    rows, head = page.locator("tbody tr"), page.locator("thead th").nth(1)
    assert rows.count() > 400
    firsts = set()
    for order in ("ascending", "descending"):
        head.locator("button").click()
        expect(head).to_have_attribute("aria-sort", order)
        firsts.add(rows.first.inner_text())
    assert len(firsts) == 2
