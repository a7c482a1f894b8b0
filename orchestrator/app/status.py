"""The status of campaigns: kept from the events of one that runs, published to other processes
in a file; from the store for all others. A farm's queue in the store's database names their jobs. And
events as text and as records, for lines of progress.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from orchestrator.analysis.summary import summarize
from orchestrator.app.plugin_kinds import Queue, QueueSource
from orchestrator.app.workspace import Workspace
from orchestrator.documents import dump_document, load_document
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceNote,
    FileMoving,
    FilePlaced,
    InvocationStarted,
    Measuring,
    Notice,
    RoundAdded,
    RunStored,
)
from orchestrator.errors import StoreError, UsageError
from orchestrator.files import file_of, name_of, write_whole
from orchestrator.installation import load, plugins
from orchestrator.passes import pass_of
from orchestrator.ports import Observer
from orchestrator.processes import Locks
from orchestrator.programs import usual_tool
from orchestrator.records.campaign import (
    CUT_OFF,
    ELSEWHERE,
    Campaign,
    CampaignProgress,
    CampaignStatus,
    Invocation,
    LiveFigure,
    PhoneActivity,
    PhoneStatus,
    Status,
)
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, CaseKey
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import DelegateTruth, Outcome, RunRecord
from orchestrator.settings import Settings, this_computer
from orchestrator.tables.escapes import one_line, visible
from orchestrator.units import counted, format_bytes, format_duration, format_figure

#: While a file is on its way, the status is written this often.
_EVERY_S: Final = 1.0
#: The number of last runs that the pace is computed from.
_PACE_RUNS: Final = 20


class LiveStatus:
    """The status of a campaign from its events. Not locked: its user does that."""

    def __init__(self) -> None:
        self._status = Status(campaign_id="", name="", state=CampaignStatus.RUNNING)
        self._phones: dict[str, PhoneStatus] = {}
        #: When each phone's last runs began, and when the last one was stored (monotonic).
        self._started: dict[str, list[datetime]] = {}
        self._stored_s: dict[str, float] = {}
        #: The latencies of each case's clean runs so far, and their figure.
        self._latencies_us: dict[CaseKey, list[float]] = {}
        self._figures: dict[CaseKey, LiveFigure] = {}

    def on_event(self, event: object) -> None:
        """Apply an event."""
        match event:
            case CampaignStarted(campaign=campaign, devices=devices, stored=stored, left=left):
                self._status = replace(
                    self._status,
                    campaign_id=campaign.campaign_id,
                    name=campaign.name,
                    host=campaign.host,
                    planned=sum(stored.values()) + sum(left.values()),
                    most=campaign.most_runs,
                )
                self._started.clear()
                self._latencies_us.clear()
                self._figures.clear()
                self._phones = {}
                for serial in [*(facts.serial for facts in devices), *left]:
                    self._set(serial, stored=stored.get(serial, 0), left=left.get(serial, 0))
            case (
                InvocationStarted(invocation=invocation, side=side)
                | Measuring(invocation=invocation, side=side)
            ):
                serial, doing = invocation.case.serial, doing_of(invocation)
                if side:
                    doing = f"{side.partition(',')[0]} #{invocation.number + 1}"
                self._set(serial, activity=PhoneActivity.WORKING, doing=doing)
            case FileMoving(serial=serial, name=name, sent_bytes=sent_bytes, size_bytes=size_bytes):
                share = f"{format_bytes(sent_bytes)} of {format_bytes(size_bytes)}"
                self._set(serial, doing=f"gets {name}: {share}")
            case DeviceNote(serial=serial, text=text, is_problem=is_problem, is_away=is_away):
                if is_away is not None:
                    self._set(
                        serial, activity=PhoneActivity.AWAY if is_away else PhoneActivity.WORKING
                    )
                if is_away is not None or not is_problem:
                    self._set(serial, doing=text.removeprefix("lost: "))
            case RoundAdded(serial=serial, cases=cases):
                self._set(serial, left=self._phone(serial).left + cases)
            case RunStored():
                self._keep(event)
            case DeviceFinished(serial=serial, left=left, reason=reason):
                activity = PhoneActivity.ABANDONED if left else PhoneActivity.DONE
                self._set(serial, activity=activity, left=left, doing=reason)

    def status(self) -> Status:
        """Return the campaign as it is now."""
        return replace(
            self._status,
            phones=tuple(map(self._now, self._phones.values())),
            figures=tuple(self._figures.values()),
        )

    def _now(self, phone: PhoneStatus) -> PhoneStatus:
        started = self._started.get(phone.serial, [])
        if len(started) < 2 or not phone.activity.is_under_way:
            return phone
        since_s = time.monotonic() - self._stored_s[phone.serial]
        pace = (started[-1] - started[0]) / (len(started) - 1)
        return replace(phone, eta_s=_eta_s(pace, phone.left, since_s))

    def _keep(self, event: RunStored) -> None:
        run, serial = event.run, event.run.case.serial
        phone = self._phone(serial)
        if run.run_pass is FIGURE_PASS and run.latency_us is not None and not run.is_without_result:
            latencies_us = self._latencies_us.setdefault(run.case.case_key, [])
            latencies_us.append(run.latency_us)
            self._figures[run.case.case_key] = _figure(run.case, latencies_us)
        state = run.state_after or run.state_before
        counts = run.is_final and not pass_of(run.run_pass).is_open_ended
        self._set(
            serial,
            stored=phone.stored + run.is_final,
            failed=phone.failed + run.is_without_result,
            doing="",
            left=max(0, phone.left - counts),
            battery_heat_c=state.battery_heat_c if state is not None else phone.battery_heat_c,
        )
        started = [*self._started.get(serial, ()), run.started_at]
        self._started[serial] = sorted(started)[-_PACE_RUNS:]
        self._stored_s[serial] = time.monotonic()

    def _phone(self, serial: str) -> PhoneStatus:
        return self._phones.get(serial, PhoneStatus(serial=serial))

    def _set(self, serial: str, **changes: Any) -> None:  # noqa: ANN401 - fields of the record
        self._phones[serial] = replace(self._phone(serial), **changes)


def _figure(case: Case, latencies_us: Sequence[float]) -> LiveFigure:
    summary = summarize(latencies_us) if len(latencies_us) > 1 else None
    return LiveFigure(
        serial=case.serial,
        case=f"{case.model_name}: {case.configuration}",
        median_us=summary.median_us if summary is not None else latencies_us[0],
        precision=summary.spread if summary is not None else None,
        runs=len(latencies_us),
        is_per_token=case.is_per_token,
    )


class PublishedStatus:
    """Hands events on, and keeps a file in ``folder`` with the status of a campaign of this
    process.

    The file is for commands of other processes; a campaign runs on when it can't be written.
    """

    def __init__(self, observer: Observer, folder: Path) -> None:
        """The file is there from a campaign's start to its end, to `close`, or to this process's
        end.
        """
        self._observer = observer
        self._folder = folder
        self._live = LiveStatus()
        self._path: Path | None = None
        self._lock = threading.Lock()
        self._written_s = float("-inf")

    def on_event(self, event: object) -> None:
        """Apply an event and pass it on."""
        with self._lock:
            self._live.on_event(event)
            if isinstance(event, CampaignStarted):
                self._path = file_of(self._folder, event.campaign.campaign_id, ".json")
            if isinstance(event, CampaignEnded):
                self._remove()
            # A file transfer has a hundred events a second.
            elif self._path is not None and not (
                isinstance(event, FileMoving) and time.monotonic() < self._written_s + _EVERY_S
            ):
                self._write(self._path)
        self._observer.on_event(event)

    def close(self) -> None:
        """Remove the file of a campaign that ended without an event."""
        with self._lock:
            self._remove()

    def _write(self, path: Path) -> None:
        self._written_s = time.monotonic()
        with contextlib.suppress(OSError):
            write_whole(path, dump_document(self._live.status()))

    def _remove(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._path = None


def running_here(folder: Path, campaigns: Locks) -> Mapping[str, Status]:
    """Return the campaigns that this computer's processes run now, by their ids.

    Files of processes that are gone are removed.
    """
    statuses: dict[str, Status] = {}
    for path in sorted(folder.glob("*.json")):
        holder = campaigns.live_holder(name_of(path))
        try:
            if not holder:
                path.unlink(missing_ok=True)
                continue
            status = load_document(Status, path.read_text("utf-8"), where=str(path))
        except (OSError, ValueError, StoreError):
            continue
        statuses[status.campaign_id] = replace(status, holder=holder)
    return statuses


def open_campaigns(workspace: Workspace) -> list[Status]:
    """Return the campaigns that run, and those that wait to be resumed, the newest first.

    Campaigns that this computer runs have their phones; the others only their stored counts.
    """
    here = running_here(workspace.status_folder, workspace.campaigns)
    progress = workspace.store.progress(only_open=True)
    statuses = []
    for campaign in workspace.store.campaigns(only_open=True):
        running = here.get(campaign.campaign_id)
        statuses.append(
            Status(
                campaign_id=campaign.campaign_id,
                name=campaign.name,
                state=state_of(workspace, campaign, running),
                host=campaign.host,
                holder=running.holder if running is not None else "",
                progress=progress[campaign.campaign_id],
                phones=running.phones if running is not None else (),
            )
        )
    return statuses


def state_of(workspace: Workspace, campaign: Campaign, here: Status | None) -> str:
    """Return the state of a campaign; ``here`` is its status where a process of this computer runs
    it.
    """
    if here is not None or campaign.status is not CampaignStatus.RUNNING:
        return campaign.status
    # One whose process was killed is stored as running.
    return ELSEWHERE if runner_elsewhere(workspace.settings, campaign) else CUT_OFF


def phone_elsewhere(
    serial: str, campaign: Campaign, progress: CampaignProgress, newest: RunRecord | None
) -> PhoneStatus:
    """Return the one phone of a campaign that another computer runs, from its stored runs.

    ``newest`` is the phone's newest run, of whatever campaign.
    """
    doing, eta_s = "begins", None
    if newest is not None and newest.campaign_id == campaign.campaign_id:
        doing = ""
        if progress.stored > 1:
            pace = (newest.started_at - campaign.created_at) / (progress.stored - 1)
            since_s = (datetime.now(UTC) - newest.ended_at).total_seconds()
            eta_s = _eta_s(pace, progress.left, since_s)
    return PhoneStatus(
        serial=serial,
        activity=PhoneActivity.WORKING,
        doing=doing,
        stored=progress.stored,
        left=progress.left,
        eta_s=eta_s,
    )


def _eta_s(pace: timedelta, left: int, since_s: float) -> float:
    """Return the seconds until a phone is done, which begins a run in each ``pace`` and ended one
    ``since_s`` ago.
    """
    return max(0.0, pace.total_seconds() * left - since_s)


def doing_of(invocation: Invocation) -> str:
    """Return a phone's current measurement as text."""
    case = invocation.case
    # The usual program is left out: there is little room.
    configuration = case.configuration.replace(f", {usual_tool(DeviceKind.ANDROID)}", "")
    kind = "" if invocation.run_pass is FIGURE_PASS else f" ({invocation.run_pass})"
    return f"{case.model_name}: {configuration}{kind} #{invocation.number + 1}"


def runner_elsewhere(settings: Settings, campaign: Campaign) -> str:
    """Return the other computer that runs a campaign of a shared store, empty for none.

    Only that computer knows whether it still runs. A store in a file is this computer's alone,
    whatever its name was when the campaign began.
    """
    is_own = (
        campaign.host in {this_computer(), socket.gethostname()} or settings.store_file is not None
    )
    return "" if is_own or campaign.status is not CampaignStatus.RUNNING else campaign.host


def queue_source() -> QueueSource:
    """Return the source of the queue; raises UsageError where the farm isn't installed."""
    entry = next(iter(plugins("queues").values()), None)
    if entry is None:
        raise UsageError("the farm isn't installed", hint="benchfarm's whole distribution has it")
    return load(entry, QueueSource)


def queue_beside(settings: Settings, stack: ExitStack) -> Queue | None:
    """Return the queue in the store's database.

    None without the farm or its packages, or where there is none to be read. Raises PluginError.
    """
    if settings.store_file is not None or not plugins("queues"):
        return None
    with suppress(ImportError):
        return stack.enter_context(queue_source().reading(settings.store))
    return None


class OtherRunner(NamedTuple):
    """A worker or another computer that runs a campaign or will, and how to end it there."""

    reason: str
    hint: str
    #: Only that computer knows whether it still runs.
    may_be_gone: bool


def other_runners(
    workspace: Workspace, campaigns: Sequence[Campaign], *, trusts_jobs: bool = True
) -> Mapping[CampaignId, OtherRunner]:
    """Return the farm's workers and other computers that run open campaigns or will.

    With ``trusts_jobs`` a worker's computer doesn't run campaigns of its ended jobs any more.
    """
    with ExitStack() as stack:
        queue = queue_beside(workspace.settings, stack) if campaigns else None
        ids = [item.campaign_id for item in campaigns]
        owners = queue.owners(ids) if queue is not None else {}
    runners: dict[CampaignId, OtherRunner] = {}
    for item in campaigns:
        owner = owners.get(item.campaign_id)
        if owner is not None and owner.is_open:
            hint = f"'benchfarm farm cancel {owner.submission} -s {owner.serial}' ends it and closes this"
            runners[item.campaign_id] = OtherRunner(
                "a job of the farm that waits or runs", hint, may_be_gone=False
            )
        elif (owner is None or not trusts_jobs) and (
            where := runner_elsewhere(workspace.settings, item)
        ):
            runners[item.campaign_id] = OtherRunner(
                f"run by {where}, as far as is known here",
                "close it on that computer",
                may_be_gone=True,
            )
    return runners


#: Events that are written for programs.
_EVENTS: Final = (
    CampaignStarted,
    CampaignEnded,
    DeviceFinished,
    DeviceNote,
    FilePlaced,
    InvocationStarted,
    RoundAdded,
    RunStored,
)
#: Fields of events that programs know by another name.
_KEYS: Final = {"done": "stored", "name": "file"}


def event_text(event: object) -> str:
    """Return an event as one line for people, empty for one that isn't for people."""
    match event:
        case CampaignStarted(campaign=campaign, devices=devices, total=total, done=done):
            counts = Counter(facts.title for facts in devices)
            titles = [
                title if count == 1 else f"{count} x {title}" for title, count in counts.items()
            ]
            names = ", ".join(titles) or "no device"
            stored = f", {done} stored already" if done else ""
            text = f"campaign {campaign.campaign_id} '{campaign.name}': {counted(total, 'invocation')} on {names}{stored}"
        case Notice(text=text):
            pass
        case FilePlaced(serial=serial, name=name, pushed_bytes=0):
            text = f"{serial}: {visible(name)} is there already"
        case FilePlaced(serial=serial, name=name, pushed_bytes=pushed_bytes, duration_s=duration_s):
            text = f"{serial}: sent {visible(name)}, {format_bytes(pushed_bytes)} in {format_duration(duration_s)}"
        case DeviceNote(serial=serial, text=note, is_problem=is_problem):
            text = f"{serial}: {'problem: ' if is_problem else ''}{note}"
        case RoundAdded(serial=serial, cases=cases, run_pass=name) if pass_of(
            name
        ).compares_outputs:
            text = f"{serial}: the outputs of {counted(cases, 'case')} are to be compared with the reference"
        case RoundAdded(serial=serial, last=last, cases=cases):
            text = (
                f"{serial}: not certain enough yet: {counted(cases, 'case')}; "
                f"invocations up to {last + 1} are added"
            )
        case RunStored(run=run) if run.outcome is Outcome.SKIPPED and not (
            pass_of(run.run_pass).compares_outputs and run.reason_code.startswith("parity-")
        ):
            # Its cause was reported before. Why outputs can't be compared wasn't.
            text = ""
        case RunStored(run=run, position=position, total=total, side=side):
            of_side = f"[{side}] " if side else ""
            text = f"{run.case.serial}: {position}/{total} {of_side}{describe_run(run)}"
        case DeviceFinished(serial=serial, left=left, reason=reason) if left:
            text = f"{serial}: abandoned with {counted(left, 'invocation')} left: {reason or 'stopped'}"
        case CampaignEnded(
            campaign=campaign,
            status=status,
            stored=stored,
            not_run=not_run,
            left=left,
        ):
            some = f" ({not_run} of them left out)" if not_run else ""
            text = f"campaign {campaign.campaign_id} {status}: {stored} stored{some}, {left} left"
        case _:
            text = ""
    return one_line(text)


def describe_run(run: RunRecord) -> str:
    """Return a run as one line: its case, its outcome, its figure and its quality."""
    case = run.case
    kind = "" if run.run_pass is FIGURE_PASS else f" ({run.run_pass} pass)"
    title = f"{visible(case.model_name)}, {case.configuration}{kind} #{run.invocation + 1}"
    if run.outcome is not Outcome.COMPLETED:
        return f"{title}: {ending_text(run)}"
    grade = f" {run.verdict.grade}" if run.verdict.grade is not None else ""
    codes = ", ".join(run.verdict.codes)
    worth = f"{run.verdict.quality.word}{grade}{f' ({codes})' if codes else ''}"
    parts = ", ".join(filter(None, (figure_of(run), nodes_of(run), worth)))
    return f"{title}: {parts}{' [virtual]' if run.is_virtual else ''}"


def ending_text(run: RunRecord) -> str:
    """Return how a run ended that gave no result: its outcome, its code and its reason."""
    # The outcome and its code may be one word.
    words = dict.fromkeys((run.outcome.value, run.reason_code, run.reason))
    return ": ".join(filter(None, words))


def figure_of(run: RunRecord) -> str:
    """Return a run's figure as people read it; empty for one that didn't complete."""
    if run.outcome is not Outcome.COMPLETED:
        return ""
    run_pass = pass_of(run.run_pass)
    latency_us = run.measured_us if run_pass.prints_latency else None
    if latency_us is not None:
        return format_figure(latency_us, is_per_token=run.case.is_per_token)
    return run_pass.run_text(run) or "done"


def nodes_of(run: RunRecord) -> str:
    """Return the delegated share of a partly delegated run's operators; empty for others."""
    delegate = run.report.delegate if run.report else None
    if delegate is None or delegate.truth is not DelegateTruth.PARTIAL:
        return ""
    return f"{delegate.share_text or 'not all'} operators delegated"


def event_record(event: object) -> dict[str, Any] | None:
    """Return an event for programs: ``event``, ``level``, ``text`` and its keys
    (docs/reference/monitoring.md).

    None for an event that isn't written: a file transfer has a hundred events a second.
    """
    if isinstance(event, Notice):
        return {"event": event.event, "level": event.level, "text": event.text, **event.keys}
    if not isinstance(event, _EVENTS):
        return None
    text = describe_run(event.run) if isinstance(event, RunStored) else event_text(event)
    name = re.sub("(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()
    return {**_keys_of(event), "event": name, "level": _level_of(event), "text": text}


def _level_of(event: object) -> str:
    match event:
        case RunStored(run=run) if run.outcome is not Outcome.COMPLETED:
            return "error" if run.outcome.is_begun else "warning"
        case DeviceNote(is_problem=True):
            return "warning"
        case DeviceFinished(left=left) | CampaignEnded(left=left) if left:
            return "warning"
        case _:
            return "info"


def _keys_of(event: Any) -> dict[str, object]:  # noqa: ANN401 - any of the events
    """Return the plain fields of an event, and the keys of its records."""
    keys: dict[str, object] = {}
    for item in fields(event):
        match getattr(event, item.name):
            case RunRecord() as run:
                keys |= _run_keys(run)
            case Invocation(case=case, run_pass=run_pass, number=number):
                keys |= {**_case_keys(case), "run_pass": str(run_pass), "invocation": number + 1}
            case Campaign(campaign_id=campaign_id, name=name, host=host, status=status):
                keys |= {"campaign_id": campaign_id, "campaign": name, "host": host}
                keys["status"] = str(status)
            case str() | int() | float() as value:
                keys[_KEYS.get(item.name, item.name)] = value
    return keys


def _case_keys(case: Case) -> dict[str, object]:
    return {
        "serial": case.serial,
        "case_key": case.case_key,
        "model": case.model_name,
        "configuration": case.configuration,
    }


def _run_keys(run: RunRecord) -> dict[str, object]:
    state = run.state_after or run.state_before
    return {
        **_case_keys(run.case),
        "run_id": run.run_id,
        "run_pass": str(run.run_pass),
        "invocation": run.invocation + 1,
        "outcome": str(run.outcome),
        "reason_code": run.reason_code,
        "quality": str(run.verdict.quality),
        "latency_us": run.measured_us,
        "duration_s": round(run.duration_s, 3),
        "battery_heat_c": state.battery_heat_c if state is not None else None,
        "is_virtual": run.is_virtual,
    }
