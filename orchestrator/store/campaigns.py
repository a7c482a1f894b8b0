"""Campaigns with their plans, and the devices, models, builds and cases that they refer to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Table,
    exists,
    func,
    insert,
    select,
    update,
)

from orchestrator.documents import dump_document, load_document, to_text
from orchestrator.errors import StoreError
from orchestrator.records.campaign import Campaign, CampaignProgress, CampaignStatus, Invocation
from orchestrator.records.case import (
    Build,
    CampaignId,
    Case,
    CaseKey,
    Model,
    Pass,
    Serial,
    SeriesKey,
    SkippedCase,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.history import DeviceSighting
from orchestrator.records.run import ABANDONED, Outcome
from orchestrator.store.database import Database, readable_rows, warn
from orchestrator.store.schema import (
    BUILDS,
    CAMPAIGNS,
    CASES,
    DEVICES,
    MODELS,
    PLANNED,
    RUNS,
    SIGHTINGS,
    pack,
    unpack,
)

Value = TypeVar("Value")

#: Values of one statement (SQLite takes 32,766).
_PAGE: Final = 500
#: Fields of a campaign that are stored in columns and tables of their own.
_BESIDE: Final = frozenset({"invocations", "skipped", "status", "finished_at"})


def pages(values: Sequence[Value], size: int = _PAGE) -> Iterator[Sequence[Value]]:
    """Yield the values in portions that one statement can name."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


class Campaigns(Database):
    """Methods of the store about campaigns."""

    def begin_campaign(
        self,
        campaign: Campaign,
        *,
        devices: Iterable[DeviceFacts],
        models: Iterable[Model],
        builds: Iterable[Build],
    ) -> None:
        """Store a campaign with its planned runs and skips, and its devices, models and builds."""
        where = f"campaign {campaign.campaign_id}"
        with self.writing() as connection:
            if connection.scalar(
                select(exists().where(CAMPAIGNS.c.campaign_id == campaign.campaign_id))
            ):
                raise StoreError(
                    f"{where}: the store holds a campaign of this id already",
                    hint="another command has just stored it: run this one again",
                )
            _upsert_devices(connection, devices, campaign)
            for table, records in ((MODELS, models), (BUILDS, builds)):
                for record in records:
                    _upsert(connection, table, record)
            numbers = insert_cases(connection, (item.case for item in campaign.invocations), where)
            number = insert_numbered(
                connection,
                CAMPAIGNS,
                campaign_id=campaign.campaign_id,
                name=campaign.name,
                created_at=campaign.created_at,
                finished_at=campaign.finished_at,
                status=campaign.status.value,
                is_hidden=False,
                planned=len(campaign.invocations),
                document=pack(dump_document(campaign, without=_BESIDE).encode("ascii")),
                skipped=pack(dump_document(campaign.skipped).encode("ascii")),
            )
            rows = [
                {
                    "campaign_no": number,
                    "position": place,
                    "case_no": numbers[item.case.case_key],
                    "run_pass": item.run_pass.value,
                    "number": item.number,
                }
                for place, item in enumerate(campaign.invocations)
            ]
            if rows:
                connection.execute(insert(PLANNED), rows)

    def set_status(
        self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None
    ) -> None:
        """Store a campaign's status."""
        with self.writing() as connection:
            # It gets new runs, whose raw output isn't pruned.
            values = {"status": status.value, "finished_at": finished_at, "pruned": None}
            _update_campaign(connection, campaign_id, values)

    def hide_campaign(self, campaign_id: CampaignId, *, is_hidden: bool = True) -> None:
        """Leave a campaign out of lists, comparisons and the search for changes, or show it again."""
        with self.writing() as connection:
            _update_campaign(connection, campaign_id, {"is_hidden": is_hidden})

    def hidden_campaigns(self) -> set[CampaignId]:
        """Return the campaigns that are hidden."""
        with self.reading() as connection:
            return set(
                connection.scalars(select(CAMPAIGNS.c.campaign_id).where(CAMPAIGNS.c.is_hidden))
            )

    def submission(self, name: str) -> list[CampaignId]:
        """Return the campaigns of a farm's submission, in the order of their ids."""
        campaign_id, begin = CAMPAIGNS.c.campaign_id, f"{name}_"
        # "`" follows "_". Another "_" is part of another submission's name.
        with_begin = select(campaign_id).where(campaign_id >= begin, campaign_id < f"{name}`")
        with self.reading() as connection:
            ids = connection.scalars(with_begin.order_by(campaign_id)).all()
        return [CampaignId(item) for item in ids if "_" not in item.removeprefix(begin)]

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        with self.reading() as connection:
            row = (
                connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.campaign_id == campaign_id))
                .mappings()
                .first()
            )
            if row is None:
                return None
            query = (
                select(PLANNED)
                .where(PLANNED.c.campaign_no == row["campaign_no"])
                .order_by(PLANNED.c.position)
            )
            planned = connection.execute(query).all()
            cases = read_cases(connection, {item.case_no for item in planned})
        if any(item.case_no not in cases for item in planned):
            raise StoreError(
                f"campaign {campaign_id}: a case of its plan can't be read",
                hint="a newer benchfarm may have written it, with a delegate or program that this one "
                "doesn't know: upgrade benchfarm and try again; the campaign stays as it is",
            )
        invocations = tuple(
            Invocation(case=cases[item.case_no], run_pass=Pass(item.run_pass), number=item.number)
            for item in planned
        )
        return replace(_campaign_of(row), invocations=invocations, skipped=_skipped_of(row))

    def campaigns(
        self, *, only_open: bool = False, with_hidden: bool = False, limit: int | None = None
    ) -> Sequence[Campaign]:
        """Return campaigns, the newest first, without their planned runs and skips.

        The order is that of their numbers, whatever the clocks said.
        """
        last_first = (
            select(CAMPAIGNS)
            .where(*_status_filter(only_open))
            .order_by(CAMPAIGNS.c.campaign_no.desc())
        )
        if not with_hidden:
            last_first = last_first.where(~CAMPAIGNS.c.is_hidden)
        with self.reading() as connection:
            rows = connection.execute(last_first.limit(limit)).mappings().all()
        return [campaign for _, campaign in readable_rows(rows, _campaign_of)]

    def campaign_count(self) -> int:
        """Return the number of campaigns."""
        with self.reading() as connection:
            return connection.scalar(select(func.count()).select_from(CAMPAIGNS)) or 0

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, CampaignProgress]:
        """Return the progress of each campaign; one that isn't stored yet has none."""
        of_campaign = RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
        kinds = (), (RUNS.c.outcome == Outcome.UNFIT.value,), abandoned_conditions()
        counts = (
            select(func.count()).select_from(RUNS).where(of_campaign, *kind).scalar_subquery()
            for kind in kinds
        )
        # By their cases, from an index: rows of runs hold whole documents.
        virtual = select(CASES.c.case_no).where(CASES.c.is_virtual)
        has_virtual = CAMPAIGNS.c.campaign_no.in_(
            select(RUNS.c.campaign_no).where(RUNS.c.case_no.in_(virtual))
        )
        columns = CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.planned, has_virtual, *counts
        query = select(*columns).where(*_status_filter(only_open))
        with self.reading() as connection:
            progress = {
                CampaignId(name): CampaignProgress(
                    runs - unfit - abandoned, planned, abandoned, is_virtual
                )
                for name, planned, is_virtual, runs, unfit, abandoned in connection.execute(query)
            }
        return defaultdict(CampaignProgress, progress)

    def skips(
        self, campaign_ids: Sequence[CampaignId], reason_code: str
    ) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return the cases that some campaigns skipped from the start with this reason code;
        campaigns without any are left out.
        """
        query = select(CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.skipped)
        by_campaign: dict[CampaignId, list[SkippedCase]] = {}
        with self.reading() as connection:
            for of_page in chosen(query, CAMPAIGNS.c.campaign_id, campaign_ids):
                rows = connection.execute(of_page).mappings().all()
                for row, skipped in readable_rows(rows, _skipped_of):
                    for skip in skipped:
                        if skip.reason_code == reason_code:
                            by_campaign.setdefault(row["campaign_id"], []).append(skip)
        return by_campaign

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last stored."""
        with self.reading() as connection:
            rows = (
                connection.execute(select(DEVICES).order_by(DEVICES.c.device_no)).mappings().all()
            )
        return {Serial(row["serial"]): _readable_facts(row) for row in rows}

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return the versions of each device with the time of each change, oldest first."""
        query = select(SIGHTINGS).order_by(SIGHTINGS.c.serial, SIGHTINGS.c.seen_at)
        with self.reading() as connection:
            sightings = list(readable_rows(connection.execute(query).mappings(), _facts_of))
        return {
            Serial(serial): [
                DeviceSighting(at=row["seen_at"], facts=facts.versions) for row, facts in rows
            ]
            for serial, rows in groupby(sightings, key=lambda item: item[0]["serial"])
        }

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""
        return self._named(MODELS, Model)

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""
        return self._named(BUILDS, Build)

    def series(self) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series."""
        newest = select(func.max(CASES.c.case_no)).group_by(CASES.c.series_key)
        with self.reading() as connection:
            numbers = connection.scalars(newest).all()
            return {case.series_key: case for case in read_cases(connection, numbers).values()}

    def _named(self, table: Table, kind: type[Value]) -> dict[str, Value]:
        with self.reading() as connection:
            rows = connection.execute(select(table)).mappings().all()
        read = readable_rows(
            rows,
            lambda row: load_document(kind, row["document"], where=f"{table.name} {row['sha256']}"),
        )
        return {row["sha256"]: record for row, record in read}


def without_paths(build: Build) -> Build:
    """Return a build without the paths of its files on this host."""
    return replace(
        build, path=None, companions=tuple(replace(item, path=None) for item in build.companions)
    )


def chosen(
    query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Select[Any]]:
    """Yield queries that together, without overlap, find the rows with one of some values."""
    for page in pages(list(dict.fromkeys(values))):
        yield query.where(column.in_(page))


def filtered(
    query: Select[Any], column: ColumnElement[Any], values: Collection[Any]
) -> Iterator[Select[Any]]:
    """Yield the same; without values a query for all rows."""
    return chosen(query, column, values) if values else iter((query,))


def insert_numbered(connection: Connection, table: Table, **row: object) -> int:
    """Insert a row and return the number that the database gave it."""
    key = connection.execute(insert(table), row).inserted_primary_key
    assert key is not None, "a single INSERT always has one"
    return int(key[0])


def read_cases(connection: Connection, numbers: Collection[int]) -> dict[int, Case]:
    """Return cases by their number, without those that can't be read."""
    cases: dict[int, Case] = {}
    for page in pages(list(numbers)):
        rows = connection.execute(select(CASES).where(CASES.c.case_no.in_(page))).mappings()
        cases.update((row["case_no"], case) for row, case in readable_rows(rows, _case_of))
    return cases


def insert_cases(connection: Connection, cases: Iterable[Case], where: str) -> dict[CaseKey, int]:
    """Insert the cases that are new; return the number of each.

    Raises StoreError naming ``where`` when one refers to something that the store doesn't hold.
    """
    by_key = {case.case_key: case for case in cases}
    numbers = _case_numbers(connection, by_key)
    new = [case for key, case in by_key.items() if key not in numbers]
    if not new:
        return numbers
    virtual = {row.serial: row.is_virtual for row in connection.execute(select(DEVICES))}
    models, builds = (set(connection.scalars(select(table.c.sha256))) for table in (MODELS, BUILDS))
    rows = []
    for case in new:
        has_model, has_build = case.model_sha256 in models, case.build_sha256 in builds
        if not (case.serial in virtual and has_model and has_build):
            raise StoreError(
                f"{where}: the store doesn't hold device {case.serial}, "
                f"model {case.model_sha256} or build {case.build_sha256}"
            )
        names = ("case_key", "series_key", "serial", "model_sha256", "build_sha256")
        rows.append(
            {name: getattr(case, name) for name in names}
            | {"is_virtual": virtual[case.serial], "files": to_text(case.files)}
            | {"document": pack(dump_document(case).encode("ascii"), case.tool)}
        )
    connection.execute(insert(CASES), rows)
    return _case_numbers(connection, by_key)


def _case_numbers(connection: Connection, keys: Collection[CaseKey]) -> dict[CaseKey, int]:
    query = select(CASES.c.case_key, CASES.c.case_no)
    return {
        CaseKey(key): number
        for of_page in chosen(query, CASES.c.case_key, keys)
        for key, number in connection.execute(of_page)
    }


def _case_of(row: RowMapping) -> Case:
    """Return a case under the keys that it was stored with.

    They aren't computed again: a version with one more field in the key would compute others, and
    split the series of years.
    """
    where = f"case {row['case_key']}"
    case = load_document(Case, unpack(row["document"], where=where).decode("ascii"), where=where)
    vars(case)["case_key"] = CaseKey(row["case_key"])
    vars(case)["series_key"] = SeriesKey(row["series_key"])
    return case


def _campaign_of(row: RowMapping) -> Campaign:
    where = f"campaign {row['campaign_id']}"
    values = json.loads(unpack(row["document"], where=where)) | {"status": row["status"]}
    return replace(
        load_document(Campaign, to_text(values), where=where), finished_at=row["finished_at"]
    )


def _skipped_of(row: RowMapping) -> tuple[SkippedCase, ...]:
    where = f"campaign {row['campaign_id']}"
    text = unpack(row["skipped"], where=where).decode("ascii")
    return load_document(tuple[SkippedCase, ...], text, where=where)


def _facts_of(row: RowMapping) -> DeviceFacts:
    return load_document(DeviceFacts, row["facts"], where=f"device {row['serial']}")


def _readable_facts(row: RowMapping) -> DeviceFacts:
    """Return a device; with a warning, only its columns' facts where the others can't be read."""
    try:
        return _facts_of(row)
    except StoreError as error:
        warn(error)
        return DeviceFacts(
            serial=Serial(row["serial"]), kind=DeviceKind.ANDROID, is_virtual=row["is_virtual"]
        )


def _upsert_devices(
    connection: Connection, devices: Iterable[DeviceFacts], campaign: Campaign
) -> None:
    """Insert or update devices; record a sighting of each that is new or changed."""
    for facts in devices:
        stored = (
            connection.execute(select(DEVICES).where(DEVICES.c.serial == facts.serial))
            .mappings()
            .one_or_none()
        )
        row = {"facts": dump_document(facts)}
        if stored is None:
            insert_numbered(
                connection, DEVICES, serial=facts.serial, is_virtual=facts.is_virtual, **row
            )
        elif stored["is_virtual"] != facts.is_virtual:
            raise StoreError(
                f"campaign {campaign.campaign_id}: a virtual phone and a real device have the serial number "
                f"{facts.serial}; numbers of the two are never mixed",
                hint="give the virtual phone a serial number of its own",
            )
        else:
            connection.execute(update(DEVICES).where(DEVICES.c.serial == facts.serial).values(row))
        if stored is not None and _readable_facts(stored).versions == facts.versions:
            continue
        sighting = {"serial": facts.serial, "seen_at": campaign.created_at}
        existing = select(SIGHTINGS.c.serial).where(
            *(SIGHTINGS.c[name] == sighting[name] for name in sighting)
        )
        # Of two within a microsecond the first is kept.
        if connection.scalar(existing) is None:
            connection.execute(insert(SIGHTINGS), {**sighting, **row})


def _upsert(connection: Connection, table: Table, record: Model | Build) -> None:
    """Insert a model or a build, or update its name; paths on this host aren't stored."""
    stripped = without_paths(record) if isinstance(record, Build) else replace(record, path=None)
    values = {"document": dump_document(stripped)}
    if (
        connection.execute(
            update(table).where(table.c.sha256 == record.sha256).values(values)
        ).rowcount
        == 0
    ):
        connection.execute(insert(table), {"sha256": record.sha256, **values})


def _update_campaign(
    connection: Connection, campaign_id: CampaignId, values: Mapping[str, object]
) -> None:
    changed = update(CAMPAIGNS).where(CAMPAIGNS.c.campaign_id == campaign_id).values(values)
    if connection.execute(changed).rowcount == 0:
        raise StoreError(f"campaign {campaign_id}: the store holds no such campaign")


def _status_filter(only_open: bool) -> tuple[ColumnElement[bool], ...]:
    ended_statuses = [status.value for status in CampaignStatus if status.is_over]
    return (CAMPAIGNS.c.status.not_in(ended_statuses),) if only_open else ()


def abandoned_conditions() -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of an abandoned run, in the form that an index supports."""
    return RUNS.c.outcome == Outcome.SKIPPED.value, RUNS.c.reason_code == ABANDONED
