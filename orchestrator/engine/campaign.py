"""A campaign: every device through its queue, each under its lease, all of it stored, all phones put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.engine.case_runner import CaseRunner, Services, Workload
from orchestrator.engine.events import CampaignEnded, CampaignStarted, DeviceFinished, DeviceNote
from orchestrator.errors import BenchfarmError, DeviceError, InterruptedByUserError
from orchestrator.ports import Device, Executor, Lease
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.workload import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """How a campaign ended."""

    campaign: Campaign
    status: CampaignStatus
    stored: int
    #: Devices that were given up or aren't there, with the reason; their open invocations wait for a resume.
    lost: Mapping[Serial, str] = field(default_factory=dict)
    #: How many of the planned invocations aren't stored; what was found while running isn't among them.
    left: int = 0


class CampaignRunner:
    """Runs what a stored campaign still lacks."""

    def __init__(self, services: Services, lease: Lease, executor: Executor) -> None:
        self._services = services
        self._lease = lease
        self._executor = executor

    def run(self, workload: Workload, devices: Sequence[tuple[Device, DeviceFacts]]) -> CampaignResult:
        """Run every invocation that isn't stored yet, on the devices that are there.

        A device that is lost ends its own queue only. Whatever happens, each device is put back as it was before its
        lease is given up, and the campaign's status says how far it came.

        Raises:
            InterruptedByUserError: Ctrl-C; the status is INTERRUPTED.
            StoreError, HostStorageError: a run couldn't be kept.
        """
        campaign, store = workload.campaign, self._services.store
        done = store.done(campaign.campaign_id)
        queues = _queues(campaign, done)
        lost: dict[Serial, str] = {
            serial: "not attached, or not usable"
            for serial in queues
            if serial not in {device.serial for device, _ in devices}
        }
        self._services.observer.on_event(
            CampaignStarted(
                campaign=campaign,
                devices=tuple(facts for _, facts in devices),
                total=len(campaign.invocations),
                done=len(done),
            )
        )
        jobs = {
            device: (str(device.serial), self._job(device, facts, workload, queues[device.serial], lost))
            for device, facts in devices
            if device.serial in queues
        }
        status = CampaignStatus.INTERRUPTED
        try:
            # This computer drives the phones: measured at the same time, its figures would be adb's.
            for is_host in (False, True):
                self._executor.run([job for device, job in jobs.items() if (device.kind is DeviceKind.HOST) is is_host])
            if self._services.cancelled.is_set():
                raise InterruptedByUserError
            if _planned(campaign) <= store.done(campaign.campaign_id):
                status = CampaignStatus.FINISHED
        except KeyboardInterrupt:
            raise InterruptedByUserError from None
        finally:
            result = self._end(campaign, status, lost)
        return result

    def _end(self, campaign: Campaign, status: CampaignStatus, lost: Mapping[Serial, str]) -> CampaignResult:
        finished_at = self._services.clock.now()
        self._services.store.set_status(campaign.campaign_id, status, finished_at)
        done = self._services.store.done(campaign.campaign_id)
        stored = len(done)
        left = len(_planned(campaign) - done)
        ended = replace(campaign, status=status, finished_at=finished_at)
        result = CampaignResult(campaign=ended, status=status, stored=stored, lost=lost, left=left)
        self._services.observer.on_event(CampaignEnded(campaign=ended, status=status, stored=stored, left=result.left))
        return result

    def _job(
        self,
        device: Device,
        facts: DeviceFacts,
        workload: Workload,
        queue: Sequence[Invocation],
        lost: dict[Serial, str],
    ) -> Callable[[], None]:
        def job() -> None:
            reason = ""
            try:
                with self._lease.acquire(device.serial):
                    try:
                        CaseRunner(device, facts, workload, self._services).run_all(queue)
                    finally:
                        self._put_back(device)
            except DeviceError as error:
                reason = str(error)
                lost[device.serial] = reason
            finally:
                stored = self._services.store.done(workload.campaign.campaign_id)
                left = sum((item.case.case_key, item.run_pass, item.number) not in stored for item in queue)
                self._services.observer.on_event(DeviceFinished(serial=device.serial, left=left, reason=reason))

        return job

    def _put_back(self, device: Device) -> None:
        """Undo what was changed; what can't be undone now stays in the journal and is named."""
        try:
            self._services.conditioner.restore(device, on_note=lambda text: self._problem(device, text))
        except BenchfarmError as error:
            text = f"could not be put back as it was ({error}); 'benchfarm restore {device.serial}' tries again"
            self._problem(device, text)

    def _problem(self, device: Device, text: str) -> None:
        self._services.observer.on_event(DeviceNote(serial=device.serial, text=text, is_problem=True))


def _planned(campaign: Campaign) -> set[tuple[CaseKey, Pass, int]]:
    return {(item.case.case_key, item.run_pass, item.number) for item in campaign.invocations}


def _queues(campaign: Campaign, done: set[tuple[CaseKey, Pass, int]]) -> dict[Serial, list[Invocation]]:
    queues: dict[Serial, list[Invocation]] = {}
    for invocation in campaign.invocations:
        if (invocation.case.case_key, invocation.run_pass, invocation.number) not in done:
            queues.setdefault(invocation.case.serial, []).append(invocation)
    return queues
