"""Terms and codes are explained from the pages, and every code that a run can carry is among them."""

import pytest

from orchestrator.cli.explaining import entries, explain
from orchestrator.errors import UsageError
from orchestrator.records.failures import FAILURES, INSTALL_STEPS
from orchestrator.records.parity import Outputs
from orchestrator.tables.rows import BestMark


def test_a_finding_with_all_its_columns() -> None:
    text = explain("few-runs").text
    assert "severity: warning" in text
    assert "what to do: Raise num_runs" in text


@pytest.mark.parametrize("code", [*FAILURES, *INSTALL_STEPS])
def test_every_failure_code(code: str) -> None:
    assert f"{code}  (docs/reference/failures.md)\n" in explain(code).text


#: Of the columns that say who won, and whether its outputs are right.
MARKS = [word.value for word in (*BestMark, *Outputs) if word.value]


@pytest.mark.parametrize(
    "word",
    ["C", "median", "truth", "not-precise", "winner", "precision", "outputs", "vs CPU", *MARKS],
)
def test_words_of_tables_are_explained(word: str) -> None:
    assert len(explain(word).text.splitlines()) > 1


def test_a_word_that_is_none_names_the_closest() -> None:
    with pytest.raises(UsageError, match="thortled") as raised:
        explain("thortled")
    assert raised.value.hint == "did you mean 'throttled'?"


def test_without_a_word_all_are_listed() -> None:
    assert "delegate-fell-back" in explain("").text
    assert len(list(entries())) > 100


def test_a_page_that_a_message_names_is_shown_as_it_is_named() -> None:
    assert explain("docs/guides/compare.md").text == explain("guides/compare").text
    assert explain("reference/plans").text.startswith("# Plans\n")
    assert "reference/plans" in explain("").text
    with pytest.raises(UsageError, match="no term, code or page") as caught:
        explain("reference/plan")
    assert "reference/plans" in caught.value.hint


def test_a_word_that_names_several_pages_lists_them() -> None:
    with pytest.raises(UsageError, match="several pages") as caught:
        explain("virtual-phones")
    assert caught.value.hint == "choose of guides/virtual-phones, reference/virtual-phones"
