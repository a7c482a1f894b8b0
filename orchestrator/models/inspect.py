"""What a model file is and holds, without running any of it; a .tflite file is read with the schema
that ai-edge-litert ships.
"""

from __future__ import annotations

import functools
import math
import stat
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orchestrator.errors import ModelError
from orchestrator.files import sha256_of
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
#: What files that are given by mistake begin with, and what they are.
_OTHER_FORMATS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the model itself with 'git lfs pull'"),
    (
        b"LITERTLM",
        "a language model's bundle, whose operators aren't listed; to measure it, let its name end with .litertlm",
    ),
    (b"<", "a web page or XML; was it downloaded from a page instead of the file's own address?"),
)
#: How files of other runtimes begin: where their mark is, and which. Of other endings nothing is
#: known.
_MARKS: Final[Mapping[str, tuple[int, bytes]]] = {
    ".litertlm": (0, b"LITERTLM"),
    ".task": (0, b"PK\x03\x04"),
    ".gguf": (0, b"GGUF"),
    ".pte": (4, b"ET"),
    ".ort": (4, b"ORTM"),
    ".param": (0, b"7767517"),
}
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


def sample_models() -> tuple[Path, ...]:
    """Return the sample models that come with benchfarm: float32, then its int8 twin."""
    return tuple(sorted(Path(__file__).with_name("samples").glob("*.tflite")))


def identify_model(path: Path, *, name: str = "", sha256: str | None = None) -> Model:
    """Return what a model file is: its content's hash and its size.

    Args:
        path: The file.
        name: What to call it; its file name without the ending when empty.
        sha256: The content that is meant, when that is known.

    Raises:
        ModelError: missing, empty, a folder, damaged, not what its ending says, or not what
            ``sha256`` says.
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
            f"{path} isn't the model that is meant: its sha256 is {digest}, expected was {sha256.lower()}",
            hint="get the right file, or change the sha256 where the model is named",
        )
    return Model(
        name=name or path.stem,
        sha256=ModelSha(digest),
        size_bytes=size_bytes,
        path=path,
        needs_flex=needs_flex,
    )


def inspect_model(path: Path) -> ModelFacts:
    """Return what a .tflite model holds; raises ModelError as :func:`identify_model` does."""
    from ai_edge_litert import schema_py_generated as schema

    head, _ = _head(path)
    if head[4:8] != _IDENTIFIER:
        what = next((what for start, what in _OTHER_FORMATS if head.lstrip().startswith(start)), "")
        raise ModelError(
            f"{str(path)!r} is no TFLite model: "
            + (f"it is {what}" if what else "it lacks the mark TFL3 at byte 4"),
            hint="give a .tflite file",
        )
    try:
        # Not mapped: where others cut a mapped file short, a process ends without a word.
        content = path.read_bytes()
        return _facts(schema.ModelT.InitFromPackedBuf(content, 0), len(content))
    except OSError as error:
        raise ModelError(f"{str(path)!r} can't be read: {error.strerror}") from error
    except _DAMAGE as error:
        # What the schema's accessors say of a wrong offset means nothing to who has the file.
        told = error if type(error) is ValueError else "it points to what isn't in the file"
        raise ModelError(
            f"{str(path)!r} is truncated or damaged: {told}", hint="copy or convert the model again"
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


class _Tensor(NamedTuple):
    #: The size of its data in the file, 0 for one that is computed.
    constant_bytes: int
    buffer: int
    facts: TensorFacts


class _Operator(NamedTuple):
    name: str
    is_custom: bool
    #: Its name in a profile: its first output, of fused ones the last layer's.
    layer: str


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
    operators = [operator for subgraph in subgraphs for operator in subgraph.operators]
    counts = Counter(operator.name for operator in operators)
    outside = sorted({operator.name for operator in operators if operator.is_custom})
    tensors = [tensor for subgraph in subgraphs for tensor in subgraph.tensors]
    constants = {tensor.buffer: tensor.constant_bytes for tensor in tensors}
    return ModelFacts(
        size_bytes=size_bytes,
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
        layers=tuple((operator.name, operator.layer) for operator in main.operators),
        custom_operators=tuple(name for name in outside if not name.startswith("Flex")),
        flex_operators=tuple(name for name in outside if name.startswith("Flex")),
        tensors=dict(Counter(tensor.facts.dtype for tensor in tensors).most_common()),
        weights_bytes=sum(constants.values()),
    )


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
    # -1 stands for one that is left out.
    outputs = [_at(tensors, at) for at in _integers(operator.outputs) if at != -1]
    return _Operator(
        name=(_text(code.customCode) if is_custom else "") or name,
        is_custom=is_custom,
        layer=outputs[0].facts.name.partition(";")[0] if outputs else "",
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
