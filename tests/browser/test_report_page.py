"""The report in a real browser: Debian's chromium, driven from outside."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from sample_lab import HOSTILE_NAMES, Lab, hostile_lab, large_lab, small_lab

from orchestrator.report.assembly import build_report_data
from orchestrator.report.render import render_html

playwright_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = Path("/usr/bin/chromium")
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LABS = {"small": small_lab, "hostile": hostile_lab, "empty": Lab, "large": lambda: large_lab(450, invocations=2)}


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{CHROMIUM} is missing: install chromium where CI runs")
        pytest.skip(f"{CHROMIUM} is missing")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, lab in LABS.items():
        title = HOSTILE_NAMES[0] if name == "hostile" else "Nightly"
        data = build_report_data(**lab().inputs(), published=name == "small")
        (folder / f"{name}.html").write_text(render_html(data, title=title), encoding="utf-8")
    return folder


@pytest.fixture
def open_report(browser, reports):
    """Open a report; at the end check that the page complained of nothing and asked the network for nothing."""
    contexts, complaints, requests = [], [], []

    def open_one(name, viewport=WIDE, fragment="", **options):
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        address = (reports / f"{name}.html").as_uri()
        page.on(
            "request",
            lambda request: request.url.startswith((address, "data:", "blob:")) or requests.append(request.url),
        )
        page.goto(address + fragment)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
    assert requests == []


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", list(LABS))
def test_page_is_no_wider_than_the_window(open_report, name, viewport):
    page = open_report(name, viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.get_by_role("heading", level=1).is_visible()


def test_click_on_a_cell_opens_its_evidence_and_escape_closes_it(open_report):
    page = open_report("small")
    cell = page.locator("table.matrix td.s-measured a.open").first
    cell.click()
    dialog = page.get_by_role("dialog")
    assert dialog.is_visible()
    for heading in ("Invocations", "Conditions before and after", "Command", "Log of invocation 0, exit code 0"):
        assert dialog.get_by_role("heading", name=heading).is_visible()
    assert "Inference timings in us" in dialog.inner_text()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_evidence_fits_into_the_window(open_report, viewport):
    page = open_report("hostile", viewport)
    page.locator("table.matrix td a.open").first.click()
    inner, outer = page.evaluate("[dialog.scrollWidth, dialog.clientWidth]")
    assert inner <= outer
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_cell_opens_with_the_keyboard_and_focus_comes_back(open_report):
    page = open_report("small")
    page.locator("table.matrix td a.open").nth(2).focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    page.get_by_role("button", name="Close").click()
    assert page.evaluate("document.activeElement.matches('table.matrix td a.open')")


def test_evidence_of_a_large_report_opens_too(open_report):
    page = open_report("large")
    page.locator("table.matrix td a.open").first.click()
    assert page.get_by_role("dialog").get_by_role("heading", name="Invocations").is_visible()


def test_address_with_a_case_opens_its_evidence(open_report):
    page = open_report("small")
    href = page.locator("table.matrix td a.open").nth(3).get_attribute("href")
    page = open_report("small", fragment=href)
    assert page.get_by_role("dialog").is_visible()


def test_without_scripts_the_evidence_is_on_the_page(open_report):
    page = open_report("small", java_script_enabled=False)
    assert page.locator("#filter").is_hidden()
    href = page.locator("table.matrix td a.open").first.get_attribute("href")
    body = page.locator(f"[id='{href[1:]}']")
    assert body.is_hidden()
    page.locator("details.case", has=body).locator("summary").click()
    assert body.is_visible()
    assert "Inference timings in us" in body.inner_text()


def medians(page):
    cells = page.locator("#results tbody tr:not([hidden]) td[data-label='median ms']")
    return cells.evaluate_all("cells => cells.map(cell => cell.dataset.v === '' ? null : Number(cell.dataset.v))")


def test_table_sorts_by_figures_both_ways_with_missing_ones_last(open_report):
    page = open_report("small")
    head = page.locator("#results thead th").nth(3)
    for direction in ("ascending", "descending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        values = medians(page)
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=direction == "descending")
        assert values == known + [None] * (len(values) - len(known))
        assert 0 < len(known) < len(values)


def test_table_sorts_by_words(open_report):
    page = open_report("small")
    head = page.locator("#results thead th").nth(1)
    head.get_by_role("button").click()
    names = page.locator("#results tbody td[data-label='device'] .name").all_inner_texts()
    assert names == sorted(names)
    assert len(set(names)) == 3


def test_search_and_filters_narrow_the_table(open_report):
    page = open_report("small")
    rows = page.locator("#results tbody tr:visible")
    whole = rows.count()
    page.get_by_label("Search").fill("PIXEL gpu")
    assert 0 < rows.count() < whole
    assert all("gpu" in text and "Pixel" in text for text in rows.all_inner_texts())
    assert page.locator("#filter-count").inner_text() == f"{rows.count()} of {whole}"
    page.get_by_label("Search").fill("")
    page.get_by_label("Show").select_option("doubtful")
    assert rows.count() == page.locator("#results tbody tr[data-judged='0']").count() > 0
    page.get_by_label("Show").select_option("")
    page.get_by_label("real devices only").check()
    assert rows.count() > 0
    assert not any("virtual" in text for text in rows.all_inner_texts())


def test_results_can_be_saved_as_csv(open_report):
    page = open_report("hostile")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "benchfarm-results.csv"
    assert len(text.splitlines()) == len(HOSTILE_NAMES) * 2 + 1
    assert text.startswith("model,model_sha256,device,serial,is_virtual")


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_the_system_until_the_button_changes_it(open_report, scheme):
    page = open_report("small", color_scheme=scheme)
    first = ground(page)
    assert first == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    button = page.get_by_role("button", name="Change between dark and light")
    button.click()
    assert ground(page) != first
    page.reload()
    assert ground(page) != first
    button.click()
    assert ground(page) == first


def test_print_is_light_and_has_no_controls(open_report):
    page = open_report("small", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert ground(page) == "rgb(255, 255, 255)"
    assert page.locator("#filter").is_hidden()
    assert page.locator("#theme").is_hidden()
    assert page.locator(".virtual-banner").is_visible()


def test_hostile_names_stay_text(open_report):
    page = open_report("hostile")
    assert page.title() == HOSTILE_NAMES[0]
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.locator("#comparison h3 bdi", has_text="<script>document.title='owned'</script>").count() == 1
    for place in range(page.locator("table.matrix td a.open").count()):
        page.evaluate("dialog.close()")
        page.locator("table.matrix td a.open").nth(place).evaluate("link => link.click()")
        assert page.get_by_role("dialog").is_visible()
        assert page.locator("dialog img, dialog script").count() == 0
    assert page.title() == HOSTILE_NAMES[0]


def test_virtual_numbers_are_hatched_and_named(open_report):
    page = open_report("small")
    marked = page.locator("table.matrix td.virtual-ground")
    assert marked.count() > 5
    for place in range(marked.count()):
        cell = marked.nth(place)
        assert "gradient" in cell.evaluate("cell => getComputedStyle(cell).backgroundImage")
        assert cell.locator(".badge.virtual").is_visible()
    assert "no measurement" in page.locator(".virtual-banner").inner_text()


def test_every_control_has_a_name_and_nothing_is_skipped_by_the_reader(open_report):
    page = open_report("small")
    unnamed = page.evaluate(
        """() => Array.from(document.querySelectorAll('button, input, select, a[href]'))
            .filter(item => !(item.textContent.trim() || item.ariaLabel || (item.labels && item.labels.length)))
            .map(item => item.outerHTML)"""
    )
    assert unnamed == []
    levels = page.evaluate(
        "() => Array.from(document.querySelectorAll('main h2, main h3')).map(item => Number(item.tagName[1]))"
    )
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_records_in_the_page_are_json(open_report):
    page = open_report("hostile")
    records = json.loads(page.locator("#records").text_content())
    assert len(records["rows"]) == len(HOSTILE_NAMES) * 2
