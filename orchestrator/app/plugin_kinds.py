"""The record of each kind of plugin; ``orchestrator.plugins`` has their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.records import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.app.doctor import HostCheck
    from orchestrator.app.exporting import ExportRequest
    from orchestrator.app.workspace import Workspace
    from orchestrator.ports import Device, ListedPhone
    from orchestrator.records.answers import DoneAnswer
    from orchestrator.records.campaign import Campaign
    from orchestrator.records.case import CampaignId
    from orchestrator.settings import Settings


@frozen
class Exporter:
    """A format of ``benchfarm export``."""

    #: The file it is written to by default, whose suffix means the format in ``--out``.
    path: Path
    #: Writes the requested data of the campaigns to a new file. Raises UsageError. The campaigns
    #: have no invocations, as these may be very many: read them from the store. An answer's text
    #: follows the file's name, and its data is a mapping.
    write: Callable[[Workspace, Sequence[Campaign], ExportRequest, Path], DoneAnswer | None]
    #: Its description, as in docs/reference/exports.md.
    about: str = ""
    #: Whether ``--run`` chooses some runs; else it is about whole campaigns.
    takes_runs: bool = False
    #: Whether ``--rows`` chooses what a row is; else it has no rows or always the same.
    takes_rows: bool = False


@frozen
class Message:
    """The message that a notifier sends."""

    #: Plain values; a webhook gets them as ``report`` in one JSON object with ``text``.
    content: object
    #: For people; its first line is a headline.
    text: str


@frozen
class Receiver:
    """The destination of messages."""

    #: Its name in errors, without a secret of its address.
    name: str
    #: Tries once, for at most that many seconds; returns why it failed (empty: delivered), and
    #: whether another try may help.
    deliver: Callable[[Message, float], tuple[str, bool]]


@frozen
class Notifier:
    """A way to send what ``benchfarm history changes --notify`` reports."""

    #: Returns the receiver of an address; raises ValueError with a sentence for an unusable one.
    receiver: Callable[[str, Settings], Receiver]


@frozen
class Page:
    """A page beside those of the history, written and served with them."""

    #: The text of links to it.
    title: str
    #: Returns the HTML document; its policy forbids inline scripts and external resources.
    render: Callable[[Workspace], str]


def _no_problem(settings: Settings) -> tuple[str, str]:
    return "", ""


@frozen
class DeviceSource:
    """A way to reach devices beside Android phones behind adb, and this computer."""

    #: The name of its service, as Android's phones have an adb server: ``usbmuxd``.
    title: str
    #: Returns the attached devices, usable or not; none, without delay, where this computer can't
    #: have any. Raises DeviceError, which is reported; other devices stay usable.
    attached: Callable[[Settings], Sequence[ListedPhone]]
    #: Opens a usable device; a device that is a ``ports.CheckedDevice`` can be checked by
    #: ``benchfarm device check``. Raises DeviceError kinds.
    open: Callable[[Workspace, ListedPhone], Device]
    #: Returns the problem of this computer with such devices, and the next step, for
    #: ``benchfarm doctor``; empty texts for none.
    lacking: Callable[[Settings], tuple[str, str]] = _no_problem


@frozen
class JobOwner:
    """The job of a campaign, which only a worker resumes while it is open."""

    submission: str
    serial: str
    #: Whether it waits or runs.
    is_open: bool


class Queue(Protocol):
    """A queue of jobs for the phones of many hosts, as other commands read it.

    Rows are mappings by column: docs/reference/farm.md and the class of the farm's extension have
    them. Every method raises StoreError.
    """

    def now(self) -> datetime:
        """Return the queue's time (UTC), which all hosts share."""

    def hosts(self) -> Sequence[Mapping[str, Any]]:
        """Return the hosts that work for the queue."""

    def phones(self) -> Sequence[Mapping[str, Any]]:
        """Return the announced phones, a row per phone and host."""

    def away(self) -> Sequence[Mapping[str, Any]]:
        """Return the phones that a host announced and none does now."""

    def jobs(self, submission: str = "") -> Sequence[Mapping[str, Any]]:
        """Return the jobs of a submission, or all open and the newest others."""

    def left_out(self, submission: str) -> Mapping[str, str]:
        """Return the phones that a submission selects and that have no job, with the reason."""

    def pauses(self) -> Sequence[str]:
        """Return the paused scopes."""

    def owners(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, JobOwner]:
        """Return the jobs of these campaigns; campaigns without a job are left out."""

    def ask_release(self, serial: str) -> str:
        """Request a phone's release from quarantine; return its host's name, empty for none."""


@frozen
class QueueSource:
    """The queue of jobs in a store's database. benchfarm's own is its only one."""

    #: Opens the queue of a store's URL for reading, None where there is none. Raises ImportError
    #: without the packages of its database.
    reading: Callable[[str], AbstractContextManager[Queue | None]]
    #: Pause and resume scopes: ``farm``, ``host:NAME``, ``phone:SERIAL``. Raise UsageError.
    pause: Callable[[Settings, Sequence[str]], DoneAnswer]
    resume: Callable[[Settings, Sequence[str]], DoneAnswer]
    #: Cancels a submission, or the jobs of some of its phones. Raises UsageError.
    cancel: Callable[[Workspace, str, Sequence[str]], DoneAnswer]
    #: Returns the findings of ``benchfarm doctor``. Raises StoreError.
    findings: Callable[[Workspace], Sequence[HostCheck]]
