"""A farm in the middle of its night: phones in every state, jobs, and weeks of history behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.extensions.farm.manifest import dump
from orchestrator.extensions.farm.queue import IN_QUARANTINE, Announced, FarmQueue
from orchestrator.extensions.history.series import night_of
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    Build,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    Serial,
    ToolName,
    campaign_id_of,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import Store
from tests.samples.history_lab import NEW, case_of, plain, run_of
from tests.samples.submissions import begin, host_lives, submit

WORKING, FREE, KEPT_OUT, BROKEN, VIRTUAL, AWAY = (
    "pixel-4-a",
    "pixel-6-a",
    "pixel-5-x",
    "s10-b",
    "virtual-3",
    "s22-c",
)
TITLES = {
    WORKING: "Pixel 4",
    FREE: "Pixel 6",
    KEPT_OUT: "Pixel 5",
    BROKEN: "Galaxy S10",
    VIRTUAL: "Pixel 3",
    AWAY: "Galaxy S22",
}
REASON = "its reference workload moved by 12.0 % (since 2026-03-09 03:12)"
SUBMISSION = "nightly-20260309"
PLANNED, STORED = 6, 4


def facts_of(serial: str) -> DeviceFacts:
    return DeviceFacts(
        serial=Serial(serial),
        kind=DeviceKind.ANDROID,
        is_virtual=serial == VIRTUAL,
        manufacturer="Google" if "Pixel" in TITLES[serial] else "Samsung",
        model=TITLES[serial],
    )


def tonights_runs(serial: str) -> list[RunRecord]:
    """Return the runs of a phone's part of tonight, not stored yet."""
    at = datetime.now(UTC)
    model = Model(name="mobilenet.tflite", sha256=ModelSha(content_key("mobilenet")), size_bytes=1)
    identity = campaign_id_of(SUBMISSION, Serial(serial))
    facts = facts_of(serial)
    cases = [
        case_of(facts, model, delegate, NEW)
        for delegate in (DelegateName.GPU, DelegateName.XNNPACK, DelegateName.CPU)
    ]
    runs = [
        run_of(identity, at, facts, case, number, plain(8000.0 + number))
        for case in cases
        for number in range(2)
    ]
    state = DeviceState(at=at, battery_heat_c=31.4, battery_percent=83)
    return [replace(run, state_after=state, started_at=at) for run in runs]


def begin_tonight(store: Store, serial: str = WORKING) -> list[RunRecord]:
    """Store a campaign that goes on, and its first runs; return the others."""
    runs = tonights_runs(serial)
    assert len(runs) == PLANNED
    store.begin_campaign(
        Campaign(
            campaign_id=runs[0].campaign_id,
            name="nightly",
            created_at=datetime.now(UTC) - timedelta(seconds=1),
            status=CampaignStatus.RUNNING,
            finished_at=None,
            plan_text="",
            seed=1,
            benchfarm_version="1",
            host="lab-1",
            invocations=tuple(
                Invocation(case=run.case, run_pass=Pass.TIMING, number=run.invocation)
                for run in runs
            ),
        ),
        devices=[facts_of(serial)],
        models=[Model(name="mobilenet.tflite", sha256=runs[0].case.model_sha256, size_bytes=1)],
        builds=[Build(name="native", tool=ToolName.NATIVE, sha256=NEW, abi="arm64-v8a")],
    )
    for run in runs[:STORED]:
        store.append_run(run)
    return runs[STORED:]


def fill_queue(queue: FarmQueue) -> None:
    """Two hosts, five phones announced and one that was, a submission of which one job runs."""
    host_lives(queue, "lab-1", version="0.1.0")
    host_lives(queue, "lab-2", version="0.1.0")
    known = {serial: Announced(facts=dump(facts_of(serial))) for serial in TITLES}
    announce(queue, known)
    queue.announce("lab-2", {AWAY: known[AWAY], VIRTUAL: known[VIRTUAL]})
    queue.announce("lab-2", {VIRTUAL: known[VIRTUAL]})
    submit(queue, WORKING, KEPT_OUT, name=SUBMISSION, plan_name="nightly", priority=5)
    begin(queue, WORKING, host="lab-1")
    # No worker runs here that would be heard.
    queue.rows("UPDATE farm_hosts SET seen_at = now() + interval '1 hour'")


def announce(queue: FarmQueue, known: Mapping[str, Announced]) -> None:
    queue.announce(
        "lab-1",
        {
            WORKING: known[WORKING],
            FREE: known[FREE],
            KEPT_OUT: replace(known[KEPT_OUT], unusable=f"{IN_QUARANTINE}{REASON}"),
            BROKEN: replace(
                known[BROKEN], unusable="unauthorized: accept this computer's key on its screen"
            ),
        },
    )


def tonight() -> str:
    return f"{night_of(datetime.now(UTC), None):%Y-%m-%d}"
