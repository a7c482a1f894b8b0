"""What a farm does now: its phones, hosts, jobs and schedules, and how far tonight is."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from orchestrator.analysis.series import first_moment, night_of
from orchestrator.app.board import PhoneRow, Standing, doing_of, read_boards
from orchestrator.bootstrap import Farm
from orchestrator.config.farm_documents import read_facts
from orchestrator.errors import BenchfarmError, PlanError
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.serve.answers import (
    DeviceAnswer,
    FarmAnswer,
    HostAnswer,
    JobAnswer,
    NightAnswer,
    ScheduleAnswer,
)

if TYPE_CHECKING:
    from orchestrator.queueing.queue import FarmQueue

#: What is known stays for so long, and so many times as long as reading it took.
_LEAST_AGE_S: Final = 1.0
_AGE_FACTOR: Final = 10.0
#: Heat and battery are shown of runs of campaigns begun within so many hours.
_HOURS: Final = 24
_MOST_JOBS: Final = 100
#: Moments to come are rounded to so many seconds: an estimate that moves by less is the same.
_ROUND_S: Final = 15
_STANDINGS: Final = {
    Standing.WORKING: "measuring",
    Standing.WAITING: "waiting",
    Standing.AWAY: "away",
    Standing.ABANDONED: "abandoned",
}
#: Of one that several hosts have, the state that counts; and the order of the list of phones.
_ORDER: Final = (
    "measuring", "abandoned", "away", "quarantined", "unusable", "silent", "waiting", "held", "free", "idle",
)  # fmt: skip
_JOB_ORDER: Final = ("runs", "waits", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    """What the queue says now; empty without one."""

    phones: Sequence[Mapping[str, Any]] = ()
    away: Sequence[Mapping[str, Any]] = ()
    hosts: Sequence[Mapping[str, Any]] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    failed: frozenset[str] = frozenset()
    holds: Mapping[str, str]
    schedules: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Working:
    """A phone's part of a campaign that isn't over."""

    campaign_id: str
    state: str
    doing: str
    stored: int
    left: int
    done_at: datetime | None
    heat_c: float | None = None


class FarmNow:
    """Reads the farm again when what it knows is old; many may ask at once, and one of them reads."""

    def __init__(self, farm: Farm, queue: FarmQueue | None, *, can_be_steered: bool) -> None:
        """``queue`` None: the phones are those of this computer."""
        self._farm = farm
        self._queue = queue
        self._can_be_steered = can_be_steered
        self._lock = threading.Lock()
        self._known: FarmAnswer | None = None
        self._fresh_until_s = 0.0

    def read(self, *, is_fresh: bool = False) -> FarmAnswer:
        """Return the farm as it is; what can't be read stays as it was, with the reason in ``fault``.

        ``is_fresh``: read it now, after something was changed.
        """
        if not self._lock.acquire(blocking=self._known is None or is_fresh):
            assert self._known is not None, "the first one is waited for"
            return self._known
        try:
            begin_s = time.monotonic()
            if self._known is None or is_fresh or begin_s >= self._fresh_until_s:
                self._known = self._read()
                took_s = time.monotonic() - begin_s
                # A database that is away is waited for at each reading: it is asked again soon all the same.
                age_s = _LEAST_AGE_S if self._known.fault else max(_LEAST_AGE_S, _AGE_FACTOR * took_s)
                self._fresh_until_s = time.monotonic() + age_s
            return self._known
        finally:
            self._lock.release()

    def _read(self) -> FarmAnswer:
        now = self._farm.clock.now()
        try:
            return self._gather(now)
        except BenchfarmError as error:
            steered = self._can_be_steered
            empty = FarmAnswer(
                has_queue=self._queue is not None, can_be_steered=steered, night=NightAnswer(night=night_of(now))
            )
            return replace(self._known or empty, fault=str(error))

    def _gather(self, now: datetime) -> FarmAnswer:
        store = self._farm.store
        queue = _queue_now(self._queue, now)
        newest = {run.case.serial: run for run in store.activity(now - timedelta(hours=_HOURS)).newest}
        opened = {item.campaign_id: item for item in store.campaigns(only_open=True)}
        progress = store.progress(only_open=True)
        working = self._on_boards(now)
        for job in queue.jobs:
            campaign = opened.get(CampaignId(job["campaign_id"]))
            if job["status"] == "runs" and campaign is not None and job["serial"] not in working:
                there = progress.get(campaign.campaign_id, (0, 0))
                working[job["serial"]] = _elsewhere(campaign, there, newest.get(job["serial"]))
        devices = self._devices(queue, working, newest)
        listed = sorted(
            (job for job in queue.jobs if job["status"] in {"runs", "waits"} or job["submission"] in queue.failed),
            key=lambda job: (_rank(_JOB_ORDER, job["status"]), -job["priority"], job["job_id"]),
        )
        listed = [job for job in listed if job["status"] in _JOB_ORDER]
        return FarmAnswer(
            has_queue=self._queue is not None,
            can_be_steered=self._can_be_steered,
            night=tonight(store, now, progress, [item.done_at for item in working.values()]),
            devices=devices,
            hosts=tuple(_host(row, queue.holds) for row in queue.hosts),
            jobs=tuple(job_answer(job) for job in listed[:_MOST_JOBS]),
            more_jobs=max(0, len(listed) - _MOST_JOBS),
            holds=dict(queue.holds),
            schedules=tuple(map(_schedule, queue.schedules)),
        )

    def _on_boards(self, now: datetime) -> dict[str, _Working]:
        """Return the phones of campaigns that this computer runs, by serial number."""
        found: dict[str, _Working] = {}
        for campaign_id, shown in read_boards(self._farm.board_folder).items():
            for row in shown.rows:
                if row.standing is not Standing.DONE:
                    found[row.serial] = _on_board(campaign_id, row, now)
        return found

    def _devices(
        self, queue: _Queue, working: Mapping[str, _Working], newest: Mapping[Serial, RunRecord]
    ) -> tuple[DeviceAnswer, ...]:
        facts = {**_announced_facts(queue), **self._farm.store.devices()}
        found: dict[str, DeviceAnswer] = {}
        kept_out = {str(serial): self._farm.quarantine.reason(serial) for serial in self._farm.quarantine.serials()}
        jobs = {job["serial"]: job for job in queue.jobs if job["status"] == "runs"}
        for row in queue.phones:
            state, reason = _phone_state(row, queue.holds)
            before = found.get(row["serial"])
            if before is None or _rank(_ORDER, state) < _rank(_ORDER, before.state):
                found[row["serial"]] = DeviceAnswer(serial=row["serial"], state=state, reason=reason, host=row["host"])
        for row in queue.away:
            reason = f"since {row['seen_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            found[row["serial"]] = DeviceAnswer(serial=row["serial"], state="away", reason=reason)
        if self._queue is None:
            for serial in {*map(str, newest), *working, *kept_out}:
                reason = kept_out.get(serial, "")
                found[serial] = DeviceAnswer(serial=serial, state="quarantined" if reason else "idle", reason=reason)
        for serial, work in working.items():
            base = found.get(serial) or DeviceAnswer(serial=serial, state=work.state, reason="")
            away = work.state in {"away", "abandoned"}
            found[serial] = replace(
                base,
                state=work.state,
                reason=work.doing if away else base.reason,
                doing="" if away else work.doing,
                campaign_id=work.campaign_id,
                stored=work.stored,
                left=work.left,
                done_at=work.done_at,
                battery_heat_c=work.heat_c,
            )
        answers = [
            _completed(item, facts.get(Serial(serial)), newest.get(Serial(serial)), jobs.get(serial))
            for serial, item in found.items()
        ]
        return tuple(sorted(answers, key=lambda item: (_rank(_ORDER, item.state), item.name, item.serial)))


def _queue_now(queue: FarmQueue | None, now: datetime) -> _Queue:
    if queue is None:
        return _Queue(holds={})
    from orchestrator.queueing.schedule import Schedules

    since_s = (now - first_moment(night_of(now))) / timedelta(seconds=1)
    return _Queue(
        phones=queue.phones(),
        away=queue.away(),
        hosts=queue.hosts(),
        jobs=queue.jobs(),
        failed=frozenset(row["submission"] for row in queue.failures(within_s=since_s)),
        holds=queue.holds(),
        schedules=Schedules(queue).listed(),
    )


def _announced_facts(queue: _Queue) -> dict[Serial, DeviceFacts]:
    """Return what hosts say of their phones, by serial number; what a newer benchfarm says may not be read."""
    found = {}
    for row in (*queue.away, *queue.phones):
        with suppress(PlanError):
            if row["facts"]:
                found[Serial(row["serial"])] = read_facts(row["facts"])
    return found


def tonight(
    store: Store,
    now: datetime,
    progress: Mapping[CampaignId, tuple[int, int]],
    ends: Sequence[datetime | None] = (),
) -> NightAnswer:
    """Return how far the night is; ``progress`` is that of the open campaigns, ``ends`` when each phone is done."""
    begin = first_moment(night_of(now))
    limit = 50
    while True:
        campaigns = store.campaigns(limit=limit)
        if len(campaigns) < limit or campaigns[-1].created_at < begin:
            break
        limit *= 2
    own = [item.campaign_id for item in campaigns if item.created_at >= begin]
    counts = [item for item in store.activity(begin).runs if item.outcome not in {Outcome.SKIPPED, Outcome.UNFIT}]
    known = [end for end in ends if end is not None]
    return NightAnswer(
        night=night_of(now),
        campaigns=len(own),
        stored=sum(item.count for item in counts),
        left=sum(max(0, planned - stored) for stored, planned in (progress.get(item, (0, 0)) for item in own)),
        without_result=sum(item.count for item in counts if item.outcome is not Outcome.COMPLETED),
        done_at=max(known) if known and len(known) == len(ends) else None,
    )


def _on_board(campaign_id: str, row: PhoneRow, now: datetime) -> _Working:
    return _Working(
        campaign_id=campaign_id,
        state=_STANDINGS[row.standing],
        doing=row.doing,
        stored=row.stored,
        left=row.left,
        done_at=_rounded(now + timedelta(seconds=row.eta_s)) if row.eta_s is not None else None,
        heat_c=row.battery_heat_c,
    )


def _elsewhere(campaign: Campaign, progress: tuple[int, int], newest: RunRecord | None) -> _Working:
    """Return what is known of a phone whose campaign another computer runs: what is stored."""
    stored, left = progress[0], max(0, progress[1] - progress[0])
    is_its = newest is not None and newest.campaign_id == campaign.campaign_id
    done_at = None
    if newest is not None and is_its and stored > 1:
        done_at = newest.started_at + (newest.started_at - campaign.created_at) / (stored - 1) * left
    return _Working(
        campaign_id=campaign.campaign_id,
        state="measuring",
        doing="" if is_its else "begins",
        stored=stored,
        left=left,
        done_at=_rounded(done_at) if done_at is not None else None,
    )


def _rounded(moment: datetime) -> datetime:
    return datetime.fromtimestamp(round(moment.timestamp() / _ROUND_S) * _ROUND_S, tz=moment.tzinfo)


def _rank(order: Sequence[str], word: str) -> int:
    return order.index(word) if word in order else len(order)


def _phone_state(row: Mapping[str, Any], holds: Mapping[str, str]) -> tuple[str, str]:
    """Return the state of an announced phone, and the reason."""
    from orchestrator.queueing.submissions import IN_QUARANTINE

    scopes = ("farm", f"host:{row['host']}", f"phone:{row['serial']}")
    reasons = {
        "unusable": str(row["unusable"]),
        "silent": f"its host {row['host']} is silent",
        "held": "; ".join(f"{scope}: {holds[scope]}" for scope in scopes if scope in holds),
    }
    state, reason = str(row["state"]), reasons.get(row["state"], "")
    if state == "unusable" and reason.startswith(IN_QUARANTINE):
        return "quarantined", reason.removeprefix(IN_QUARANTINE)
    return {"busy": "measuring"}.get(state, state), reason


def _completed(
    answer: DeviceAnswer, facts: DeviceFacts | None, newest: RunRecord | None, job: Mapping[str, Any] | None
) -> DeviceAnswer:
    """Return a phone with its name, what its newest run says, and its job."""
    state = (newest.state_after or newest.state_before) if newest is not None else None
    last = Invocation(case=newest.case, run_pass=newest.run_pass, number=newest.invocation) if newest else None
    return replace(
        answer,
        name=facts.title.removesuffix(" (virtual)") if facts is not None else "",
        doing=answer.doing or (f"last: {doing_of(last)}" if last is not None else ""),
        submission=str(job["submission"]) if job is not None else "",
        campaign_id=answer.campaign_id or (str(job["campaign_id"]) if job is not None else ""),
        battery_heat_c=state.battery_heat_c if state is not None else answer.battery_heat_c,
        battery_percent=state.battery_percent if state is not None else None,
        read_at=state.at if state is not None else None,
        is_virtual=facts.is_virtual if facts is not None else newest is not None and newest.is_virtual,
    )


def _host(row: Mapping[str, Any], holds: Mapping[str, str]) -> HostAnswer:
    from orchestrator.queueing.newcomers import HOST_SILENT_S

    state = "silent" if row["silent_s"] > HOST_SILENT_S else holds.get(f"host:{row['name']}", "alive")
    return HostAnswer(name=row["name"], state=state, note=row["note"])


def job_answer(row: Mapping[str, Any]) -> JobAnswer:
    """Return a job as the queue tells of it."""
    return JobAnswer(
        job_id=row["job_id"],
        submission=row["submission"],
        serial=row["serial"],
        plan=row["plan_name"],
        campaign_id=row["campaign_id"],
        status=row["status"],
        priority=row["priority"],
        host=row["host"],
        note=row["note"],
    )


def _schedule(row: Mapping[str, Any]) -> ScheduleAnswer:
    last = row["ticks"][0] if row["ticks"] else None
    return ScheduleAnswer(
        name=row["name"],
        plan=row["plan_name"],
        cron=row["cron"],
        timezone=row["timezone"],
        paused=row["paused"],
        next_at=row["next_at"],
        last_at=last["tick_at"] if last else None,
        last_outcome=last["outcome"] if last else "",
        last_note=last["note"] if last else "",
    )
