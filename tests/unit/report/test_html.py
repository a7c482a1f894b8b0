import functools
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from orchestrator.records.campaign import Origin, Terms
from orchestrator.records.case import DelegateName
from orchestrator.records.run import DelegateEvidence
from orchestrator.records.verdict import ParityVerdict
from orchestrator.report import evidence
from orchestrator.report.render import render_html
from tests.conftest import folds, golden
from tests.samples.sample_lab import (
    HOSTILE_NAMES,
    MOBILENET,
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
    return render_html(lab.data(), title=title)


def pictures(html):
    """The rows of the tables that stand first: their texts without the drawing, and the drawing."""
    found = []
    first = html[: html.index('id="cases"')]
    for table in re.findall(r'<table class="whole [^>]*>(.*?)</table>', first, re.DOTALL):
        for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL):
            drawing = "".join(re.findall(r"<svg.*?</svg>", row, re.DOTALL))
            text = re.sub(r"<svg.*?</svg>(<ul.*?</ul>)?", " ", row, flags=re.DOTALL)
            text = re.sub(r"<t[hd] hidden.*?</t[hd]>", " ", text)
            found.append((" ".join(re.sub(r"<[^>]*>", " ", text).split()), drawing))
    return found


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
    assert set(types[:-1]) == {"text/plain"}
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


def test_no_text_of_a_case_is_html():
    name = HOSTILE_NAMES[1]
    told = DelegateEvidence(
        requested=name, actual=name, lines=(name,), cpu_operators=((name, name),)
    )
    runs = [
        replace(item, report=replace(item.report, delegate=told)) for item in series(case(), 9_000)
    ]
    lab = lab_of(runs, terms=Terms(origin=Origin(file=name, sha256="a" * 64)))
    (row,) = lab.data().results
    row = replace(
        row,
        notes=(name,),
        parity=ParityVerdict.UNREADABLE,
        parity_reason=name,
        reason=name,
        stopped=(("", name),),
    )
    ((case_evidence,),) = evidence.evidence_of([row])
    html = "".join(block for block in case_evidence[1] if isinstance(block, str))
    assert html.count("&lt;img") >= 10
    assert Page(html).named("img") == []


def test_hostile_names_cant_end_the_scripts():
    scripts = Page(hostile_page()).scripts
    assert len(scripts) == len(Page(hostile_page()).named("script"))
    for folded in scripts[:-1]:
        assert re.fullmatch(r"[A-Za-z0-9+/=\s]+", folded)
    assert folds(hostile_page())["results"].count("<tr") == len(HOSTILE_NAMES) * 2 + 1


def test_page_without_virtual_phones_doesnt_speak_of_them():
    unknown = replace(MOBILENET, size_bytes=0)
    html = page_of(lab_of(series(case(REAL_PIXEL), 10_000), REAL_PIXEL, models=[unknown]))
    assert "0 B" not in html
    assert "virtual-banner" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert ">virtual<" not in html


def test_first_table_says_who_wins_on_which_phone_and_what_is_known_of_it():
    golden("pictures.txt", "\n".join(text for text, _ in pictures(small_page())))
    assert "In all rows: ± % 0.8; outputs not checked." in small_page()
    assert (
        "gpu (virtual) is fastest on 2 of 3 devices, xnnpack on 1; outputs not checked."
        in small_page()
    )


def test_title_says_models_phones_and_day():
    assert (
        "<title>Nightly: mobilenet_v1_1.0_224 and mobilenet_v1_1.0_224_int8 on 3 devices, 2 of them"
        in small_page()
    )
    one = page_of(
        lab_of(series(case(REAL_PIXEL), 10_000), REAL_PIXEL), title="mobilenet_v1_1.0_224"
    )
    assert "<title>mobilenet_v1_1.0_224 on Google Pixel 3, 2026-03-14</title>" in one


def test_what_fell_back_is_a_problem_and_never_a_dot():
    assert "nnapi" not in "".join(drawing for _, drawing in pictures(small_page()))
    (problems,) = re.findall(r'id="problems">(.*?)</div>', small_page(), re.DOTALL)
    assert re.search(r">nnapi, native on .*: fell back to CPU", problems)


def test_only_clean_figures_are_drawn_as_the_best_and_others_are_hollow():
    drawn = "".join(drawing for _, drawing in pictures(small_page()))
    marks = re.findall(r'<a class="open d\d ?([a-z]*)" [^>]*aria-label="([^"]*)"', drawn)
    assert sum(look == "best" for look, _ in marks) == 7
    assert sum(look == "doubt" for look, _ in marks) == 3
    for look, told in marks:
        assert (look == "doubt") == bool(re.search(r"suspect|not confirmed", told)), told


def test_the_fastest_with_wrong_outputs_is_no_winner_and_says_why():
    data = rich_lab().data()
    assert data.diffs[0].before == "nightly, 2026-03-14 22:05 UTC"
    html = render_html(data, title="Nightly")
    assert [text for text, _ in pictures(html) if "gpu, native 6.45" in text]
    assert "4.10" not in "".join(drawing for _, drawing in pictures(html))
    blocks = [block for case in evidence_of(rich_lab()) for block in case]
    assert any('<span class="badge p-same">outputs checked</span>' in block for block in blocks)
    badges = re.findall(r'<span class="badge (p-[^<]*)</span>', folds(html)["results"])
    assert {'p-same">checked', 'p-wrong">differ (0.83)', 'p-unknown">not checked'} <= set(badges)
    assert any("outputs differ" in warning for warning in data.headline.warnings)


def test_in_the_table_of_all_configurations_what_has_no_figure_says_why():
    page, other = folds(small_page())["matrix-0"], folds(small_page())["matrix-1"]
    for words in ("fell back to CPU", "failed (crashed)", "rejected (rebooted)"):
        assert re.search(rf'<td class="n[^>]*"><a [^>]*>{re.escape(words)}</a>', page + other)
    assert "delegate-not-on-soc" in small_page()
    place = re.findall(r'<th scope="col"[^>]*>([^<]*)', page).index("gpu, native ")
    cells = [re.findall(r"<td.*?</td>", line)[place - 1] for line in page.split("<tr")[2:]]
    assert '<td class="n unproven"><a class="open" href="#c-' in "".join(cells)


def test_every_cell_leads_to_its_evidence():
    page = Page(small_page())
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = {attrs["href"][1:] for attrs in page.named("a") if "open" in attrs.get("class", "")}
    assert links
    assert links <= ids


def test_problems_lead_to_their_cases_and_call_them_as_the_page_does():
    (problems,) = re.findall(r'id="problems">(.*?)</div>', small_page(), re.DOTALL)
    lines = problems.split("<li>")[1:]
    named = [re.findall(r'<a class="open" href="#c-\w+">(.*?) on ', line) for line in lines]
    assert sum(map(bool, named)) == len(lines) - 1, "all but that of modes"
    matrices = folds(small_page())["matrix-0"] + folds(small_page())["matrix-1"]
    labels = {head.strip() for head in re.findall(r'<th scope="col"[^>]*>([^<]*)', matrices)}
    assert {name for names in named for name in names} <= labels


def test_ids_are_unique():
    ids = [attrs["id"] for _, attrs in Page(small_page()).elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_nothing_is_a_page_too():
    html = page_of(Lab())
    assert "Nothing has been measured yet." in html
    assert "benchfarm bench MODEL.tflite" in html


@pytest.mark.slow
def test_report_of_two_hundred_cases_stays_under_two_megabytes():
    html = page_of(large_lab(200, invocations=5))
    assert len(html.encode()) < 2_000_000


def evidence_of(lab):
    """The blocks of each case's evidence."""
    return [
        blocks
        for name, fold in folds(page_of(lab)).items()
        if name.startswith("evidence-")
        for _, blocks in fold
    ]


@pytest.mark.slow
def test_a_large_page_has_all_evidence_and_few_elements():
    lab = large_lab(450, invocations=1)
    shown = re.sub("<noscript>.*?</noscript>", "", page_of(lab), flags=re.DOTALL)
    assert len(Page(shown).elements) < 2_000
    logs = [block for blocks in evidence_of(lab) for block in blocks if '<pre class="log"' in block]
    assert len(logs) == 450
    assert all("Inference timings in us" in log for log in logs)


def test_long_log_is_cut_with_a_note():
    text = b"start of log\n" + b"x" * 3_000_000 + b"\nend of log\n"
    html = page_of(lab := lab_of([run(case(), log=text)]))
    ((*_, note, log, _),) = evidence_of(lab)
    assert log.startswith('<pre class="log" tabindex="0">start of log')
    assert log.endswith("end of log\n</pre>")
    assert note.startswith("<p>Cut: 3.00 MB of 3.00 MB left out; ")
    assert len(html) < 150_000


def test_log_keeps_its_lines():
    text = b"one\r\ntwo <three>\n\x1b[0mfour\n"
    ((*_, log, _),) = evidence_of(lab_of([run(case(delegate=DelegateName.GPU), log=text)]))
    assert log.endswith(">one\ntwo &lt;three&gt;\n\\u001b[0mfour\n</pre>")


def test_without_scripts_a_case_of_another_lab_says_where_it_was_imported_from():
    origin = Terms(origin=Origin(file="night.zip", sha256="0" * 64))
    html = page_of(lab_of(series(case(REAL_PIXEL), 10_000), REAL_PIXEL, terms=origin))
    assert 'data-label="origin">imported from night.zip' in html
