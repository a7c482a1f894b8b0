"""Programs, libraries and APKs with chosen contents, built byte by byte by the formats' own descriptions."""

import io
import struct
import zipfile
from pathlib import Path

from benchfarm_lab.samples import benchmark_apk, benchmark_elf


def real(content: bytes) -> bytes:
    """Make an Android program that is no fake binary out of one: with the NDK's note for API level 26 instead."""
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
    with zipfile.ZipFile(io.BytesIO(benchmark_apk(**options))) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, real(old.read(name)) if name.startswith("lib/") else old.read(name))
    return out.getvalue()


def elf(
    *, machine: int = 183, needed: tuple[str, ...] = (), defined: tuple[str, ...] = (), wanted: tuple[str, ...] = (),
    weak: tuple[str, ...] = (), is_program: bool = False,
) -> bytes:  # fmt: skip
    """Return an ELF file with a dynamic section and symbols, of 64 bits unless the machine has 32."""
    wide = machine in {183, 62}
    names = [*needed, *defined, *wanted, *weak]
    strings, offsets = b"\0", {}
    for name in names:
        offsets[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = bytes(24 if wide else 16)
    for name in [*defined, *wanted, *weak]:
        section = 1 if name in defined else 0
        info = (2 if name in weak else 1) << 4 | 2
        if wide:
            symbols += struct.pack("<IBBHQQ", offsets[name], info, 0, section, 0, 0)
        else:
            symbols += struct.pack("<IIIBBH", offsets[name], 0, 0, info, 0, section)
    head, segment, section_size = (64, 56, 64) if wide else (52, 32, 40)
    strings_at = head + segment
    symbols_at = strings_at + len(strings)
    entries = [(1, offsets[name]) for name in needed] + [(5, strings_at), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ" if wide else "<iI", *entry) for entry in entries)
    dynamic_at = symbols_at + len(symbols)
    section_names = b"\0.dynstr\0.dynsym\0.shstrtab\0"
    names_at = dynamic_at + len(dynamic)
    sections_at = names_at + len(section_names)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    kind = 2 if is_program else 3
    rest = (kind, machine, 1, 0, head, sections_at, 0, head, segment, 1, section_size, 4, 3)
    header = ident + struct.pack("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", *rest)
    if wide:
        header += struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    else:
        header += struct.pack("<IIIIIIII", 2, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 4, 4)

    def section(name: int, kind: int, at: int, size: int, link: int = 0, entry: int = 0) -> bytes:
        values = (name, kind, 0, at, at, size, link, 0, 1, entry)
        return struct.pack("<IIQQQQIIQQ" if wide else "<IIIIIIIIII", *values)

    table = section(0, 0, 0, 0) + section(1, 3, strings_at, len(strings))
    table += section(9, 11, symbols_at, len(symbols), 1, 24 if wide else 16)
    table += section(17, 3, names_at, len(section_names))
    return header + strings + symbols + dynamic + section_names + table


def write_elf(path: Path, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf(**options))
    return path
