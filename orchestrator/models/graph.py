"""A .tflite file as a graph of tensors and operators, by the numbers of its schema; and the names of those.

Field numbers are those of the public schema (tensorflow/compiler/mlir/lite/schema/schema.fbs), version 3.

Operators, option tables and fields are numbered as in the public schema; a test holds each line against it.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

from orchestrator.models.flatbuffer import DamagedBufferError, FlatBuffer, FlatTable

#: Name -> field number, struct layout (``<f``: a real number), value of an absent field.
OptionFields = Mapping[str, tuple[int, str, int]]

_STRIDES: Final = {"stride_w": (1, "<i", 0), "stride_h": (2, "<i", 0)}
_POOL: Final[OptionFields] = {
    **_STRIDES, "filter_width": (3, "<i", 0), "filter_height": (4, "<i", 0), "activation": (5, "<b", 0),
}  # fmt: skip
_ACTIVATION: Final[OptionFields] = {"activation": (0, "<b", 0)}
_KEEP_DIMS: Final[OptionFields] = {"keep_dims": (0, "<b", 0)}
_BLOCK_SIZE: Final[OptionFields] = {"block_size": (0, "<i", 0)}

#: By the number of the builtin operator.
OPTIONS: Final[Mapping[int, OptionFields]] = {
    0: _ACTIVATION,  # ADD
    1: _POOL,  # AVERAGE_POOL_2D
    2: {"activation": (1, "<b", 0)},  # CONCATENATION
    3: {**_STRIDES, "activation": (3, "<b", 0), "dilation_w": (4, "<i", 1), "dilation_h": (5, "<i", 1)},  # CONV_2D
    4: {  # DEPTHWISE_CONV_2D
        **_STRIDES,
        "depth_multiplier": (3, "<i", 0),
        "activation": (4, "<b", 0),
        "dilation_w": (5, "<i", 1),
        "dilation_h": (6, "<i", 1),
    },
    5: _BLOCK_SIZE,  # DEPTH_TO_SPACE
    9: {"activation": (0, "<b", 0), "weights_format": (1, "<b", 0), "keep_num_dims": (2, "<b", 0)},  # FULLY_CONNECTED
    11: _ACTIVATION,  # L2_NORMALIZATION
    12: _POOL,  # L2_POOL_2D
    15: {"lsh_type": (0, "<b", 0)},  # LSH_PROJECTION
    16: {"activation": (0, "<b", 0), "kernel_type": (3, "<b", 0)},  # LSTM
    17: _POOL,  # MAX_POOL_2D
    18: _ACTIVATION,  # MUL
    23: {"align_corners": (2, "<b", 0), "half_pixel_centers": (3, "<b", 0)},  # RESIZE_BILINEAR
    25: {"beta": (0, "<f", 0)},  # SOFTMAX
    26: _BLOCK_SIZE,  # SPACE_TO_DEPTH
    40: _KEEP_DIMS,  # MEAN
    41: _ACTIVATION,  # SUB
    42: _ACTIVATION,  # DIV
    45: {
        "ellipsis_mask": (2, "<i", 0),
        "new_axis_mask": (3, "<i", 0),
        "shrink_axis_mask": (4, "<i", 0),
    },  # STRIDED_SLICE
    49: {"num_splits": (0, "<i", 0)},  # SPLIT
    67: {**_STRIDES, "activation": (3, "<b", 0)},  # TRANSPOSE_CONV
    74: _KEEP_DIMS,  # SUM
    82: _KEEP_DIMS,  # REDUCE_MAX
    83: {"axis": (1, "<i", 0)},  # PACK
    88: {"axis": (1, "<i", 0)},  # UNPACK
    97: {"align_corners": (0, "<b", 0), "half_pixel_centers": (1, "<b", 0)},  # RESIZE_NEAREST_NEIGHBOR
    100: {"mode": (0, "<b", 0)},  # MIRROR_PAD
    126: {"adj_x": (0, "<b", 0), "adj_y": (1, "<b", 0)},  # BATCH_MATMUL
}


#: Nothing that runs on a phone has tensors of more dimensions; a file that claims so only wants to cost time.
_RANK_MAX: Final = 64
#: Metadata name and size of the oldest runtime version that has all operators of a model.
_MIN_RUNTIME: Final = ("min_runtime_version", 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor; ``constant_bytes`` is the size of its data in the file, 0 for one that is computed."""

    name: str
    type_number: int
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...]
    buffer: int
    constant_bytes: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator; indices are those of its subgraph's tensors, -1 is an input that is left out."""

    code: int
    custom_name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    #: Version of its kernel that the model needs at least.
    version: int = 1
    #: The options that ``options.OPTIONS`` knows of it.
    options: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """Tensors, and operators in the order in which they run."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A named entry and the names of its inputs and outputs."""

    key: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model."""

    version: int
    description: str
    min_runtime_version: str
    #: Name and size in bytes of each piece of metadata.
    metadata: tuple[tuple[str, int], ...]
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]


def read_graph(buffer: FlatBuffer) -> Graph:
    """Read a whole model; raises DamagedBufferError when something points where it must not."""
    root = buffer.root()
    codes = [_operator_code(table) for table in root.tables(1)]
    buffers = root.tables(4)
    buffer_sizes = [_constant_bytes(table, buffer) for table in buffers]
    subgraphs = tuple(_subgraph(table, codes, buffer_sizes) for table in root.tables(2))
    if not subgraphs:
        raise DamagedBufferError("it has no subgraph, so there is nothing to run")
    metadata, min_runtime_version = _metadata(root.tables(6), buffers, buffer_sizes)
    return Graph(
        version=root.integer(0, "<I"),
        description=root.text(3),
        min_runtime_version=min_runtime_version,
        metadata=metadata,
        subgraphs=subgraphs,
        signatures=tuple(_signature(table, len(subgraphs)) for table in root.tables(7)),
    )


def _operator_code(table: FlatTable) -> tuple[int, str, int]:
    # Codes from 127 on are only in the wider field, older files have only the narrow one: the larger counts.
    return max(table.integer(0, "<b"), table.integer(3, "<i")), table.text(1), table.integer(2, "<i", 1)


def _constant_bytes(table: FlatTable, buffer: FlatBuffer) -> int:
    inline = table.length(0)
    offset, size = table.integer(1, "<Q"), table.integer(2, "<Q")
    if offset > 1:  # A file of over 2 GB has its data behind the flatbuffer, where 32-bit offsets don't reach.
        buffer.check(offset, size)
        return size
    return inline


def _metadata(
    tables: list[FlatTable], buffers: list[FlatTable], buffer_sizes: list[int]
) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return name and size of each piece, and the runtime version that one of them may tell."""
    found: list[tuple[str, int]] = []
    min_runtime_version = ""
    wanted, size = _MIN_RUNTIME
    for table in tables:
        index = table.integer(1, "<I")
        if index >= len(buffers):
            raise DamagedBufferError(f"metadata refers to buffer {index} of {len(buffers)}")
        name = table.text(0)
        found.append((name, buffer_sizes[index]))
        if name == wanted:
            min_runtime_version = buffers[index].content(0, size).split(b"\0")[0].decode("ascii", "replace")
    return tuple(found), min_runtime_version


def _subgraph(table: FlatTable, codes: list[tuple[int, str, int]], buffer_sizes: list[int]) -> Subgraph:
    tensors = tuple(_tensor(entry, buffer_sizes) for entry in table.tables(0))
    operators = tuple(_operator(entry, codes) for entry in table.tables(3))
    inputs, outputs = table.integers(1, "<i"), table.integers(2, "<i")
    for index in (*inputs, *outputs):
        _check_tensor(index, len(tensors), lowest=0)
    for operator in operators:
        for index in (*operator.inputs, *operator.outputs):
            _check_tensor(index, len(tensors), lowest=-1)
    return Subgraph(tensors=tensors, inputs=inputs, outputs=outputs, operators=operators)


def _check_tensor(index: int, count: int, *, lowest: int) -> None:
    if not lowest <= index < count:
        raise DamagedBufferError(f"it refers to tensor {index} of {count}")


def _tensor(table: FlatTable, buffer_sizes: list[int]) -> Tensor:
    buffer = table.integer(2, "<I")
    if buffer >= max(1, len(buffer_sizes)):
        raise DamagedBufferError(f"a tensor refers to buffer {buffer} of {len(buffer_sizes)}")
    shape = _shape(table, 0)
    quantization = table.table(4)
    return Tensor(
        name=table.text(3),
        type_number=table.integer(1, "<b"),
        shape=shape,
        shape_signature=_shape(table, 7) or shape,
        buffer=buffer,
        constant_bytes=buffer_sizes[buffer] if buffer_sizes else 0,
        scales=quantization.floats(2) if quantization else (),
        zero_points=quantization.integers(3, "<q") if quantization else (),
    )


def _shape(table: FlatTable, field: int) -> tuple[int, ...]:
    if (rank := table.length(field, 4)) > _RANK_MAX:
        raise DamagedBufferError(f"a tensor has {rank} dimensions")
    return table.integers(field, "<i")


def _operator(table: FlatTable, codes: list[tuple[int, str, int]]) -> Operator:
    index = table.integer(0, "<I")
    if index >= len(codes):
        raise DamagedBufferError(f"an operator refers to code {index} of {len(codes)}")
    code, custom_name, version = codes[index]
    table.length(5)
    options = table.table(4)
    return Operator(
        code=code,
        custom_name=custom_name,
        inputs=table.integers(1, "<i"),
        outputs=table.integers(2, "<i"),
        version=version,
        options=_options(code, options) if options else {},
    )


def _options(code: int, table: FlatTable) -> dict[str, int | float]:
    return {
        name: table.real(number, default) if layout == "<f" else table.integer(number, layout, default)
        for name, (number, layout, default) in OPTIONS.get(code, {}).items()
    }


def _signature(table: FlatTable, subgraph_count: int) -> Signature:
    subgraph = table.integer(4, "<I")
    if subgraph >= subgraph_count:
        raise DamagedBufferError(f"a signature refers to subgraph {subgraph} of {subgraph_count}")
    return Signature(
        key=table.text(2),
        inputs=tuple(entry.text(0) for entry in table.tables(0)),
        outputs=tuple(entry.text(0) for entry in table.tables(1)),
    )


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
