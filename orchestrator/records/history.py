"""A store's runs as history: points of series, annotations, confirmations, recent activity,
pruning.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Final

from orchestrator.records import frozen
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import BuildSha, CampaignId, ModelSha, Serial, SeriesKey
from orchestrator.records.run import Attachment, Outcome, RunRecord, has_result
from orchestrator.records.verdict import Quality

#: Smaller changes are never reported: a phone's own nights differ by as much.
LEAST_CHANGE: Final = 0.02


@frozen
class SeriesSketch:
    """A series without what its cases have in common beside the device."""

    series_key: SeriesKey
    serial: Serial
    is_virtual: bool = False


@frozen
class Contents:
    """The contents that a night tests: model, program and libraries."""

    model_sha256: ModelSha
    build_sha256: BuildSha
    #: (name, sha256), sorted.
    files: tuple[tuple[str, str], ...] = ()


@frozen
class CampaignSketch:
    """A campaign without its plan."""

    campaign_id: CampaignId
    created_at: datetime


@frozen
class Points:
    """The figures of timing invocations as columns of equal length; rejected and missing figures
    are left out.
    """

    series: tuple[SeriesSketch, ...]
    #: In the order in which they were first stored.
    contents: tuple[Contents, ...]
    #: Oldest first.
    campaigns: tuple[CampaignSketch, ...]
    #: Of each point: which of ``series``, ``contents`` and ``campaigns`` (64-bit integers).
    series_at: array[int]
    contents_at: array[int]
    campaign_at: array[int]
    #: Of each point: the invocation's median in microseconds (64-bit floats).
    latency_us: array[float]
    #: Of each point: 1 when its run is trusted, 0 when it is suspect (64-bit integers).
    trusted: array[int]


@frozen
class RunMark:
    """A run that compared outputs."""

    series_key: SeriesKey
    campaign_id: CampaignId
    #: When its campaign was begun.
    created_at: datetime
    outcome: Outcome
    #: Codes, in their order.
    findings: tuple[str, ...] = ()


@frozen
class Annotation:
    """An expected change: in the matching series, from a night on."""

    annotation_id: str
    #: A series key or its beginning, or words of which each must fit: ``delegate=gpu``,
    #: ``model=mobilenet``.
    selection: str
    #: The first night of the new level.
    night: date
    text: str
    created_at: datetime


class ConfirmationStatus(enum.StrEnum):
    """The confirmation of a change."""

    #: Nothing was run again yet.
    UNCONFIRMED = "unconfirmed"
    #: Old against new, side by side, differ as the nights did.
    CONFIRMED = "confirmed"
    #: Side by side they don't differ by the change.
    REFUTED = "refuted"
    #: It can't be run again; the detail says why.
    CANNOT = "cannot"


@frozen
class Confirmation:
    """The A/B rerun of one change."""

    series_key: SeriesKey
    #: The night of the change, as it was estimated then.
    night: date
    #: Its direction; None where it wasn't kept.
    is_slower: bool | None = None
    status: ConfirmationStatus
    detail: str
    #: New time / old time, as the rerun measured it.
    ratio: float | None = None
    at: datetime


@frozen
class DeviceSighting:
    """The versions of a device from a time on, until the next sighting."""

    at: datetime
    #: Name -> value, of those that are known: ``fingerprint``, ``GPU driver``, ``security patch``
    #: ...
    facts: Mapping[str, str]


@frozen
class OutcomeCount:
    """The number of runs with one outcome, reason and quality."""

    outcome: Outcome
    #: Empty for completed ones.
    reason_code: str
    quality: Quality
    count: int
    #: Where it was asked for.
    is_virtual: bool = False

    @property
    def has_result(self) -> bool | None:
        """Whether each of them gave a result; None for runs that owe none."""
        return has_result(self.outcome, self.reason_code, self.quality)


@frozen
class ResultCount:
    """The number of runs that owe a result, abandoned ones included, and of those without a result
    or with a rejected one.
    """

    made: int
    without_result: int

    @classmethod
    def of(cls, counts: Iterable[OutcomeCount]) -> ResultCount:
        """Return the sums of some counts."""
        owing = [item for item in counts if item.has_result is not None]
        return cls(
            made=sum(item.count for item in owing),
            without_result=sum(item.count for item in owing if not item.has_result),
        )

    @property
    def text(self) -> str:
        """The counts for people; empty when every run gave its result."""
        return (
            f"{self.without_result} of {self.made} without a result" if self.without_result else ""
        )


@frozen
class Activity:
    """The recent activity of a store."""

    #: Of all times.
    campaigns: Mapping[CampaignStatus, int]
    #: A campaign's name -> when the last one of that name was finished.
    finished_at: Mapping[str, datetime]
    #: Of the campaigns begun since then.
    runs: tuple[OutcomeCount, ...]
    #: The newest run of each device among them, without attachments.
    newest: tuple[RunRecord, ...]


#: The attachment that replaces all of a run's attachments.
PRUNED_FILE: Final = "raw-output-deleted.txt"


@frozen
class Pruned:
    """The extent of a deletion, or of a trial."""

    campaigns: int
    runs: int
    #: Of the database, as far as known: it reuses them for later runs.
    freed_bytes: int


def is_pruned(attachments: tuple[Attachment, ...]) -> bool:
    """Whether a run's raw output was deleted: nothing can be read from it again."""
    return any(item.name == PRUNED_FILE for item in attachments)


def pruned_marker(policy: str) -> Attachment:
    """Return the attachment that replaces a run's deleted raw output."""
    return Attachment(name=PRUNED_FILE, data=f"deleted: {policy}\n".encode())
