"""Writing protocol buffers: the wire format and the text format, enough for what the benchmark programs write.

Messages are lists of fields with their numbers from the public .proto files (tools/benchmark/proto,
profiling/proto); fields that are set are written also when they are 0 (proto2, or explicit presence).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal

from benchfarm_lab.varint import varint

FieldKind = Literal["int", "float", "string", "message", "packed", "enum", "bytes", "packed_float"]


def _packed(values: tuple[int, ...]) -> bytes:
    if min(values) >= 0 and max(values) < 0x80:
        return bytes(values)
    return b"".join(map(varint, values))


@dataclass(slots=True)
class Message:
    """A message being built, field by field."""

    fields: list[tuple[int, str, FieldKind, object]] = field(default_factory=list)

    def integer(self, number: int, name: str, value: int) -> Message:
        """Add an integer field (int32, int64)."""
        self.fields.append((number, name, "int", value))
        return self

    def single(self, number: int, name: str, value: float) -> Message:
        """Add a float field."""
        self.fields.append((number, name, "float", value))
        return self

    def text(self, number: int, name: str, value: str) -> Message:
        """Add a string field."""
        self.fields.append((number, name, "string", value))
        return self

    def raw(self, number: int, name: str, value: bytes) -> Message:
        """Add a bytes field."""
        self.fields.append((number, name, "bytes", value))
        return self

    def child(self, number: int, name: str, value: Message) -> Message:
        """Add a message field."""
        self.fields.append((number, name, "message", value))
        return self

    def packed(self, number: int, name: str, values: tuple[int, ...]) -> Message:
        """Add a packed list of integers; nothing when it is empty."""
        if values:
            self.fields.append((number, name, "packed", values))
        return self

    def enum(self, number: int, name: str, value: int, label: str) -> Message:
        """Add an enum field; ``label`` is its name in the text format."""
        self.fields.append((number, name, "enum", (value, label)))
        return self

    def to_bytes(self) -> bytes:
        """Return the message in the wire format."""
        out = bytearray()
        for number, _, kind, value in self.fields:
            match kind, value:
                case "int", int():
                    out += varint(number << 3) + varint(value)
                case "enum", (int() as code, str()):
                    out += varint(number << 3) + varint(code)
                case "float", float() | int():
                    out += varint(number << 3 | 5) + struct.pack("<f", value)
                case "packed", tuple():
                    out += _delimited(number, _packed(value))
                case "packed_float", tuple():
                    out += _delimited(number, struct.pack(f"<{len(value)}f", *value))
                case "string", str():
                    out += _delimited(number, value.encode("utf-8", "replace"))
                case "bytes", bytes():
                    out += _delimited(number, value)
                case "message", Message():
                    out += _delimited(number, value.to_bytes())
        return bytes(out)


def _delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content
