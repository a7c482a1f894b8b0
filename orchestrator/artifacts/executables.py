"""The facts of an executable or an APK: machine, libraries, lowest Android version, manifest; and
checks of a benchmark program by them, its declaration and its libraries. Nothing is installed or run.
"""

from __future__ import annotations

import io
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from orchestrator.errors import ArtifactError
from orchestrator.records import frozen
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.device import DeviceKind

ELF_MAGIC: Final = b"\x7fELF"
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


@frozen
class ProgramFacts:
    """The facts in an ELF file or an APK."""

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
    """Return the facts of an ELF file.

    Raises:
        ArtifactError: no ELF file, a damaged one, or one for a machine that no phone has.
    """
    try:
        with path.open("rb") as stream:
            return _read(stream, str(path))
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error.strerror}") from error


def inspect_elf_bytes(content: bytes, label: str) -> ProgramFacts:
    """Return the facts of an ELF file's bytes.

    Raises ArtifactError as :func:`inspect_elf` does.
    """
    return _read(io.BytesIO(content), label)


def _read(stream: BinaryIO, label: str) -> ProgramFacts:
    from elftools.elf.elffile import ELFFile

    if stream.read(len(ELF_MAGIC)) != ELF_MAGIC:
        raise ArtifactError(f"{label!r} is no ELF file")
    stream.seek(0)
    try:
        return _elf_facts(ELFFile(stream), label)
    except ArtifactError:
        raise
    # A damaged file makes pyelftools raise nearly any kind (its own, struct's, KeyError,
    # AttributeError ...), and each of them means the same here.
    except Exception as error:
        raise ArtifactError(
            f"{label!r} is a damaged ELF file: {type(error).__name__} {error}".rstrip(),
            hint="get the file again",
        ) from error


def _elf_facts(file: Any, label: str) -> ProgramFacts:  # noqa: ANN401 - pyelftools has no types
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.segments import InterpSegment, NoteSegment

    machine, bits = file["e_machine"], file.elfclass
    if (machine, bits) not in _ABIS:
        raise ArtifactError(f"{label!r} is for a machine that no phone has: {machine}, {bits} bits")
    android_abi, machine_name = _ABIS[machine, bits]
    interpreter, needed, notes, is_pie = "", [], [], False
    for segment in _bounded(file.iter_segments()):
        if isinstance(segment, InterpSegment):
            interpreter = str(segment.get_interp_name())
        elif isinstance(segment, DynamicSegment):
            needed = [str(tag.needed) for tag in _bounded(segment.iter_tags("DT_NEEDED"))]
            is_pie = any(tag["d_val"] & _PIE for tag in _bounded(segment.iter_tags("DT_FLAGS_1")))
        elif isinstance(segment, NoteSegment):
            notes += list(_bounded(segment.iter_notes()))
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


def _bounded(entries: Iterator[Any]) -> Iterator[Any]:
    """Yield the entries of a table; raises ValueError for a table of too many."""
    yield from islice(entries, _ENTRIES_MAX)
    if next(entries, None) is not None:
        raise ValueError(f"a table has more than {_ENTRIES_MAX} entries")


ZIP_MAGIC: Final = b"PK\x03\x04"
_MANIFEST: Final = "AndroidManifest.xml"
_MANIFEST_BYTES_MAX: Final = 4_000_000
_LIBRARY: Final = re.compile(r"lib/([A-Za-z0-9_-]+)/[^/]+\.so")
#: A fake binary's library is tiny; larger ones needn't be unpacked to know that they are none.
_FAKE_BYTES_MAX: Final = 65_536
#: What reading a damaged archive raises, beside zipfile's own error.
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)

#: Types of chunks.
_STRING_POOL, _XML, _START_ELEMENT, _END_ELEMENT, _RESOURCE_MAP = (
    0x0001,
    0x0003,
    0x0102,
    0x0103,
    0x0180,
)
_UTF8_FLAG: Final = 1 << 8
_NONE: Final = 0xFFFFFFFF
#: Types of values.
_STRING, _INT, _HEX, _BOOL = 0x03, 0x10, 0x11, 0x12
#: Attributes are known by their resource number: tools that shrink an app drop or change their
#: names.
_ATTRIBUTES: Final = {
    0x01010003: "name",
    0x0101000F: "debuggable",
    0x0101020C: "minSdkVersion",
    0x0101021C: "versionName",
}
_STRINGS_MAX: Final = 100_000

#: An element: the names of those around it and its own, and those attributes whose value isn't a
#: reference.
_Element = tuple[tuple[str, ...], dict[str, str | int | bool]]


def inspect_apk(path: Path) -> ProgramFacts:
    """Return the facts of an APK.

    Raises:
        ArtifactError: no zip archive, a damaged one, or one without an Android manifest.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _apk_facts(archive, path)
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise ArtifactError(
            f"{str(path)!r} is no APK, or a damaged one: {error}", hint="get the file again"
        ) from error


def full_activity(package: str, activity: str) -> str:
    """Return an activity's full class name: ``.Main`` and ``Main`` stand for ``<package>.Main``."""
    if "." in activity and not activity.startswith("."):
        return activity
    return f"{package}.{activity.removeprefix('.')}"


def _apk_facts(archive: zipfile.ZipFile, path: Path) -> ProgramFacts:
    if _MANIFEST not in archive.namelist():
        raise ArtifactError(f"{str(path)!r} is a zip archive without {_MANIFEST}, so no APK")
    with archive.open(_MANIFEST) as stream:
        content = stream.read(_MANIFEST_BYTES_MAX + 1)
    if len(content) > _MANIFEST_BYTES_MAX:
        raise ArtifactError(
            f"{str(path)!r}: its {_MANIFEST} is larger than {_MANIFEST_BYTES_MAX} bytes"
        )
    elements = list(_elements(content))

    def first(*names: str) -> dict[str, str | int | bool]:
        return next((attributes for place, attributes in elements if place == names), {})

    manifest, min_sdk = first("manifest"), first("manifest", "uses-sdk").get("minSdkVersion", 1)
    package = str(manifest.get("package", ""))
    if not package:
        raise ArtifactError(f"{str(path)!r}: its {_MANIFEST} names no package")
    libraries = [info for info in archive.infolist() if _LIBRARY.fullmatch(info.filename)]
    return ProgramFacts(
        is_apk=True,
        package=package,
        activities=tuple(
            full_activity(package, str(attributes["name"]))
            for place, attributes in elements
            if place == ("manifest", "application", "activity") and "name" in attributes
        ),
        version=str(manifest.get("versionName", "")),
        # A preview's codename instead of a number means: only that preview.
        min_sdk=min_sdk if isinstance(min_sdk, int) else 10_000,
        debuggable=first("manifest", "application").get("debuggable", False) is True,
        abis=tuple(sorted({info.filename.split("/")[1] for info in libraries})),
        is_fake=any(_is_fake(archive, info) for info in libraries),
    )


def _is_fake(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if info.file_size > _FAKE_BYTES_MAX:
        return False
    with archive.open(info) as stream:
        content = stream.read(_FAKE_BYTES_MAX)
    try:
        return inspect_elf_bytes(content, info.filename).is_fake
    except ArtifactError:
        return False


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the elements of a binary XML file.

    Raises ValueError, struct.error, IndexError for what isn't Android's binary XML.
    """
    kind, start, end = struct.unpack_from("<HHI", data)
    if kind != _XML or end > len(data):
        raise ValueError("it doesn't begin as binary XML does")
    strings: list[str] = []
    names: dict[int, str] = {}
    path: list[str] = []
    while start + 8 <= end:
        kind, head, size = struct.unpack_from("<HHI", data, start)
        if head < 8 or size < head or start + size > end:
            raise ValueError(f"the chunk at byte {start} has size {size}")
        chunk = data[start : start + size]
        start += size
        if kind == _STRING_POOL:
            strings = _strings(chunk, head)
        elif kind == _RESOURCE_MAP:
            ids = struct.unpack_from(f"<{(size - head) // 4}I", chunk, head)
            names = {
                index: _ATTRIBUTES[value] for index, value in enumerate(ids) if value in _ATTRIBUTES
            }
        elif kind == _START_ELEMENT:
            name, attributes = _element(chunk[head:], strings, names)
            path.append(name)
            yield tuple(path), attributes
        elif kind == _END_ELEMENT:
            if not path:
                raise ValueError("an element ends that didn't begin")
            path.pop()


def _strings(pool: bytes, head: int) -> list[str]:
    count, _, flags, pool_start, _ = struct.unpack_from("<5I", pool, 8)
    if count > _STRINGS_MAX:
        raise ValueError(f"it has {count} strings")
    offsets = struct.unpack_from(f"<{count}I", pool, head)
    is_utf8 = bool(flags & _UTF8_FLAG)
    return [_string(pool, pool_start + offset, is_utf8=is_utf8) for offset in offsets]


def _string(pool: bytes, offset: int, *, is_utf8: bool) -> str:
    """Return a string; its length, one or two units of 8 or 16 bits, comes first, and twice (chars,
    bytes) in UTF-8.
    """
    unit, width = ("<B", 1) if is_utf8 else ("<H", 2)
    length = 0
    for _ in range(2 if is_utf8 else 1):
        length, high = struct.unpack_from(unit, pool, offset)[0], 1 << (8 * width - 1)
        offset += width
        if length & high:
            length = (length & (high - 1)) << 8 * width | struct.unpack_from(unit, pool, offset)[0]
            offset += width
    text = pool[offset : offset + width * length]
    if len(text) < width * length:
        raise ValueError("a string ends behind the pool")
    return text.decode("utf-8" if is_utf8 else "utf-16-le", "replace")


def _element(
    body: bytes, strings: list[str], names: dict[int, str]
) -> tuple[str, dict[str, str | int | bool]]:
    _, name, start, size, count = struct.unpack_from("<IIHHH", body)
    attributes: dict[str, str | int | bool] = {}
    if size < 20:
        raise ValueError(f"attributes of {size} bytes")
    for number in range(count):
        _, key, raw, _, _, kind, value = struct.unpack_from("<IIIHBBI", body, start + number * size)
        attribute = names.get(key) or strings[key]
        if kind == _STRING:
            attributes[attribute] = strings[value]
        elif kind in {_INT, _HEX}:
            attributes[attribute] = int(value)
        elif kind == _BOOL:
            attributes[attribute] = value != 0
        elif raw != _NONE:
            attributes[attribute] = strings[raw]
    return strings[name], attributes


#: Flags and words of every benchmark program of TFLite and LiteRT: one of them is in the file
#: of each.
_WORDS: Final = (
    b"Inference timings in us",
    b"num_threads",
    b"warmup_runs",
    b"graph file name",
    b"benchmark_prefill_tokens",
)


def inspect_program(path: Path) -> ProgramFacts:
    """Return the facts of a program's file.

    Raises:
        ArtifactError: missing, unreadable, neither a program nor an APK, a library, or damaged.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ArtifactError(
            f"{str(path)!r} can't be read: {reason}", hint="check the path"
        ) from error
    if head == ELF_MAGIC:
        facts = inspect_elf(path)
        if not facts.is_program:
            raise ArtifactError(f"{str(path)!r} is a shared library, not a program")
        return facts
    if head == ZIP_MAGIC:
        return inspect_apk(path)
    raise ArtifactError(
        f"{str(path)!r} is neither an ELF program nor an APK",
        hint="was a web page downloaded instead? Of a script, add the program that it starts",
    )


def is_shared_library(path: Path) -> bool:
    """Whether a file is an ELF library; False for what can't be read.

    Raises ArtifactError for a damaged ELF file.
    """
    try:
        with path.open("rb") as stream:
            is_elf = stream.read(4) == ELF_MAGIC
    except (OSError, ValueError):
        return False  # inspect_program says why
    return is_elf and not inspect_elf(path).is_program


def check_shows_benchmark(path: Path) -> None:
    """Raise ArtifactError for an executable that holds no word of a benchmark program.

    An APK is known by its package, a fake binary by its mark, and a library comes with its program.
    One that is packed, or starts another, is refused.
    """
    try:
        facts = inspect_program(path)
    except ArtifactError:
        # Whoever reads it next reports what is wrong with it, or takes it as a library.
        return
    if facts.is_apk or facts.is_fake:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        is_shown = any(content.find(word) >= 0 for word in _WORDS)
    if not is_shown:
        raise ArtifactError(
            f"{str(path)!r} is no benchmark program: none of its strings are (num_threads, warmup_runs)",
            hint="add benchmark_model or another benchmark program of TFLite or LiteRT, not a packed one",
        )


def check_against(
    spec: BuildSpec, facts: ProgramFacts, sha256: str, path: Path, *, abi: str = ""
) -> None:
    """Raise ArtifactError when a file differs from its declaration; ``abi`` is the one that it was
    fetched for.
    """
    wrong, hint = "", spec.how_to_get
    pinned, expected = spec.source.sha256, spec.expected
    if pinned and sha256 not in pinned:
        wrong = f"its sha256 is {sha256}, pinned is {' or '.join(pinned)}"
    elif abi and facts.abis and abi not in facts.abis:
        wrong, hint = f"it is built for {', '.join(facts.abis)}, not for {abi}", ""
    elif facts.is_apk != spec.tool.is_app:
        wrong = "it is an APK" if facts.is_apk else "it is no APK"
    elif expected.package and facts.package != expected.package:
        wrong = f"its package is {facts.package!r}, not {expected.package!r}"
    elif (
        expected.activity
        and full_activity(expected.package, expected.activity) not in facts.activities
    ):
        wrong = f"it has no activity {expected.activity!r}"
    elif expected.debuggable and not facts.debuggable:
        wrong = "it isn't debuggable, so its results can't be read"
    if wrong:
        raise ArtifactError(f"{str(path)!r} isn't {spec.name} ({spec.title}): {wrong}", hint=hint)


def check_complete(spec: BuildSpec, names: Sequence[str]) -> None:
    """Raise ArtifactError when a library that is always needed isn't among the names."""
    missing = [name for name in spec.needed if name not in names]
    if missing:
        raise ArtifactError(
            f"{spec.name} needs {' and '.join(missing)} beside it",
            hint=f"{spec.how_to_get}; or put all files into one folder, then add the program",
        )


def abi_name(abi: str, kind: DeviceKind | None) -> str:
    """Return the ABI's name in builds for a device.

    A Linux computer tells its machine's name alone, which for some is Android's name of an ABI too:
    ``x86_64``. When the device isn't known, the name says itself which of both systems is meant.
    """
    return f"linux-{abi}" if kind is DeviceKind.HOST and not abi.startswith("linux-") else abi


def fits(built_for: Sequence[str], abi: str) -> bool:
    """Return whether a build runs there; one without native code runs everywhere."""
    return not built_for or abi in built_for


#: What every phone has: the NDK's public libraries, and the vendors' that programs in
#: /data/local/tmp may load.
_ON_PHONES: Final = frozenset(
    {
        "libEGL.so",
        "libGLESv1_CM.so",
        "libGLESv2.so",
        "libGLESv3.so",
        "libOpenCL.so",
        "libOpenMAXAL.so",
        "libOpenSLES.so",
        "libRS.so",
        "libaaudio.so",
        "libamidi.so",
        "libandroid.so",
        "libbase.so",
        "libbinder.so",
        "libbinder_ndk.so",
        "libc++.so",
        "libc.so",
        "libcamera2ndk.so",
        "libcdsprpc.so",
        "libadsprpc.so",
        "libcutils.so",
        "libdl.so",
        "libdl_android.so",
        "libft2.so",
        "libhardware.so",
        "libicu.so",
        "libjnigraphics.so",
        "liblog.so",
        "libm.so",
        "libmediandk.so",
        "libnativehelper.so",
        "libnativewindow.so",
        "libneuralnetworks.so",
        "libsdsprpc.so",
        "libstdc++.so",
        "libsync.so",
        "libui.so",
        "libutils.so",
        "libvndksupport.so",
        "libvulkan.so",
        "libz.so",
    }
)
#: Beginnings of the names of libraries that some vendors' phones have for their accelerators.
_ON_SOME_PHONES: Final = ("libQnn", "libSnpe", "libapu", "libedgetpu", "libenn", "libneuron")


def check_set(name: str, facts: ProgramFacts, libraries: Mapping[str, Path]) -> None:
    """Refuse a program and libraries that can't work together on a phone.

    Args:
        name: What the program is called.
        facts: What it says about itself.
        libraries: What is to lie beside it, by name.

    Raises:
        ArtifactError: a library for another machine, or one that is missing.
    """
    if facts.is_fake or facts.is_apk:
        return
    needed = {name: facts.needed}
    for library, path in libraries.items():
        library_facts = inspect_elf(path)
        (abi,) = library_facts.abis
        if abi == HEXAGON:
            continue
        if abi not in facts.abis:
            raise ArtifactError(
                f"{library} is built for {abi}, {name} for {', '.join(facts.abis)}: "
                "they can't be used together"
            )
        needed[library] = library_facts.needed
    if all(abi.startswith("linux-") for abi in facts.abis):
        return
    for user, names in needed.items():
        missing = [
            item
            for item in names
            if item not in needed.keys() | _ON_PHONES and not item.startswith(_ON_SOME_PHONES)
        ]
        if missing:
            raise ArtifactError(
                f"{user} needs {' and '.join(missing)}, which no phone has and which doesn't come with it",
                hint="add it together with the program: benchfarm build add FILE --with LIBRARY",
            )
