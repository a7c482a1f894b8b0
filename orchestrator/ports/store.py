"""Where everything is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import (
    Activity,
    Annotation,
    Confirmation,
    DeviceSighting,
    Points,
    Pruned,
    RunMark,
    Yield,
)
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey
from orchestrator.records.night import RecentRun
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Build, Case, Model, Pass, SkippedCase


class Store(Protocol):
    """Where everything is kept. Every method is atomic; what returned is durable."""

    @property
    def name(self) -> str:
        """Which store it is, for messages: a file, or an address without its password."""

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""

    def amend_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Replace the terms, the invocations and the skips of a stored campaign: a device joined, or work moved.

        What the campaign has measured stays, also of invocations that aren't planned any more.
        """

    def set_status(self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None) -> None:
        """Record how far a campaign is."""

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs and what they left behind, also one that can't be read.

        Cases and series that no other campaign has go with it.
        """

    def hide_campaign(self, campaign_id: CampaignId, *, is_hidden: bool = True) -> None:
        """Leave a campaign out of what is listed, compared and searched for changes, or take it in again."""

    def hidden_campaigns(self) -> set[CampaignId]:
        """Return the campaigns that are hidden."""

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this (campaign, case, pass, invocation) is there already.

        A stored run whose outcome is UNFIT waits for another try: it isn't done, and whatever comes later replaces it.
        """

    def replace_reading(
        self,
        run_id: RunId,
        *,
        report: ToolReport,
        outcome: Outcome,
        reason_code: str,
        reason: str,
        verdict: QualityVerdict,
    ) -> None:
        """Replace what was read from a run's raw output and what follows from it; the raw output never changes."""

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""

    def campaigns(
        self, *, only_open: bool = False, with_hidden: bool = False, limit: int | None = None
    ) -> Sequence[Campaign]:
        """Return the newest campaigns, newest first, without their invocations and skips.

        ``only_open``: those that aren't finished. ``with_hidden``: hidden ones too. All when ``limit`` is None.
        """

    def campaign_count(self) -> int:
        """Return how many campaigns there are."""

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored that fit every filter given; all when none is."""

    def earlier_runs(self, case_key: CaseKey, before: CampaignId, *, limit: int) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their order.

        No more than ``limit``, without their attachments; of a campaign that has none of it yet, the last of all.
        """

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""

    def attachments_of(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what each of some runs left behind, in no order; unknown runs are left out."""

    def done(self, campaign_id: CampaignId) -> set[tuple[CaseKey, Pass, int]]:
        """Return which invocations of a campaign are stored; those that were only unfit aren't among them."""

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored (unfit ones aren't), and how many are planned.

        ``only_open``: of those that aren't finished.
        """

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""

    def points(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Points:
        """Return the figures of timing invocations of campaigns begun since then, of some series or of all."""

    def marks(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return what the figures don't show, oldest campaign first.

        Timing runs without a figure that counts, and the runs that compared outputs of those series in which one didn't
        agree.
        """

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""

    def recent_runs(
        self, series_keys: Sequence[SeriesKey], *, limit: int = 64
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first; unknown series are left out.

        Of each no more than ``limit``, in every pass together, unfit and skipped ones aside.
        """

    def reason_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Mapping[str, int]]:
        """Return how many runs of some campaigns ended with each reason code, those with none aside."""

    def yields(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
        """Return what the runs of some campaigns gave, campaigns without any run aside."""

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return of each campaign that has runs a mark that is another one once something else is read from them.

        It follows from how the runs ended, their figures, memory and findings, and means nothing beside that.
        """

    def skips(self, campaign_ids: Sequence[CampaignId], reason_code: str) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes nothing.

        Everything that was read from it stays. In its place stands a note with the policy; imported runs keep theirs.
        """

    def activity(self, since: datetime) -> Activity:
        """Return what campaigns came to, and the runs of those that were begun since then."""

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return what each device was and from when on, oldest first."""

    def run_ids(self, prefix: str, *, limit: int = 4) -> Sequence[RunId]:
        """Return the ids of runs that begin so, in their order, no more than ``limit``."""

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""

    def annotations(self) -> Sequence[Annotation]:
        """Return the changes that somebody expects, oldest night first."""

    def annotate(self, annotation: Annotation) -> None:
        """Keep that a change is expected."""

    def delete_annotation(self, annotation_id: str) -> bool:
        """Forget an annotation; False when there is none."""

    def confirmations(self) -> Sequence[Confirmation]:
        """Return what became of changes that were run again."""

    def confirm(self, confirmation: Confirmation) -> None:
        """Keep what became of a change, in the place of what was kept of it before."""

    def close(self) -> None:
        """Let go of the database."""
