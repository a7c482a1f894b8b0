"""What a .tflite file is and holds, without running any of it."""

from __future__ import annotations

import math
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.errors import ModelError
from orchestrator.files import sha256_of
from orchestrator.models.foreign import check_foreign, inspect_bundle, is_bundle
from orchestrator.models.graph import (
    Graph,
    Operator,
    Subgraph,
    Tensor,
    data_input,
    dtype_of,
    is_custom,
    newest_of,
    oldest_runtime,
    operator_name,
    read_graph,
    widened,
)
from orchestrator.records.case import Model, ModelSha
from orchestrator.records.model import ModelFacts, TensorFacts, is_foreign

_IDENTIFIER: Final = b"TFL3"
#: What files that are given by mistake begin with, and what they are.
_OTHER_FORMATS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the model itself with 'git lfs pull'"),
    (
        b"PK\x03\x04",
        "a zip archive (an APK, or a .keras file, of which 'benchfarm model build' makes a .tflite?)",
    ),
    (b"LITERTLM", "a language model's bundle, whose operators aren't listed"),
    (b"\x1f\x8b", "gzip data; unpack it first"),
    (b"\x7fELF", "an ELF program"),
    (b"\x89HDF", "an HDF5 file (a Keras model? 'benchfarm model build' makes a .tflite of it)"),
    (b"<", "a web page or XML; was it downloaded from a page instead of the file's own address?"),
)


def identify_model(path: Path, *, name: str = "", sha256: str | None = None) -> Model:
    """Return what a model file is: its content's hash and its size.

    The whole structure is walked, so that a damaged file is told before it's pushed to a phone.

    Args:
        path: The file.
        name: What to call it; its file name without the ending when empty.
        sha256: The content that is meant, when that is known.

    Raises:
        ModelError: missing, empty, a folder, truncated, damaged, neither a TFLite flatbuffer nor a
            language model's bundle, or not what ``sha256`` says.
    """
    head, size_bytes = _head(path)
    needs_flex = False
    if is_foreign(path):
        check_foreign(path)
    elif not _is_sound_bundle(path, head):
        graph = _graph(path, head)
        needs_flex = any(
            _is_flex(operator) for subgraph in graph.subgraphs for operator in subgraph.operators
        )
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
    """Return what a model holds; raises ModelError as :func:`identify_model` does."""
    head, size_bytes = _head(path)
    return _facts(_graph(path, head), size_bytes)


def open_graph(path: Path) -> Graph:
    """Return a model's tensors and operators; raises ModelError as :func:`identify_model` does."""
    return _graph(path, _head(path)[0])


def _head(path: Path) -> tuple[bytes, int]:
    """Return a file's first bytes and its size.

    Raises ModelError for one that can't be a model's.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            is_saved = (path / "saved_model.pb").is_file()
            hint = (
                f"'benchfarm model build {path}' makes one of it"
                if is_saved
                else "name the .tflite file in it"
            )
            what = "a SavedModel" if is_saved else "a folder"
            raise ModelError(f"{str(path)!r} is {what}, not a .tflite model", hint=hint)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{str(path)!r} is no regular file")
        if status.st_size == 0:
            raise ModelError(
                f"{str(path)!r} is empty", hint="was its download or conversion cut off?"
            )
        with path.open("rb") as file:
            return file.read(64), status.st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(
            f"{str(path)!r} can't be opened: {reason}", hint="check the path and its permissions"
        ) from error


def _is_sound_bundle(path: Path, head: bytes) -> bool:
    """Whether a file is a language model's bundle.

    Raises ModelError for a damaged one, or one named otherwise.
    """
    if not is_bundle(head, path):
        return False
    form = inspect_bundle(path).form
    if path.suffix != f".{form}":
        raise ModelError(
            f"{str(path)!r} is a language model's bundle", hint=f"name it {path.stem}.{form}"
        )
    return True


def _graph(path: Path, head: bytes) -> Graph:
    if head[4:8] != _IDENTIFIER:
        what = next((what for start, what in _OTHER_FORMATS if head.lstrip().startswith(start)), "")
        raise ModelError(
            f"{str(path)!r} is no TFLite model: "
            + (f"it is {what}" if what else "it lacks the mark TFL3 at byte 4"),
            hint="give a .tflite file",
        )
    return read_graph(path)


def _is_flex(operator: Operator) -> bool:
    return is_custom(operator) and operator_name(operator).startswith("Flex")


def _facts(graph: Graph, size_bytes: int) -> ModelFacts:
    main = graph.subgraphs[0]
    operators = [operator for subgraph in graph.subgraphs for operator in subgraph.operators]
    counts = Counter(operator_name(operator) for operator in operators)
    outside = {operator_name(operator) for operator in operators if is_custom(operator)}
    tensors = [tensor for subgraph in graph.subgraphs for tensor in subgraph.tensors]
    constants = {tensor.buffer: tensor for tensor in tensors if tensor.constant_bytes}
    runtime = newest_of(graph.min_runtime_version, oldest_runtime(graph))
    return ModelFacts(
        size_bytes=size_bytes,
        schema_version=graph.version,
        description=graph.description,
        min_runtime_version=runtime,
        is_runtime_told=runtime == graph.min_runtime_version,
        inputs=tuple(_tensor_facts(main.tensors[index]) for index in main.inputs),
        outputs=tuple(_tensor_facts(main.tensors[index]) for index in main.outputs),
        signatures=graph.signatures,
        subgraph_count=len(graph.subgraphs),
        operators=dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))),
        custom_operators=tuple(sorted(name for name in outside if not name.startswith("Flex"))),
        flex_operators=tuple(sorted(name for name in outside if name.startswith("Flex"))),
        metadata=dict(graph.metadata),
        tensors=dict(Counter(dtype_of(tensor) for tensor in tensors).most_common()),
        tensors_quantised=sum(len(tensor.scales) == 1 for tensor in tensors),
        tensors_quantised_by_channel=sum(len(tensor.scales) > 1 for tensor in tensors),
        tensors_quantised_by_block=sum(tensor.is_by_block for tensor in tensors),
        parameters=sum(map(_parameters, constants.values())),
        arena_bytes=_arena_bytes(main),
        multiply_adds=_multiply_adds(main),
        weights_bytes=sum(tensor.constant_bytes for tensor in constants.values()),
        precision=_precision(graph),
    )


def _tensor_facts(tensor: Tensor) -> TensorFacts:
    as_a_whole = (
        len(tensor.scales) == 1 and len(tensor.zero_points) == 1 and math.isfinite(tensor.scales[0])
    )
    return TensorFacts(
        name=tensor.name,
        dtype=dtype_of(tensor),
        shape=tensor.shape,
        shape_signature=tensor.shape_signature,
        scale=tensor.scales[0] if as_a_whole else None,
        zero_point=tensor.zero_points[0] if as_a_whole else None,
    )


#: Bits of one element, for the types that tensors of a graph in work have.
_BITS: Final = {
    "float64": 64,
    "int64": 64,
    "uint64": 64,
    "complex64": 64,
    "complex128": 128,
    "float32": 32,
    "int32": 32,
    "uint32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int16": 16,
    "uint16": 16,
    "int8": 8,
    "uint8": 8,
    "bool": 8,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
}


def _parameters(tensor: Tensor) -> int:
    """Return how many weights a constant holds: none in shapes, axes and paddings, which are plain
    integers.
    """
    kind = dtype_of(tensor)
    counts = kind.startswith(("float", "bfloat")) or bool(tensor.scales) or tensor.is_by_block
    return (
        math.prod(tensor.shape)
        if counts and kind in _BITS and all(size > 0 for size in tensor.shape)
        else 0
    )


def _arena_bytes(subgraph: Subgraph) -> int | None:
    """Return the largest sum of computed tensors that are alive at one operator.

    None when a shape isn't fixed.
    """
    last_use = {index: len(subgraph.operators) for index in subgraph.outputs}
    for step, operator in enumerate(subgraph.operators):
        for index in (*operator.inputs, *operator.outputs):
            last_use[index] = max(last_use.get(index, -1), step)
    widened_weights = widened(subgraph)
    ends: dict[int, int] = {}
    alive, most = 0, 0
    seen: set[int] = set()

    def born(index: int, step: int) -> int | None:
        tensor = subgraph.tensors[index]
        if index in seen or tensor.constant_bytes or index in widened_weights:
            return 0
        seen.add(index)
        bits = _BITS.get(dtype_of(tensor))
        if bits is None or -1 in tensor.shape_signature or any(size <= 0 for size in tensor.shape):
            return None
        size = -(-math.prod(tensor.shape) * bits // 8)
        end = last_use.get(index, step)
        ends[end] = ends.get(end, 0) + size
        return size

    for step, indices in enumerate(
        [subgraph.inputs, *(operator.outputs for operator in subgraph.operators)], start=-1
    ):
        for index in indices:
            if index >= 0:
                size = born(index, step)
                if size is None:
                    return None
                alive += size
        most = max(most, alive)
        alive -= ends.get(step, 0)
    return most


def _multiply_adds(subgraph: Subgraph) -> int | None:
    total = 0
    for operator in subgraph.operators:
        work = _operator_work(operator_name(operator), operator, subgraph)
        if work is None:
            return None
        total += work
    return total


def _operator_work(name: str, operator: Operator, subgraph: Subgraph) -> int | None:
    """Return an operator's multiply-adds, 0 for kinds that aren't counted, None when a shape is
    unknown.
    """
    if name not in _WEIGHED:
        return 0
    if (
        len(operator.inputs) < 2
        or not operator.outputs
        or min(*operator.inputs[:2], operator.outputs[0]) < 0
    ):
        return None
    first, weights = (subgraph.tensors[index].shape for index in operator.inputs[:2])
    result = subgraph.tensors[operator.outputs[0]].shape
    if not result or min((*first, *weights, *result)) <= 0:
        return None
    match name, len(weights):
        case "CONV_2D", 4:  # [out, height, width, in of its group]
            return math.prod(result) * math.prod(weights[1:])
        case "DEPTHWISE_CONV_2D", 4:  # [1, height, width, out]
            return math.prod(result) * weights[1] * weights[2]
        case (
            "TRANSPOSE_CONV",
            4,
        ):  # Each input element meets each weight of its channel; inputs: shape, weights, data.
            if len(operator.inputs) < 3 or operator.inputs[2] < 0:
                return None
            data = subgraph.tensors[operator.inputs[2]].shape
            return math.prod(data) * math.prod(weights[:3]) if data and min(data) > 0 else None
        case "FULLY_CONNECTED", 2:  # [out, in]
            return math.prod(result) * weights[1]
        case "BATCH_MATMUL", _ if len(first) >= 2:
            return math.prod(result) * (first[-2] if operator.is_first_transposed else first[-1])
        case _:
            return None


#: Operators whose work is counted: those that multiply by a matrix of weights.
_WEIGHED: Final = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"}
)


def _precision(graph: Graph) -> str:
    """Return in what the weighed operators compute; without any of them, what the constants are
    stored in.
    """
    found = {kind for subgraph in graph.subgraphs for kind in _computed_kinds(subgraph)}
    if not found:
        constants = {dtype_of(t) for s in graph.subgraphs for t in s.tensors if t.constant_bytes}
        found = constants & {"float32", "float16", "int8", "uint8", "int16"}
    if not found:
        return "none"
    return found.pop() if len(found) == 1 else "mixed"


def _computed_kinds(subgraph: Subgraph) -> Iterator[str]:
    stored_small = widened(subgraph)
    for operator in subgraph.operators:
        if (
            operator_name(operator) not in _WEIGHED
            or len(operator.inputs) < 2
            or min(operator.inputs[:2]) < 0
        ):
            continue
        data_at = data_input(operator_name(operator))
        data = dtype_of(
            subgraph.tensors[operator.inputs[data_at if data_at < len(operator.inputs) else 0]]
        )
        weights = stored_small.get(operator.inputs[1], subgraph.tensors[operator.inputs[1]])
        stored = dtype_of(weights)
        if data == "float32" and stored != "float32" and weights.constant_bytes:
            yield "float16" if stored == "float16" else "dynamic-range"
        else:
            yield data
