"""Packing what a plan names for its way to other hosts, and unpacking it there: files by content,
checked.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.app.beginning import host_files, reference_model
from orchestrator.errors import HostStorageError, PlanError, StoreError, UsageError
from orchestrator.extensions.farm.manifest import (
    Content,
    FlagFile,
    Manifest,
    Payload,
    Twin,
    kind_of,
)
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.extensions.farm.schema import Database
from orchestrator.files import draft_of, make_private, sha256_of
from orchestrator.planning.expansion import HostFiles
from orchestrator.planning.skips import tools_for
from orchestrator.plugins import Settings, Workspace
from orchestrator.programs import program
from orchestrator.records.case import Build, Companion, Model, Serial, Skip
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import model_ending
from orchestrator.records.plan import Plan, PlanModel

#: Gets a file's name and sha256, gives this host's copy.
_Fetch = Callable[[str, str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a submission needs at its phones' hosts."""

    manifest: Manifest
    #: sha256 -> where the file lies on this computer, of the models too.
    paths: Mapping[str, Path]
    #: Serial number -> the programs that this computer has no build of, with the reason: the
    #: phone's host may.
    missing: Mapping[Serial, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A plan and what it names as files of this host."""

    plan: Plan
    named: Mapping[str, HostFiles]
    reference: Model | None


def contents_of(settings: Settings, queue: FarmQueue) -> Contents:
    """Return the farm's contents as this host sees them."""
    return Contents(queue, settings.cache_folder / "farm-files")


def pack(
    workspace: Workspace, plan: Plan, phones: Sequence[DeviceFacts], models: Sequence[Model]
) -> Packed:
    """Return everything that a plan names; nothing is sent yet.

    Raises PlanError for a file that can't be read, ArtifactError for a build that isn't here or
    doesn't fit a phone.
    """
    paths = {str(model.sha256): model.path for model in models if model.path is not None}

    def content(path: Path) -> Content:
        sha256 = sha256_of(path)
        paths[sha256] = path
        return Content(name=path.name, sha256=sha256)

    def without_paths(build: Build) -> Build:
        """Return a build with the names of its files in place of their paths."""
        assert build.path is not None, "a resolved build has its file"
        paths[str(build.sha256)] = build.path
        paths.update({item.sha256: item.path for item in build.companions if item.path is not None})
        companions = tuple(replace(item, path=Path(item.name)) for item in build.companions)
        return replace(build, path=Path(build.path.name), companions=companions)

    named = host_files(plan)
    for item in named.values():
        paths.update(item.paths)
    try:
        inputs = tuple(content(path) for path in _inputs(plan))
    except OSError as error:
        raise PlanError(
            f"parity_inputs: {error.filename} can't be read: {error.strerror}"
        ) from error
    reference = None if plan.reference_check is False else reference_model().path
    # Another host, or a later version, has other files that declare programs.
    declaring = dict.fromkeys(
        path
        for tool in tools_for(plan, DeviceKind.ANDROID)
        if (path := program(tool).declared_in) is not None
    )
    bare = Payload(
        flag_files=tuple(
            FlagFile(
                value=value,
                files=tuple(Content(name=name, sha256=sha256) for name, sha256 in item.files),
            )
            for value, item in named.items()
        ),
        parity_inputs=inputs,
        programs=tuple(map(content, declaring)),
        reference=content(reference) if reference is not None else None,
    )
    payloads = {"": bare}
    missing: dict[Serial, list[str]] = {}
    found = workspace.builds.of(plan, phones)
    for facts in phones:
        own = [build for (serial, _), build in found.items() if serial == facts.serial]
        # An app that is on the phone already needn't travel.
        builds = [build for build in own if isinstance(build, Build) and build.path is not None]
        if reasons := [build.reason for build in own if isinstance(build, Skip)]:
            missing[facts.serial] = reasons
        twins = workspace.builds.with_flex(builds)
        payload = replace(
            bare,
            builds=tuple(map(without_paths, builds)),
            twins=tuple(
                Twin(sha256=sha256, build=without_paths(twin)) for sha256, twin in twins.items()
            ),
        )
        if payloads.setdefault(kind_of(facts), payload) != payload:
            payloads[facts.serial] = payload
    manifest = Manifest(plan=_without_paths(plan, models), payloads=payloads)
    return Packed(manifest=manifest, paths=paths, missing=missing)


def _without_paths(plan: Plan, models: Sequence[Model]) -> Plan:
    """Return a plan without anything of this computer: its models by content."""
    sent = [
        PlanModel(
            name=model.name,
            path=Path(f"{model.sha256}{model_ending(model.path)}"),
            sha256=model.sha256,
        )
        for model in models
    ]
    return replace(plan, models=tuple(sent), parity_inputs=None, builds={}, folder=None)


def _inputs(plan: Plan) -> list[Path]:
    """Return the inputs ``<model>.<number>.bin`` of the plan's models for the pass ``parity``,
    sorted by name.
    """
    models = {model.name for model in plan.models}
    found = []
    for path in sorted(plan.parity_inputs.iterdir()) if plan.parity_inputs is not None else ():
        model, number = path.name.removesuffix(".bin").rpartition(".")[::2]
        if path.suffix == ".bin" and model in models and number.isdecimal() and path.is_file():
            found.append(path)
    return found


def unpack(
    workspace: Workspace, contents: Contents, plan: Plan, payload: Payload, folder: Path
) -> Unpacked:
    """Get what a plan names to this host, and let its programs be used before this host's own.

    Args:
        workspace: That is to measure the plan.
        contents: Where everything lies.
        plan: As it was sent.
        payload: What it names; an empty one for a plan that names models only.
        folder: An empty folder, for its parity inputs.

    Raises StoreError for what is missing or damaged, HostStorageError when it can't be written.
    """
    from orchestrator.models.inspect import identify_model

    def fetch(name: str, sha256: str) -> Path:
        return contents.fetch(sha256, name)

    models = [
        replace(model, path=fetch(f"{model.sha256}{model_ending(model.path)}", str(model.sha256)))
        for model in plan.models
    ]
    named = {
        item.value: HostFiles(
            name=item.files[0].name,
            files=tuple((file.name, file.sha256) for file in item.files),
            paths={file.sha256: fetch(file.name, file.sha256) for file in item.files},
        )
        for item in payload.flag_files
    }
    workspace.builds.bring(
        [_with_files(build, fetch) for build in payload.builds],
        {twin.sha256: _with_files(twin.build, fetch) for twin in payload.twins},
    )
    reference = None
    if payload.reference is not None:
        reference = identify_model(fetch(payload.reference.name, payload.reference.sha256))
    for item in payload.parity_inputs:
        (folder / item.name).symlink_to(fetch(item.name, item.sha256))
    inputs = folder if payload.parity_inputs else None
    return Unpacked(
        plan=replace(plan, models=tuple(models), parity_inputs=inputs),
        named=named,
        reference=reference,
    )


def _with_files(build: Build, fetch: _Fetch) -> Build:
    assert build.path is not None, "checked when it was read"
    companions = tuple(
        Companion(name=item.name, sha256=item.sha256, path=fetch(item.name, item.sha256))
        for item in build.companions
    )
    return replace(build, path=fetch(build.path.name, build.sha256), companions=companions)


#: What was kept or used within this time stays: a submission that needs it may be on its way.
GRACE_S: Final = 24 * 3600.0
#: Copies that this host didn't use for this time are deleted, and fetched again when they are
#: needed.
CACHED_S: Final = 14 * 24 * 3600.0
_PART_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a cleaning deleted, or would delete."""

    jobs: int
    files: int
    size_bytes: int


class Contents:
    """Contents of the farm as a host sees them: its own copies, and the database."""

    def __init__(self, database: Database, folder: Path) -> None:
        """``folder`` is where this host's copies lie."""
        self._queue = database
        self._folder = folder
        #: By sha256: the second thread that wants a content finds what the first one fetched.
        self._fetching: dict[str, threading.Lock] = {}

    def keep(self, path: Path, sha256: str) -> bool:
        """Keep a file under its content's hash; return False when it is there already.

        Raises UsageError for a file that changed or can't be read, StoreError.
        """
        digest = hashlib.sha256()
        try:
            with (
                path.open("rb") as file,
                self._queue.connection() as connection,
                connection.transaction(),
            ):
                size_bytes = os.fstat(file.fileno()).st_size
                # It locks the row: whoever brings the same file waits here, and a cleaning leaves
                # it alone.
                connection.execute(
                    "INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, %s)"
                    " ON CONFLICT (sha256) DO UPDATE SET used_at = now()",
                    (sha256, size_bytes),
                )
                kept = connection.execute(
                    "SELECT coalesce(sum(length(data)), 0) FROM farm_file_parts WHERE sha256 = %s",
                    (sha256,),
                ).fetchone()
                if kept == (size_bytes,) and size_bytes:
                    return False
                connection.execute("DELETE FROM farm_file_parts WHERE sha256 = %s", (sha256,))
                for number, part in enumerate(iter(functools.partial(file.read, _PART_BYTES), b"")):
                    digest.update(part)
                    connection.execute(
                        "INSERT INTO farm_file_parts VALUES (%s, %s, %s)", (sha256, number, part)
                    )
                if digest.hexdigest() != sha256:
                    raise UsageError(f"{path} was changed while it was read", hint="submit again")
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        return True

    def fetch(self, sha256: str, name: str) -> Path:
        """Return this host's copy of a content, named ``name``; it is made when there is none, and
        verified each time.

        Raises StoreError for one that is missing or damaged, HostStorageError when it can't be
        written.
        """
        path = self._folder / sha256 / name
        with self._alone(sha256):
            try:
                if path.is_file() and sha256_of(path) == sha256:
                    os.utime(path)
                    return path
                make_private(path.parent)
                if self._copy(sha256, path):
                    return path
            except OSError as error:
                raise HostStorageError(f"{error.filename or path}: {error.strerror}") from error
        raise StoreError(
            f"{name} (sha256 {sha256[:16]}) is missing or damaged in the farm's database",
            hint="submit the plan again",
        )

    def _copy(self, sha256: str, path: Path) -> bool:
        """Copy a content from the database; return False when it isn't there, or is damaged.

        A damaged one is deleted: whoever has the file brings it again by submitting it.
        """
        draft = draft_of(path)
        digest, number = hashlib.sha256(), 0
        try:
            with draft.open("wb") as file:
                while rows := self._queue.rows(
                    "SELECT data FROM farm_file_parts WHERE sha256 = %s AND part_no = %s",
                    sha256,
                    number,
                ):
                    digest.update(rows[0]["data"])
                    file.write(rows[0]["data"])
                    number += 1
            if digest.hexdigest() == sha256:
                draft.replace(path)
                return True
        finally:
            draft.unlink(missing_ok=True)
        self._queue.rows("DELETE FROM farm_file_parts WHERE sha256 = %s", sha256)
        return False

    def clean(self, *, older_than_s: float, is_trial: bool = False) -> Cleaned:
        """Delete submissions that ended before this age, and the contents that none needs; a trial
        changes nothing.

        Contents that were brought within the last day stay, too.
        """
        with (
            self._queue.connection() as connection,
            connection.transaction(force_rollback=is_trial),
        ):
            ended = connection.execute(
                "WITH ended AS (SELECT submission, count(*) AS jobs FROM farm_jobs GROUP BY submission"
                " HAVING NOT bool_or(status IN ('waits', 'runs'))"
                " AND max(changed_at) < now() - make_interval(secs => %s))"
                " DELETE FROM farm_submissions s USING ended WHERE s.submission = ended.submission RETURNING jobs",
                (older_than_s,),
            ).fetchall()
            files = connection.execute(
                "WITH spare AS MATERIALIZED (SELECT f.sha256 FROM farm_files f"
                " WHERE used_at < now() - make_interval(secs => %s)"
                " AND f.sha256 NOT IN (SELECT unnest(files) FROM farm_submissions) ORDER BY f.sha256 FOR UPDATE OF f)"
                " DELETE FROM farm_files f USING spare WHERE f.sha256 = spare.sha256 RETURNING f.size_bytes",
                (GRACE_S,),
            ).fetchall()
        jobs = sum(count for (count,) in ended)
        return Cleaned(jobs=jobs, files=len(files), size_bytes=sum(size for (size,) in files))

    def clean_copies(self, *, older_than_s: float = CACHED_S, is_trial: bool = False) -> Cleaned:
        """Delete this host's copies that weren't used for this time; raises HostStorageError."""
        sizes = []
        try:
            for path in sorted(path for path in self._folder.glob("*/*") if path.is_file()):
                # A job may be about to use it.
                with self._alone(path.parent.name):
                    found = path.stat()
                    if time.time() - found.st_mtime > older_than_s:
                        sizes.append(found.st_size)
                        if not is_trial:
                            path.unlink(missing_ok=True)
                            if not any(path.parent.iterdir()):
                                path.parent.rmdir()
        except OSError as error:
            raise HostStorageError(f"{error.filename}: {error.strerror}") from error
        return Cleaned(jobs=0, files=len(sizes), size_bytes=sum(sizes))

    def _alone(self, sha256: str) -> threading.Lock:
        return self._fetching.setdefault(sha256, threading.Lock())
