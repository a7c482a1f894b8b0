"""Comparisons in every form, with names that try to break out of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.analysis.comparison import (
    Comparison,
    Fact,
    FailOn,
    Rule,
    compare_sides,
)
from orchestrator.analysis.measured import measured_cases
from orchestrator.cli.output import to_json
from orchestrator.records.case import CampaignId, DelegateName, Model, ToolName
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import ParityVerdict
from orchestrator.report.render import MOST_SHOWN, render_comparison
from orchestrator.tables.comparisons import (
    summary_line,
    to_data,
    to_junit,
    to_markdown,
    to_text,
)
from tests.samples.sample_lab import (
    BUILDS,
    MOBILENET,
    PIXEL_3,
    PIXEL_4,
    REAL_PIXEL,
    case,
    parity,
    run,
    series,
)

OLD, NEW = CampaignId("20260313-220500-aaaaaa"), CampaignId("20260314-220500-bbbbbb")
HOSTILE = "a|b`<img src=x onerror=alert(1)>\n::error title=x::y%0A,:\x1b[31m\x00]]>&\"'\u202e模型"
#: Of the JUnit schema that CI systems share: element -> (attributes, children).
SCHEMA = {
    "testsuites": ("name time tests failures disabled errors", "testsuite"),
    "testsuite": (
        "name tests failures errors time disabled skipped timestamp hostname id package",
        "properties testcase system-out system-err",
    ),
    "properties": ("", "property"),
    "property": ("name value", ""),
    "testcase": (
        "name assertions time classname status",
        "skipped error failure system-out system-err",
    ),
    "failure": ("type message", ""),
    "error": ("type message", ""),
    "skipped": ("type message", ""),
    "system-out": ("", ""),
}


def night(
    latency_us: float,
    campaign: CampaignId,
    model: Model = MOBILENET,
    threads: int = 4,
    count: int = 8,
    **other: Any,
) -> list[CaseResult]:
    facts = {item.serial: item for item in (PIXEL_3, PIXEL_4, REAL_PIXEL)}
    runs = series(
        case(model=model, threads=threads, **other), latency_us, count, campaign_id=campaign
    )
    return measured_cases(
        runs, devices=facts, builds={build.sha256: build for build in BUILDS.values()}
    )


def comparison(model: Model = MOBILENET) -> Comparison:
    """One slower, one faster, one inconclusive, one incomparable case, and one that only one side
    has."""
    before: list[CaseResult] = []
    after: list[CaseResult] = []
    for threads, latency_us in ((1, 22_000), (2, 18_000), (3, 20_300)):
        before += night(20_000, OLD, model, threads)
        after += night(latency_us, NEW, model, threads)
    changed = [
        replace(item, case=replace(item.case, num_runs=9)) for item in night(20_000, NEW, model, 4)
    ]
    return compare_sides(
        [*before, *night(20_000, OLD, model, 4), *night(20_000, OLD, model, 5)],
        [*after, *changed],
        Rule(),
        names=(f"nightly {OLD}", f"nightly {NEW}"),
    )


@pytest.fixture
def hostile() -> Comparison:
    found = comparison(replace(MOBILENET, name=HOSTILE))
    return replace(found, baseline=HOSTILE, candidate=HOSTILE)


def test_of_many_cases_a_terminal_shows_those_that_changed_and_counts_others():
    found = comparison()
    slower = next(row for row in found.rows if row.verdict.outcome == "slower")
    unknown = next(row for row in found.rows if row.verdict.outcome == "inconclusive")
    text = to_text(replace(found, rows=(slower,) * 40 + (unknown,) * 33))
    assert len(re.findall("^SLOWER", text, re.MULTILINE)) == 40
    assert len(re.findall("^INCONCLUSIVE", text, re.MULTILINE)) == 30
    assert "\nand 3 more without a change that is known; --format json has all\n" in text
    assert len(to_data(replace(found, rows=(unknown,) * 33))["cases"]) == 33


def test_text_fits_a_usual_terminal_but_for_words_that_are_longer() -> None:
    assert max(len(line) for line in to_text(comparison()).splitlines()) <= 80


def test_cases_of_one_side_are_counted_in_order_and_folded() -> None:
    before = [item for threads in range(1, 13) for item in night(20_000, OLD, threads=threads)]
    found = compare_sides(before, night(20_000, NEW, threads=12), Rule())
    for text in (to_text(found), to_markdown(found)):
        counts = [
            int(count)
            for count in re.findall(
                r"(\d+) threads?,\W+native", text.split("only in the baseline:")[1]
            )
        ]
        assert counts == [1, 10, 11, 2, 3]
        assert re.search(r"only in the baseline: 11 cases\n", text)
        assert "and 6 more" in text
    assert len(to_data(found)["only_baseline"]) == 11  # type: ignore[arg-type]


def test_figure_of_another_delegate_is_none_of_the_case() -> None:
    fallen = [replace(item, status=CaseStatus.FELL_BACK) for item in night(30_000, NEW)]
    found = compare_sides(night(20_000, OLD), fallen, Rule())
    assert "30.0 ms" not in to_text(found)
    assert "30.0 ms" not in to_markdown(found)
    assert "no result: 30.0 ms" in render_comparison(found)


def test_the_runs_of_a_language_model_are_drawn_as_speeds() -> None:
    decode = {"tool": ToolName.LITERT_LM, "flags": (("figure", "decode"),)}
    found = compare_sides(night(20_000, OLD, **decode), night(40_000, NEW, **decode), Rule())
    html = render_comparison(found)
    assert "The runs of both sides, in tokens/s" in html
    # Those at the slow end.
    assert re.search(r"candidate: 8 runs, p50 2\d\.\d+, min 2\d\.\d+ tokens/s", html)
    assert not re.search(r"p\d+ [\d.]+ ms", html)


def test_comparison_of_thousands_draws_the_worst_and_says_where_the_others_are() -> None:
    one = comparison()
    many = replace(
        one,
        rows=tuple(replace(row, title=f"{row.title} {n}") for n in range(500) for row in one.rows),
    )
    html = render_comparison(many)
    assert len(re.findall(r'<tr[^>]*>\s*<th scope="row" data-label="case">', html)) == MOST_SHOWN
    assert f"have the {500 * len(one.rows) - MOST_SHOWN} others" in html
    assert len(html) < 1_000_000


@pytest.mark.parametrize("status", [CaseStatus.FELL_BACK, CaseStatus.REJECTED])
def test_figure_that_is_no_result_is_none_in_json(status: CaseStatus) -> None:
    before = [item for threads in (1, 2) for item in night(20_000, OLD, threads=threads, count=2)]
    after, last = night(20_100, NEW, threads=1, count=2), night(9_000, NEW, threads=2, count=2)
    after += [replace(item, status=status) for item in last]
    found = compare_sides(before, after, Rule())
    cases = to_data(found)["cases"]
    assert isinstance(cases, list)
    (odd,) = [case["candidate"] for case in cases if case["candidate"]["status"] == status]
    assert odd["median_us"] is None
    assert odd["not_a_result_us"] == pytest.approx(9_000, rel=0.05)
    assert all(case["baseline"]["not_a_result_us"] is None for case in cases)


def test_names_bring_no_markup_and_drive_no_terminal(hostile: Comparison) -> None:
    html = render_comparison(hostile)
    assert html.count("<script") == 1
    assert all(letter.isprintable() or letter == "\n" for letter in to_text(hostile))
    assert HOSTILE in json.loads(to_json(to_data(hostile)))["baseline"]
    for text in (html, to_markdown(hostile)):
        assert not re.search("<img|\u202e|\x1b", text)


def test_markdown_is_a_table_of_as_many_rows_as_cases(hostile: Comparison) -> None:
    for found in (comparison(), hostile):
        rows = [line for line in to_markdown(found).splitlines() if line.startswith("|")]
        assert len(rows) == 2 + 4
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {9}
        assert rows[2].startswith("| SLOWER |")


@pytest.mark.parametrize("fail_on", list(FailOn))
def test_junit_is_well_formed_keeps_to_the_schema_and_counts_right(
    hostile: Comparison, fail_on: FailOn
) -> None:
    for item in (comparison(), hostile, compare_sides([], [], Rule())):
        root = ElementTree.fromstring(to_junit(item, fail_on=fail_on))
        assert root.tag == "testsuites"
        for element in root.iter():
            attributes, children = (set(words.split()) for words in SCHEMA[element.tag])
            assert set(element.attrib) <= attributes, element.tag
            assert {child.tag for child in element} <= children, element.tag
        (suite,) = root
        for name, tag in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(suite.attrib[name]) == len(list(suite.iter(tag))), name


def test_junit_fails_what_is_asked_for() -> None:
    def failures(fail_on: FailOn) -> list[str]:
        root = ElementTree.fromstring(to_junit(comparison(), fail_on=fail_on))
        return [element.attrib["type"] for element in root.iter("failure")]

    assert failures(FailOn.SLOWER) == ["slower"]
    assert failures(FailOn.INCONCLUSIVE) == ["slower", "inconclusive", "incomparable"]
    assert failures(FailOn.NEVER) == []


def test_level_of_an_interval_is_told_as_it_was_asked_for() -> None:
    told = "99.9 %"
    found = compare_sides(night(20_000, OLD), night(22_000, NEW), Rule(level=0.999))
    assert f"its {told} interval" in " ".join(to_text(found).split())
    assert f"at {told})" in to_junit(found)
    assert told in render_comparison(found)


@pytest.mark.parametrize("status", [CaseStatus.FAILED, CaseStatus.FELL_BACK, CaseStatus.UNFIT])
def test_a_case_that_only_the_candidate_breaks_is_a_failure(status: CaseStatus) -> None:
    good = night(20_000, OLD), night(20_000, NEW)
    broken = [replace(item, status=status) for item in night(20_000, NEW, threads=1)]
    sides = [*good[0], *night(20_000, OLD, threads=1)], [*good[1], *broken]
    found = compare_sides(*sides, Rule())
    fails = status is not CaseStatus.UNFIT
    assert found.fails(FailOn.SLOWER) is fails
    assert not found.fails(FailOn.NEVER)
    root = ElementTree.fromstring(to_junit(found))
    assert [item.attrib["type"] for item in root.iter("failure")] == ["broken"] * fails
    # A candidate that works where the baseline didn't is no failure.
    assert not compare_sides(sides[1], sides[0], Rule()).fails(FailOn.SLOWER)


def test_a_candidate_that_mostly_fails_is_broken_though_its_rest_is_as_fast() -> None:
    runs = series(case(), 20_000, 8, campaign_id=NEW)
    failed = [replace(run, outcome=Outcome.FAILED, report=None) for run in runs[:5]]
    (half,) = measured_cases([*failed, *runs[5:]], devices={}, builds={})
    found = compare_sides(night(20_000, OLD), [half], Rule())
    assert found.fails(FailOn.SLOWER)
    assert "(1 broken)" in summary_line(found)
    assert not compare_sides([half], night(20_000, NEW), Rule()).fails(FailOn.SLOWER)
    assert not compare_sides([half], [half], Rule()).fails(FailOn.SLOWER)


def test_outputs_that_turned_wrong_are_a_failure_and_first_whatever_is_let_pass() -> None:
    gpu = case(delegate=DelegateName.GPU, threads=1)

    def night_of_gpu(
        campaign: CampaignId, verdict: ParityVerdict, timing: list[RunRecord] | None = None
    ) -> CaseResult:
        runs = timing or series(gpu, 20_000, 8, campaign_id=campaign)
        compared = replace(parity(gpu, verdict, 0.97), campaign_id=campaign)
        (item,) = measured_cases([*runs, compared], devices={}, builds={})
        return item

    same, wrong = (
        night_of_gpu(campaign, ParityVerdict(word))
        for campaign, word in ((OLD, "same"), (NEW, "wrong"))
    )
    good = night(20_000, OLD, threads=1), night(18_000, NEW, threads=1)
    found = compare_sides([*good[0], same], [*good[1], wrong], Rule(allowed=frozenset(Fact)))
    assert found.fails(FailOn.SLOWER)
    assert not found.fails(FailOn.NEVER)
    suite = ElementTree.fromstring(to_junit(found))[0]
    assert [item.attrib["type"] for item in suite.iter("failure")] == ["broken"]
    assert "wrong-outputs" in to_junit(found)
    assert "1 faster, 1 incomparable (1 broken)" in to_text(found)
    assert [case["is_broken"] for case in to_data(found)["cases"]] == [True, False]  # type: ignore[attr-defined]
    # What was wrong before isn't the candidate's doing, and what wasn't compared before may have
    # been right.
    assert not compare_sides([wrong], [wrong], Rule()).rows[0].is_broken
    assert (
        compare_sides(night(20_000, OLD, threads=1), [replace(wrong, case=good[0][0].case)], Rule())
        .rows[0]
        .is_broken
    )
    stopped = night_of_gpu(
        NEW, ParityVerdict.WRONG, [run(gpu, 0, None, outcome=Outcome.ABORTED, campaign_id=NEW)]
    )
    (row,) = compare_sides([same], [stopped], Rule()).rows
    assert row.is_broken
    assert (
        "The candidate has no figure of its own (aborted; its outputs are wrong)."
        in row.verdict.reasons
    )
