"""Programs, libraries and APKs with chosen contents, built byte by byte by the formats' own
descriptions."""

import io
import struct
import zipfile
from pathlib import Path

from benchfarm_virtual.samples import benchmark_apk, benchmark_elf


def real(content: bytes) -> bytes:
    """Make an Android program that is no fake binary out of one: with the NDK's note for API level
    26 instead."""
    changed = bytearray(content)
    at = changed.index(b"benchfarm\0")
    struct.pack_into("<I", changed, at - 12, 8)
    changed[at : at + 12] = b"Android\0" + struct.pack("<I", 26)
    changed[16] = 2  # ET_EXEC
    return bytes(changed)


def program(path: Path, abi: str = "arm64-v8a", version: str = "1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(real(benchmark_elf(abi=abi, version=version)))
    return path


def app(path: Path, **options) -> Path:
    path.write_bytes(app_bytes(**options))
    return path


def app_bytes(**options) -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(benchmark_apk(**options))) as old,
        zipfile.ZipFile(out, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, real(old.read(name)) if name.startswith("lib/") else old.read(name))
    return out.getvalue()


def elf(
    *,
    machine: int = 183,
    needed: tuple[str, ...] = (),
    mark: str = "",
    is_program: bool = False,
    flags_1: int = 0,
) -> bytes:
    """Return an ELF file with a dynamic segment, of 64 bits unless the machine has 32; each mark is
    another content.
    """
    wide = machine in {183, 62}
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    head, segment = (64, 56) if wide else (52, 32)
    strings_at = head + 2 * segment
    entries = [(1, strings.index(name.encode())) for name in needed]
    entries += [(5, strings_at), (10, len(strings)), (0x6FFFFFFB, flags_1), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ" if wide else "<iI", *entry) for entry in entries)
    content = strings + dynamic + mark.encode()
    dynamic_at = strings_at + len(strings)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    rest = (2 if is_program else 3, machine, 1, 0, head, 0, 0, head, segment, 2, 0, 0, 0)
    header = ident + struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *rest)
    # What is loaded, all of the file, and within it what the linker reads.
    for kind, at, size in ((1, 0, strings_at + len(content)), (2, dynamic_at, len(dynamic))):
        values = (
            (kind, 4, at, at, at, size, size, 8) if wide else (kind, at, at, at, size, size, 4, 4)
        )
        header += struct.pack("<IIQQQQQQ" if wide else "<IIIIIIII", *values)
    return header + content


def write_elf(path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf(**options))
    return path
