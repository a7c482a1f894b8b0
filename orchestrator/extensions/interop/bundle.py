"""An evidence bundle: chosen campaigns with all outputs of their runs, in one file.

It is a ZIP archive of ``manifest.json``, ``records.jsonl`` (campaigns, devices, models, builds and
runs as the store's documents, one a line, each with its kind) and ``blobs/<sha256>`` (outputs of
runs, each content once). The manifest holds the sha256 of the records; a blob's name is its
own. Another store imports the bundle without changing anything that it holds, and reads the raw
output again with its own version.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeVar

from orchestrator import __version__
from orchestrator.documents import dump_document, load_document, to_text
from orchestrator.errors import StoreCorruptError, StoreError, UsageError
from orchestrator.files import sha256_of
from orchestrator.plugins import Redaction, Workspace, redaction_of
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Origin, Terms
from orchestrator.records.case import (
    Build,
    CampaignId,
    Case,
    Model,
    RunId,
    Serial,
    SkippedCase,
    is_campaign_id,
    is_name,
)
from orchestrator.records.device import HOST_SERIAL, DeviceFacts
from orchestrator.records.history import is_pruned
from orchestrator.records.run import Attachment, RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

SCHEMA: Final = "benchfarm-bundle"
#: Raised when a reader of the older version would misread a newer bundle.
SCHEMA_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
_RECORDS: Final = "records.jsonl"
_HINT: Final = "'benchfarm export' writes bundles"
#: More than the manifest is.
_LARGEST_MANIFEST_BYTES: Final = 1 << 20
#: More than any one program prints, and than a year of a lab's records; a larger member was made to
#: fill memory.
_LARGEST_BLOB_BYTES: Final = 1 << 30
_LARGEST_RECORDS_BYTES: Final = 8 << 30
_LARGEST_LINE_BYTES: Final = 64 << 20
#: Values of one record: a campaign of 100,000 planned runs has half as many. Each takes some
#: hundred bytes of memory.
_MAX_VALUES: Final = 4_000_000
#: Outputs of a run beyond this may be at most 200 times their size in the file: programs print no
#: such thing, and it would fill memory.
_LARGE_BYTES: Final = 64 << 20
_MAX_COMPRESSION: Final = 200
#: Outputs of one run.
_MAX_ATTACHMENTS: Final = 1_000
#: Runs stored in one transaction, as each transaction waits for the disk; fewer where their
#: outputs are larger.
_BATCH_RUNS: Final = 50
_BATCH_BYTES: Final = 16 << 20
#: Fields of records that may name folders of this computer; of runs on this computer also those
#: that hold its programs' output.
_CAMPAIGN_TEXTS: Final = ("plan_text", "skipped")
_RUN_TEXTS: Final = ("reason", "verdict")
_HOST_RUN_TEXTS: Final = (*_RUN_TEXTS, "command", "report")
_KINDS: Final[Mapping[str, type]] = {
    "campaign": Campaign,
    "device": DeviceFacts,
    "model": Model,
    "build": Build,
    "run": RunRecord,
}


@frozen
class BundleContents:
    """Counts of a bundle's records."""

    campaigns: int
    runs: int
    virtual_runs: int
    #: Runs whose raw output was deleted: their figures can't be read again.
    pruned_runs: int
    blobs: int


def write_bundle(
    workspace: Workspace, campaigns: Sequence[Campaign], run_ids: Collection[str], path: Path
) -> BundleContents:
    """Write campaigns, or only some of their runs, to a file that isn't there yet.

    Folders of this computer are left out. ``campaigns`` may come without their invocations. Raises
    OSError.
    """
    store = workspace.store
    full_campaigns = [
        campaign
        for listed in campaigns
        if (campaign := store.campaign(listed.campaign_id)) is not None
    ]
    redaction = redaction_of(full_campaigns, workspace.settings.folders)
    with (
        zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive,
        tempfile.NamedTemporaryFile(dir=path.parent) as lines,
    ):
        draft = _Draft(archive=archive, lines=lines.file, redaction=redaction)
        contents = _write_records(draft, store, full_campaigns, run_ids)
        lines.flush()
        archive.write(lines.name, _RECORDS)
        manifest = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "benchfarm_version": __version__,
            "written_at": workspace.clock.now().isoformat(),
            "records_sha256": sha256_of(Path(lines.name)),
            "has_virtual": contents.virtual_runs > 0,
            **dataclasses.asdict(contents),
        }
        archive.writestr(MANIFEST, f"{json.dumps(manifest, indent=2)}\n")
    return contents


@frozen
class _Draft:
    """A bundle that is written: its archive, and its records, which are added at the end."""

    archive: zipfile.ZipFile
    lines: IO[bytes]
    redaction: Redaction

    def write(
        self, kind: str, record: object, parts: Collection[str] = (), **fields: object
    ) -> None:
        """Write a record; ``parts`` are those of its fields that may hold this computer's folders."""
        document = json.loads(dump_document(record))
        document |= {
            name: self.redaction.hide_all(document[name]) for name in parts if name in document
        }
        line = json.dumps({"kind": kind, **fields, "record": document}, separators=(",", ":"))
        self.lines.write(line.encode("ascii") + b"\n")


def _write_records(
    draft: _Draft, store: Store, campaigns: Sequence[Campaign], chosen: Collection[str]
) -> BundleContents:
    """Write outputs of runs to the archive, and the records; return their counts."""
    blobs: set[str] = set()
    # Dictionaries are sets that keep their order.
    cases: dict[Case, None] = {}
    exported: dict[CampaignId, list[Invocation]] = {}
    runs = virtual_runs = pruned_runs = 0
    campaign_ids = [campaign.campaign_id for campaign in campaigns]
    for run in store.runs(campaign_ids=campaign_ids, with_attachments=True):
        if chosen and run.run_id not in chosen:
            continue
        cases[run.case] = None
        if chosen:
            invocation = Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation)
            exported.setdefault(run.campaign_id, []).append(invocation)
        runs += 1
        virtual_runs += run.is_virtual
        pruned_runs += is_pruned(run.attachments)
        # A phone's own paths stay as they are, whatever this computer's are called.
        is_host = run.case.serial == HOST_SERIAL
        outputs = []
        for item in run.attachments:
            attachment = (
                replace(item, data=draft.redaction.hide_bytes(item.data)) if is_host else item
            )
            outputs.append([attachment.name, attachment.sha256])
            if attachment.sha256 not in blobs:
                blobs.add(attachment.sha256)
                draft.archive.writestr(f"blobs/{attachment.sha256}", attachment.data)
        draft.write(
            "run",
            replace(run, attachments=()),
            _HOST_RUN_TEXTS if is_host else _RUN_TEXTS,
            left=outputs,
        )
    for campaign in campaigns:
        portable = replace(
            campaign,
            terms=replace(campaign.terms, files={}, builds={}, plan_folder="", parity_inputs=""),
        )
        if chosen:
            # Without the plan of the others.
            invocations = tuple(exported.get(campaign.campaign_id, ()))
            portable = replace(portable, invocations=invocations, skipped=())
        cases |= dict.fromkeys(item.case for item in portable.invocations)
        draft.write("campaign", portable, _CAMPAIGN_TEXTS)
    devices, models, builds = store.devices(), store.models(), store.builds()
    for serial in dict.fromkeys(case.serial for case in cases):
        draft.write("device", devices[serial])
    for model_sha256 in dict.fromkeys(case.model_sha256 for case in cases):
        draft.write("model", models[model_sha256])
    for build_sha256 in dict.fromkeys(case.build_sha256 for case in cases):
        draft.write("build", builds[build_sha256])
    return BundleContents(
        campaigns=len(campaigns),
        runs=runs,
        virtual_runs=virtual_runs,
        pruned_runs=pruned_runs,
        blobs=len(blobs),
    )


@frozen
class _Manifest:
    """The fields of the manifest that are read."""

    schema: str
    schema_version: int
    records_sha256: str
    benchfarm_version: str = "of a newer version"


@frozen
class _Line:
    """One line of the records."""

    kind: str
    record: Mapping[str, object]
    #: Of a run: names and sha256 of its outputs.
    left: tuple[tuple[str, str], ...] = ()

    def read(self, where: str) -> Any:  # noqa: ANN401 - a record of its kind
        """Return the record; raises StoreError naming its place and field."""
        return load_document(_KINDS[self.kind], to_text(self.record), where=where)


class Bundle:
    """A bundle that is open for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Open a bundle and check that it is whole.

        Raises UsageError when it is no bundle, StoreCorruptError when it is damaged, StoreError when
        a newer benchfarm wrote it.
        """
        self.path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile:
            raise UsageError(f"{path}: is no bundle", hint=_HINT) from None
        try:
            manifest = self._read_manifest()
            if self._sha256(_RECORDS, _LARGEST_RECORDS_BYTES) != manifest.records_sha256:
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
        """Yield the runs with their outputs."""
        for where, line in self._lines():
            if line.kind == "run":
                attachments = (
                    Attachment(
                        name=name, data=self._content(f"blobs/{sha256}", _LARGEST_BLOB_BYTES)
                    )
                    for name, sha256 in line.left
                )
                yield replace(line.read(where), attachments=tuple(attachments))

    def checked(self) -> Mapping[str, list[Any]]:
        """Check every record and output before anything is stored; return all records but the runs,
        by kind.

        Raises StoreError naming the line and the field.
        """
        records: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        campaign_ids: set[CampaignId] = set()
        checked_blobs: set[str] = set()
        for where, line in self._lines():
            if line.kind not in _KINDS:
                continue
            record = line.read(where)
            if line.kind == "campaign":
                _check_id(where, record.campaign_id, is_campaign_id)
            if line.kind != "run":
                records[line.kind].append(record)
                continue
            _check_id(where, record.run_id, is_name)
            campaign_ids.add(record.campaign_id)
            self._check_sizes(where, line)
            for _, sha256 in line.left:
                if sha256 not in checked_blobs:
                    self._check_blob(sha256)
                    checked_blobs.add(sha256)
        if unknown_ids := campaign_ids.difference(item.campaign_id for item in records["campaign"]):
            raise StoreCorruptError(
                f"{self.path}: runs are of campaign {min(unknown_ids)[:80]!r}, which the bundle doesn't hold"
            )
        return records

    def _lines(self) -> Iterator[tuple[str, _Line]]:
        """Yield each line of the records with its place."""
        with self._opened(_RECORDS, _LARGEST_RECORDS_BYTES) as stream:
            for number, line in enumerate(
                iter(lambda: stream.readline(_LARGEST_LINE_BYTES), b""), start=1
            ):
                where = f"{self.path}: {_RECORDS}:{number}"
                if line.count(b",") > _MAX_VALUES:
                    raise StoreCorruptError(f"{where}: holds more values than any record")
                yield where, load_document(_Line, line.decode("utf-8", "replace"), where=where)

    def _check_sizes(self, where: str, line: _Line) -> None:
        """Raise StoreCorruptError when outputs of a run are missing, or made to fill memory."""
        members = [self._member(f"blobs/{sha256}") for _, sha256 in line.left]
        size_bytes = sum(info.file_size for info in members)
        packed_bytes = sum({info.filename: info.compress_size for info in members}.values())
        if len(members) > _MAX_ATTACHMENTS or (
            size_bytes > _LARGE_BYTES and size_bytes > _MAX_COMPRESSION * packed_bytes
        ):
            raise StoreCorruptError(
                f"{where}: left {len(members)} outputs of {size_bytes} bytes behind"
            )

    def _read_manifest(self) -> _Manifest:
        data = self._content(MANIFEST, _LARGEST_MANIFEST_BYTES)
        try:
            manifest = load_document(
                _Manifest, data.decode("utf-8", "replace"), where=f"{self.path}: is no bundle"
            )
        except StoreError as error:
            raise UsageError(str(error), hint=_HINT) from error
        if manifest.schema != SCHEMA:
            raise UsageError(
                f"{self.path}: is no bundle: schema {manifest.schema[:80]!r}", hint=_HINT
            )
        if manifest.schema_version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: was written by benchfarm {manifest.benchfarm_version}",
                hint="upgrade benchfarm and try again",
            )
        return manifest

    def _sha256(self, name: str, largest_bytes: int) -> str:
        with self._opened(name, largest_bytes) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]

    def _check_blob(self, sha256: str) -> None:
        if self._sha256(f"blobs/{sha256}", _LARGEST_BLOB_BYTES) != sha256:
            raise StoreCorruptError(f"{self.path}: is damaged: blobs/{sha256} has another content")

    def _content(self, name: str, largest_bytes: int) -> bytes:
        with self._opened(name, largest_bytes) as stream:
            return stream.read()

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self._archive.NameToInfo.get(name)
        if info is None:
            raise StoreCorruptError(f"{self.path}: is no whole bundle: it has no {name[:80]!r}")
        return info

    @contextmanager
    def _opened(self, name: str, largest_bytes: int) -> Iterator[IO[bytes]]:
        """Open a member; zipfile reads no more of it than its stated size."""
        info = self._member(name)
        if info.file_size > largest_bytes:
            raise StoreCorruptError(f"{self.path}: {name} claims {info.file_size} bytes")
        try:
            with self._archive.open(info) as member:
                yield member
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise StoreCorruptError(f"{self.path}: is damaged: {name}: {error}") from error


_Value = TypeVar("_Value")
_Placed = TypeVar("_Placed", DeviceFacts, Case, SkippedCase)


@frozen
class BundleImport:
    """The counts of an import."""

    #: Campaigns that the store didn't hold before.
    new_campaigns: tuple[CampaignId, ...]
    #: Campaigns of the bundle, new or known.
    campaigns: tuple[CampaignId, ...]
    new_runs: int
    #: Those of them whose raw output was deleted before the export: their figures are the bundle's.
    pruned_runs: int
    #: Runs that the store held already.
    known_runs: int
    #: Runs left out because the store holds others in their place: run ids of the bundle.
    other_runs: tuple[RunId, ...] = ()
    origin: Origin


def import_bundle(
    bundle: Bundle, store: Store, *, read: Callable[[RunRecord, DeviceFacts, Campaign], RunRecord]
) -> BundleImport:
    """Store the records of a bundle that the store doesn't hold; those that it holds never change.

    ``read`` returns a run with figures and verdict read from its raw output. A file can name any
    device: each is stored as ``SERIAL@HOST``, with the name of the bundle's computer, and apart
    from this lab's own. An interrupted import is hidden until it is continued
    by importing again.

    Raises:
        StoreCorruptError: the bundle is damaged; nothing was stored.
        StoreError: another campaign with this id is stored, or a record can't be stored as it is.
    """
    origin = Origin(file=bundle.path.name, sha256=sha256_of(bundle.path))
    records = bundle.checked()
    campaigns: dict[CampaignId, Campaign] = {item.campaign_id: item for item in records["campaign"]}
    stored = {campaign_id: store.campaign(campaign_id) for campaign_id in campaigns}
    stored_ids = (
        {run.run_id for run in store.runs(campaign_ids=list(campaigns))} if campaigns else set()
    )
    new_campaigns = [
        campaign for campaign_id, campaign in campaigns.items() if not stored[campaign_id]
    ]
    for campaign_id, previous in stored.items():
        if previous is not None:
            _check_same(bundle, previous, campaigns[campaign_id])
    # The newest campaign is the last one in the store's order.
    for campaign in sorted(new_campaigns, key=lambda campaign: campaign.created_at.timestamp()):
        _create_campaign(store, records, campaign, origin)
    facts = store.devices()
    new_count, pruned_count, known_count, other_runs = 0, 0, 0, list[RunId]()
    for batch in _batches(bundle.runs()):
        fresh: list[RunRecord] = []
        for run in batch:
            campaign = campaigns[run.campaign_id]
            stored_campaign = stored[run.campaign_id]
            if run.run_id in stored_ids:
                known_count += 1
            elif stored_campaign is not None and stored_campaign.terms.origin is None:
                # A file adds no runs to this lab's own campaigns.
                other_runs.append(run.run_id)
            else:
                moved = replace(run, case=_with_local_serial(run.case, campaign))
                serial = moved.case.serial
                fresh.append(read(moved, facts[serial], campaign) if serial in facts else moved)
        for run, is_new in zip(fresh, store.append_runs(fresh), strict=True):
            new_count += is_new
            pruned_count += is_new and is_pruned(run.attachments)
            other_runs += [] if is_new else [run.run_id]
    for campaign_id, campaign in campaigns.items():
        previous = stored[campaign_id]
        if previous is None or _is_partial(previous):
            store.hide_campaign(campaign_id, is_hidden=False)
            store.set_status(campaign_id, _final_status(campaign), campaign.finished_at)
    return BundleImport(
        new_campaigns=tuple(campaign.campaign_id for campaign in new_campaigns),
        campaigns=tuple(campaigns),
        new_runs=new_count,
        pruned_runs=pruned_count,
        known_runs=known_count,
        other_runs=tuple(other_runs),
        origin=origin,
    )


def _batches(runs: Iterator[RunRecord]) -> Iterator[list[RunRecord]]:
    """Yield runs in batches, each stored in one transaction."""
    batch: list[RunRecord] = []
    size_bytes = 0
    for run in runs:
        batch.append(run)
        size_bytes += sum(len(item.data) for item in run.attachments)
        if len(batch) == _BATCH_RUNS or size_bytes > _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _check_id(where: str, name: str, is_id: Callable[[str], bool]) -> None:
    """Raise StoreCorruptError for an id that isn't safe in a file name."""
    if not is_id(name):
        raise StoreCorruptError(f"{where}: {name[:80]!r} is no id of a campaign or run")


def _with_local_serial(record: _Placed, campaign: Campaign) -> _Placed:
    """Return a device, case or skip under the serial number that it has in this store."""
    return replace(record, serial=Serial(f"{record.serial}@{campaign.host}"))


def _local_terms(campaign: Campaign, origin: Origin) -> Terms:
    """Return a campaign's terms, in which devices and cases have the keys of this store."""
    terms, pairing = campaign.terms, campaign.terms.pairing
    cases = {item.case: _with_local_serial(item.case, campaign) for item in campaign.invocations}
    keys = {case.case_key: here.case_key for case, here in cases.items()}
    outputs = {case.outputs_key: here.outputs_key for case, here in cases.items()}

    def by_serial(values: Mapping[str, _Value]) -> dict[str, _Value]:
        return {f"{serial}@{campaign.host}": value for serial, value in values.items()}

    return replace(
        terms,
        origin=origin,
        pairing=pairing
        and replace(
            pairing,
            sides=tuple(
                (keys.get(first, first), keys.get(second, second))
                for first, second in pairing.sides
            ),
        ),
        output_checks={
            outputs[key]: check for key, check in terms.output_checks.items() if key in outputs
        },
        fingerprints=by_serial(terms.fingerprints),
        autocorrelations=by_serial(terms.autocorrelations),
    )


def _check_same(bundle: Bundle, stored: Campaign, campaign: Campaign) -> None:
    """Raise StoreError where the stored campaign of a bundle's id is another one."""
    plans = {stored.plan_text, redaction_of([stored], ()).hide(stored.plan_text)}
    if (stored.created_at, stored.host) != (campaign.created_at, campaign.host) or (
        campaign.plan_text not in plans
    ):
        raise StoreError(
            f"{bundle.path}: campaign {stored.campaign_id} is stored here already and is another one",
            hint="import the bundle into a store of its own (--store FILE)",
        )


def _final_status(campaign: Campaign) -> CampaignStatus:
    """Return the status of an imported campaign, which can't be resumed here."""
    status = campaign.status
    return status if status is CampaignStatus.CLOSED else CampaignStatus.FINISHED


def _is_partial(stored: Campaign) -> bool:
    """Whether a campaign's import was interrupted."""
    return stored.terms.origin is not None and not stored.status.is_over


def _create_campaign(
    store: Store, records: Mapping[str, list[Any]], campaign: Campaign, origin: Origin
) -> None:
    """Create a campaign that the store doesn't hold, hidden until all its runs are stored.

    Stored devices, models and builds stay as they are.
    """
    known_devices, known_models, known_builds = store.devices(), store.models(), store.builds()
    devices = []
    for facts in records["device"]:
        moved = replace(_with_local_serial(facts, campaign), is_imported=True)
        stored = known_devices.get(moved.serial, moved)
        # The store refuses a virtual phone under a real one's serial number, and the other way
        # round.
        devices.append(stored if stored.is_virtual == moved.is_virtual else moved)
    store.begin_campaign(
        replace(
            campaign,
            status=CampaignStatus.INTERRUPTED,
            terms=_local_terms(campaign, origin),
            invocations=tuple(
                replace(item, case=_with_local_serial(item.case, campaign))
                for item in campaign.invocations
            ),
            skipped=tuple(_with_local_serial(item, campaign) for item in campaign.skipped),
        ),
        devices=devices,
        models=[known_models.get(item.sha256, item) for item in records["model"]],
        builds=[known_builds.get(item.sha256, item) for item in records["build"]],
    )
    store.hide_campaign(campaign.campaign_id)
