"""How long it takes to keep a run, against a plain sqlite3 INSERT of the same bytes in the same run
of this program.

    python benchmarks/store.py [--runs 400] [--listed 5000]

Both databases lie in one folder, use the same journal and the same ``synchronous = FULL``, and take
turns run by run, so that a busy computer slows both. The plain side writes what our rows hold,
packed already, and one commit per run: it is the floor under any store that is durable, not a
store. The listing is measured against reading the same rows with sqlite3 and parsing their
documents with json. Processor time of this process is told beside it: other programs don't change
it.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import (
    Build,
    BuildSha,
    CampaignId,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    RunId,
    Serial,
    ToolName,
)
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import (
    Attachment,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    Outcome,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store.opening import open_store
from orchestrator.store.runs import row_of
from orchestrator.store.schema import pack_output, unpack

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

START = datetime(2026, 3, 1, tzinfo=UTC)
PHONE = DeviceFacts(serial=Serial("VIRTUAL-1"), kind=DeviceKind.ANDROID, is_virtual=True)
MODEL = Model(name="mobilenet.tflite", sha256=ModelSha("aa" * 32), size_bytes=1)
BUILD = Build(name="native", tool=ToolName.NATIVE, sha256=BuildSha("bb" * 32), abi="arm64-v8a")
#: As in a campaign, whose plan holds each case once.
CASES = [
    Case(
        serial=PHONE.serial,
        model_sha256=MODEL.sha256,
        model_name=MODEL.name,
        delegate=DelegateName.XNNPACK,
        threads=threads,
        tool=ToolName.NATIVE,
        build_sha256=BUILD.sha256,
    )
    for threads in range(1, 9)
]
CAMPAIGN = Campaign(
    campaign_id=CampaignId("benchmark"),
    name="benchmark",
    created_at=START,
    status=CampaignStatus.RUNNING,
    plan_text="",
    seed=0,
    benchfarm_version="",
    host="",
)


def made_run(number: int) -> RunRecord:
    """Return a run like those of the native program: some 6 kB of log, a report, a verdict, two
    states."""
    log = b"".join(
        b"INFO: [./benchmark_model.cc:%d] line %d of run %d\n" % (line * 7, line, number)
        for line in range(120)
    )
    state = DeviceState(
        at=START,
        uptime_s=number * 1.5,
        heat_c={f"zone-{zone}": 30.0 + zone / 7 for zone in range(25)},
        clock_khz={0: 1_785_600, 4: 2_419_200, 7: 2_841_600},
        time_in_state={
            cpu: {300_000 + step * 96_000: step * number for step in range(20)} for cpu in (0, 4, 7)
        },
    )
    return RunRecord(
        run_id=RunId(f"run-{number}"),
        campaign_id=CAMPAIGN.campaign_id,
        case=CASES[number % len(CASES)],
        run_pass=Pass.TIMING,
        invocation=number,
        outcome=Outcome.COMPLETED,
        reason_code="",
        reason="",
        is_virtual=True,
        started_at=START,
        duration_s=8.1,
        command="./benchmark_model --graph=mobilenet.tflite --num_threads=4 --use_xnnpack=true",
        exit_code=0,
        attachments=(Attachment(name="stdout", data=b""), Attachment(name="stderr", data=log)),
        report=ToolReport(
            outcome="ok",
            init_us=12_345.0,
            inference=LatencySummary(
                count=50, min_us=5800.0, median_us=6000.0 + number, mean_us=6010.5, std_us=80.25
            ),
            inference_mean_us=6010.5,
            delegate=DelegateEvidence(
                requested="xnnpack", truth=DelegateTruth.FULL, lines=("Replacing 31 out of 31",)
            ),
            echoed={f"Parameter {index}": str(index) for index in range(20)},
        ),
        verdict=QualityVerdict(
            quality=Quality.SUSPECT,
            findings=(
                Finding(
                    code="thermal-rise",
                    severity=Severity.WARNING,
                    message="warmer",
                    evidence="31 -> 36 C",
                ),
            ),
        ),
        state_before=state,
        state_after=state,
    )


class PlainTable:
    """The same bytes in one table without references, written by hand."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(
            f"CREATE TABLE runs (run_no INTEGER PRIMARY KEY, {', '.join(columns)})"
        )
        self._insert = (
            f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        )

    def append(self, row: tuple[object, ...]) -> None:
        """Write one run in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(self._insert, row)
        self.connection.execute("COMMIT")


def plain_row(run: RunRecord) -> dict[str, object]:
    """Return a run's columns as sqlite3 takes them."""
    row = row_of(run) | {"output": pack_output(run.attachments, run.case.tool)}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def took_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Return how long something took, by the clock and of this process's processor time."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - start) * 1000, (time.process_time() - cpu) * 1000


def measure_appends(
    store: Store, plain: PlainTable, count: int
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield the times of one run each, ours and plain, in turns."""
    for number in range(count):
        run = made_run(number)
        values = tuple(plain_row(run).values())
        ours = took_ms(lambda run=run: store.append_run(run))  # type: ignore[misc]
        yield ours, took_ms(lambda values=values: plain.append(values))  # type: ignore[misc]


def list_plain(path: Path) -> int:
    """Read all rows and parse all their documents; return how many there were."""
    with closing(sqlite3.connect(path)) as connection:
        rows = 0
        for _, _, document in connection.execute(
            "SELECT run_no, run_id, document FROM runs ORDER BY run_no"
        ):
            json.loads(unpack(document, where="a run"))
            rows += 1
    return rows


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--runs", type=int, default=400, help="runs that are timed one by one (default 400)"
    )
    parser.add_argument(
        "--listed", type=int, default=5000, help="runs in the store that is listed (default 5000)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        store = open_store(path)
        store.begin_campaign(CAMPAIGN, devices=[PHONE], models=[MODEL], builds=[BUILD])
        plain = PlainTable(Path(folder) / "plain.sqlite", tuple(plain_row(made_run(0))))
        times = list(measure_appends(store, plain, options.runs))
        for number in range(options.runs, options.listed):
            run = made_run(number)
            store.append_run(run)
            plain.append(tuple(plain_row(run).values()))
        listing_ms, _ = took_ms(lambda: sum(1 for _ in store.runs()))
        plain_listing_ms, _ = took_ms(lambda: list_plain(Path(folder) / "plain.sqlite"))
        store.close()
        reopening_ms = statistics.median(
            took_ms(lambda: open_store(path).close())[0] for _ in range(10)
        )
        size_bytes = path.stat().st_size
    append_ms, insert_ms = (statistics.median(pair[side][0] for pair in times) for side in (0, 1))
    append_cpu_ms, insert_cpu_ms = (
        statistics.median(pair[side][1] for pair in times) for side in (0, 1)
    )
    listed = max(options.runs, options.listed)
    figures = {
        "append_run_ms": round(append_ms, 3),
        "plain_insert_ms": round(insert_ms, 3),
        "append_ratio": round(append_ms / insert_ms, 2),
        "append_run_cpu_ms": round(append_cpu_ms, 3),
        "plain_insert_cpu_ms": round(insert_cpu_ms, 3),
        "listing_us_per_run": round(listing_ms * 1000 / listed, 1),
        "plain_listing_us_per_run": round(plain_listing_ms * 1000 / listed, 1),
        "listing_ratio": round(listing_ms / plain_listing_ms, 2),
        "reopening_ms": round(reopening_ms, 2),
        "bytes_per_run": round(size_bytes / listed),
        "runs": options.runs,
        "listed": listed,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
