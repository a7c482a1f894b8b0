"""Names of operators and types, from the runtime's own schema, and which of an operator's inputs is its data."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from orchestrator.models.graph import Operator, Subgraph, Tensor


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
