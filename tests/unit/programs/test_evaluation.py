"""Accuracies as LiteRT's evaluation programs print and write them."""

import pytest

from orchestrator.programs.grammar.evaluation import accuracy_in, delegates_in, evaluated_in
from orchestrator.records.evaluation import Evaluated

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


DIFFERENCE = (
    "INFO: Num evaluation runs: 50\nINFO: Reference run latency: avg=84364.2(us), std_dev=12525(us)\n"
    "INFO: Test run latency: avg=7281.64(us), std_dev=2089(us)\n"
    "INFO: OutputDiff[0]: avg_error=1.96277e-05, std_dev=6.95767e-06\nINFO: OutputDiff[1]: avg_error=0, std_dev=0\n"
)


def test_one_evaluation_is_how_much_it_saw_or_how_far_its_outputs_are_off() -> None:
    for text, metric, percent, count in (
        (CLASSIFICATION, "top-1", 73.3333, 300), (WRITTEN, "top-1", 70.0, 300), (DETECTION, "mAP", 20.6576, 8059),
    ):  # fmt: skip
        found = evaluated_in(text)
        assert isinstance(found, Evaluated)
        assert (found.metric, found.percent, found.count) == (metric, pytest.approx(percent), count)
    found = evaluated_in(DIFFERENCE)
    assert found == Evaluated(metric="difference", count=50, differences=((1.96277e-05, 6.95767e-06), (0, 0)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # Programs before 2020 end so with exit code 0.
        (CLASSIFICATION + "Could not evaluate model", "Could not evaluate model"),
        ("ERROR: Number of images and ground truth labels is not same\n", "ERROR: Number of images and ground"),
        (DETECTION + "WARN: mAP metrics are meaningless w/o ground truth.\n", "meaningless"),
        ("WARN: GPU delegate not supported.\n" + DIFFERENCE, "GPU delegate not supported."),
        ("WARN: Unsupported TFLite delegate: npu\n", "Unsupported TFLite delegate: npu"),
        ("NNAPI not supported\n" + DIFFERENCE, "NNAPI not supported"),
        (WRITTEN.rstrip("}\n "), "cut off"),
        (DIFFERENCE.partition("Output")[0], "cut off"),
        (DIFFERENCE.replace("1.96277e-05", "nan"), "NaN"),
        (CLASSIFICATION.replace("300", "0"), "no images"),
        (DETECTION.replace("0.206576", "nan"), "cut off"),
        ("", "cut off"),
    ],
)
def test_what_is_no_evaluation_says_why(text: str, why: str) -> None:
    found = evaluated_in(text)
    assert isinstance(found, str), found
    assert why in found


def test_the_delegates_are_those_that_the_program_names() -> None:
    text = (
        "INFO: GPU delegate is created.\nSuccessfully created NNAPI delegate.\n"
        "INFO: Replacing 29 out of 31 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 1 partitions\n"
    )
    assert delegates_in(text) == {"gpu", "nnapi", "tflitexnnpackdelegate"}
    assert delegates_in("WARN: GPU delegate not supported.") == frozenset()
