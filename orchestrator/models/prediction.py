"""Which operators a delegate is likely to take, by documented tables, and where its partitions break.

The tables (``delegate_tables/<delegate>.csv``) are data: a line per operator and condition, and its document.
An operator is taken when one of its lines allows it. Columns: ``types`` of the data that comes in, ``weights`` (the
second input) as they are stored, ``min_sdk`` of Android, and ``rules``, each a name (an option, or one of
``OperatorView.answers``), ``=``, ``<=`` or ``>=``, and values.

What phones printed goes before the documents (``models.learning``).
"""

from __future__ import annotations

import csv
import functools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.errors import UsageError
from orchestrator.models.graph import Graph, Operator, Subgraph, Tensor, data_input, dtype_of, operator_name, widened
from orchestrator.records.model import DelegatePrediction, LearnedOperator, Refusal

_ACTIVATIONS: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")


Answer = int | float | str | None


class OperatorView:
    """A subgraph whose operators are asked about."""

    def __init__(self, subgraph: Subgraph) -> None:
        """Find the constants that are widened before use once."""
        self.subgraph = subgraph
        self._widened = widened(subgraph)

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor's content is in the file, also one that is widened before use."""
        return tensor >= 0 and bool(self._stored(tensor).constant_bytes)

    def _stored(self, tensor: int) -> Tensor:
        return self._widened.get(tensor, self.subgraph.tensors[tensor])

    def data(self, operator: Operator) -> Tensor | None:
        """Return what comes in."""
        return self.at(operator, data_input(operator_name(operator)))

    def at(self, operator: Operator, place: int) -> Tensor | None:
        """Return an input, None where it is left out."""
        index = operator.inputs[place] if place < len(operator.inputs) else -1
        return self.subgraph.tensors[index] if index >= 0 else None

    def data_type(self, operator: Operator) -> str:
        """Return the type of what comes in."""
        data = self.data(operator)
        return "" if data is None else dtype_of(data).upper()

    def weights_type(self, operator: Operator) -> str:
        """Return how the second input is stored."""
        return "" if self.at(operator, 1) is None else dtype_of(self._stored(operator.inputs[1])).upper()

    def answers(self, operator: Operator) -> Mapping[str, Answer]:
        """Return all that rules ask of an operator beside its options; None where the file doesn't say."""
        data, second = self.data(operator), self.at(operator, 1)
        result = self.subgraph.tensors[operator.outputs[0]] if operator.outputs and operator.outputs[0] >= 0 else None
        given = [tensor for tensor in operator.inputs if tensor >= 0]
        tensors = [self.subgraph.tensors[index] for index in given]
        stored = {dtype_of(self._stored(tensor)) for tensor in given}
        sides = [operator.options.get(f"filter_{side}") for side in ("width", "height")]
        found: dict[str, Answer] = {
            "inputs": len(given),
            # Inputs that are left out have a place, too, unless they are the last.
            "slots": len(operator.inputs),
            "outputs": len(operator.outputs),
            "computed_inputs": sum(not self.is_constant(tensor) for tensor in given),
            "version": operator.version,
            "hybrid": int(self.data_type(operator) == "FLOAT32" and bool(stored & {"int8", "uint8"})),
            "filter_area": math.prod(side for side in sides if side is not None) if None not in sides else None,
            "one_scale": int(len({(tensor.scales, tensor.zero_points) for tensor in tensors}) <= 1),
        }
        if data is not None:
            # Packing makes a dimension, unpacking takes one away.
            last = len(data.shape) - (0 if operator_name(operator) == "PACK" else 1)
            axis = operator.options.get("axis")
            found["rank"] = len(data.shape)
            found["zero_point"] = data.zero_points[0] if data.zero_points else None
            found["last_axis"] = None if axis is None else int(axis in {-1, last})
        if second is not None:
            found["rank_1"] = len(second.shape)
            found["filter_width"] = second.shape[2] if len(second.shape) == 4 else None
            if data is not None:
                found["same_shape"] = int(data.shape == second.shape)
                found["broadcast"] = int(data.shape[:-2] != second.shape[:-2])
        if result is not None:
            found["output_rank"] = len(result.shape)
            found["output_type"] = dtype_of(result).upper()
            found["square"] = int(len(result.shape) == 4 and result.shape[1] == result.shape[2])
        found |= operator.options
        if "activation" in operator.options:
            number = int(operator.options["activation"])
            found["activation"] = _ACTIVATIONS[number] if 0 <= number < len(_ACTIVATIONS) else str(number)
        return found


#: The delegates that there are tables for.
PREDICTED: Final = tuple(name.value for name, own in DELEGATES.items() if own.has_operator_table)
#: Those that take only their largest partition.
LARGEST_ONLY: Final = frozenset(name.value for name, own in DELEGATES.items() if own.takes_largest_only)
#: The newest Android that the tables speak of.
NEWEST_SDK: Final = 36


#: One line of a table by its columns.
_Line = Mapping[str, str]


def predict(
    graph: Graph, delegate: str, *, sdk: int = NEWEST_SDK, learned: Mapping[str, LearnedOperator] | None = None
) -> DelegatePrediction:
    """Return what a delegate is likely to do with the main subgraph.

    Args:
        graph: The model.
        delegate: One of :data:`PREDICTED`.
        sdk: Android's API level, which decides what NNAPI takes.
        learned: What phones said: refusals by operator name, what was taken by :func:`kinds`.

    Raises:
        UsageError: there is no table for this delegate.
    """
    table = _table(delegate)
    subgraph = graph.subgraphs[0]
    view = OperatorView(subgraph)
    used = 0
    refusals: dict[int, Refusal] = {}
    for index, operator in enumerate(subgraph.operators):
        name = operator_name(operator)
        word = learned.get(name) or learned.get(_kind(view, operator)) if learned else None
        if word is not None:
            used += 1
            if not word.is_taken:
                refusals[index] = Refusal(index=index, operator=name, reason=word.reason, source=word.source)
            continue
        reason, source = _why_not(view, operator, table.get(name, ()), sdk)
        if reason:
            refusals[index] = Refusal(index=index, operator=name, reason=reason, source=source or f"{delegate}.csv")
    parts = partitions(subgraph, [index not in refusals for index in range(len(subgraph.operators))])
    kept = sorted(parts, key=len, reverse=True)[:1] if delegate in LARGEST_ONLY else parts
    return DelegatePrediction(
        delegate=delegate,
        operator_count=len(subgraph.operators),
        taken=sum(map(len, kept)),
        partitions=len(kept),
        partitions_left_out=len(parts) - len(kept),
        refusals=tuple(refusals[index] for index in sorted(refusals)),
        learned=used,
        parts=tuple(map(tuple, sorted(kept))),
    )


def kinds(graph: Graph) -> list[str]:
    """Return what each operator of the main subgraph is: name, types, rank, which inputs are constant, options."""
    view = OperatorView(graph.subgraphs[0])
    return [_kind(view, operator) for operator in graph.subgraphs[0].operators]


def _kind(view: OperatorView, operator: Operator) -> str:
    options = " ".join(f"{name}={value:g}" for name, value in sorted(operator.options.items()))
    data = view.data(operator)
    rank = None if data is None else len(data.shape)
    types = f"{view.data_type(operator)} {view.weights_type(operator)} rank={rank}"
    stored = "".join("k" if view.is_constant(tensor) else "-" for tensor in operator.inputs)
    return f"{operator_name(operator)} {types} inputs={stored} {options}".rstrip()


def partitions(subgraph: Subgraph, can_take: Sequence[bool]) -> list[list[int]]:
    """Return the operators of each partition that a delegate gets.

    As the runtime does it (tensorflow/lite/graph_info.cc): whatever is ready and of the same side joins the partition,
    until only operators of the other side are ready.
    """
    readers: dict[int, list[int]] = {}
    missing = [0] * len(subgraph.operators)
    made = {tensor for operator in subgraph.operators for tensor in operator.outputs if tensor >= 0}
    for index, operator in enumerate(subgraph.operators):
        for tensor in {tensor for tensor in operator.inputs if tensor in made and tensor not in operator.outputs}:
            readers.setdefault(tensor, []).append(index)
            missing[index] += 1
    ready = {
        side: deque(i for i, count in enumerate(missing) if not count and can_take[i] is side) for side in (True, False)
    }
    done: set[int] = set()
    found: list[list[int]] = []
    while ready[True] or ready[False]:
        side = bool(ready[True]) and (not ready[False] or ready[True][0] < ready[False][0])
        part: list[int] = []
        while ready[side]:
            index = ready[side].popleft()
            part.append(index)
            for tensor in {tensor for tensor in subgraph.operators[index].outputs if tensor not in done}:
                done.add(tensor)
                for reader in readers.get(tensor, ()):
                    missing[reader] -= 1
                    if not missing[reader]:
                        ready[can_take[reader]].append(reader)
        if side:
            found.append(sorted(part))
    return found


def _why_not(view: OperatorView, operator: Operator, lines: Sequence[_Line], sdk: int) -> tuple[str, str]:
    """Return why none of an operator's lines allows it and the document of the nearest; empty when one does."""
    if not lines:
        return "isn't among the operators that the delegate is documented to take", ""
    reasons = []
    for line in lines:
        reason = _broken(view, operator, line, sdk)
        if not reason:
            return "", ""
        reasons.append((reason, line["source"]))
    return reasons[-1] if len(reasons) == 1 else ("; or ".join(dict.fromkeys(r for r, _ in reasons)), reasons[-1][1])


def _broken(view: OperatorView, operator: Operator, line: _Line, sdk: int) -> str:
    if sdk < int(line["min_sdk"] or 0):
        return f"needs Android API {line['min_sdk']}, this is {sdk}"
    for what, own, taken in (
        ("data is", view.data_type(operator), line["types"].split()),
        ("weights are", view.weights_type(operator), line["weights"].split()),
    ):
        if taken and own not in taken:
            return f"its {what} {own or 'missing'}, {' or '.join(sorted(taken))} is taken"
    rules = [_rule(text) for text in line["rules"].split(";") if text]
    answers = view.answers(operator) if rules else {}
    for what, sign, values in rules:
        if what == "constant":
            # An input that is left out, such as a shape that the options give, isn't computed either.
            places = [int(value) for value in values if int(value) < len(operator.inputs)]
            computed = [p for p in places if operator.inputs[p] >= 0 and not view.is_constant(operator.inputs[p])]
            if computed:
                return f"input {computed[0]} is computed, but must be constant"
            continue
        value = answers.get(what)
        if value is not None and not _fits(value, sign, values):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            return f"{what} is {shown}, must be {'' if sign == '=' else sign + ' '}{' or '.join(values)}"
    return ""


def _fits(value: int | float | str, sign: str, values: tuple[str, ...]) -> bool:
    if isinstance(value, str):
        return value in values
    limits = [float(limit) for limit in values]
    if sign == "=":
        return value in limits
    return value <= limits[0] if sign == "<=" else value >= limits[0]


@functools.cache
def _table(delegate: str) -> Mapping[str, Sequence[_Line]]:
    if delegate not in PREDICTED:
        raise UsageError(
            f"nothing is known of which operators {delegate!r} takes", hint=f"choose of {', '.join(PREDICTED)}"
        )
    path = Path(str(resources.files("orchestrator.models"))) / "delegate_tables" / f"{delegate}.csv"
    found: dict[str, list[_Line]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            found.setdefault(row["operator"], []).append(row)
    return found


def _rule(text: str) -> tuple[str, str, tuple[str, ...]]:
    sign = next(sign for sign in ("<=", ">=", "=") if sign in text)
    what, values = text.split(sign, 1)
    return what, sign, tuple(values.split())
