"""Documents between hosts, as JSON with every value checked: a submission's manifest (its plan and
the contents of its files), facts and labels of phones. The contents: stored in the database, copied
to hosts, verified.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.documents import adapter_of, fault_text
from orchestrator.errors import ArtifactError, HostStorageError, PlanError, StoreError, UsageError
from orchestrator.extensions.farm.schema import QueueDatabase
from orchestrator.fields import is_sha256
from orchestrator.files import draft_of, make_private, sha256_of
from orchestrator.passes import pass_names
from orchestrator.records import frozen
from orchestrator.records.answers import OPEN_JOBS
from orchestrator.records.case import Build, ToolName
from orchestrator.records.device import DeviceFacts, Labels, parse_predicate
from orchestrator.records.plan import Plan

#: Suffixes of the kinds of phones: real and virtual ones.
_KINDS: Final = (" real", " virtual")
#: A file: its bare name, and its sha256.
Content = tuple[str, str]


@frozen
class Manifest:
    """A plan with the contents of its files: one for all phones of a submission, also later ones.

    A build's path, and a companion's, is the bare name of its file.
    """

    #: With its selection of devices; its models by their contents.
    plan: Plan
    #: By kind of phone, and by serial number for a phone with other builds than its kind.
    builds: Mapping[str, tuple[Build, ...]] = field(default_factory=dict)
    #: The programs of which the plan itself names a build: phones use no other build of them.
    named: tuple[ToolName, ...] = ()
    #: A build's sha256 -> the build that replaces it for a model that needs TensorFlow's operators.
    flex_builds: Mapping[str, Build] = field(default_factory=dict)
    #: The files of a flag value ``@path``: the file itself first, then those that it needs.
    flag_files: Mapping[str, tuple[Content, ...]] = field(default_factory=dict)
    parity_inputs: tuple[Content, ...] = ()
    #: The files that declare the plan's programs of other runtimes, each named as its program.
    programs: tuple[Content, ...] = ()
    #: The model of the reference workload; None for a plan without it.
    reference: Content | None = None
    #: Phones that the plan selects and that had no job when it was submitted -> the reason.
    left_out: Mapping[str, str] = field(default_factory=dict)

    def builds_for(self, facts: DeviceFacts) -> tuple[Build, ...]:
        """Return the builds for a phone; for other programs its host's own builds are used.

        A phone of a new kind gets the builds that fit it. Raises ArtifactError for a program of
        which the plan names builds and none of them fits.
        """
        chosen = self.builds.get(facts.serial, self.builds.get(builds_kind(facts)))
        if chosen is None:
            fitting = {
                build.tool: build
                for abi in reversed(facts.abis)
                for name, builds in self.builds.items()
                for build in builds
                if name.endswith(_KINDS)
                and build.is_virtual == facts.is_virtual
                and abi in build.abi.split(",")
            }
            chosen = tuple(fitting.values())
        if missing := set(self.named) - {build.tool for build in chosen}:
            raise ArtifactError(
                f"the plan names builds of {', '.join(sorted(missing))}, of which none is for a phone of"
                f" {', '.join(facts.abis)}",
                hint="submit the plan with this phone, on a computer that has builds for it",
            )
        return chosen

    def contents(self) -> Iterator[Content]:
        """Yield all files of the manifest."""
        for model in self.plan.models:
            yield str(model.path), model.sha256 or ""
        for build in (*chain.from_iterable(self.builds.values()), *self.flex_builds.values()):
            yield str(build.path or ""), build.sha256
            yield from ((item.name, item.sha256) for item in build.companions)
        for files in self.flag_files.values():
            yield from files
        yield from self.parity_inputs
        yield from self.programs
        if self.reference is not None:
            yield self.reference


def builds_kind(facts: DeviceFacts) -> str:
    """Return the kind of a phone: phones of one kind run the same builds."""
    return f"{','.join(facts.abis)}{_KINDS[facts.is_virtual]}"


_Record = TypeVar("_Record", Manifest, DeviceFacts, Labels)
#: A file's bare name.
_FILE_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]{1,200}")


def dump(record: Manifest | DeviceFacts | Labels) -> str:
    """Return a record as a JSON document with every field, as defaults differ between versions."""
    return adapter_of(type(record)).dump_json(record).decode()


def read_manifest(document: str) -> Manifest:
    """Return the manifest of a document; raises PlanError naming the fault.

    Every file must have its sha256 and a bare name. Unknown keys are refused: without them this
    version would measure something else.
    """
    manifest = _read(Manifest, document, extra="forbid")
    plan = manifest.plan
    try:
        # The checks of a plan file: another host may have written anything.
        TypeAdapter(Plan).validate_python(asdict(plan))
        if unknown := {name.value for name in plan.passes} - set(pass_names()):
            raise ValueError(f"this benchfarm has no pass {', '.join(sorted(unknown))}")
        if plan.builds or plan.folder or plan.parity_inputs:
            raise ValueError("it names files of a computer instead of contents")
        for text in plan.devices.where:
            parse_predicate(text)
        for name, sha256 in manifest.contents():
            if not _FILE_NAME.fullmatch(name):
                raise ValueError(f"{name!r} can't be the name of a file")
            if not is_sha256(sha256):
                raise ValueError(f"{name!r} has no sha256")
        if wrong := [value for value, files in manifest.flag_files.items() if not files]:
            raise ValueError(f"the flag value {wrong[0]!r} has no file")
    except ValidationError as error:
        raise PlanError(f"a plan from the queue: {fault_text(error)}") from error
    except (ValueError, UsageError) as error:
        raise PlanError(f"a plan from the queue: {error}") from error
    return manifest


def read_facts(document: str) -> DeviceFacts:
    """Return the facts of a document; raises PlanError naming the fault."""
    return _read(DeviceFacts, document)


def read_labels(documents: Iterable[str]) -> Labels:
    """Return all pools and tags of a phone, from its hosts' documents; empty ones are skipped.

    Raises PlanError naming the fault.
    """
    all_labels = [_read(Labels, document) for document in documents if document]
    return Labels(
        pools=tuple(dict.fromkeys(pool for item in all_labels for pool in item.pools)),
        tags=tuple(dict.fromkeys(tag for item in all_labels for tag in item.tags)),
    )


def _read(kind: type[_Record], document: str, **options: Any) -> _Record:  # noqa: ANN401
    try:
        return adapter_of(kind).validate_json(document, strict=True, **options)
    except ValidationError as error:
        raise PlanError(f"{kind.__name__} from the queue: {fault_text(error)}") from error


#: Contents that were stored or used within this time stay: a submission may be about to use them.
GRACE_S: Final = 24 * 3600.0
#: Copies that this host didn't use for this time are deleted, and fetched again when they are
#: needed.
CACHED_S: Final = 14 * 24 * 3600.0
_PART_BYTES: Final = 4 << 20


@frozen
class Cleaned:
    """Counts of what a cleaning deleted, or would delete."""

    jobs: int
    files: int
    size_bytes: int


class ContentStore:
    """Contents of the farm as a host sees them: its own copies, and the database."""

    def __init__(self, database: QueueDatabase, cache_folder: Path) -> None:
        self._queue = database
        #: The folder of this host's copies.
        self._folder = cache_folder / "farm-files"
        #: A lock per sha256: two threads fetch a content once.
        self._fetching: dict[str, threading.Lock] = {}

    def keep(self, path: Path, sha256: str) -> bool:
        """Store a file under its content's hash; return False when it is there already.

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
                # This locks the row: other uploads of the same file wait here, and a cleaning
                # skips it.
                connection.execute(
                    "INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, %s)"
                    " ON CONFLICT (sha256) DO UPDATE SET used_at = now()",
                    (sha256, size_bytes),
                )
                stored = connection.execute(
                    "SELECT coalesce(sum(length(data)), 0) FROM farm_file_parts WHERE sha256 = %s",
                    (sha256,),
                ).fetchone()
                if stored == (size_bytes,) and size_bytes:
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
        """Return this host's copy of a content, named ``name``: copied if necessary, verified each
        time.

        Raises StoreError for a missing or damaged content, HostStorageError when the copy can't be
        written.
        """
        path = self._folder / sha256 / name
        with self._fetching.setdefault(sha256, threading.Lock()):
            try:
                if path.is_file() and sha256_of(path) == sha256:
                    os.utime(path)
                    return path
                make_private(path.parent)
                with draft_of(path) as draft:
                    self._copy(sha256, draft, name)
                return path
            except OSError as error:
                raise HostStorageError(f"{error.filename or path}: {error.strerror}") from error

    def _copy(self, sha256: str, path: Path, name: str) -> None:
        """Copy a content from the database; raises StoreError for a missing or damaged one.

        A damaged one is deleted: submitting the file again stores it again.
        """
        digest, number = hashlib.sha256(), 0
        with path.open("wb") as file:
            while rows := self._queue.rows(
                "SELECT data FROM farm_file_parts WHERE sha256 = %s AND part_no = %s",
                sha256,
                number,
            ):
                digest.update(rows[0]["data"])
                file.write(rows[0]["data"])
                number += 1
        if digest.hexdigest() != sha256:
            self._queue.rows("DELETE FROM farm_file_parts WHERE sha256 = %s", sha256)
            raise StoreError(
                f"{name} (sha256 {sha256[:16]}) is missing or damaged in the farm's database",
                hint="submit the plan again",
            )

    def clean(self, *, older_than_s: float, is_trial: bool = False) -> Cleaned:
        """Delete submissions that ended before this age, and contents without a submission; a trial
        changes nothing.

        Contents that were stored or used within GRACE_S stay, too.
        """
        with (
            self._queue.connection() as connection,
            connection.transaction(force_rollback=is_trial),
        ):
            ended = connection.execute(
                "WITH ended AS (SELECT submission, count(*) AS jobs FROM farm_jobs GROUP BY submission"
                " HAVING NOT bool_or(status = ANY(%s))"
                " AND max(changed_at) < now() - make_interval(secs => %s))"
                " DELETE FROM farm_submissions s USING ended WHERE s.submission = ended.submission RETURNING jobs",
                (list(OPEN_JOBS), older_than_s),
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

    def clean_copies(self) -> None:
        """Delete this host's copies that weren't used for CACHED_S; raises HostStorageError."""
        try:
            for path in list(self._folder.glob("*/*")):
                # Another worker with this cache may delete it at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > CACHED_S:
                        path.unlink()
                        if not any(path.parent.iterdir()):
                            path.parent.rmdir()
        except OSError as error:
            raise HostStorageError(f"{error.filename}: {error.strerror}") from error
