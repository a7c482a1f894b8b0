"""What LiteRT's evaluation programs (``run_eval`` of imagenet_image_classification and coco_object_detection) print.

Newer ones print their metrics, older ones write them as the text of a protocol buffer; both are read.
"""

from __future__ import annotations

import re
from typing import Final

#: Best first: what is called the accuracy of a task.
_ACCURACIES: Final = (
    ("top-1", re.compile(r"Top-1 Accuracy: (?P<share>\d[\d.e-]*)\s*$", re.MULTILINE)),
    # The first of ten, for k from 1 on.
    ("top-1", re.compile(r"^\s*topk_accuracies: (?P<share>\d[\d.e-]*)\s*$", re.MULTILINE)),
    ("mAP", re.compile(r"Overall mAP: (?P<share>\d[\d.e-]*)\s*$", re.MULTILINE)),
    ("mAP", re.compile(r"^\s*overall_mean_average_precision: (?P<share>\d[\d.e-]*)\s*$", re.MULTILINE)),
)


def accuracy_in(text: str) -> tuple[float, str] | None:
    """Return the accuracy in percent that an evaluation printed, and its metric; None where there is none.

    Of several evaluations in one text none is taken: nobody knows which is meant.
    """
    for metric, pattern in _ACCURACIES:
        found = [match["share"] for match in pattern.finditer(text)]
        if pattern.pattern.startswith(r"^\s*topk") and len(found) <= 10:
            found = found[:1]
        if len(found) != 1:
            continue
        try:
            share = float(found[0])
        except ValueError:
            return None
        return (100 * share, metric) if 0 <= share <= 1 else None
    return None
