"""What a farm does now: its phones, hosts and jobs, how far tonight is, and the page of it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from orchestrator.app.status import (
    IN_QUARANTINE,
    QueueView,
    doing_of,
    phone_elsewhere,
    running_here,
)
from orchestrator.documents import adapter_of
from orchestrator.errors import BenchfarmError
from orchestrator.extensions.history.series import first_moment, night_of
from orchestrator.plugins import Workspace
from orchestrator.records.answers import (
    DeviceAnswer,
    FarmAnswer,
    HostAnswer,
    JobAnswer,
    NightAnswer,
    answer_of,
)
from orchestrator.records.campaign import Invocation, PhoneStatus, Standing
from orchestrator.records.case import CampaignId, Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.tables.column import PAGE, Column, Kind
from orchestrator.tables.html import mark
from orchestrator.tables.table import Table

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Seconds for which an answer stays, at least, and how many times as long as reading it took.
_LEAST_AGE_S: Final = 1.0
_AGE_FACTOR: Final = 10.0
#: Heat and battery are those of runs of campaigns begun within these hours.
_HOURS: Final = 24
_MOST_JOBS: Final = 100
_STANDINGS: Final = {
    Standing.WORKING: "measuring",
    Standing.WAITING: "waiting",
    Standing.AWAY: "away",
    Standing.ABANDONED: "abandoned",
}
#: Of one that several hosts have, the state that counts; and the order of the list of phones.
ORDER: Final = (
    "clash",
    "measuring",
    "abandoned",
    "away",
    "quarantined",
    "unusable",
    "silent",
    "waiting",
    "held",
    "free",
    "idle",
)
_JOB_ORDER: Final = ("runs", "waits", "failed")
#: The colours of states; the normal isn't marked.
_TONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("abandoned", "clash", "quarantined", "unusable", "silent", "failed"), "v-error"
    ),
    **dict.fromkeys(("away", "held", "pause", "drain"), "v-warning"),
}
#: Of more phones, those that are free and well are folded; of more jobs, submissions are.
_MOST_OPEN: Final = 12
_CALM: Final = frozenset({"free", "idle"})
#: Hours of the clock that people call today; the others are tonight.
_DAY: Final = range(7, 19)
#: Rows of the queue, as it gives them.
_Rows = Sequence[Mapping[str, Any]]
_R = TypeVar("_R")


class FarmNow:
    """Reads the farm again when what it knows is old; many may ask at once, and one of them reads."""

    def __init__(
        self, workspace: Workspace, queue: QueueView | None, *, can_be_steered: bool
    ) -> None:
        """``queue`` None: the phones are those of this computer."""
        self._workspace = workspace
        self._queue = queue
        self._can_be_steered = can_be_steered
        self._lock = threading.Lock()
        self._known: FarmAnswer | None = None
        self._fresh_until_s = 0.0

    def read(self, *, is_fresh: bool = False) -> FarmAnswer:
        """Return the farm as it is; what can't be read stays as it was, with the reason in
        ``fault``.

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
                # A database that is away is waited for at each reading: it is asked again soon all
                # the same.
                age_s = (
                    _LEAST_AGE_S if self._known.fault else max(_LEAST_AGE_S, _AGE_FACTOR * took_s)
                )
                self._fresh_until_s = time.monotonic() + age_s
            return self._known
        finally:
            self._lock.release()

    def _read(self) -> FarmAnswer:
        now = self._workspace.clock.now()
        empty = FarmAnswer(
            has_queue=self._queue is not None,
            can_be_steered=self._can_be_steered,
            night=NightAnswer(night=night_of(now, None)),
        )
        try:
            return self._gathered(empty, now)
        except BenchfarmError as error:
            return replace(self._known or empty, fault=str(error))

    def _gathered(self, empty: FarmAnswer, now: datetime) -> FarmAnswer:
        store, queue = self._workspace.store, self._queue
        jobs = queue.jobs() if queue is not None else []
        newest = {
            run.case.serial: run for run in store.activity(now - timedelta(hours=_HOURS)).newest
        }
        opened = {item.campaign_id: item for item in store.campaigns(only_open=True)}
        progress = store.progress(only_open=True)
        here = running_here(self._workspace.status_folder, self._workspace.campaigns)
        working = {
            phone.serial: _of_status(campaign_id, phone, now)
            for campaign_id, status in here.items()
            for phone in status.phones
            if phone.standing is not Standing.DONE
        }
        for job in jobs:
            campaign = opened.get(CampaignId(job["campaign_id"]))
            if job["status"] == "runs" and campaign is not None and job["serial"] not in working:
                there = progress.get(campaign.campaign_id, (0, 0))
                phone = phone_elsewhere(job["serial"], campaign, there, newest.get(job["serial"]))
                working[phone.serial] = _of_status(campaign.campaign_id, phone, now)
        running = {str(job["serial"]): job for job in jobs if job["status"] == "runs"}
        night = tonight(store, now, progress, [item["done_at"] for item in working.values()])
        if queue is None:
            return replace(
                empty, night=night, devices=self._devices([], [], working, newest, running)
            )
        begin = first_moment(night_of(now, store.zone), store.zone)
        failed = {
            row["submission"]
            for row in queue.failures(within_s=(now - begin) / timedelta(seconds=1))
        }
        listed = [
            job
            for job in jobs
            if job["status"] in {"runs", "waits"}
            or (job["status"] == "failed" and job["submission"] in failed)
        ]
        listed.sort(
            key=lambda job: (_JOB_ORDER.index(job["status"]), -job["priority"], job["job_id"])
        )
        holds = queue.holds()
        return replace(
            empty,
            night=night,
            devices=self._devices(queue.phones(), queue.away(), working, newest, running),
            hosts=tuple(answer_of(HostAnswer, row) for row in queue.hosts()),
            jobs=tuple(map(job_answer, listed[:_MOST_JOBS])),
            more_jobs=max(0, len(listed) - _MOST_JOBS),
            holds=dict(holds),
        )

    def _devices(
        self,
        phones: _Rows,
        away: _Rows,
        working: Mapping[str, Mapping[str, Any]],
        newest: Mapping[Serial, RunRecord],
        running: Mapping[str, Mapping[str, Any]],
    ) -> tuple[DeviceAnswer, ...]:
        """Return the phones, those that want somebody's attention first; ``running``: their jobs."""
        found: dict[str, dict[str, Any]] = {}
        for row in phones:
            state, reason = _phone_state(row)
            before = found.get(row["serial"])
            if before is None or ORDER.index(state) < ORDER.index(before["state"]):
                found[row["serial"]] = {"state": state, "reason": reason, "host": row["host"]}
        for row in away:
            reason = f"since {row['seen_at'].astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            found[row["serial"]] = {"state": "away", "reason": reason}
        if self._queue is None:
            quarantine = self._workspace.quarantine
            kept_out = {str(serial): quarantine.reason(serial) for serial in quarantine.serials()}
            for serial in {*map(str, newest), *working, *kept_out}:
                reason = kept_out.get(serial, "")
                found[serial] = {"state": "quarantined" if reason else "idle", "reason": reason}
        for serial, work in working.items():
            found[serial] = {**found.get(serial, {}), **work}
        for serial, run in newest.items():
            if (item := found.get(serial)) is not None:
                now = item.get("doing")
                item |= {**_of_run(run), **({"doing": now} if now else {})}
        for serial, known in {
            **_announced_facts([*away, *phones]),
            **self._workspace.store.devices(),
        }.items():
            if serial in found:
                name = known.title.removesuffix(" (virtual)")
                found[serial] |= {"name": name, "is_virtual": known.is_virtual}
        for serial, job in running.items():
            if serial in found:
                found[serial] = {
                    "campaign_id": job["campaign_id"],
                    **found[serial],
                    "submission": job["submission"],
                }
        answers = [
            DeviceAnswer(serial=serial, **{"reason": "", **item}) for serial, item in found.items()
        ]
        return tuple(
            sorted(answers, key=lambda item: (ORDER.index(item.state), item.name, item.serial))
        )


def _announced_facts(rows: _Rows) -> dict[Serial, DeviceFacts]:
    """Return what hosts say of their phones, by serial number; what a newer benchfarm says may not
    be read.
    """
    found = {}
    for row in rows:
        with suppress(ValueError):
            if row["facts"]:
                found[Serial(row["serial"])] = adapter_of(DeviceFacts).validate_json(
                    row["facts"], strict=True
                )
    return found


def tonight(
    store: Store,
    now: datetime,
    progress: Mapping[CampaignId, tuple[int, int]],
    ends: Sequence[datetime | None] = (),
) -> NightAnswer:
    """Return how far the night is; ``progress`` is that of the open campaigns, ``ends`` when each
    phone is done.
    """
    night = night_of(now, store.zone)
    begin = first_moment(night, store.zone)
    limit = 50
    while True:
        campaigns = store.campaigns(limit=limit)
        if len(campaigns) < limit or campaigns[-1].created_at < begin:
            break
        limit *= 2
    own = [item.campaign_id for item in campaigns if item.created_at >= begin]
    counts = [
        item
        for item in store.activity(begin).runs
        if item.outcome not in {Outcome.SKIPPED, Outcome.UNFIT}
    ]
    known = [end for end in ends if end is not None]
    return NightAnswer(
        night=night,
        campaigns=len(own),
        stored=sum(item.count for item in counts),
        left=sum(
            max(0, planned - stored)
            for stored, planned in (progress.get(item, (0, 0)) for item in own)
        ),
        without_result=sum(item.count for item in counts if item.outcome is not Outcome.COMPLETED),
        done_at=max(known) if known and len(known) == len(ends) else None,
    )


def _of_status(campaign_id: str, phone: PhoneStatus, now: datetime) -> dict[str, Any]:
    """Return what a phone of a running campaign does, as fields of a DeviceAnswer."""
    is_away = phone.standing in {Standing.AWAY, Standing.ABANDONED}
    done_at = None if phone.eta_s is None else now + timedelta(seconds=phone.eta_s)
    found = {
        "campaign_id": campaign_id,
        "state": _STANDINGS[phone.standing],
        "reason" if is_away else "doing": phone.doing,
        "stored": phone.stored,
        "left": phone.left,
        "done_at": done_at,
    }
    heat_c = phone.battery_heat_c
    return found if heat_c is None else {**found, "battery_heat_c": heat_c}


def _phone_state(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the state of an announced phone, and the reason."""
    state, reason = row["state"], row["reason"]
    if state == "unusable" and reason.startswith(IN_QUARANTINE):
        return "quarantined", reason.removeprefix(IN_QUARANTINE)
    return {"busy": "measuring"}.get(state, state), reason


def _of_run(run: RunRecord) -> dict[str, Any]:
    """Return what a phone's newest run says of it, as fields of a DeviceAnswer."""
    last = Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation)
    found: dict[str, Any] = {"doing": f"last: {doing_of(last)}", "is_virtual": run.is_virtual}
    if state := run.state_after or run.state_before:
        heat_c, percent = state.battery_heat_c, state.battery_percent
        found |= {"battery_heat_c": heat_c, "battery_percent": percent, "read_at": state.at}
    return found


def job_answer(row: Mapping[str, Any]) -> JobAnswer:
    """Return a job as the queue has it."""
    return answer_of(JobAnswer, row, plan=row["plan_name"])


def farm_values(farm: FarmAnswer, now: datetime, zone: tzinfo | None) -> dict[str, object]:
    """Return what the template of the farm's page shows, but for changes."""
    calm = [item for item in farm.devices if item.state in _CALM]
    calm = calm if len(farm.devices) > _MOST_OPEN else []
    names = dict.fromkeys(job.submission for job in farm.jobs)
    jobs = {name: [job for job in farm.jobs if job.submission == name] for name in names}
    return {
        "farm": farm,
        "day": "Today" if now.astimezone(zone).hour in _DAY else "Tonight",
        "states": [
            (state, count, _TONES.get(state) == "v-error")
            for state, count in Counter(item.state for item in farm.devices).items()
        ],
        "phones": _phones_table(farm, [item for item in farm.devices if item not in calm], now),
        "calm": _phones_table(farm, calm, now) if calm else None,
        "calm_text": _counted(item.state for item in calm),
        "submissions": [
            (name, _counted(job.status for job in own), _jobs_table(own), _cancel(name))
            for name, own in jobs.items()
        ],
        "is_open": len(farm.jobs) <= _MOST_OPEN,
        "hosts": _hosts_table(farm),
        "hold_all": _hold(farm, "farm", "the whole farm") if farm.has_queue else "",
    }


def _counted(states: Iterable[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())


def _phones_table(
    farm: FarmAnswer, rows: Sequence[DeviceAnswer], now: datetime
) -> Table[DeviceAnswer]:
    def done_in(item: DeviceAnswer) -> str:
        if item.done_at is None:
            return ""
        minutes = round((item.done_at - now) / timedelta(minutes=1))
        text = "soon" if minutes < 1 else f"{minutes} min"
        return mark("done_in", text if minutes < 100 else f"{minutes / 60:.0f} h", item.done_at)

    def progress(item: DeviceAnswer) -> str:
        work = item.stored + item.left
        if not (work and item.campaign_id):
            return ""
        return mark("progress", item.stored, work, f"progress of {item.serial}")

    def actions(item: DeviceAnswer) -> str:
        release = _act(
            "Release",
            f"DELETE /quarantine/{quote(item.serial, safe='')}",
            asks=f"Release {item.serial} from quarantine?",
        )
        hold = _hold(farm, f"phone:{item.serial}", "phone") if farm.has_queue else ""
        return (release if item.state == "quarantined" else "") + hold

    columns: list[Column[DeviceAnswer]] = [
        Column("phone", "phone", lambda item: mark("phone", item), Kind.MARKUP),
        Column("host", "host", lambda item: item.host, is_optional=True),
        Column("state", "state", lambda i: i.state, tone=lambda i: _TONES.get(i.state, "")),
        Column("doing", "what it does", lambda item: mark("doing", item), Kind.MARKUP),
        Column("progress", "progress", progress, Kind.MARKUP),
        Column("done_in", "done in", done_in, Kind.MARKUP),
        _figure("heat", "heat °C", lambda item: item.battery_heat_c),
        _figure("battery", "battery %", lambda item: item.battery_percent),
    ]
    return Table(
        name="phones",
        caption="Phones",
        columns=[*columns, *_actions(farm, actions)],
        rows=rows,
        nothing="No phone was seen in the last 24 hours.",
        is_virtual=lambda item: item.is_virtual,
    )


def _figure(
    name: str, head: str, value: Callable[[DeviceAnswer], float | None]
) -> Column[DeviceAnswer]:
    """Return the column of a figure that many phones haven't: it is empty there."""
    return Column(
        name,
        head,
        value,
        Kind.NUMBER,
        digits=0,
        shown=lambda item: "" if value(item) is None else None,
        is_optional=True,
    )


def _jobs_table(rows: Sequence[JobAnswer]) -> Table[JobAnswer]:
    columns: Sequence[Column[JobAnswer]] = (
        Column("serial", "phone", lambda job: job.serial),
        Column("status", "status", lambda j: j.status, tone=lambda j: _TONES.get(j.status, "")),
        Column("plan", "plan", lambda job: job.plan),
        Column("priority", "priority", lambda job: job.priority, Kind.COUNT),
        Column("host", "host", lambda job: job.host),
        Column("note", "note", lambda job: job.note, is_optional=True),
    )
    return Table(name="jobs", caption="Jobs", columns=columns, rows=rows)


def _hosts_table(farm: FarmAnswer) -> Table[HostAnswer]:
    columns: list[Column[HostAnswer]] = [
        Column("name", "host", lambda item: item.name),
        Column("state", "state", lambda i: i.state, tone=lambda i: _TONES.get(i.state, "")),
        Column("note", "note", lambda item: item.note, is_optional=True),
        *_actions(farm, lambda item: _hold(farm, f"host:{item.name}", "host")),
    ]
    nothing = "No host is known: 'benchfarm farm worker' adds one."
    return Table(name="hosts", caption="Hosts", columns=columns, rows=farm.hosts, nothing=nothing)


def _actions(farm: FarmAnswer, made: Callable[[_R], str]) -> list[Column[_R]]:
    """Return the column of buttons, none where the server has no token."""
    column = Column("actions", "actions", made, Kind.MARKUP, forms=PAGE)
    return [column] if farm.can_be_steered else []


def _hold(farm: FarmAnswer, scope: str, what: str) -> str:
    if scope in farm.holds:
        return _act(f"Resume {what}", f"DELETE /holds?scope={quote(scope, safe='')}")
    return _act(f"Pause {what}", "POST /holds", body=json.dumps({"scope": scope}))


def _cancel(submission: str) -> str:
    return _act(
        f"Cancel {submission}",
        f"DELETE /submissions/{quote(submission, safe='')}",
        asks=f"Cancel what waits and runs of {submission}?",
    )


def _act(label: str, request: str, *, asks: str = "", body: str = "") -> str:
    """Return a button that sends a request of the API once its question is answered by yes."""
    return mark("act", label, request, asks, body)
