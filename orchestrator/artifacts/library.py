"""The benchmark programs on this computer: added, checked, and found by name, tool and ABI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from orchestrator.artifacts.archive import Archive, Release, ReleaseFile
from orchestrator.artifacts.executables import (
    HEXAGON,
    ProgramFacts,
    abi_name,
    check_against,
    check_complete,
    check_set,
    fits,
    inspect_elf,
    inspect_program,
    is_shared_library,
)
from orchestrator.errors import ArtifactError
from orchestrator.files import cached_by_status, expanded, known_sha256
from orchestrator.programs import is_here, usual_tool
from orchestrator.programs import program as program_of
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import NAME_RULE, Build, BuildSha, Companion, ToolName, is_name
from orchestrator.records.device import DeviceFacts, DeviceKind

_SHA_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}")
#: In place of the ABI of an APK without native code.
_ANY_ABI: Final = ""


class SourceFile(NamedTuple):
    """The path of a file to keep, and its origin."""

    path: Path
    #: Where it was downloaded from; None for a file that the user named.
    url: str | None = None


class BuildLibrary:
    """The kept benchmark programs with their libraries, and their declarations."""

    def __init__(self, cache_folder: Path, specs: Sequence[BuildSpec] = ()) -> None:
        self.archive = Archive(cache_folder)
        #: Declarations for the programs of the core and of the installed extensions.
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
        """Validate a program and its libraries, copy them into the cache, and put them in use.

        Declared libraries in the program's folder are added too.

        Args:
            path: A benchmark program or an APK; or a library, for the program of that name that is
                in use.
            name: A declared build's name, or one of the user's own; from the file's name when
                empty.
            libraries: Further files to lie beside it on a phone.
            release: Which release the files are of, when the user knows.
            tool: Which program it is; from its name when None.

        Raises:
            ArtifactError: it can't be read, is no program, differs from the declaration of its
                name, or the files don't belong together.
            HostStorageError: no space left.
        """
        if tool is not None:
            name = name or str(tool) * tool.is_declared
            if any(spec.name == name and spec.tool is not tool for spec in self.specs):
                problem = f"{name!r} is declared as a build of another program than {tool}"
                raise ArtifactError(problem, hint="give another --name")
            if not (tool.is_app or program_of(tool).file_name):
                raise ArtifactError(f"{tool} isn't started from a file, so there is no file to add")
        files = {file.name: file for file in libraries}
        if is_shared_library(path):
            return self._add_libraries({path.name: path, **files}, name, tag=release, tool=tool)
        facts = inspect_program(path)
        _check_kind(facts, tool, path)
        name = name or self._name_for(path, facts, tool)
        if not is_name(name):
            raise ArtifactError(
                f"{name!r} can't be the name of a build",
                hint=f"give one of {NAME_RULE} with --name",
            )
        folder_libraries = self._libraries_in(name, tool, path.parent)
        places = {
            item: SourceFile(file) for item, file in {"": path, **folder_libraries, **files}.items()
        }
        return self._with_companions(self.register(name, places, tag=release, tool=tool))

    def register(
        self,
        name: str,
        files: Mapping[str, SourceFile],
        *,
        tag: str = "",
        abi: str = "",
        tool: ToolName | None = None,
    ) -> Release:
        """Keep a program with the libraries that came with it as one release, and put it in use.

        Args:
            name: The build's name.
            files: The program as "", and what belongs beside it by name.
            tag: Which release it is; empty when unknown.
            abi: The ABI that it was fetched for; those that it is built for when empty.
            tool: Which program it is; from its name when None.

        Raises:
            ArtifactError: it differs from its declaration, or the files don't belong together;
                nothing is kept.
            HostStorageError: no space left.
        """
        path = files[""].path
        libraries = {item: place.path for item, place in sorted(files.items()) if item}
        facts = inspect_program(path)
        abis = (abi,) if abi else facts.abis or (_ANY_ABI,)
        spec, sha256 = self._declared_spec(name, abis), _known_sha256(path)
        if spec is not None and (spec.source.sha256 or not facts.is_fake):
            check_against(spec, facts, sha256, path, abi=abi)
            check_complete(spec, list(libraries))
        check_set(name, facts, libraries)
        # A file that was downloaded with the program is of its release.
        given_libraries = {
            item: place for item, place in libraries.items() if files[item].url is None
        }
        self._check_release(name, {tag} - {""} or self.archive.tags_of(sha256), given_libraries)
        file_name = spec.program if spec is not None and abi else path.name
        release_files = []
        for item, place in {"": path, **libraries}.items():
            file_label, sha256 = item or file_name, _known_sha256(place)
            self.archive.keep(place, sha256=sha256, name=file_label)
            release_files.append(
                ReleaseFile(name=file_label, sha256=sha256, url=files[item].url or "")
            )
        return self.archive.use(
            Release(
                name=name,
                abis=abis,
                tag=tag,
                seen_at=datetime.now(UTC),
                files=tuple(release_files),
                tool=tool or self._guess_tool(name, facts),
                built_for=facts.abis,
                version=facts.version,
                package=facts.package,
                is_virtual=facts.is_fake,
            )
        )

    def _add_libraries(
        self, files: dict[str, Path], name: str, *, tag: str, tool: ToolName | None
    ) -> Build:
        """Add libraries to those releases of a program that are in use for their ABI; return the
        last of them.
        """
        if not name:
            raise ArtifactError(
                f"{' and '.join(files)}: a shared library, not a program",
                hint="say for which program it is: benchfarm build add FILE --name NAME",
            )
        abis = {inspect_elf(path).abis[0] for path in files.values()} - {HEXAGON}
        added: Build | None = None
        for abi in sorted({abi for release in self.archive.releases(name) for abi in release.abis}):
            release = self.archive.in_use(name, abi)
            if release is None or (abis and abi not in abis):
                continue
            if tag and release.tag and tag != release.tag:
                raise ArtifactError(
                    f"{release.address} is of release {release.tag}, {' and '.join(files)} of {tag}: "
                    "they don't belong together"
                )
            release_files = {"": release.program} | {file.name: file for file in release.libraries}
            places = {item: SourceFile(path) for item, path in files.items()} | {
                item: SourceFile(self.verified_path(file), file.url)
                for item, file in release_files.items()
                if item not in files
            }
            added_release = self.register(
                name, places, tag=release.tag, abi=abi, tool=tool or release.tool
            )
            added = self._with_companions(added_release)
        if added is None:
            raise ArtifactError(
                f"there is no program {name!r} for {' and '.join(sorted(abis)) or 'any ABI'} to add "
                "the libraries to",
                hint=f"first: benchfarm build fetch {name}",
            )
        return added

    def verified_path(self, file: ReleaseFile) -> Path:
        """Return a kept file's path; raises ArtifactError when its content has changed."""
        path = self.archive.path(file.sha256)
        if path is None or _known_sha256(path) != file.sha256:
            raise ArtifactError(
                f"{file.name} has changed since it was added, or is missing: {path or 'no file'}",
                hint="fetch or add it again: benchfarm build fetch NAME, or build add FILE",
            )
        return path

    # Finding
    # ----------------------------------------------------------------------------------------------------------

    def find_release(self, address: str) -> Release:
        """Return the release that ``NAME@DIGITS`` names, by its own or its program's first digits;
        the newest of them.

        Raises:
            ArtifactError: there is none, or the digits fit several programs.
        """
        fitting = self._releases_at(address)
        if not fitting:
            addresses = [item.address for item in self.archive.releases(address.partition("@")[0])]
            raise ArtifactError(
                f"no release {address!r} is on this computer; there are {', '.join(addresses) or 'none'}",
                hint="benchfarm build list --all",
            )
        if len({release.program.sha256 for release in fitting}) > 1:
            raise ArtifactError(f"{address!r} fits several releases", hint="give more digits")
        return fitting[0]

    def has(self, tool: ToolName, facts: DeviceFacts, build_name: str = "") -> bool:
        """Whether a program for a tool, of this build name unless empty, is kept for a device."""
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        releases = self.named(build_name) if build_name else self._newest_first()
        return any(
            release.tool is tool and not release.is_virtual and fits(release.built_for, name)
            for release in releases
            for name in names
        )

    def declared_for(self, facts: DeviceFacts, tool: ToolName) -> BuildSpec | None:
        """Return the declared default program of a tool for the first of a device's ABIs that has
        one.
        """
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        specs = [spec for spec in self._specs_of(tool) if spec.abi in names]
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
        build_abi = abi_name(abi, kind)
        if "/" in name_or_path:
            return self._from_path(expanded(Path(name_or_path)), tool, build_abi)
        if "@" in name_or_path:
            self.find_release(name_or_path)  # refuses digits that several programs have
        candidates = self.named(name_or_path) if name_or_path else self._default(tool)
        fitting = [
            release
            for release in candidates
            if release.tool is tool and fits(release.built_for, build_abi)
        ]
        # A sha256 or an address means exactly one content.
        usable = [r for r in fitting if name_or_path not in {"", r.name} or self._is_allowed(r)]
        if not usable and name_or_path and Path(name_or_path).is_file():
            # No build has the name, and a file of the working directory has.
            return self._from_path(Path(name_or_path), tool, build_abi)
        if not usable:
            raise self._missing_build(tool, build_abi, name_or_path, candidates)
        # Prefer the release that `build list` shows as in use.
        in_use = self.archive.in_use(usable[0].name, build_abi)
        return self._with_companions(in_use if in_use in usable else usable[0])

    def resolve_for(self, facts: DeviceFacts, tool: ToolName, *, name_or_path: str = "") -> Build:
        """Return the program to use on a device: the first of its ABIs that there is one for.

        Raises:
            ArtifactError: as :meth:`resolve`; also for a fake binary on a real phone, a program for
                a newer Android.
        """
        targets = [(abi, facts.kind) for abi in facts.abis or ("",)]
        build, _ = self.resolve_first(tool, targets, name_or_path=name_or_path)
        self.check_for(build, facts)
        return build

    def resolve_first(
        self, tool: ToolName, targets: Iterable[tuple[str, DeviceKind]], *, name_or_path: str = ""
    ) -> tuple[Build, DeviceKind]:
        """Return the program for the first ABI of a kind of device that there is one for, and that
        kind; raises the first ABI's ArtifactError where there is none.
        """
        problems: list[ArtifactError] = []
        for abi, kind in targets:
            try:
                return self.resolve(tool, abi, name_or_path=name_or_path, kind=kind), kind
            except ArtifactError as error:
                problems.append(error)
        raise problems[0]

    def check_for(self, build: Build, facts: DeviceFacts) -> None:
        """Check a program's file itself, not its record, before it goes to a device.

        Raises ArtifactError.
        """
        program_facts = _known_program(build.path) if build.path else None
        if (
            build.is_virtual or (program_facts is not None and program_facts.is_fake)
        ) and not facts.is_virtual:
            raise ArtifactError(
                f"{build.name} is a fake binary that only a virtual phone runs, not {facts.serial}"
            )
        names = [abi_name(abi, facts.kind) for abi in facts.abis]
        built_for = program_facts.abis if program_facts is not None else ()
        if not any(fits(built_for, name) for name in names):
            raise ArtifactError(
                f"{build.name} is built for {', '.join(built_for)}, "
                f"{facts.serial} runs {', '.join(names)}"
            )
        spec = self._declared_spec(build.name, names)
        levels = [
            program_facts.min_sdk if program_facts else None,
            spec.expected.min_sdk if spec else None,
        ]
        min_sdk = max((level for level in levels if level is not None), default=None)
        if min_sdk is not None and facts.sdk is not None and facts.sdk < min_sdk:
            raise ArtifactError(
                f"{build.name} needs Android API level {min_sdk}, {facts.serial} has {facts.sdk}",
                hint="build or get the program for an older Android",
            )

    def _with_companions(self, release: Release) -> Build:
        """Return a release's program with its libraries.

        Raises ArtifactError when a file's content has changed.
        """
        companions = tuple(
            Companion(name=file.name, sha256=file.sha256, path=self.verified_path(file))
            for file in release.libraries
        )
        return replace(release.build(self.verified_path(release.program)), companions=companions)

    def _from_path(self, path: Path, tool: ToolName, build_abi: str) -> Build:
        facts = _known_program(path)
        _check_kind(facts, tool, path)
        if not fits(facts.abis, build_abi):
            raise ArtifactError(
                f"{str(path)!r} is built for {','.join(facts.abis)}, the device needs {build_abi}"
            )
        path = path.absolute()
        name = self._name_for(path, facts, tool)
        libraries = self._libraries_in(name, tool, path.parent)
        check_set(path.name, facts, libraries)
        self._check_release(path.name, self.archive.tags_of(_known_sha256(path)), libraries)
        return Build(
            name=name,
            tool=tool,
            sha256=BuildSha(_known_sha256(path)),
            abi=",".join(facts.abis),
            version=facts.version,
            package=facts.package,
            is_virtual=facts.is_fake,
            path=path,
            companions=tuple(
                Companion(name=library, sha256=_known_sha256(place), path=place)
                for library, place in libraries.items()
            ),
        )

    def _newest_first(self) -> list[Release]:
        """Return all releases, by name, those in use first within one name."""
        newest_first = reversed(self.archive.all())
        return sorted(newest_first, key=lambda release: release.name)

    def _default(self, tool: ToolName) -> Sequence[Release]:
        """Return the real programs that may stand for a tool, the newest first: the declared
        default, else others.
        """
        defaults = {spec.name for spec in self._specs_of(tool)}
        real = [r for r in self._newest_first() if not r.is_virtual and self._is_allowed(r)]
        declared = {spec.name for spec in self.specs}
        return [r for r in real if r.name in defaults] or [
            r for r in real if r.name not in declared
        ]

    def _is_allowed(self, release: Release) -> bool:
        """Whether a release is one of the contents that the declarations of its name pin, if any."""
        specs = [spec for spec in self.specs if spec.name == release.name]
        pins = {sha for spec in specs for sha in spec.source.sha256}
        return not pins or release.program.sha256 in pins

    def named(self, name: str) -> Sequence[Release]:
        """Return the releases that a name, a sha256 or ``NAME@DIGITS`` means, the best first."""
        if "@" in name:
            return self._releases_at(name)
        releases = self._newest_first()
        by_sha = [
            release
            for release in releases
            if _SHA_PREFIX.fullmatch(name) and release.program.sha256.startswith(name)
        ]
        return by_sha or [release for release in releases if release.name == name]

    def _releases_at(self, address: str) -> Sequence[Release]:
        """Return the releases that ``NAME@DIGITS`` may mean, the newest first."""
        name, _, digits = address.partition("@")
        return [
            release
            for release in reversed(self.archive.releases(name))
            if digits
            and any(
                item.startswith(digits) for item in (release.release_id, release.program.sha256)
            )
        ]

    def _missing_build(
        self, tool: ToolName, build_abi: str, name: str, candidates: Sequence[Release]
    ) -> ArtifactError:
        """Return the error that lists the candidates, and says how to get the missing build."""
        base = name.partition("@")[0]
        subject = f"no build {name!r}" if name else f"no build of {tool!s}"
        message = f"{subject} for {build_abi or 'its (unknown) ABI'} is on this computer"
        if candidates:
            has = {f"{release.tool} for {','.join(release.built_for)}" for release in candidates}
            message += f" (there is {', '.join(sorted(has))})"
        spec = next((item for item in self._specs_of(tool, base) if item.abi == build_abi), None)
        hint = spec.how_to_get if spec else f"benchfarm build add FILE --name {base or 'NAME'}"
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
            if is_of_kind and path.name == spec.source.url.rpartition("/")[2]:
                return spec.name
        by_program = {spec.program: spec.name for spec in specs}
        return by_program.get(path.name) or path.name.removesuffix(".apk")

    def _guess_tool(self, name: str, facts: ProgramFacts) -> ToolName:
        if facts.is_apk:
            return next(each for each in ToolName if each.is_app)
        return next(
            (spec.tool for spec in self.specs if spec.name == name), usual_tool(DeviceKind.ANDROID)
        )

    def _specs_of(self, tool: ToolName, name: str = "") -> list[BuildSpec]:
        """Return the declarations of a tool's builds of a name, without a name the default ones."""
        return [
            spec
            for spec in self.specs
            if spec.tool is tool and (spec.name == name if name else spec.default)
        ]

    def _declared_spec(self, name: str, abis: Sequence[str]) -> BuildSpec | None:
        """Return a build's declaration for these ABIs, else the one of another ABI without its
        pins, else None.
        """
        of_name = [spec for spec in self.specs if spec.name == name]
        fitting = next((spec for spec in of_name if spec.abi in abis), None)
        if fitting is not None or not of_name:
            return fitting
        any_of_them = of_name[0]
        unpinned = replace(any_of_them.source, sha256=())
        return replace(any_of_them, abis={any_of_them.abi: unpinned})

    def _check_release(self, name: str, tags: set[str], libraries: Mapping[str, Path]) -> None:
        """Raise ArtifactError for a library that came with another release than the program."""
        for library, path in libraries.items():
            library_tags = self.archive.tags_of(_known_sha256(path))
            if tags and library_tags and not tags & library_tags:
                raise ArtifactError(
                    f"{library} is of release {' and '.join(sorted(library_tags))}, "
                    f"{name} of {' and '.join(sorted(tags))}: they don't belong together",
                    hint="take all files from one release",
                )

    def _libraries_in(self, name: str, tool: ToolName | None, folder: Path) -> dict[str, Path]:
        """Return the libraries in a program's folder by name: those declared for the build of this
        name, and those that the program needs.
        """
        declared = [
            folder / library
            for spec in self.specs
            if spec.name == name
            for library in spec.libraries
        ]
        globs = program_of(tool).library_patterns if tool is not None else ()
        needed = sorted(each for glob in globs for each in folder.glob(glob))
        return {each.name: each for each in (*declared, *needed) if each.is_file()}


def _check_kind(facts: ProgramFacts, tool: ToolName | None, path: Path) -> None:
    if tool is not None and facts.is_apk != tool.is_app:
        raise ArtifactError(
            f"{str(path)!r} is {'an' if facts.is_apk else 'no'} APK, which isn't what {tool} needs"
        )


def _known_sha256(path: Path) -> str:
    try:
        return known_sha256(path)
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} can't be read: {error.strerror}") from error


_known_program: Final = cached_by_status(inspect_program)
