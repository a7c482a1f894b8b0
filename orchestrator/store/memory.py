"""A store that is gone with its process: for dry runs, and for tests of what stands above."""

from __future__ import annotations

import dataclasses
import threading
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import takewhile

from orchestrator.records.activity import Activity, RunCount, Yield
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import (
    Annotation,
    CampaignSketch,
    Confirmation,
    Contents,
    DeviceSighting,
    Points,
    RunMark,
    SeriesSketch,
)
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey, content_key
from orchestrator.records.night import RecentRun
from orchestrator.records.parity import OUTPUT_FINDINGS
from orchestrator.records.retention import Pruned, is_pruned, stand_in
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.records.workload import IMPORTED_TOOLS, Build, Case, Model, Pass, SkippedCase
from orchestrator.store import admission

_RunKey = tuple[CampaignId, CaseKey, Pass, int]


class MemoryStore:
    """The Store port over dictionaries; keeps and refuses the same as SqlStore, safe from several threads."""

    def __init__(self, name: str = ":memory:") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_open = True
        self._campaigns: dict[CampaignId, Campaign] = {}
        self._pruned: set[CampaignId] = set()
        self._hidden: set[CampaignId] = set()
        self._devices: dict[Serial, tuple[datetime, DeviceFacts]] = {}
        self._models: dict[str, Model] = {}
        self._builds: dict[str, Build] = {}
        #: In the order in which they were stored.
        self._runs: dict[_RunKey, RunRecord] = {}
        self._key_of_run: dict[RunId, _RunKey] = {}
        self._sightings: dict[Serial, list[DeviceSighting]] = {}
        self._annotations: dict[str, Annotation] = {}
        self._confirmations: dict[tuple[SeriesKey, date], Confirmation] = {}

    @property
    def name(self) -> str:
        """What people are told when they ask which store it is."""
        return self._name

    def begin_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Store a campaign with its invocations and skips, and what it refers to."""
        with self._locked():
            if campaign.campaign_id in self._campaigns:
                raise admission.campaign_exists(campaign.campaign_id)
            self._keep(campaign, devices, models, builds)

    def amend_campaign(
        self, campaign: Campaign, *, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        """Replace the terms, the invocations and the skips of a stored campaign."""
        with self._locked():
            stored = self._campaigns.get(campaign.campaign_id)
            if stored is None:
                raise admission.no_campaign(campaign.campaign_id)
            amended = dataclasses.replace(
                stored, terms=campaign.terms, invocations=campaign.invocations, skipped=campaign.skipped
            )
            self._keep(amended, devices, models, builds)

    def _keep(
        self, campaign: Campaign, devices: Iterable[DeviceFacts], models: Iterable[Model], builds: Iterable[Build]
    ) -> None:
        given_devices = list(devices)
        given_models: dict[str, Model] = {model.sha256: dataclasses.replace(model, path=None) for model in models}
        given_builds: dict[str, Build] = {build.sha256: dataclasses.replace(build, path=None) for build in builds}
        admission.check_campaign(
            campaign,
            devices=given_devices,
            known_devices={serial: facts.is_virtual for serial, (_, facts) in self._devices.items()},
            model_sha256s=self._models.keys() | given_models.keys(),
            build_sha256s=self._builds.keys() | given_builds.keys(),
        )
        for facts in given_devices:
            seen = self._devices.get(facts.serial)
            if seen is None or seen[0] <= campaign.created_at:
                self._devices[facts.serial] = (campaign.created_at, facts)
                sighting = DeviceSighting(at=campaign.created_at, facts=facts.versions)
                known = self._sightings.setdefault(facts.serial, [])
                if not known or known[-1].facts != sighting.facts:
                    known.append(sighting)
        self._models.update(given_models)
        self._builds.update(given_builds)
        self._campaigns[campaign.campaign_id] = campaign

    def set_status(self, campaign_id: CampaignId, status: CampaignStatus, finished_at: datetime | None) -> None:
        """Record how far a campaign is."""
        admission.check_moment(finished_at, f"campaign {campaign_id}: finished_at")
        with self._locked():
            if campaign_id not in self._campaigns:
                raise admission.no_campaign(campaign_id)
            known = self._campaigns[campaign_id]
            self._pruned.discard(campaign_id)
            self._campaigns[campaign_id] = dataclasses.replace(known, status=status, finished_at=finished_at)

    def remove_campaign(self, campaign_id: CampaignId) -> None:
        """Delete a campaign with its runs."""
        with self._locked():
            if self._campaigns.pop(campaign_id, None) is None:
                raise admission.no_campaign(campaign_id)
            self._pruned.discard(campaign_id)
            self._hidden.discard(campaign_id)
            for key in [key for key in self._runs if key[0] == campaign_id]:
                del self._key_of_run[self._runs.pop(key).run_id]
            cases = [item.case for campaign in self._campaigns.values() for item in campaign.invocations]
            known = {case.series_key for case in (*cases, *(run.case for run in self._runs.values()))}
            self._confirmations = {key: item for key, item in self._confirmations.items() if key[0] in known}

    def hide_campaign(self, campaign_id: CampaignId, *, is_hidden: bool = True) -> None:
        """Leave a campaign out of what is listed, compared and searched for changes, or take it in again."""
        with self._locked():
            if campaign_id not in self._campaigns:
                raise admission.no_campaign(campaign_id)
            (self._hidden.add if is_hidden else self._hidden.discard)(campaign_id)

    def hidden_campaigns(self) -> set[CampaignId]:
        """Return the campaigns that are hidden."""
        with self._locked():
            return set(self._hidden)

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this is there already. One that was unfit is replaced."""
        key = (run.campaign_id, run.case.case_key, run.run_pass, run.invocation)
        with self._locked():
            if run.campaign_id not in self._campaigns:
                raise admission.no_campaign(run.campaign_id)
            stored = self._runs.get(key)
            if stored is not None and stored.outcome is not Outcome.UNFIT:
                return False
            if run.run_id in self._key_of_run:
                raise admission.run_id_taken(run.run_id)
            _, facts = self._devices.get(run.case.serial, (None, None))
            admission.check_run(
                run,
                device_is_virtual=None if facts is None else facts.is_virtual,
                model_known=run.case.model_sha256 in self._models,
                build_known=run.case.build_sha256 in self._builds,
            )
            if stored is not None:
                # Taken out, so that the new one comes last.
                del self._runs[key], self._key_of_run[stored.run_id]
            self._runs[key] = run
            self._key_of_run[run.run_id] = key
            return True

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
        with self._locked():
            key = self._key_of_run.get(run_id)
            if key is None:
                raise admission.no_run(run_id)
            self._runs[key] = dataclasses.replace(
                self._runs[key],
                report=report,
                outcome=outcome,
                reason_code=reason_code,
                reason=reason,
                verdict=verdict,
            )

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        """Return a campaign, None when there is none."""
        with self._locked():
            return self._campaigns.get(campaign_id)

    def campaigns(
        self, *, only_open: bool = False, with_hidden: bool = False, limit: int | None = None
    ) -> Sequence[Campaign]:
        """Return the newest campaigns, newest first, without their invocations and skips."""
        with self._locked():
            stored = [
                dataclasses.replace(item, invocations=(), skipped=())
                for item in self._campaigns.values()
                if with_hidden or item.campaign_id not in self._hidden
            ]
        # Turned round as a whole, so that of two from the same moment the one stored last comes first.
        stored.sort(key=lambda campaign: campaign.created_at)
        newest_first = [item for item in stored[::-1] if not (only_open and item.status is CampaignStatus.FINISHED)]
        return newest_first[:limit]

    def campaign_count(self) -> int:
        """Return how many campaigns there are."""
        with self._locked():
            return len(self._campaigns)

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored; their attachments are empty unless asked for."""
        in_campaigns, of_cases, of_series = set(campaign_ids), set(case_keys), set(series_keys)
        with self._locked():
            stored = list(self._runs.items())
        for (campaign_id, case_key, _, _), run in stored:
            fits = (not in_campaigns or campaign_id in in_campaigns) and (not of_cases or case_key in of_cases)
            fits = fits and (not serials or run.case.serial in serials)
            if fits and (not of_series or run.case.series_key in of_series):
                yield run if with_attachments else dataclasses.replace(run, attachments=())

    def earlier_runs(self, case_key: CaseKey, before: CampaignId, *, limit: int) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their order."""
        earlier = takewhile(lambda run: run.campaign_id != before, self.runs(case_keys=[case_key]))
        return list(deque(earlier, maxlen=limit))

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""
        with self._locked():
            key = self._key_of_run.get(run_id)
            return () if key is None else self._runs[key].attachments

    def attachments_of(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what each of some runs left behind; unknown runs are left out."""
        with self._locked():
            known = {run_id: self._runs[self._key_of_run[run_id]] for run_id in run_ids if run_id in self._key_of_run}
        for run_id, run in known.items():
            yield run_id, run.attachments

    def done(self, campaign_id: CampaignId) -> set[tuple[CaseKey, Pass, int]]:
        """Return which invocations of a campaign are stored."""
        with self._locked():
            return {
                (case_key, run_pass, number)
                for (stored_in, case_key, run_pass, number), run in self._runs.items()
                if stored_in == campaign_id and run.outcome is not Outcome.UNFIT
            }

    def progress(self, *, only_open: bool = False) -> Mapping[CampaignId, tuple[int, int]]:
        """Return how many invocations of each campaign are stored, and how many are planned."""
        with self._locked():
            stored = Counter(run.campaign_id for run in self._runs.values() if run.outcome is not Outcome.UNFIT)
            return {
                key: (stored[key], len(campaign.invocations))
                for key, campaign in self._campaigns.items()
                if not (only_open and campaign.status is CampaignStatus.FINISHED)
            }

    def devices(self) -> Mapping[Serial, DeviceFacts]:
        """Return the devices ever seen, as last seen."""
        with self._locked():
            return {serial: facts for serial, (_, facts) in self._devices.items()}

    def models(self) -> Mapping[str, Model]:
        """Return the models by sha256."""
        with self._locked():
            return dict(self._models)

    def builds(self) -> Mapping[str, Build]:
        """Return the builds by sha256."""
        with self._locked():
            return dict(self._builds)

    def points(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Points:
        """Return the figures of timing invocations of campaigns begun since then, of some series or of all."""
        with self._locked():
            campaigns = sorted(
                (item for item in self._campaigns.values() if since is None or item.created_at >= since),
                key=lambda item: item.created_at,
            )
            runs = list(self._runs.values())
        wanted = set(series_keys)
        place_of_campaign = {item.campaign_id: place for place, item in enumerate(campaigns)}
        series: dict[SeriesSketch, int] = {}
        contents: dict[Contents, int] = {}
        series_at, contents_at, campaign_at, trusted = array("q"), array("q"), array("q"), array("q")
        latency_us = array("d")
        for run in runs:
            figure, quality = run.latency_us, run.verdict.quality
            is_figure = figure is not None and figure > 0 and quality is not Quality.REJECTED
            if (wanted and run.case.series_key not in wanted) or not is_figure:
                continue
            if figure is None or run.campaign_id not in place_of_campaign:
                continue
            series_at.append(series.setdefault(_series_of(run), len(series)))
            contents_at.append(contents.setdefault(_contents_of(run.case), len(contents)))
            campaign_at.append(place_of_campaign[run.campaign_id])
            latency_us.append(figure)
            trusted.append(int(quality is Quality.TRUSTED))
        return Points(
            series=tuple(series),
            contents=tuple(contents),
            campaigns=tuple(
                CampaignSketch(campaign_id=item.campaign_id, created_at=item.created_at) for item in campaigns
            ),
            series_at=series_at,
            contents_at=contents_at,
            campaign_at=campaign_at,
            latency_us=latency_us,
            trusted=trusted,
        )

    def marks(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return timing runs without a figure that counts, and comparisons of outputs where one didn't agree."""
        with self._locked():
            begun = {item.campaign_id: item.created_at for item in self._campaigns.values()}
            runs = list(self._runs.values())
        doubted = {
            run.case.series_key
            for run in runs
            if run.run_pass is Pass.PARITY and any(item.code in OUTPUT_FINDINGS for item in run.verdict.findings)
        }
        found = [
            RunMark(
                series_key=run.case.series_key,
                campaign_id=run.campaign_id,
                created_at=begun[run.campaign_id],
                run_pass=run.run_pass,
                outcome=run.outcome,
                quality=run.verdict.quality,
                reason_code=run.reason_code,
                findings=tuple(finding.code for finding in run.verdict.findings),
            )
            for run in runs
            if (not series_keys or run.case.series_key in set(series_keys))
            and (since is None or begun[run.campaign_id] >= since)
            and (
                (run.run_pass is Pass.PARITY and run.case.series_key in doubted)
                or (run.run_pass is Pass.TIMING and (run.latency_us is None or run.verdict.quality is Quality.REJECTED))
            )
        ]
        return sorted(found, key=lambda mark: mark.created_at)

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""
        wanted = set(series_keys)
        with self._locked():
            planned = [item.case for campaign in self._campaigns.values() for item in campaign.invocations]
            known = [*planned, *(run.case for run in self._runs.values())]
        return {case.series_key: case for case in known if not wanted or case.series_key in wanted}

    def recent_runs(
        self, series_keys: Sequence[SeriesKey], *, limit: int = 64
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first."""
        found: dict[SeriesKey, list[RecentRun]] = {}
        with self._locked():
            for run in reversed(self._runs.values()):
                own = found.setdefault(run.case.series_key, [])
                if len(own) < limit and run.outcome not in (Outcome.UNFIT, Outcome.SKIPPED):
                    own.append(
                        RecentRun(
                            run_pass=run.run_pass,
                            started_at=run.started_at,
                            duration_s=run.duration_s,
                            outcome=run.outcome,
                            campaign=run.campaign_id,
                        )
                    )
        return {key: runs for key, runs in found.items() if runs and key in set(series_keys)}

    def reason_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Mapping[str, int]]:
        """Return how many runs of some campaigns ended with each reason code, those with none aside."""
        with self._locked():
            ended = [run for run in self._runs.values() if run.reason_code and run.campaign_id in set(campaign_ids)]
            names = {run.campaign_id for run in ended}
            return {name: Counter(run.reason_code for run in ended if run.campaign_id == name) for name in names}

    def yields(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
        """Return what the runs of some campaigns gave, campaigns without any run aside."""
        with self._locked():
            runs = [run for run in self._runs.values() if run.campaign_id in set(campaign_ids)]
        made = Counter(run.campaign_id for run in runs if run.outcome is not Outcome.SKIPPED)
        lost = Counter(run.campaign_id for run in runs if run.is_without_result)
        return {
            run.campaign_id: Yield(made=made[run.campaign_id], without_result=lost[run.campaign_id]) for run in runs
        }

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return of each campaign that has runs a mark that is another one once something else is read from them."""
        with self._locked():
            runs = [run for run in self._runs.values() if run.campaign_id in set(campaign_ids)]
        read: dict[CampaignId, list[object]] = {}
        for run in runs:
            read.setdefault(run.campaign_id, []).append((run.outcome, run.reason_code, run.report, run.verdict))
        return {name: content_key([repr(item) for item in found]) for name, found in read.items()}

    def skips(self, campaign_ids: Sequence[CampaignId], reason_code: str) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
        with self._locked():
            found = {
                name: tuple(skip for skip in campaign.skipped if skip.reason_code == reason_code)
                for name in campaign_ids
                if (campaign := self._campaigns.get(name)) is not None
            }
        return {name: skips for name, skips in found.items() if skips}

    def prune_raw(self, before: datetime, *, policy: str, is_trial: bool = False) -> Pruned:
        """Delete what the runs of ended campaigns begun before then left behind; a trial changes nothing."""
        late = before - timedelta(days=1)
        with self._locked():
            newest = {name: campaign.created_at for name, campaign in self._campaigns.items()}
            for run in self._runs.values():
                newest[run.campaign_id] = max(run.started_at, newest[run.campaign_id])
            old = {
                name
                for name, campaign in self._campaigns.items()
                if campaign.created_at < before
                and name not in self._pruned
                and (campaign.status is not CampaignStatus.RUNNING or newest[name] < late)
            }
            found = {
                key: run
                for key, run in self._runs.items()
                if run.campaign_id in old
                and run.attachments
                and not is_pruned(run.attachments)
                and run.case.tool not in IMPORTED_TOOLS
            }
            if not is_trial:
                self._pruned |= old
                for key, run in found.items():
                    self._runs[key] = dataclasses.replace(run, attachments=(stand_in(policy),))
            freed_bytes = sum(len(item.data) for run in found.values() for item in run.attachments)
        return Pruned(campaigns=len(old), runs=len(found), freed_bytes=freed_bytes)

    def activity(self, since: datetime) -> Activity:
        """Return what campaigns came to, and the runs of those that were begun since then."""
        with self._locked():
            late = {name for name, campaign in self._campaigns.items() if campaign.created_at >= since}
            runs = [run for run in self._runs.values() if run.campaign_id in late]
            finished: dict[str, datetime] = {}
            for campaign in self._campaigns.values():
                if campaign.status is CampaignStatus.FINISHED and campaign.finished_at is not None:
                    known = finished.get(campaign.name, campaign.finished_at)
                    finished[campaign.name] = max(known, campaign.finished_at)
            counted = Counter((run.outcome, run.reason_code, run.is_virtual) for run in runs)
            newest = {run.case.serial: dataclasses.replace(run, attachments=()) for run in runs}
            return Activity(
                campaigns=Counter(campaign.status for campaign in self._campaigns.values()),
                finished_at=finished,
                runs=tuple(
                    RunCount(outcome=outcome, reason_code=code, is_virtual=is_virtual, count=count)
                    for (outcome, code, is_virtual), count in counted.items()
                ),
                newest=tuple(newest.values()),
            )

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return what each device was and from when on, oldest first."""
        with self._locked():
            return {serial: list(seen) for serial, seen in self._sightings.items()}

    def run_ids(self, prefix: str, *, limit: int = 4) -> Sequence[RunId]:
        """Return the ids of runs that begin so, in their order, no more than ``limit``."""
        with self._locked():
            return sorted(run_id for run_id in self._key_of_run if run_id.startswith(prefix))[:limit]

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""
        with self._locked():
            key = self._key_of_run.get(run_id)
            return None if key is None else dataclasses.replace(self._runs[key], attachments=())

    def annotations(self) -> Sequence[Annotation]:
        """Return the changes that somebody expects, oldest night first."""
        with self._locked():
            return sorted(self._annotations.values(), key=lambda item: item.night)

    def annotate(self, annotation: Annotation) -> None:
        """Keep that a change is expected."""
        with self._locked():
            self._annotations[annotation.annotation_id] = annotation

    def delete_annotation(self, annotation_id: str) -> bool:
        """Forget an annotation; False when there is none."""
        with self._locked():
            return self._annotations.pop(annotation_id, None) is not None

    def confirmations(self) -> Sequence[Confirmation]:
        """Return what became of changes that were run again."""
        with self._locked():
            return list(self._confirmations.values())

    def confirm(self, confirmation: Confirmation) -> None:
        """Keep what became of a change, in the place of what was kept of it before."""
        with self._locked():
            self._confirmations[confirmation.series_key, confirmation.night] = confirmation

    def close(self) -> None:
        """Refuse any further use."""
        self._is_open = False

    def _locked(self) -> threading.Lock:
        if not self._is_open:
            raise admission.closed()
        return self._lock


def _series_of(run: RunRecord) -> SeriesSketch:
    return SeriesSketch(series_key=run.case.series_key, serial=run.case.serial, is_virtual=run.is_virtual)


def _contents_of(case: Case) -> Contents:
    return Contents(model_sha256=case.model_sha256, build_sha256=case.build_sha256, files=case.files)
