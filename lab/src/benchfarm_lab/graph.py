"""What a .tflite file holds, read as carefully as the real runtime reads it: operators, tensors, work, signatures.

Only structure is kept, never weights, and one file's graph is shared by all phones of a process (by its sha256), so its
parts are known by identity, and what follows from them is found once.
Field numbers are those of the public TensorFlow Lite schema (tensorflow/lite/schema/schema.fbs).
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from benchfarm_lab.flatbuffer import Buffer, MalformedBufferError, Table

_NAMES: Final = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
    LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
    CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
    LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
    RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
    GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
    PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
    HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM
    STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
    STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW
    STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
    REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""

OPERATOR_NAMES: Final = tuple(_NAMES.split())
#: The numbers that other modules ask for by name.
OPERATOR_CODES: Final = {name: code for code, name in enumerate(OPERATOR_NAMES)}
CUSTOM: Final = OPERATOR_CODES["CUSTOM"]


def operator_name(code: int) -> str:
    """Return the schema's name of an operator; a number that the schema doesn't have is ``UNKNOWN <number>``."""
    return OPERATOR_NAMES[code] if 0 <= code < len(OPERATOR_NAMES) else f"UNKNOWN {code}"


SCHEMA_VERSION: Final = 3
#: More than any phone can hold; a damaged shape counts as this many, so that sizes stay within a float.
MAX_ELEMENTS: Final = 2**62

#: TensorType of the schema: name, and bytes per element (None: no fixed size).
TENSOR_TYPES: Final[tuple[tuple[str, float | None], ...]] = (
    ("FLOAT32", 4), ("FLOAT16", 2), ("INT32", 4), ("UINT8", 1), ("INT64", 8), ("STRING", None), ("BOOL", 1),
    ("INT16", 2), ("COMPLEX64", 8), ("INT8", 1), ("FLOAT64", 8), ("COMPLEX128", 16), ("UINT64", 8), ("RESOURCE", 8),
    ("VARIANT", None), ("UINT32", 4), ("UINT16", 2), ("INT4", 0.5), ("BFLOAT16", 2), ("INT2", 0.25), ("UINT4", 0.5),
    ("FLOAT8_E4M3FN", 1), ("FLOAT8_E5M2", 1),
)  # fmt: skip


class MalformedModelError(Exception):
    """The bytes aren't a model that the runtime takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A tensor's type and shape; ``data_bytes`` is the size of its constant data, 0 for one that is computed."""

    name: str
    type_name: str
    element_bytes: float | None
    shape: tuple[int, ...]
    data_bytes: int
    variable: bool = False
    #: Whether its values are in the file.
    constant: bool = field(init=False)
    #: How many elements it has; unknown dimensions count as 1.
    elements: int = field(init=False)
    #: Its size in memory.
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        elements = min(MAX_ELEMENTS, math.prod(abs(n) for n in self.shape))
        size_bytes = self.data_bytes if self.element_bytes is None else math.ceil(elements * self.element_bytes)
        object.__setattr__(self, "constant", self.data_bytes > 0)
        object.__setattr__(self, "elements", elements)
        object.__setattr__(self, "size_bytes", size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One operator of a subgraph; tensor indices of -1 are optional inputs that are left out."""

    code: int
    #: ``CONV_2D``, or a custom operator's own name (``FlexAddV2``).
    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    #: Other subgraphs that it calls: condition and body, or both branches.
    subgraphs: tuple[int, ...] = ()
    #: StridedSlice's shrink_axis_mask.
    shrink_axis_mask: int = 0
    #: Pooling's window.
    window: tuple[int, int] = (1, 1)

    @property
    def custom(self) -> bool:
        """Whether it isn't one of the runtime's own operators."""
        return self.code == CUSTOM


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
        """Return the multiply-adds of an operator (for those that only move or compare data: its output's elements)."""
        return _macs(self, operator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A named entry of a model, and the subgraph that it runs."""

    key: str
    subgraph: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model."""

    version: int
    size_bytes: int
    sha256: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]

    @property
    def weight_bytes(self) -> int:
        """The size of all constant data."""
        return sum(t.data_bytes for s in self.subgraphs for t in s.tensors)


def _macs(graph: Subgraph, operator: Operator) -> int:
    inputs = graph.operator_inputs(operator)
    outputs = graph.operator_outputs(operator)
    out = sum(t.elements for t in outputs)
    weights = inputs[1] if len(inputs) > 1 else None
    match operator.name:
        case "CONV_2D" | "CONV_3D" if weights is not None and len(weights.shape) >= 4:
            # CONV_2D filters are [out, h, w, in]; CONV_3D's are [d, h, w, in, out].
            drop = weights.shape[0] if operator.name == "CONV_2D" else weights.shape[-1]
            return out * weights.elements // max(1, drop)
        case "DEPTHWISE_CONV_2D" if weights is not None and len(weights.shape) == 4:
            return out * weights.shape[1] * weights.shape[2]
        case "TRANSPOSE_CONV" if len(inputs) > 2:
            return inputs[2].elements * weights.elements // max(1, weights.shape[-1]) if weights else out
        case "FULLY_CONNECTED" if weights is not None and weights.shape:
            return out * weights.shape[-1]
        case "BATCH_MATMUL" if inputs and inputs[0].shape:
            return out * inputs[0].shape[-1]
        case "AVERAGE_POOL_2D" | "MAX_POOL_2D" | "L2_POOL_2D":
            return out * operator.window[0] * operator.window[1]
        case "MEAN" | "SUM" | "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_PROD" if inputs:
            return inputs[0].elements
        case name if "LSTM" in name or "RNN" in name or name == "SVDF":
            steps = inputs[0].shape[1] if inputs and len(inputs[0].shape) == 3 else 1
            return max(out, steps * sum(t.elements for t in inputs if t.constant))
        case _:
            return out


_CACHE_SIZE: Final = 64
_cache: OrderedDict[str, Graph] = OrderedDict()
_cache_lock = threading.Lock()


def read_graph(data: bytes) -> Graph:
    """Return the graph of a model file; raise MalformedModelError for anything that the runtime would refuse."""
    sha256 = hashlib.sha256(data).hexdigest()
    with _cache_lock:
        known = _cache.get(sha256)
        if known is not None:
            _cache.move_to_end(sha256)
            return known
    try:
        graph = _read(data, sha256)
    except MalformedBufferError as error:
        raise MalformedModelError(str(error)) from None
    with _cache_lock:
        _cache[sha256] = graph
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return graph


def _read(data: bytes, sha256: str) -> Graph:
    root = Buffer(data).root(b"TFL3")
    codes = [_operator_code(t) for t in root.tables(1)]
    buffer_bytes = [_data_bytes(t, len(data)) for t in root.tables(4)]
    root.numbers(5, "i")
    root.text(3)
    for metadata in root.tables(6):
        metadata.text(0)
    subgraphs = tuple(_subgraph(t, codes, buffer_bytes) for t in root.tables(2))
    signatures = tuple(_signature(t, len(subgraphs)) for t in root.tables(7))
    return Graph(
        version=root.scalar(0, "I"), size_bytes=len(data), sha256=sha256, subgraphs=subgraphs, signatures=signatures
    )


def _operator_code(table: Table) -> tuple[int, str, int]:
    # Old files have the code in a signed byte, new ones in an int32; the larger of the two counts.
    code = max(table.scalar(0, "b"), table.scalar(3, "i"))
    custom = table.text(1)
    return code, custom if code == CUSTOM else operator_name(code), table.scalar(2, "i", 1)


def _data_bytes(table: Table, file_bytes: int) -> int:
    inline = table.vector_size(0, 1) or 0
    offset, size = table.u64(1), table.u64(2)
    if offset > 1:  # data after the flatbuffer, for models over 2 GiB
        if offset + size > file_bytes:
            raise MalformedBufferError(f"buffer of {size} bytes at {offset} reaches outside the file")
        return size
    return inline


def _subgraph(table: Table, codes: list[tuple[int, str, int]], buffer_bytes: list[int]) -> Subgraph:
    tensors = tuple(_tensor(t, buffer_bytes) for t in table.tables(0))
    inputs, outputs = table.numbers(1, "i"), table.numbers(2, "i")
    _check_indices((*inputs, *outputs), len(tensors), lowest=0)
    operators = tuple(_operator(t, codes, len(tensors)) for t in table.tables(3))
    return Subgraph(name=table.text(4), tensors=tensors, inputs=inputs, outputs=outputs, operators=operators)


def _tensor(table: Table, buffer_bytes: list[int]) -> Tensor:
    number = table.scalar(1, "b")
    if not 0 <= number < len(TENSOR_TYPES):
        raise MalformedBufferError(f"tensor type {number}")
    type_name, element_bytes = TENSOR_TYPES[number]
    quantization = table.table(4)
    if quantization is not None:
        quantization.vector_size(2, 4)
        quantization.vector_size(3, 8)
    buffer = table.scalar(2, "I")
    if buffer and buffer >= len(buffer_bytes):
        raise MalformedBufferError(f"tensor with buffer {buffer} of {len(buffer_bytes)}")
    table.numbers(7, "i")
    return Tensor(
        name=table.text(3), type_name=type_name, element_bytes=element_bytes, shape=table.numbers(0, "i"),
        data_bytes=buffer_bytes[buffer] if buffer else 0, variable=bool(table.scalar(5, "B")),
    )  # fmt: skip


def _operator(table: Table, codes: list[tuple[int, str, int]], tensor_count: int) -> Operator:
    index = table.scalar(0, "I")
    if index >= len(codes):
        raise MalformedBufferError(f"operator code {index} of {len(codes)}")
    code, name, version = codes[index]
    inputs, outputs = table.numbers(1, "i"), table.numbers(2, "i")
    _check_indices(inputs, tensor_count, lowest=-1)
    _check_indices(outputs, tensor_count, lowest=0)
    table.vector_size(5, 1)
    options = table.table(4)
    subgraphs: tuple[int, ...] = ()
    mask, window = 0, (1, 1)
    if options is not None:
        match name:
            case "WHILE" | "IF":
                subgraphs = (options.scalar(0, "i"), options.scalar(1, "i"))
            case "CALL_ONCE":
                subgraphs = (options.scalar(0, "i"),)
            case "STRIDED_SLICE":
                mask = options.scalar(4, "i")
            case "AVERAGE_POOL_2D" | "MAX_POOL_2D" | "L2_POOL_2D":
                window = (max(1, options.scalar(4, "i", 1)), max(1, options.scalar(3, "i", 1)))
    return Operator(
        code=code, name=name, version=version, inputs=inputs, outputs=outputs, subgraphs=subgraphs,
        shrink_axis_mask=mask, window=window,
    )  # fmt: skip


def _signature(table: Table, subgraph_count: int) -> Signature:
    for half in (0, 1):
        for tensor_map in table.tables(half):
            tensor_map.text(0)
    subgraph = table.scalar(4, "I")
    if subgraph >= subgraph_count:
        raise MalformedBufferError(f"signature for subgraph {subgraph} of {subgraph_count}")
    return Signature(key=table.text(2), subgraph=subgraph)


def _check_indices(indices: Iterable[int], count: int, *, lowest: int) -> None:
    for index in indices:
        if not lowest <= index < count:
            raise MalformedBufferError(f"tensor {index} of {count}")
