"""The benchmark programs on this computer: added, checked, and found by name, tool and ABI."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from orchestrator.artifacts.archive import Archive, Arrival, Release, ReleaseFile, sha256_of
from orchestrator.artifacts.elf import HEXAGON, ProgramFacts, inspect_elf
from orchestrator.artifacts.program import (
    abi_name,
    check_against,
    check_complete,
    check_set,
    fits,
    inspect_program,
    is_shared_library,
)
from orchestrator.errors import ArtifactError
from orchestrator.programs import is_here, usual_tool
from orchestrator.programs import program as program_of
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import Build, BuildSha, Companion, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind

_SHA_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: In place of the ABI of an APK without native code.
_ANY_ABI: Final = ""
_UNKNOWN: Final = "its (unknown) ABI"


def libraries_beside(tool: ToolName, path: Path) -> dict[str, Path]:
    """Return the libraries that a program needs, from the folder that it lies in, by name."""
    found = [each for glob in program_of(tool).beside for each in path.parent.glob(glob)]
    return {each.name: each for each in sorted(found) if each.is_file()}


class BuildLibrary:
    """The kept benchmark programs with their libraries, and what is declared about them."""

    def __init__(self, cache_folder: Path, specs: Sequence[BuildSpec] = ()) -> None:
        self.archive = Archive(cache_folder)
        #: Those of programs that the core or an extension that is here brings.
        self.specs = tuple(spec for spec in specs if is_here(spec.tool))

    # Adding
    # -----------------------------------------------------------------------------------------------------------

    def add(
        self,
        path: Path,
        *,
        name: str = "",
        libraries: Sequence[Path] = (),
        release: str = "",
        tool: ToolName | None = None,
    ) -> Build:
        """Take a copy of a program and its libraries into the cache, after a look inside, and put
        it in use.

        Libraries that are declared and lie in the program's folder are taken too; a link is taken
        as its file.

        Args:
            path: A benchmark program or an APK; or a library, for the program of that name that is
                in use.
            name: A declared build's name, or one of the user's own; told by the file's name when
                empty.
            libraries: Further files to lie beside it on a phone.
            release: Which release the files are of, when the user knows.
            tool: Which program it is; told by its name when None.

        Raises:
            ArtifactError: it can't be read, is no program, isn't what is declared under its name,
                or the files don't belong together.
            HostStorageError: no space left.
        """
        if tool is not None:
            name = name or str(tool) * tool.is_declared
            if other := next(
                (s.tool for s in self.specs if s.name == name and s.tool is not tool), None
            ):
                problem = f"{name!r} is declared as a build of {other}, not of {tool}"
                raise ArtifactError(problem, hint="give another --name")
            if not (tool.is_app or program_of(tool).file_name):
                raise ArtifactError(
                    f"{tool} isn't started by benchfarm from a file: there is nothing to keep"
                )
        is_library = is_shared_library(path)
        facts = None if is_library else inspect_program(path)
        if facts is not None:
            _check_kind(facts, tool, path)
            name = name or self._name_for(path, facts, tool)
        if (name or not is_library) and not _NAME.fullmatch(name):
            raise ArtifactError(
                f"{name!r} can't be the name of a build",
                hint="give one of letters, digits, dots, dashes and underscores with --name",
            )
        groups = self._groups(name)
        if is_library:
            files = [
                _arrival(item, group=groups.get(item.name, ""), tag=release)
                for item in (path, *libraries)
            ]
            return self._add_libraries(files, name, tool)
        beside = {item: path.parent / item for item in groups if (path.parent / item).is_file()}
        if tool is not None:
            beside |= libraries_beside(tool, path)
        beside |= {file.name: file for file in libraries}
        files = [
            _arrival(beside[item], item, group=groups.get(item, ""), tag=release)
            for item in sorted(beside)
        ]
        return self._with_companions(
            self.register(name, _arrival(path, tag=release), files, tag=release, tool=tool),
        )

    def register(
        self,
        name: str,
        program: Arrival,
        libraries: Sequence[Arrival],
        *,
        tag: str,
        abi: str = "",
        pin: bool = True,
        tool: ToolName | None = None,
    ) -> Release:
        """Keep a program with the libraries that came with it as one release.

        Args:
            name: The build's name.
            program: The program.
            libraries: What belongs beside it.
            tag: Which release it is; empty when unknown.
            abi: The ABI that it was fetched for; those that it is built for when empty.
            pin: Whether it is to be used from now on; the first one of a name always is.
            tool: Which program it is; told by its name when None.

        Raises:
            ArtifactError: it isn't what is declared, or the files don't belong together; nothing is
                kept.
            HostStorageError: no space left.
        """
        facts = inspect_program(program.path)
        program, *libraries = [_hashed(item) for item in (program, *libraries)]
        spec = self._spec(name, (abi,) if abi else facts.abis)
        if spec is not None and (spec.sha256s or not facts.is_fake):
            check_against(spec, facts, program.file.sha256, program.path, abi=abi)
            check_complete(spec, [item.file.name for item in libraries])
        main = Arrival(path=program.path, file=replace(program.file, name=name, tag=tag))
        check_set(main, facts, libraries, self.archive.tags_of)
        file_name = spec.program if spec is not None and abi else program.path.name
        program = replace(program, file=replace(program.file, name=file_name))
        for item in (program, *libraries):
            self.archive.keep(item.path, sha256=item.file.sha256, name=item.file.name)
        release = Release(
            name=name,
            abis=(abi,) if abi else facts.abis or (_ANY_ABI,),
            tag=tag,
            seen_at=datetime.now(UTC),
            files=tuple(item.file for item in (program, *libraries)),
            tool=tool or self._tool_of(name, facts),
            built_for=facts.abis,
            version=facts.version,
            package=facts.package,
            is_virtual=facts.is_fake,
        )
        return self.archive.record(release, pin=pin)

    def _add_libraries(self, files: Sequence[Arrival], name: str, tool: ToolName | None) -> Build:
        """Add libraries to those releases of a program that are in use for their ABI; return the
        last of them.
        """
        if not name:
            raise ArtifactError(
                f"{str(files[0].path)!r} is a shared library, not a program",
                hint="say for which program it is: benchfarm build add FILE --name NAME",
            )
        abis = {inspect_elf(item.path).abis[0] for item in files} - {HEXAGON}
        added: Build | None = None
        for abi in sorted({abi for release in self.archive.releases(name) for abi in release.abis}):
            release = self.archive.pinned(name, abi)
            if release is None or (abis and abi not in abis):
                continue
            program, *there = [self.arrival(file) for file in release.files]
            merged = {item.file.name: item for item in (*there, *files)}
            libraries = [merged[item] for item in sorted(merged)]
            own = tool or release.tool
            added = self._with_companions(
                self.register(name, program, libraries, tag=release.tag, abi=abi, tool=own)
            )
        if added is None:
            wanted = f" for {' and '.join(sorted(abis))}" if abis else ""
            raise ArtifactError(
                f"no program {name!r}{wanted} is here that the libraries could lie beside",
                hint=f"first: benchfarm build fetch {name}",
            )
        return added

    def arrival(self, file: ReleaseFile) -> Arrival:
        """Return a kept file as one that comes again.

        Raises ArtifactError when it isn't what it was.
        """
        path = self.archive.path(file.sha256)
        if path is None or _known_sha256(path) != file.sha256:
            raise ArtifactError(
                f"{file.name} isn't what it was when it was added, or is gone: {path or 'no file'}",
                hint="fetch or add it again: benchfarm build fetch NAME, or build add FILE",
            )
        return Arrival(path=path, file=file)

    # Looking
    # ----------------------------------------------------------------------------------------------------------

    def list(self) -> Sequence[Build]:
        """Return all kept programs, by name, the newest first within one name."""
        return [
            release.build(self.archive.path(release.program.sha256)) for release in self._kept()
        ]

    def verify(self) -> Sequence[tuple[str, str, bool]]:
        """Hash every file of every release again; return name, sha256, and whether it is what it
        was.
        """
        files = {
            (release.name if number == 0 else file.name, file.sha256): file
            for release in self.archive.all()
            for number, file in enumerate(release.files)
        }
        return [
            (name, sha256, self.archive.is_whole(file))
            for (name, sha256), file in sorted(files.items())
        ]

    def find_release(self, wanted: str) -> Release:
        """Return the release that ``NAME@DIGITS`` names, by its own or its program's first digits;
        the newest of them.

        Raises:
            ArtifactError: there is none, or the digits fit several programs.
        """
        name, _, digits = wanted.partition("@")
        known, fitting = self.archive.releases(name), self._of_digits(name, digits)
        if not fitting or not digits:
            there = ", ".join(f"{name}@{release.release_id}" for release in known)
            raise ArtifactError(
                f"no release {wanted!r} is on this computer"
                + (f"; there are {there}" if there else ""),
                hint="benchfarm build list --all",
            )
        if len({release.program.sha256 for release in fitting}) > 1:
            raise ArtifactError(f"{wanted!r} fits several releases", hint="give more digits")
        return fitting[-1]

    def release_of(self, build: Build) -> Release | None:
        """Return the newest release with a build's program and libraries, else the newest with its
        program.
        """
        known = [
            r
            for r in reversed(self.archive.releases(build.name))
            if r.program.sha256 == build.sha256
        ]
        contents = {(companion.name, companion.sha256) for companion in build.companions}
        same = (r for r in known if {(file.name, file.sha256) for file in r.libraries} == contents)
        return next(same, next(iter(known), None))

    def has(self, tool: ToolName, facts: DeviceFacts, named: str = "") -> bool:
        """Whether a program for a tool, of a name when one is given, is kept that a device may run."""
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        kept = [
            r
            for r in (self._named(named) if named else self._kept())
            if r.tool is tool and not r.is_virtual
        ]
        return any(fits(release.built_for, name) for release in kept for name in names)

    def declared_for(self, facts: DeviceFacts, tool: ToolName) -> BuildSpec | None:
        """Return the declared default program of a tool for the first of a device's ABIs that has
        one.
        """
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        specs = [
            spec
            for spec in self.specs
            if spec.tool is tool and spec.is_default and spec.abi in names
        ]
        return min(specs, key=lambda spec: names.index(spec.abi), default=None)

    # Choosing
    # ---------------------------------------------------------------------------------------------------------

    def resolve(
        self, tool: ToolName, abi: str, *, name_or_path: str = "", kind: DeviceKind | None = None
    ) -> Build:
        """Return the program to use for a tool on a device's ABI, with its libraries.

        Args:
            tool: Which tool.
            abi: Android's name of the ABI, or ``linux-`` and the machine's name of a Linux
                computer, which a device of that kind tells without ``linux-``.
            name_or_path: What a plan names: a path (it has a slash), a name, a sha256 or its first
                digits (8 at least), or name@digits. The tool's default build when empty; a fake
                binary is used only when it is named.
            kind: Of the device: programs of Android and of Linux both know an ABI ``x86_64``.

        Raises:
            ArtifactError: it isn't there (the message says how to get it), or is built for
                something else.
        """
        wanted = abi_name(abi, kind)
        if "/" in name_or_path:
            return self._from_path(Path(name_or_path).expanduser(), tool, wanted)
        named = self._named(name_or_path) if name_or_path else self._default(tool)
        fitting = [
            release for release in named if release.tool is tool and fits(release.built_for, wanted)
        ]
        pins = {sha for spec in self.specs if spec.name == name_or_path for sha in spec.sha256s}
        usable = [r for r in fitting if not pins or r.program.sha256 in pins]
        if not usable and name_or_path and Path(name_or_path).is_file():
            # No build has the name, and a file of the working directory has.
            return self._from_path(Path(name_or_path), tool, wanted)
        if not usable:
            raise self._missing(tool, wanted, name_or_path, named)
        build = self._with_companions(self._in_use(usable, wanted, name_or_path))
        spec = self._spec(build.name, (wanted,))
        if spec is not None and not build.is_virtual:
            check_complete(spec, [companion.name for companion in build.companions])
        return build

    def resolve_for(self, facts: DeviceFacts, tool: ToolName, *, name_or_path: str = "") -> Build:
        """Return the program to use on a device: the first of its ABIs that there is one for.

        Raises:
            ArtifactError: as :meth:`resolve`; also for a fake binary on a real phone, a program for
                a newer Android.
        """
        problems: list[ArtifactError] = []
        for abi in facts.abis or ("",):
            try:
                build = self.resolve(tool, abi, name_or_path=name_or_path, kind=facts.kind)
            except ArtifactError as error:
                problems.append(error)
                continue
            self._check_for(build, facts, abi)
            return build
        raise problems[0]

    def check_for(self, build: Build, facts: DeviceFacts) -> None:
        """Look whether a program that was got elsewhere can go to a device.

        Raises ArtifactError.
        """
        abis = build.abi.split(",") if build.abi else []
        abi = next(
            (abi for abi in facts.abis if fits(abis, abi_name(abi, facts.kind))),
            (*facts.abis, "")[0],
        )
        self._check_for(build, facts, abi)

    def _check_for(self, build: Build, facts: DeviceFacts, abi: str) -> None:
        """Look at the file itself, and not at what was written down about it, before it goes to a
        device.
        """
        found = _known_program(build.path) if build.path else None
        if (build.is_virtual or (found is not None and found.is_fake)) and not facts.is_virtual:
            raise ArtifactError(
                f"{build.name} is a fake binary that only a virtual phone runs, not {facts.serial}"
            )
        if found is not None and found.abis and abi_name(abi, facts.kind) not in found.abis:
            raise ArtifactError(
                f"{build.name} is built for {', '.join(found.abis)}, {facts.serial} runs {abi}"
            )
        spec = self._spec(build.name, (abi,))
        levels = [found.min_sdk if found else None, spec.min_sdk if spec else None]
        min_sdk = max((level for level in levels if level is not None), default=None)
        if min_sdk is not None and facts.sdk is not None and facts.sdk < min_sdk:
            raise ArtifactError(
                f"{build.name} needs Android API level {min_sdk}, {facts.serial} has {facts.sdk}",
                hint="build or get the program for an older Android",
            )

    def _in_use(self, usable: Sequence[Release], wanted: str, named: str) -> Release:
        """Return the release that is meant: the one named, else the one that was put in use, else
        the newest.
        """
        name, _, digits = named.partition("@")
        if digits:
            self.find_release(named)  # refuses digits that several programs have
            return usable[0]
        for abi in (_ANY_ABI, wanted):
            pinned = self.archive.pinned(usable[0].name, abi)
            if pinned is None:
                continue
            if any(release.program.sha256 == pinned.program.sha256 for release in usable):
                return pinned
            if not _SHA_PREFIX.fullmatch(name) and self.archive.path(pinned.program.sha256) is None:
                tag = f" ({pinned.tag})" if pinned.tag else ""
                raise ArtifactError(
                    f"{pinned.name}: {pinned.release_id}{tag}, which is in use, is gone from the cache",
                    hint="fetch or add it again, or use another: benchfarm build use NAME@DIGITS",
                )
        return usable[0]

    def _with_companions(self, release: Release) -> Build:
        """Return a release's program with its libraries.

        Raises ArtifactError when a file isn't what it was.
        """
        program, *beside = [self.arrival(file) for file in release.files]
        return replace(release.build(program.path), companions=tuple(map(_companion, beside)))

    def _from_path(self, path: Path, tool: ToolName, wanted: str) -> Build:
        facts = _known_program(path)
        _check_kind(facts, tool, path)
        if not fits(facts.abis, wanted):
            built_for = ",".join(facts.abis)
            raise ArtifactError(
                f"{str(path)!r} is built for {built_for}, the device needs {wanted or _UNKNOWN}"
            )
        name, folder = self._name_for(path, facts, tool), path.absolute().parent
        beside = [
            _hashed(_arrival(folder / item, item, group=group))
            for item, group in self._groups(name).items()
            if (folder / item).is_file()
        ]
        program = _hashed(_arrival(path.absolute()))
        # Groups that only exist in releases aren't asked of a folder: what lies in one is taken as
        # one release.
        check_set(
            program, facts, [item for item in beside if not item.file.group], self.archive.tags_of
        )
        if not beside:
            libraries = libraries_beside(tool, path.absolute())
            beside = [_hashed(_arrival(libraries[item], item)) for item in libraries]
        return Build(
            name=name,
            tool=tool,
            sha256=BuildSha(program.file.sha256),
            abi=",".join(facts.abis),
            version=facts.version,
            package=facts.package,
            is_virtual=facts.is_fake,
            path=program.path,
            companions=tuple(map(_companion, beside)),
        )

    def _kept(self) -> Sequence[Release]:
        """Return the newest release of each program that is here, by name, the newest first within
        one name.
        """
        found: dict[tuple[str, str], Release] = {}
        for name in self.archive.names():
            for release in reversed(self.archive.releases(name)):
                if self.archive.path(release.program.sha256) is not None:
                    found.setdefault((name, release.program.sha256), release)
        return list(found.values())

    def _default(self, tool: ToolName) -> Sequence[Release]:
        """Return the real programs that may stand for a tool, the newest first: the declared
        default, else others.
        """
        defaults = {spec.name for spec in self.specs if spec.is_default and spec.tool is tool}
        pins = {spec.name: spec.sha256s for spec in self.specs if spec.sha256s}
        real = [
            r
            for r in self._kept()
            if not r.is_virtual and r.program.sha256 in pins.get(r.name, (r.program.sha256,))
        ]
        declared = {spec.name for spec in self.specs}
        return [r for r in real if r.name in defaults] or [
            r for r in real if r.name not in declared
        ]

    def _named(self, wanted: str) -> Sequence[Release]:
        name, _, digits = wanted.partition("@")
        kept = self._kept()
        by_sha = [
            r
            for r in kept
            if not digits and _SHA_PREFIX.fullmatch(name) and r.program.sha256.startswith(name)
        ]
        if by_sha or not digits:
            return by_sha or [release for release in kept if release.name == name]
        return [
            r
            for r in reversed(self._of_digits(name, digits))
            if self.archive.path(r.program.sha256) is not None
        ]

    def _of_digits(self, name: str, digits: str) -> Sequence[Release]:
        known = self.archive.releases(name)
        return [
            r
            for r in known
            if r.release_id.startswith(digits) or r.program.sha256.startswith(digits)
        ]

    def _missing(
        self, tool: ToolName, wanted: str, name: str, others: Sequence[Release]
    ) -> ArtifactError:
        base = name.partition("@")[0]
        specs = [
            s for s in self.specs if s.tool is tool and (s.name == base if base else s.is_default)
        ]
        fitting = [spec for spec in specs if spec.abi == wanted]
        what = f"no build {name!r}" if name else f"no build of {tool!s}"
        message = f"{what} for {wanted or _UNKNOWN} is on this computer"
        kept = self._kept()
        fakes = sorted(
            {r.name for r in kept if r.is_virtual and r.tool is tool and fits(r.built_for, wanted)}
        )
        if has := sorted(
            {f"{release.tool} for {','.join(release.built_for)}" for release in others}
        ):
            message += f" (there is {', '.join(has)})"
        elif not name and fakes:
            are = "are fake binaries" if len(fakes) > 1 else "is a fake binary"
            message += f" ({' and '.join(fakes)} {are}, which only virtual phones run, by name)"
        elif base and not specs:
            known = sorted(
                {spec.name for spec in self.specs if spec.tool is tool} | {r.name for r in kept}
            )
            message += f"; known are {', '.join(known)}" if known else ""
        hint = (
            fitting[0].how_to_get
            if fitting
            else f"benchfarm build add FILE --name {base or 'NAME'}"
        )
        return ArtifactError(message, hint=hint)

    # What is declared
    # -------------------------------------------------------------------------------------------------

    def _name_for(self, path: Path, facts: ProgramFacts, tool: ToolName | None) -> str:
        """Return the declared name that a file's name stands for, else the file's own without .apk."""
        specs = [
            s
            for s in self.specs
            if (s.tool is tool if tool else not program_of(s.tool).shares_file_name)
        ]
        for spec in specs:
            is_of_kind = spec.tool.is_app == facts.is_apk and spec.abi in facts.abis
            if is_of_kind and path.name == spec.url.rpartition("/")[2]:
                return spec.name
        by_program = {spec.program: spec.name for spec in specs}
        return by_program.get(path.name) or path.name.removesuffix(".apk")

    def _tool_of(self, name: str, facts: ProgramFacts) -> ToolName:
        if facts.is_apk:
            return next(each for each in ToolName if each.is_app)
        return next(
            (spec.tool for spec in self.specs if spec.name == name), usual_tool(DeviceKind.ANDROID)
        )

    def _spec(self, name: str, abis: Sequence[str]) -> BuildSpec | None:
        """Return what is declared of a build; for an ABI that isn't declared, what holds for all,
        without its pins.
        """
        of_name = [spec for spec in self.specs if spec.name == name]
        fitting = next((spec for spec in of_name if spec.abi in abis), None)
        return fitting or (replace(of_name[0], sha256s=()) if of_name else None)

    def _groups(self, name: str) -> dict[str, str]:
        """Return the libraries that are declared of a build, whatever its ABI, and the group of
        each.
        """
        return {
            item.name: item.group
            for spec in self.specs
            if spec.name == name
            for item in spec.libraries
        }


def _arrival(path: Path, name: str = "", *, group: str = "", tag: str = "") -> Arrival:
    return Arrival(path=path, file=ReleaseFile(name=name or path.name, group=group, tag=tag))


def _companion(arrival: Arrival) -> Companion:
    return Companion(name=arrival.file.name, sha256=arrival.file.sha256, path=arrival.path)


def _hashed(arrival: Arrival) -> Arrival:
    """Return a file with the hash and the size of its content; both are empty when it can't be
    read.
    """
    sha256 = _known_sha256(arrival.path)
    size_bytes = arrival.path.stat().st_size if sha256 else 0
    return replace(arrival, file=replace(arrival.file, sha256=sha256, size_bytes=size_bytes))


def _check_kind(facts: ProgramFacts, tool: ToolName | None, path: Path) -> None:
    if tool is not None and facts.is_apk != tool.is_app:
        raise ArtifactError(
            f"{str(path)!r} is {'an' if facts.is_apk else 'no'} APK, which isn't what {tool} needs"
        )


def _known_sha256(path: Path) -> str:
    """Return the hash of a file's content, read once until somebody writes it, however many phones
    it goes to.
    """
    return _sha256_once(path, _stamp(path))


def _known_program(path: Path) -> ProgramFacts:
    """Return what a program is, read once until somebody writes it.

    Raises ArtifactError as inspect_program does.
    """
    return _program_once(path, _stamp(path))


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes when somebody writes the file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@functools.lru_cache(maxsize=256)
def _sha256_once(path: Path, stamp: tuple[int, ...]) -> str:
    return sha256_of(path)


@functools.lru_cache(maxsize=256)
def _program_once(path: Path, stamp: tuple[int, ...]) -> ProgramFacts:
    return inspect_program(path)
