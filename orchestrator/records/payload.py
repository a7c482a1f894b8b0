"""What travels with a plan to another host, beside the plan itself: everything it names, by content."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.workload import Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file by its content and by what it is called."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagFile:
    """What a flag value ``@path`` means: a file, and what it needs beside it."""

    #: As the plan says it, with the ``@``.
    value: str
    #: The file itself first.
    files: tuple[Content, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The build that stands in for another one when a model needs TensorFlow's operators."""

    #: Of the build that it stands in for.
    sha256: str
    build: Build


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What a plan names, for one phone. A build's path, and a companion's, is the bare name of its file."""

    builds: tuple[Build, ...] = ()
    twins: tuple[Twin, ...] = ()
    flag_files: tuple[FlagFile, ...] = ()
    parity_inputs: tuple[Content, ...] = ()
    #: The files that declare the plan's programs of other runtimes, each named as its program.
    programs: tuple[Content, ...] = ()
    #: The model of the reference workload; None when the plan doesn't want it.
    reference: Content | None = None
    #: The version that packed it.
    benchfarm: str = ""

    @property
    def contents(self) -> tuple[Content, ...]:
        """Every file of it, each content once."""
        builds = [*self.builds, *(twin.build for twin in self.twins)]
        found = [Content(name=build.path.name, sha256=build.sha256) for build in builds if build.path is not None]
        found += [Content(name=item.name, sha256=item.sha256) for build in builds for item in build.companions]
        found += [file for item in self.flag_files for file in item.files]
        found += [*self.parity_inputs, *self.programs, *([self.reference] if self.reference is not None else [])]
        return tuple({item.sha256: item for item in found}.values())
