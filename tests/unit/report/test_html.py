import base64
import functools
import gzip
import json
import re
from html.parser import HTMLParser

import pytest

from orchestrator.records.workload import DelegateName
from orchestrator.report.assembly import build_report_data
from orchestrator.report.render import render_html
from orchestrator.resources import data_folder
from tests.samples.sample_lab import (
    HOSTILE_NAMES,
    REAL_PIXEL,
    Lab,
    case,
    hostile_lab,
    lab_of,
    large_lab,
    rich_lab,
    run,
    series,
    small_lab,
)


class Page(HTMLParser):
    """The elements of a page, with what is inside of scripts, and its text."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements = []
        self.open = []
        self.scripts = []
        self.text = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data
        else:
            self.text.append(data)

    def named(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


def page_of(lab, *, title="Nightly"):
    return render_html(build_report_data(**lab.inputs()), title=title)


def folds(html):
    """What is folded into a page as JSON, by name."""
    found = re.findall(
        r'<script type="text/plain" id="pack-([^"]+)">(.*?)</script>', html, re.DOTALL
    )
    return {
        name: json.loads(gzip.decompress(base64.b64decode(text)).decode())
        for name, text in found
        if name != "vega"
    }


def without_library(html):
    return re.sub(
        r'<script type="text/plain" id="pack-vega">.*?</script>', "", html, flags=re.DOTALL
    )


@functools.cache
def small_page():
    return page_of(small_lab())


@functools.cache
def hostile_page():
    return page_of(hostile_lab(), title=HOSTILE_NAMES[0])


@pytest.fixture(params=[small_page, hostile_page], ids=["small", "hostile"])
def html(request):
    return request.param()


def test_page_refers_to_nothing_outside_of_itself(html):
    for tag, attrs in Page(html).elements:
        for name in (
            "src",
            "href",
            "action",
            "data",
            "poster",
            "srcset",
            "background",
            "xlink:href",
        ):
            value = attrs.get(name)
            assert value is None or value.startswith("#") or (tag, value) == ("link", "data:,"), (
                tag,
                name,
                value,
            )
    styles = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert len(styles) == 1
    assert not re.search(r"url\(|@import", styles[0])


def test_page_has_only_scripts_of_its_own(html):
    page = Page(html)
    types = [attrs.get("type") for attrs in page.named("script")]
    assert types[0] == "application/json"
    assert set(types[1:-1]) == {"text/plain"}
    assert types[-1] is None
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert page.named("img") == []


def test_hostile_names_are_shown_as_text():
    text = "".join(Page(hostile_page()).text)
    assert "<script>document.title='owned'</script>" in text
    assert '"><img src=x onerror="document.title=\'owned\'">' in text
    assert "{{ 7 * 7 }}{% raw %}" in text
    assert "right\\u202eto\\u2066left" in text
    assert "line one\\nline two\\r\\0\\u001b[31m" in text
    assert "\u202e" not in hostile_page()


def test_hostile_page_can_be_written():
    assert hostile_page().encode()


def test_hostile_names_cant_end_the_scripts():
    scripts = Page(hostile_page()).scripts
    assert len(scripts) == len(Page(hostile_page()).named("script"))
    for folded in scripts[1:-1]:
        assert re.fullmatch(r"[A-Za-z0-9+/=\s]+", folded)
    assert len(folds(hostile_page())["results"]["virtual"]) == len(HOSTILE_NAMES) * 2


def test_page_without_virtual_phones_doesnt_speak_of_them():
    html = page_of(lab_of(series(case(REAL_PIXEL), 10_000), REAL_PIXEL))
    assert "virtual-banner" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert ">virtual<" not in html


def test_virtual_phones_have_a_banner_and_a_badge_in_every_row():
    assert 'class="virtual-banner"' in small_page()
    tables = re.findall(r'<table class="(?:matrix|winners)">(.*?)</table>', small_page(), re.DOTALL)
    assert len(tables) == 3
    rows = [
        row
        for table in tables
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table, re.DOTALL)
        if "<td" in row
    ]
    assert {
        row.count('class="badge virtual">virtual<') for row in rows if "Google Pixel" in row
    } == {1}
    assert {
        row.count('class="badge virtual">virtual<') for row in rows if "Google Pixel" not in row
    } == {0}
    cells = re.findall(
        r'<td class="s-measured([^"]*)" data-label="[^"]*"[^>]*>(.*?)</td>', small_page(), re.DOTALL
    )
    assert len(cells) > 10
    assert all(
        ("virtual-ground" in classes) == ("bar-virtual" in content) for classes, content in cells
    )


def test_first_block_says_what_to_take_on_which_phone_and_how_sure_that_is():
    (table,) = re.findall(r'<table class="winners">(.*?)</table>', small_page(), re.DOTALL)
    lines = [
        " ".join(re.sub(r"<[^>]*>", " ", row).split())
        for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    ]
    assert lines == [
        "phone fastest median ms against the best CPU sure?",
        "mobilenet_v1_1.0_224 gpu (virtual) on 2, xnnpack on 1",
        "workstation xnnpack, 1 thread, litert or xnnpack, 4 threads, litert 18.20 ms is the CPU \u2248 tied",
        "Google Pixel 3 virtual gpu, native 6.45 ms 3.71\u00d7 CPU \u2713 sure",
        "Google Pixel 4 virtual gpu, native 9.00 ms no clean CPU figure \u2713 sure",
        "mobilenet_v1_1.0_224_int8 xnnpack (virtual) on 2, xnnpack on 1",
        "workstation xnnpack, 1 thread, litert 0.94 ms is the CPU not sure nothing else has a clean figure",
        "Google Pixel 3 virtual xnnpack, 4 threads, native 13.40 ms is the CPU \u2713 sure",
        "Google Pixel 4 virtual xnnpack, 4 threads, apk 4.71 ms is the CPU \u2713 sure",
    ]


def test_title_says_models_phones_and_day():
    assert (
        "<title>Nightly: mobilenet_v1_1.0_224 and mobilenet_v1_1.0_224_int8 on 3 devices, 2 of them"
        in small_page()
    )
    one = page_of(
        lab_of(series(case(REAL_PIXEL), 10_000), REAL_PIXEL), title="mobilenet_v1_1.0_224"
    )
    assert "<title>mobilenet_v1_1.0_224 on Google Pixel 3, 2026-03-14</title>" in one


def test_fallback_is_named_and_its_figure_struck():
    (cell,) = re.findall(r'<td class="s-fell-back[^>]*>(.*?)</td>', small_page(), re.DOTALL)
    assert "fell back to CPU" in cell
    assert re.search(r"<del>24\.\d\d</del>", cell)
    assert 'class="num"' not in cell
    assert "fastest" not in cell


def test_only_judged_cells_are_marked_fastest():
    cells = re.findall(r'<td class="(s-[^"]*)"[^>]*>(.*?)</td>', small_page(), re.DOTALL)
    starred = [(classes, content) for classes, content in cells if "★" in content]
    assert 1 < len(starred) < len(cells)
    for classes, content in starred:
        assert classes.startswith("s-measured")
        assert not re.search(r"q-suspect|q-rejected|q-none", content)


def test_the_fastest_with_wrong_outputs_is_red_and_never_best():
    data = build_report_data(**rich_lab().inputs())
    html = render_html(data, title="Nightly")
    cells = re.findall(r'<td class="(s-rejected.*?)</td>', html, re.DOTALL)
    (cell,) = [cell for cell in cells if "4.10" in cell]
    assert "is-best" not in cell
    assert "★" not in cell
    assert ">wrong outputs<" in cell
    assert re.search(
        r'<span class="badge p-wrong" title="[^"]*0\.83[^"]*">outputs wrong</span>', cell
    )
    assert "<del>4.10</del>" in cell
    assert ">outputs agree</span>" in html
    words = folds(html)["results"]["columns"][
        [c["label"] for c in folds(html)["results"]["columns"]].index("outputs")
    ]
    assert {"p-same|checked", "p-wrong|differ (0.83)", "p-unknown|not checked"} <= set(
        words["words"]
    )
    assert any("outputs wrong" in warning for warning in data.headline.warnings)


def test_what_isnt_planned_is_three_dashes_and_a_skip_gives_its_code():
    assert re.search(r'<td class="s-unplanned"[^>]*>---</td>', small_page())
    assert "delegate-not-on-soc" in small_page()


def test_every_cell_leads_to_its_evidence():
    page = Page(small_page())
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = {attrs["href"][1:] for attrs in page.named("a") if "open" in attrs.get("class", "")}
    assert links
    assert links <= ids


def test_ids_are_unique():
    ids = [attrs["id"] for _, attrs in Page(small_page()).elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_every_head_has_a_scope_and_every_table_of_the_page_a_caption():
    page = Page(small_page())
    assert all(attrs.get("scope") in ("col", "row", "rowgroup") for attrs in page.named("th"))
    captioned = small_page().count("<caption")
    assert captioned == len(
        [attrs for attrs in page.named("table") if attrs.get("class") != "small"]
    )


def test_same_data_gives_the_same_page():
    assert page_of(small_lab()) == small_page()


def test_nothing_is_a_page_too():
    html = page_of(Lab())
    assert "Nothing has been measured yet." in html
    assert "There is nothing to compare." in html


@pytest.mark.slow
def test_report_of_two_hundred_cases_stays_under_two_megabytes():
    html = page_of(large_lab(200, invocations=5))
    assert len(without_library(html).encode()) < 2_000_000
    assert len(html.encode()) < 2_000_000


@pytest.mark.slow
def test_large_report_keeps_evidence_aside():
    html = page_of(large_lab(450, invocations=1))
    page = Page(html)
    assert [attrs for attrs in page.named("details") if attrs["class"] == "case"] == []
    assert len(page.elements) < 2_000
    folded = folds(html)
    evidence = [case for name in folded if name.startswith("evidence-") for case in folded[name]]
    assert len(evidence) == 450
    assert all("Inference timings in us" in json.dumps(content) for _, content in evidence)


def test_long_log_is_cut_with_a_note():
    html = page_of(
        lab_of([run(case(), log=b"start of log\n" + b"x" * 3_000_000 + b"\nend of log\n")])
    )
    assert "start of log" in html
    assert "end of log" in html
    assert re.search(r"Cut: 3\.00 MB of 3\.00 MB left out", html)
    assert len(without_library(html)) < 150_000


def test_log_keeps_its_lines():
    html = page_of(
        lab_of([run(case(delegate=DelegateName.GPU), log=b"one\r\ntwo <three>\n\x1b[0mfour\n")])
    )
    assert "one\ntwo &lt;three&gt;\n\\u001b[0mfour" in html


def test_colours_have_enough_contrast_in_light_and_dark():
    css = (data_folder("reports") / "templates" / "report.css").read_text(encoding="utf-8")
    palette = {
        name: (light, dark)
        for name, light, dark in re.findall(
            r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css
        )
    }
    pairs = [
        (text, ground)
        for text in ("text", "quiet", "link", "bad")
        for ground in ("ground", "raised")
    ]
    pairs += [(name, f"{name}-ground") for name in ("good", "doubt", "bad", "best", "virtual")]
    pairs += [
        ("ground", "best"),
        ("text", "bar-ground"),
        ("text", "best-ground"),
        ("quiet", "best-ground"),
    ]
    for text, ground in pairs:
        for theme in (0, 1):
            assert contrast(palette[text][theme], palette[ground][theme]) >= 4.5, (
                text,
                ground,
                theme,
            )


def contrast(first, second):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [
            value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
            for value in channels
        ]
        return sum(
            weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
        )

    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
