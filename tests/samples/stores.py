"""Stores of every kind, a private PostgreSQL server, and the records that stores are filled with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    CampaignId,
    Case,
    DelegateName,
    Pass,
    RunId,
    Serial,
    SkippedCase,
    ToolName,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Attachment, RunRecord, ToolReport
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store.opening import Store
from tests.samples.postgresql import Cluster, private_cluster
from tests.samples.sample_lab import (
    MOBILENET,
    NATIVE,
    PIXEL_3,
    REAL_PIXEL,
    campaign_of,
    case,
    run,
)

if TYPE_CHECKING:
    from orchestrator.extensions.farm.queue import FarmQueue

START = datetime(2026, 3, 1, 22, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    """A private server, gone at the end. Nothing here has to survive a power cut."""
    with private_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgresql_template(postgresql: Cluster) -> str:
    """The name of a database with the store's tables, from which each test's own is copied."""
    from orchestrator.store.opening import open_store

    name = postgresql.create()
    open_store(postgresql.url(name)).close()
    return name


@pytest.fixture
def url(postgresql: Cluster) -> str:
    """The URL of a database in which nothing is."""
    return postgresql.url(postgresql.create())


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], FarmQueue]]:
    """Opens the queue of that database, as often as it is called."""
    from orchestrator.extensions.farm.queue import FarmQueue

    with ExitStack() as stack:
        yield lambda: stack.enter_context(FarmQueue(url))


@pytest.fixture(params=["sqlite", "postgresql"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens one empty store of each kind; called again, it opens the same one once more."""
    from orchestrator.store.opening import open_store

    opened: list[Store] = []
    if request.param == "sqlite":
        where = str(tmp_path / "runs.sqlite")
    else:
        cluster: Cluster = request.getfixturevalue("postgresql")
        where = cluster.url(cluster.create(request.getfixturevalue("postgresql_template")))

    def open_once_more() -> Store:
        opened.append(open_store(where))
        return opened[-1]

    yield open_once_more
    for store in opened:
        store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def unused_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where no store has ever been: the path of a file, or the URL of a database without tables."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    cluster: Cluster = request.getfixturevalue("postgresql")
    return cluster.url(cluster.create())


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Store:
    """An empty store of each kind."""
    return reopen()


class Samples:
    """Records with what a store may lose: odd texts, large numbers, attachments of every size."""

    phone = replace(REAL_PIXEL, properties={"ro.odd": 'quotes " and \\ and \x00'})
    virtual_phone = PIXEL_3
    model = replace(MOBILENET, path=Path("/models/m.tflite"))
    build = replace(NATIVE, path=Path("/builds/benchmark_model"))

    def case(self, **changes: object) -> Case:
        made = case(self.phone, flags=(("graph", 'it\'s "$(odd)"\n'),))
        return replace(made, **changes)  # type: ignore[arg-type]

    def campaign(self, campaign_id: str = "night-1", **changes: object) -> Campaign:
        values: dict[str, object] = {
            "campaign_id": CampaignId(campaign_id),
            "created_at": START,
            "status": CampaignStatus.RUNNING,
            "finished_at": None,
            "plan_text": "models:\n  - 'mobilenet.tflite'  # \\ and \x00 and ü\n",
            "seed": 2**63 - 1,
            "invocations": tuple(
                Invocation(case=self.case(threads=threads), run_pass=run_pass, number=number)
                for number in (1, 0)
                for threads in (4, 1)
                for run_pass in (Pass.TIMING, Pass.MEMORY)
            ),
            "skipped": (
                SkippedCase(
                    serial=Serial("never-attached"),
                    model_name=self.model.name,
                    delegate=DelegateName.HEXAGON,
                    threads=1,
                    tool=ToolName.NATIVE,
                    reason_code="delegate-not-on-soc",
                    reason="this SoC has no Hexagon DSP",
                ),
            ),
        }
        return campaign_of((), **(values | changes))

    def begin(
        self,
        store: Store,
        campaign: Campaign | None = None,
        devices: Sequence[DeviceFacts] | None = None,
    ) -> Campaign:
        """Store a campaign with all that it may refer to, and return it."""
        begun = campaign or self.campaign()
        store.begin_campaign(
            begun,
            devices=devices or [self.phone, self.virtual_phone],
            models=[self.model],
            builds=[self.build],
        )
        return begun

    def night(
        self,
        store: Store,
        campaign_id: str,
        days: float = 0,
        devices: Sequence[DeviceFacts] | None = None,
        **changes: object,
    ) -> CampaignId:
        """Store a campaign for which nothing is planned, so many days after the first; return its
        id.
        """
        created = START + timedelta(days=days)
        values: dict[str, object] = {"created_at": created, "invocations": (), "skipped": ()}
        campaign = self.campaign(campaign_id, **(values | changes))
        return self.begin(store, campaign, devices).campaign_id

    def keep(self, store: Store, campaign_id: str, number: int = 0, **changes: Any) -> RunRecord:
        """Store a run of a campaign, and return it."""
        kept = self.run(number, campaign_id=CampaignId(campaign_id), **changes)
        assert store.append_run(kept)
        return kept

    def run(self, invocation: int = 0, **changes: Any) -> RunRecord:
        campaign_id = changes.get("campaign_id", CampaignId("night-1"))
        last = bytes([invocation % 256])
        values: dict[str, Any] = {
            "run_id": RunId(f"{campaign_id}-{changes.get('run_pass', Pass.TIMING)}-{invocation}"),
            "campaign_id": campaign_id,
            "started_at": START + timedelta(seconds=invocation),
            "attachments": (
                Attachment(name="stdout", data=b""),
                Attachment(name="stderr", data=b"Inference timings in us: 6012\n" * 40 + last),
                Attachment(name="result.pb", data=bytes(range(256))),
                # Too large to lie in its run.
                Attachment(name="trace", data=b"one slice of a trace\n" * 4000 + last),
            ),
            "verdict": QualityVerdict(
                quality=Quality.SUSPECT,
                findings=(
                    Finding(code="spread-wide", severity=Severity.WARNING, message="spread"),
                    Finding(code="thermal-rise", severity=Severity.INFO, message="it got warmer"),
                ),
            ),
        }
        return run(self.case(), invocation, 6000.5 + invocation, **(values | changes))

    def report(self, median_us: float) -> ToolReport:
        report = run(self.case(), latency_us=median_us).report
        assert report is not None
        return report


@pytest.fixture(scope="session")
def samples() -> Samples:
    """Records to fill stores with."""
    return Samples()
