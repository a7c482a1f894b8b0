"""A benchmark program, binary or APK alike: looked inside, compared with what is declared, and with
its libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

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


def inspect_program(path: Path) -> ProgramFacts:
    """Look inside a file.

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


def check_against(
    spec: BuildSpec, facts: ProgramFacts, sha256: str, path: Path, *, abi: str = ""
) -> None:
    """Raise ArtifactError when a file isn't what is declared; ``abi`` is the one that it was
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
    """Return the name that a build for a device's ABI has.

    A Linux computer tells its machine's name alone, which for some is Android's name of an ABI too:
    ``x86_64``. When the device isn't known, the name says itself which of both systems is meant.
    """
    return f"linux-{abi}" if kind is DeviceKind.HOST and not abi.startswith("linux-") else abi


def fits(built_for: Sequence[str], wanted: str) -> bool:
    """Return whether a build runs there; one without native code runs everywhere."""
    return not built_for or wanted in built_for


def check_set(name: str, facts: ProgramFacts, libraries: Mapping[str, Path]) -> None:
    """Refuse a program and libraries that can't work together on a phone.

    Args:
        name: What the program is called.
        facts: What it says about itself.
        libraries: What is to lie beside it, by name.

    Raises:
        ArtifactError: a library is for another machine.
    """
    if facts.is_fake or facts.is_apk:
        return
    for library, path in libraries.items():
        (abi,) = inspect_elf(path).abis
        if abi != HEXAGON and abi not in facts.abis:
            raise ArtifactError(
                f"{library} is built for {abi}, {name} for {', '.join(facts.abis)}: "
                "they can't be used together"
            )
