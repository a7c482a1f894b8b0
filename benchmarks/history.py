"""A year of a lab in one store: its size, and how long the questions over many nights take.

    python benchmarks/history.py --samples STORE [--nights 365] [--build-every 30] [--keep FILE]
    python benchmarks/history.py --samples STORE --private-postgresql FOLDER
    python benchmarks/history.py --keep FILE --measure

40 phones x 30 models x 6 configurations, one invocation a night. The bodies are real ones: what campaigns of virtual
phones printed (``--samples``, a store with three runs of each case or more), packed with report, verdict and states by
the store itself against another run of the same series. To be done in minutes they are used again and again, and rows
are inserted in bulk; campaigns, cases, plans and sheets are written by the store's own methods. Each series has a
pattern of its own. No run has a finding, as the trusted runs of real phones. One step of 8 % in 60 series is built in.
A store that is kept (``--keep``, ``--private-postgresql``) is resumed where it ends, and measured again in
seconds. Reading is measured against the same question in plain SQL, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from sqlalchemy import Connection, delete, insert, select

from orchestrator.extensions.history.regressions import Question, find_regressions
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Model, ToolName
from orchestrator.store.bodies import pack, pattern_of, unpack
from orchestrator.store.cases import keep_cases, pack_plan
from orchestrator.store.figures import MADE_UP, keep_sheets, without_sheet
from orchestrator.store.opening import Store, open_store
from orchestrator.store.rows import documents_of, summary_of
from orchestrator.store.tables import CAMPAIGNS, CASES, PATTERNS, PLANS, RUNS, SHEETS

sys.path.insert(0, str(Path(__file__).parent))
from private_postgresql import private_server

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
    """A run of a virtual phone: its summary columns, and its sections as bodies.py takes them."""

    figures: dict[str, Any]
    sections: list[tuple[str, bytes]]


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
    bodies: list[tuple[dict[str, Any], bytes]]


def pool_of(first: Sample, *others: Sample) -> Pool:
    """Return what a store keeps of a series' runs."""
    alone = pack(first.sections)
    assert unpack(alone, where="a sample") == first.sections
    pattern = pattern_of(zstandard.ZstdDecompressor().decompress(alone))
    return Pool(alone, [(item.figures, pack(item.sections, pattern)) for item in others])


class Year:
    """Fills a store night by night."""

    def __init__(self, store: Store, samples: list[list[Sample]], nights: int, build_nights: int) -> None:
        self.store = store
        generator = np.random.default_rng(20261122)
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
        self.level = np.exp(generator.normal(9, 1, PHONES * MODELS * len(CONFIGURATIONS)))
        self.noise = np.exp(generator.uniform(np.log(0.003), np.log(0.015), self.level.size))
        self.pools = [pool_of(*samples[place % len(samples)]) for place in range(len(CONFIGURATIONS))]
        self.pattern_of: dict[int, int] = {}
        self.build_now = ""

    def night(self, number: int) -> None:
        """Store one campaign, or what of it isn't stored yet."""
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
        if self.store.campaign(campaign.campaign_id) is None:
            self.store.begin_campaign(campaign, devices=self.phones, models=self.models, builds=[build])
        with self.store.writing() as connection:
            if build.sha256 != self.build_now:
                self._cases(connection, build)
            campaign_no = connection.scalar(
                select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign.campaign_id)
            )
            self._insert(connection, number, campaign_no, at)
        self.store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, campaign.finished_at)

    def _cases(self, connection: Connection, build: Build) -> None:
        """Store the cases of a build, as begin_campaign does, and a pattern for each series that is new."""
        self.build_now = build.sha256
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
        numbers = keep_cases(connection, cases, "the year")
        self.case_no = [numbers[case.case_key] for case in cases]
        series_of = dict(connection.execute(select(CASES.c.case_no, CASES.c.series_no)).all())
        stored = dict(connection.execute(select(PATTERNS.c.series_no, PATTERNS.c.pattern_no)).all())
        self.pattern_of = {
            place: stored.get(series_of[case_no]) or self._pattern(connection, place, series_of[case_no])
            for place, case_no in enumerate(self.case_no)
        }

    def _pattern(self, connection: Connection, place: int, series_no: int) -> int:
        """Store a series' pattern, as the first run of the series would."""
        row = {"series_no": series_no, "run_pass": "timing", "outcome": "completed"}
        body = self.pools[place % len(CONFIGURATIONS)].pattern
        number: int = connection.execute(insert(PATTERNS), {**row, "body": body}).inserted_primary_key[0]
        return number

    def _insert(self, connection: Connection, number: int, campaign_no: int, at: datetime) -> None:
        count = self.level.size
        generator = np.random.default_rng([20261122, number])
        figures = self.level * np.exp(generator.normal(0, self.noise))
        if number >= self.nights - STEP_NIGHTS:
            figures[:: figures.size // STEPS] *= 1.08
        order = generator.permutation(count).tolist()
        picks = generator.integers(0, 1 << 30, count).tolist()
        rows = []
        for place in order:
            us = round(float(figures[place]))
            bodies = self.pools[place % len(CONFIGURATIONS)].bodies
            sample, body = bodies[picks[place] % len(bodies)]
            rows.append(
                {
                    "run_id": uuid.UUID(int=int(generator.integers(1 << 62)) << 64 | place, version=4).hex,
                    "campaign_no": campaign_no,
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
        order = generator.permutation(len(rows))
        planned = [(self.case_no[place], "timing", 0) for place in order.tolist()]
        plan = {"campaign_no": campaign_no, "invocation_count": len(planned), "body": pack_plan(planned)}
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


def questions(store: Store, nights: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield what was asked, and how many seconds it took."""
    since = START + timedelta(days=nights - 90)
    with store.reading() as connection:
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
    yield "making up for a night's sheet", timed(lambda: made_up(store))


def made_up(store: Store) -> None:
    """Make the newest night's sheet again."""
    with store.writing() as connection:
        newest = select(SHEETS.c.campaign_no).order_by(SHEETS.c.campaign_no.desc()).limit(1)
        connection.execute(delete(SHEETS).where(SHEETS.c.campaign_no == newest.scalar_subquery()))
        keep_sheets(connection, without_sheet(connection, MADE_UP))


def tables_mb(path: Path) -> dict[str, float]:
    """Return the size of each table and index, where this SQLite can tell."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 12")
            return {name: round(size / 1e6, 1) for name, size in found}
        except sqlite3.OperationalError:
            return {}


def size_of(store: Store) -> int:
    """Return the bytes of a store's database."""
    with store.reading() as connection:
        if connection.dialect.name == "postgresql":
            size: int = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
            return size
        pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return pages * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def built(store: Store, options: argparse.Namespace) -> dict[str, object]:
    """Build what isn't there of the nights; return how it went."""
    progress = store.progress()
    year = Year(store, read_samples(options.samples), options.nights, options.build_every)
    start, cpu = time.perf_counter(), time.process_time()
    growth = {}
    there = sum(stored > 0 for stored, _ in progress.values())
    for night in range(there, options.nights):
        year.night(night)
        if (night + 1) % 30 == 0:
            growth[night + 1] = round(size_of(store) / 1e6, 1)
    return {
        "nights_built": max(0, options.nights - there),
        "build_wall_and_cpu_s": [round(time.perf_counter() - start, 1), round(time.process_time() - cpu, 1)],
        "growth_mb": growth,
        "raw_bytes": round(statistics.mean(sum(len(c) for _, c in item.sections) for item in chain(*year.samples))),
    }


def measured(store: Store, path: Path | None) -> dict[str, object]:
    """Return the size of a store and how long its questions take."""
    nights = len(store.campaigns())
    size = size_of(store)
    with store.reading() as connection:
        runs = connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
        body = connection.exec_driver_sql("SELECT avg(length(body)) FROM runs").scalar_one()
    return {
        "nights": nights,
        "runs": runs,
        "size_bytes": size,
        "bytes_per_run": round(size / runs, 1),
        "body_bytes": round(float(body), 1),
        "load": os.getloadavg()[0],
        "wall_and_cpu_s": {name: [round(value, 3) for value in seconds] for name, seconds in questions(store, nights)},
        "changes_found": len(find_regressions(store, Question()).changes),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "sqlite": sqlite3.sqlite_version,
        **({} if path is None else {"tables_mb": tables_mb(path)}),
    }


def main() -> None:
    """Build, measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument(
        "--build-every", type=int, default=30, help="nights until the next build; 1 is a new one each night"
    )
    parser.add_argument("--samples", type=Path, help="a store that a campaign of virtual phones filled")
    parser.add_argument("--keep", type=Path, help="SQLite file that is kept, and resumed; a new one when left out")
    parser.add_argument("--postgresql", default="", help="URL of a database of its own")
    parser.add_argument("--private-postgresql", type=Path, help="folder of a private server, kept and resumed")
    parser.add_argument("--measure", action="store_true", help="measure what is there and build nothing")
    options = parser.parse_args()
    if not options.measure and options.samples is None:
        parser.error("--samples is needed to build")
    with ExitStack() as stack:
        path = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "year.sqlite"
        where: str | Path = options.postgresql or path
        if options.private_postgresql:
            where = stack.enter_context(private_server(options.private_postgresql))
        store = open_store(where)
        assert isinstance(store, Store)
        figures = {} if options.measure else built(store, options)
        figures |= measured(store, path if where is path else None)
        store.close()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
