"""A .tflite file as a graph of tensors and operators, read with the schema that ai-edge-litert
ships.
"""

from __future__ import annotations

import csv
import functools
import mmap
import re
import shutil
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from orchestrator.errors import ModelError
from orchestrator.records.model import SignatureFacts

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

#: Metadata that says the oldest runtime version that has all operators of a model.
_MIN_RUNTIME: Final = "min_runtime_version"
_READ_BYTES_MAX: Final = 64 << 20
#: What the schema's accessors raise for offsets that lead out of the file, or to something else
#: than they say.
DAMAGE: Final = (
    struct.error,
    ValueError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)


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
    #: Whether blocks of its elements have a scale each, which are in a tensor of their own.
    is_by_block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator; indices are those of its subgraph's tensors, -1 is an input that is left out."""

    code: int
    custom_name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    #: Version of its kernel that the model needs at least.
    version: int = 1
    #: Whether a matrix product takes its first input transposed.
    is_first_transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """Tensors, and operators in the order in which they run."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model."""

    version: int
    description: str
    min_runtime_version: str
    #: Name and size in bytes of each piece of metadata.
    metadata: tuple[tuple[str, int], ...]
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[SignatureFacts, ...]


def read_graph(path: Path) -> Graph:
    """Read a whole model; raises ModelError when something points where it must not.

    A large file is mapped, which costs no memory, as a copy in TMPDIR: where others cut a mapped
    file short, a process ends without a word.
    """
    from ai_edge_litert import schema_py_generated as schema

    try:
        with path.open("rb") as file:
            content = _mapped_copy(file) if path.stat().st_size > _READ_BYTES_MAX else file.read()
        return _graph(schema.ModelT.InitFromPackedBuf(content, 0), len(content))
    except OSError as error:
        raise ModelError(f"{str(path)!r} can't be read: {error.strerror}") from error
    except DAMAGE as error:
        # What the schema's accessors say of a wrong offset means nothing to who has the file.
        told = error if type(error) is ValueError else "it points to what isn't in the file"
        raise ModelError(
            f"{str(path)!r} is truncated or damaged: {told}", hint="copy or convert the model again"
        ) from error


def _mapped_copy(file: BinaryIO) -> mmap.mmap:
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder) as own:
            shutil.copyfileobj(file, own, 1 << 20)
            own.flush()
            return mmap.mmap(own.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(
            f"a large model is copied to {folder} before it is read, which fails: {error.strerror}",
            hint="set TMPDIR for another folder",
        ) from error


def _graph(model: schema.ModelT, size_bytes: int) -> Graph:
    sizes = [_constant_bytes(buffer, size_bytes) for buffer in model.buffers or ()]
    codes = model.operatorCodes or ()
    subgraphs = tuple(_subgraph(subgraph, codes, sizes) for subgraph in model.subgraphs or ())
    if not subgraphs:
        raise ValueError("it has no subgraph, so there is nothing to run")
    pieces = {_text(piece.name): _at(model.buffers, piece.buffer) for piece in model.metadata or ()}
    metadata = tuple(
        (_text(piece.name), _at(sizes, piece.buffer)) for piece in model.metadata or ()
    )
    told = pieces[_MIN_RUNTIME].data if _MIN_RUNTIME in pieces else None
    signatures = model.signatureDefs or ()
    for signature in signatures:
        _at(subgraphs, signature.subgraphIndex)
    return Graph(
        version=model.version,
        description=_text(model.description),
        min_runtime_version=""
        if told is None
        else bytes(told[:16]).split(b"\0")[0].decode("ascii", "replace"),
        metadata=metadata,
        subgraphs=subgraphs,
        signatures=tuple(
            SignatureFacts(
                key=_text(signature.signatureKey),
                inputs=tuple(_text(entry.name) for entry in signature.inputs or ()),
                outputs=tuple(_text(entry.name) for entry in signature.outputs or ()),
            )
            for signature in signatures
        ),
    )


def _constant_bytes(buffer: schema.BufferT, size_bytes: int) -> int:
    if (
        buffer.offset > 1
    ):  # A file of over 2 GB has its data behind the flatbuffer, where 32-bit offsets don't reach.
        if buffer.offset + buffer.size > size_bytes:
            raise ValueError(
                f"it refers to byte {buffer.offset + buffer.size}, the file has {size_bytes}"
            )
        return int(buffer.size)
    return 0 if buffer.data is None else len(buffer.data)


def _subgraph(
    subgraph: schema.SubGraphT, codes: Sequence[schema.OperatorCodeT], sizes: Sequence[int]
) -> Subgraph:
    tensors = tuple(_tensor(tensor, sizes) for tensor in _all(subgraph.tensors))
    operators = tuple(_operator(operator, codes) for operator in _all(subgraph.operators))
    inputs, outputs = _integers(subgraph.inputs), _integers(subgraph.outputs)
    for index in (
        *inputs,
        *outputs,
        *(i for each in operators for i in (*each.inputs, *each.outputs) if i != -1),
    ):
        _at(tensors, index)
    return Subgraph(tensors=tensors, inputs=inputs, outputs=outputs, operators=operators)


def _tensor(tensor: schema.TensorT, sizes: Sequence[int]) -> Tensor:
    shape, quantization = _integers(tensor.shape), tensor.quantization
    return Tensor(
        name=_text(tensor.name),
        type_number=tensor.type,
        shape=shape,
        shape_signature=_integers(tensor.shapeSignature) or shape,
        buffer=tensor.buffer,
        constant_bytes=_at(sizes, tensor.buffer) if sizes else 0,
        scales=() if quantization is None else tuple(map(float, _all(quantization.scale))),
        zero_points=() if quantization is None else _integers(quantization.zeroPoint),
        is_by_block=hasattr(getattr(quantization, "details", None), "blockSize"),
    )


def _operator(operator: schema.OperatorT, codes: Sequence[schema.OperatorCodeT]) -> Operator:
    code = _at(codes, operator.opcodeIndex)
    return Operator(
        # Codes from 127 on are only in the wider field, older files have only the narrow one: the
        # larger counts.
        code=max(code.deprecatedBuiltinCode, code.builtinCode),
        custom_name=_text(code.customCode),
        inputs=_integers(operator.inputs),
        outputs=_integers(operator.outputs),
        version=code.version,
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
def schema_names() -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names of operators and of tensor types by their numbers."""
    from ai_edge_litert import schema_py_generated as schema

    def by_number(enumeration: type) -> dict[int, str]:
        return {
            number: name for name, number in vars(enumeration).items() if isinstance(number, int)
        }

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
    """Return the constants that are stored small and widened before use: result -> what it is
    widened from.
    """
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
    """Return the release that has all builtin operators, for example ``2.3.0``; empty where one of
    them isn't known.

    Custom and Flex operators don't come with a runtime and aren't looked at.
    """
    needed = []
    for subgraph in graph.subgraphs:
        for operator in subgraph.operators:
            if is_custom(operator):
                continue
            releases = _releases().get(operator_name(operator), ())
            release = (
                releases[operator.version - 1] if 0 < operator.version <= len(releases) else "-"
            )
            if release == "-":
                return ""
            needed.append(release)
    return max(needed, key=_parts, default="")


def newest_of(told: str, found: str) -> str:
    """Return the newer of what a file states and what its operators need: converters write it
    before they quantise.

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
