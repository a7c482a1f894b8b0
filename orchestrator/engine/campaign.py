"""A campaign: every device through its queue, each under its lease, all of it stored, all phones restored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.analysis.rounds import Savings, savings
from orchestrator.engine.assigning import Arrivals
from orchestrator.engine.device_pool import DevicePool
from orchestrator.engine.device_queue import runs_of
from orchestrator.engine.events import CampaignEnded, CampaignStarted
from orchestrator.engine.recovery import Turns
from orchestrator.engine.reference_check import keep_doubts
from orchestrator.engine.rounds import OpenWork, open_works
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """How a campaign ended."""

    campaign: Campaign
    status: CampaignStatus
    stored: int
    #: Devices that were abandoned or aren't there, with the reason; their open invocations wait for a resume.
    lost: Mapping[Serial, str] = field(default_factory=dict)
    #: At least so many invocations aren't stored; of what a stopping rule adds only the next round is known.
    left: int = 0
    #: What the stopping rule came to; None without one.
    savings: Savings | None = None
    #: What ended a device's part and isn't the device's; to be raised by whoever has told the rest.
    fault: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A campaign's runs at one moment, and what they leave open."""

    runs: Sequence[RunRecord]
    works: Mapping[Serial, OpenWork]

    @property
    def done(self) -> int:
        """How many invocations are stored; unfit ones wait for another try."""
        return sum(run.outcome is not Outcome.UNFIT for run in self.runs)

    @property
    def left(self) -> int:
        """How many aren't, at the least."""
        return sum(len(work.invocations) for work in self.works.values())


class CampaignRunner:
    """Runs what a stored campaign still lacks."""

    def __init__(self, services: Services, turns: Turns) -> None:
        self._services = services
        self._turns = turns

    def run(
        self,
        workload: Workload,
        devices: Sequence[tuple[Device, DeviceFacts]],
        *,
        arrivals: Arrivals | None = None,
    ) -> CampaignResult:
        """Run every invocation that isn't stored yet, on the devices that are there.

        A device that is lost is waited for while others work, and ends its own queue only. Whatever happens, each
        device is restored as it was before its lease is released, and the campaign's status says how far it came.
        ``arrivals`` tells of devices that come meanwhile, and of those that may stand in for lost ones.

        Raises:
            InterruptedByUserError: Ctrl-C; the status is INTERRUPTED.
            StoreError, HostStorageError: a run couldn't be kept.
        """
        campaign = workload.campaign
        stored = self._stored(workload)
        runs, works = stored.runs, stored.works
        lost: dict[Serial, str] = {
            serial: "not attached, or not usable"
            for serial, work in works.items()
            if work.invocations and serial not in {device.serial for device, _ in devices}
        }
        self._services.observer.on_event(
            CampaignStarted(
                campaign=campaign,
                devices=tuple(facts for _, facts in devices),
                total=max(len(campaign.invocations), stored.done),
                done=stored.done,
                stored=Counter(run.case.serial for run in runs),
                left={serial: len(work.invocations) for serial, work in works.items()},
            )
        )
        pool = DevicePool(workload, [facts for _, facts in devices], self._services, arrivals, runs, lost)
        turns = [
            (device, pool.work_of(device, facts)) for device, facts in devices if pool.has_work_for(facts.serial, works)
        ]
        status = CampaignStatus.INTERRUPTED
        at_end: _Stored | None = None
        try:
            faults = self._turns.run(
                turns,
                lost,
                may_reboot=campaign.terms.may_reboot,
                newcomers=pool.newcomers if arrivals is not None else None,
                replace_lost=pool.replace_lost if arrivals is not None and campaign.terms.replaces_lost else None,
            )
            workload = replace(workload, campaign=pool.campaign)
            if self._services.cancelled.is_set():
                raise InterruptedByUserError
            at_end = self._stored(workload)
            if not at_end.left:
                status = CampaignStatus.FINISHED
        except KeyboardInterrupt:
            raise InterruptedByUserError from None
        finally:
            for serial, other in pool.campaign.terms.replaced.items():
                if serial in lost:
                    lost[Serial(serial)] += f"; {other} takes its place"
            result = self._end(replace(workload, campaign=pool.campaign), status, lost, at_end)
        return replace(result, fault=faults[0] if faults else None)

    def _stored(self, workload: Workload) -> _Stored:
        runs = runs_of(self._services, workload)
        return _Stored(runs=runs, works=open_works(workload.campaign, runs, self._services.tools))

    def _end(
        self, workload: Workload, status: CampaignStatus, lost: Mapping[Serial, str], stored: _Stored | None
    ) -> CampaignResult:
        """``stored`` is what was read when all devices were through; None where they weren't."""
        campaign, finished_at = workload.campaign, self._services.clock.now()
        # Also of a check that was stored right before a crash.
        if any(item.run_pass is Pass.REFERENCE for item in campaign.invocations) and keep_doubts(
            self._services.store, campaign.campaign_id
        ):
            stored = None
        self._services.store.set_status(campaign.campaign_id, status, finished_at)
        stored = stored or self._stored(workload)
        result = CampaignResult(
            campaign=replace(campaign, status=status, finished_at=finished_at),
            status=status,
            stored=stored.done,
            lost=lost,
            left=stored.left,
            savings=savings(campaign, stored.runs),
        )
        self._services.observer.on_event(
            CampaignEnded(
                campaign=result.campaign, status=status, stored=stored.done, left=result.left, savings=result.savings
            )
        )
        return result
