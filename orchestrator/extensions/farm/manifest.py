"""A submission's manifest (its plan, with what that names by content), and facts and labels of
phones, on their way between hosts: JSON documents, every field checked when read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.documents import adapter_of, describe
from orchestrator.errors import ArtifactError, PlanError, UsageError
from orchestrator.passes import pass_names
from orchestrator.predicates import parse_predicate
from orchestrator.records.case import Build, ToolName
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan

#: How a kind of phones ends: real ones, and virtual ones.
_KINDS: Final = (" real", " virtual")
#: A file: its bare name, and its sha256.
Content = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneLabels:
    """Pools and tags of a phone; answers predicates as the inventory's own labels do."""

    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A plan with all that it names: one for a submission's phones, those too that come later.

    A build's path, and a companion's, is the bare name of its file.
    """

    #: With the devices that it means; its models by their contents.
    plan: Plan
    #: By kind of phone, and by serial number for one that takes others than its kind.
    builds: Mapping[str, tuple[Build, ...]] = field(default_factory=dict)
    #: The programs of which the plan itself names a build: no phone uses another one.
    named: tuple[ToolName, ...] = ()
    #: A build's sha256 -> the build that replaces it for a model that needs TensorFlow's operators.
    flex_builds: Mapping[str, Build] = field(default_factory=dict)
    #: What a flag value ``@path`` means: the file itself first, then what it needs beside it.
    flag_files: Mapping[str, tuple[Content, ...]] = field(default_factory=dict)
    parity_inputs: tuple[Content, ...] = ()
    #: The files that declare the plan's programs of other runtimes, each named as its program.
    programs: tuple[Content, ...] = ()
    #: The model of the reference workload; None when the plan doesn't want it.
    reference: Content | None = None
    #: Phones that the plan means and that had no job when it was submitted -> why.
    left_out: Mapping[str, str] = field(default_factory=dict)

    def builds_for(self, facts: DeviceFacts) -> tuple[Build, ...]:
        """Return the builds that a phone gets; of the programs that it lacks its host's own are
        used.

        A phone of another kind gets those that fit it. Raises ArtifactError for a program of which
        the plan names a build that doesn't.
        """
        found = self.builds.get(facts.serial, self.builds.get(kind_of(facts)))
        if found is None:
            fitting = {
                build.tool: build
                for abi in reversed(facts.abis)
                for name, builds in self.builds.items()
                for build in builds
                if name.endswith(_KINDS)
                and build.is_virtual == facts.is_virtual
                and abi in build.abi.split(",")
            }
            found = tuple(fitting.values())
        if lacking := set(self.named) - {build.tool for build in found}:
            raise ArtifactError(
                f"the plan names builds of {', '.join(sorted(lacking))}, of which none is for a phone of"
                f" {', '.join(facts.abis)}",
                hint="submit the plan with this phone, on a computer that has builds for it",
            )
        return found

    def all_builds(self) -> Iterator[Build]:
        """Yield every build of every kind of phone."""
        for builds in self.builds.values():
            yield from builds
        yield from self.flex_builds.values()

    def contents(self) -> Iterator[Content]:
        """Yield every file of it."""
        for model in self.plan.models:
            yield str(model.path), model.sha256 or ""
        for build in self.all_builds():
            yield str(build.path or ""), build.sha256
            yield from ((item.name, item.sha256) for item in build.companions)
        for files in self.flag_files.values():
            yield from files
        yield from self.parity_inputs
        yield from self.programs
        if self.reference is not None:
            yield self.reference


def kind_of(facts: DeviceFacts) -> str:
    """Return what phones have in common that the same builds run on."""
    return f"{','.join(facts.abis)}{_KINDS[facts.is_virtual]}"


_Record = TypeVar("_Record", Manifest, DeviceFacts, PhoneLabels)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: A file's bare name.
_FILE_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}")


def dump(record: Manifest | DeviceFacts | PhoneLabels) -> str:
    """Return a record as a JSON document with every field, whatever the defaults of others are."""
    return adapter_of(type(record)).dump_json(record).decode()


def read_manifest(document: str) -> Manifest:
    """Return a plan with what it names; raises PlanError naming what is wrong with it.

    Every file has its sha256, and a bare name. What this version doesn't know isn't passed over, as
    it would measure something else.
    """
    found = _read(Manifest, document, extra="forbid")
    plan = found.plan
    try:
        # As a file's plan is checked: another host may have written anything.
        TypeAdapter(Plan).validate_python(asdict(plan))
        if unknown := {name.value for name in plan.passes} - set(pass_names()):
            raise ValueError(f"this benchfarm has no pass {', '.join(sorted(unknown))}")
        if plan.builds or plan.folder or plan.parity_inputs:
            raise ValueError("it names files of a computer instead of contents")
        for text in plan.devices.where:
            parse_predicate(text)
        for name, sha256 in found.contents():
            if not _FILE_NAME.fullmatch(name):
                raise ValueError(f"{name!r} can't be the name of a file")
            if not _SHA256.fullmatch(sha256):
                raise ValueError(f"{name!r} has no sha256")
        if wrong := [value for value, files in found.flag_files.items() if not files]:
            raise ValueError(f"the flag value {wrong[0]!r} has no file")
    except ValidationError as error:
        raise PlanError(f"a plan from the queue: {describe(error)}") from error
    except (ValueError, UsageError) as error:
        raise PlanError(f"a plan from the queue: {error}") from error
    return found


def read_facts(document: str) -> DeviceFacts:
    """Return the facts of a document; raises PlanError naming what is wrong with them."""
    return _read(DeviceFacts, document)


def read_labels(document: str) -> PhoneLabels:
    """Return a phone's pools and tags, none for an empty document.

    Raises PlanError naming what is wrong.
    """
    return _read(PhoneLabels, document) if document else PhoneLabels()


def _read(kind: type[_Record], document: str, **options: Any) -> _Record:  # noqa: ANN401
    try:
        return adapter_of(kind).validate_json(document, strict=True, **options)
    except ValidationError as error:
        raise PlanError(f"{kind.__name__} from the queue: {describe(error)}") from error
