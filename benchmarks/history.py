"""A year of a lab in one store: its size, and how long the questions over many nights take.

    python benchmarks/history.py --samples STORE [--nights 365] [--build-every 30] [--keep FILE]
    python benchmarks/history.py --samples STORE --private-postgresql FOLDER
    python benchmarks/history.py --keep FILE --measure

40 phones x 30 models x 6 configurations, one run a night. Documents and output are real ones: what
campaigns of virtual phones left (``--samples``, a store), packed by the store itself. To be done in
minutes they are used again and again, and rows are inserted in bulk; campaigns, cases and plans are
written by the store's own methods. One step of 8 % in 60 series is built in. A store that is kept
(``--keep``, ``--private-postgresql``) is resumed where it ends, and measured again in seconds.
Reading is measured against the same question in plain SQL, in turns.
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
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert, select

from orchestrator.extensions.history.regressions import Question, find_regressions
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    Build,
    BuildSha,
    CampaignId,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    Serial,
    ToolName,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.store.opening import Store, open_store
from orchestrator.store.runs import row_of
from orchestrator.store.schema import CAMPAIGNS, CASES, RUNS, pack_output

sys.path.insert(0, str(Path(__file__).parent))
from private_postgresql import private_server

START = datetime(2025, 11, 1, 22, tzinfo=UTC)
PHONES, MODELS = 40, 30
#: Series that get slower, and how many nights before the last.
STEPS, STEP_NIGHTS = 60, 10
CONFIGURATIONS = [(d, t) for d in (DelegateName.XNNPACK, DelegateName.CPU) for t in (1, 4)] + [
    (DelegateName.GPU, 1),
    (DelegateName.NNAPI, 1),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of a virtual phone: its row, and how many bytes it left."""

    row: dict[str, Any]
    size_bytes: int


def read_samples(source: Path) -> list[Sample]:
    """Return the completed runs of a store that campaigns of virtual phones filled."""
    store = open_store(source)
    found = [
        Sample(
            row_of(run) | {"output": pack_output(run.attachments, run.case.tool)},
            sum(len(item.data) for item in run.attachments),
        )
        for run in store.runs(with_attachments=True)
        if run.latency_us is not None
    ]
    store.close()
    if not found:
        raise SystemExit(f"{source}: holds no run with a figure")
    return found


class Year:
    """Fills a store night by night."""

    def __init__(self, store: Store, samples: list[Sample], nights: int, build_nights: int) -> None:
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
        self.models = [
            Model(name=f"m{n}.tflite", sha256=ModelSha(f"{n:064x}"), size_bytes=1)
            for n in range(MODELS)
        ]
        self.level = np.exp(generator.normal(9, 1, PHONES * MODELS * len(CONFIGURATIONS)))
        self.noise = np.exp(generator.uniform(np.log(0.003), np.log(0.015), self.level.size))

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
        order = np.random.default_rng(number).permutation(len(cases)).tolist()
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
            invocations=tuple(
                Invocation(case=cases[place], run_pass=Pass.TIMING, number=0) for place in order
            ),
        )
        if self.store.campaign(campaign.campaign_id) is None:
            self.store.begin_campaign(
                campaign, devices=self.phones, models=self.models, builds=[build]
            )
        with self.store.writing() as connection:
            known = dict(connection.execute(select(CASES.c.case_key, CASES.c.case_no)).all())
            numbers = [known[case.case_key] for case in cases]
            of_campaign = CAMPAIGNS.c.campaign_id == campaign.campaign_id
            campaign_no = connection.scalar(select(CAMPAIGNS.c.campaign_no).where(of_campaign))
            connection.execute(insert(RUNS), self._rows(number, campaign_no, numbers, at))
        self.store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, campaign.finished_at)

    def _rows(
        self, number: int, campaign_no: int, case_nos: list[int], at: datetime
    ) -> list[dict[str, Any]]:
        generator = np.random.default_rng([20261122, number])
        figures = self.level * np.exp(generator.normal(0, self.noise))
        if number >= self.nights - STEP_NIGHTS:
            figures[:: figures.size // STEPS] *= 1.08
        picks = generator.integers(0, len(self.samples), figures.size).tolist()
        rows = []
        for place in generator.permutation(figures.size).tolist():
            us = round(float(figures[place]))
            rows.append(
                self.samples[picks[place]].row
                | {
                    "run_id": uuid.UUID(
                        int=int(generator.integers(1 << 62)) << 64 | place, version=4
                    ).hex,
                    "campaign_no": campaign_no,
                    "case_no": case_nos[place],
                    "is_virtual": True,
                    "run_pass": "timing",
                    "invocation": 0,
                    "quality": "trusted",
                    "started_at": at + timedelta(seconds=place),
                    "duration_s": us / 1000.0,
                    "latency_us": us,
                }
            )
        return rows


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
        plain = "SELECT case_no, campaign_no, latency_us, quality FROM runs WHERE campaign_no > {} AND run_pass = 'timing'"
        yield (
            "plain SQL, last 90 nights",
            timed(
                lambda: connection.connection.cursor().execute(plain.format(nights - 90)).fetchall()
            ),
        )
    yield "last 90 nights of every series", timed(lambda: store.points(since=since))
    key = next(iter(store.series()))
    yield "one series, all nights", timed(lambda: store.points(series_keys=[key]))
    yield "regressions over all series", timed(lambda: find_regressions(store, Question()))
    yield "a run by the beginning of its id", timed(lambda: store.run_ids("abc"))
    yield "progress of all campaigns", timed(store.progress)
    yield "opening, and the newest campaigns", timed(lambda: opened(store))


def opened(store: Store) -> None:
    """Do what a first command does."""
    again = open_store(store.path or store.name)
    again.campaigns(limit=20)
    again.progress(only_open=True)
    again.close()


def tables_mb(path: Path) -> dict[str, float]:
    """Return the size of each table and index, where this SQLite can tell."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute(
                "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 12"
            )
            return {name: round(size / 1e6, 1) for name, size in found}
        except sqlite3.OperationalError:
            return {}


def size_of(store: Store) -> int:
    """Return the bytes of a store's database."""
    with store.reading() as connection:
        if connection.dialect.name == "postgresql":
            size: int = connection.exec_driver_sql(
                "SELECT pg_database_size(current_database())"
            ).scalar_one()
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
        "build_wall_and_cpu_s": [
            round(time.perf_counter() - start, 1),
            round(time.process_time() - cpu, 1),
        ],
        "growth_mb": growth,
        "raw_bytes": round(statistics.mean(item.size_bytes for item in year.samples)),
    }


def measured(store: Store, path: Path | None) -> dict[str, object]:
    """Return the size of a store and how long its questions take."""
    nights = len(store.campaigns())
    size = size_of(store)
    with store.reading() as connection:
        runs = connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
        body = connection.exec_driver_sql(
            "SELECT avg(length(document) + length(output)) FROM runs"
        ).scalar_one()
    return {
        "nights": nights,
        "runs": runs,
        "size_bytes": size,
        "bytes_per_run": round(size / runs, 1),
        "body_bytes": round(float(body), 1),
        "load": os.getloadavg()[0],
        "wall_and_cpu_s": {
            name: [round(value, 3) for value in seconds]
            for name, seconds in questions(store, nights)
        },
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
        "--build-every",
        type=int,
        default=30,
        help="nights until the next build; 1 is a new one each night",
    )
    parser.add_argument(
        "--samples", type=Path, help="a store that a campaign of virtual phones filled"
    )
    parser.add_argument(
        "--keep", type=Path, help="SQLite file that is kept, and resumed; a new one when left out"
    )
    parser.add_argument("--postgresql", default="", help="URL of a database of its own")
    parser.add_argument(
        "--private-postgresql", type=Path, help="folder of a private server, kept and resumed"
    )
    parser.add_argument(
        "--measure", action="store_true", help="measure what is there and build nothing"
    )
    options = parser.parse_args()
    if not options.measure and options.samples is None:
        parser.error("--samples is needed to build")
    with ExitStack() as stack:
        path = (
            options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "year.sqlite"
        )
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
