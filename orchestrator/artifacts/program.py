"""Checks of a benchmark program, binary or APK: its facts, its declaration and its libraries."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator.artifacts.executables import (
    ELF_MAGIC,
    HEXAGON,
    ZIP_MAGIC,
    ProgramFacts,
    full_activity,
    inspect_apk,
    inspect_elf,
)
from orchestrator.errors import ArtifactError
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.device import DeviceKind

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
