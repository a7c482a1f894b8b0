"""The current state of a farm, or of this computer's phones: phones, hosts, jobs, tonight's
progress. One record, read once from the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from orchestrator.app.plugin_kinds import Queue
from orchestrator.app.status import doing_of, phone_elsewhere, running_here
from orchestrator.app.workspace import Workspace
from orchestrator.clock import first_moment, night_of
from orchestrator.documents import adapter_of
from orchestrator.records.answers import (
    OPEN_JOBS,
    DeviceAnswer,
    FarmAnswer,
    HostAnswer,
    JobAnswer,
    NightAnswer,
    answer_of,
)
from orchestrator.records.campaign import (
    Campaign,
    CampaignProgress,
    Invocation,
    PhoneActivity,
    PhoneStatus,
)
from orchestrator.records.case import CampaignId
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import ResultCount
from orchestrator.records.run import RunRecord
from orchestrator.tables.labels import moment_text

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Runs, heat and battery are those of campaigns that began within these hours.
RECENT_HOURS: Final = 24
#: The order of the list of phones.
PHONE_STATES: Final = (
    "clash",
    "measuring",
    "abandoned",
    "away",
    "quarantined",
    "unusable",
    "silent",
    "waiting",
    "paused",
    "free",
    "idle",
)
#: The order in which the states of a phone at several hosts count: another host may use it.
_COUNTS: Final = ("clash", "measuring", "free", "paused", "quarantined", "unusable", "silent")
_JOB_ORDER: Final = ("runs", "waits", "failed", "done", "cancelled")
_Row = Mapping[str, Any]


def read_farm(workspace: Workspace, queue: Queue | None, submission: str = "") -> FarmAnswer:
    """Return the farm as it is now; its jobs are those of ``submission`` unless that is empty.

    ``queue`` None: the phones are those of this computer. Raises StoreError.
    """
    store, now = workspace.store, workspace.clock.now()
    opened = {item.campaign_id: item for item in store.campaigns(only_open=True)}
    progress = store.progress(only_open=True)
    newest = {
        str(run.case.serial): run
        for run in store.activity(now - timedelta(hours=RECENT_HOURS)).newest
    }
    jobs = queue.jobs() if queue is not None else []
    running = {str(job["serial"]): job for job in jobs if job["status"] == "runs"}
    working = _working(workspace, running, opened, progress, newest)
    stored_facts = {str(serial): facts for serial, facts in store.devices().items()}
    phones = _announced(queue) if queue is not None else _local_phones(workspace, newest)
    # A phone that measures here may not be announced by any host.
    state = "measuring" if queue is not None else "idle"
    phones |= {
        serial: DeviceAnswer(serial=serial, state=state, reason="")
        for serial in working.keys() - phones
    }
    devices = []
    for serial, entry in phones.items():
        phone = _with_name(entry, stored_facts.get(serial))
        if serial in running:
            phone = replace(phone, submission=running[serial]["submission"])
        phone = _with_run(phone, newest[serial]) if serial in newest else phone
        phone = _with_work(phone, *working[serial], now) if serial in working else phone
        devices.append(phone)
    devices.sort(key=lambda item: (PHONE_STATES.index(item.state), item.name, item.serial))
    under_way = {serial for serial, (_, status) in working.items() if status.activity.is_under_way}
    ends = [item.done_at for item in devices if item.serial in under_way]
    farm = FarmAnswer(
        has_queue=queue is not None,
        night=night_progress(store, now, opened.values(), progress, ends),
        devices=tuple(devices),
    )
    if queue is None:
        return farm
    free = {item.serial for item in devices if item.state == "free"}
    waiting = [job["again_at"] for job in jobs if job["again_at"] and job["serial"] in free]
    # By the database's clock, which set those times: this computer's may be wrong.
    lag_s = (queue.now() - min(waiting)) / timedelta(seconds=1) if waiting else 0.0
    listed = queue.jobs(submission) if submission else _current_jobs(jobs)
    return replace(
        farm,
        hosts=tuple(answer_of(HostAnswer, row) for row in queue.hosts()),
        jobs=tuple(answer_of(JobAnswer, job) for job in sorted(listed, key=_job_rank)),
        pauses=tuple(queue.pauses()),
        lag_s=max(0.0, lag_s),
    )


def _current_jobs(jobs: Sequence[_Row]) -> list[_Row]:
    """Return the open jobs, and the failed ones of each plan's newest submission."""
    # A submission's age is its first job's: an old one gets a new job for a new phone.
    firsts = {job["submission"]: job for job in reversed(jobs)}
    newest = {
        job["plan"]: job["submission"]
        for job in sorted(firsts.values(), key=lambda job: int(job["job_id"]))
    }
    return [
        job
        for job in jobs
        if job["status"] in OPEN_JOBS
        or (job["status"] == "failed" and job["submission"] in newest.values())
    ]


def _job_rank(job: _Row) -> tuple[int, ...]:
    return _JOB_ORDER.index(job["status"]), -job["priority"], job["job_id"]


def _working(
    workspace: Workspace,
    jobs: Mapping[str, _Row],
    opened: Mapping[CampaignId, Campaign],
    progress: Mapping[CampaignId, CampaignProgress],
    newest: Mapping[str, RunRecord],
) -> dict[str, tuple[str, PhoneStatus]]:
    """Return the campaign id and the status of each phone of a running campaign."""
    work: dict[str, tuple[str, PhoneStatus]] = {
        phone.serial: (campaign_id, phone)
        for campaign_id, status in running_here(
            workspace.status_folder, workspace.campaigns
        ).items()
        for phone in status.phones
        if phone.activity is not PhoneActivity.DONE
    }
    for serial, job in jobs.items():
        campaign = opened.get(CampaignId(job["campaign_id"]))
        if campaign is not None and serial not in work:
            counts = progress[campaign.campaign_id]
            status = phone_elsewhere(serial, campaign, counts, newest.get(serial))
            work[serial] = campaign.campaign_id, status
    return work


def _announced(queue: Queue) -> dict[str, DeviceAnswer]:
    """Return the phones of the farm's hosts, each once, and those that are offline."""
    rows: dict[str, _Row] = {}
    for row in queue.phones():
        before = rows.get(row["serial"], row)
        rows[row["serial"]] = min(before, row, key=lambda item: _COUNTS.index(item["state"]))
    for row in queue.away():
        rows[row["serial"]] = {**row, "host": "", "state": "away", "reason": away_since(row)}
    return {
        serial: _with_name(
            DeviceAnswer(
                serial=serial,
                state=row["state"],
                reason=row["reason"],
                host=row["host"],
                seen_at=row.get("seen_at"),
            ),
            _announced_facts(row),
        )
        for serial, row in rows.items()
    }


def away_since(row: _Row) -> str:
    """Return the time since which a phone is away, and its last host, as a text."""
    return f"since {moment_text(row['seen_at'])}, seen last at {row['host']}"


def _local_phones(workspace: Workspace, serials: Iterable[str]) -> dict[str, DeviceAnswer]:
    """Return this computer's phones: those that measured lately and those in quarantine."""
    phones = {serial: DeviceAnswer(serial=serial, state="idle", reason="") for serial in serials}
    for serial, reason in workspace.quarantine.reasons().items():
        phones[serial] = DeviceAnswer(serial=serial, state="quarantined", reason=reason)
    return phones


def _announced_facts(row: _Row) -> DeviceFacts | None:
    """Return the facts that a host announced of its phone; None for those of a newer benchfarm."""
    with suppress(KeyError, ValueError):
        return adapter_of(DeviceFacts).validate_json(row["facts"], strict=True)
    return None


def _with_name(phone: DeviceAnswer, facts: DeviceFacts | None) -> DeviceAnswer:
    """Return a phone with its name, where its facts are known."""
    if facts is None:
        return phone
    return replace(phone, name=facts.kind_title, is_virtual=facts.is_virtual)


def _with_run(phone: DeviceAnswer, run: RunRecord) -> DeviceAnswer:
    """Return a phone with the state of its newest run."""
    last = Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation)
    phone = replace(phone, doing=f"last: {doing_of(last)}", is_virtual=run.is_virtual)
    if (state := run.state_after or run.state_before) is None:
        return phone
    return replace(
        phone,
        battery_heat_c=state.battery_heat_c,
        battery_percent=state.battery_percent,
        read_at=state.at,
    )


def _with_work(
    phone: DeviceAnswer, campaign_id: str, status: PhoneStatus, now: datetime
) -> DeviceAnswer:
    """Return a phone with its status in a running campaign."""
    is_away = not status.activity.is_under_way
    if phone.state in {"clash", "quarantined", "unusable"}:
        # A fault of the phone stays one while it measures.
        state, reason = phone.state, phone.reason
    else:
        is_working = status.activity is PhoneActivity.WORKING
        state = "measuring" if is_working else status.activity.value
        reason = status.doing if is_away else ""
    return replace(
        phone,
        campaign_id=campaign_id,
        state=state,
        reason=reason,
        doing=phone.doing if is_away else status.doing or phone.doing,
        stored=status.stored,
        left=status.left,
        done_at=None if status.eta_s is None else now + timedelta(seconds=status.eta_s),
        battery_heat_c=status.battery_heat_c or phone.battery_heat_c,
    )


def night_progress(
    store: Store,
    now: datetime,
    opened: Iterable[Campaign],
    progress: Mapping[CampaignId, CampaignProgress],
    ends: Sequence[datetime | None],
) -> NightAnswer:
    """Return the progress of the night. ``opened`` are the open campaigns, ``ends`` the times at
    which phones are done.
    """
    night = night_of(now, store.zone)
    begin = first_moment(night, store.zone)
    counts = ResultCount.of(store.activity(begin).runs)
    remaining = 0
    for campaign in opened:
        if campaign.created_at >= begin:
            remaining += progress[campaign.campaign_id].left
    known_ends = [end for end in ends if end is not None]
    return NightAnswer(
        night=night,
        with_result=counts.made - counts.without_result,
        without_result=counts.without_result,
        left=remaining,
        done_at=max(known_ends) if known_ends and len(known_ends) == len(ends) else None,
    )


def state_counts(states: Iterable[str]) -> str:
    """Return the counts of states as a text: ``3 free, 1 away``."""
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())
