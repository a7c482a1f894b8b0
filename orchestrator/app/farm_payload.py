"""Packing what a plan names for its way to other hosts, and unpacking it there: files by content, checked."""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.app.beginning import NamedFile, host_files, reference_model
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.declared_programs import file_of
from orchestrator.config.farm_documents import dump
from orchestrator.errors import HostStorageError, PlanError
from orchestrator.files import make_private
from orchestrator.planning import HostFiles, NoBuild, tools_for
from orchestrator.queueing.contents import CACHED_S, Contents
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.submissions import PhoneJob
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.payload import Content, FlagFile, Payload, Twin
from orchestrator.records.plan import Plan
from orchestrator.records.tokens import model_ending
from orchestrator.records.workload import Build, Companion, Model

#: Gets a file's name and sha256, gives this host's copy.
_Fetch = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a submission needs at its phones' hosts."""

    payloads: Mapping[Serial, Payload]
    #: For a phone of a kind that isn't among them: without programs, so that its host's own are used.
    bare: Payload
    #: sha256 -> where the file lies on this computer.
    paths: Mapping[str, Path]
    #: Serial number -> the programs that this computer has no build of, with the reason: the phone's host may.
    missing: Mapping[Serial, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A plan and what it names as files of this host."""

    plan: Plan
    named: Mapping[str, NamedFile]
    reference: Model | None


def contents_of(settings: Settings, queue: FarmQueue) -> Contents:
    """Return the farm's contents as this host sees them."""
    return Contents(queue, settings.cache_folder / "farm-files")


def pack(farm: Farm, plan: Plan, phones: Sequence[DeviceFacts]) -> Packed:
    """Look at everything that a plan names beside its models; nothing is sent yet.

    Raises:
        PlanError: a file can't be read.
        ArtifactError: a build that the plan names isn't here, or doesn't fit a phone.
    """
    paths: dict[str, Path] = {}
    named = host_files(plan)
    for item in named.values():
        paths.update(item.paths)
    inputs = _inputs(plan, paths)
    reference = _reference(plan, paths)
    programs = _programs(plan, paths)
    flag_files = tuple(
        FlagFile(value=value, files=tuple(Content(name=name, sha256=sha256) for name, sha256 in item.placed.files))
        for value, item in named.items()
    )
    bare = Payload(
        flag_files=flag_files,
        parity_inputs=inputs,
        programs=programs,
        reference=reference,
        benchfarm=__version__,
    )
    found = farm.builds.of(plan, phones)
    payloads: dict[Serial, Payload] = {}
    missing: dict[Serial, list[str]] = {}
    for facts in phones:
        own = [build for (serial, _), build in found.items() if serial == facts.serial]
        # An app that is on the phone already needn't travel.
        builds = [build for build in own if isinstance(build, Build) and build.path is not None]
        missing[facts.serial] = [build.reason for build in own if isinstance(build, NoBuild)]
        twins = farm.builds.with_flex(builds)
        for build in [*builds, *twins.values()]:
            paths.update(_paths_of(build))
        payloads[facts.serial] = replace(
            bare,
            builds=tuple(_bare(build) for build in builds),
            twins=tuple(Twin(sha256=sha256, build=_bare(twin)) for sha256, twin in twins.items()),
        )
    return Packed(
        payloads=payloads, bare=bare, paths=paths, missing={serial: why for serial, why in missing.items() if why}
    )


def keep_all(contents: Contents, packed: Packed, models: Sequence[Model]) -> tuple[list[str], int]:
    """Keep the models and all that was packed; return the sha256 of each file, and how many of them are new.

    Raises UsageError for a file that changed or can't be read, StoreError.
    """
    files = {str(model.sha256): model.path for model in models if model.path is not None} | dict(packed.paths)
    return list(files), sum(contents.keep(path, sha256) for sha256, path in files.items())


def by_phone_and_kind(
    packed: Packed, chosen: Sequence[DeviceFacts], models: Sequence[Model]
) -> dict[str, dict[str, Any]]:
    """Return what a plan names, by kind of phone, for those too that come later; by phone where it isn't its kind's."""
    of_models = [str(model.sha256) for model in models]

    def needed(payload: Payload) -> dict[str, Any]:
        return {"payload": dump(payload), "files": [*of_models, *(item.sha256 for item in payload.contents)]}

    payloads = {"": needed(packed.bare)}
    for facts in chosen:
        own = needed(packed.payloads[facts.serial])
        if payloads.setdefault(_kind_of(facts), own) != own:
            payloads[str(facts.serial)] = own
    return payloads


def jobs_for(
    phones: Sequence[DeviceFacts], payloads: Mapping[str, Mapping[str, Any]], *, submission: str, plan: str
) -> tuple[list[PhoneJob], dict[str, list[str]]]:
    """Return the phones' jobs of a submission, and by serial number the sha256 of the contents that each needs.

    Args:
        phones: That are to measure it.
        payloads: What it names (by_phone_and_kind).
        submission: Its name.
        plan: Its document, without devices.
    """
    jobs, files = [], {}
    for facts in phones:
        own = payloads.get(facts.serial) or payloads.get(_kind_of(facts)) or payloads.get("", {})
        named = own.get("files", [])
        jobs.append(
            PhoneJob(submission=submission, serial=facts.serial, plan=plan, payload=str(own.get("payload", "")))
        )
        files[str(facts.serial)] = [str(item) for item in named] if isinstance(named, list) else []
    return jobs, files


def _kind_of(facts: DeviceFacts) -> str:
    """Return what phones have in common that the same builds run on."""
    return f"{facts.abis[0] if facts.abis else ''} {'virtual' if facts.is_virtual else 'real'}"


def _paths_of(build: Build) -> dict[str, Path]:
    assert build.path is not None, "a resolved build has its file"
    files = {str(build.sha256): build.path}
    return files | {item.sha256: item.path for item in build.companions if item.path is not None}


def _bare(build: Build) -> Build:
    """Return a build with the names of its files in place of their paths."""
    assert build.path is not None, "a resolved build has its file"
    companions = tuple(replace(item, path=Path(item.name)) for item in build.companions)
    return replace(build, path=Path(build.path.name), companions=companions)


def _inputs(plan: Plan, paths: dict[str, Path]) -> tuple[Content, ...]:
    """Return the inputs of the plan's models for the pass ``parity``, sorted by name."""
    if plan.parity_inputs is None:
        return ()
    found: list[Content] = []
    try:
        names = {path.name: path for path in plan.parity_inputs.iterdir() if path.suffix == ".bin" and path.is_file()}
        for name in sorted(names):
            if any(_is_input_of(model.name, name) for model in plan.models):
                with names[name].open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                found.append(Content(name=name, sha256=sha256))
                paths[sha256] = names[name]
    except OSError as error:
        raise PlanError(f"parity_inputs: {error.filename} can't be read: {error.strerror}") from error
    return tuple(found)


def _is_input_of(model: str, name: str) -> bool:
    """Whether a file is named ``<model>.<number>.bin``."""
    prefix, number = name.removesuffix(".bin").rpartition(".")[::2]
    return prefix == model and number.isdecimal()


def _programs(plan: Plan, paths: dict[str, Path]) -> tuple[Content, ...]:
    """Return the files that declare the plan's programs: another host, or a later version, has others."""
    found = []
    for file in {file_of(tool): None for tool in tools_for(plan, DeviceKind.ANDROID) if tool.is_declared}:
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        found.append(Content(name=file.name, sha256=sha256))
        paths[sha256] = file
    return tuple(found)


def _reference(plan: Plan, paths: dict[str, Path]) -> Content | None:
    if plan.reference_check is False:
        return None
    model = reference_model()
    assert model.path is not None, "it came with the package"
    paths[model.sha256] = model.path
    return Content(name=model.path.name, sha256=model.sha256)


def unpack(farm: Farm, contents: Contents, plan: Plan, payload: Payload, folder: Path) -> Unpacked:
    """Get what a plan names to this host, and let its programs be used before this host's own.

    Args:
        farm: That is to measure the plan.
        contents: Where everything lies.
        plan: As it was sent.
        payload: What it names; an empty one for a plan that names models only.
        folder: Where the folder of its parity inputs is made.

    Raises:
        StoreError: something is missing or damaged.
        HostStorageError: it can't be written.
    """
    from orchestrator.models.inspect import identify_model

    def fetch(name: str, sha256: str) -> Path:
        return contents.fetch(sha256, name)

    models = [
        replace(model, path=fetch(f"{model.sha256}{model_ending(model.path)}", str(model.sha256)))
        for model in plan.models
    ]
    named = {item.value: _named(item, fetch) for item in payload.flag_files}
    farm.builds.bring(
        [_with_files(build, fetch) for build in payload.builds],
        {twin.sha256: _with_files(twin.build, fetch) for twin in payload.twins},
    )
    reference = None
    if payload.reference is not None:
        reference = identify_model(fetch(payload.reference.name, payload.reference.sha256))
    inputs = _input_folder(payload.parity_inputs, fetch, folder) if payload.parity_inputs else None
    return Unpacked(plan=replace(plan, models=tuple(models), parity_inputs=inputs), named=named, reference=reference)


def _with_files(build: Build, fetch: _Fetch) -> Build:
    assert build.path is not None, "checked when it was read"
    companions = tuple(
        Companion(name=item.name, sha256=item.sha256, path=fetch(item.name, item.sha256)) for item in build.companions
    )
    return replace(build, path=fetch(build.path.name, build.sha256), companions=companions)


def _named(item: FlagFile, fetch: _Fetch) -> NamedFile:
    return NamedFile(
        placed=HostFiles(name=item.files[0].name, files=tuple((file.name, file.sha256) for file in item.files)),
        paths={file.sha256: fetch(file.name, file.sha256) for file in item.files},
    )


def _input_folder(inputs: Sequence[Content], fetch: _Fetch, folder: Path) -> Path:
    """Return a folder with these files, each of them checked; several phones' jobs may make it at once."""
    digest = hashlib.sha256(repr([(item.name, item.sha256) for item in inputs]).encode()).hexdigest()
    made = folder / digest[:32]
    try:
        make_private(made)
        os.utime(made)
        for item in inputs:
            source, there = fetch(item.name, item.sha256), made / item.name
            if there.is_file() and filecmp.cmp(source, there, shallow=False):
                continue
            draft = made / f".{item.name}.{os.getpid()}.{threading.get_ident()}.part"
            try:
                shutil.copyfile(source, draft)
                draft.replace(there)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise HostStorageError(f"{error.filename}: {error.strerror}") from error
    return made


def clean_inputs(folder: Path, *, older_than_s: float = CACHED_S) -> None:
    """Take away the folders of parity inputs that no job used for so long; raises HostStorageError."""
    try:
        for made in sorted(folder.iterdir()) if folder.is_dir() else ():
            if time.time() - made.stat().st_mtime > older_than_s:
                shutil.rmtree(made)
    except OSError as error:
        raise HostStorageError(f"{error.filename}: {error.strerror}") from error
