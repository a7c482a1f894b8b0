import pytest

from orchestrator.analysis.quality import CODES
from orchestrator.records.run import DelegateEvidence, DelegateTruth
from orchestrator.report.labels import column_decimals, truth_words, unique_labels
from orchestrator.report.next_steps import finding_step


@pytest.mark.parametrize(
    ("values", "decimals"),
    [([6.45, 486.0], 2), ([23.9, 56.0], 1), ([0.94, 61.0], 2), ([0.021], 3), ([], 1), ([0.0, 120.0], 1), ([1e-7], 4)],
)
def test_column_gets_the_decimals_that_its_smallest_figure_needs(values, decimals):
    assert column_decimals(values) == decimals


def test_every_delegate_truth_has_words():
    assert all(truth_words(DelegateEvidence(truth=truth)) for truth in DelegateTruth)


def test_partial_delegation_tells_how_much():
    evidence = DelegateEvidence(truth=DelegateTruth.PARTIAL, delegated_nodes=28, total_nodes=31)
    assert truth_words(evidence) == "partial 28/31"


def test_every_finding_code_has_a_next_step():
    assert [code for code in CODES if not finding_step(code)] == []


def test_names_that_would_look_the_same_get_their_identity():
    labels = unique_labels({"aaa": "Pixel 3", "bbb": "Pixel 3", "ccc": "Pixel 4", "ddd": ""})
    assert labels == {"aaa": "Pixel 3 (aaa)", "bbb": "Pixel 3 (bbb)", "ccc": "Pixel 4", "ddd": "(ddd)"}
