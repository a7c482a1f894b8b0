"""The identity and the contents of a model file, without running it; a .tflite file is read with
the schema that ai-edge-litert ships.
"""

from __future__ import annotations

import functools
import math
import mmap
import shutil
import stat
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from orchestrator.errors import ModelError
from orchestrator.files import cached_by_status, sha256_of
from orchestrator.records.case import Model, ModelSha
from orchestrator.records.model import (
    ModelFacts,
    SignatureFacts,
    TensorFacts,
    model_ending,
)

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

_IDENTIFIER: Final = b"TFL3"
_HEAD_BYTES: Final = 64
_READ_BYTES_MAX: Final = 64 << 20
#: The metadata entry with the oldest runtime version that has all operators of a model.
_MIN_RUNTIME: Final = "min_runtime_version"
#: First bytes of files that people pass by mistake, and what such a file is.
_OTHER_FORMATS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the model itself with 'git lfs pull'"),
    (
        b"LITERTLM",
        "a language model's bundle, whose operators aren't listed; to measure it, let its name end with .litertlm",
    ),
    (b"<", "a web page or XML; was it downloaded from a page instead of the file's own address?"),
)
#: A file's ending -> the place and the bytes of its format's mark; other endings aren't checked.
_MARKS: Final[Mapping[str, tuple[int, bytes]]] = {
    ".litertlm": (0, b"LITERTLM"),
    ".task": (0, b"PK\x03\x04"),
    ".gguf": (0, b"GGUF"),
    ".pte": (4, b"ET"),
    ".ort": (4, b"ORTM"),
    ".param": (0, b"7767517"),
}
#: Errors of the schema's accessors for wrong offsets.
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


def sample_models() -> tuple[Path, ...]:
    """Return the sample models that come with benchfarm: float32, then its int8 twin."""
    return tuple(sorted(Path(__file__).with_name("samples").glob("*.tflite")))


def identify_model(path: Path, *, name: str = "", sha256: str | None = None) -> Model:
    """Return a model file's name, content hash and size.

    Args:
        path: The file.
        name: The model's name; its file name without the ending when empty.
        sha256: The expected hash, when that is known.

    Raises:
        ModelError: missing, empty, a folder, damaged, not of its ending's format, or of another
            content than ``sha256``.
    """
    head, size_bytes = _head(path)
    needs_flex = False
    if model_ending(path) != ".tflite":
        place, mark = _MARKS.get(path.suffix, (0, b""))
        if not head.startswith(mark, place):
            raise ModelError(
                f"{str(path)!r} is no {path.suffix} file: it lacks the mark {mark!r}",
                hint="was its download or conversion cut off, or is it another format's file?",
            )
    else:
        needs_flex = bool(inspect_model(path).flex_operators)
    digest = sha256_of(path)
    if path.stat().st_size != size_bytes:
        raise ModelError(
            f"{str(path)!r} changed while it was read", hint="wait until it is complete"
        )
    if sha256 is not None and digest != sha256.lower():
        raise ModelError(
            f"{path} isn't the expected model: its sha256 is {digest}, not {sha256.lower()}",
            hint="get the right file, or change the sha256 in the plan or manifest",
        )
    return Model(
        name=name or path.stem,
        sha256=ModelSha(digest),
        size_bytes=size_bytes,
        path=path,
        needs_flex=needs_flex,
    )


@cached_by_status
def inspect_model(path: Path) -> ModelFacts:
    """Return the facts of a .tflite model; raises ModelError as :func:`identify_model` does.

    A large file is mapped, which costs no memory, as a copy in TMPDIR: truncating a mapped file
    kills the process that reads it.
    """
    from ai_edge_litert import schema_py_generated as schema

    head, size_bytes = _head(path)
    if head[4:8] != _IDENTIFIER:
        description = next(
            (
                description
                for start, description in _OTHER_FORMATS
                if head.lstrip().startswith(start)
            ),
            "",
        )
        raise ModelError(
            f"{str(path)!r} is no TFLite model: "
            + (f"it is {description}" if description else "it lacks the mark TFL3 at byte 4"),
            hint="give a .tflite file",
        )
    try:
        with path.open("rb") as file:
            content = _mapped_copy(file) if size_bytes > _READ_BYTES_MAX else file.read()
        return _facts(schema.ModelT.InitFromPackedBuf(content, 0), len(content))
    except OSError as error:
        raise ModelError(f"{str(path)!r} can't be read: {error.strerror}") from error
    except _DAMAGE as error:
        # The accessors' messages about a wrong offset don't help the file's owner.
        reason = error if type(error) is ValueError else "it points to what isn't in the file"
        raise ModelError(
            f"{str(path)!r} is truncated or damaged: {reason}",
            hint="copy or convert the model again",
        ) from error


def _head(path: Path) -> tuple[bytes, int]:
    """Return a file's first bytes and its size.

    Raises ModelError for one that can't be a model's.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelError(
                f"{str(path)!r} is a folder, not a .tflite model",
                hint="name the file in it, or make one of a SavedModel: 'benchfarm model build'",
            )
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{str(path)!r} is no regular file")
        if status.st_size == 0:
            raise ModelError(
                f"{str(path)!r} is empty", hint="was its download or conversion cut off?"
            )
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES), status.st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(
            f"{str(path)!r} can't be opened: {reason}", hint="check the path and its permissions"
        ) from error


def _mapped_copy(file: BinaryIO) -> mmap.mmap:
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder) as copied:
            shutil.copyfileobj(file, copied, 1 << 20)
            copied.flush()
            return mmap.mmap(copied.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(
            f"a large model is copied to {folder} before it is read, which fails: {error.strerror}",
            hint="set TMPDIR for another folder",
        ) from error


class _Tensor(NamedTuple):
    #: The size of its data in the file, 0 for one that is computed.
    constant_bytes: int
    buffer: int
    #: Whether its numbers stand for real ones: as a whole, by channel, or by block.
    is_quantised: bool
    facts: TensorFacts


class _Operator(NamedTuple):
    name: str
    is_custom: bool
    #: None for an input that is left out.
    inputs: tuple[_Tensor | None, ...]
    outputs: tuple[_Tensor | None, ...]
    #: Whether a matrix product takes its first input transposed.
    is_first_transposed: bool


class _Subgraph(NamedTuple):
    tensors: tuple[_Tensor, ...]
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    operators: tuple[_Operator, ...]


def _facts(model: schema.ModelT, size_bytes: int) -> ModelFacts:
    sizes = [_constant_bytes(buffer, size_bytes) for buffer in _all(model.buffers)]
    codes = _all(model.operatorCodes)
    subgraphs = [_subgraph(subgraph, codes, sizes) for subgraph in _all(model.subgraphs)]
    if not subgraphs:
        raise ValueError("it has no subgraph, so there is nothing to run")
    main, signatures = subgraphs[0], _all(model.signatureDefs)
    for signature in signatures:
        _at(subgraphs, signature.subgraphIndex)
    metadata_buffers = {_text(piece.name): piece.buffer for piece in _all(model.metadata)}
    min_runtime = (
        _at(model.buffers, metadata_buffers[_MIN_RUNTIME]).data
        if _MIN_RUNTIME in metadata_buffers
        else None
    )
    operators = [operator for subgraph in subgraphs for operator in subgraph.operators]
    counts = Counter(operator.name for operator in operators)
    outside = sorted({operator.name for operator in operators if operator.is_custom})
    tensors = [tensor for subgraph in subgraphs for tensor in subgraph.tensors]
    constants = {tensor.buffer: tensor for tensor in tensors if tensor.constant_bytes}
    return ModelFacts(
        size_bytes=size_bytes,
        schema_version=model.version,
        description=_text(model.description),
        min_runtime_version=bytes(() if min_runtime is None else min_runtime[:16])
        .split(b"\0")[0]
        .decode("ascii", "replace"),
        inputs=main.inputs,
        outputs=main.outputs,
        signatures=tuple(
            SignatureFacts(
                key=_text(signature.signatureKey),
                inputs=tuple(_text(entry.name) for entry in _all(signature.inputs)),
                outputs=tuple(_text(entry.name) for entry in _all(signature.outputs)),
            )
            for signature in signatures
        ),
        subgraph_count=len(subgraphs),
        operators=dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))),
        layers=tuple((operator.name, _layer_name(operator)) for operator in main.operators),
        custom_operators=tuple(name for name in outside if not name.startswith("Flex")),
        flex_operators=tuple(name for name in outside if name.startswith("Flex")),
        metadata={name: _at(sizes, buffer) for name, buffer in metadata_buffers.items()},
        tensors=dict(Counter(tensor.facts.dtype for tensor in tensors).most_common()),
        parameters=sum(map(_parameters, constants.values())),
        multiply_adds=_multiply_adds(main),
        weights_bytes=sum(tensor.constant_bytes for tensor in constants.values()),
        precision=_precision(subgraphs),
    )


def _layer_name(operator: _Operator) -> str:
    """Return an operator's name in a profile: its first output, of fused ones the last layer's."""
    first = next((tensor for tensor in operator.outputs if tensor is not None), None)
    return "" if first is None else first.facts.name.partition(";")[0]


def _constant_bytes(buffer: schema.BufferT, size_bytes: int) -> int:
    # A file of over 2 GB has its data behind the flatbuffer, where 32-bit offsets don't reach.
    if buffer.offset > 1:
        if buffer.offset + buffer.size > size_bytes:
            raise ValueError(
                f"it refers to byte {buffer.offset + buffer.size}, the file has {size_bytes}"
            )
        return int(buffer.size)
    return 0 if buffer.data is None else len(buffer.data)


def _subgraph(
    subgraph: schema.SubGraphT, codes: Sequence[schema.OperatorCodeT], sizes: Sequence[int]
) -> _Subgraph:
    tensors = tuple(_tensor(tensor, sizes) for tensor in _all(subgraph.tensors))
    return _Subgraph(
        tensors=tensors,
        inputs=tuple(_at(tensors, index).facts for index in _integers(subgraph.inputs)),
        outputs=tuple(_at(tensors, index).facts for index in _integers(subgraph.outputs)),
        operators=tuple(_operator(item, codes, tensors) for item in _all(subgraph.operators)),
    )


def _tensor(tensor: schema.TensorT, sizes: Sequence[int]) -> _Tensor:
    shape, quantization = _integers(tensor.shape), tensor.quantization
    scales = () if quantization is None else tuple(map(float, _all(quantization.scale)))
    zero_points = () if quantization is None else _integers(quantization.zeroPoint)
    is_as_a_whole = len(scales) == len(zero_points) == 1 and math.isfinite(scales[0])
    facts = TensorFacts(
        name=_text(tensor.name),
        dtype=_schema_names()[1].get(tensor.type, f"unknown_{tensor.type}").lower(),
        shape=shape,
        shape_signature=_integers(tensor.shapeSignature) or shape,
        scale=scales[0] if is_as_a_whole else None,
        zero_point=zero_points[0] if is_as_a_whole else None,
    )
    return _Tensor(
        constant_bytes=_at(sizes, tensor.buffer) if sizes else 0,
        buffer=tensor.buffer,
        # Blocks of its elements may have a scale each, which are in a tensor of their own.
        is_quantised=bool(scales) or hasattr(getattr(quantization, "details", None), "blockSize"),
        facts=facts,
    )


def _operator(
    operator: schema.OperatorT, codes: Sequence[schema.OperatorCodeT], tensors: Sequence[_Tensor]
) -> _Operator:
    code = _at(codes, operator.opcodeIndex)
    # Codes from 127 on are only in the wider field, older files have only the narrow one: the
    # larger counts.
    number = max(code.deprecatedBuiltinCode, code.builtinCode)
    name = _schema_names()[0].get(number, f"UNKNOWN_{number}")
    is_custom = name == "CUSTOM"

    def used(items: Sequence[Any] | None) -> tuple[_Tensor | None, ...]:
        return tuple(None if index == -1 else _at(tensors, index) for index in _integers(items))

    return _Operator(
        name=(_text(code.customCode) if is_custom else "") or name,
        is_custom=is_custom,
        inputs=used(operator.inputs),
        outputs=used(operator.outputs),
        is_first_transposed=bool(getattr(operator.builtinOptions, "adjX", False)),
    )


def _at(items: Sequence[Any], index: int) -> Any:  # noqa: ANN401 - as in the sequence
    if not 0 <= index < len(items):
        raise IndexError(f"it refers to number {index} of {len(items)}")
    return items[index]


def _all(items: Sequence[Any] | None) -> Sequence[Any]:
    """Return a vector's items, none where it is absent; the schema returns a number for an empty
    one.
    """
    return () if items is None or isinstance(items, int) else items


def _integers(items: Sequence[Any] | None) -> tuple[int, ...]:
    return tuple(map(int, _all(items)))


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value or ""


@functools.cache
def _schema_names() -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names of operators and of tensor types by their numbers."""
    from ai_edge_litert import schema_py_generated as schema

    def by_number(enumeration: type) -> dict[int, str]:
        return {
            number: name for name, number in vars(enumeration).items() if isinstance(number, int)
        }

    return by_number(schema.BuiltinOperator), by_number(schema.TensorType)


def _parameters(tensor: _Tensor) -> int:
    """Return the number of weights in a constant: 0 for shapes, axes and paddings, which are plain
    integers.
    """
    facts = tensor.facts
    is_real = tensor.is_quantised or facts.dtype.startswith(("float", "bfloat"))
    return math.prod(facts.shape) if is_real and min(facts.shape, default=1) > 0 else 0


def _multiply_adds(subgraph: _Subgraph) -> int | None:
    work = [_work(operator) for operator in subgraph.operators if operator.name in _WEIGHED]
    return None if None in work else sum(each or 0 for each in work)


def _work(operator: _Operator) -> int | None:
    """Return an operator's multiply-adds, None when a shape is unknown."""
    used = [*operator.inputs[:3], *operator.outputs[:1]]
    if len(operator.inputs) < 2 or not operator.outputs or None in (*used[:2], used[-1]):
        return None
    shapes = [tensor.facts.shape if tensor is not None else () for tensor in used]
    first, weights, result = shapes[0], shapes[1], shapes[-1]
    if not result or min((*first, *weights, *result)) <= 0:
        return None
    match operator.name, len(weights):
        case "CONV_2D", 4:  # [out, height, width, in of its group]
            return math.prod(result) * math.prod(weights[1:])
        case "DEPTHWISE_CONV_2D", 4:  # [1, height, width, out]
            return math.prod(result) * weights[1] * weights[2]
        case "CONV_3D", 5:  # [depth, height, width, in, out]
            return math.prod(result) * math.prod(weights[:4])
        case ("TRANSPOSE_CONV", 4) | ("CONV_3D_TRANSPOSE", 5) if min(shapes[2], default=0) > 0:
            # Each input element meets each weight of its channel; inputs: shape, weights, data.
            return math.prod(shapes[2]) * math.prod(weights[:-1])
        case "FULLY_CONNECTED", 2:  # [out, in]
            return math.prod(result) * weights[1]
        case "BATCH_MATMUL", _ if len(first) >= 2:
            return math.prod(result) * (first[-2] if operator.is_first_transposed else first[-1])
        case _:
            return None


#: Operators whose work is counted: those that multiply by a matrix of weights.
_WEIGHED: Final = frozenset(
    {
        *("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"),
        *("FULLY_CONNECTED", "BATCH_MATMUL"),
    }
)


def _precision(subgraphs: Sequence[_Subgraph]) -> str:
    """Return the type that the weighed operators compute in; without any of them, the type of the
    constants.
    """
    kinds = {kind for subgraph in subgraphs for kind in _computed_kinds(subgraph)}
    if not kinds:
        constants = {t.facts.dtype for s in subgraphs for t in s.tensors if t.constant_bytes}
        kinds = constants & {"float32", "float16", "int8", "uint8", "int16"}
    if not kinds:
        return "none"
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _computed_kinds(subgraph: _Subgraph) -> Iterator[str]:
    #: Constants that are stored small and widened before use: result -> the stored constant.
    widened = {
        id(operator.outputs[0]): stored
        for operator in subgraph.operators
        if operator.name in {"DEQUANTIZE", "DENSIFY"} and operator.outputs
        for stored in operator.inputs[:1]
        if stored is not None and stored.constant_bytes
    }
    for operator in subgraph.operators:
        inputs = operator.inputs
        if operator.name not in _WEIGHED or len(inputs) < 2:
            continue
        data, weights = (
            inputs[2 if "TRANSPOSE" in operator.name and inputs[2:] else 0],
            inputs[1],
        )
        if data is None or weights is None:
            continue
        kind, weights = data.facts.dtype, widened.get(id(weights), weights)
        if kind == "float32" and weights.facts.dtype != kind and weights.constant_bytes:
            yield "float16" if weights.facts.dtype == "float16" else "dynamic-range"
        else:
            yield kind
