"""A year of a lab in one store: its size, and how long the questions over many nights take.

    python benchmarks/history.py [--nights 36] --samples STORE [--postgresql URL]

40 phones x 30 models x 6 configurations, one invocation a night. The bodies are real ones: what campaigns of virtual
phones printed (``--samples``, a store with two runs of each case or more), packed with report, verdict and states by
the store itself, against the first run of the case. To be done in minutes they are used again and again, and rows are
inserted in bulk; each series has a pattern of its own. A new build every 30 nights. No run has a finding, as the
trusted runs of real phones. The reading is measured against the same question in plain SQL.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from sqlalchemy import insert

from orchestrator.engine.history import Question, find_regressions
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Model, ToolName
from orchestrator.store.opening import open_store
from orchestrator.store.packing import NOTHING, Pattern, pack
from orchestrator.store.registry import insert_case
from orchestrator.store.sql import SqlStore
from orchestrator.store.tables import INVOCATIONS, PATTERNS, RUNS

START = datetime(2025, 11, 1, 22, tzinfo=UTC)
PHONES, MODELS = 40, 30
CONFIGURATIONS = [(d, t) for d in (DelegateName.XNNPACK, DelegateName.CPU) for t in (1, 4)] + [
    (DelegateName.GPU, 1),
    (DelegateName.NNAPI, 1),
]
BUILD_NIGHTS = 30


def sample_sections(source: Path) -> list[list[tuple[str, bytes]]]:
    """Return the sections of the runs of a store that a campaign of a virtual phone filled."""
    from orchestrator.store.rows import documents_of

    store = open_store(source)
    found = []
    for run in store.runs(with_attachments=True):
        documents = {name: text for name, text in documents_of(run).items() if text is not None}
        sections = [(f"document:{name}", text.encode()) for name, text in documents.items()]
        sections += [(f"attachment:{item.name}", item.data) for item in run.attachments]
        # The id of a run is known to its reader and costs a byte or two; here it would tie a body to one run.
        found.append([(name, content.replace(run.run_id.encode(), b"0" * 31 + b"1")) for name, content in sections])
    store.close()
    return found


class Year:
    """Fills a store night by night."""

    def __init__(self, store: SqlStore, samples: list[list[tuple[str, bytes]]]) -> None:
        self.store = store
        self.generator = np.random.default_rng(20261122)
        self.samples = samples
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
        self.pools = [self._pool(place) for place in range(len(CONFIGURATIONS))]
        self.pattern_of: dict[int, int] = {}

    def _pool(self, place: int) -> tuple[bytes, list[bytes]]:
        groups: dict[str, list[list[tuple[str, bytes]]]] = {}
        for item in self.samples:
            groups.setdefault(re.sub("runs/[0-9a-f]+", "", item[0][1].decode()), []).append(item)
        same = list(groups.values())[place % len(groups)]
        first = same[0]
        pattern = Pattern(first)
        bodies = [pack(sections, pattern, known=[b"0" * 31 + b"1"]) for sections in same[1:]]
        return pack(first, NOTHING), bodies

    def night(self, number: int) -> None:
        """Store one campaign."""
        build = Build(
            name="native",
            tool=ToolName.NATIVE,
            sha256=BuildSha(f"{number // BUILD_NIGHTS:064x}"),
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
        if number % BUILD_NIGHTS == 0:
            self.case_no = self._cases(build)
        self._insert(number, at)

    def _cases(self, build: Build) -> list[int]:
        numbers = []
        with self.store._database.writing() as connection:
            place = 0
            for device, phone in enumerate(self.phones):
                for model in self.models:
                    for configuration, (delegate, threads) in enumerate(CONFIGURATIONS):
                        case = Case(
                            serial=phone.serial,
                            model_sha256=model.sha256,
                            model_name=model.name,
                            delegate=delegate,
                            threads=threads,
                            tool=ToolName.NATIVE,
                            build_sha256=build.sha256,
                        )
                        numbers.append(insert_case(connection, case, device_no=device + 1, is_virtual=True))
                        if place not in self.pattern_of:
                            row = {
                                "series_key": case.series_key,
                                "run_pass": "timing",
                                "outcome": "completed",
                                "body": self.pools[configuration][0],
                            }
                            key = connection.execute(insert(PATTERNS), row).inserted_primary_key
                            self.pattern_of[place] = key[0]
                        place += 1
        return numbers

    def _insert(self, number: int, at: datetime) -> None:
        count = self.level.size
        figures = self.level * np.exp(self.generator.normal(0, self.noise))
        order = self.generator.permutation(count).tolist()
        picks = self.generator.integers(0, 1 << 30, count).tolist()
        rows = []
        for place in order:
            us = round(float(figures[place]))
            configuration = place % len(CONFIGURATIONS)
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
                    **dict.fromkeys(("latency_us", "first_us", "min_us", "max_us", "p5_us", "median_us", "p95_us"), us),
                    "inference_count": 50,
                    "mean_us": us + 0.25,
                    "std_us": 17.0,
                    "init_us": 4695.0,
                    "first_inference_us": 7162.0,
                    "warmup_mean_us": us + 0.43,
                    "init_memory_mib": 7.77734,
                    "overall_memory_mib": 8.19531,
                    "peak_memory_mib": None,
                    "delegate_actual": CONFIGURATIONS[configuration][0].value,
                    "delegate_truth": "full",
                    "pattern_no": self.pattern_of[place],
                    "body": self.pools[configuration][1][picks[place] % len(self.pools[configuration][1])],
                }
            )
        planned = [
            {
                "campaign_no": number + 1,
                "position": position,
                "case_no": row["case_no"],
                "run_pass": "timing",
                "number": 0,
            }
            for position, row in enumerate(rows)
        ]
        with self.store._database.writing() as connection:
            connection.execute(insert(INVOCATIONS), planned)
            connection.execute(insert(RUNS), rows)


def timed(work) -> float:
    """Return the median of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def questions(store: SqlStore, nights: int) -> Iterator[tuple[str, float]]:
    """Yield what was asked, and how many seconds it took."""
    since = START + timedelta(days=nights - 90)
    yield "last 90 nights of every series", timed(lambda: store.points(since=since))
    key = next(iter(store.series()))
    yield "one series, all nights", timed(lambda: store.points(series_keys=[key]))
    yield "regressions over all series", timed(lambda: find_regressions(store, Question()))
    yield "a run by the beginning of its id", timed(lambda: store.run_ids("abc"))


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=36)
    parser.add_argument("--samples", type=Path, required=True, help="a store that a campaign of virtual phones filled")
    parser.add_argument("--postgresql", default="", help="URL of an empty database; an SQLite file when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "year.sqlite"
        store = open_store(options.postgresql or path)
        assert isinstance(store, SqlStore)
        start = time.perf_counter()
        year = Year(store, sample_sections(options.samples))
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
            "raw_bytes": round(float(np.mean([sum(len(c) for _, c in item) for item in year.samples]))),
            "year_gb": round(size / runs * 365 * year.level.size / 1e9, 3),
            "build_s": round(build_s, 1),
            "questions_s": {name: round(seconds, 3) for name, seconds in questions(store, options.nights)},
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "sqlite": sqlite3.sqlite_version,
        }
        if not options.postgresql:
            with sqlite3.connect(path) as plain:
                query = (
                    "SELECT case_no, campaign_no, latency_us FROM runs WHERE campaign_no > ? AND run_pass = 'timing'"
                )
                floor = timed(lambda: plain.execute(query, (options.nights - 90,)).fetchall())
            figures["plain_sql_last_90_nights_s"] = round(floor, 3)
        store.close()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
