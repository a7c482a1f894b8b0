"""The benchmark programs on this computer: each kept under the sha256 of its content, found by name, tool and ABI."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.artifacts.elf import HEXAGON, ProgramFacts, inspect_elf
from orchestrator.artifacts.program import (
    ABI_SEPARATOR,
    Arrival,
    Declarations,
    abi_name,
    check_against,
    check_set,
    fits,
    inspect_program,
    is_shared_library,
)
from orchestrator.artifacts.releases import Release, ReleaseFile, ReleaseHistory
from orchestrator.artifacts.shelf import KnownFiles, Shelf, sha256_of
from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import ArtifactError
from orchestrator.programs import program as program_of
from orchestrator.programs import usual_tool
from orchestrator.programs.declared import libraries_beside
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha
from orchestrator.records.workload import Build, Companion, ToolName

_SHA_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: In place of the ABI of an APK without native code.
_ANY_ABI: Final = ""
_UNKNOWN: Final = "its (unknown) ABI"


class BuildLibrary:
    """The cache of benchmark programs with their libraries, and what is declared about them."""

    def __init__(self, cache_folder: Path, specs: Sequence[BuildSpec] = (), *, clock: Clock | None = None) -> None:
        self._shelf = Shelf(cache_folder)
        self._libraries = Shelf(cache_folder / "libraries")
        self._clock = clock or SystemClock()
        self.history = ReleaseHistory(cache_folder / "releases")
        self.specs: tuple[BuildSpec, ...] = tuple(specs)
        self._declared = Declarations(self.specs)
        self._files = KnownFiles()

    def add(
        self,
        path: Path,
        *,
        name: str = "",
        libraries: Sequence[Path] = (),
        release: str = "",
        tool: ToolName | None = None,
    ) -> Build:
        """Take a copy of a program and its libraries into the cache, after a look inside, and put it in use.

        Libraries that are declared and lie in the program's folder are taken too; a link is taken as its file.

        Args:
            path: A benchmark program or an APK; or a library, for the program of that name that is in use.
            name: A declared build's name, or one of the user's own; told by the file's name when empty.
            libraries: Further files to lie beside it on a phone.
            release: Which release the files are of, when the user knows.
            tool: Which program it is; told by its name when None.

        Raises:
            ArtifactError: it can't be read, is no program, isn't what is declared under its name, or the files don't
                belong together.
            HostStorageError: no space left.
        """
        if name and not _NAME.fullmatch(name):
            raise ArtifactError(
                f"{name!r} can't be the name of a build",
                hint="give one of letters, digits, dots, dashes and underscores with --name",
            )
        if tool is not None:
            name = name or str(tool) * tool.is_declared
            if other := next((s.tool for s in self.specs if s.name == name and s.tool is not tool), None):
                problem = f"{name!r} is declared as a build of {other}, not of {tool}"
                raise ArtifactError(problem, hint="give another --name")
            if not (tool.is_app or program_of(tool).file_name):
                raise ArtifactError(f"{tool} isn't started by benchfarm from a file: there is nothing to keep")
        if is_shared_library(path):
            return self._add_libraries([path, *libraries], name, release, tool)
        facts = inspect_program(path)
        if tool is not None and facts.is_apk != tool.is_app:
            raise ArtifactError(f"{str(path)!r} is {'an' if facts.is_apk else 'no'} APK, which isn't what {tool} needs")
        name = name or self._declared.name_for(path, facts, tool)
        if not _NAME.fullmatch(name):
            raise ArtifactError(f"{name!r} can't be the name of a build", hint="give another one with --name")
        groups = {item.name: item.group for item in self._declared.libraries(name)}
        given = {file.name: file for file in libraries}
        beside = {item: path.parent / item for item in groups if (path.parent / item).is_file()}
        if tool is not None and tool.is_declared:
            beside |= libraries_beside(tool, path)
        arrivals = [
            Arrival(path=file, name=item, group=groups.get(item, ""), tag=release)
            for item, file in sorted((beside | given).items())
        ]
        return self._built(self.register(name, Arrival(path=path, tag=release), arrivals, tag=release, tool=tool))

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
            ArtifactError: it isn't what is declared, or the files don't belong together; nothing is kept.
            HostStorageError: no space left.
        """
        facts = inspect_program(program.path)
        sha256 = sha256_of(program.path)
        spec = self._declared.spec(name, (abi,) if abi else facts.abis)
        if spec is not None and not facts.is_fake:
            check_against(spec, facts, sha256, program.path, abi=abi)
            self._declared.check_complete(spec, [item.name for item in libraries])
        members = [dataclasses.replace(item, sha256=sha256_of(item.path)) for item in libraries]
        main = dataclasses.replace(program, name=name, sha256=sha256, tag=tag)
        check_set(main, facts, members, self.history.tags_of)
        now = self._clock.now()
        path = self._shelf.keep(
            program.path,
            name=_file_name(program.path, facts, spec if abi else None),
            label=_label(self._build(name, facts, sha256, program.path, tool=tool), now),
            sha256=sha256,
        )
        files = [_kept(dataclasses.replace(program, sha256=sha256), path)]
        for item in members:
            label = {"name": item.name, "added_at": now.isoformat()}
            files.append(_kept(item, self._libraries.keep(item.path, name=item.name, label=label, sha256=item.sha256)))
        release = Release(
            name=name, abis=(abi,) if abi else facts.abis or (_ANY_ABI,), tag=tag, seen_at=now, files=tuple(files)
        )
        return self.history.record(release, pin=pin)

    def _built(self, release: Release) -> Build:
        build = self._read(release.program.sha256)
        assert build is not None, "it has just been kept"
        return dataclasses.replace(build, companions=self._companions(release))

    def _add_libraries(self, paths: Sequence[Path], name: str, tag: str, tool: ToolName | None) -> Build:
        """Add libraries to those releases of a program that are in use for their ABI; return the last of them."""
        if not name:
            raise ArtifactError(
                f"{str(paths[0])!r} is a shared library, not a program",
                hint="say for which program it is: benchfarm build add FILE --name NAME",
            )
        groups = {item.name: item.group for item in self._declared.libraries(name)}
        given = {
            path.name: Arrival(path=path, name=path.name, group=groups.get(path.name, ""), tag=tag) for path in paths
        }
        abis = {inspect_elf(path).abis[0] for path in paths} - {HEXAGON}
        added: Build | None = None
        for abi in sorted({abi for release in self.history.releases(name) for abi in release.abis}):
            release = self.history.pinned(name, abi)
            if release is None or (abis and abi not in abis):
                continue
            there = {file.name: self.arrival(file) for file in release.libraries}
            program = self.arrival(release.program, is_program=True)
            arrivals = [arrival for _, arrival in sorted((there | given).items())]
            kept = self._read(release.program.sha256)
            own = tool or (kept.tool if kept is not None else None)
            added = self._built(self.register(name, program, arrivals, tag=release.tag, abi=abi, tool=own))
        if added is None:
            wanted = f" for {' and '.join(sorted(abis))}" if abis else ""
            raise ArtifactError(
                f"no program {name!r}{wanted} is here that the libraries could lie beside",
                hint=f"first: benchfarm build fetch {name}",
            )
        return added

    def arrival(self, file: ReleaseFile, *, is_program: bool = False) -> Arrival:
        """Return a kept file as one that comes again; raises ArtifactError when it isn't what it was."""
        path = self.kept(file, is_program=is_program)
        if path is None:
            raise ArtifactError(f"the kept copy of {file.name} is damaged or gone", hint="fetch or add it again")
        fields = {name: value for name, value in dataclasses.asdict(file).items() if name != "size_bytes"}
        return Arrival(path=path, **fields)

    def kept(self, file: ReleaseFile, *, is_program: bool) -> Path | None:
        """Return where a file of a release lies, None when it isn't there with the content that it had."""
        path = (self._shelf if is_program else self._libraries).file(file.sha256)
        return path if sha256_of(path) == file.sha256 else None

    def list(self) -> Sequence[Build]:
        """Return all cached programs, by name, the newest first within one name."""
        builds = filter(None, map(self._read, self._shelf.contents()))
        return sorted(builds, key=lambda build: (build.name, -self._added_at(build.sha256)))

    def verify(self) -> Sequence[tuple[Build, bool]]:
        """Hash every cached program again; return each with whether its content is what it was."""
        return [(build, sha256_of(build.path) == build.sha256) for build in self.list()]

    def verify_libraries(self) -> Sequence[tuple[str, str, bool]]:
        """Hash every library of every release again; return name, sha256, and whether it is what it was."""
        releases = [release for name in self.history.names() for release in self.history.releases(name)]
        files = {(file.name, file.sha256): file for release in releases for file in release.libraries}
        return [(name, sha, self.kept(files[name, sha], is_program=False) is not None) for name, sha in sorted(files)]

    def find_release(self, wanted: str) -> Release:
        """Return the release that ``NAME@DIGITS`` names, by its own or its program's first digits; the newest of them.

        Raises:
            ArtifactError: there is none, or the digits fit several programs.
        """
        name, _, digits = wanted.partition("@")
        known = self.history.releases(name)
        fitting = [r for r in known if r.release_id.startswith(digits) or r.program.sha256.startswith(digits)]
        if not fitting or not digits:
            there = ", ".join(f"{name}@{release.release_id}" for release in known)
            raise ArtifactError(
                f"no release {wanted!r} is on this computer" + (f"; there are {there}" if there else ""),
                hint="benchfarm build list --all",
            )
        if len({release.program.sha256 for release in fitting}) > 1:
            raise ArtifactError(f"{wanted!r} fits several releases", hint="give more digits")
        return fitting[-1]

    def release_of(self, build: Build, abi: str = "") -> Release | None:
        """Return the release that a build comes from: the one in use for the ABI, else the newest with its program."""
        pinned = self.history.pinned(build.name, abi) if abi else None
        if pinned is not None and pinned.program.sha256 == build.sha256:
            return pinned
        known = [r for r in self.history.releases(build.name) if r.program.sha256 == build.sha256]
        contents = {(companion.name, companion.sha256) for companion in build.companions}
        same = [r for r in known if {(file.name, file.sha256) for file in r.libraries} == contents]
        return next(reversed(same or known), None)

    def has(self, tool: ToolName, facts: DeviceFacts, named: str = "") -> bool:
        """Whether a program for a tool, of a name when one is given, is kept that a device may run."""
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        kept = [b for b in (self._named(named) if named else self.list()) if b.tool is tool and not b.is_virtual]
        return any(fits(build.abi, name) for build in kept for name in names)

    def resolve(self, tool: ToolName, abi: str, *, name_or_path: str = "", kind: DeviceKind | None = None) -> Build:
        """Return the program to use for a tool on a device's ABI, with its libraries.

        Args:
            tool: Which tool.
            abi: Android's name of the ABI, or ``linux-`` and the machine's name of a Linux computer, which a device of
                that kind tells without ``linux-``.
            name_or_path: What a plan names: a path (it has a slash), a name, a sha256 or its first digits (8 at least),
                or name@digits. The tool's default build when empty; a fake binary is used only when it is named.
            kind: Of the device: programs of Android and of Linux both know an ABI ``x86_64``.

        Raises:
            ArtifactError: it isn't there (the message says how to get it), or is built for something else.
        """
        wanted = abi_name(abi, kind)
        if "/" in name_or_path:
            return self._from_path(Path(name_or_path).expanduser(), tool, wanted)
        named = self._named(name_or_path) if name_or_path else self._default(tool)
        fitting = [build for build in named if build.tool is tool and fits(build.abi, wanted)]
        pins = {sha for spec in self.specs if spec.name == name_or_path for sha in spec.sha256s}
        usable = [build for build in fitting if not pins or build.sha256 in pins or build.is_virtual]
        if not usable:
            raise self._missing(tool, wanted, name_or_path, named)
        by_content = bool(_SHA_PREFIX.fullmatch(name_or_path))
        build, release = self._in_use(usable, wanted, name_or_path.partition("@")[2], by_content=by_content)
        if self._files.sha256(build.path) != build.sha256:
            raise ArtifactError(
                f"{build.path} isn't what it was when it was added",
                hint="add the file again: benchfarm build add FILE",
            )
        return self._with_companions(build, release, wanted)

    def declared_for(self, facts: DeviceFacts, tool: ToolName) -> BuildSpec | None:
        """Return the declared default program of a tool for the first of a device's ABIs that has one."""
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        specs = [spec for spec in self.specs if spec.tool is tool and spec.is_default and spec.abi in names]
        return min(specs, key=lambda spec: names.index(spec.abi), default=None)

    def resolve_for(self, facts: DeviceFacts, tool: ToolName, *, name_or_path: str = "") -> Build:
        """Return the program to use on a device: the first of its ABIs that there is one for.

        Raises:
            ArtifactError: as :meth:`resolve`; also for a fake binary on a real phone, a program for a newer Android.
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
        """Look whether a program that was got elsewhere can go to a device; raises ArtifactError."""
        abi = next((abi for abi in facts.abis if fits(build.abi, abi_name(abi, facts.kind))), (*facts.abis, "")[0])
        self._check_for(build, facts, abi)

    def _check_for(self, build: Build, facts: DeviceFacts, abi: str) -> None:
        """Look at the file itself, and not at what was written down about it, before it goes to a device."""
        found = self._files.program(build.path) if build.path else None
        if (build.is_virtual or (found is not None and found.is_fake)) and not facts.is_virtual:
            raise ArtifactError(f"{build.name} is a fake binary that only a virtual phone runs, not {facts.serial}")
        if found is not None and found.abis and abi_name(abi, facts.kind) not in found.abis:
            raise ArtifactError(f"{build.name} is built for {', '.join(found.abis)}, {facts.serial} runs {abi}")
        spec = self._declared.spec(build.name, (abi,))
        levels = [found.min_sdk if found else None, spec.min_sdk if spec else None]
        min_sdk = max((level for level in levels if level is not None), default=None)
        if min_sdk is not None and facts.sdk is not None and facts.sdk < min_sdk:
            raise ArtifactError(
                f"{build.name} needs Android API level {min_sdk}, {facts.serial} has {facts.sdk}",
                hint="build or get the program for an older Android",
            )

    def _in_use(
        self, usable: Sequence[Build], wanted: str, digits: str, *, by_content: bool
    ) -> tuple[Build, Release | None]:
        """Return the build that is meant: the named contents, else those that were put in use, else the newest."""
        if digits:
            release = self.find_release(f"{usable[0].name}@{digits}") if self.history.releases(usable[0].name) else None
            chosen = next((b for b in usable if release is not None and b.sha256 == release.program.sha256), usable[0])
            return chosen, release
        for abi in (_ANY_ABI, wanted):
            pinned = self.history.pinned(usable[0].name, abi)
            if pinned is None:
                continue
            for build in usable:
                if build.sha256 == pinned.program.sha256:
                    return build, pinned
            if not by_content and self._shelf.file(pinned.program.sha256) is None:
                tag = f" ({pinned.tag})" if pinned.tag else ""
                raise ArtifactError(
                    f"{pinned.name}: {pinned.release_id}{tag}, which is in use, is gone from the cache",
                    hint="fetch or add it again, or use another: benchfarm build use NAME@DIGITS",
                )
        return usable[0], self.release_of(usable[0])

    def _with_companions(self, build: Build, release: Release | None, wanted: str) -> Build:
        companions = self._companions(release) if release is not None else ()
        spec = self._declared.spec(build.name, (wanted,))
        if spec is not None and not build.is_virtual:
            self._declared.check_complete(spec, [companion.name for companion in companions])
        return dataclasses.replace(build, companions=companions)

    def _companions(self, release: Release) -> tuple[Companion, ...]:
        found = []
        for file in release.libraries:
            path = self._libraries.file(file.sha256)
            if path is None or self._files.sha256(path) != file.sha256:
                raise ArtifactError(
                    f"{file.name}, which belongs beside {release.name}, is damaged or gone",
                    hint="fetch or add the program again",
                )
            found.append(Companion(name=file.name, sha256=file.sha256, path=path))
        return tuple(found)

    def _from_path(self, path: Path, tool: ToolName, wanted: str) -> Build:
        facts = self._files.program(path)
        name = self._declared.name_for(path, facts, tool)
        if facts.is_apk != tool.is_app:
            raise ArtifactError(f"{str(path)!r} is {'an' if facts.is_apk else 'no'} APK, which isn't what {tool} needs")
        build = self._build(name, facts, self._files.sha256(path), path.absolute(), tool=tool)
        if not fits(build.abi, wanted):
            raise ArtifactError(f"{str(path)!r} is built for {build.abi}, the device needs {wanted or _UNKNOWN}")
        beside = [
            Arrival(name=item.name, path=file, sha256=self._files.sha256(file), group=item.group)
            for item in self._declared.libraries(name)
            if (file := build.path.parent / item.name if build.path else path).is_file()
        ]
        program = Arrival(name=path.name, path=path, sha256=build.sha256)
        # Groups that only exist in releases aren't asked of a folder: what lies in one is taken as one release.
        check_set(program, facts, [item for item in beside if not item.group], self.history.tags_of)
        companions = tuple(Companion(name=item.name, sha256=item.sha256, path=item.path) for item in beside)
        return dataclasses.replace(build, companions=companions)

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
        ids = {r.program.sha256 for r in self.history.releases(name) if digits and r.release_id.startswith(digits)}
        return [b for b in self.list() if b.name == name and (b.sha256.startswith(digits) or b.sha256 in ids)]

    def _missing(self, tool: ToolName, wanted: str, name: str, others: Sequence[Build]) -> ArtifactError:
        base = name.partition("@")[0]
        specs = [s for s in self.specs if s.tool is tool and (s.name == base if base else s.is_default)]
        fitting = [spec for spec in specs if spec.abi == wanted]
        what = f"no build {name!r}" if name else f"no build of {tool!s}"
        message = f"{what} for {wanted or _UNKNOWN} is on this computer"
        has = sorted({f"{build.tool} for {build.abi}" for build in others})
        if has:
            message += f" (there is {', '.join(has)})"
        elif not name and (
            fakes := sorted({b.name for b in self.list() if b.is_virtual and b.tool is tool and fits(b.abi, wanted)})
        ):
            are = "are fake binaries" if len(fakes) > 1 else "is a fake binary"
            message += f" ({' and '.join(fakes)} {are}, which only virtual phones run, by name)"
        elif base and not specs:
            known = sorted({spec.name for spec in self.specs if spec.tool is tool} | {b.name for b in self.list()})
            message += f"; known are {', '.join(known)}" if known else ""
        hint = fitting[0].how_to_get if fitting else f"benchfarm build add FILE --name {base or 'NAME'}"
        return ArtifactError(message, hint=hint)

    def _build(self, name: str, facts: ProgramFacts, sha256: str, path: Path, tool: ToolName | None = None) -> Build:
        if tool is None:
            declared = next((spec.tool for spec in self.specs if spec.name == name), usual_tool(DeviceKind.ANDROID))
            tool = next(each for each in ToolName if each.is_app) if facts.is_apk else declared
        return Build(
            name=name, tool=tool, sha256=BuildSha(sha256), abi=ABI_SEPARATOR.join(facts.abis), version=facts.version,
            package=facts.package, is_virtual=facts.is_fake, path=path,
        )  # fmt: skip

    def _read(self, sha256: str) -> Build | None:
        """Return the program with this content, None when it isn't whole."""
        label = self._shelf.label(sha256)
        try:
            if label is None:
                return None
            return Build(
                name=str(label["name"]), tool=ToolName(str(label["tool"])), sha256=BuildSha(sha256),
                abi=str(label["abi"]), version=str(label["version"]), package=str(label["package"]),
                is_virtual=bool(label["is_virtual"]), path=self._shelf.file(sha256),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            return None

    def _added_at(self, sha256: str) -> float:
        try:
            return datetime.fromisoformat(str((self._shelf.label(sha256) or {})["added_at"])).timestamp()
        except (ValueError, KeyError):
            return 0.0


def _kept(arrival: Arrival, path: Path) -> ReleaseFile:
    fields = {name: value for name, value in dataclasses.asdict(arrival).items() if name != "path"}
    return ReleaseFile(**{**fields, "name": arrival.name or path.name}, size_bytes=path.stat().st_size)


def _label(build: Build, added_at: datetime) -> dict[str, object]:
    return {
        "name": build.name, "tool": build.tool.value, "abi": build.abi, "version": build.version,
        "package": build.package, "is_virtual": build.is_virtual, "added_at": added_at.isoformat(),
    }  # fmt: skip


def _file_name(path: Path, facts: ProgramFacts, spec: BuildSpec | None) -> str:
    """Return what a kept program is called: as declared when it was downloaded, else as the user's file."""
    name = spec.program if spec is not None else path.name
    return name if not facts.is_apk or name.endswith(".apk") else f"{name}.apk"
