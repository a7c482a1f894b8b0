"""Names of operators and types from the runtime's own schema, and the oldest runtime that has a model's operators.

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

from orchestrator.models.graph import Graph, Operator, Subgraph, Tensor


@functools.cache
def schema_names() -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names of operators and of tensor types by their numbers."""
    from ai_edge_litert import schema_py_generated as schema

    def by_number(enumeration: type) -> dict[int, str]:
        return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}

    return by_number(schema.BuiltinOperator), by_number(schema.TensorType)


def operator_name(operator: Operator) -> str:
    """Return an operator's name: the schema's, or the one that its author gave it."""
    name = schema_names()[0].get(operator.code, f"UNKNOWN_{operator.code}")
    return operator.custom_name or name if name == "CUSTOM" else name


def is_custom(operator: Operator) -> bool:
    """Whether an operator is outside of the builtin set."""
    return schema_names()[0].get(operator.code) == "CUSTOM"


def dtype_of(tensor: Tensor) -> str:
    """Return a tensor's type as the schema names it, in lower case."""
    return schema_names()[1].get(tensor.type_number, f"unknown_{tensor.type_number}").lower()


def data_input(name: str) -> int:
    """Return which input of an operator is its data."""
    return {"TRANSPOSE_CONV": 2, "SPLIT": 1}.get(name, 0)


def widened(subgraph: Subgraph) -> Mapping[int, Tensor]:
    """Return the constants that are stored small and widened before use: result -> what it is widened from."""
    return {
        operator.outputs[0]: subgraph.tensors[operator.inputs[0]]
        for operator in subgraph.operators
        if operator_name(operator) in {"DEQUANTIZE", "DENSIFY"}
        and operator.inputs
        and operator.outputs
        and operator.inputs[0] >= 0
        and subgraph.tensors[operator.inputs[0]].constant_bytes
    }


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
