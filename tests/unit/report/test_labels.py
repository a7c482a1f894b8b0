import pytest

from orchestrator.analysis.quality import CODES
from orchestrator.errors import ArtifactError, DeviceError, HostStorageError
from orchestrator.records.run import DelegateEvidence, DelegateTruth
from orchestrator.report.labels import column_decimals, truth_words, unique_labels
from orchestrator.report.next_steps import ERROR_STEPS, finding_step


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


def kinds(parent):
    for kind in parent.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_error_that_can_end_an_invocation_has_a_next_step():
    codes = {kind().code for parent in (DeviceError, ArtifactError, HostStorageError) for kind in kinds(parent)}
    codes |= {ArtifactError().code, HostStorageError().code}
    assert codes
    assert codes - set(ERROR_STEPS) == set()


def test_names_that_would_look_the_same_get_their_identity():
    labels = unique_labels({"aaa": "Pixel 3", "bbb": "Pixel 3", "ccc": "Pixel 4", "ddd": ""})
    assert labels == {"aaa": "Pixel 3 (aaa)", "bbb": "Pixel 3 (bbb)", "ccc": "Pixel 4", "ddd": "(ddd)"}
