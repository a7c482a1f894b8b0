"""The report in a real browser: Debian's chromium, driven from outside."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.extensions.history.web import make_page
from orchestrator.records.case import DelegateName, ModelSha, Serial
from orchestrator.report.render import render_html
from orchestrator.tables.html import page as table_page
from orchestrator.tables.table import Column, Kind, Table
from orchestrator.units import US_PER_MS, format_duration
from tests.browser.conftest import OF_COLOURS, PHONE, WIDE, serious_faults
from tests.conftest import installed, poll_until
from tests.samples.sample_lab import (
    HOSTILE_NAMES,
    MOBILENET,
    MOBILENET_INT8,
    PIXEL_3,
    QUICK,
    Lab,
    case,
    hostile_lab,
    lab_of,
    large_lab,
    profile,
    rich_lab,
    series,
    small_lab,
)

expect = installed("playwright.sync_api").expect


def wide_lab():
    """Return phones of one name with long serials, more configurations than fit beside each other,
    and profiles."""
    phones = [
        replace(PIXEL_3, serial=Serial(f"adb-8A1Y0ABCD{n}-x{n}._adb-tls-connect._tcp"))
        for n in (1, 2)
    ]
    flags = [(), *(((f"a_long_name_of_a_flag_{n}", "true"),) for n in range(9))]
    owners = [
        case(phone, delegate=delegate, threads=1, flags=given)
        for phone in phones
        for delegate in (DelegateName.XNNPACK, DelegateName.GPU)
        for given in flags
    ]
    runs = [
        record
        for number, owner in enumerate(owners)
        for record in series(owner, 10_000 + 500 * number, count=3)
    ]
    kernels = [
        (f"{kind} {n}", f"Delegate/{kind} {n}:{n}", 90.0 + n) for kind in KERNELS for n in range(8)
    ]
    runs += [profile(owner, kernels) for owner in owners[-len(flags) :]]
    return lab_of(runs, *phones)


def twelve_lab():
    """Return four kinds of phones, three of each, that measured three models in five
    configurations."""
    d = DelegateName
    models = [
        MOBILENET,
        MOBILENET_INT8,
        replace(MOBILENET, name="other.tflite", sha256=ModelSha("0" * 64)),
    ]
    phones = [
        replace(PIXEL_3, serial=Serial(f"virtual-{kind}-{n}"), model=f"Pixel {kind}")
        for kind in range(3, 7)
        for n in "abc"
    ]
    configurations = (
        (d.XNNPACK, 1, 9),
        (d.XNNPACK, 4, 4),
        (d.GPU, 1, 1),
        (d.NNAPI, 1, 5),
        (d.CPU, 4, 6),
    )
    runs = [
        record
        for phone in phones
        for model in models
        for delegate, threads, times in configurations
        for record in series(case(phone, model, delegate, threads), 3_000 * times, 2)
    ]
    return lab_of(runs, *phones, models=models)


#: More kinds than there are colours.
KERNELS = [f"kernel_{letter}" for letter in "abcdefghijkl"]
LABS = {
    "small": small_lab,
    "rich": rich_lab,
    "hostile": hostile_lab,
    "empty": Lab,
    "wide": wide_lab,
    "twelve": twelve_lab,
    "large": lambda: large_lab(450, invocations=2),
    # As the large one: all is drawn when it is seen, from the page's data.
    "folded": lambda: large_lab(62, invocations=1),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, lab in LABS.items():
        title = HOSTILE_NAMES[0] if name == "hostile" else "Nightly"
        data = lab().data()
        (folder / f"{name}.html").write_text(render_html(data, title=title), encoding="utf-8")
    return folder


@pytest.fixture
def open_report(open_address, reports):
    """Open a report, and what is folded of it."""

    def open_one(name, viewport=WIDE, fragment="", *, is_unfolded=True, **options):
        address = (reports / f"{name}.html").as_uri()
        page = open_address(address + fragment, viewport, within=address, **options)
        if is_unfolded:
            page.evaluate(
                "document.querySelectorAll('.part, .model-block').forEach(part => { part.open = true; })"
            )
        return page

    return open_one


@pytest.mark.parametrize("name", ["rich", "hostile", "empty", "wide", "large"])
def test_page_is_no_wider_than_the_window(open_report, name):
    page = open_report(name)
    for viewport in (WIDE, PHONE):
        page.set_viewport_size(viewport)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_click_on_a_cell_opens_its_evidence_and_escape_closes_it(open_report):
    page = open_report("small")
    cell = page.locator(".model-picture td a.open").first
    cell.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for heading in (
        "Invocations",
        "Conditions before and after",
        "Command",
        "Log of invocation 1, exit code 0",
    ):
        expect(dialog.get_by_role("heading", name=heading)).to_be_visible()
    for words in (
        "Inference timings in us",
        "33.5 (cpu-1-0)",
        "82 %, 29.5 °C, usb",
        "cpu0 1210/1766",
    ):
        expect(dialog).to_contain_text(words)
    expect(dialog.locator("svg.spread circle")).to_have_count(5)
    expect(dialog.locator("figure.trace", has_text="hottest zone")).to_contain_text(
        "last 41; 4 min 04 s"
    )
    expect(dialog).to_contain_text("The same at every sample: limit of cpu0 1766 MHz")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator("#printed")).to_contain_text("Inference timings in us")
    page.emulate_media(media="print")
    expect(page.locator("#printed pre.log").first).to_have_css("max-height", "none")
    page.emulate_media(media="screen")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()


def test_samples_of_a_run_are_lines_and_what_nobody_saw_is_said_to_be_unknown(open_report):
    dialog = open_report("rich", fragment=f"#c-{QUICK.case_key}").get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="While invocation 1 ran")).to_be_visible()
    drawn = dialog.locator("h3:has-text('While invocation 1 ran') + .traces figure")
    told = ["hottest zone °C", "clock of cpu4 MHz", "GPU busy %"]
    # The limit of cpu4 was seen once: no line, and nothing that stayed the same.
    expect(drawn.locator("figcaption")).to_have_text(told)
    expect(drawn.last).to_contain_text("35 \N{EN DASH} 95, last 80; 3.0 s")
    expect(drawn.last.locator("path")).to_have_attribute("d", "M0.0,56.0 150.0,4.0 300.0,17.0")
    expect(dialog).to_contain_text("The same at every sample: clock of cpu0 1766 MHz.")
    lines = dialog.get_by_role("table", name="Conditions before and after").locator("tbody tr")
    assert [line.split("\t") for line in lines.all_inner_texts()[:2]] == [
        ["1", "before", "---", "9 %, unplugged, health overheated", "cpu0 1210/---"],
        ["1", "after", "---", "---", "---"],
    ]


def test_the_page_s_script_writes_each_cell_as_the_other_forms_do(open_address, tmp_path):
    """Other words than the figure, signs, what rounds to nothing, halves of the last digit."""
    rows = [0.0, -0.0, -0.04, 0.0004, -0.0004, 4_185.0, -4_185.0, 123_450.0, 4_214.96, None]
    words = {123_450.0: "8,100", 0.0004: "", None: "no figure"}
    columns = (
        Column("place", value=rows.index),
        Column("change", value=lambda row: row, kind=Kind.NUMBER, digits=1, is_signed=True),
        Column(
            "time",
            value=lambda row: row,
            kind=Kind.NUMBER,
            unit="ms",
            scale=1 / US_PER_MS,
            digits=2,
        ),
        Column("speed", value=lambda row: row, kind=Kind.NUMBER, digits=1, shown=words.get),
    )
    table = Table(name="cells", caption="Cells", columns=columns, rows=rows)
    (tmp_path / "cells.html").write_text(table_page([table]), encoding="utf-8")
    host = grid(open_address((tmp_path / "cells.html").as_uri()), "cells")
    for item in columns[1:]:
        assert column(host, item.head) == item.cells(rows), item.name


def test_time_spans_are_written_as_elsewhere_and_a_block_that_fails_hides_no_other(open_report):
    page = open_report("small")
    spans = [0.3, 0.9996, 59.94, 59.97, 119.7, 3_599.6, 7_800.0]
    page.evaluate(
        """spans => report.data("evidence-0").then(cases => cases.forEach(item => {
          const moment = (at, heat) => [at, heat, {}, {}, null, "", null, null, "", ""];
          item[1].unshift(["runs", "", "5 runs"], ["unheard-of"], ...spans.map((span, place) => [
            "samples", `span ${place}`, JSON.stringify([moment(0, 20), moment(span, 30)]),
          ]));
        }))""",
        spans,
    )
    page.locator(".model-picture td a.open").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text('"unheard-of" of this case can\'t be shown')).to_be_visible()
    expect(dialog.get_by_role("heading", name="Command")).to_be_visible()
    told = dialog.locator("h3:has-text('span ') + .traces figure > small")
    expect(told).to_have_text(
        [f"20 \N{EN DASH} 30, last 30; {format_duration(span)}" for span in spans]
    )


def test_evidence_fits_into_the_window(open_report):
    page = open_report("hostile", PHONE)
    page.locator(".model-picture td a.open").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    for viewport in (PHONE, WIDE):
        page.set_viewport_size(viewport)
        inner, outer = page.evaluate("[dialog.scrollWidth, dialog.clientWidth]")
        assert inner <= outer
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def lines_in(cells):
    """Return the largest number of lines that the first text of one of these takes."""
    return cells.evaluate_all("""cells => Math.max(...cells.map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell.firstChild);
        return new Set(Array.from(range.getClientRects(), rect => rect.top)).size;
    }))""")


def test_names_of_runs_and_cases_are_not_broken_into_many_lines(open_report):
    page = open_report("rich", PHONE, fragment=f"#c-{QUICK.case_key}")
    runs = page.get_by_role("dialog").locator("[data-table='invocations'] tbody th")
    expect(runs.filter(has_text=re.compile(r"^\d+ \w"))).not_to_have_count(0)
    assert lines_in(runs) == 1
    findings = open_report("small").locator("[data-table='kinds']")
    assert lines_in(findings.locator("td[data-label='which'] li")) == 2


def test_cell_opens_with_the_keyboard_and_focus_comes_back(open_report):
    page = open_report("small")
    page.locator(".model-picture td a.open").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).not_to_be_visible()
    expect(page.locator(".model-picture td a.open").nth(2)).to_be_focused()


def test_evidence_of_a_large_report_opens_too(open_report):
    page = open_report("large")
    page.locator(".model-picture td a.open").first.click()
    expect(page.get_by_role("dialog").get_by_role("heading", name="Invocations")).to_be_visible()


def test_without_scripts_a_link_leads_to_the_figures_and_the_reasons_of_its_case(open_report):
    page = open_report("small", java_script_enabled=False, is_unfolded=False)
    expect(page.locator("#chips")).to_be_hidden()
    page.locator("#cases > summary").click()
    link = page.locator(".model-picture td a.open").first
    row = page.locator(f"[id='{link.get_attribute('href')[1:]}']")
    expect(row).to_contain_text("18.2")
    expect(page.locator("[data-table='plain']")).to_contain_text("fell back to CPU")


def grid(page, name="results"):
    """A table that the page's script draws, when it has done so."""
    page.locator(f"[data-fold='{name}']").scroll_into_view_if_needed()
    host = page.locator(f"[data-fold='{name}'].drawn")
    host.wait_for()
    return host


def column(host, head):
    """The text of a column's cells, top to bottom."""
    heads = [text.split("\n")[0].strip() for text in host.locator("thead th").all_inner_texts()]
    place = heads.index(head)
    return host.locator("tbody tr:not(.spacer)").evaluate_all(
        "(rows, place) => rows.map(row => row.cells[place].innerText.trim())", place
    )


def test_table_sorts_by_figures_both_ways_with_missing_ones_last(open_report):
    host = grid(open_report("small"))
    head = host.locator("thead th", has_text="median")
    for direction in ("ascending", "descending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        texts = column(host, "median")
        known = [float(text) for text in texts if text != "---"]
        assert known == sorted(known, reverse=direction == "descending")
        assert texts[len(known) :] == ["---"] * (len(texts) - len(known))
        assert 0 < len(known) < len(texts)


def test_table_sorts_on_a_phone_too(open_report):
    host = grid(open_report("small", PHONE))
    host.get_by_label("Sort by").select_option(label="median (ms) ▼")
    known = [float(text) for text in column(host, "median") if text != "---"]
    assert known == sorted(known, reverse=True)


def test_search_and_filters_narrow_the_table(open_report):
    page = open_report("small")
    host = grid(page)
    rows = host.locator("tbody tr")
    whole = rows.count()
    host.get_by_label("Search").fill("PIXEL gpu")
    assert 0 < rows.count() < whole
    assert all("gpu" in text and "Pixel" in text for text in rows.all_inner_texts())
    assert host.locator("output").inner_text() == f"rows: {rows.count()} of {whole}"
    host.get_by_label("Search").fill("no such thing")
    assert rows.all_inner_texts() == ["No row fits."]
    host.get_by_label("Search").fill("")
    host.get_by_label("Show").select_option("not clean")
    assert 0 < rows.count() < whole
    host.get_by_label("Show").select_option("all")
    host.locator("summary").click()
    host.get_by_label("device", exact=True).select_option("workstation")
    assert set(column(host, "device")) == {"workstation"}
    host.get_by_label("device", exact=True).select_option("all")
    host.get_by_label("real devices only").check()
    assert rows.count() > 0
    assert not any("virtual" in text for text in rows.all_inner_texts())


def test_long_table_draws_only_what_is_in_view(open_report):
    host = grid(open_report("large"))
    assert host.locator("tbody tr").count() < 100
    said = host.locator(".legend").inner_text()
    assert "runs 2 used; of 2 ended" in said
    assert "---" not in said
    view = host.locator(".view")
    view.evaluate("view => { view.scrollTop = view.scrollHeight; }")
    host.locator("tbody tr[aria-rowindex='451']").wait_for()
    assert host.locator("tbody tr").count() < 100
    host.get_by_label("Search").fill("model_001 nnapi")
    assert host.locator("output").inner_text().endswith("of 450")
    assert all("nnapi" in text for text in column(host, "configuration"))


def test_results_can_be_saved_as_csv(open_report):
    page = open_report("hostile")
    host = grid(page)
    with page.expect_download() as download:
        host.get_by_role("button", name="Save as CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "benchfarm-results.csv"
    rows = list(csv.reader(text.splitlines()))
    assert len(rows) == len(HOSTILE_NAMES) * 2 + 1
    assert rows[0][:4] == ["model", "device", "configuration", "median (ms)"]
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


def test_results_can_be_copied_as_markdown(open_report):
    page = open_report("hostile")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host = grid(page)
    host.get_by_role("button", name="Copy as Markdown").click()
    expect(host.get_by_role("button", name="Copied")).to_be_visible()
    lines = page.evaluate("() => navigator.clipboard.readText()").strip().splitlines()
    assert len(lines) == len(HOSTILE_NAMES) * 2 + 2
    assert lines[0].startswith("| model | device | configuration | median \\(ms\\) |")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not any("<script" in line or "](" in line for line in lines)


def test_pictures_of_a_large_report_are_unfolded_when_they_are_looked_at(open_report):
    page = open_report("large", is_unfolded=False)
    block = page.locator(".model-block").last
    expect(block.locator("svg.dots")).to_have_count(0)
    block.locator("summary").first.click()
    expect(block.locator("svg.dots")).to_have_count(18)


#: By how much each text of a drawing is outside of the window, and which of a row's cover each other.
TEXTS = """svg => {
  const boxes = Array.from(svg.querySelectorAll("text"), text => [text.textContent, text.getBoundingClientRect()])
    .filter(([, box]) => box.width);
  const covers = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  return {
    outside: boxes.filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([text]) => text),
    covering: boxes.filter(([, box], i) => boxes.some(([, other], j) => i < j && covers(box, other))).map(([text]) => text),
  };
}"""


@pytest.mark.parametrize(
    ("name", "viewport"),
    [("rich", WIDE), ("rich", PHONE), ("wide", PHONE), ("twelve", WIDE)],
)
def test_drawings_stay_in_the_window_and_their_labels_beside_each_other(
    open_report, name, viewport
):
    page = open_report(name, viewport)
    drawings = page.locator("svg.dots, svg.lines")
    assert drawings.count() > 1
    for drawing in drawings.all():
        assert drawing.evaluate(TEXTS) == {"outside": [], "covering": []}


def test_a_figure_in_the_table_of_all_configurations_opens_its_case_and_the_address_names_it(
    open_report,
):
    page = open_report("small")
    host = grid(page, "matrix-0")
    cell = host.locator("td.n a.open").first
    href = cell.get_attribute("href")
    cell.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("location.hash") == href
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).not_to_be_visible()
    page.wait_for_url(re.compile("^[^#]*$"))  # a dialog's close is told after it is closed


def test_chips_choose_rows_of_pictures_and_of_tables(open_report):
    page = open_report("twelve")
    host = grid(page)
    page.get_by_role("button", name="Google Pixel 4").click()
    assert {text.split(" (")[0] for text in column(host, "device")} == {"Google Pixel 4"}
    shown = page.locator(".model-picture tbody tr:visible th")
    assert all("Pixel 4" in text for text in shown.all_inner_texts())
    page.get_by_role("button", name="other", exact=True).click()
    expect(page.locator(".model-block:visible")).to_have_count(1)
    assert {text.split()[0] for text in column(host, "model")} == {"other"}
    page.get_by_role("button", name="all models").click()
    page.get_by_role("button", name="all devices").click()
    expect(page.locator(".model-block:visible")).to_have_count(3)
    # A model's name may begin as another one's does, and a phone's too.
    page.locator("[data-chip='mobilenet_v1_1.0_224']").click()
    assert "rows: 60 of 180" in grid(page).locator("output").inner_text()


def test_a_picture_is_sorted_by_a_head_and_copied_as_markdown(open_report):
    page = open_report("small")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    table = page.locator("#model-1 table.whole")
    head = table.locator("th", has_text="ms")
    for order in ("ascending", "descending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        figures = [
            float(text) for text in table.locator("tbody td[data-label='ms']").all_inner_texts()
        ]
        assert figures == sorted(figures, reverse=order == "descending")
    # What has no figure stays at the end both ways.
    for _ in range(2):
        table.get_by_role("button", name="vs CPU").click()
        assert table.locator("td[data-label='vs CPU']").all_inner_texts()[-1] == "---"
    page.locator("#model-1").get_by_role("button", name="Copy as Markdown").first.click()
    lines = page.evaluate("() => navigator.clipboard.readText()").strip().splitlines()
    assert lines[0].startswith("| phone | fastest | ms |")
    assert lines[1] == "| --- | --- | ---: | ---: | --- |"
    assert len(lines) == 5


def test_the_head_of_the_page_stays_in_sight(open_report):
    page = open_report("small")
    page.evaluate("scrollTo(0, 2000)")
    expect(page.get_by_role("link", name="All results")).to_be_in_viewport()


def test_pair_of_profiles_can_be_chosen(open_report):
    page = open_report("rich")
    host = grid(page, "changes")
    assert "left the delegate" in column(host, "change")
    page.get_by_label("From → to").select_option("1")
    expect(page.locator("[data-pair='0']")).to_be_hidden()
    expect(page.locator("[data-pair='1']")).to_be_visible()
    assert "left the delegate" not in column(host, "change")


#: The report with everything in it in both widths. Its colours, whose rules take axe the longest, are
#: asked of the wide one, in both schemes; the narrow one has no others but where it shows more.
AXE_VIEWS = [("rich", WIDE, "light"), ("rich", PHONE, "dark"), ("folded", PHONE, "dark")]


@pytest.mark.parametrize(("name", "viewport", "scheme"), AXE_VIEWS)
def test_page_has_no_serious_fault_of_accessibility(open_report, name, viewport, scheme):
    page = open_report(name, viewport, color_scheme=scheme)
    for host in page.locator("[data-fold]").all():
        host.scroll_into_view_if_needed()
    left_out = OF_COLOURS if viewport == PHONE else ()
    assert serious_faults(page, left_out=left_out) == []
    if viewport == PHONE:
        assert serious_faults(page, ".narrow-only", OF_COLOURS) == []
    page.locator(".model-picture td:not(.picture) a.open").first.click()
    page.get_by_role("dialog").wait_for()
    assert serious_faults(page, "dialog", left_out=left_out) == []
    if viewport == WIDE:
        page.emulate_media(color_scheme="dark")
        assert serious_faults(page, "dialog", OF_COLOURS) == []
        page.evaluate("dialog.close()")
        assert serious_faults(page, only=OF_COLOURS) == []


def ground(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_theme_follows_the_system_until_the_button_changes_it(open_report):
    page = open_report("small", color_scheme="dark")
    first = ground(page)
    assert first == "rgb(20, 23, 28)"
    button = page.get_by_role("button", name="Change between dark and light")
    button.click()
    assert ground(page) == "rgb(255, 255, 255)"

    def is_kept():
        # A browser writes what a page stores a little later, in another process.
        page.reload()
        return ground(page) != first

    poll_until(is_kept, "the choice is kept", 60)
    button.click()
    assert ground(page) == first


def test_print_is_light_and_has_no_controls(open_report):
    page = open_report("small", color_scheme="dark")
    label = page.locator("svg.dots text").first
    expect(label).to_have_css("fill", "rgb(116, 180, 239)")
    page.emulate_media(media="print", color_scheme="dark")
    assert ground(page) == "rgb(255, 255, 255)"
    expect(label).to_have_css("fill", "rgb(11, 98, 168)")
    for hidden in ("#chips", "#theme", ".table-tools >> nth=0"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator(".virtual-banner")).to_be_visible()


def test_hostile_names_stay_text(open_report):
    page = open_report("hostile")
    assert page.title().startswith(HOSTILE_NAMES[0])
    expect(page.locator("img")).to_have_count(0)
    kinds = page.locator("body script").evaluate_all(
        "scripts => scripts.map(script => script.type)"
    )
    assert set(kinds) == {"text/plain", ""}
    assert kinds.count("") == 1
    expect(
        page.locator("#results h3 bdi", has_text="<script>document.title='owned'</script>")
    ).to_have_count(1)
    for place in range(page.locator(".model-picture td a.open").count()):
        page.evaluate("dialog.close()")
        page.locator(".model-picture td a.open").nth(place).dispatch_event("click")
        expect(page.get_by_role("dialog")).to_be_visible()
        expect(page.locator("dialog img, dialog script")).to_have_count(0)
    assert page.title().startswith(HOSTILE_NAMES[0])


SLIPPED = (
    "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
)


def test_script_that_slipped_into_a_page_is_not_run_from_disk_nor_served(browser, reports):
    known = (reports / "small.html").read_text("utf-8")
    page = known.replace("</header>", f"{SLIPPED}</header>")
    (reports / "slipped.html").write_text(page, encoding="utf-8")
    served = make_page("report.html", page.encode(), "report")
    bare = re.sub("<meta http-equiv[^>]*>", "", page)
    assert bare != page
    context = browser.new_context()

    def answer(route):
        headers = {"Content-Security-Policy": served.policy}
        route.fulfill(body=bare, content_type="text/html; charset=utf-8", headers=headers)

    context.route("http://benchfarm.test/report.html", answer)
    for address in ((reports / "slipped.html").as_uri(), "http://benchfarm.test/report.html"):
        tab = context.new_page()
        refused = []
        tab.on("console", lambda message, refused=refused: refused.append(message.text))
        tab.goto(address)
        # The page's own script runs: it shows what needs one.
        expect(tab.locator("#theme")).to_be_visible()
        assert tab.title().startswith("Nightly: mobilenet")
        assert sum("Content Security Policy" in text for text in refused) >= 2
    context.close()


def test_rows_of_virtual_phones_have_a_hatched_edge_and_the_word_once(open_report):
    page = open_report("small")
    rows = page.locator(".model-picture tr.virtual-ground")
    assert rows.count() == 4
    for row in rows.all():
        head = row.locator("th")
        assert "gradient" in head.evaluate("cell => getComputedStyle(cell).backgroundImage")
        expect(row.locator(".badge.virtual")).to_have_count(1)
        expect(row.locator(".badge.virtual")).to_be_visible()
        assert (
            row.locator("td").first.evaluate("cell => getComputedStyle(cell).backgroundImage")
            == "none"
        )
    expect(page.locator(".virtual-banner")).to_contain_text("no measurement")


@pytest.mark.parametrize(("viewport", "screens"), [(WIDE, 4), (PHONE, 8)], ids=["wide", "phone"])
def test_twelve_phones_with_three_models_are_told_at_a_glance_and_links_open_what_is_folded(
    open_report, viewport, screens
):
    page = open_report("twelve", viewport, is_unfolded=False)
    assert page.evaluate("document.documentElement.scrollHeight") <= screens * viewport["height"]
    lines = page.locator(".model-picture tbody tr")
    expect(lines).to_have_count(36)
    assert lines.first.bounding_box()["y"] < viewport["height"]
    expect(page.locator("[data-fold='results']")).to_be_hidden()
    page.get_by_role("link", name="All results").click()
    expect(page.locator("[data-fold='results'].drawn")).to_be_visible()
