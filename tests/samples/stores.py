"""Stores of every kind, a private PostgreSQL server, and the records that stores are filled with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
    RunId,
    Serial,
    SkippedCase,
    ToolName,
)
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import (
    Attachment,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    Outcome,
    RunRecord,
)
from orchestrator.records.run import ToolReport as Report
from orchestrator.records.verdict import Finding, Quality, QualityVerdict, Severity
from orchestrator.store.opening import Store
from tests.samples.postgresql import Cluster, private_cluster

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
    """Records as a small farm makes them; every part that a test cares about can be given."""

    phone = DeviceFacts(
        serial=Serial("8A2X0K1"),
        kind=DeviceKind.ANDROID,
        is_virtual=False,
        manufacturer="Google",
        model="Pixel 4",
        codename="flame",
        sdk=33,
        abis=("arm64-v8a", "armeabi-v7a"),
        clusters=(
            CpuCluster(cpus=(0, 1, 2, 3), min_khz=300_000, max_khz=1_785_600),
            CpuCluster(cpus=(4, 5, 6, 7), min_khz=None, max_khz=2_841_600),
        ),
        memory_bytes=5_700_000_000,
        properties={"ro.product.model": "Pixel 4", "ro.odd": 'quotes " and \\ and \x00'},
    )
    virtual_phone = DeviceFacts(
        serial=Serial("VIRTUAL-1"), kind=DeviceKind.ANDROID, is_virtual=True, model="Pixel 3"
    )
    model = Model(
        name="mobilenet.tflite",
        sha256=ModelSha("aa" * 32),
        size_bytes=987_654,
        path=Path("/models/m.tflite"),
    )
    build = Build(
        name="native-arm64",
        tool=ToolName.NATIVE,
        sha256=BuildSha("bb" * 32),
        abi="arm64-v8a",
        version="2.17",
        path=Path("/builds/benchmark_model"),
    )

    def case(self, **changes: object) -> Case:
        values: dict[str, object] = {
            "serial": self.phone.serial,
            "model_sha256": self.model.sha256,
            "model_name": self.model.name,
            "delegate": DelegateName.XNNPACK,
            "threads": 4,
            "tool": ToolName.NATIVE,
            "build_sha256": self.build.sha256,
            "flags": (("enable_op_profiling", "true"), ("graph", 'it\'s "$(odd)"\n')),
            **changes,
        }
        return Case(**values)  # type: ignore[arg-type]

    def campaign(self, campaign_id: str = "night-1", **changes: object) -> Campaign:
        values: dict[str, object] = {
            "campaign_id": CampaignId(campaign_id),
            "name": "nightly",
            "created_at": START,
            "status": CampaignStatus.RUNNING,
            "plan_text": "models:\n  - 'mobilenet.tflite'  # \\ and \x00 and ü\n",
            "seed": 2**63 - 1,
            "benchfarm_version": "0.1.0",
            "host": "farm-1",
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
            **changes,
        }
        return Campaign(**values)  # type: ignore[arg-type]

    def begin(self, store: Store, campaign: Campaign | None = None) -> Campaign:
        """Store a campaign with all that it may refer to, and return it."""
        begun = campaign or self.campaign()
        store.begin_campaign(
            begun,
            devices=[self.phone, self.virtual_phone],
            models=[self.model],
            builds=[self.build],
        )
        return begun

    def run(self, invocation: int = 0, **changes: object) -> RunRecord:
        campaign_id = changes.get("campaign_id", "night-1")
        values: dict[str, object] = {
            "run_id": RunId(f"{campaign_id}-{changes.get('run_pass', Pass.TIMING)}-{invocation}"),
            "campaign_id": CampaignId("night-1"),
            "case": self.case(),
            "run_pass": Pass.TIMING,
            "invocation": invocation,
            "outcome": Outcome.COMPLETED,
            "reason_code": "",
            "reason": "",
            "is_virtual": False,
            "started_at": START + timedelta(seconds=invocation),
            "duration_s": 12.25,
            "command": "./benchmark_model --graph='m 1.tflite'",
            "exit_code": 0,
            "attachments": (
                Attachment(name="stdout", data=b""),
                Attachment(
                    name="stderr",
                    data=b"Inference timings in us: 6012\n" * 40 + bytes([invocation % 256]),
                ),
                Attachment(name="result.pb", data=bytes(range(256))),
                # Too large to lie in its run.
                Attachment(
                    name="trace", data=b"one slice of a trace\n" * 4000 + bytes([invocation % 256])
                ),
            ),
            "report": self.report(6000.5 + invocation),
            "verdict": QualityVerdict(
                quality=Quality.SUSPECT,
                findings=(
                    Finding(
                        code="spread-wide",
                        severity=Severity.WARNING,
                        message="spread",
                        evidence="cv=0.09",
                    ),
                    Finding(code="thermal-rise", severity=Severity.INFO, message="it got warmer"),
                ),
            ),
            "state_before": DeviceState(
                at=START,
                heat_c={"cpu-1-0-usr": 41.5},
                clock_khz={0: 1_785_600, 4: 2_841_600},
                time_in_state={4: {710_400: 12, 2_841_600: 99}},
                screen_on=False,
            ),
            **changes,
        }
        return RunRecord(**values)  # type: ignore[arg-type]

    def report(self, median_us: float) -> Report:
        return Report(
            outcome="ok",
            init_us=1234,
            inference=LatencySummary(
                count=50, median_us=median_us, mean_us=median_us + 3, std_us=1e-3
            ),
            inference_mean_us=median_us + 3,
            delegate=DelegateEvidence(
                requested="xnnpack",
                truth=DelegateTruth.FULL,
                lines=("Replacing 31 out of 31",),
                cpu_operators=(("A", "b"),),
            ),
            echoed={"Num threads": "4"},
            extra={"edge_mib": 1.5, "note": "text"},
        )


@pytest.fixture(scope="session")
def samples() -> Samples:
    """Records to fill stores with."""
    return Samples()
