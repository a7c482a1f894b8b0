"""How two .tflite files differ, without running them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from orchestrator.models.graph import Graph, dtype_of, operator_name
from orchestrator.models.inspect import identify_model, inspect_model, open_graph
from orchestrator.records.model import ModelChange, ModelFacts, SignatureFacts, TensorFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How two models differ."""

    is_same_file: bool
    changes: Sequence[ModelChange]


def compare_models(first: Path, second: Path) -> Compared:
    """Tell two models apart; raises ModelError."""
    changes = [
        *differences(inspect_model(first), inspect_model(second)),
        *operator_changes(open_graph(first), open_graph(second)),
    ]
    return Compared(
        is_same_file=identify_model(first).sha256 == identify_model(second).sha256, changes=changes
    )


#: Facts that are compared by counts below instead.
_COUNTED = frozenset({"operators", "tensors", "metadata"})
_UNCOMPARED = frozenset({"is_runtime_told"})


def differences(first: ModelFacts, second: ModelFacts) -> list[ModelChange]:
    """Return each fact that differs, and each operator and tensor type whose count does."""
    changes = [
        ModelChange(what=field.name, first=_shown(one), second=_shown(two))
        for field in fields(ModelFacts)
        if field.name not in _COUNTED | _UNCOMPARED
        and (one := getattr(first, field.name)) != (two := getattr(second, field.name))
    ]
    for what in sorted(_COUNTED, reverse=True):
        one, two = getattr(first, what), getattr(second, what)
        changes += [
            ModelChange(
                what=f"{what} {name}", first=str(one.get(name, 0)), second=str(two.get(name, 0))
            )
            for name in sorted({*one, *two})
            if one.get(name, 0) != two.get(name, 0)
        ]
    return changes


def operator_changes(first: Graph, second: Graph) -> list[ModelChange]:
    """Return the operators of the main subgraphs that only one has, by kind, result shape and type."""
    one, two = (Counter(_operators(graph)) for graph in (first, second))
    return [
        ModelChange(what=f"operator {line}", first=str(one[line]), second=str(two[line]))
        for line in sorted({*one, *two})
        if one[line] != two[line]
    ]


def _operators(graph: Graph) -> Iterator[str]:
    subgraph = graph.subgraphs[0]
    for operator in subgraph.operators:
        results = [subgraph.tensors[index] for index in operator.outputs if index >= 0]
        shown = ", ".join(f"{dtype_of(tensor)}{list(tensor.shape)}" for tensor in results)
        yield f"{operator_name(operator)} -> {shown}"


def _shown(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, tuple):
        return "; ".join(_shown(item) for item in value) or "none"
    if isinstance(value, TensorFacts):
        return f"{value.name}: {value.dtype}{list(value.shape_signature)}"
    if isinstance(value, SignatureFacts):
        return f"{value.key}({', '.join(value.inputs)})"
    return str(value)
