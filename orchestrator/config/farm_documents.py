"""Plans, what they name, and facts on their way between hosts: JSON documents, every field checked when read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from orchestrator.config.fields import affinity_word, free_flags, predicate_text
from orchestrator.documents import adapter_of, describe
from orchestrator.errors import NewerPlanError, PlanError
from orchestrator.predicates import Labels
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan
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


_Record = TypeVar("_Record", Plan, DeviceFacts, Payload)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: A file's bare name.
_FILE_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}")
_NEWER: Final = "install the submitter's benchfarm on this host"
#: A word that is none of those known here: the submitter's benchfarm has checked the plan, so it knows that word.
_NEW_WORDS: Final = {"enum", "literal_error"}
_Label = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class PhoneLabels(BaseModel):
    """What a phone's host says that it is for. Answers predicates as the inventory's own labels do."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pools: tuple[_Label, ...] = ()
    tags: tuple[_Label, ...] = ()


def dump(record: Plan | DeviceFacts | Payload) -> str:
    """Return a record as a JSON document.

    What is as it is by default isn't in it, so that a host which doesn't know a field yet reads the plans that don't
    need it. A default that changes needs a new version of the messages (queueing/submissions.py).
    """
    return adapter_of(type(record)).dump_json(record, exclude_defaults=True).decode()


def read_plan(document: str) -> Plan:
    """Return the plan of a document; raises PlanError naming what is wrong with it.

    Every model has its sha256. What this version doesn't know isn't passed over, as it would measure something else:
    NewerPlanError.
    """
    plan = _read(Plan, document)
    _refuse_unknown(plan, document, "plan")
    try:
        for flags in plan.matrix.flags:
            free_flags(dict(flags))
        for text in plan.devices.where:
            predicate_text(text)
        affinity_word(plan.settings.affinity)
    except ValueError as error:
        raise PlanError(f"a plan from the queue: {error}") from error
    for model in plan.models:
        _check_content("plan", str(model.path), model.sha256 or "")
    return plan


def read_payload(document: str) -> Payload:
    """Return what a plan names; raises PlanError naming what is wrong with it. Its names are bare names of files.

    NewerPlanError: this version doesn't know something of it.
    """
    payload = _read(Payload, document)
    _refuse_unknown(payload, document, "payload")
    builds = [*payload.builds, *(twin.build for twin in payload.twins)]
    for build in builds:
        if build.path is None:
            raise PlanError(f"a payload from the queue: the build {build.name!r} has no file")
        _check_content("payload", str(build.path), build.sha256)
    for content in payload.contents:
        _check_content("payload", content.name, content.sha256)
    for item in payload.flag_files:
        if not item.files or not item.value.startswith("@"):
            raise PlanError(f"a payload from the queue: the flag value {item.value!r} has no file")
    return payload


def read_facts(document: str) -> DeviceFacts:
    """Return the facts of a document; raises PlanError naming what is wrong with them."""
    return _read(DeviceFacts, document)


def labels_of(item: Labels) -> dict[str, Sequence[str]]:
    """Return a phone's pools and tags as :func:`read_labels` takes them, in JSON."""
    return {"pools": item.pools, "tags": item.tags}


def read_labels(document: str) -> PhoneLabels:
    """Return a phone's pools and tags, none for an empty document; raises PlanError naming what is wrong."""
    try:
        return PhoneLabels.model_validate_json(document, strict=True) if document else PhoneLabels()
    except ValidationError as error:
        raise PlanError(f"labels from the queue: {describe(error)}") from error


def _read(kind: type[_Record], document: str) -> _Record:
    try:
        record: _Record = adapter_of(kind).validate_json(document, strict=True)
    except ValidationError as error:
        is_newer = all(item["type"] in _NEW_WORDS for item in error.errors())
        raise (NewerPlanError if is_newer else PlanError)(
            f"a {kind.__name__} from the queue: {describe(error)}", hint=_NEWER if is_newer else ""
        ) from error
    return record


def _check_content(where: str, name: str, sha256: str) -> None:
    if not _FILE_NAME.fullmatch(name):
        raise PlanError(f"a {where} from the queue: {name!r} can't be the name of a file")
    if not _SHA256.fullmatch(sha256):
        raise PlanError(f"a {where} from the queue: {name!r} has no sha256")


def _refuse_unknown(record: Plan | Payload, document: str, what: str) -> None:
    """Raise NewerPlanError for a field that isn't in what was read of a document."""
    unknown = _beyond(json.loads(document), adapter_of(type(record)).dump_python(record, mode="json"))
    if unknown:
        raise NewerPlanError(
            f"a {what} from the queue asks for {unknown}, which this benchfarm doesn't know", hint=_NEWER
        )


def _beyond(document: object, known: object, where: str = "") -> str:
    """Return the first key of a document that the other one lacks, empty when there is none."""
    if isinstance(document, Mapping) and isinstance(known, Mapping):
        for key, value in document.items():
            path = f"{where}.{key}" if where else str(key)
            if key not in known:
                return path
            if found := _beyond(value, known[key], path):
                return found
    elif isinstance(document, list) and isinstance(known, list):
        for place, (value, other) in enumerate(zip(document, known, strict=False)):
            if found := _beyond(value, other, f"{where}[{place}]"):
                return found
    return ""
