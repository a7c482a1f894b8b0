"""Campaigns with their plans, and the devices, models and builds that they refer to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

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
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, CaseKey, Serial
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Build, Model, Pass, SkippedCase
from orchestrator.store import rows
from orchestrator.store.cases import (
    campaign_no,
    insert_numbered,
    keep_cases,
    keep_device,
    keep_named,
    pack_plan,
    read_cases,
    read_plan,
)
from orchestrator.store.database import Database
from orchestrator.store.failures import readable
from orchestrator.store.figures import MADE_UP, forget_sheet, keep_sheets, without_sheet
from orchestrator.store.tables import BUILDS, CAMPAIGNS, CASES, DEVICES, HIDDEN, MODELS, PLANS, PRUNED, RUNS, SKIPS


class Campaigns(Database):
    """Methods of the store about campaigns."""

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""
        with self.writing() as connection:
            if connection.scalar(select(exists().where(CAMPAIGNS.c.campaign_id == campaign.campaign_id))):
                raise StoreError(f"campaign {campaign.campaign_id}: the store holds a campaign of this id already")
            _keep_referred(connection, campaign, devices, models, builds)
            number = insert_numbered(connection, CAMPAIGNS, rows.campaign_to_row(campaign))
            _insert_plan(connection, number, campaign)
            keep_sheets(connection, without_sheet(connection, MADE_UP))

    def set_status(self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None) -> None:
        """Record how far a campaign is."""
        check_moment(finished_at, f"campaign {campaign_id}: finished_at")
        with self.writing() as connection:
            number = campaign_no(connection, campaign_id)
            values = {"status": status.value, "finished_at": finished_at}
            connection.execute(update(CAMPAIGNS).where(CAMPAIGNS.c.campaign_no == number).values(values))
            # It gets new runs, or has got them.
            connection.execute(delete(PRUNED).where(PRUNED.c.campaign_no == number))
            if status is CampaignStatus.RUNNING:
                forget_sheet(connection, number)
            else:
                keep_sheets(connection, without_sheet(connection, MADE_UP))

    def hide_campaign(self, campaign_id: CampaignId, *, is_hidden: bool = True) -> None:
        """Leave a campaign out of what is listed, compared and searched for changes, or take it in again."""
        with self.writing() as connection:
            number = campaign_no(connection, campaign_id)
            connection.execute(delete(HIDDEN).where(HIDDEN.c.campaign_no == number))
            if is_hidden:
                connection.execute(insert(HIDDEN), {"campaign_no": number})

    def hidden_campaigns(self) -> set[CampaignId]:
        """Return the campaigns that are hidden."""
        with self.reading() as connection:
            query = select(CAMPAIGNS.c.campaign_id).join(HIDDEN, HIDDEN.c.campaign_no == CAMPAIGNS.c.campaign_no)
            return {CampaignId(name) for name in connection.scalars(query)}

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        with self.reading() as connection:
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
            of_campaign = SKIPS.c.campaign_no == row["campaign_no"]
            skips = connection.execute(select(SKIPS).where(of_campaign).order_by(SKIPS.c.position)).mappings()
            where = f"campaign {campaign_id}"
            return rows.campaign_from_row(
                row,
                invocations=tuple(
                    Invocation(case=cases[case_no], run_pass=rows.word_of(Pass, run_pass, where), number=number)
                    for case_no, run_pass, number in planned
                ),
                skipped=tuple(rows.record_of(SkippedCase, skip, where) for skip in skips),
            )

    def campaigns(
        self, *, only_open: bool = False, with_hidden: bool = False, limit: int | None = None
    ) -> Sequence[Campaign]:
        """Return the newest campaigns, newest first, without their invocations and skips."""
        newest_first = select(CAMPAIGNS).order_by(CAMPAIGNS.c.created_at.desc(), CAMPAIGNS.c.campaign_no.desc())
        if not with_hidden:
            newest_first = newest_first.where(~exists().where(HIDDEN.c.campaign_no == CAMPAIGNS.c.campaign_no))
        with self.reading() as connection:
            found = connection.execute(newest_first.where(*_of_kind(only_open)).limit(limit)).mappings()
            return [campaign for _, campaign in readable(found, rows.campaign_from_row)]

    def campaign_count(self) -> int:
        """Return how many campaigns there are."""
        with self.reading() as connection:
            return connection.scalar(select(func.count()).select_from(CAMPAIGNS)) or 0

    def done(self, campaign_id: CampaignId) -> set[tuple[CaseKey, Pass, int]]:
        """Return which invocations of a campaign are stored, without those that were unfit."""
        stored = (
            select(CASES.c.case_key, RUNS.c.run_pass, RUNS.c.invocation)
            .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
            .join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .where(CAMPAIGNS.c.campaign_id == campaign_id, RUNS.c.outcome != Outcome.UNFIT.value)
        )
        with self.reading() as connection:
            return {
                (CaseKey(key), rows.word_of(Pass, run_pass, f"case {key}"), number)
                for key, run_pass, number in connection.execute(stored)
            }

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored, and how many are planned."""

        def counted(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
            of_campaign = RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
            return select(func.count()).select_from(RUNS).where(of_campaign, *conditions).scalar_subquery()

        with self.reading() as connection:
            stored, unfit = counted(), counted(RUNS.c.outcome == literal_column(f"'{Outcome.UNFIT.value}'"))
            query = select(CAMPAIGNS.c.campaign_id, stored, unfit, PLANS.c.invocation_count)
            found = connection.execute(query.join_from(CAMPAIGNS, PLANS, isouter=True).where(*_of_kind(only_open)))
            return {CampaignId(name): (runs - waiting, planned or 0) for name, runs, waiting, planned in found}

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""
        with self.reading() as connection:
            found = connection.execute(select(DEVICES).order_by(DEVICES.c.device_no)).mappings()
            return {Serial(row["serial"]): rows.known_device_from_row(row) for row in found}

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""
        with self.reading() as connection:
            return {row["sha256"]: rows.model_from_row(row) for row in connection.execute(select(MODELS)).mappings()}

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""
        with self.reading() as connection:
            return {row["sha256"]: rows.build_from_row(row) for row in connection.execute(select(BUILDS)).mappings()}


def check_moment(moment: datetime | None, what: str) -> None:
    """Raise StoreError when a moment could mean another one elsewhere."""
    if moment is not None and moment.utcoffset() is None:
        raise StoreError(f"{what} has no time zone; use the clock's now()")


def device_kind(is_virtual: bool) -> str:
    """Return what a device is called that is virtual, or isn't."""
    return "virtual phone" if is_virtual else "real device"


def _keep_referred(
    connection: Connection,
    campaign: Campaign,
    devices: Iterable[DeviceFacts],
    models: Iterable[Model],
    builds: Iterable[Build],
) -> None:
    """Check a campaign, and keep the devices, models and builds that it refers to."""
    where = f"campaign {campaign.campaign_id}"
    for name, moment in (("created_at", campaign.created_at), ("finished_at", campaign.finished_at)):
        check_moment(moment, f"{where}: {name}")
    check_moment(campaign.terms.until, f"{where}: until")
    known = connection.execute(select(DEVICES.c.serial, DEVICES.c.is_virtual))
    virtual = {serial: is_virtual for serial, is_virtual in known}  # noqa: C416 - rows, not pairs
    for facts in devices:
        if virtual.setdefault(facts.serial, facts.is_virtual) != facts.is_virtual:
            raise StoreError(
                f"{where}: device {facts.serial} is stored as a {device_kind(virtual[facts.serial])} and now calls "
                f"itself a {device_kind(facts.is_virtual)}; numbers of the two are never mixed",
                hint="give the virtual phone a serial number of its own",
            )
        keep_device(connection, facts, seen_at=campaign.created_at)
    for model in models:
        keep_named(connection, MODELS, model)
    for build in builds:
        keep_named(connection, BUILDS, build)


def _insert_plan(connection: Connection, number: int, campaign: Campaign) -> None:
    """Insert a campaign's invocations and skips, and the cases that are new."""
    where = f"campaign {campaign.campaign_id}"
    numbers = keep_cases(connection, (planned.case for planned in campaign.invocations), where)
    planned: dict[tuple[int, str, int], None] = {}
    for item in campaign.invocations:
        key = numbers[item.case.case_key], item.run_pass.value, item.number
        if key in planned:
            words = f"{item.number + 1} of pass {item.run_pass} of case {item.case.case_key}"
            raise StoreError(f"{where}: invocation {words} is planned twice")
        planned[key] = None
    if planned:
        plan = {"campaign_no": number, "invocation_count": len(planned), "body": pack_plan([*planned])}
        connection.execute(insert(PLANS), plan)
    skips = [
        rows.row_of(skip, SKIPS, campaign_no=number, position=position)
        for position, skip in enumerate(campaign.skipped)
    ]
    if skips:
        connection.execute(insert(SKIPS), skips)


def _of_kind(only_open: bool) -> tuple[ColumnElement[bool], ...]:
    return (CAMPAIGNS.c.status != CampaignStatus.FINISHED.value,) if only_open else ()
