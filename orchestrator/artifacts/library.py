"""The benchmark programs on this computer: each kept under the sha256 of its content, found by name, tool and ABI."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator.artifacts.program import ProgramFacts, check_against, inspect_program
from orchestrator.errors import ArtifactError, HostStorageError
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha
from orchestrator.records.workload import Build, ToolName

_LABEL: Final = "build.json"
_SHA_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}")
#: Between the ABIs of an APK that has several.
_ABI_SEPARATOR: Final = ","


class BuildLibrary:
    """The cache of benchmark programs, and what is declared about them.

    Each content has a folder named by its sha256, with the file and ``build.json``. A folder appears by one rename, so
    that it is whole or not there, whoever else adds at the same time.
    """

    def __init__(self, cache_folder: Path, specs: Sequence[BuildSpec] = ()) -> None:
        self._folder = cache_folder
        self.specs: tuple[BuildSpec, ...] = tuple(specs)

    def add(self, path: Path, *, name: str = "") -> Build:
        """Take a copy of a program into the cache, after a look inside.

        Args:
            path: A benchmark program or an APK.
            name: A declared build's name, or one of the user's own; told by the file's name when empty.

        Raises:
            ArtifactError: it can't be read, is no program, or isn't what is declared under its name.
            HostStorageError: no space left.
        """
        facts = inspect_program(path)
        name = name or self._name_for(path, facts)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            raise ArtifactError(
                f"{name!r} can't be the name of a build",
                hint="give one of letters, digits, dots, dashes and underscores with --name",
            )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".adding-", dir=self._folder) as draft:
                return self._add(path, name, facts, Path(draft) / "entry")
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"no space left in {self._folder}") from error
            raise ArtifactError(f"{str(path)!r} can't be copied to {self._folder}: {error.strerror}") from error

    def _add(self, path: Path, name: str, facts: ProgramFacts, entry: Path) -> Build:
        entry.mkdir()
        copy = entry / _file_name(path, facts)
        sha256 = _copy(path, copy)
        spec = self._declared(name, facts.abis)
        if spec is not None and not facts.is_stand_in:
            check_against(spec, facts, sha256, path)
        build = self._build(name, facts, sha256, copy)
        known = self._read(self._folder / sha256)
        if known is not None and _sha256(known.path) != sha256:
            known = None
        if known is not None and known.name == name:
            return known
        _write_label(entry / _LABEL, build, datetime.now(UTC))
        if known is not None:  # The same content under a new name: only its label changes.
            (entry / _LABEL).replace(self._folder / sha256 / _LABEL)
        else:
            shutil.rmtree(self._folder / sha256, ignore_errors=True)  # what damage left there
            try:
                entry.rename(self._folder / sha256)
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:  # another process has just added the same
                    raise
        added = self._read(self._folder / sha256)
        if added is None or _sha256(added.path) != sha256:
            raise ArtifactError(f"what arrived in {self._folder} differs from {str(path)!r}", hint="check the disk")
        return added

    def list(self) -> Sequence[Build]:
        """Return all cached programs, by name, the newest first within one name."""
        return [build for _, build in sorted(self._entries(), key=lambda entry: (entry[1].name, -entry[0]))]

    def verify(self) -> Sequence[tuple[Build, bool]]:
        """Hash every cached program again; return each with whether its content is what it was."""
        return [(build, _sha256(build.path) == build.sha256) for build in self.list()]

    def resolve(self, tool: ToolName, abi: str, *, name_or_path: str = "", kind: DeviceKind | None = None) -> Build:
        """Return the program to use for a tool on a device's ABI.

        Args:
            tool: Which tool.
            abi: Android's name of the ABI, or the machine's name of a Linux computer (``x86_64``, ``aarch64``).
            name_or_path: What a plan names: a path (it has a slash), a name, a sha256 or its first digits (8 at least),
                or name@digits. The tool's default build when empty; a stand-in is used only when it is named.
            kind: Of the device: programs of Android and of Linux both know an ABI ``x86_64``.

        Raises:
            ArtifactError: it isn't there (the message says how to get it), or is built for something else.
        """
        wanted = _abi_names(abi, kind)
        if "/" in name_or_path:
            return self._from_path(Path(name_or_path).expanduser(), tool, wanted)
        named = self._named(name_or_path) if name_or_path else self._default(tool)
        fitting = [build for build in named if build.tool is tool and _fits(build, wanted)]
        pinned = {sha for spec in self.specs if spec.name == name_or_path for sha in spec.sha256s}
        usable = [build for build in fitting if not pinned or build.sha256 in pinned or build.is_virtual]
        for build in usable:
            if _sha256(build.path) == build.sha256:
                return build
        if usable:
            raise ArtifactError(
                f"{usable[0].path} isn't what it was when it was added",
                hint="add the file again: benchfarm builds add FILE",
            )
        raise self._missing(tool, wanted, name_or_path, named)

    def resolve_for(self, facts: DeviceFacts, tool: ToolName, *, name_or_path: str = "") -> Build:
        """Return the program to use on a device: the first of its ABIs that there is one for.

        Raises:
            ArtifactError: as :meth:`resolve`; also for a stand-in on a real phone, and a program for a newer Android.
        """
        problems: list[ArtifactError] = []
        for abi in facts.abis or ("",):
            try:
                build = self.resolve(tool, abi, name_or_path=name_or_path, kind=facts.kind)
            except ArtifactError as error:
                problems.append(error)
                continue
            if build.is_virtual and not facts.is_virtual:
                raise ArtifactError(f"{build.name} is a stand-in that only a virtual phone runs, not {facts.serial}")
            min_sdk = inspect_program(build.path).min_sdk if build.path else None
            if min_sdk is not None and facts.sdk is not None and facts.sdk < min_sdk:
                raise ArtifactError(
                    f"{build.name} needs Android API level {min_sdk}, {facts.serial} has {facts.sdk}",
                    hint="build or get the program for an older Android",
                )
            return build
        raise problems[0]

    def _from_path(self, path: Path, tool: ToolName, wanted: frozenset[str]) -> Build:
        facts = inspect_program(path)
        name = self._name_for(path, facts)
        if facts.is_apk != (tool is ToolName.APK):
            raise ArtifactError(f"{str(path)!r} is {'an' if facts.is_apk else 'no'} APK, which isn't what {tool} needs")
        build = self._build(name, facts, _sha256(path), path.absolute(), tool=tool)
        if not _fits(build, wanted):
            raise ArtifactError(f"{str(path)!r} is built for {build.abi}, the device needs {_needs(wanted)}")
        return build

    def _default(self, tool: ToolName) -> Sequence[Build]:
        """Return the real builds that may stand for a tool, the declared default's first, the newest of each first."""
        defaults = {spec.name for spec in self.specs if spec.is_default and spec.tool is tool}
        pins = {spec.name: spec.sha256s for spec in self.specs if spec.sha256s}
        real = [b for b in self.list() if not b.is_virtual and b.sha256 in pins.get(b.name, (b.sha256,))]
        return [b for b in real if b.name in defaults] or [
            b for b in real if b.name not in {s.name for s in self.specs}
        ]

    def _named(self, wanted: str) -> Sequence[Build]:
        name, _, digits = wanted.partition("@")
        if not digits and _SHA_PREFIX.fullmatch(name):
            by_sha = [build for build in self.list() if build.sha256.startswith(name)]
            if by_sha:
                return by_sha
        return [build for build in self.list() if build.name == name and build.sha256.startswith(digits)]

    def _missing(self, tool: ToolName, wanted: frozenset[str], name: str, others: Sequence[Build]) -> ArtifactError:
        base = name.partition("@")[0]
        specs = [s for s in self.specs if s.tool is tool and (s.name == base if base else s.is_default)]
        fitting = [spec for spec in specs if spec.abi in wanted]
        what = f"no build {name!r}" if name else f"no build of {tool!s}"
        message = f"{what} for {_needs(wanted)} is on this computer"
        has = sorted({f"{build.tool} for {build.abi}" for build in others})
        if has:
            message += f" (there is {', '.join(has)})"
        elif base and not specs:
            known = sorted({spec.name for spec in self.specs if spec.tool is tool} | {b.name for b in self.list()})
            message += f"; known are {', '.join(known)}" if known else ""
        hint = fitting[0].how_to_get if fitting else f"benchfarm builds add FILE --name {base or 'NAME'}"
        return ArtifactError(message, hint=hint)

    def _name_for(self, path: Path, facts: ProgramFacts) -> str:
        """Return the declared name that a file's name stands for, else the file's own without .apk."""
        for spec in self.specs:
            if (spec.tool is ToolName.APK) != facts.is_apk or not set(facts.abis) & {spec.abi}:
                continue
            if path.name == spec.url.rpartition("/")[2] and spec.tool is not ToolName.LITERT:
                return spec.name
        by_program = {s.program: s.name for s in self.specs if s.tool is not ToolName.LITERT}
        return by_program.get(path.name) or path.name.removesuffix(".apk")

    def _declared(self, name: str, abis: Sequence[str]) -> BuildSpec | None:
        """Return what is declared of a build; for an ABI that isn't declared, what holds for all, without its pins."""
        of_name = [spec for spec in self.specs if spec.name == name]
        fitting = next((spec for spec in of_name if spec.abi in abis), None)
        return fitting or (dataclasses.replace(of_name[0], sha256s=()) if of_name else None)

    def _build(self, name: str, facts: ProgramFacts, sha256: str, path: Path, tool: ToolName | None = None) -> Build:
        if tool is None:
            declared = next((spec.tool for spec in self.specs if spec.name == name), ToolName.NATIVE)
            tool = ToolName.APK if facts.is_apk else declared
        return Build(
            name=name,
            tool=tool,
            sha256=BuildSha(sha256),
            abi=_ABI_SEPARATOR.join(facts.abis),
            version=facts.version,
            package=facts.package,
            is_virtual=facts.is_stand_in,
            path=path,
        )

    def _entries(self) -> Iterator[tuple[float, Build]]:
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            build = self._read(folder) if _SHA_PREFIX.fullmatch(folder.name) and len(folder.name) == 64 else None
            if build is not None:
                yield _added_at(folder), build

    def _read(self, folder: Path) -> Build | None:
        """Return the program in a folder of the cache, None when it isn't whole."""
        try:
            label = json.loads((folder / _LABEL).read_text(encoding="utf-8"))
            path = folder / Path(label["file"]).name
            if not path.is_file():
                return None
            return Build(
                name=str(label["name"]),
                tool=ToolName(label["tool"]),
                sha256=BuildSha(folder.name),
                abi=str(label["abi"]),
                version=str(label["version"]),
                package=str(label["package"]),
                is_virtual=bool(label["is_virtual"]),
                path=path,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _abi_names(abi: str, kind: DeviceKind | None) -> frozenset[str]:
    """Return the names that a build for this ABI may have."""
    linux = abi if abi.startswith("linux-") else f"linux-{abi}"
    match kind:
        case DeviceKind.HOST:
            return frozenset({linux})
        case None:
            return frozenset({abi, linux})
        case _:
            return frozenset({abi})


def _needs(wanted: frozenset[str]) -> str:
    return min(wanted, key=lambda abi: (abi.startswith("linux-"), abi)) or "its (unknown) ABI"


def _fits(build: Build, wanted: frozenset[str]) -> bool:
    return not build.abi or bool(wanted & set(build.abi.split(_ABI_SEPARATOR)))


def _file_name(path: Path, facts: ProgramFacts) -> str:
    """Return a harmless name for the copy: it ends up in paths on phones."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", path.name).lstrip(".-")[:100] or "program"
    name = name if name != _LABEL else f"{name}.bin"
    return name if not facts.is_apk or name.endswith(".apk") else f"{name}.apk"


def _copy(source: Path, target: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        while part := reader.read(1 << 20):
            digest.update(part)
            writer.write(part)
        writer.flush()
        os.fsync(writer.fileno())
    target.chmod(0o755)
    return digest.hexdigest()


def _sha256(path: Path | None) -> str:
    """Return the hash of a file's content, empty when it can't be read."""
    try:
        if path is None:
            return ""
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def _write_label(path: Path, build: Build, added_at: datetime) -> None:
    label = {
        "name": build.name,
        "tool": build.tool.value,
        "abi": build.abi,
        "version": build.version,
        "package": build.package,
        "is_virtual": build.is_virtual,
        "file": build.path.name if build.path else "",
        "added_at": added_at.isoformat(),
    }
    path.write_text(json.dumps(label, indent=2) + "\n", encoding="utf-8")


def _added_at(folder: Path) -> float:
    try:
        return datetime.fromisoformat(json.loads((folder / _LABEL).read_text(encoding="utf-8"))["added_at"]).timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
