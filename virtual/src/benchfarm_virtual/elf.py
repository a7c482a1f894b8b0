"""ELF files: reading what a program is built for, and writing tiny fake binaries that the virtual
phone knows.

A fake binary is a well-formed ELF header with a dynamic section and a note that names the program.
It holds no code: only a virtual phone "runs" it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"\x7fELF"
#: ABI -> (class: 1 is 32-bit, 2 is 64-bit; e_machine).
MACHINES: Final = {"arm64-v8a": (2, 183), "armeabi-v7a": (1, 40), "x86_64": (2, 62), "x86": (1, 3)}
NOTE_OWNER: Final = b"benchfarm\x00"
_NOTE_TYPE: Final = 1
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 0, 1, 5, 10
_ET_DYN: Final = 3
_SHT_STRTAB, _SHT_DYNAMIC, _SHT_NOTE = 3, 6, 7
#: A note is looked for in this much of a file.
_SEARCHED_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNote:
    """What a fake binary says that it is."""

    program: str
    version: str
    min_sdk: int


def abi_of(head: bytes) -> str | None:
    """Return the ABI of an ELF file from its first 20 bytes.

    None when it is no ELF, or for another machine.
    """
    if len(head) < 20 or head[:4] != MAGIC or head[5] != 1:
        return None
    machine = struct.unpack_from("<H", head, 18)[0]
    return next(
        (abi for abi, (kind, code) in MACHINES.items() if code == machine and kind == head[4]), None
    )


def note_of(content: bytes) -> FakeNote | None:
    """Return a fake binary's note, None for any other file."""
    searched = content[:_SEARCHED_BYTES]
    at = searched.find(struct.pack("<I", len(NOTE_OWNER)))
    while at >= 0:
        if searched[at + 12 : at + 12 + len(NOTE_OWNER)] == NOTE_OWNER and len(searched) >= at + 12:
            return _parse_note(searched, at)
        at = searched.find(struct.pack("<I", len(NOTE_OWNER)), at + 1)
    return None


def _parse_note(content: bytes, at: int) -> FakeNote | None:
    size = struct.unpack_from("<I", content, at + 4)[0]
    start = at + 12 + (len(NOTE_OWNER) + 3) // 4 * 4
    try:
        value = json.loads(content[start : start + size])
        return FakeNote(
            program=str(value["program"]),
            version=str(value["version"]),
            min_sdk=int(value["min_sdk"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def fake(note: FakeNote, abi: str, needed: Sequence[str]) -> bytes:
    """Return a fake binary's bytes: header, .dynstr, .dynamic, .note.benchfarm and section names.

    ``needed`` are the libraries that a program of that kind is linked against (DT_NEEDED).
    """
    bits, machine = MACHINES[abi]
    wide = bits == 2
    header_bytes, section_bytes, program_bytes = (64, 64, 56) if wide else (52, 40, 32)
    strings = b"\x00" + b"".join(name.encode() + b"\x00" for name in needed)
    description = json.dumps(
        {"program": note.program, "version": note.version, "min_sdk": note.min_sdk}
    ).encode()
    owner = NOTE_OWNER.ljust((len(NOTE_OWNER) + 3) // 4 * 4, b"\0")
    notes = (
        struct.pack("<III", len(NOTE_OWNER), len(description), _NOTE_TYPE)
        + owner
        + _padded(description, 4)
    )

    strings_at = header_bytes + 2 * program_bytes
    dynamic_at = strings_at + len(_padded(strings, 8))
    entry = "<qQ" if wide else "<iI"
    entries = [
        (_DT_NEEDED, 1 + sum(len(n.encode()) + 1 for n in needed[:i])) for i in range(len(needed))
    ]
    entries += [(_DT_STRTAB, strings_at), (_DT_STRSZ, len(strings)), (_DT_NULL, 0)]
    dynamic = b"".join(struct.pack(entry, tag, value) for tag, value in entries)
    note_at = dynamic_at + len(_padded(dynamic, 8))
    names = b"\x00.dynstr\x00.dynamic\x00.note.benchfarm\x00.shstrtab\x00"
    names_at = note_at + len(_padded(notes, 8))
    sections_at = names_at + len(_padded(names, 8))

    ident = MAGIC + bytes([bits, 1, 1, 0]) + bytes(8)
    rest = (
        _ET_DYN,
        machine,
        1,
        0,
        header_bytes,
        sections_at,
        0,
        header_bytes,
        program_bytes,
        2,
        section_bytes,
        5,
        4,
    )
    header = ident + struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *rest)
    segments = _segment(wide, 2, dynamic_at, len(dynamic)) + _segment(wide, 4, note_at, len(notes))
    body = (
        header
        + segments
        + _padded(strings, 8)
        + _padded(dynamic, 8)
        + _padded(notes, 8)
        + _padded(names, 8)
    )
    size = 16 if wide else 8
    return body + b"".join(
        _section(wide, *values)
        for values in (
            (0, 0, 0, 0, 0, 0),
            (names.index(b".dynstr"), _SHT_STRTAB, strings_at, len(strings), 0, 0),
            (names.index(b".dynamic"), _SHT_DYNAMIC, dynamic_at, len(dynamic), 1, size),
            (names.index(b".note.benchfarm"), _SHT_NOTE, note_at, len(notes), 0, 0),
            (names.index(b".shstrtab"), _SHT_STRTAB, names_at, len(names), 0, 0),
        )
    )


def _segment(wide: bool, kind: int, at: int, size: int) -> bytes:
    if wide:
        return struct.pack("<IIQQQQQQ", kind, 4, at, at, at, size, size, 8)
    return struct.pack("<IIIIIIII", kind, at, at, at, size, size, 4, 8)


def _section(wide: bool, name: int, kind: int, at: int, size: int, link: int, entry: int) -> bytes:
    values = (
        name,
        kind,
        0,
        at if kind in {_SHT_DYNAMIC, _SHT_NOTE} else 0,
        at,
        size,
        link,
        0,
        1,
        entry,
    )
    return struct.pack("<IIQQQQIIQQ" if wide else "<IIIIIIIIII", *values)


def _padded(content: bytes, align: int) -> bytes:
    return content.ljust((len(content) + align - 1) // align * align, b"\0")
