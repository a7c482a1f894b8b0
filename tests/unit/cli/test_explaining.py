"""Words that are explained, lists of runs, and command lines."""

from __future__ import annotations

import re

import pytest

from orchestrator.app.exporting import FORMATS
from orchestrator.app.stored import listed_runs
from orchestrator.cli.explaining import entries, explain
from orchestrator.errors import UsageError
from orchestrator.passes import pass_names
from orchestrator.records.failures import FAILURES, INSTALL_STEPS
from orchestrator.records.plan import Plan, keys_of
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Outputs
from orchestrator.tables.renderers import as_text
from orchestrator.tables.results import RESULTS, listed_table
from orchestrator.tables.rows import BestMark
from orchestrator.tables.runs import runs_table
from tests.samples.places import REPO
from tests.samples.sample_lab import rich_lab, small_lab


def test_a_finding_with_all_its_columns() -> None:
    text = explain("few-inferences").text
    assert "severity: warning" in text
    assert "what to do: Raise num_runs" in text


def test_every_failure_code() -> None:
    known = {(entry.term, entry.page) for entry in entries()}
    for code in (*FAILURES, *INSTALL_STEPS):
        assert (code, "reference/failures.md") in known


#: Of the columns that say who won, and whether its outputs are right.
MARKS = [word.value for word in (*BestMark, *Outputs) if word.value]


DATA = small_lab().data()
LISTED = listed_table(DATA.results)


def test_words_of_tables_are_explained() -> None:
    words = ["C", "truth", "not-precise", "precision", "whole", "cut", "text.unknown", *MARKS]
    words += [column.head for column in LISTED.columns if column.head]
    assert [word for word in words if len(explain(word).text.splitlines()) < 2] == []


def test_passes_keys_columns_and_formats_are_explained() -> None:
    told = [
        *((name, "what it measures: ") for name in pass_names()),
        *((".".join(key.at), "value: ") for key in keys_of(Plan)),
        ("num_runs", "default: 50"),
        *((column.name, "") for column in RESULTS),
        *((name, "what it is: ") for name in FORMATS),
    ]
    assert [word for word, words in told if words not in explain(word).text] == []


def test_the_first_table_that_a_reader_sees_has_the_heads_that_it_has_today() -> None:
    page = (REPO / "docs" / "start" / "first-phone.md").read_text("utf-8")
    (line,) = re.findall(r"(?m)^ +median ms .*$", page)
    of_tokens = "tokens_per_s"
    heads = [column.title for column in LISTED.columns[2:] if column.name != of_tokens]
    assert line.split() == " ".join(heads).split(), "docs/start/first-phone.md, written by hand"


def test_a_word_that_is_none_names_the_closest() -> None:
    with pytest.raises(UsageError, match="thortled") as raised:
        explain("thortled")
    assert raised.value.hint == "did you mean 'throttled'?"


def test_without_a_word_all_are_listed() -> None:
    assert "delegate-fell-back" in explain("").text
    assert "reference/plans" in explain("").text


def test_a_page_that_a_message_names_is_shown_as_it_is_named() -> None:
    assert explain("docs/guides/compare.md").text == explain("guides/compare").text
    assert explain("plans").text.startswith("# Plans\n")
    with pytest.raises(UsageError, match="no term, code or page") as caught:
        explain("reference/plan")
    assert "reference/plans" in caught.value.hint


def test_a_run_that_fell_back_has_a_reason_and_no_figure() -> None:
    fell = [run for run in rich_lab().runs if run.reason_code == "delegate-fell-back"]
    assert fell
    assert all(run.report is not None and run.report.latency_us() for run in fell)
    for table in (listed_runs(fell), runs_table(fell)):
        told = as_text(table, 300)
        assert "delegate-fell-back" in told
        assert " ms" not in told.split("\n", 1)[1]
        for run in fell:
            assert f"{run.report.latency_us() / 1000:.2f}" not in told


def test_each_run_of_a_virtual_phone_says_so() -> None:
    runs = [run for run in small_lab().runs if run.is_virtual and run.outcome is Outcome.COMPLETED]
    assert runs
    lines = as_text(listed_runs(runs), 300).split("\n")[1:]
    assert all("(virtual)" in line for line in lines[: len(runs)])
