"""What people may rely on who ask a store in SQL: marks, references, indexes."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.identity import RunId
from orchestrator.records.run import Attachment, DelegateTruth, LatencySummary, Outcome
from orchestrator.records.verdict import Finding, QualityVerdict, Severity
from orchestrator.store.column_types import key_to_bytes
from orchestrator.store.opening import open_store
from tests.samples.places import REPO


@pytest.fixture
def path(tmp_path: Path, samples) -> Path:
    """A closed store with a run on a real phone and one on a virtual phone."""
    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    samples.begin(store)
    store.append_run(samples.run(0))
    store.append_run(samples.run(1, case=samples.case(serial=samples.virtual_phone.serial), is_virtual=True))
    store.close()
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET is_virtual = 0 WHERE is_virtual",
        "UPDATE runs SET is_virtual = NULL",
        "UPDATE runs SET is_virtual = 2",
        "UPDATE cases SET is_virtual = 0 WHERE is_virtual",
        "UPDATE devices SET is_virtual = 0 WHERE is_virtual",
        "DELETE FROM devices",
        "DELETE FROM models",
        "DELETE FROM blobs",
    ],
)
def test_the_database_itself_refuses_to_hide_where_numbers_come_from(connection, statement: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)


def test_summary_columns_say_what_the_report_says(connection, samples) -> None:
    row = connection.execute(
        "SELECT latency_us, median_us, mean_us, inference_count, init_us, delegate_truth, quality, p95_us FROM runs"
    ).fetchone()

    report = samples.run(0).report
    assert row == (
        report.inference.median_us,
        report.inference.median_us,
        report.inference.mean_us,
        50,
        1234.0,
        DelegateTruth.FULL.value,
        "suspect",
        None,
    )


@pytest.mark.parametrize(("figure", "kept"), [(math.nan, None), (math.inf, 2.0**63), (1e300, 2.0**63), (None, None)])
def test_a_figure_beyond_all_bounds_is_no_latency_and_kept_at_the_bound(
    path: Path, connection, samples, figure, kept
) -> None:
    report = dataclasses.replace(
        samples.report(1.0), init_us=figure, inference=LatencySummary(count=10**30, median_us=figure)
    )
    store = open_store(path)
    store.append_run(samples.run(2, report=report))
    (read,) = (run.report for run in store.runs() if run.invocation == 2)
    store.close()

    assert read is not None
    assert (read.init_us, read.inference) == (kept, LatencySummary(count=2**63 - 1, median_us=kept))


def test_findings_can_be_asked_for_by_code_and_follow_a_new_reading(path: Path, connection, samples) -> None:
    def runs_with(code: str) -> list[int]:
        found = connection.execute("SELECT run_no FROM findings WHERE code = ? ORDER BY run_no", [code])
        return [run_no for (run_no,) in found]

    assert runs_with("spread-wide") == [1, 2]
    run = samples.run(0)
    finding = Finding(code="fell-back", severity=Severity.ERROR, message="")
    store = open_store(path)
    store.replace_reading(
        run.run_id,
        report=run.report,
        outcome=run.outcome,
        reason_code="",
        reason="",
        verdict=QualityVerdict(quality=run.verdict.quality, findings=(finding,)),
    )
    store.close()

    assert runs_with("spread-wide") == [2]
    assert runs_with("fell-back") == [1]


def test_equal_large_output_is_stored_once_and_packed(path: Path, connection, samples) -> None:
    store = open_store(path)
    for number in range(2, 6):
        store.append_run(samples.run(number, attachments=samples.run(0).attachments))
    store.close()

    assert connection.execute("SELECT count(*) FROM attachments").fetchone() == (6,)
    assert connection.execute("SELECT count(*) FROM blobs").fetchone() == (2,)
    packed = connection.execute("SELECT length(data), size_bytes FROM blobs WHERE packing = 'zlib'").fetchall()
    assert all(length < size_bytes / 5 for length, size_bytes in packed)


def test_the_runs_of_a_series_share_one_pattern_and_take_little_beside_it(path: Path, connection, samples) -> None:
    store = open_store(path)
    for number in range(2, 30):
        store.append_run(samples.run(number))
    store.append_run(samples.run(30, report=None, command="quite another program"))
    store.close()

    # One of the real phone and one of the virtual.
    assert connection.execute("SELECT count(*) FROM patterns").fetchone() == (2,)
    (largest,) = connection.execute("SELECT max(length(body)) FROM runs").fetchone()
    assert largest < 200


def test_a_series_whose_output_changes_gets_another_pattern(path: Path, connection, samples) -> None:
    store = open_store(path)
    lines = b"".join(hashlib.sha256(b"%d" % number).hexdigest().encode() + b"\n" for number in range(200))
    for number in range(2, 5):
        store.append_run(samples.run(number, attachments=(Attachment(name="stdout", data=lines),)))
    store.close()

    assert connection.execute("SELECT count(*) FROM patterns").fetchone() == (3,)
    newest = connection.execute("SELECT pattern_no FROM runs ORDER BY run_no DESC LIMIT 3").fetchall()
    assert newest == [(3,), (3,), (3,)]


def test_the_pattern_of_a_run_that_was_not_kept_is_used_for_no_other(path: Path, connection, samples) -> None:
    lost, kept = (
        samples.run(number, case=samples.case(threads=number), outcome=Outcome.FAILED, command=f"command {number} ")
        for number in (2, 3)
    )
    store = open_store(path)
    connection.execute("CREATE TRIGGER refuse BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no more'); END")
    with pytest.raises(StoreError, match="no more"):
        store.append_run(lost)
    connection.execute("DROP TRIGGER refuse")
    again = dataclasses.replace(kept, run_id=RunId("again"), invocation=7)

    # The next pattern gets the number of the one that isn't there.
    assert store.append_run(kept)
    assert store.append_run(lost)
    assert store.append_run(again)

    assert list(store.runs(with_attachments=True))[-3:] == [kept, lost, again]
    store.close()
    reopened = open_store(path)
    assert list(reopened.runs(with_attachments=True))[-3:] == [kept, lost, again]
    reopened.close()


def test_a_sheet_goes_with_any_change_of_its_runs_and_is_written_again(path: Path, connection, samples) -> None:
    store, campaign_id = open_store(path), samples.campaign().campaign_id
    run = samples.run(0)
    reading = {name: getattr(run, name) for name in ("report", "outcome", "reason_code", "reason", "verdict")}

    def end(status: CampaignStatus = CampaignStatus.FINISHED) -> None:
        store.set_status(campaign_id, status, samples.campaign().created_at)

    def sheets() -> int:
        return connection.execute("SELECT count(*) FROM sheets").fetchone()[0]

    for change in (
        lambda: store.append_run(samples.run(7)),
        lambda: store.replace_reading(run.run_id, **{**reading, "report": samples.report(5.0)}),
        lambda: end(CampaignStatus.RUNNING),
    ):
        end()
        assert sheets() == 1
        change()
        assert sheets() == 0
    from_runs = sorted(store.points().latency_us)
    end()
    assert sorted(store.points().latency_us) == from_runs
    connection.execute("DELETE FROM sheets")
    store.begin_campaign(samples.campaign("next", invocations=(), skipped=()), devices=[], models=[], builds=[])
    assert sheets() == 1
    store.close()


def test_a_case_keeps_the_key_it_was_stored_with(path: Path, connection, samples) -> None:
    # As if a version that hashes one more field had stored it.
    campaign_id, old_key = samples.campaign().campaign_id, samples.case().case_key
    connection.execute("UPDATE series SET document = json_set(document, '$.governor', 'powersave')")
    keys = [key_to_bytes("f00d"), key_to_bytes(old_key)]
    assert connection.execute("UPDATE cases SET case_key = ? WHERE case_key = ?", keys).rowcount == 1
    store = open_store(path)

    assert old_key not in {planned.case.case_key for planned in store.campaign(campaign_id).invocations}
    assert [run.case.case_key for run in store.runs(case_keys=["f00d"])] == ["f00d"]
    assert "f00d" in {case_key for case_key, _, _ in store.done(campaign_id)}
    store.close()


def test_every_table_is_documented(connection) -> None:
    text = (REPO / "docs" / "reference" / "store-tables.md").read_text()
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

    assert len(tables) > 10
    assert [name for name in tables if f"`{name}`" not in text and not name.startswith("sqlite_")] == []


def test_the_questions_of_the_documentation_are_answered_from_indexes(connection) -> None:
    text = (REPO / "docs" / "reference" / "store-tables.md").read_text()
    questions = [part.split(";")[0] for part in text.split("\n    SELECT ")[1:]]

    plans = [[row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN SELECT {question}")] for question in questions]

    assert len(plans) == 2
    assert [step for steps in plans for step in steps if "SCAN" in step] == []
