"""What the rules of delegates' tables ask of an operator: its types, ranks and options, as the file tells them."""

from __future__ import annotations

import math
from typing import Final

from orchestrator.models.graph import Operator, Subgraph, Tensor
from orchestrator.models.names import data_input, dtype_of, operator_name, widened

_ACTIVATIONS: Final = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")


class OperatorView:
    """A subgraph whose operators are asked about."""

    def __init__(self, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self.widened = widened(subgraph)

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor's content is in the file, also one that is widened before use."""
        source = self.widened.get(tensor)
        return tensor >= 0 and bool((source or self.subgraph.tensors[tensor]).constant_bytes)

    def data_type(self, operator: Operator) -> str:
        """Return the type of what comes in."""
        place = data_input(operator_name(operator))
        if place >= len(operator.inputs) or operator.inputs[place] < 0:
            return ""
        return dtype_of(self.subgraph.tensors[operator.inputs[place]]).upper()

    def weights_type(self, operator: Operator) -> str:
        """Return how the second input is stored."""
        if len(operator.inputs) < 2 or operator.inputs[1] < 0:
            return ""
        tensor = operator.inputs[1]
        return dtype_of(self.widened.get(tensor, self.subgraph.tensors[tensor])).upper()

    def data(self, operator: Operator) -> Tensor | None:
        """Return what comes in."""
        return self.at(operator, data_input(operator_name(operator)))

    def at(self, operator: Operator, place: int) -> Tensor | None:
        """Return an input, None where it is left out."""
        if place >= len(operator.inputs) or operator.inputs[place] < 0:
            return None
        return self.subgraph.tensors[operator.inputs[place]]

    def value(self, operator: Operator, what: str) -> int | float | str | None:
        """Return what a rule asks for, None when the file doesn't tell."""
        given = [tensor for tensor in operator.inputs if tensor >= 0]
        match what:
            case "inputs":
                return len(given)
            case "slots":
                # Inputs that are left out have a place, too, unless they are the last.
                return len(operator.inputs)
            case "outputs":
                return len(operator.outputs)
            case "computed_inputs":
                return sum(not self.is_constant(tensor) for tensor in given)
            case "version":
                return operator.version
            case "hybrid":
                stored = {dtype_of(self.widened.get(i, self.subgraph.tensors[i])) for i in given}
                return int(self.data_type(operator) == "FLOAT32" and bool(stored & {"int8", "uint8"}))
            case "activation" if "activation" in operator.options:
                number = int(operator.options["activation"])
                return _ACTIVATIONS[number] if 0 <= number < len(_ACTIVATIONS) else str(number)
        if what in operator.options:
            return operator.options[what]
        return self._of_output(operator, what) if what in _OF_OUTPUT else self._of_inputs(operator, what)

    def _of_output(self, operator: Operator, what: str) -> int | str | None:
        if not operator.outputs or operator.outputs[0] < 0:
            return None
        result = self.subgraph.tensors[operator.outputs[0]]
        match what:
            case "output_rank":
                return len(result.shape)
            case "output_type":
                return dtype_of(result).upper()
            case _:  # square: height and width of the result are the same
                return int(len(result.shape) == 4 and result.shape[1] == result.shape[2])

    def _of_inputs(self, operator: Operator, what: str) -> int | float | None:
        data, second = self.data(operator), self.at(operator, 1)
        match what:
            case "rank":
                return None if data is None else len(data.shape)
            case "rank_1":
                return None if second is None else len(second.shape)
            case "zero_point":
                return data.zero_points[0] if data is not None and data.zero_points else None
            case "filter_width":
                return second.shape[2] if second is not None and len(second.shape) == 4 else None
            case "filter_area":
                sides = [operator.options.get(f"filter_{side}") for side in ("width", "height")]
                return math.prod(side for side in sides if side is not None) if None not in sides else None
            case "last_axis" if data is not None and "axis" in operator.options:
                # Packing makes a dimension, unpacking takes one away.
                last = len(data.shape) - (0 if operator_name(operator) == "PACK" else 1)
                return int(operator.options["axis"] in {-1, last})
            case "same_shape" if data is not None and second is not None:
                return int(data.shape == second.shape)
            case "broadcast" if data is not None and second is not None:
                return int(data.shape[:-2] != second.shape[:-2])
            case "one_scale":
                tensors = [self.subgraph.tensors[index] for index in operator.inputs if index >= 0]
                return int(len({(tensor.scales, tensor.zero_points) for tensor in tensors}) <= 1)
        return None


#: What rules ask of an operator's first result.
_OF_OUTPUT: Final = frozenset({"output_rank", "output_type", "square"})
#: Every name that a rule may have beside an option's.
QUESTIONS: Final = frozenset({
    *_OF_OUTPUT, "inputs", "slots", "outputs", "computed_inputs", "version", "hybrid", "activation", "rank", "rank_1",
    "zero_point", "filter_width", "filter_area", "last_axis", "same_shape", "broadcast", "one_scale", "constant",
})  # fmt: skip
