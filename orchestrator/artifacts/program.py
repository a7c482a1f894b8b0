"""A benchmark program in one file, binary or APK alike: looked inside, and held against what is declared of it."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.artifacts import apk, elf
from orchestrator.errors import ArtifactError
from orchestrator.records.build_spec import BuildSpec

#: Flags and words of every benchmark program of TFLite and LiteRT: one of them stands in the file of each.
_WORDS: Final = (
    b"Inference timings in us",
    b"num_threads",
    b"warmup_runs",
    b"graph file name",
    b"benchmark_prefill_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """What a file says about itself."""

    is_apk: bool
    #: For which ABIs it is built; empty for an APK without native code, which runs on all.
    abis: tuple[str, ...]
    min_sdk: int | None
    version: str
    package: str
    activities: tuple[str, ...]
    is_stand_in: bool
    #: Shared libraries that a binary is linked against.
    needed: tuple[str, ...] = ()
    #: Of an APK: whether its own files can be read with ``run-as``.
    debuggable: bool = False
    #: sha256 of the certificates that an APK is signed with.
    signers: tuple[str, ...] = ()


def inspect_program(path: Path) -> ProgramFacts:
    """Look inside a file.

    Raises:
        ArtifactError: missing, unreadable, neither a program nor an APK, a library, or damaged.
    """
    try:
        # Without O_NONBLOCK a named pipe would hold us here for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            head = stream.read(4)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ArtifactError(f"{str(path)!r} can't be read: {reason}", hint="check the path") from error
    if head == elf.MAGIC:
        facts = elf.inspect_elf(path)
        if not facts.is_program:
            raise ArtifactError(f"{str(path)!r} is a shared library, not a program")
        return ProgramFacts(
            is_apk=False, abis=(facts.abi,), min_sdk=facts.min_sdk, version=facts.build_id, package="", activities=(),
            is_stand_in=facts.is_stand_in, needed=facts.needed,
        )  # fmt: skip
    if head == apk.MAGIC:
        found = apk.inspect_apk(path)
        return ProgramFacts(
            is_apk=True, abis=found.abis, min_sdk=found.min_sdk, version=found.version_name, package=found.package,
            activities=found.activities, is_stand_in=found.is_stand_in,
            debuggable=found.debuggable, signers=found.signers,
        )  # fmt: skip
    raise ArtifactError(
        f"{str(path)!r} is neither an ELF program nor an APK",
        hint="was a web page downloaded instead of the file?" if head.lstrip()[:1] == b"<" else "",
    )


def shows_benchmark(path: Path) -> bool:
    """Whether an executable has a word of the benchmark programs in it; raises ArtifactError when it can't be read.

    One that is packed, or starts another, has none.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(word) >= 0 for word in _WORDS)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error}", hint="check the path") from error


def check_shows_benchmark(path: Path) -> None:
    """Raise ArtifactError for an executable that holds no word of a benchmark program.

    An APK is known by its package, a fake binary by its mark, and a library comes with its program.
    """
    try:
        facts = inspect_program(path)
    except ArtifactError:
        # Whoever reads it next reports what is wrong with it, or takes it as a library.
        return
    if not (facts.is_apk or facts.is_stand_in or shows_benchmark(path)):
        raise ArtifactError(
            f"{str(path)!r} is no benchmark program: none of its strings are (num_threads, warmup_runs)",
            hint="add benchmark_model or another benchmark program of TFLite or LiteRT, not a packed one",
        )


def check_against(spec: BuildSpec, facts: ProgramFacts, sha256: str, path: Path, *, abi: str = "") -> None:
    """Raise ArtifactError when a file isn't what is declared; ``abi`` is the one that it was fetched for."""
    wrong = f"{str(path)!r} isn't {spec.name} ({spec.title}): "
    if spec.sha256s and sha256 not in spec.sha256s:
        raise ArtifactError(
            f"{wrong}its sha256 is {sha256}, pinned is {' or '.join(spec.sha256s)}", hint=spec.how_to_get
        )
    if abi and facts.abis and abi not in facts.abis:
        raise ArtifactError(f"{wrong}it is built for {', '.join(facts.abis)}, not for {abi}")
    if facts.is_apk != spec.tool.is_app:
        raise ArtifactError(wrong + ("it is an APK" if facts.is_apk else "it is no APK"), hint=spec.how_to_get)
    if spec.package and facts.package != spec.package:
        raise ArtifactError(f"{wrong}its package is {facts.package!r}, not {spec.package!r}", hint=spec.how_to_get)
    if spec.activity and apk.full_activity(spec.package, spec.activity) not in facts.activities:
        raise ArtifactError(f"{wrong}it has no activity {spec.activity!r}", hint=spec.how_to_get)
    if spec.debuggable and not facts.debuggable:
        raise ArtifactError(f"{wrong}it isn't debuggable, so its results can't be read", hint=spec.how_to_get)
    if spec.signers and not set(spec.signers) & set(facts.signers):
        found = " and ".join(facts.signers) or "nobody"
        raise ArtifactError(f"{wrong}it is signed by {found}, not by {' or '.join(spec.signers)}", hint=spec.how_to_get)
