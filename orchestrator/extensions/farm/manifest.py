"""Plans with what they name, and facts, on their way between hosts: JSON documents, every field
checked when read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.documents import adapter_of, describe
from orchestrator.errors import NewerPlanError, PlanError, UsageError
from orchestrator.passes import pass_names
from orchestrator.predicates import Labels, parse_predicate
from orchestrator.records.case import Build
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan


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
    """What a plan names, for one phone.

    A build's path, and a companion's, is the bare name of its file.
    """

    builds: tuple[Build, ...] = ()
    twins: tuple[Twin, ...] = ()
    flag_files: tuple[FlagFile, ...] = ()
    parity_inputs: tuple[Content, ...] = ()
    #: The files that declare the plan's programs of other runtimes, each named as its program.
    programs: tuple[Content, ...] = ()
    #: The model of the reference workload; None when the plan doesn't want it.
    reference: Content | None = None

    @property
    def all_builds(self) -> list[Build]:
        """Its builds, and those that stand in for them."""
        return [*self.builds, *(twin.build for twin in self.twins)]

    @property
    def contents(self) -> list[Content]:
        """Every file of it."""
        builds = self.all_builds
        found = [
            Content(name=build.path.name, sha256=build.sha256)
            for build in builds
            if build.path is not None
        ]
        found += [
            Content(name=item.name, sha256=item.sha256)
            for build in builds
            for item in build.companions
        ]
        found += [file for item in self.flag_files for file in item.files]
        return [
            *found,
            *self.parity_inputs,
            *self.programs,
            *([self.reference] if self.reference is not None else []),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneLabels:
    """What a phone's host says that it is for.

    Answers predicates as the inventory's own labels do.
    """

    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A plan with all that it names: one for a submission's phones, those too that come later."""

    #: With the devices that it means; its models by their contents.
    plan: Plan
    #: What it names: by serial number for a phone that differs from others of its kind, by kind of
    #: phone, and by "" for other kinds, which use their hosts' own programs.
    payloads: Mapping[str, Payload]
    #: What the submitter's computer says that phones are for, by serial number.
    labels: Mapping[str, PhoneLabels] = field(default_factory=dict)

    def payload_for(self, facts: DeviceFacts) -> Payload:
        """Return what the plan names for a phone."""
        return (
            self.payloads.get(facts.serial)
            or self.payloads.get(kind_of(facts))
            or self.payloads[""]
        )

    @property
    def files(self) -> list[str]:
        """Return the sha256 of every file of it."""
        contents = [item.sha256 for payload in self.payloads.values() for item in payload.contents]
        return sorted({*contents, *(str(model.sha256) for model in self.plan.models)})


def kind_of(facts: DeviceFacts) -> str:
    """Return what phones have in common that the same builds run on."""
    return f"{facts.abis[0] if facts.abis else ''} {'virtual' if facts.is_virtual else 'real'}"


_Record = TypeVar("_Record", Manifest, DeviceFacts, PhoneLabels)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: A file's bare name.
_FILE_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}")
_UNKNOWN_FIELD: Final = "unexpected_keyword_argument"
#: A field or word that isn't known here: the submitter's benchfarm has checked the plan, so it
#: knows that.
_NEWER: Final = {_UNKNOWN_FIELD, "enum", "literal_error"}


def dump(record: Manifest | DeviceFacts | PhoneLabels) -> str:
    """Return a record as a JSON document.

    What is as it is by default isn't in it, so that a host which doesn't know a field yet reads the
    plans that don't need it. A default that changes needs a new version of the documents
    (schema.PROTOCOL).
    """
    return adapter_of(type(record)).dump_json(record, exclude_defaults=True).decode()


def read_manifest(document: str) -> Manifest:
    """Return a plan with what it names; raises PlanError naming what is wrong with it.

    Every file has its sha256, and a bare name. What this version doesn't know isn't passed over, as
    it would measure something else: NewerPlanError.
    """
    try:
        found = adapter_of(Manifest).validate_json(document, strict=True, extra="forbid")
        # As a file's plan is checked: another host may have written anything.
        TypeAdapter(Plan).validate_python(asdict(found.plan))
    except ValidationError as error:
        raise _fault("a plan", error) from error
    plan = found.plan
    if unknown := [name.value for name in plan.passes if name.value not in pass_names()]:
        raise NewerPlanError(
            f"a plan from the queue asks for the pass {unknown[0]!r}, which this benchfarm doesn't know",
            hint="install the submitter's benchfarm, and what brings the pass, on this host",
        )
    try:
        if plan.builds or plan.folder or plan.parity_inputs:
            raise ValueError("it names files of a computer instead of contents")
        for text in plan.devices.where:
            parse_predicate(text)
        for model in plan.models:
            _check_content(str(model.path), model.sha256 or "")
        if "" not in found.payloads:
            raise ValueError("it names nothing for other kinds of phones")
        for payload in found.payloads.values():
            _check(payload)
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


def labels_of(item: Labels) -> PhoneLabels:
    """Return the pools and tags of what an inventory says of a phone."""
    return PhoneLabels(pools=tuple(item.pools), tags=tuple(item.tags))


def _read(kind: type[_Record], document: str) -> _Record:
    try:
        return adapter_of(kind).validate_json(document, strict=True)
    except ValidationError as error:
        raise _fault(kind.__name__, error) from error


def _fault(what: str, error: ValidationError) -> PlanError:
    """Return what is wrong with a document of the queue: a NewerPlanError where it is only not
    known here.
    """
    faults = error.errors(include_url=False, include_context=False)
    if not all(item["type"] in _NEWER for item in faults):
        return PlanError(f"{what} from the queue: {describe(error)}")
    unknown = next((item for item in faults if item["type"] == _UNKNOWN_FIELD), None)
    asked = (
        f"asks for {'.'.join(map(str, unknown['loc']))}" if unknown else f"has {describe(error)}"
    )
    return NewerPlanError(
        f"{what} from the queue {asked}, which this benchfarm doesn't know",
        hint="install the submitter's benchfarm on this host",
    )


def _check(payload: Payload) -> None:
    """Raise ValueError for a file without a content, or with a name that isn't a bare one."""
    for build in payload.all_builds:
        if build.path is None:
            raise ValueError(f"the build {build.name!r} has no file")
        _check_content(str(build.path), build.sha256)
    for content in payload.contents:
        _check_content(content.name, content.sha256)
    for item in payload.flag_files:
        if not item.files or not item.value.startswith("@"):
            raise ValueError(f"the flag value {item.value!r} has no file")


def _check_content(name: str, sha256: str) -> None:
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} can't be the name of a file")
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{name!r} has no sha256")
