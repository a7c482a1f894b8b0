"""A store of revision 0001, as it was before runs were packed, comes to the newest revision without losing a byte."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from orchestrator.documents import dump_document
from orchestrator.records.identity import BuildSha, RunId
from orchestrator.records.workload import Case, DelegateName, Pass
from orchestrator.store import rows
from orchestrator.store.blobs import pack
from orchestrator.store.database import postgresql_engine, sqlite_engine
from orchestrator.store.migrating import SHIPPED, Migrations
from orchestrator.store.opening import open_store


@pytest.fixture
def first_revision(tmp_path: Path) -> Migrations:
    copied = tmp_path / "migrations"
    shutil.copytree(SHIPPED.folder, copied, ignore=shutil.ignore_patterns("__pycache__", "v000[2-9]*"))
    return Migrations(copied)


def old_case(case: Case) -> dict:
    return {
        "case_key": case.case_key,
        "model_sha256": case.model_sha256,
        "build_sha256": case.build_sha256,
        "delegate": case.delegate.value,
        "threads": case.threads,
        "tool": case.tool.value,
        # What a case knows since then stood in no document.
        "document": dump_document(case).replace(',"shard":""', ""),
    }


def insert_old(where: str, samples, runs: list) -> None:
    """Write rows as the store of revision 0001 wrote them."""
    if "://" in where:
        engine = postgresql_engine(sqlalchemy.make_url(where), busy_timeout_s=5)
    else:
        engine = sqlite_engine(Path(where), busy_timeout_s=5)
    metadata = sqlalchemy.MetaData()
    metadata.reflect(engine)
    tables = metadata.tables
    at = samples.campaign().created_at

    def plain(row: dict) -> dict:
        text = "://" not in where
        return {
            name: value.isoformat(timespec="microseconds") if text and hasattr(value, "isoformat") else value
            for name, value in row.items()
        }

    with engine.begin() as connection:
        campaign = rows.campaign_to_row(samples.campaign(plan_text="models: []"))
        connection.execute(tables["campaigns"].insert(), plain({**campaign, "campaign_no": 1}))
        device = rows.device_to_row(dataclasses.replace(samples.phone, properties={}))
        connection.execute(tables["devices"].insert(), plain({**device, "device_no": 1, "last_seen_at": at}))
        connection.execute(tables["models"].insert(), rows.model_to_row(samples.model))
        for build in (samples.build, dataclasses.replace(samples.build, sha256=BuildSha("dd" * 32))):
            connection.execute(tables["builds"].insert(), rows.build_to_row(build))
        cases: dict[str, int] = {}
        for run_no, run in enumerate(runs, 1):
            if run.case.case_key not in cases:
                cases[run.case.case_key] = len(cases) + 1
                row = old_case(run.case) | {"case_no": len(cases), "device_no": 1, "is_virtual": False}
                connection.execute(tables["cases"].insert(), row)
                planned = {"campaign_no": 1, "position": 100 - len(cases), "case_no": len(cases)}
                connection.execute(tables["invocations"].insert(), planned | {"run_pass": "timing", "number": 7})
            row = rows.run_to_row(run) | rows.documents_of(run)
            row |= {"campaign_no": 1, "case_no": cases[run.case.case_key]}
            connection.execute(tables["runs"].insert(), plain(row))
            for position, item in enumerate(run.attachments):
                blob = dataclasses.asdict(pack(item.data, item.sha256))
                known = sqlalchemy.select(tables["blobs"].c.sha256).where(tables["blobs"].c.sha256 == item.sha256)
                if connection.scalar(known) is None:
                    connection.execute(tables["blobs"].insert(), blob)
                attachment = {"run_no": run_no, "position": position, "name": item.name, "blob_sha256": item.sha256}
                connection.execute(tables["attachments"].insert(), attachment)
    engine.dispose()


def test_nothing_is_lost_on_the_way_from_the_first_revision(
    unused_database: str, first_revision: Migrations, samples
) -> None:
    # A case without anything that its columns would have to escape.
    case = samples.case(flags=())
    newer = samples.case(flags=(), build_sha256=BuildSha("dd" * 32))
    other = samples.case(flags=(), delegate=DelegateName.GPU, files=(("libx.so", "cc" * 32),))
    runs = [samples.run(number, case=case, command=f"./benchmark_model {number}") for number in range(4)]
    runs += [samples.run(9, case=other, run_id="other", report=None, state_before=None, attachments=())]
    runs += [samples.run(11, case=newer, run_id=RunId("ab" * 16))]
    open_store(unused_database, migrations=first_revision).close()
    insert_old(unused_database, samples, runs)

    store = open_store(unused_database)

    assert list(store.runs(with_attachments=True)) == runs
    assert store.attachments(runs[2].run_id) == runs[2].attachments
    assert store.series() == {case.series_key: newer, other.series_key: other}
    assert len(store.points().latency_us) == 5
    assert store.run_ids("ab") == ["ab" * 16]
    stored = store.campaign(samples.campaign().campaign_id)
    assert [(item.case, item.run_pass, item.number) for item in stored.invocations] == [
        (planned, Pass.TIMING, 7) for planned in (newer, other, case)
    ]
    assert store.done(stored.campaign_id) == {(run.case.case_key, run.run_pass, run.invocation) for run in runs}
    assert list(store.sightings()) == [samples.phone.serial]
    assert store.append_run(samples.run(10, case=case))
    store.close()
    if "://" not in unused_database:
        with closing(sqlite3.connect(unused_database)) as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM attachments")}
            assert names == {"trace"}
