"""A campaign: a thread for each device, what is shared between them, and how the campaign ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.quality import skipped
from orchestrator.clock import Clock
from orchestrator.engine.decisions import OpenWork, next_sustained, open_work_by_serial
from orchestrator.engine.device_campaign import (
    DeviceCampaign,
    DeviceResult,
    WorkingDevices,
    campaign_runs,
)
from orchestrator.engine.events import CampaignEnded, CampaignStarted, Notice
from orchestrator.engine.invocation import CampaignContext, RunRecords
from orchestrator.errors import InterruptedByUserError
from orchestrator.passes import is_reference_run
from orchestrator.ports import Device, Tool
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import ABANDONED, Outcome, RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: How often the calling thread wakes: it lets the interpreter handle signals.
_POLL_S: Final = 0.5

_Stored = tuple[Sequence[RunRecord], Mapping[Serial, OpenWork]]


def run_on_devices(
    context: CampaignContext, devices: Sequence[tuple[Device, DeviceFacts]]
) -> CampaignEnded:
    """Run every invocation that isn't stored yet, on the attached devices.

    A lost device is waited for while others work; it ends only its own part. In any case each
    device is restored before its lease is released, and the campaign's status is stored.

    Raises:
        InterruptedByUserError: Ctrl-C; the status is INTERRUPTED, unless nothing is open.
        StoreError, HostStorageError: a run couldn't be stored.
    """
    campaign = context.campaign
    runs, work_by_serial = _stored(context)
    abandoned: dict[Serial, str] = {
        serial: "not attached, or not usable"
        for serial, work in work_by_serial.items()
        if work.invocations and serial not in {device.serial for device, _ in devices}
    }
    devices_with_work = [
        item
        for item in devices
        if (work := work_by_serial.get(item[1].serial)) and work.invocations
    ]
    final_stored, faults, busy = None, list[Exception](), list[Serial]()
    try:
        context.observer.on_event(
            CampaignStarted(
                campaign=campaign,
                devices=tuple(facts for _, facts in devices),
                total=max(len(campaign.invocations), _stored_count(runs)),
                done=_stored_count(runs),
                stored=Counter(
                    run.case.serial for run in runs if run.is_final and run.reason_code != ABANDONED
                ),
                left={serial: len(work.invocations) for serial, work in work_by_serial.items()},
            )
        )
        # This computer last: while it drives the phones, adb would distort its figures.
        for is_host in (False, True):
            batch = [
                item for item in devices_with_work if (item[0].kind is DeviceKind.HOST) is is_host
            ]
            for serial, device_result in _measure_in_parallel(context, batch).items():
                abandoned |= {serial: device_result.reason} if device_result.reason else {}
                faults += [device_result.fault] if device_result.fault is not None else []
                busy += [serial] if device_result.is_busy else []
        if context.cancelled.is_set():
            raise InterruptedByUserError
        final_stored = _stored(context)
    except KeyboardInterrupt:
        raise InterruptedByUserError from None
    finally:
        result = _finish_whole(context, abandoned, final_stored)
    return replace(result, busy=busy, fault=faults[0] if faults else None)


def _measure_in_parallel(
    context: CampaignContext, devices: Sequence[tuple[Device, DeviceFacts]]
) -> dict[Serial, DeviceResult]:
    """Measure each device in its own thread; return each device's result."""
    working = WorkingDevices([facts.serial for _, facts in devices])
    results: dict[Serial, DeviceResult] = {}

    def measure(device: Device, facts: DeviceFacts) -> None:
        results[facts.serial] = DeviceCampaign(device, facts, context, working).run()

    def report_stop(serials: Sequence[Serial]) -> None:
        text = (
            f"stopping: waiting for {', '.join(serials)} to end and to be restored;"
            " an unreachable device is abandoned after a few minutes"
        )
        context.observer.on_event(Notice(event="stopping", text=text))

    _in_threads(
        {facts.serial: partial(measure, device, facts) for device, facts in devices},
        context.cancelled,
        report_stop,
    )
    return results


def _in_threads(
    parts: Mapping[Serial, Callable[[], None]],
    cancelled: threading.Event,
    report_stop: Callable[[Sequence[Serial]], None],
) -> None:
    """Run each part in a thread, and wait for all.

    A part that raises cancels the others, which end at their next step; the first error is raised
    when all have ended. So is Ctrl-C: however often it is pressed, the devices are restored first.
    ``report_stop`` is called with the devices that are still waited for.
    """
    errors: list[BaseException] = []
    interrupt: KeyboardInterrupt | None = None
    is_reported = False

    def guarded(run: Callable[[], None], ended: threading.Event) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - carried to the calling thread
            errors.append(error)
            cancelled.set()
        finally:
            ended.set()

    running: dict[Serial, threading.Event] = {}
    waiting = list(parts.items())
    # Not Thread.join: after a signal, Python 3.11's join treats a running thread as ended.
    while True:
        try:
            while waiting and interrupt is None:
                serial, run = waiting.pop(0)
                ended = threading.Event()
                running[serial] = ended
                threading.Thread(
                    target=guarded, args=(run, ended), name=str(serial), daemon=True
                ).start()
            unfinished = [serial for serial, ended in running.items() if not ended.is_set()]
            if not unfinished:
                break
            if interrupt is not None and not is_reported:
                is_reported = True
                guarded(partial(report_stop, unfinished), threading.Event())
            running[unfinished[0]].wait(_POLL_S)
        except KeyboardInterrupt as error:
            interrupt, is_reported = error, False
            cancelled.set()
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors[0]


def close_campaign(
    campaign: Campaign, store: Store, tools: Mapping[ToolName, Tool], clock: Clock
) -> int:
    """Abandon the open invocations of a campaign that nobody runs: store them as skipped, and
    close the campaign if there were any.

    Returns the number of invocations; of pairs those up to the next check. Measured runs stay.
    Raises StoreError.
    """
    count = 0
    records_by_serial = {
        serial: RunRecords(facts, campaign, tools, clock)
        for serial, facts in store.devices().items()
    }
    reason = "the open runs of its campaign were abandoned"
    runs = campaign_runs(store, campaign)
    while open_invocations := [
        item
        for work in open_work_by_serial(campaign, runs, tools).values()
        # Without runs there is nothing for the reference workload to bracket.
        for item in (
            *work.planned,
            *work.added,
            *(next_sustained(marker, runs) for marker in work.sustained),
        )
    ]:
        abandoned = [
            records_by_serial[item.case.serial].not_run(item, skipped(ABANDONED, reason))
            for item in open_invocations
        ]
        stored = [run for run in abandoned if store.append_run(run)]
        if not stored:
            break
        # The stopping rule may add invocations to those stored now.
        runs, count = [*runs, *stored], count + len(stored)
    store.set_status(campaign.campaign_id, _status(runs, 0), clock.now())
    return count


def _stored(context: CampaignContext) -> _Stored:
    """Return a campaign's runs, and the open work of each device."""
    runs = campaign_runs(context.store, context.campaign)
    return runs, open_work_by_serial(context.campaign, runs, context.tools)


def _finish_whole(
    context: CampaignContext, abandoned: Mapping[Serial, str], stored: _Stored | None
) -> CampaignEnded:
    """Store and report the campaign's end; Ctrl-C meanwhile is raised when that is done."""
    is_interrupted = False
    while True:
        try:
            result = _finish(context, abandoned, stored)
        except KeyboardInterrupt:
            is_interrupted = True
            continue
        if is_interrupted:
            raise InterruptedByUserError
        return result


def _finish(
    context: CampaignContext, abandoned: Mapping[Serial, str], stored: _Stored | None
) -> CampaignEnded:
    """Store and report the campaign's end; ``stored`` was read after all devices had finished."""
    campaign, finished_at = context.campaign, context.clock.now()
    if any(map(is_reference_run, campaign.invocations)):
        from orchestrator.engine.reference_check import store_doubts

        # Also the doubts of a check that was stored right before a crash.
        stored = None if store_doubts(context.store, campaign.campaign_id) else stored
    runs, work_by_serial = stored or _stored(context)
    status = _status(runs, _open_count(work_by_serial))
    context.store.set_status(campaign.campaign_id, status, finished_at)
    ended = replace(campaign, status=status, finished_at=finished_at)
    result = CampaignEnded(
        campaign=ended,
        stored=_stored_count(runs),
        not_run=sum(run.outcome is Outcome.SKIPPED for run in runs),
        left=_open_count(work_by_serial),
        lost=abandoned,
    )
    context.observer.on_event(result)
    return result


def _status(runs: Iterable[RunRecord], open_count: int) -> CampaignStatus:
    """Return the status of a campaign that nobody runs; with nothing open it is finished."""
    if open_count:
        return CampaignStatus.INTERRUPTED
    is_closed = any(run.reason_code == ABANDONED for run in runs)
    return CampaignStatus.CLOSED if is_closed else CampaignStatus.FINISHED


def _stored_count(runs: Iterable[RunRecord]) -> int:
    """Return the number of stored invocations; unfit ones are open: they are retried."""
    return sum(run.is_final for run in runs)


def _open_count(works: Mapping[Serial, OpenWork]) -> int:
    """Return the least number of open invocations."""
    return sum(len(work.invocations) for work in works.values())
