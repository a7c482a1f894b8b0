"""Build files: where benchmark programs come from and what they must hold
(``docs/reference/build-files.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from orchestrator.config.yaml_file import NamedSection, Section, load_each, read_named
from orchestrator.errors import PlanError, UsageError, nearest
from orchestrator.fields import OneOrMany, Sha256, Text, not_one_of
from orchestrator.plugins import plugins, program_sources
from orchestrator.records.build_spec import BuildSpec, LibrarySpec
from orchestrator.records.case import ToolName

ABIS = (
    "arm64-v8a",
    "armeabi-v7a",
    "x86_64",
    "x86",
    "riscv64",
    "linux-x86_64",
    "linux-aarch64",
    "linux-armv7l",
)


def _abi(text: str) -> str:
    if text not in ABIS:
        raise ValueError(not_one_of(text, ABIS))
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"{text!r} isn't a name of letters, digits, dots, dashes and underscores")
    return text


def _url(text: str) -> str:
    if not re.fullmatch(r"https://[^\s/]+/\S+", text):
        raise ValueError(f"{text!r} isn't an https address")
    return text


class SourceSection(Section):
    """Where the program for one ABI comes from."""

    url: Annotated[Text, AfterValidator(_url)] | None = None
    recipe: Annotated[OneOrMany[tuple[Text, ...]], Field(min_length=1)] | None = None
    sha256: OneOrMany[tuple[Sha256, ...]] = ()

    @model_validator(mode="after")
    def _one_source(self) -> SourceSection:
        if (self.url is None) == (self.recipe is None):
            raise ValueError("needs exactly one of url and recipe")
        return self


class ExpectedSection(Section):
    """What the program must hold; checked before it is used."""

    package: Text | None = None
    activity: Text | None = None
    min_sdk: Annotated[int, Field(ge=1, le=100)] | None = None
    debuggable: bool = False


class LibrarySection(Section):
    """A shared library beside the program; from the program's folder where ``url`` isn't given."""

    optional: bool = False
    url: (
        dict[Annotated[str, AfterValidator(_abi)], Annotated[Text, AfterValidator(_url)]] | None
    ) = None


class BuildSection(NamedSection):
    """A whole build file: one program for several ABIs."""

    name: Annotated[Text, AfterValidator(_name)]
    title: Text
    tool: ToolWord
    program: Annotated[Text, AfterValidator(_name)]
    variant: Annotated[Text, AfterValidator(_name)] = "plain"
    default: bool = False
    abis: Annotated[dict[Annotated[str, AfterValidator(_abi)], SourceSection], Field(min_length=1)]
    libraries: dict[Annotated[str, AfterValidator(_name)], LibrarySection] = Field(
        default_factory=dict
    )
    expected: ExpectedSection = ExpectedSection()

    @model_validator(mode="after")
    def _apk_has_a_package(self) -> BuildSection:
        if self.tool.is_app and not (self.expected.package and self.expected.activity):
            raise ValueError("an APK needs expected.package and expected.activity")
        return self


def load_builds(folders: Sequence[Path]) -> tuple[BuildSpec, ...]:
    """Read all build files (``*.yaml``) of some folders, by name; of two with one name the first
    folder's is taken.

    Raises:
        PlanError: with one line for each fault of all files.
    """
    problems: list[str] = []
    found = load_each(folders, load_build, problems)
    if problems:
        raise PlanError("the build files have faults:", faults=problems)
    return tuple(spec for path in sorted(found, key=lambda path: path.stem) for spec in found[path])


def load_build(path: Path) -> tuple[BuildSpec, ...]:
    """Read one build file: a BuildSpec for each of its ABIs.

    Raises PlanError with one line for each fault.
    """
    return tuple(_specs(read_named(path, BuildSection)))


def _specs(section: BuildSection) -> Iterator[BuildSpec]:
    for abi, source in section.abis.items():
        yield BuildSpec(
            **section.model_dump(include={"name", "title", "tool", "program", "variant"}),
            **section.expected.model_dump(exclude_none=True),
            abi=abi,
            is_default=section.default,
            url=source.url or "",
            recipe=source.recipe or (),
            sha256s=source.sha256,
            libraries=tuple(
                _library(name, library, abi, source) for name, library in section.libraries.items()
            ),
        )


def _library(name: str, library: LibrarySection, abi: str, source: SourceSection) -> LibrarySpec:
    url = f"{source.url.rpartition('/')[0]}/{name}" if source.url else ""
    if library.url is not None:
        url = library.url.get(abi, "")
    return LibrarySpec(name=name, url=url, optional=library.optional)


def known_tools() -> list[str]:
    """Return what a tool may be called."""
    declared = (name for source in program_sources() for name in source.names())
    return [*dict.fromkeys([*ToolName, *plugins("programs"), *declared])]


def tool_of(word: object) -> object:
    """Return the tool that a word means: one of benchfarm's own, a plugin's, a declared program by
    name or by its file.

    Raises ValueError for one that isn't known.
    """
    if not isinstance(word, str) or word in list(ToolName):
        return word
    if word in plugins("programs"):
        return ToolName(word)
    for source in program_sources():
        if (tool := source.named(word)) is not None:
            return tool
    known = known_tools()
    hint = nearest(word, known)
    raise ValueError(f"{word!r} isn't one of {', '.join(known)}" + (f"; {hint}" if hint else ""))


def tool_named(word: str) -> ToolName:
    """Return the tool that a command names; raises UsageError for one that isn't known."""
    try:
        found = tool_of(word)
        return found if isinstance(found, ToolName) else ToolName(word)
    except ValueError as error:
        raise UsageError(str(error)) from None


#: A tool as a file names it: one of benchfarm's own, a declared program or its file.
ToolWord = Annotated[ToolName, BeforeValidator(tool_of), WithJsonSchema({"type": "string"})]
