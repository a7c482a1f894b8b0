"""A year of a lab in one store: its size, and how long the questions over many nights take.

    python benchmarks/history.py --samples STORE [--nights 365] [--build-nights 30] [--postgresql URL] [--keep FILE]

40 phones x 30 models x 6 configurations, one invocation a night. The bodies are real ones: what campaigns of virtual
phones printed (``--samples``, a store with two runs of each case or more), packed with report, verdict and states by
the store itself against another run of the same series. To be done in minutes they are used again and again, and rows
are inserted in bulk; each series has a pattern of its own. No run has a finding, as the trusted runs of real phones.
One step of 8 % in 60 series is built in. The reading is measured against the same question in plain SQL, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, insert, select

from orchestrator.engine.history import Question, find_regressions
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, CaseKey, ModelSha, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Model, ToolName
from orchestrator.store.opening import open_store
from orchestrator.store.packing import NOTHING, Pattern, pack, usual_steps
from orchestrator.store.plans import pack_plan
from orchestrator.store.registry import insert_cases
from orchestrator.store.rows import documents_of, known_of, summary_of
from orchestrator.store.sql import SqlStore
from orchestrator.store.tables import CASES, PATTERNS, PLANS, RUNS

START = datetime(2025, 11, 1, 22, tzinfo=UTC)
PHONES, MODELS = 40, 30
RUN_ID = "0" * 31 + "1"
#: Series that get slower, and how many nights before the last.
STEPS, STEP_NIGHTS = 60, 10
CONFIGURATIONS = [(d, t) for d in (DelegateName.XNNPACK, DelegateName.CPU) for t in (1, 4)] + [
    (DelegateName.GPU, 1),
    (DelegateName.NNAPI, 1),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of a virtual phone: its summary columns, and its sections as packing.py takes them."""

    figures: dict[str, Any]
    sections: list[tuple[str, bytes]]

    @property
    def known(self) -> list[bytes]:
        """What its row says."""
        return known_of({**self.figures, "run_id": RUN_ID})


def read_samples(source: Path) -> list[list[Sample]]:
    """Return the completed runs of each series of a store that campaigns of a virtual phone filled."""
    store = open_store(source)
    found: dict[str, list[Sample]] = {}
    for run in store.runs(with_attachments=True):
        if run.latency_us is None:
            continue
        documents = {name: text for name, text in documents_of(run).items() if text is not None}
        sections = [(f"document:{name}", text.encode()) for name, text in documents.items()]
        sections += [(f"attachment:{item.name}", item.data) for item in run.attachments]
        # The id of a run is known to its reader and costs a byte or two; here it would tie a body to one run.
        same = [(name, content.replace(run.run_id.encode(), RUN_ID.encode())) for name, content in sections]
        found.setdefault(run.case.series_key, []).append(Sample(summary_of(run), same))
    store.close()
    pools = [runs for runs in found.values() if len(runs) > 2]
    if not pools:
        raise SystemExit(f"{source}: holds no series of three runs or more")
    return pools


@dataclass(frozen=True, slots=True)
class Pool:
    """A series' pattern and the bodies of its other runs with their figures, as a store packs them."""

    pattern: bytes
    usual: str
    bodies: list[tuple[dict[str, Any], bytes]]


def pool_of(first: Sample, second: Sample, *others: Sample) -> Pool:
    """Return what a store keeps of a series' runs."""
    usual = usual_steps(second.sections, Pattern(first.sections), known=second.known)
    pattern = Pattern(first.sections, usual)
    bodies = [(item.figures, pack(item.sections, pattern, known=item.known)) for item in others]
    return Pool(pack(first.sections, NOTHING), usual, bodies)


class Year:
    """Fills a store night by night."""

    def __init__(self, store: SqlStore, samples: list[list[Sample]], nights: int, build_nights: int) -> None:
        self.store = store
        self.generator = np.random.default_rng(20261122)
        self.samples = samples
        self.nights = nights
        self.build_nights = build_nights
        self.phones = [
            DeviceFacts(
                serial=Serial(f"phone-{n:02d}"),
                kind=DeviceKind.ANDROID,
                is_virtual=True,
                model=f"Pixel {n % 5 + 3}",
                gpu=f"Adreno {630 + n % 5}",
                soc=f"SM{n % 5}",
            )
            for n in range(PHONES)
        ]
        self.models = [Model(name=f"m{n}.tflite", sha256=ModelSha(f"{n:064x}"), size_bytes=1) for n in range(MODELS)]
        self.level = np.exp(self.generator.normal(9, 1, PHONES * MODELS * len(CONFIGURATIONS)))
        self.noise = np.exp(self.generator.uniform(np.log(0.003), np.log(0.015), self.level.size))
        self.pools = [pool_of(*samples[place % len(samples)]) for place in range(len(CONFIGURATIONS))]
        self.pattern_of: dict[int, int] = {}

    def night(self, number: int) -> None:
        """Store one campaign."""
        build = Build(
            name="native",
            tool=ToolName.NATIVE,
            sha256=BuildSha(f"{number // self.build_nights:064x}"),
            abi="arm64-v8a",
            is_virtual=True,
        )
        at = START + timedelta(days=number)
        campaign = Campaign(
            campaign_id=CampaignId(f"{at:%Y%m%d-%H%M%S}-{number:06x}"),
            name="nightly",
            created_at=at,
            finished_at=at + timedelta(hours=8),
            status=CampaignStatus.FINISHED,
            plan_text="models: models/*.tflite\n" * 10,
            seed=number,
            benchfarm_version="",
            host="farm-1",
        )
        self.store.begin_campaign(campaign, devices=self.phones, models=self.models, builds=[build])
        with self.store._database.writing() as connection:
            if number % self.build_nights == 0:
                self._cases(connection, build)
            self._insert(connection, number, at)

    def _cases(self, connection: Connection, build: Build) -> None:
        """Store the cases of a build, as begin_campaign does, and a pattern for each series that is new."""
        cases = [
            Case(
                serial=phone.serial,
                model_sha256=model.sha256,
                model_name=model.name,
                delegate=delegate,
                threads=threads,
                tool=ToolName.NATIVE,
                build_sha256=build.sha256,
            )
            for phone in self.phones
            for model in self.models
            for delegate, threads in CONFIGURATIONS
        ]
        numbers: dict[CaseKey, int] = {}
        insert_cases(connection, cases, numbers)
        self.case_no = [numbers[case.case_key] for case in cases]
        if not self.pattern_of:
            series_of = dict(connection.execute(select(CASES.c.case_no, CASES.c.series_no)).all())
            for place, case_no in enumerate(self.case_no):
                pattern = {"series_no": series_of[case_no], "run_pass": "timing", "outcome": "completed"}
                pool = self.pools[place % len(CONFIGURATIONS)]
                pattern |= {"body": pool.pattern, "usual": pool.usual}
                self.pattern_of[place] = connection.execute(insert(PATTERNS), pattern).inserted_primary_key[0]

    def _insert(self, connection: Connection, number: int, at: datetime) -> None:
        count = self.level.size
        figures = self.level * np.exp(self.generator.normal(0, self.noise))
        if number >= self.nights - STEP_NIGHTS:
            figures[:: figures.size // STEPS] *= 1.08
        order = self.generator.permutation(count).tolist()
        picks = self.generator.integers(0, 1 << 30, count).tolist()
        rows = []
        for place in order:
            us = round(float(figures[place]))
            bodies = self.pools[place % len(CONFIGURATIONS)].bodies
            sample, body = bodies[picks[place] % len(bodies)]
            rows.append(
                {
                    "run_id": uuid.UUID(int=int(self.generator.integers(1 << 62)) << 64 | place, version=4).hex,
                    "campaign_no": number + 1,
                    "case_no": self.case_no[place],
                    "is_virtual": True,
                    "run_pass": "timing",
                    "invocation": 0,
                    "outcome": "completed",
                    "reason_code": "",
                    "reason": "",
                    "quality": "trusted",
                    "started_at": at + timedelta(seconds=place),
                    "duration_s": us / 1000.0,
                    "exit_code": 0,
                    **sample,
                    "latency_us": us,
                    "pattern_no": self.pattern_of[place],
                    "body": body,
                }
            )
        order = self.generator.permutation(len(rows))
        planned = [(self.case_no[place], "timing", 0) for place in order.tolist()]
        plan = {"campaign_no": number + 1, "invocation_count": len(planned), "body": pack_plan(planned)}
        connection.execute(insert(PLANS), plan)
        connection.execute(insert(RUNS), rows)


def timed(work: Callable[[], object], times: int = 3) -> tuple[float, float]:
    """Return the medians of wall time and of this process's own CPU time, in seconds."""
    found = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*found, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def questions(store: SqlStore, nights: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield what was asked, and how many seconds it took."""
    since = START + timedelta(days=nights - 90)
    with store._database.reading() as connection:
        plain = (
            "SELECT case_no, campaign_no, latency_us, quality FROM runs WHERE campaign_no > {} AND run_pass = 'timing'"
        )
        yield (
            "plain SQL, last 90 nights",
            timed(lambda: connection.connection.cursor().execute(plain.format(nights - 90)).fetchall()),
        )
    yield "last 90 nights of every series", timed(lambda: store.points(since=since))
    key = next(iter(store.series()))
    yield "one series, all nights", timed(lambda: store.points(series_keys=[key]))
    yield "regressions over all series", timed(lambda: find_regressions(store, Question()))
    yield "a run by the beginning of its id", timed(lambda: store.run_ids("abc"))
    yield "progress of all campaigns", timed(store.progress)


def tables_mb(path: Path) -> dict[str, float]:
    """Return the size of each table and index, where this SQLite can tell."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 12")
            return {name: round(size / 1e6, 1) for name, size in found}
        except sqlite3.OperationalError:
            return {}


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument(
        "--build-nights", type=int, default=30, help="nights until the next build; 1 is a new one each night"
    )
    parser.add_argument("--samples", type=Path, required=True, help="a store that a campaign of virtual phones filled")
    parser.add_argument("--postgresql", default="", help="URL of an empty database; an SQLite file when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "year.sqlite"
        store = open_store(options.postgresql or path)
        assert isinstance(store, SqlStore)
        start = time.perf_counter()
        year = Year(store, read_samples(options.samples), options.nights, options.build_nights)
        for night in range(options.nights):
            year.night(night)
        build_s = time.perf_counter() - start
        with store._database.reading() as connection:
            runs = connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
            body = connection.exec_driver_sql("SELECT avg(length(body)) FROM runs").scalar_one()
            if options.postgresql:
                size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
            else:
                pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                size = pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        figures = {
            "nights": options.nights,
            "runs": runs,
            "size_bytes": size,
            "bytes_per_run": round(size / runs, 1),
            "body_bytes": round(float(body), 1),
            "raw_bytes": round(statistics.mean(sum(len(c) for _, c in item.sections) for item in chain(*year.samples))),
            "year_gb": round(size / runs * 365 * year.level.size / 1e9, 3),
            "build_s": round(build_s, 1),
            "load": os.getloadavg()[0],
            "wall_and_cpu_s": {
                name: [round(value, 3) for value in seconds] for name, seconds in questions(store, options.nights)
            },
            "changes_found": len(find_regressions(store, Question()).changes),
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "sqlite": sqlite3.sqlite_version,
        }
        store.close()
        if not options.postgresql:
            figures["tables_mb"] = tables_mb(path)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
