"""What an executable says about itself: machine, system, libraries, lowest Android version.

Nothing is run.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from orchestrator.errors import ArtifactError

MAGIC: Final = b"\x7fELF"
#: Stands where an ABI does, for a library that Qualcomm's signal processor runs, whatever the
#: phone's ABI is.
HEXAGON: Final = "hexagon"
#: (machine, bits) -> Android's name of the ABI, and what ``uname -m`` calls the machine.
_ABIS: Final = {
    ("EM_AARCH64", 64): ("arm64-v8a", "aarch64"),
    ("EM_ARM", 32): ("armeabi-v7a", "armv7l"),
    ("EM_X86_64", 64): ("x86_64", "x86_64"),
    ("EM_386", 32): ("x86", "i686"),
    ("EM_RISCV", 64): ("riscv64", "riscv64"),
    ("EM_QDSP6", 32): (HEXAGON, "hexagon"),
}
#: Owner of the note in benchfarm's fake binaries, which only a virtual phone can run.
_FAKE_OWNER: Final = "benchfarm"
_ANDROID_OWNER: Final = "Android"
#: The flag of a program that is linked like a library, to lie anywhere in memory (DF_1_PIE).
_PIE: Final = 0x0800_0000
_ENTRIES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """What an ELF file or an APK says about itself."""

    is_apk: bool
    #: False for a shared library.
    is_program: bool = True
    #: For which ABIs it is built: Android's name, or ``linux-`` and the machine's name for a
    #: program of a Linux computer; empty for an APK without native code, which runs on all.
    abis: tuple[str, ...]
    #: The lowest Android API level; None when it doesn't tell.
    min_sdk: int | None
    #: An APK's version, or the linker's id of a binary's build as hexadecimal digits; empty without
    #: one.
    version: str
    #: Of an APK; activities are full class names.
    package: str = ""
    activities: tuple[str, ...] = ()
    #: Of an APK: whether its own files can be read with ``run-as``.
    debuggable: bool = False
    #: A fake binary that only a virtual phone can run.
    is_fake: bool
    #: Shared libraries that a binary is linked against (DT_NEEDED).
    needed: tuple[str, ...] = ()


def inspect_elf(path: Path) -> ProgramFacts:
    """Return what an ELF file is.

    Raises:
        ArtifactError: no ELF file, a damaged one, or one for a machine that no phone has.
    """
    try:
        with path.open("rb") as stream:
            return _read(stream, str(path))
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error.strerror}") from error


def inspect_elf_bytes(content: bytes, label: str) -> ProgramFacts:
    """Return what the bytes of an ELF file are.

    Raises ArtifactError as :func:`inspect_elf` does.
    """
    return _read(io.BytesIO(content), label)


def _read(stream: BinaryIO, label: str) -> ProgramFacts:
    from elftools.elf.elffile import ELFFile

    if stream.read(len(MAGIC)) != MAGIC:
        raise ArtifactError(f"{label!r} is no ELF file")
    stream.seek(0)
    try:
        return _facts(ELFFile(stream), label)
    except ArtifactError:
        raise
    # A damaged file makes pyelftools raise nearly any kind (its own, struct's, KeyError,
    # AttributeError ...), and each of them means the same here.
    except Exception as error:
        raise ArtifactError(
            f"{label!r} is a damaged ELF file: {type(error).__name__} {error}".rstrip(),
            hint="get the file again",
        ) from error


def _facts(file: Any, label: str) -> ProgramFacts:  # noqa: ANN401 - pyelftools has no types
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.segments import InterpSegment, NoteSegment

    machine, bits = file["e_machine"], file.elfclass
    if (machine, bits) not in _ABIS:
        raise ArtifactError(f"{label!r} is for a machine that no phone has: {machine}, {bits} bits")
    android_abi, machine_name = _ABIS[machine, bits]
    interpreter, needed, notes, is_pie = "", [], [], False
    for segment in _at_most(file.iter_segments()):
        if isinstance(segment, InterpSegment):
            interpreter = str(segment.get_interp_name())
        elif isinstance(segment, DynamicSegment):
            needed = [str(tag.needed) for tag in _at_most(segment.iter_tags("DT_NEEDED"))]
            is_pie = any(tag["d_val"] & _PIE for tag in _at_most(segment.iter_tags("DT_FLAGS_1")))
        elif isinstance(segment, NoteSegment):
            notes += list(_at_most(segment.iter_notes()))
    owners = {str(note["n_name"]) for note in notes}
    is_fake = _FAKE_OWNER in owners
    # A static program names no interpreter; glibc's has a note of its own, and phones aren't x86_64
    # without one.
    is_glibc = any(note["n_name"] == "GNU" and note["n_type"] == "NT_GNU_ABI_TAG" for note in notes)
    is_linux = interpreter.startswith(("/lib", "/usr/lib")) or (
        not interpreter
        and (is_glibc or machine == "EM_X86_64")
        and not owners & {_ANDROID_OWNER, _FAKE_OWNER}
    )
    # The Android NDK's note: API level, NDK version, NDK build number (bionic's crtbrand).
    levels = (
        n["n_descdata"][:4]
        for n in notes
        if n["n_name"] == _ANDROID_OWNER and len(n["n_descdata"]) >= 4
    )
    ids = (
        n["n_descdata"] for n in notes if n["n_name"] == "GNU" and n["n_type"] == "NT_GNU_BUILD_ID"
    )
    return ProgramFacts(
        is_apk=False,
        abis=(f"linux-{machine_name}" if is_linux else android_abi,),
        is_program=file["e_type"] == "ET_EXEC" or bool(interpreter) or is_pie or is_fake,
        needed=tuple(needed),
        min_sdk=next((int.from_bytes(level, "little") for level in levels), None),
        version=next((content.hex() for content in ids if len(content) <= 64), ""),
        is_fake=is_fake,
    )


def _at_most(entries: Iterator[Any]) -> Iterator[Any]:
    """Yield entries of a table, and end a table that has no end."""
    yield from islice(entries, _ENTRIES_MAX)
    if next(entries, None) is not None:
        raise ValueError(f"a table has more than {_ENTRIES_MAX} entries")
