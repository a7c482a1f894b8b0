"""The store in an SQL database: the Store port over SQLAlchemy Core."""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    ScalarSelect,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Annotation, Confirmation, DeviceSighting, Points
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Build, Case, Model, Pass
from orchestrator.store import admission, history, rows
from orchestrator.store.blobs import pack
from orchestrator.store.bodies import Packer
from orchestrator.store.database import Database
from orchestrator.store.packing import Pattern
from orchestrator.store.registry import (
    insert_case,
    insert_numbered,
    insert_plan,
    keep_device,
    keep_named,
    pages,
    read_cases,
)
from orchestrator.store.tables import (
    ATTACHMENTS,
    BLOBS,
    BUILDS,
    CAMPAIGNS,
    CASES,
    DEVICES,
    FINDINGS,
    INVOCATIONS,
    MODELS,
    RUNS,
    SKIPS,
    SUMMARY_COLUMNS,
)

#: All that decides whether a run may be stored, in one round trip.
_STANDING = select(
    select(CAMPAIGNS.c.campaign_no)
    .where(CAMPAIGNS.c.campaign_id == bindparam("campaign_id"))
    .scalar_subquery()
    .label("campaign_no"),
    select(CASES.c.case_no).where(CASES.c.case_key == bindparam("case_key")).scalar_subquery().label("case_no"),
    select(DEVICES.c.device_no).where(DEVICES.c.serial == bindparam("serial")).scalar_subquery().label("device_no"),
    select(DEVICES.c.is_virtual).where(DEVICES.c.serial == bindparam("serial")).scalar_subquery().label("is_virtual"),
    select(MODELS.c.sha256).where(MODELS.c.sha256 == bindparam("model_sha256")).scalar_subquery().label("model"),
    select(BUILDS.c.sha256).where(BUILDS.c.sha256 == bindparam("build_sha256")).scalar_subquery().label("build"),
    select(RUNS.c.run_no)
    .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    .join(CASES, RUNS.c.case_no == CASES.c.case_no)
    .where(
        CAMPAIGNS.c.campaign_id == bindparam("campaign_id"),
        CASES.c.case_key == bindparam("case_key"),
        RUNS.c.run_pass == bindparam("run_pass"),
        RUNS.c.invocation == bindparam("invocation"),
    )
    .scalar_subquery()
    .label("stored_run_no"),
    select(RUNS.c.outcome)
    .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    .join(CASES, RUNS.c.case_no == CASES.c.case_no)
    .where(
        CAMPAIGNS.c.campaign_id == bindparam("campaign_id"),
        CASES.c.case_key == bindparam("case_key"),
        RUNS.c.run_pass == bindparam("run_pass"),
        RUNS.c.invocation == bindparam("invocation"),
    )
    .scalar_subquery()
    .label("stored_outcome"),
    select(RUNS.c.run_no).where(RUNS.c.run_id == bindparam("run_id")).scalar_subquery().label("run_of_this_id"),
)

#: A run's documents and columns; the summary columns can be derived from them, and are for questions in SQL.
_RUN_ROWS = select(
    *(column for column in RUNS.c if column.name not in {summary.name for summary in SUMMARY_COLUMNS}),
    CAMPAIGNS.c.campaign_id,
).join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)


class SqlStore:
    """The Store port over SQLite or PostgreSQL; open one with opening.open_store.

    Each method is one transaction. It may be used from several threads, and the same database from several processes.
    Every method raises StoreError, one of its kinds, or HostStorageError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Patterns that the writer holds; only ever touched under the write lock.
        self._held: OrderedDict[int, Pattern] = OrderedDict()

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""
        given = list(devices)
        model_rows = [rows.model_to_row(model) for model in models]
        build_rows = [rows.build_to_row(build) for build in builds]
        with self._database.writing() as connection:
            if _campaign_no(connection, campaign.campaign_id) is not None:
                raise admission.campaign_exists(campaign.campaign_id)
            known = connection.execute(select(DEVICES.c.serial, DEVICES.c.is_virtual))
            admission.check_campaign(
                campaign,
                devices=given,
                known_devices={Serial(serial): is_virtual for serial, is_virtual in known},
                model_sha256s={*connection.scalars(select(MODELS.c.sha256)), *(row["sha256"] for row in model_rows)},
                build_sha256s={*connection.scalars(select(BUILDS.c.sha256)), *(row["sha256"] for row in build_rows)},
            )
            for facts in given:
                keep_device(connection, facts, seen_at=campaign.created_at)
            for row in model_rows:
                keep_named(connection, MODELS, row)
            for row in build_rows:
                keep_named(connection, BUILDS, row)
            campaign_no = insert_numbered(connection, CAMPAIGNS, rows.campaign_to_row(campaign))
            insert_plan(connection, campaign_no, campaign)

    def set_status(self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None) -> None:
        """Record how far a campaign is."""
        admission.check_moment(finished_at, f"campaign {campaign_id}: finished_at")
        with self._database.writing() as connection:
            changed = connection.execute(
                update(CAMPAIGNS)
                .where(CAMPAIGNS.c.campaign_id == campaign_id)
                .values(status=status.value, finished_at=finished_at)
            )
            if changed.rowcount == 0:
                raise admission.no_campaign(campaign_id)

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this (campaign, case, pass, invocation) is there already.

        One that was unfit is replaced. The run, its findings and its raw output are one transaction, on the disk when
        this returns.
        """
        row = rows.run_to_row(run)
        with self._writing_bodies() as (connection, packer):
            standing = connection.execute(_STANDING, _questions(run)).mappings().one()
            if standing["campaign_no"] is None:
                raise admission.no_campaign(run.campaign_id)
            waiting = standing["stored_outcome"] == Outcome.UNFIT.value
            if standing["stored_run_no"] is not None and not waiting:
                return False
            if standing["run_of_this_id"] is not None:
                raise admission.run_id_taken(run.run_id)
            admission.check_run(
                run,
                device_is_virtual=standing["is_virtual"],
                model_known=standing["model"] is not None,
                build_known=standing["build"] is not None,
            )
            row["campaign_no"] = standing["campaign_no"]
            row["case_no"] = standing["case_no"] or insert_case(
                connection, run.case, device_no=standing["device_no"], is_virtual=standing["is_virtual"]
            )
            row["pattern_no"], row["body"], large = packer.pack(
                series_key=run.case.series_key,
                run_pass=run.run_pass.value,
                outcome=run.outcome.value,
                run_id=run.run_id,
                documents=rows.documents_of(run),
                attachments=[(item.name, item.data) for item in run.attachments],
            )
            if waiting:
                _delete_run(connection, standing["stored_run_no"])
            run_no = insert_numbered(connection, RUNS, row)
            _insert_findings(connection, run_no, run.verdict)
            _insert_attachments(connection, run_no, large)
            return True

    @contextmanager
    def _writing_bodies(self) -> Iterator[tuple[Connection, Packer]]:
        try:
            with self._database.writing() as connection:
                yield connection, Packer(connection, self._held)
        except BaseException:
            # A pattern that was made in a transaction that failed isn't there, and its number will be another's.
            self._held = OrderedDict()
            raise

    def replace_reading(
        self,
        run_id: RunId,
        *,
        report: ToolReport,
        outcome: Outcome,
        reason_code: str,
        reason: str,
        verdict: QualityVerdict,
    ) -> None:
        """Replace what was read from a run's raw output and what follows from it; the raw output never changes."""
        with self._writing_bodies() as (connection, packer):
            row = connection.execute(_RUN_ROWS.where(RUNS.c.run_id == run_id)).mappings().one_or_none()
            if row is None:
                raise admission.no_run(run_id)
            run_no = row["run_no"]
            case = read_cases(connection, CASES.c.case_no == row["case_no"])[row["case_no"]]
            changed = dataclasses.replace(
                rows.run_from_row(row, _documents(packer, row), case=case, attachments=()),
                report=report,
                outcome=outcome,
                reason_code=reason_code,
                reason=reason,
                verdict=verdict,
            )
            body = packer.repack(
                row["body"],
                row["pattern_no"],
                run_id=run_id,
                documents=rows.documents_of(changed),
                where=f"run {run_id}",
            )
            values = {**rows.reading_to_row(changed), "body": body}
            connection.execute(update(RUNS).where(RUNS.c.run_no == run_no).values(values))
            connection.execute(delete(FINDINGS).where(FINDINGS.c.run_no == run_no))
            _insert_findings(connection, run_no, verdict)

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        with self._database.reading() as connection:
            row = connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.campaign_id == campaign_id)).mappings().first()
            if row is None:
                return None
            of_campaign = INVOCATIONS.c.campaign_no == row["campaign_no"]
            cases = read_cases(connection, CASES.c.case_no.in_(select(INVOCATIONS.c.case_no).where(of_campaign)))
            planned = connection.execute(select(INVOCATIONS).where(of_campaign).order_by(INVOCATIONS.c.position))
            skips = connection.execute(
                select(SKIPS).where(SKIPS.c.campaign_no == row["campaign_no"]).order_by(SKIPS.c.position)
            )
            return rows.campaign_from_row(
                row,
                invocations=tuple(
                    rows.invocation_from_row(item, cases[item["case_no"]]) for item in planned.mappings()
                ),
                skipped=tuple(rows.skip_from_row(item) for item in skips.mappings()),
            )

    def campaigns(self) -> Sequence[Campaign]:
        """Return all campaigns, newest first, without their invocations and skips."""
        newest_first = select(CAMPAIGNS).order_by(CAMPAIGNS.c.created_at.desc(), CAMPAIGNS.c.campaign_no.desc())
        with self._database.reading() as connection:
            return [rows.campaign_from_row(row) for row in connection.execute(newest_first).mappings()]

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored; their attachments are empty unless asked for.

        Which runs there are is settled when the first one is asked for; they are read page by page, so that no
        transaction stays open between two of them and the store may be written meanwhile.
        """
        cases: dict[int, Case] = {}
        held: OrderedDict[int, Pattern] = OrderedDict()
        for page in pages(self._run_numbers(campaign_ids, case_keys)):
            with self._database.reading() as connection:
                packer = Packer(connection, held)
                found = _RUN_ROWS.where(RUNS.c.run_no.in_(page)).order_by(RUNS.c.run_no)
                run_rows = connection.execute(found).mappings().all()
                unread = {row["case_no"] for row in run_rows} - cases.keys()
                if unread:
                    cases.update(read_cases(connection, CASES.c.case_no.in_(unread)))
                packer.fetch(row["pattern_no"] for row in run_rows)
                documents = [_documents(packer, row) for row in run_rows]
            for row, its_documents in zip(run_rows, documents, strict=True):
                attachments = self.attachments(RunId(row["run_id"])) if with_attachments else ()
                yield rows.run_from_row(row, its_documents, case=cases[row["case_no"]], attachments=attachments)

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""
        with self._database.reading() as connection:
            query = select(RUNS.c.run_no, RUNS.c.pattern_no, RUNS.c.body).where(RUNS.c.run_id == run_id)
            row = connection.execute(query).one_or_none()
            if row is None:
                return ()
            found = Packer(connection).attachments(row.body, row.pattern_no, run_id=run_id, where=f"run {run_id}")
            large = _large_attachments(connection, row.run_no) if any(data is None for _, data in found) else {}
        return tuple(
            Attachment(name=name, data=data) if data is not None else _large(large, place, name, run_id)
            for place, (name, data) in enumerate(found)
        )

    def done(self, campaign_id: CampaignId) -> set[tuple[CaseKey, Pass, int]]:
        """Return which invocations of a campaign are stored, without those that were unfit."""
        stored = (
            select(CASES.c.case_key, RUNS.c.run_pass, RUNS.c.invocation)
            .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
            .join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .where(CAMPAIGNS.c.campaign_id == campaign_id, RUNS.c.outcome != Outcome.UNFIT.value)
        )
        with self._database.reading() as connection:
            return {rows.invocation_key_from_row(row) for row in connection.execute(stored).mappings()}

    def progress(self) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored, and how many are planned."""

        def counted(table: Table, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:
            of_campaign = table.c.campaign_no == CAMPAIGNS.c.campaign_no
            return select(func.count()).select_from(table).where(of_campaign, *conditions).scalar_subquery()

        with self._database.reading() as connection:
            stored = counted(RUNS, RUNS.c.outcome != Outcome.UNFIT.value)
            found = connection.execute(select(CAMPAIGNS.c.campaign_id, stored, counted(INVOCATIONS)))
            return {CampaignId(campaign_id): (stored, planned) for campaign_id, stored, planned in found}

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""
        with self._database.reading() as connection:
            found = connection.execute(select(DEVICES).order_by(DEVICES.c.device_no)).mappings()
            return {Serial(row["serial"]): rows.device_from_row(row) for row in found}

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""
        with self._database.reading() as connection:
            return {row["sha256"]: rows.model_from_row(row) for row in connection.execute(select(MODELS)).mappings()}

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""
        with self._database.reading() as connection:
            return {row["sha256"]: rows.build_from_row(row) for row in connection.execute(select(BUILDS)).mappings()}

    def points(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Points:
        """Return the figures of timing invocations of campaigns begun since then, of some series or of all."""
        with self._database.reading() as connection:
            return history.read_points(connection, since=since, series_keys=series_keys)

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""
        with self._database.reading() as connection:
            return history.read_series(connection, series_keys)

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return what each device was and from when on, oldest first."""
        with self._database.reading() as connection:
            return history.sightings_of(history.read_sightings(connection))

    def run_ids(self, prefix: str, *, limit: int = 4) -> Sequence[RunId]:
        """Return the ids of runs that begin so, in their order, no more than ``limit``."""
        with self._database.reading() as connection:
            return history.read_run_ids(connection, prefix, limit)

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""
        with self._database.reading() as connection:
            row = connection.execute(_RUN_ROWS.where(RUNS.c.run_id == run_id)).mappings().one_or_none()
            if row is None:
                return None
            case = read_cases(connection, CASES.c.case_no == row["case_no"])[row["case_no"]]
            return rows.run_from_row(row, _documents(Packer(connection), row), case=case, attachments=())

    def annotations(self) -> Sequence[Annotation]:
        """Return the changes that somebody expects, oldest night first."""
        with self._database.reading() as connection:
            return history.read_annotations(connection)

    def annotate(self, annotation: Annotation) -> None:
        """Keep that a change is expected."""
        with self._database.writing() as connection:
            history.insert_annotation(connection, annotation)

    def delete_annotation(self, annotation_id: str) -> bool:
        """Forget an annotation; False when there is none."""
        with self._database.writing() as connection:
            return history.delete_annotation(connection, annotation_id)

    def confirmations(self) -> Sequence[Confirmation]:
        """Return what became of changes that were run again."""
        with self._database.reading() as connection:
            return history.read_confirmations(connection)

    def confirm(self, confirmation: Confirmation) -> None:
        """Keep what became of a change, in the place of what was kept of it before."""
        with self._database.writing() as connection:
            history.put_confirmation(connection, confirmation)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _run_numbers(self, campaign_ids: Sequence[CampaignId], case_keys: Sequence[CaseKey]) -> array[int]:
        """Return the numbers of the runs that fit, in their order: 8 bytes a run."""
        numbers = array("q")
        with self._database.reading() as connection:
            for in_campaigns in _filters(CAMPAIGNS.c.campaign_id, campaign_ids):
                for of_cases in _filters(CASES.c.case_key, case_keys):
                    query = select(RUNS.c.run_no)
                    if in_campaigns is not None:
                        query = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no).where(in_campaigns)
                    if of_cases is not None:
                        query = query.join(CASES, RUNS.c.case_no == CASES.c.case_no).where(of_cases)
                    numbers.extend(connection.scalars(query))
        return array("q", sorted(numbers))


def _documents(packer: Packer, row: RowMapping) -> dict[str, str | None]:
    run_id = row["run_id"]
    return packer.documents(row["body"], row["pattern_no"], run_id=run_id, where=f"run {run_id}")


def _large_attachments(connection: Connection, run_no: int) -> dict[int, Attachment]:
    """Return a run's attachments that lie in the blobs, by their position."""
    query = (
        select(
            ATTACHMENTS.c.position,
            ATTACHMENTS.c.name,
            ATTACHMENTS.c.blob_sha256.label("sha256"),
            BLOBS.c.size_bytes,
            BLOBS.c.packing,
            BLOBS.c.data,
        )
        # An outer join: output that is missing has to be noticed.
        .join_from(ATTACHMENTS, BLOBS, ATTACHMENTS.c.blob_sha256 == BLOBS.c.sha256, isouter=True)
        .where(ATTACHMENTS.c.run_no == run_no)
    )
    return {row["position"]: rows.attachment_from_row(row) for row in connection.execute(query).mappings()}


def _large(found: Mapping[int, Attachment], place: int, name: str, run_id: RunId) -> Attachment:
    if place not in found:
        raise StoreCorruptError(f"run {run_id}: its attachment {name!r} is missing")
    return found[place]


def _questions(run: RunRecord) -> rows.Row:
    """Return the parameters of the statement that asks whether a run may be stored."""
    return {
        "campaign_id": run.campaign_id,
        "case_key": run.case.case_key,
        "serial": run.case.serial,
        "model_sha256": run.case.model_sha256,
        "build_sha256": run.case.build_sha256,
        "run_pass": run.run_pass.value,
        "invocation": run.invocation,
        "run_id": run.run_id,
    }


def _campaign_no(connection: Connection, campaign_id: CampaignId) -> int | None:
    return connection.scalar(select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign_id))


def _insert_findings(connection: Connection, run_no: int, verdict: QualityVerdict) -> None:
    if verdict.findings:
        connection.execute(
            insert(FINDINGS),
            [
                {"run_no": run_no, "position": position, "code": finding.code, "severity": finding.severity.value}
                for position, finding in enumerate(verdict.findings)
            ],
        )


def _delete_run(connection: Connection, run_no: int) -> None:
    """Delete a run that was unfit: it has no raw output."""
    for table in (FINDINGS, ATTACHMENTS, RUNS):
        connection.execute(delete(table).where(table.c.run_no == run_no))


def _insert_attachments(connection: Connection, run_no: int, large: Sequence[tuple[int, str, bytes]]) -> None:
    """Insert a run's large output; content that is stored already isn't stored again."""
    if not large:
        return
    placed = [(position, name, pack(data, hashlib.sha256(data).hexdigest())) for position, name, data in large]
    blobs = {blob.sha256: blob for _, _, blob in placed}
    stored = set(connection.scalars(select(BLOBS.c.sha256).where(BLOBS.c.sha256.in_(blobs))))
    new = [dataclasses.asdict(blob) for sha256, blob in blobs.items() if sha256 not in stored]
    if new:
        connection.execute(insert(BLOBS), new)
    connection.execute(
        insert(ATTACHMENTS),
        [
            {"run_no": run_no, "position": position, "name": name, "blob_sha256": blob.sha256}
            for position, name, blob in placed
        ],
    )


def _filters(column: ColumnElement[str], values: Sequence[str]) -> Iterator[ColumnElement[bool] | None]:
    """Yield conditions that together, without overlap, let through what is wanted; None when all is."""
    if not values:
        yield None
    for page in pages(list(dict.fromkeys(values))):
        yield column.in_(page)
