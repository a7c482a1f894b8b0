"""An evidence bundle: chosen campaigns with everything that their runs left behind, in one file.

It is a ZIP archive of ``manifest.json``, ``records.jsonl`` (campaigns, devices, models, builds and
runs as the store's documents, one in a line, each with its kind) and ``blobs/<sha256>`` (what runs
left behind, each content once). The manifest holds the sha256 of the records; a blob's name is its
own. Another store takes the bundle in without changing anything that it holds, and reads the raw
output again with its own version.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from orchestrator import __version__
from orchestrator.documents import dump_document, load_document, to_text
from orchestrator.errors import StoreCorruptError, StoreError, UsageError
from orchestrator.files import unwritable
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build, CampaignId, Case, CaseKey, Model, RunId
from orchestrator.records.device import HOST_SERIAL, DeviceFacts
from orchestrator.records.run import Attachment, RunRecord
from orchestrator.store.campaigns import without_paths
from orchestrator.store.own_folders import OwnFolders, own_folders

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

SCHEMA: Final = "benchfarm-bundle"
#: Raised when a reader of the older version would misread a newer bundle.
SCHEMA_VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_RECORDS: Final = "records.jsonl"
#: More than the manifest is.
_LARGEST_HEAD_BYTES: Final = 1 << 20
#: More than any one program prints, and than a year of a lab's records; a larger member was made to
#: fill memory.
_LARGEST_BLOB_BYTES: Final = 1 << 30
_LARGEST_RECORDS_BYTES: Final = 8 << 30
_LARGEST_LINE_BYTES: Final = 64 << 20
#: Values of one record: a campaign of 100,000 planned runs has half as many. Each takes some
#: hundred bytes of memory.
_MOST_VALUES: Final = 4_000_000
#: Output that a run left behind beyond this may be at most 200 times its size in the file: programs
#: print no such thing, and it would fill memory.
_LARGE_BYTES: Final = 64 << 20
_MOST_PACKED: Final = 200
#: Things that one run leaves behind.
_MOST_LEFT: Final = 1_000
#: Parts of records in which texts of this computer stand; of runs on this computer also what its
#: programs said.
_OF_CAMPAIGNS: Final = ("plan_text", "skipped")
_OF_RUNS: Final = ("reason", "verdict")
_OF_HOST_RUNS: Final = (*_OF_RUNS, "command", "report")
_KINDS: Final[Mapping[str, type]] = {
    "campaign": Campaign,
    "device": DeviceFacts,
    "model": Model,
    "build": Build,
    "run": RunRecord,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleContents:
    """How much of what a bundle holds."""

    campaigns: int
    runs: int
    virtual_runs: int
    blobs: int


def write_bundle(
    path: Path,
    store: Store,
    campaign_ids: Sequence[CampaignId],
    *,
    run_ids: Collection[RunId] = (),
    folders: Collection[Path] = (),
    at: datetime,
) -> BundleContents:
    """Write campaigns, or only some of their runs, to a file that isn't there yet.

    Folders of this computer are left out: those that the store knows, and ``folders``. Raises
    UsageError when the file is there or can't be written, HostStorageError where there is no space,
    StoreError for a campaign or run that the store doesn't hold.
    """
    campaigns = []
    for campaign_id in campaign_ids:
        campaign = store.campaign(campaign_id)
        if campaign is None:
            raise StoreError(f"campaign {campaign_id}: the store holds no such campaign")
        campaigns.append(campaign)
    own = own_folders(store, campaigns, folders)
    try:
        with (
            zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive,
            tempfile.TemporaryFile(dir=path.parent) as lines,
        ):
            contents, records_sha256 = _write_records(
                archive, store, campaigns, frozenset(run_ids), own, lines
            )
            manifest = {
                "schema": SCHEMA,
                "schema_version": SCHEMA_VERSION,
                "benchfarm_version": __version__,
                "written_at": at.isoformat(),
                "records_sha256": records_sha256,
                "has_virtual": contents.virtual_runs > 0,
                **dataclasses.asdict(contents),
            }
            text = f"{json.dumps(manifest, indent=2)}\n".encode("ascii")
            archive.writestr(_MANIFEST, text)
    except FileExistsError:
        raise UsageError(
            f"{path}: is there already", hint="name a new file; bundles are never overwritten"
        ) from None
    except BaseException as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise
    return contents


def _write_records(
    archive: zipfile.ZipFile,
    store: Store,
    campaigns: Sequence[Campaign],
    chosen: Collection[RunId],
    own: OwnFolders,
    lines: IO[bytes],
) -> tuple[BundleContents, str]:
    """Write what runs left behind, and the records; return how much there is, and the records'
    sha256. ``lines`` is a file for those of the runs, which come last.
    """
    blobs: set[str] = set()
    cases: dict[CaseKey, Case] = {}
    missing = set(chosen)
    runs = virtual_runs = 0
    for run in store.runs(
        campaign_ids=[campaign.campaign_id for campaign in campaigns], with_attachments=True
    ):
        if chosen and run.run_id not in chosen:
            continue
        missing.discard(run.run_id)
        cases[run.case.case_key] = run.case
        runs += 1
        virtual_runs += run.is_virtual
        # A phone's own paths stay as they are, whatever this computer's are called.
        is_host = run.case.serial == HOST_SERIAL
        kept = [
            replace(item, data=own.hide_bytes(item.data)) if is_host else item
            for item in run.attachments
        ]
        left = [[item.name, item.sha256] for item in kept]
        for item in kept:
            if item.sha256 not in blobs:
                blobs.add(item.sha256)
                archive.writestr(f"blobs/{item.sha256}", item.data)
        bare = replace(run, attachments=())
        line = _line("run", bare, own, _OF_HOST_RUNS if is_host else _OF_RUNS, left=left)
        lines.write(line.encode("ascii") + b"\n")
    if missing:
        raise StoreError(f"these campaigns have no run {', '.join(sorted(missing))}")
    contents = BundleContents(
        campaigns=len(campaigns), runs=runs, virtual_runs=virtual_runs, blobs=len(blobs)
    )
    digest = hashlib.sha256()
    with archive.open(_RECORDS, "w", force_zip64=True) as stream:
        referring = _referring(store, campaigns, cases.values(), own, is_cut=bool(chosen))
        lines.seek(0)
        for data in itertools.chain((text.encode("ascii") for text in referring), lines):
            digest.update(data)
            stream.write(data)
    return contents, digest.hexdigest()


def _referring(
    store: Store,
    campaigns: Sequence[Campaign],
    cases: Collection[Case],
    own: OwnFolders,
    *,
    is_cut: bool,
) -> Iterator[str]:
    """Yield the lines of campaigns, in pieces, and of everything that their cases refer to, without
    this computer's paths.

    ``is_cut``: of a part of the runs, without the plan of the others.
    """
    for campaign in campaigns:
        portable = replace(
            campaign, terms=replace(campaign.terms, files={}, plan_folder="", parity_inputs="")
        )
        portable = replace(portable, skipped=()) if is_cut else portable
        bare = _line("campaign", replace(portable, invocations=()), own, _OF_CAMPAIGNS)
        # The plan of a large campaign takes more room than anything else of a bundle.
        head, empty, rest = bare.partition('"invocations":[]')
        yield head + empty.removesuffix("]")
        for place, item in enumerate(() if is_cut else campaign.invocations):
            yield ("," if place else "") + _packed(json.loads(dump_document(item)))
        yield f"]{rest}\n"
    planned = (
        () if is_cut else [item.case for campaign in campaigns for item in campaign.invocations]
    )
    used = [*cases, *planned]
    devices, models, builds = store.devices(), store.models(), store.builds()
    for serial in dict.fromkeys(case.serial for case in used):
        yield _line("device", devices[serial]) + "\n"
    for model_sha256 in dict.fromkeys(case.model_sha256 for case in used):
        yield _line("model", replace(models[model_sha256], path=None)) + "\n"
    for build_sha256 in dict.fromkeys(case.build_sha256 for case in used):
        yield _line("build", without_paths(builds[build_sha256])) + "\n"


def _line(
    kind: str,
    record: object,
    own: OwnFolders | None = None,
    parts: Collection[str] = (),
    **beside: object,
) -> str:
    document = json.loads(dump_document(record))
    if own is not None:
        document |= {name: own.hide_all(document[name]) for name in parts if name in document}
    return _packed({"kind": kind, **beside, "record": document})


def _packed(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """What is read of the manifest."""

    schema: str
    schema_version: int
    records_sha256: str
    benchfarm_version: str = "of a newer version"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One line of the records."""

    kind: str
    record: Mapping[str, object]
    #: Of a run: names and sha256 of what it left behind.
    left: tuple[tuple[str, str], ...] = ()

    def read(self, where: str) -> Any:  # noqa: ANN401 - a record of its kind
        """Return the record; raises StoreError naming its place and field."""
        return load_document(_KINDS[self.kind], to_text(self.record), where=where)


class Bundle:
    """A bundle that is open for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Open a bundle and check that it is whole.

        Raises UsageError when there is no such file or it is no bundle, StoreCorruptError when it
        is damaged, StoreError when a newer benchfarm wrote it.
        """
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        except zipfile.BadZipFile:
            raise UsageError(
                f"{path}: is no bundle", hint="'benchfarm export' writes bundles"
            ) from None
        try:
            manifest = self._read_manifest(self._content(_MANIFEST, _LARGEST_HEAD_BYTES))
            digest = hashlib.sha256()
            with self._opened(_RECORDS, _LARGEST_RECORDS_BYTES) as stream:
                for part in iter(lambda: stream.read(1 << 20), b""):
                    digest.update(part)
            if digest.hexdigest() != manifest.records_sha256:
                raise StoreCorruptError(
                    f"{path}: is damaged: the records aren't those that were written"
                )
        except BaseException:
            self._archive.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def runs(self) -> Iterator[RunRecord]:
        """Yield the runs with everything that they left behind."""
        for where, line in self._lines():
            if line.kind == "run":
                self._check_sizes(where, line)
                left = (
                    Attachment(name=name, data=self._blob(sha256)) for name, sha256 in line.left
                )
                yield replace(line.read(where), attachments=tuple(left))

    def checked(self) -> Mapping[str, list[Any]]:
        """Check every record, before anything is stored, and return all but the runs, by kind.

        Raises StoreError naming the line and the field.
        """
        found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        for where, line in self._lines():
            if line.kind in _KINDS:
                record = line.read(where)
                self._check_sizes(where, line)
                if line.kind != "run":
                    found[line.kind].append(record)
        return found

    def _lines(self) -> Iterator[tuple[str, _Line]]:
        """Yield each line of the records with its place."""
        with self._opened(_RECORDS, _LARGEST_RECORDS_BYTES) as stream:
            for number, line in enumerate(
                iter(lambda: stream.readline(_LARGEST_LINE_BYTES), b""), start=1
            ):
                where = f"{self.path}: {_RECORDS}:{number}"
                if line.count(b",") > _MOST_VALUES:
                    raise StoreCorruptError(f"{where}: holds more values than any record")
                yield where, load_document(_Line, line.decode("utf-8", "replace"), where=where)

    def _check_sizes(self, where: str, line: _Line) -> None:
        """Raise StoreCorruptError when what a run left behind is there to fill memory."""
        found = [self._archive.NameToInfo.get(f"blobs/{sha256}") for _, sha256 in line.left]
        size_bytes = sum(info.file_size for info in found if info is not None)
        packed_bytes = sum(
            {info.filename: info.compress_size for info in found if info is not None}.values()
        )
        if len(found) > _MOST_LEFT or (
            size_bytes > _LARGE_BYTES and size_bytes > _MOST_PACKED * packed_bytes
        ):
            raise StoreCorruptError(
                f"{where}: left {len(found)} outputs of {size_bytes} bytes behind"
            )

    def _read_manifest(self, data: bytes) -> _Manifest:
        try:
            manifest = load_document(
                _Manifest, data.decode("utf-8", "replace"), where=f"{self.path}: is no bundle"
            )
        except StoreError as error:
            raise UsageError(str(error), hint="'benchfarm export' writes bundles") from error
        if manifest.schema != SCHEMA:
            hint = "'benchfarm export' writes bundles"
            raise UsageError(
                f"{self.path}: is no bundle: schema {manifest.schema[:80]!r}", hint=hint
            )
        if manifest.schema_version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: was written by benchfarm {manifest.benchfarm_version}",
                hint="upgrade benchfarm and try again",
            )
        return manifest

    def _blob(self, sha256: str) -> bytes:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise StoreCorruptError(f"{self.path}: {sha256[:80]!r} is no sha256")
        data = self._content(f"blobs/{sha256}", _LARGEST_BLOB_BYTES)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreCorruptError(f"{self.path}: is damaged: blobs/{sha256} has another content")
        return data

    def _content(self, name: str, largest_bytes: int) -> bytes:
        with self._opened(name, largest_bytes) as stream:
            return stream.read()

    @contextmanager
    def _opened(self, name: str, largest_bytes: int) -> Iterator[IO[bytes]]:
        """Open a member; zipfile reads no more of it than its stated size."""
        info = self._archive.NameToInfo.get(name)
        if info is None:
            what = UsageError if name == _MANIFEST else StoreCorruptError
            raise what(f"{self.path}: is no whole bundle: it has no {name}")
        if info.file_size > largest_bytes:
            raise StoreCorruptError(f"{self.path}: {name} is said to have {info.file_size} bytes")
        try:
            with self._archive.open(info) as member:
                yield member
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise StoreCorruptError(f"{self.path}: is damaged: {name}: {error}") from error
