"""The store in an SQL database: the Store port over SQLAlchemy Core."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)

from orchestrator.errors import StoreError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import (
    Activity,
    Annotation,
    Confirmation,
    DeviceSighting,
    Points,
    Pruned,
    RunMark,
    Yield,
)
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey
from orchestrator.records.night import RecentRun
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Build, Case, Model, Pass, SkippedCase
from orchestrator.store import admission, history, retention, rows
from orchestrator.store.appending import (
    ReadyRun,
    append_run,
    read_attachments,
    read_outputs,
    read_runs,
    read_whole_runs,
    ready_run,
    replace_reading,
)
from orchestrator.store.bodies import HeldPatterns, Packer
from orchestrator.store.database import Database
from orchestrator.store.failures import locked, unanswered
from orchestrator.store.history import read_activity, read_readings, read_reason_counts, read_skips, read_yields
from orchestrator.store.joint_work import JointWork
from orchestrator.store.points import read_marks, read_points, read_recent_runs, read_run_numbers, read_series
from orchestrator.store.registry import (
    insert_numbered,
    insert_plan,
    keep_device,
    keep_named,
    pages,
    read_cases,
    read_plan,
)
from orchestrator.store.sheets import MADE_UP, keep_sheets, without_sheet
from orchestrator.store.tables import BUILDS, CAMPAIGNS, CASES, DEVICES, HIDDEN, MODELS, PLANS, RUNS, SKIPS
from orchestrator.store.unreadable import readable

#: Runs that are read in one transaction: of each some hundred kilobytes are at hand, with its pattern and attachments.
_RUN_PAGE: Final = 100


class _TrialOverError(Exception):
    """Undoes a trial's transaction."""


class SqlStore:
    """The Store port over SQLite or PostgreSQL; open one with opening.open_store.

    Each method is one transaction. It may be used from several threads, and the same database from several processes.
    Every method raises StoreError, one of its kinds, or HostStorageError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = HeldPatterns()
        self._appending = JointWork(self._append_waiting, database.patience, self._late)

    @property
    def name(self) -> str:
        """The file, or the database's address without its password."""
        return self._database.name

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""
        with self._database.writing() as connection:
            if _campaign_no(connection, campaign.campaign_id) is not None:
                raise admission.campaign_exists(campaign.campaign_id)
            _keep_referred(connection, campaign, devices, models, builds)
            campaign_no = insert_numbered(connection, CAMPAIGNS, rows.campaign_to_row(campaign))
            insert_plan(connection, campaign_no, campaign)
            keep_sheets(connection, without_sheet(connection, MADE_UP))

    def amend_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Replace the terms, the invocations and the skips of a stored campaign, in one transaction."""
        with self._database.writing() as connection:
            campaign_no = _campaign_no(connection, campaign.campaign_id)
            if campaign_no is None:
                raise admission.no_campaign(campaign.campaign_id)
            _keep_referred(connection, campaign, devices, models, builds)
            terms = rows.campaign_to_row(campaign)["terms"]
            connection.execute(update(CAMPAIGNS).where(CAMPAIGNS.c.campaign_no == campaign_no).values(terms=terms))
            for table in (PLANS, SKIPS):
                connection.execute(delete(table).where(table.c.campaign_no == campaign_no))
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
            retention.forget_pruned(connection, campaign_id)
            if status is not CampaignStatus.RUNNING:
                keep_sheets(connection, without_sheet(connection, MADE_UP))

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs, what they left behind, and the cases and series that no other has."""
        with self._database.writing(is_long=True) as connection:
            campaign_no = _campaign_no(connection, campaign_id)
            if campaign_no is None:
                raise admission.no_campaign(campaign_id)
            retention.delete_campaign(connection, campaign_no)

    def hide_campaign(self, campaign_id: CampaignId, *, is_hidden: bool = True) -> None:
        """Leave a campaign out of what is listed, compared and searched for changes, or take it in again."""
        with self._database.writing() as connection:
            campaign_no = _campaign_no(connection, campaign_id)
            if campaign_no is None:
                raise admission.no_campaign(campaign_id)
            connection.execute(delete(HIDDEN).where(HIDDEN.c.campaign_no == campaign_no))
            if is_hidden:
                connection.execute(insert(HIDDEN), {"campaign_no": campaign_no})

    def hidden_campaigns(self) -> set[CampaignId]:
        """Return the campaigns that are hidden."""
        with self._database.reading() as connection:
            query = select(CAMPAIGNS.c.campaign_id).join(HIDDEN, HIDDEN.c.campaign_no == CAMPAIGNS.c.campaign_no)
            return {CampaignId(name) for name in connection.scalars(query)}

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this (campaign, case, pass, invocation) is there already.

        One that was unfit is replaced. The run, its findings and its raw output are one transaction, on the disk when
        this returns.
        """
        return self._appending.do(ready_run(run))

    def _append_waiting(self, take: Callable[[], Sequence[ReadyRun]], since_s: float) -> list[bool | Exception]:
        """Append the runs that wait by then, all in one transaction; each by itself when one of them can't be kept."""
        runs: Sequence[ReadyRun] = ()
        try:
            with self._writing_bodies(since_s=since_s) as (connection, packer):
                runs = take()
                return [append_run(connection, packer, run) for run in runs]
        except Exception as error:
            if not runs:
                # The store couldn't be locked: the others try themselves, for as long as they have patience.
                raise
            if len(runs) == 1:
                return [error]
            failure = error
        return [self._append_alone(run, since_s, failure) for run in runs]

    def _append_alone(self, run: ReadyRun, since_s: float, failure: Exception) -> bool | Exception:
        """Append one run of those that failed together; that failure is its own when the store can't be locked now."""
        has_lock = False
        try:
            with self._writing_bodies(since_s=since_s) as (connection, packer):
                has_lock = True
                return append_run(connection, packer, run)
        except Exception as error:  # noqa: BLE001 - raised in the thread whose run it is
            return error if has_lock else failure

    def _late(self, is_begun: bool) -> StoreError:
        return unanswered(self._database.name) if is_begun else locked(self._database.name)

    @contextmanager
    def _writing_bodies(self, *, since_s: float | None = None) -> Iterator[tuple[Connection, Packer]]:
        with self._database.writing(since_s=since_s) as connection:
            packer = Packer(connection, self._held)
            yield connection, packer
        # Not when it failed: a pattern that was made then isn't there, and its number will be another's.
        packer.settle()

    @contextmanager
    def _reading_bodies(self) -> Iterator[tuple[Connection, Packer]]:
        with self._database.reading() as connection:
            packer = Packer(connection, self._held)
            yield connection, packer
        packer.settle()

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
            replace_reading(
                connection,
                packer,
                run_id,
                report=report,
                outcome=outcome,
                reason_code=reason_code,
                reason=reason,
                verdict=verdict,
            )

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        with self._database.reading() as connection:
            row = connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.campaign_id == campaign_id)).mappings().first()
            if row is None:
                return None
            planned = read_plan(connection, row["campaign_no"])
            cases = read_cases(connection, (case_no for case_no, _, _ in planned))
            if any(case_no not in cases for case_no, _, _ in planned):
                raise StoreError(
                    f"campaign {campaign_id}: a case of its plan can't be read",
                    hint="'benchfarm results remove' deletes a campaign that is of no use any more",
                )
            skips = connection.execute(
                select(SKIPS).where(SKIPS.c.campaign_no == row["campaign_no"]).order_by(SKIPS.c.position)
            )
            return rows.campaign_from_row(
                row,
                invocations=tuple(
                    rows.invocation_from_row(cases[case_no], run_pass, number) for case_no, run_pass, number in planned
                ),
                skipped=tuple(rows.skip_from_row(item) for item in skips.mappings()),
            )

    def campaigns(
        self, *, only_open: bool = False, with_hidden: bool = False, limit: int | None = None
    ) -> Sequence[Campaign]:
        """Return the newest campaigns, newest first, without their invocations and skips."""
        newest_first = select(CAMPAIGNS).order_by(CAMPAIGNS.c.created_at.desc(), CAMPAIGNS.c.campaign_no.desc())
        if not with_hidden:
            newest_first = newest_first.where(~exists().where(HIDDEN.c.campaign_no == CAMPAIGNS.c.campaign_no))
        wanted = newest_first.where(*_of_kind(only_open=only_open)).limit(limit)
        with self._database.reading() as connection:
            found = connection.execute(wanted).mappings()
            return [campaign for _, campaign in readable(found, rows.campaign_from_row)]

    def campaign_count(self) -> int:
        """Return how many campaigns there are."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(CAMPAIGNS)) or 0

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored; their attachments are empty unless asked for.

        Which runs there are is settled when the first one is asked for; they are read page by page, so that no
        transaction stays open between two of them and the store may be written meanwhile.
        """
        cases: dict[int, Case] = {}
        with self._database.reading() as connection:
            numbers = read_run_numbers(connection, campaign_ids, case_keys, series_keys, serials)
        if not with_attachments:
            for page in pages(numbers, _RUN_PAGE):
                with self._reading_bodies() as (connection, packer):
                    runs = read_runs(connection, packer, page, cases=cases)
                yield from runs
            return
        for page in pages(numbers, _RUN_PAGE):
            with self._reading_bodies() as (connection, packer):
                found = read_whole_runs(connection, packer, page, cases=cases)
            for run, is_whole in found:
                yield run if is_whole else dataclasses.replace(run, attachments=self.attachments(run.run_id))

    def earlier_runs(self, case_key: CaseKey, before: CampaignId, *, limit: int) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their order."""
        with self._database.reading() as connection:
            numbers = read_run_numbers(connection, (), (case_key,), (), ())
            own = read_run_numbers(connection, (before,), (case_key,), (), ())
        earlier = numbers[: bisect_left(numbers, own[0])] if own else numbers
        cases: dict[int, Case] = {}
        runs: list[RunRecord] = []
        for page in pages(earlier[max(0, len(earlier) - limit) :]):
            with self._reading_bodies() as (connection, packer):
                runs += read_runs(connection, packer, page, cases=cases)
        return runs

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""
        with self._reading_bodies() as (connection, packer):
            return read_attachments(connection, packer, run_id)

    def attachments_of(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what each of some runs left behind, page by page; unknown runs are left out."""
        for page in pages(list(dict.fromkeys(run_ids)), _RUN_PAGE):
            with self._reading_bodies() as (connection, packer):
                found = read_outputs(connection, packer, page)
            for run_id, attachments in found.items():
                yield run_id, self.attachments(run_id) if attachments is None else attachments

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

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored, and how many are planned."""

        def counted(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
            of_campaign = RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
            return select(func.count()).select_from(RUNS).where(of_campaign, *conditions).scalar_subquery()

        with self._database.reading() as connection:
            stored, unfit = counted(), counted(RUNS.c.outcome == literal_column(f"'{Outcome.UNFIT.value}'"))
            query = select(CAMPAIGNS.c.campaign_id, stored, unfit, PLANS.c.invocation_count)
            wanted = query.join_from(CAMPAIGNS, PLANS, isouter=True).where(*_of_kind(only_open=only_open))
            found = connection.execute(wanted)
            return {CampaignId(name): (runs - waiting, planned or 0) for name, runs, waiting, planned in found}

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""
        with self._database.reading() as connection:
            found = connection.execute(select(DEVICES).order_by(DEVICES.c.device_no)).mappings()
            return {Serial(row["serial"]): rows.known_device_from_row(row) for row in found}

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
            return read_points(connection, since=since, series_keys=series_keys)

    def marks(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return timing runs without a figure that counts, and comparisons of outputs where one didn't agree."""
        with self._database.reading() as connection:
            return read_marks(connection, since=since, series_keys=series_keys)

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""
        with self._database.reading() as connection:
            return read_series(connection, series_keys)

    def recent_runs(
        self, series_keys: Sequence[SeriesKey], *, limit: int = 64
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first."""
        with self._database.reading() as connection:
            return read_recent_runs(connection, series_keys, limit=limit)

    def reason_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Mapping[str, int]]:
        """Return how many runs of some campaigns ended with each reason code, those with none aside."""
        with self._database.reading() as connection:
            return read_reason_counts(connection, campaign_ids)

    def yields(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
        """Return what the runs of some campaigns gave, campaigns without any run aside."""
        with self._database.reading() as connection:
            return read_yields(connection, campaign_ids)

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return of each campaign that has runs a mark that is another one once something else is read from them."""
        with self._database.reading() as connection:
            return read_readings(connection, campaign_ids)

    def skips(self, campaign_ids: Sequence[CampaignId], reason_code: str) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
        with self._database.reading() as connection:
            return read_skips(connection, campaign_ids, reason_code)

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes nothing.

        Page by page: whoever stores meanwhile waits for one page, and a run that is killed goes on where it was.
        """
        with self._database.reading() as connection:
            campaigns = retention.prunable_campaigns(connection, before)
        count = freed_bytes = 0
        for campaign_no in campaigns:
            with self._database.reading() as connection:
                run_nos = retention.prunable_runs(connection, campaign_no)
            for begin in range(0, len(run_nos), retention.PAGE):
                with self._trying(is_trial) as (connection, packer):
                    page = run_nos[begin : begin + retention.PAGE]
                    pruned, freed = retention.prune_runs(connection, packer, page, policy)
                    count, freed_bytes = count + pruned, freed_bytes + freed
            if not is_trial:
                with self._database.writing() as connection:
                    retention.note_pruned(connection, campaign_no, policy)
        # A large output that another run has too frees nothing, and the note in its place takes some bytes.
        return Pruned(campaigns=len(campaigns), runs=count, freed_bytes=max(0, freed_bytes))

    @contextmanager
    def _trying(self, is_trial: bool) -> Iterator[tuple[Connection, Packer]]:
        """Give a transaction that is undone at the end of a trial."""
        with suppress(_TrialOverError), self._writing_bodies() as (connection, packer):
            yield connection, packer
            if is_trial:
                raise _TrialOverError

    def activity(self, since: datetime) -> Activity:
        """Return what campaigns came to, and the runs of those that were begun since then."""
        with self._reading_bodies() as (connection, packer):
            return read_activity(connection, packer, since)

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
        with self._reading_bodies() as (connection, packer):
            run_no = connection.scalar(select(RUNS.c.run_no).where(RUNS.c.run_id == run_id))
            found = [] if run_no is None else read_runs(connection, packer, [run_no], cases={})
            return found[0] if found else None

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


def _keep_referred(
    connection: Connection,
    campaign: Campaign,
    devices: Iterable[DeviceFacts],
    models: Iterable[Model],
    builds: Iterable[Build],
) -> None:
    """Check a campaign, and keep the devices, models and builds that it refers to."""
    given = list(devices)
    model_rows = [rows.model_to_row(model) for model in models]
    build_rows = [rows.build_to_row(build) for build in builds]
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
    for table, row in (*((MODELS, row) for row in model_rows), *((BUILDS, row) for row in build_rows)):
        keep_named(connection, table, row)


def _of_kind(*, only_open: bool) -> tuple[ColumnElement[bool], ...]:
    return (CAMPAIGNS.c.status != CampaignStatus.FINISHED.value,) if only_open else ()


def _campaign_no(connection: Connection, campaign_id: CampaignId) -> int | None:
    return connection.scalar(select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign_id))
