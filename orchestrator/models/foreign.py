"""Whether a file is another runtime's model, as far as its own format tells without that runtime."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from orchestrator.errors import ModelError

#: The highest field number of ONNX's ModelProto, and that of its graph (onnx/onnx.proto).
_ONNX_FIELDS: Final = 32
_ONNX_GRAPH: Final = 7
#: Protobuf's wire types: a number, eight bytes, bytes with their length, four bytes.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS: Final = 100_000
#: Tensors and metadata entries of a GGUF file, at most.
_GGUF_MOST: Final = 10_000_000


def check_foreign(path: Path) -> None:
    """Raise ModelError for a file that isn't of the format that its ending names."""
    with path.open("rb") as file:
        head = file.read(1 << 16)
    size_bytes = path.stat().st_size
    fault_of = _FAULTS.get(path.suffix)
    # A declared program may name endings of its own, of whose format nothing is known.
    if fault_of is not None and (reason := fault_of(path, head, size_bytes)):
        raise ModelError(
            f"{str(path)!r} is no {path.suffix} file: {reason}",
            hint="was its download or conversion cut off, or is it another format's file?",
        )


def _gguf_fault(path: Path, head: bytes, size_bytes: int) -> str:
    if not head.startswith(b"GGUF"):
        return "it lacks the mark 'GGUF'"
    if len(head) < 24:
        return "it ends within its header"
    version, tensors, entries = struct.unpack_from("<IQQ", head, 4)
    if version & 0xFFFF == 0:
        version, tensors, entries = struct.unpack_from(">IQQ", head, 4)
    if not 1 <= version <= 3 or tensors > _GGUF_MOST or entries > _GGUF_MOST:
        return f"its header names version {version}, {tensors} tensors and {entries} entries"
    return ""


def _executorch_fault(path: Path, head: bytes, size_bytes: int) -> str:
    if head[4:6] != b"ET":
        return "it lacks the mark 'ET' at byte 4"
    return _flatbuffer_fault(head, size_bytes)


def _onnxruntime_fault(path: Path, head: bytes, size_bytes: int) -> str:
    if head[4:8] != b"ORTM":
        return "it lacks the mark 'ORTM' at byte 4"
    return _flatbuffer_fault(head, size_bytes)


def _mnn_fault(path: Path, head: bytes, size_bytes: int) -> str:
    return _flatbuffer_fault(head, size_bytes)


def _flatbuffer_fault(head: bytes, size_bytes: int) -> str:
    """Say what keeps a flatbuffer's root table from being one: it and its list of fields lie within
    the file.
    """
    if len(head) < 8:
        return "it is too short"
    (root,) = struct.unpack_from("<I", head)
    if not 4 <= root <= size_bytes - 4:
        return "its first word leads out of the file"
    if root + 4 > len(head):
        return ""
    (back,) = struct.unpack_from("<i", head, root)
    table = root - back
    if not 0 < table <= size_bytes - 4:
        return "its root table has no list of fields"
    if table + 4 > len(head):
        return ""
    fields_bytes, table_bytes = struct.unpack_from("<HH", head, table)
    is_list = fields_bytes >= 4 and fields_bytes % 2 == 0 and table + fields_bytes <= size_bytes
    return (
        "" if is_list and 4 <= table_bytes <= size_bytes else "its root table has no list of fields"
    )


def _ncnn_fault(path: Path, head: bytes, size_bytes: int) -> str:
    lines = head.split(b"\n", 2)
    if lines[0].strip() != b"7767517":
        return "its first line isn't '7767517'"
    counts = lines[1].split() if len(lines) > 1 else []
    return (
        ""
        if len(counts) == 2 and all(map(bytes.isdigit, counts))
        else "its second line isn't two counts"
    )


def _onnx_fault(path: Path, head: bytes, size_bytes: int) -> str:
    """Say what keeps a file from being ONNX's ModelProto: whole fields up to its end, a graph among
    them.
    """
    fields = 0
    has_graph = False
    with path.open("rb") as file:

        def varint() -> int:
            value = 0
            for shift in range(0, 70, 7):
                byte = file.read(1)
                if not byte:
                    raise EOFError
                value |= (byte[0] & 0x7F) << shift
                if byte[0] < 0x80:
                    return value
            raise ValueError

        try:
            while file.tell() < size_bytes:
                key = varint()
                number, kind = key >> 3, key & 7
                fields += 1
                if not 1 <= number <= _ONNX_FIELDS or fields > _MOST_FIELDS:
                    raise ValueError
                if kind == _VARINT:
                    varint()
                    continue
                length = {_FIXED64: 8, _FIXED32: 4}.get(kind) if kind != _BYTES else varint()
                if length is None or file.tell() + length > size_bytes:
                    raise ValueError
                has_graph = has_graph or (number == _ONNX_GRAPH and kind == _BYTES)
                file.seek(length, 1)
        except (EOFError, ValueError):
            return f"its bytes are no fields of a model (at byte {file.tell()})"
    return "" if has_graph else "it holds no graph"


_FAULTS: Final[Mapping[str, Callable[[Path, bytes, int], str]]] = {
    ".gguf": _gguf_fault,
    ".pte": _executorch_fault,
    ".param": _ncnn_fault,
    ".mnn": _mnn_fault,
    ".onnx": _onnx_fault,
    ".ort": _onnxruntime_fault,
}
