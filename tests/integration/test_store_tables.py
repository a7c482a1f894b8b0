"""What people may rely on who ask a store in SQL: marks, references, indexes."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.records.case import ToolName
from orchestrator.records.run import Attachment, LatencySummary, Outcome
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store import runs
from orchestrator.store.opening import open_store
from orchestrator.store.schema import LARGE_BYTES, pack, zstd
from tests.samples.places import REPO


@pytest.fixture
def path(tmp_path: Path, samples) -> Path:
    """A closed store with a run on a real phone and one on a virtual phone."""
    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    samples.begin(store)
    store.append_run(samples.run(0))
    store.append_run(
        samples.run(1, case=samples.case(serial=samples.virtual_phone.serial), is_virtual=True)
    )
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
def test_the_database_itself_refuses_to_hide_where_numbers_come_from(
    connection, statement: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)


def test_columns_say_what_the_record_says_and_follow_a_new_reading(
    path: Path, connection, samples
) -> None:
    def columns() -> tuple[object, ...]:
        names = (
            "latency_us, quality, outcome, reason_code, findings, run_pass, invocation, duration_s"
        )
        return connection.execute(f"SELECT {names} FROM runs WHERE run_no = 1").fetchone()

    run = samples.run(0)
    assert columns() == (
        run.report.inference.median_us,
        "suspect",
        "completed",
        "",
        "spread-wide thermal-rise",
        "timing",
        0,
        run.duration_s,
    )
    findings = tuple(
        Finding(code=code, severity=Severity.ERROR, message="") for code in ("fell-back", "hot")
    )
    store = open_store(path)
    store.replace_reading(
        dataclasses.replace(
            run,
            outcome=Outcome.FAILED,
            reason_code="delegate-failed",
            reason="it did",
            verdict=QualityVerdict(quality=Quality.REJECTED, findings=findings),
        )
    )
    store.close()
    assert columns() == (
        None,
        "rejected",
        "failed",
        "delegate-failed",
        "fell-back hot",
        "timing",
        0,
        run.duration_s,
    )


@pytest.mark.parametrize(
    ("figure", "kept"), [(math.nan, None), (math.inf, 2.0**63), (1e300, 2.0**63), (None, None)]
)
def test_a_figure_beyond_all_bounds_is_no_latency_and_kept_at_the_bound(
    path: Path, connection, samples, figure, kept
) -> None:
    report = dataclasses.replace(
        samples.report(1.0),
        init_us=figure,
        inference=LatencySummary(count=10**30, median_us=figure),
    )
    store = open_store(path)
    store.append_run(samples.run(2, report=report))
    (read,) = (run.report for run in store.runs() if run.invocation == 2)
    store.close()

    assert read is not None
    assert (read.init_us, read.inference) == (kept, LatencySummary(count=2**63 - 1, median_us=kept))


def test_equal_large_output_is_stored_once_and_packed_once(
    path: Path, connection, samples, monkeypatch
) -> None:
    packed_bytes = list[int]()

    def noted(data: bytes, program: str = "") -> bytes:
        packed_bytes.append(len(data))
        return pack(data, program)

    monkeypatch.setattr(runs, "pack", noted)
    store = open_store(path)
    for number in range(2, 6):
        store.append_run(samples.run(number, attachments=samples.run(0).attachments))
    store.close()

    assert connection.execute("SELECT count(*) FROM attachments").fetchone() == (6,)
    (large,) = (item.data for item in samples.run(0).attachments if len(item.data) > LARGE_BYTES)
    (length,) = connection.execute("SELECT length(data) FROM blobs").fetchone()
    assert length < len(large) / 5
    assert 0 < max(packed_bytes) < LARGE_BYTES


def test_what_a_program_always_prints_takes_little_and_names_its_dictionary(
    path: Path, connection, samples
) -> None:
    log = (REPO / "tests/data/native/default_float_10_224.txt").read_bytes()
    store = open_store(path)
    for number, tool in enumerate((ToolName.NATIVE, ToolName.APK, ToolName.LITERT_IOS), start=2):
        case = samples.case(tool=tool)
        run = samples.run(number, case=case, attachments=(Attachment(name="stdout", data=log),))
        store.append_run(run)
        assert store.attachments(run.run_id) == run.attachments
    packed = connection.execute(
        "SELECT length(document), length(output), output FROM runs WHERE run_no > 2"
    ).fetchall()
    store.close()

    assert max(document for document, _, _ in packed) < 600
    assert packed[0][1] < len(zlib.compress(log, 9)) / 2
    numbers = [zstd.get_frame_info(output).dictionary_id for _, _, output in packed]
    assert numbers[0] != numbers[1]
    # A program that has none of its own takes the first one's.
    assert numbers[2] == numbers[0]


def test_a_case_keeps_the_key_it_was_stored_with(path: Path, connection, samples) -> None:
    # As if a version that hashes one more field had stored it.
    campaign_id, old_key = samples.campaign().campaign_id, samples.case().case_key
    assert (
        connection.execute(
            "UPDATE cases SET case_key = 'f00d' WHERE case_key = ?", [old_key]
        ).rowcount
        == 1
    )
    store = open_store(path)

    assert old_key not in {
        planned.case.case_key for planned in store.campaign(campaign_id).invocations
    }
    assert [run.case.case_key for run in store.runs(case_keys=["f00d"])] == ["f00d"]
    store.close()


def test_every_table_is_documented(connection) -> None:
    text = (REPO / "docs" / "reference" / "store.md").read_text()
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]

    assert len(tables) > 10
    assert [
        name for name in tables if f"`{name}`" not in text and not name.startswith("sqlite_")
    ] == []


def test_the_questions_of_the_documentation_are_answered_from_indexes(connection) -> None:
    text = (REPO / "docs" / "reference" / "store.md").read_text()
    questions = [part.split(";")[0] for part in text.split("\n    SELECT ")[1:]]

    plans = [
        [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN SELECT {question}")]
        for question in questions
    ]

    assert len(plans) == 2
    assert [step for steps in plans for step in steps if "SCAN" in step] == []
