"""What the engine tells while it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import FIGURE_PASS, Pass, Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord


@frozen
class Notice:
    """Something to know that is no device's: a hint, what is waited for."""

    #: What kind of notice it is, as logs name it.
    event: str
    text: str
    #: ``info`` or ``warning``.
    level: str = "info"
    #: Further keys of a log's line.
    keys: Mapping[str, object] = field(default_factory=dict)


@frozen
class CampaignStarted:
    """A campaign begins, or goes on."""

    campaign: Campaign
    devices: tuple[DeviceFacts, ...]
    total: int
    #: How many invocations are stored already.
    done: int
    #: Device -> runs that are stored, and the least number of invocations that aren't; of those
    #: that have some.
    stored: Mapping[Serial, int] = field(default_factory=dict)
    left: Mapping[Serial, int] = field(default_factory=dict)


@frozen
class FilePlaced:
    """A model, program or app is on the device, verified."""

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
    """Something to know about a device: what it waits for, what is tried again, what was left
    behind.
    """

    serial: Serial
    text: str
    is_problem: bool = False
    #: True when the device was lost, False when it is back.
    is_away: bool | None = None


@frozen
class RoundAdded:
    """Some cases' figures aren't certain enough, or their outputs aren't compared yet: each gets
    more invocations.
    """

    serial: Serial
    #: The numbers that their invocations have, from 0: the first and the last.
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
    """All is prepared, the process is started now."""

    invocation: Invocation
    side: str = ""


@frozen
class RunStored:
    """A run is kept."""

    run: RunRecord
    position: int
    total: int
    side: str = ""


@frozen
class DeviceFinished:
    """A device's queue is through, or the device is abandoned; at least ``left`` invocations aren't
    stored then.
    """

    serial: Serial
    left: int
    reason: str = ""


@frozen
class CampaignEnded:
    """How a campaign ended: all devices are through."""

    campaign: Campaign
    #: Invocations that are stored, and those of them that weren't run: another's figure is theirs,
    #: they failed before, or there was no time.
    stored: int
    not_run: int = 0
    #: At least this many aren't stored; of what a stopping rule adds only the next round is known.
    left: int = 0
    #: Devices that were abandoned or aren't there, with the reason; their open invocations wait for
    #: a resume.
    lost: Mapping[Serial, str] = field(default_factory=dict)
    #: An error that ended a device's part and isn't the device's; to be raised once all is
    #: reported.
    fault: Exception | None = None

    @property
    def status(self) -> CampaignStatus:
        """How far the campaign is."""
        return self.campaign.status
