"""A farm in the middle of its night: phones in every state, jobs, and weeks of history behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.clock import night_of
from orchestrator.extensions.farm.manifest import dump
from orchestrator.extensions.farm.queue import IN_QUARANTINE, Announced, FarmQueue
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import DelegateName, Serial, campaign_id_of
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import Store
from tests.samples.history_lab import plain_run
from tests.samples.sample_lab import Lab, campaign_of, case, model_of
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
MODEL = model_of("mobilenet.tflite")


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
    state = DeviceState(at=at, battery_heat_c=31.4, battery_percent=83)
    identity = campaign_id_of(SUBMISSION, Serial(serial))
    return [
        plain_run(
            case(facts_of(serial), MODEL, delegate), number, 8000.0 + number,
            campaign_id=identity, state_after=state, started_at=at,
        )
        for delegate in (DelegateName.GPU, DelegateName.XNNPACK, DelegateName.CPU)
        for number in range(2)
    ]  # fmt: skip


def begin_tonight(store: Store, serial: str = WORKING) -> list[RunRecord]:
    """Store a campaign that goes on, and its first runs; return the others."""
    runs = tonights_runs(serial)
    assert len(runs) == PLANNED
    tonight = campaign_of(
        runs,
        campaign_id=runs[0].campaign_id,
        created_at=datetime.now(UTC) - timedelta(seconds=1),
        status=CampaignStatus.RUNNING,
        finished_at=None,
        host="lab-1",
    )
    Lab(
        campaigns=[tonight],
        runs=runs[:STORED],
        devices={serial: facts_of(serial)},
        models={MODEL.sha256: MODEL},
    ).store_in(store)
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
