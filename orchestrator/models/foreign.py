"""Models that are no .tflite files: whether a file is another runtime's, as far as its own format tells
without that runtime; and what a language model's bundle holds, read without running any of it.

A ``.litertlm`` file begins with ``LITERTLM``, a version, and a flatbuffer that lists its sections;
a ``.task`` file is a zip archive of stored entries (LiteRT-LM's schema/core and
runtime/components/model_resources_task.cc).
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from orchestrator.errors import ModelError
from orchestrator.models.graph import DAMAGE

#: The highest field number of ONNX's ModelProto, and that of its graph (onnx/onnx.proto).
_ONNX_FIELDS: Final = 32
_ONNX_GRAPH: Final = 7
#: Protobuf's wire types: a number, eight bytes, bytes with their length, four bytes.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS: Final = 100_000
#: How files of other runtimes begin: where their mark is, and which.
_MARKS: Final[Mapping[str, tuple[int, bytes]]] = {
    ".gguf": (0, b"GGUF"),
    ".pte": (4, b"ET"),
    ".ort": (4, b"ORTM"),
    ".param": (0, b"7767517"),
}


def check_foreign(path: Path) -> None:
    """Raise ModelError for a file that isn't of the format that its ending names.

    A declared program may name endings of its own, of whose format nothing is known.
    """
    place, mark = _MARKS.get(path.suffix, (0, b""))
    with path.open("rb") as file:
        head = file.read(place + max(len(mark), 4))
    reason = ""
    if not head.startswith(mark, place):
        reason = f"it lacks the mark {mark.decode()!r} at byte {place}"
    elif path.suffix == ".onnx":
        reason = _onnx_fault(path, path.stat().st_size)
    elif path.suffix == ".mnn" and not 4 <= int.from_bytes(head, "little") <= path.stat().st_size:
        reason = "its first word leads out of the file"
    if reason:
        raise ModelError(
            f"{str(path)!r} is no {path.suffix} file: {reason}",
            hint="was its download or conversion cut off, or is it another format's file?",
        )


def _onnx_fault(path: Path, size_bytes: int) -> str:
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


_MARK: Final = b"LITERTLM"
_ZIP: Final = b"PK\x03\x04"
_TABLES_AT: Final = 32
_KINDS: Final = {
    1: "data",
    3: "tflite",
    4: "sentencepiece tokenizer",
    5: "metadata",
    6: "Hugging Face tokenizer",
    7: "weights",
    8: "embedding metadata",
    9: "executor metadata",
    10: "speech metadata",
    11: "recognition metadata",
}
_METADATA: Final = "metadata"
_TASK_ENTRIES: Final = {
    "TF_LITE_PREFILL_DECODE": "tflite",
    "TOKENIZER_MODEL": "sentencepiece tokenizer",
    "METADATA": _METADATA,
}
_MODEL_TYPES: Final = {
    1: "generic",
    2: "gemma3n",
    3: "function_gemma",
    4: "gemma3",
    5: "qwen3",
    7: "qwen2p5",
    8: "gemma4",
    9: "fast_vlm",
    11: "lfm2",
    12: "minicpm5",
    13: "minicpmv4",
}
#: The header is a few kilobytes long.
_HEAD_BYTES_MAX: Final = 1 << 20
_METADATA_BYTES_MAX: Final = 16 << 20
#: The member of a value's union that is a text.
_TEXT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a bundle."""

    #: ``tflite``, ``sentencepiece tokenizer``, ``metadata`` ...
    kind: str
    #: What a model is for: ``tf_lite_prefill_decode``, ``tf_lite_vision_encoder`` ...; empty for
    #: another part.
    role: str
    size_bytes: int
    #: Further properties, for example backends that it is restricted to.
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelFacts:
    """A bundle's content; nothing here is a measurement."""

    #: ``litertlm`` or ``task``.
    form: str
    size_bytes: int
    #: Of the format; empty for a ``.task`` file.
    version: str
    sections: tuple[Section, ...]
    #: The longest context, prompt and answer together; None when the file doesn't say.
    context_tokens: int | None
    #: ``qwen3``, ``gemma3`` ..., empty when the file doesn't say.
    family: str

    @property
    def tokenizer(self) -> str:
        """Which kind of tokenizer it has, empty for none."""
        return next(
            (
                item.kind.removesuffix(" tokenizer")
                for item in self.sections
                if "tokenizer" in item.kind
            ),
            "",
        )


def is_bundle(head: bytes, path: Path) -> bool:
    """Whether a file that begins like this is a language model's bundle."""
    return head.startswith(_MARK) or (
        head.startswith(_ZIP) and "TF_LITE_PREFILL_DECODE" in _entries(path)
    )


def inspect_bundle(path: Path) -> LanguageModelFacts:
    """Return what a bundle holds.

    Raises ModelError for a file that isn't one, or that is damaged.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            content = file.read(_HEAD_BYTES_MAX)
            if content.startswith(_MARK):
                return _litertlm(file, content, size_bytes)
        return _task(path, size_bytes)
    except (*DAMAGE, zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"{str(path)!r} is truncated or damaged: {error}", hint="get the bundle again"
        ) from error
    except OSError as error:
        raise ModelError(f"{str(path)!r} can't be read: {error.strerror}") from error


def _litertlm(file: BinaryIO, content: bytes, size_bytes: int) -> LanguageModelFacts:
    """Read the header's tables by their fields' numbers: LiteRT-LM's schema isn't among those that
    LiteRT ships.

    ``content`` is the file's begin, with the whole header.
    """
    from flatbuffers.table import Table

    def target(table: Any, number: int) -> int:  # noqa: ANN401 - flatbuffers carries no types
        """Return where a field's text, vector or table lies; 0 for an absent one."""
        offset = table.Offset(4 + 2 * number)
        return int(table.Indirect(table.Pos + offset)) if offset else 0

    def tables(table: Any, number: int) -> list[Any]:  # noqa: ANN401
        at = target(table, number)
        count = struct.unpack_from("<I", content, at)[0] if at else 0
        if 4 * count > len(content):
            raise ValueError(f"it has a list of {count} tables")
        return [Table(content, table.Indirect(at + 4 + 4 * place)) for place in range(count)]

    def integer(table: Any, number: int, layout: str) -> int:  # noqa: ANN401
        offset = table.Offset(4 + 2 * number)
        return int(struct.unpack_from(layout, content, table.Pos + offset)[0]) if offset else 0

    def text(table: Any, number: int) -> str:  # noqa: ANN401
        offset = table.Offset(4 + 2 * number)
        return (
            table.String(table.Pos + offset).decode("utf-8", "backslashreplace") if offset else ""
        )

    version = struct.unpack_from("<III", content, 8)
    root = Table(content, _TABLES_AT + struct.unpack_from("<I", content, _TABLES_AT)[0])
    sections, metadata = [], b""
    for item in tables(Table(content, listed), 0) if (listed := target(root, 1)) else ():
        begin, end = integer(item, 1, "<Q"), integer(item, 2, "<Q")
        if not begin <= end <= size_bytes:
            raise ValueError(f"it refers to byte {end}, the file has {size_bytes}")
        # Of a section's pairs of key and value those count whose value is a text.
        pairs = (
            (text(pair, 0), target(pair, 2))
            for pair in tables(item, 0)
            if integer(pair, 1, "<B") == _TEXT
        )
        notes = {key: value for key, at in pairs if at and (value := text(Table(content, at), 0))}
        kind = _KINDS.get(integer(item, 3, "<B"), "unknown")
        role = notes.pop("model_type", "")
        sections.append(
            Section(
                kind=kind, role=role, size_bytes=end - begin, notes=tuple(sorted(notes.items()))
            )
        )
        if kind == _METADATA:
            file.seek(begin)
            metadata = file.read(min(end - begin, _METADATA_BYTES_MAX))
    return _facts("litertlm", size_bytes, ".".join(map(str, version)), tuple(sections), metadata)


def _task(path: Path, size_bytes: int) -> LanguageModelFacts:
    with zipfile.ZipFile(path) as archive:
        sections = tuple(
            Section(
                kind=_TASK_ENTRIES.get(item.filename, "data"),
                role="tf_lite_prefill_decode"
                if item.filename == "TF_LITE_PREFILL_DECODE"
                else item.filename,
                size_bytes=item.file_size,
            )
            for item in archive.infolist()
        )
        known = archive.getinfo("METADATA") if "METADATA" in archive.namelist() else None
        is_small = known is not None and known.file_size <= _METADATA_BYTES_MAX
        metadata = archive.read("METADATA") if is_small else b""
    return _facts("task", size_bytes, "", sections, metadata)


def _entries(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _facts(
    form: str, size_bytes: int, version: str, sections: tuple[Section, ...], metadata: bytes
) -> LanguageModelFacts:
    context, family = None, ""
    # The fields of LlmMetadata: 5 is max_num_tokens, 6 llm_model_type, of which one of several is
    # set.
    for number, value in _fields(metadata):
        if number == 5 and isinstance(value, int):
            context = value
        elif number == 6 and isinstance(value, bytes):
            family = next((_MODEL_TYPES.get(member, "") for member, _ in _fields(value)), "")
    return LanguageModelFacts(
        form=form,
        size_bytes=size_bytes,
        version=version,
        sections=sections,
        context_tokens=context,
        family=family,
    )


def _fields(message: bytes) -> list[tuple[int, object]]:
    """Return the fields of a protobuf message by their numbers."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    holder = Empty()
    try:
        holder.ParseFromString(message)
    except DecodeError as error:
        raise ValueError(f"its metadata can't be read ({error})") from error
    found = UnknownFieldSet(holder)
    return [(found[place].field_number, found[place].data) for place in range(len(found))]
