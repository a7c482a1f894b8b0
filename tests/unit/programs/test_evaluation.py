"""Accuracies as LiteRT's evaluation programs print and write them."""

import pytest

from orchestrator.programs.grammar.evaluation import accuracy_in

CLASSIFICATION = (
    "Num evaluation runs: 300 # Total images evaluated\nPreprocessing latency: avg=13772.5(us), std_dev=0(us)\n"
    "Inference latency: avg=76578.4(us), std_dev=600(us)\nTop-1 Accuracy: 0.733333\nTop-2 Accuracy: 0.826667\n"
    "Top-10 Accuracy: 0.923333\n"
)
DETECTION = (
    "Num evaluation runs: 8059\nInference latency: avg=85169.7(us), std_dev=505(us)\n"
    "Average Precision [IOU Threshold=0.5]: 0.349581\nOverall mAP: 0.206576\n"
)
WRITTEN = (
    "num_runs: 300\nprocess_metrics {\n  image_classification_metrics {\n    topk_accuracy_metrics {\n"
    + "".join(f"      topk_accuracies: {share}\n" for share in (0.7, 0.8, 0.9))
    + "    }\n  }\n}\n"
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (CLASSIFICATION, (73.3333, "top-1")),
        (DETECTION, (20.6576, "mAP")),
        (WRITTEN, (70.0, "top-1")),
        (f"INFO: {CLASSIFICATION}".replace("\nTop", "\nINFO: Top"), (73.3333, "top-1")),
    ],
)
def test_the_accuracy_is_the_printed_one(text: str, wanted: tuple[float, str]) -> None:
    found = accuracy_in(text)
    assert found is not None
    assert found == (pytest.approx(wanted[0]), wanted[1])


@pytest.mark.parametrize(
    "text",
    ["", "Could not evaluate model!\n", CLASSIFICATION * 2, "Top-1 Accuracy: 71.8\n", "Top-1 Accuracy: 0.7"[:-4]],
)
def test_nothing_is_made_up(text: str) -> None:
    assert accuracy_in(text) is None
