"""The parts of a .tflite file that the runtime uses: operators, tensors, work, signatures.

Read with the schema that ai-edge-litert ships. Only structure is stored, never weights. One file's
graph is shared by all phones of a process (by its sha256), so its parts are compared by identity,
and derived values are computed once.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

#: More than any phone can hold; a damaged shape counts as this many, so that sizes stay within a
#: float.
MAX_ELEMENTS: Final = 2**62

#: What the schema's accessors raise for offsets that lead out of the file, or to something else
#: than they say.
_DAMAGE: Final = (
    struct.error,
    ValueError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)


@functools.cache
def _names(enumeration: str) -> Mapping[int, str]:
    """Return the names of an enumeration of the schema by their numbers."""
    from ai_edge_litert import schema_py_generated as schema

    return {
        value: name
        for name, value in vars(getattr(schema, enumeration)).items()
        if isinstance(value, int)
    }


class MalformedModelError(Exception):
    """The bytes aren't a model that the runtime takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A tensor's type and shape; ``data_bytes`` is the size of its constant data, 0 for one that is
    computed.
    """

    name: str
    type_name: str
    element_bytes: float | None
    shape: tuple[int, ...]
    data_bytes: int

    @property
    def constant(self) -> bool:
        """Whether its values are in the file."""
        return self.data_bytes > 0

    @property
    def elements(self) -> int:
        """How many elements it has; unknown dimensions count as 1."""
        return min(MAX_ELEMENTS, math.prod(abs(n) for n in self.shape))

    @property
    def size_bytes(self) -> int:
        """Its size in memory."""
        if self.element_bytes is None:
            return self.data_bytes
        return math.ceil(self.elements * self.element_bytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One operator of a subgraph; tensor indices of -1 are optional inputs that are left out."""

    code: int
    #: ``CONV_2D``, or a custom operator's own name (``FlexAddV2``).
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def custom(self) -> bool:
        """Whether it isn't one of the runtime's own operators."""
        return _names("BuiltinOperator").get(self.code) == "CUSTOM"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subgraph:
    """Tensors and operators in the order in which they run."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]

    def tensor(self, index: int) -> Tensor | None:
        """Return a tensor, or None for an input that is left out."""
        return self.tensors[index] if 0 <= index < len(self.tensors) else None

    def operator_inputs(self, operator: Operator) -> list[Tensor]:
        """Return the tensors that an operator reads, without those left out."""
        return [self.tensors[i] for i in operator.inputs if 0 <= i < len(self.tensors)]

    def operator_outputs(self, operator: Operator) -> list[Tensor]:
        """Return the tensors that an operator writes."""
        return [self.tensors[i] for i in operator.outputs if 0 <= i < len(self.tensors)]

    def macs(self, operator: Operator) -> int:
        """Return the multiply-adds of an operator (for those that only move or compare data: its
        output's elements).
        """
        inputs, outputs = self.operator_inputs(operator), self.operator_outputs(operator)
        out = sum(t.elements for t in outputs)
        weights = inputs[1] if len(inputs) > 1 else None
        match operator.name:
            case "CONV_2D" if weights is not None and len(weights.shape) == 4:
                # Filters are [out, h, w, in].
                return out * weights.elements // max(1, weights.shape[0])
            case "DEPTHWISE_CONV_2D" if weights is not None and len(weights.shape) == 4:
                return out * weights.shape[1] * weights.shape[2]
            case "FULLY_CONNECTED" if weights is not None and weights.shape:
                return out * weights.shape[-1]
            case "MEAN" | "SUM" if inputs:
                return inputs[0].elements
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model."""

    size_bytes: int
    sha256: str
    subgraphs: tuple[Subgraph, ...]

    @property
    def weight_bytes(self) -> int:
        """The size of all constant data."""
        return sum(t.data_bytes for s in self.subgraphs for t in s.tensors)


#: By their sha256, for as long as the process lives.
_cache: dict[str, Graph] = {}


def read_graph(data: bytes) -> Graph:
    """Return the graph of a model file; raise MalformedModelError for anything that the runtime
    would refuse.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    if (cached := _cache.get(sha256)) is not None:
        return cached
    try:
        graph = _read(data, sha256)
    except _DAMAGE as error:
        raise MalformedModelError(str(error)) from None
    return _cache.setdefault(sha256, graph)


def _read(data: bytes, sha256: str) -> Graph:
    from ai_edge_litert import schema_py_generated as schema

    if data[4:8] != b"TFL3":
        raise ValueError("no TFL3 identifier")
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    sizes = [_data_bytes(buffer) for buffer in model.buffers or ()]
    subgraphs = tuple(
        _subgraph(item, model.operatorCodes or (), sizes) for item in model.subgraphs or ()
    )
    if not subgraphs:
        raise ValueError("no subgraph")
    return Graph(
        size_bytes=len(data),
        sha256=sha256,
        subgraphs=subgraphs,
    )


def _data_bytes(buffer: schema.BufferT) -> int:
    if buffer.offset > 1:  # data after the flatbuffer, for models over 2 GiB
        return int(buffer.size)
    return 0 if buffer.data is None else len(buffer.data)


def _subgraph(
    subgraph: schema.SubGraphT, codes: Sequence[schema.OperatorCodeT], sizes: list[int]
) -> Subgraph:
    operators = tuple(_operator(item, codes[item.opcodeIndex]) for item in subgraph.operators or ())
    return Subgraph(
        name=_text(subgraph.name),
        tensors=tuple(_tensor(item, sizes) for item in subgraph.tensors or ()),
        inputs=_numbers(subgraph.inputs),
        outputs=_numbers(subgraph.outputs),
        operators=operators,
    )


def _tensor(tensor: schema.TensorT, sizes: list[int]) -> Tensor:
    type_name = _names("TensorType").get(tensor.type)
    if type_name is None:
        raise ValueError(f"tensor type {tensor.type}")
    return Tensor(
        name=_text(tensor.name),
        type_name=type_name,
        element_bytes=_element_bytes(type_name),
        shape=_numbers(tensor.shape),
        data_bytes=sizes[tensor.buffer] if tensor.buffer else 0,
    )


def _element_bytes(type_name: str) -> float | None:
    """Return the bytes of each element; STRING and VARIANT have no fixed size."""
    bits = re.search(r"\d+", type_name)
    return int(bits[0]) / 8 if bits else {"BOOL": 1.0, "RESOURCE": 8.0}.get(type_name)


def _operator(operator: schema.OperatorT, opcode: schema.OperatorCodeT) -> Operator:
    # Old files have the code in a signed byte, new ones in an int32; the larger of the two counts.
    code = max(opcode.deprecatedBuiltinCode, opcode.builtinCode)
    name = _names("BuiltinOperator").get(code, f"UNKNOWN {code}")
    return Operator(
        code=code,
        name=_text(opcode.customCode) if name == "CUSTOM" else name,
        inputs=_numbers(operator.inputs),
        outputs=_numbers(operator.outputs),
    )


def _numbers(values: Iterable[int] | None) -> tuple[int, ...]:
    return () if values is None else tuple(map(int, values))


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")
