"""What a language model's bundle holds: ``.litertlm`` and ``.task`` files, told without running any of it.

A ``.litertlm`` file begins with ``LITERTLM``, a version, and a flatbuffer that lists its sections; a ``.task`` file is
a zip archive of stored entries (LiteRT-LM's schema/core and runtime/components/model_resources_task.cc).
"""

from __future__ import annotations

import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import ModelError
from orchestrator.models.flatbuffer import DamagedBufferError, FlatBuffer, FlatTable

_MARK: Final = b"LITERTLM"
_ZIP: Final = b"PK\x03\x04"
_TABLES_AT: Final = 32
_KINDS: Final = {
    1: "data", 3: "tflite", 4: "sentencepiece tokenizer", 5: "metadata", 6: "Hugging Face tokenizer", 7: "weights",
    8: "embedding metadata", 9: "executor metadata", 10: "speech metadata", 11: "recognition metadata",
}  # fmt: skip
_METADATA: Final = "metadata"
_TASK_ENTRIES: Final = {
    "TF_LITE_PREFILL_DECODE": "tflite",
    "TOKENIZER_MODEL": "sentencepiece tokenizer",
    "METADATA": _METADATA,
}
_MODEL_TYPES: Final = {
    1: "generic", 2: "gemma3n", 3: "function_gemma", 4: "gemma3", 5: "qwen3", 7: "qwen2p5", 8: "gemma4", 9: "fast_vlm",
    11: "lfm2", 12: "minicpm5", 13: "minicpmv4",
}  # fmt: skip
_METADATA_BYTES_MAX: Final = 16 << 20
#: The member of a value's union that is a text.
_TEXT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a bundle."""

    #: ``tflite``, ``sentencepiece tokenizer``, ``metadata`` ...
    kind: str
    #: What a model is for: ``tf_lite_prefill_decode``, ``tf_lite_vision_encoder`` ...; empty for another part.
    role: str
    size_bytes: int
    #: What else is said of it: backends that it is restricted to, for example.
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
    #: The longest context, prompt and answer together; None when the file doesn't tell.
    context_tokens: int | None
    #: ``qwen3``, ``gemma3`` ..., empty when the file doesn't tell.
    family: str

    @property
    def tokenizer(self) -> str:
        """Which kind of tokenizer it has, empty for none."""
        return next((item.kind.removesuffix(" tokenizer") for item in self.sections if "tokenizer" in item.kind), "")


def is_bundle(head: bytes, path: Path) -> bool:
    """Whether a file that begins like this is a language model's bundle."""
    return head.startswith(_MARK) or (head.startswith(_ZIP) and "TF_LITE_PREFILL_DECODE" in _entries(path))


def inspect_bundle(path: Path) -> LanguageModelFacts:
    """Return what a bundle holds; raises ModelError for a file that isn't one, or that is damaged."""
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if file.read(len(_MARK)) == _MARK:
                return _litertlm(file.fileno(), size_bytes)
        return _task(path, size_bytes)
    except (DamagedBufferError, struct.error, zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{str(path)!r} is truncated or damaged: {error}", hint="get the bundle again") from error
    except OSError as error:
        raise ModelError(f"{str(path)!r} can't be read: {error.strerror}") from error


def _litertlm(descriptor: int, size_bytes: int) -> LanguageModelFacts:
    buffer = FlatBuffer(descriptor, size_bytes)
    version = tuple(buffer.number("<I", at) for at in (8, 12, 16))
    root = FlatTable(buffer, _TABLES_AT + buffer.number("<I", _TABLES_AT))
    listed = root.table(1)
    sections, metadata = [], b""
    for item in listed.tables(0) if listed is not None else ():
        begin, end = item.integer(1, "<Q"), item.integer(2, "<Q")
        buffer.check(begin, end - begin)
        notes = dict(_pairs(item))
        kind = _KINDS.get(item.integer(3, "<B"), "unknown")
        sections.append(
            Section(
                kind=kind, role=notes.pop("model_type", ""), size_bytes=end - begin, notes=tuple(sorted(notes.items()))
            )
        )
        if kind == _METADATA:
            metadata = buffer.content(begin, min(end - begin, _METADATA_BYTES_MAX))
    return _facts("litertlm", size_bytes, ".".join(map(str, version)), tuple(sections), metadata)


def _pairs(section: FlatTable) -> list[tuple[str, str]]:
    """Return a section's key and value pairs whose values are texts."""
    pairs = []
    for pair in section.tables(0):
        value = pair.table(2)
        pairs.append((pair.text(0), value.text(0) if value is not None and pair.integer(1, "<B") == _TEXT else ""))
    return [(key, value) for key, value in pairs if value]


def _task(path: Path, size_bytes: int) -> LanguageModelFacts:
    with zipfile.ZipFile(path) as archive:
        sections = tuple(
            Section(
                kind=_TASK_ENTRIES.get(item.filename, "data"),
                role="tf_lite_prefill_decode" if item.filename == "TF_LITE_PREFILL_DECODE" else item.filename,
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
    # The fields of LlmMetadata: 5 is max_num_tokens, 6 llm_model_type, of which one of several is set.
    for number, value in _fields(metadata):
        if number == 5 and isinstance(value, int):
            context = value
        elif number == 6 and isinstance(value, bytes):
            family = next((_MODEL_TYPES.get(member, "") for member, _ in _fields(value)), "")
    return LanguageModelFacts(
        form=form, size_bytes=size_bytes, version=version, sections=sections, context_tokens=context, family=family
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
        raise DamagedBufferError(f"its metadata can't be read ({error})") from error
    found = UnknownFieldSet(holder)
    return [(found[place].field_number, found[place].data) for place in range(len(found))]
