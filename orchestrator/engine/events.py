"""Events that the engine reports while it works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import FIGURE_PASS, Pass, Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord


@frozen
class Notice:
    """A message that belongs to no device: a hint, the reason of a wait."""

    #: The name of its kind in logs.
    event: str
    text: str
    #: ``info`` or ``warning``.
    level: str = "info"
    #: Further keys of a log's line.
    keys: Mapping[str, object] = field(default_factory=dict)


@frozen
class CampaignStarted:
    """A campaign begins or resumes."""

    campaign: Campaign
    devices: tuple[DeviceFacts, ...]
    total: int
    #: The number of invocations that are stored already.
    done: int
    #: Device -> the number of stored runs, and the least number of open invocations; devices with
    #: none are left out.
    stored: Mapping[Serial, int] = field(default_factory=dict)
    left: Mapping[Serial, int] = field(default_factory=dict)


@frozen
class FilePlaced:
    """A model, program or app is verified on the device."""

    serial: Serial
    name: str
    #: 0 when it was there already.
    pushed_bytes: int
    duration_s: float


@frozen
class FileMoving:
    """A file is on its way to a device."""

    serial: Serial
    name: str
    sent_bytes: int
    size_bytes: int


@frozen
class DeviceNote:
    """A message about a device: what it waits for, is retried there, or couldn't be restored."""

    serial: Serial
    text: str
    is_problem: bool = False
    #: True when the device was lost, False when it is back.
    is_away: bool | None = None


@frozen
class RoundAdded:
    """Cases get more invocations: their figures aren't certain enough, or their outputs aren't
    compared yet.
    """

    serial: Serial
    #: The first and the last number of these invocations, from 0.
    number: int
    last: int
    cases: int
    run_pass: Pass = FIGURE_PASS


@frozen
class InvocationStarted:
    """A process is about to be started on a device."""

    invocation: Invocation
    #: Counts from 1 within the device's queue.
    position: int
    total: int
    #: Of an A/B comparison: ``A, delegate xnnpack``.
    side: str = ""


@frozen
class Measuring:
    """All is prepared; the process starts now."""

    invocation: Invocation
    side: str = ""


@frozen
class RunStored:
    """A run is stored."""

    run: RunRecord
    position: int
    total: int
    side: str = ""


@frozen
class DeviceFinished:
    """A device's queue is done, or the device is abandoned; at least ``left`` invocations are
    open.
    """

    serial: Serial
    left: int
    reason: str = ""


@frozen
class CampaignEnded:
    """A campaign has ended on all devices."""

    campaign: Campaign
    #: Stored invocations, and those of them that weren't run: they share another's figure, failed
    #: before, or there was no time.
    stored: int
    not_run: int = 0
    #: The least number of open invocations; of a stopping rule's only the next round is known.
    left: int = 0
    #: Devices that were abandoned or are offline, with the reason; a resume runs their open
    #: invocations.
    lost: Mapping[Serial, str] = field(default_factory=dict)
    #: Those of them that somebody else uses.
    busy: Sequence[Serial] = ()
    #: An error that ended a device's part and isn't the device's fault; raised after the report.
    fault: Exception | None = None

    @property
    def status(self) -> CampaignStatus:
        """The campaign's status."""
        return self.campaign.status
