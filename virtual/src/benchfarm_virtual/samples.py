"""Fake binaries for the real benchmark programs, for the quickstart and for tests: they run on
virtual phones only.
"""

from __future__ import annotations

import dataclasses
import io
import json
import struct
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchfarm_virtual.contract import AppInfo
from benchfarm_virtual.errors import UsageError

#: The names in the notes of delegates' fake libraries, and of their kernels.
DUMMY_PROGRAM: Final = "dummy_external_delegate"
STABLE_PROGRAM: Final = "sample_stable_delegate"
#: Vendors whose NPU a virtual phone can have, as LiteRT's libraries spell them, by
#: ``ro.soc.manufacturer`` in lower case.
NPU_VENDORS: Final = {
    "qti": "Qualcomm",
    "mediatek": "MediaTek",
    "google": "GoogleTensor",
    "samsung": "Samsung",
}
#: What the Hexagon delegate needs beside the program: its interface, and a library for each
#: generation of the DSP.
HEXAGON_LIBRARIES: Final = (
    "libhexagon_interface.so",
    "libhexagon_nn_skel.so",
    "libhexagon_nn_skel_v65.so",
    "libhexagon_nn_skel_v66.so",
)
#: What LiteRT-LM needs beside its program to use a GPU, and to choose tokens on it.
LANGUAGE_MODEL_LIBRARIES: Final = ("libLiteRtOpenClAccelerator.so", "libLiteRtTopKOpenClSampler.so")
#: What LiteRT needs beside its program to use an NPU.
NPU_LIBRARIES: Final = tuple(
    f"libLiteRt{part}_{vendor}.so"
    for vendor in NPU_VENDORS.values()
    for part in ("Dispatch", "CompilerPlugin")
)
_NEEDED: Final = (
    "libEGL.so",
    "libGLESv2.so",
    "liblog.so",
    "libandroid.so",
    "libm.so",
    "libdl.so",
    "libc.so",
)
BENCHMARK_PACKAGE: Final = AppInfo().package
#: What a fake APK says that it is, as JSON.
APP_NOTE: Final = "assets/benchfarm.json"
#: Files in an APK have this date, so that the same APK has the same bytes.
_ZIP_DATE: Final = (2024, 1, 1, 0, 0, 0)


def benchmark_elf(
    program: str = "benchmark_model",
    abi: str = "arm64-v8a",
    *,
    version: str = "virtual",
) -> bytes:
    """Return the bytes of a fake executable; raise UsageError for an ABI that there is none of."""
    return fake(FakeNote(program=program, version=version), abi, _NEEDED)


def library_elf(name: str, abi: str = "arm64-v8a", *, version: str = "virtual") -> bytes:
    """Return the bytes of a fake library that one of the programs needs beside it.

    Libraries of one version belong together. Raises UsageError for another ABI.
    """
    return fake(FakeNote(program=name, version=version), abi, ("libc.so",))


def refuse_unknown(label: str, value: str, known: Collection[str]) -> None:
    """Raise UsageError for what there is no fake binary of."""
    if value not in known:
        raise UsageError(
            f"there is no fake binary {label} {value!r}; there are: {', '.join(known)}"
        )


def write_benchmark_elf(path: Path, *names: str, **settings: Any) -> Path:  # noqa: ANN401
    """Write a fake executable and return its path; arguments as of :func:`benchmark_elf`."""
    path.write_bytes(benchmark_elf(*names, **settings))
    path.chmod(0o755)
    return path


def benchmark_apk(**settings: Any) -> bytes:  # noqa: ANN401 - AppInfo's
    """Return the bytes of a fake APK, with :class:`AppInfo`'s settings: a binary manifest, and the
    program's library for each ABI.
    """
    app = AppInfo(**settings)
    activity: Element = ("activity", {"name": app.activity}, [])
    manifest: Element = (
        "manifest",
        {
            "package": app.package,
            "versionCode": app.version_code,
            "versionName": app.version_name,
        },
        [
            ("uses-sdk", {"minSdkVersion": app.min_sdk}, []),
            ("application", {"debuggable": app.debuggable}, [activity]),
        ],
    )
    end = "_plus_flex" if app.flex else ""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(_member("AndroidManifest.xml"), encode(manifest))
        archive.writestr(_member("classes.dex"), b"dex\n035\0" + bytes(104))
        for abi in app.abis:
            content = benchmark_elf(f"benchmark_model{end}", abi, version=app.version_name)
            library = f"lib/{abi}/libtensorflowlite_benchmark{end}.so"
            archive.writestr(_member(library), content)
        # What a virtual phone reads of it.
        archive.writestr(_member(APP_NOTE), json.dumps(dataclasses.asdict(app)))
    return out.getvalue()


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_ZIP_DATE)
    info.external_attr = 0o644 << 16
    return info


_XML, _STRING_POOL, _RESOURCE_MAP = 0x0003, 0x0001, 0x0180
_START_ELEMENT, _END_ELEMENT = 0x0102, 0x0103
_TYPE_STRING, _TYPE_INT, _TYPE_BOOL = 0x03, 0x10, 0x12
_NONE: Final = 0xFFFFFFFF
#: Resource ids of the attributes that are written (android.R.attr).
_ATTRIBUTE_IDS: Final = {
    "name": 0x01010003,
    "debuggable": 0x0101000F,
    "minSdkVersion": 0x0101020C,
    "versionCode": 0x0101021B,
    "versionName": 0x0101021C,
}

#: An element's name, its attributes by their local names, and its children.
Element = tuple[str, dict[str, str | int | bool], list["Element"]]


def encode(root: Element) -> bytes:
    """Return an element tree as binary XML; attributes are known by their resource ids."""
    # The names with resource ids come first, in the order of these.
    numbers = {name: number for number, name in enumerate(_ATTRIBUTE_IDS)}

    def number(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    def chunks(element: Element) -> bytes:
        tag, attributes, children = element
        attribute_data = b""
        for name, value in attributes.items():
            raw = _NONE
            if isinstance(value, str):
                raw = data = number(value)
                kind = _TYPE_STRING
            elif isinstance(value, bool):
                kind, data = _TYPE_BOOL, _NONE if value else 0
            else:
                kind, data = _TYPE_INT, value
            attribute_data += struct.pack("<IIIHBBI", _NONE, number(name), raw, 8, 0, kind, data)
        head = struct.pack("<IIHHHHHH", _NONE, number(tag), 20, 20, len(attributes), 0, 0, 0)
        end = struct.pack("<II", _NONE, number(tag))
        inner = b"".join(map(chunks, children))
        return _node(_START_ELEMENT, head + attribute_data) + inner + _node(_END_ELEMENT, end)

    count = len(_ATTRIBUTE_IDS)
    ids = struct.pack(f"<HHI{count}I", _RESOURCE_MAP, 8, 8 + 4 * count, *_ATTRIBUTE_IDS.values())
    tree = chunks(root)
    body = _strings_chunk(list(numbers)) + ids + tree
    return struct.pack("<HHI", _XML, 8, 8 + len(body)) + body


def _strings_chunk(pool: Sequence[str]) -> bytes:
    offsets, data = b"", b""
    for text in pool:
        offsets += struct.pack("<I", len(data))
        encoded = text.encode("utf-16-le")
        data += struct.pack("<H", len(encoded) // 2) + encoded + b"\0\0"
    data = data.ljust((len(data) + 3) // 4 * 4, b"\0")
    start = 28 + len(offsets)
    return (
        struct.pack("<HHIIIIII", _STRING_POOL, 28, start + len(data), len(pool), 0, 0, start, 0)
        + offsets
        + data
    )


def _node(kind: int, body: bytes) -> bytes:
    return struct.pack("<HHIII", kind, 16, 16 + len(body), 1, _NONE) + body


MAGIC: Final = b"\x7fELF"
#: ABI -> (class: 1 is 32-bit, 2 is 64-bit; e_machine).
MACHINES: Final = {"arm64-v8a": (2, 183), "armeabi-v7a": (1, 40), "x86_64": (2, 62), "x86": (1, 3)}
NOTE_OWNER: Final = b"benchfarm\x00"
_NOTE_TYPE: Final = 1
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 0, 1, 5, 10
_ET_DYN: Final = 3
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
#: A note is looked for in this much of a file, and isn't longer.
_SEARCHED_BYTES: Final = 1 << 20
_NOTE_BYTES: Final = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNote:
    """What a fake binary says that it is."""

    program: str
    version: str


def elf_abi(head: bytes) -> str | None:
    """Return the ABI of an ELF file from its first 20 bytes.

    None when it is no ELF, or for another machine.
    """
    if len(head) < 20 or head[:4] != MAGIC or head[5] != 1:
        return None
    machine = struct.unpack_from("<H", head, 18)[0]
    return next(
        (abi for abi, (kind, code) in MACHINES.items() if code == machine and kind == head[4]), None
    )


def fake_note(content: bytes) -> FakeNote | None:
    """Return a fake binary's note, None for any other file."""
    _, _, after = content[:_SEARCHED_BYTES].partition(NOTE_OWNER)
    text = after[:_NOTE_BYTES].lstrip(b"\0").decode("latin-1")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
        return FakeNote(**value)
    except (ValueError, TypeError):
        return None


def fake(note: FakeNote, abi: str, needed: Sequence[str]) -> bytes:
    """Return a fake binary's bytes: header, segments, names of libraries, dynamic entries, note.

    ``needed`` are the libraries that a program of that kind is linked against (DT_NEEDED).
    """
    refuse_unknown("for ABI", abi, MACHINES)
    bits, machine = MACHINES[abi]
    wide = bits == 2
    header_bytes, segment_bytes = (64, 56) if wide else (52, 32)
    strings = b"\x00" + b"".join(name.encode() + b"\x00" for name in needed)
    description = _padded(json.dumps(dataclasses.asdict(note)).encode(), 4)
    sizes = struct.pack("<III", len(NOTE_OWNER), len(description), _NOTE_TYPE)
    notes = sizes + _padded(NOTE_OWNER, 4) + description

    strings_at = header_bytes + 3 * segment_bytes
    dynamic_at = strings_at + len(_padded(strings, 8))
    entries = [(_DT_NEEDED, strings.index(b"\0" + name.encode()) + 1) for name in needed]
    entries += [(_DT_STRTAB, strings_at), (_DT_STRSZ, len(strings)), (_DT_NULL, 0)]
    entry = "<qQ" if wide else "<iI"
    dynamic = b"".join(struct.pack(entry, tag, value) for tag, value in entries)
    note_at = dynamic_at + len(_padded(dynamic, 8))

    ident = MAGIC + bytes([bits, 1, 1, 0]) + bytes(8)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH",
        *(_ET_DYN, machine, 1, 0, header_bytes, 0, 0, header_bytes, segment_bytes, 3, 0, 0, 0),
    )
    segments = (
        (_PT_LOAD, 0, note_at + len(notes)),
        (_PT_DYNAMIC, dynamic_at, len(dynamic)),
        (_PT_NOTE, note_at, len(notes)),
    )
    heads = b"".join(_segment(*segment, wide=wide) for segment in segments)
    return header + heads + _padded(strings, 8) + _padded(dynamic, 8) + notes


def _segment(kind: int, offset: int, size: int, *, wide: bool) -> bytes:
    if wide:
        return struct.pack("<IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8)
    return struct.pack("<IIIIIIII", kind, offset, offset, offset, size, size, 4, 8)


def _padded(content: bytes, align: int) -> bytes:
    return content.ljust((len(content) + align - 1) // align * align, b"\0")
