"""The oldest TensorFlow Lite runtime that has a model's operators, by the versions of these.

``runtime_versions.csv`` holds, for each operator, the release that its versions 1, 2 ... came with (``-``: that version
never was in one), as tensorflow/compiler/mlir/lite/tools/versioning/runtime_version.cc of tensorflow/tensorflow has
them.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.models.graph import Graph
from orchestrator.models.names import is_custom, operator_name

_RELEASE: Final = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}", re.ASCII)


def oldest_runtime(graph: Graph) -> str:
    """Return the release that has all builtin operators, for example ``2.3.0``; empty where one of them isn't known.

    Custom and Flex operators don't come with a runtime and aren't looked at.
    """
    needed = []
    for subgraph in graph.subgraphs:
        for operator in subgraph.operators:
            if is_custom(operator):
                continue
            releases = _releases().get(operator_name(operator), ())
            release = releases[operator.version - 1] if 0 < operator.version <= len(releases) else "-"
            if release == "-":
                return ""
            needed.append(release)
    return max(needed, key=_parts, default="")


def newest_of(told: str, found: str) -> str:
    """Return the newer of what a file tells and what its operators need: converters write it before they quantise.

    A file may tell anything; what is no release is kept as it is where nothing better is known.
    """
    if not _RELEASE.fullmatch(told):
        return found or told
    return max(told, found, key=_parts) if found else told


def _parts(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


@functools.cache
def _releases() -> Mapping[str, tuple[str, ...]]:
    path = Path(str(resources.files("orchestrator.models"))) / "runtime_versions.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        return {row["operator"]: tuple(row["runtimes"].split()) for row in csv.DictReader(stream)}
