"""What LiteRT's evaluation programs print: ``run_eval`` of image classification, object detection and inference_diff.

Newer ones print their metrics, older ones write them as the text of a protocol buffer; both are read. Older ones end
with exit code 0 whatever happens, so their words decide.
"""

from __future__ import annotations

import math
import re
from typing import Final

from orchestrator.records.evaluation import Evaluated

_NUMBER: Final = r"(?P<value>\d[\d.]*(?:e[+-]?\d+)?)"
#: Best first: what is called the accuracy of a task.
_ACCURACIES: Final = (
    ("top-1", re.compile(rf"Top-1 Accuracy: {_NUMBER}\s*$", re.MULTILINE)),
    # The first of ten, for k from 1 on.
    ("top-1", re.compile(rf"^\s*topk_accuracies: {_NUMBER}\s*$", re.MULTILINE)),
    ("mAP", re.compile(rf"Overall mAP: {_NUMBER}\s*$", re.MULTILINE)),
    ("mAP", re.compile(rf"^\s*overall_mean_average_precision: {_NUMBER}\s*$", re.MULTILINE)),
)
_TOPS: Final = 10
_COUNT: Final = re.compile(r"(?:Num evaluation runs:|^num_runs:) (?P<count>\d{1,9})\b", re.MULTILINE)
_DIFFERENCE: Final = re.compile(
    r"OutputDiff\[(?P<place>\d{1,4})\]: avg_error=(?P<mean>[\w.+-]+), std_dev=(?P<std>[\w.+-]+)\s*$", re.MULTILINE
)
#: Lines that end an evaluation, or make its figure another one than was asked for.
_FAULTS: Final = re.compile(
    r"^.*(?:Could not (?:read|evaluate|create|run|build)\b|Number of images and ground truth labels"
    r"|Model file not found|Model path not provided|Unsupported TFLite delegate|Failed to apply delegate"
    r"|failed to invoke|only supports .* types|metrics are meaningless|delegate not supported|delegate is not supported"
    r"|NNAPI not supported|required libraries are missing).*$",
    re.MULTILINE,
)
_CREATED: Final = re.compile(
    r"(?:Successfully created (?P<old>\w+) delegate\b|\b(?P<new>\w+) delegate is created\b"
    r"|with delegate \((?P<taken>\w+)\) node)"
)


def accuracy_in(text: str) -> tuple[float, str] | None:
    """Return the accuracy in percent that an evaluation printed, and its metric; None where there is none.

    Of several evaluations in one text none is taken: nobody knows which is meant.
    """
    for metric, pattern in _ACCURACIES:
        found = [match["value"] for match in pattern.finditer(text)]
        if pattern.pattern.startswith(r"^\s*topk") and len(found) <= _TOPS:
            found = found[:1]
        if len(found) != 1:
            continue
        share = _float(found[0])
        return (100 * share, metric) if 0 <= share <= 1 else None
    return None


def evaluated_in(text: str) -> Evaluated | str:
    """Return what one evaluation found; else why there is nothing, in words for people."""
    if fault := _FAULTS.search(text):
        return fault[0].strip()
    counts = {int(match["count"]) for match in _COUNT.finditer(text)}
    count = counts.pop() if len(counts) == 1 else None
    if accuracy := accuracy_in(text):
        # What an older program writes ends with a bracket for each that it began with.
        if text.count("{") > text.count("}"):
            return "its output is cut off"
        return Evaluated(metric=accuracy[1], percent=accuracy[0], count=count) if count != 0 else "it saw no images"
    found = [(int(match["place"]), _float(match["mean"]), _float(match["std"])) for match in _DIFFERENCE.finditer(text)]
    if found and [place for place, _, _ in found] == list(range(len(found))):
        if any(math.isnan(value) or math.isinf(value) for each in found for value in each[1:]):
            return "an output has no number as its difference: the delegate computes NaN or infinity"
        return Evaluated(metric="difference", count=count, differences=tuple((mean, std) for _, mean, std in found))
    return "it printed no figure: its output is cut off, or it isn't one of LiteRT's evaluation programs"


def delegates_in(text: str) -> frozenset[str]:
    """Return the delegates that the text says were created or took operators, as it calls them, in lower case."""
    return frozenset(str(match[match.lastgroup or 0]).lower() for match in _CREATED.finditer(text))


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
