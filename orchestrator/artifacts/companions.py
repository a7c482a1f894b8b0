"""Whether a program and the libraries that are to lie beside it belong together, told from their content and origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.artifacts.elf import HEXAGON, Symbols, dynamic_symbols, inspect_elf
from orchestrator.artifacts.program import ProgramFacts
from orchestrator.errors import ArtifactError

#: What every phone has: the NDK's public libraries, and the vendors' that programs in /data/local/tmp may load.
_ON_PHONES: Final = frozenset(
    {
        "libEGL.so", "libGLESv1_CM.so", "libGLESv2.so", "libGLESv3.so", "libOpenCL.so", "libOpenMAXAL.so",
        "libOpenSLES.so", "libRS.so", "libaaudio.so", "libamidi.so", "libandroid.so", "libbase.so", "libbinder.so",
        "libbinder_ndk.so", "libc++.so", "libc.so", "libcamera2ndk.so", "libcdsprpc.so", "libadsprpc.so",
        "libcutils.so", "libdl.so", "libdl_android.so", "libft2.so", "libhardware.so", "libicu.so",
        "libjnigraphics.so", "liblog.so", "libm.so", "libmediandk.so", "libnativehelper.so", "libnativewindow.so",
        "libneuralnetworks.so", "libsdsprpc.so", "libstdc++.so", "libsync.so", "libui.so", "libutils.so",
        "libvndksupport.so", "libvulkan.so", "libz.so",
    }
)  # fmt: skip
#: Beginnings of the names of libraries that some vendors' phones have for their accelerators.
_ON_SOME_PHONES: Final = ("libQnn", "libSnpe", "libapu", "libedgetpu", "libenn", "libneuron")
#: Names that LiteRT's own libraries share; whoever has them all was made against the same interface.
_LITERT_PREFIX: Final = "LiteRt"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFile:
    """One library of a set."""

    name: str
    path: Path
    sha256: str
    group: str = ""
    #: Which release of its group it is of; empty when unknown.
    tag: str = ""


def check_set(
    program: SetFile, facts: ProgramFacts, libraries: Sequence[SetFile], tags_of: Callable[[str], frozenset[str]]
) -> None:
    """Refuse a program and libraries that can't work together on a phone.

    Args:
        program: The program.
        facts: What it says about itself.
        libraries: What is to lie beside it.
        tags_of: sha256 -> the releases in which that content was seen.

    Raises:
        ArtifactError: a library for another machine, one that is missing, one of another release.
    """
    _check_releases(program, libraries, tags_of)
    if facts.is_fake or facts.is_apk:
        return
    needed = {program.name: facts.needed}
    for library in libraries:
        found = inspect_elf(library.path)
        if found.abi != HEXAGON:
            if found.abi not in facts.abis:
                raise ArtifactError(
                    f"{library.name} is built for {found.abi}, {program.name} for {', '.join(facts.abis)}: "
                    "they can't be used together"
                )
            needed[library.name] = found.needed
    if not all(abi.startswith("linux-") for abi in facts.abis):
        _check_needed(needed)
    _check_interface([program, *libraries])


def _check_releases(program: SetFile, libraries: Sequence[SetFile], tags_of: Callable[[str], frozenset[str]]) -> None:
    own = tags_of(program.sha256) | _tags(program)
    for library in libraries:
        if library.group:
            continue
        theirs = tags_of(library.sha256) | _tags(library)
        if own and theirs and not own & theirs:
            raise ArtifactError(
                f"{library.name} is of release {' and '.join(sorted(theirs))}, "
                f"{program.name} of {' and '.join(sorted(own))}: they don't belong together",
                hint="take all files from one release",
            )
    groups = {library.group for library in libraries if library.group}
    for group in sorted(groups):
        members = [library for library in libraries if library.group == group]
        known = [(member, tags_of(member.sha256) | _tags(member)) for member in members]
        if len(members) > 1 and not frozenset.intersection(*(tags for _, tags in known)):
            parts = ", ".join(f"{m.name} of {' and '.join(sorted(tags)) or 'an unknown one'}" for m, tags in known)
            raise ArtifactError(
                f"the {group} libraries must be of one release: {parts}",
                hint="add them together and say of which release: benchfarm build add FILE --with FILE --release TAG",
            )


def _tags(file: SetFile) -> frozenset[str]:
    return frozenset({file.tag} if file.tag else ())


def _check_needed(needed: dict[str, tuple[str, ...]]) -> None:
    for name, wishes in needed.items():
        elsewhere = [wish for wish in wishes if wish not in needed and not wish.startswith(_ON_SOME_PHONES)]
        missing = [wish for wish in elsewhere if wish not in _ON_PHONES]
        if missing:
            raise ArtifactError(
                f"{name} needs {' and '.join(missing)}, which no phone has and which doesn't come with it",
                hint="add it together with the program: benchfarm build add FILE --with LIBRARY",
            )


def _check_interface(files: Sequence[SetFile]) -> None:
    """Compare what LiteRT's libraries want of each other with what they have: another release has other names."""
    if len(files) == 1:
        return
    symbols: dict[str, Symbols] = {file.name: dynamic_symbols(file.path) for file in files}
    defined = {name for found in symbols.values() for name in found.defined if name.startswith(_LITERT_PREFIX)}
    if not defined:
        return
    for name, found in symbols.items():
        missing = sorted(wish for wish in found.wanted if wish.startswith(_LITERT_PREFIX) and wish not in defined)
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ArtifactError(
                f"{name} needs {missing[0]}{more}, which none of the files beside it has: it is of another release",
                hint="take all files from one release",
            )
