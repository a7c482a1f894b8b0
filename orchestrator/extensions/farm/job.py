"""Running jobs: one phone's part of a submission, and one campaign, however often it is claimed."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    CampaignInUseError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    PlanError,
    ProgramInUseError,
    StoreAwayError,
    StoreBusyError,
    StoreError,
)
from orchestrator.extensions.farm.job_table import Job
from orchestrator.extensions.farm.manifest import (
    Content,
    ContentStore,
    Manifest,
    read_facts,
    read_manifest,
)
from orchestrator.extensions.farm.phones import Say, Shared
from orchestrator.plugins import (
    FlagFiles,
    Prepared,
    Task,
    Workspace,
    close_cancelled,
    identify_model,
    identify_models,
    left_out_text,
    measure,
    open_cases,
    open_devices,
    prepare,
    program_sources,
    reopen,
    restore_phones,
    start,
)
from orchestrator.ports import Device, Observer
from orchestrator.records import frozen
from orchestrator.records.case import Build, Companion
from orchestrator.records.device import phone_differences
from orchestrator.records.plan import DeviceSelection, Plan
from orchestrator.tables.escapes import one_line

#: Errors that may not occur at another try, here or on another host.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)
#: Seconds until the next try of a job that this benchfarm can't read, and of one whose phone is in
#: use.
_UNREADABLE_S: Final = 600.0
_BUSY_S: Final = 5.0
#: Errors at which the phone isn't at fault -> seconds until the job's next try: the database is
#: away or locked, somebody resumes its campaign on this host, somebody uses its phone (by its lease also a host
#: that died a moment ago), another job declares its program differently.
_LATER: Final = {
    StoreAwayError: _BUSY_S,
    StoreBusyError: _BUSY_S,
    CampaignInUseError: _BUSY_S,
    DeviceBusyError: _BUSY_S,
    ProgramInUseError: 60.0,
}


@frozen
class Ended:
    """How running a job ended: ``done``, ``failed``, ``again`` for another try, or ``waits``: it is
    claimed again, which doesn't count as a try.
    """

    status: str
    note: str
    #: ``waits``: seconds until the job is claimed again.
    wait_s: float = 0.0


@frozen
class Jobs:
    """Runs and abandons the jobs of a host."""

    shared: Shared
    contents: ContentStore
    host: str
    observer: Callable[[], Observer]
    say: Say

    def run(self, job: Job, cancelled: threading.Event) -> Ended:
        """Run the remaining runs of a job until it is done or the event is set; raises nothing.

        The note names a phone that this host couldn't restore.
        """
        ended = self._run(job, cancelled)
        if ended.status == "done":
            return ended
        # The phone may hang, which its adb server doesn't notice.
        self.shared.known_phones.forget(job.serial)
        try:
            with self.shared.open() as workspace, workspace.lease.acquire(job.serial):
                # From this host's journal: the phone may be unreachable.
                is_changed = job.serial in workspace.conditioner.unrestored()
        except HostStorageError as error:
            return replace(ended, note=one_line(f"{ended.note}; {error}"))
        except (BenchfarmError, OSError):
            # The process that uses the phone now restores it.
            return ended
        hint = f"its phone isn't restored: benchfarm device restore {shlex.quote(job.serial)}"
        return replace(ended, note=one_line(f"{ended.note}; {hint}")) if is_changed else ended

    def abandon(self, job: Job) -> None:
        """Close the campaign of a cancelled job; an error is logged, as it can be closed later."""
        try:
            with self.shared.open() as workspace:
                close_cancelled(workspace, [job.campaign_id])
        except BenchfarmError as error:
            hint = "its campaign stays open, 'benchfarm results close' ends it"
            text = f"job {job.job_id}: {hint}: {error}"
            self.say(text, level="error", job=job.job_id, serial=job.serial)

    def _run(self, job: Job, cancelled: threading.Event) -> Ended:
        try:
            manifest = read_manifest(job.document)
        except PlanError as error:
            hint = "is the submitter's benchfarm newer? install it on this host"
            return Ended(status="waits", note=one_line(f"{error} ({hint})"), wait_s=_UNREADABLE_S)
        try:
            with (
                self.shared.open(self.observer()) as workspace,
                tempfile.TemporaryDirectory(prefix="benchfarm-inputs-") as folder,
                contextlib.ExitStack() as stack,
            ):
                workspace.cancelled = cancelled
                # First, as only a program's file may declare the ending of a model's file.
                files = [self._fetch(item) for item in manifest.programs]
                for source in program_sources():
                    stack.enter_context(source.with_files(files))
                return self._measure(workspace, job, manifest, Path(folder))
        except InterruptedByUserError:
            return Ended(status="waits", note=f"{self.host} stopped it")
        except BenchfarmError as error:
            return _ended(error)
        except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
            return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))

    def _measure(self, workspace: Workspace, job: Job, manifest: Manifest, folder: Path) -> Ended:
        """Begin or resume a job's campaign, and end it with the phone restored."""
        expected = read_facts(job.facts)
        plan = replace(
            self._unpack(manifest, folder), devices=DeviceSelection(serials=(job.serial,))
        )
        workspace.builds.bring(
            [self._installed(build) for build in manifest.builds_for(expected)],
            {key: self._installed(build) for key, build in manifest.flex_builds.items()},
        )
        opened = open_devices(workspace, plan.devices)
        device, facts = opened.devices[0]
        if differences := phone_differences(facts, expected):
            raise DeviceChangedError(
                f"the phone {job.serial} here is a {facts.title}, the job is for a {expected.title} of"
                f" that serial number: not the same {differences}"
            )
        flag_files = {value: self._flag_file(files) for value, files in manifest.flag_files.items()}
        reference = None
        if manifest.reference is not None:
            reference = identify_model(self._fetch(manifest.reference))
        task = Task(plan=plan, models=identify_models(plan), flag_files=flag_files, opened=opened)
        campaign = workspace.store.campaign(job.campaign_id)
        prepared = prepare(workspace, task, reference)
        if campaign is None:
            new_campaign = replace(prepared.campaign, campaign_id=job.campaign_id, host=self.host)
            opened_campaign = start(workspace, replace(prepared, campaign=new_campaign))
        else:
            # It may have begun on another host, where the files have other paths.
            terms = replace(
                campaign.terms,
                files={**campaign.terms.files, **prepared.campaign.terms.files},
                parity_inputs=str(plan.parity_inputs or ""),
            )
            campaign = replace(campaign, terms=terms)
            opened_campaign = reopen(workspace, campaign, open_cases(workspace, campaign), opened)
        return _restored(workspace, device, _run_campaign(workspace, opened_campaign))

    def _unpack(self, manifest: Manifest, folder: Path) -> Plan:
        """Return the plan with the files of this host; raises StoreError, HostStorageError.

        ``folder`` is an empty one for its parity inputs.
        """
        models = [
            replace(model, path=self._fetch((str(model.path), model.sha256 or "")))
            for model in manifest.plan.models
        ]
        for name, sha256 in manifest.parity_inputs:
            (folder / name).symlink_to(self._fetch((name, sha256)))
        inputs = folder if manifest.parity_inputs else None
        return replace(manifest.plan, models=tuple(models), parity_inputs=inputs)

    def _flag_file(self, files: tuple[Content, ...]) -> FlagFiles:
        return FlagFiles(
            name=files[0][0],
            files=files,
            paths={sha256: self._fetch((name, sha256)) for name, sha256 in files},
        )

    def _installed(self, build: Build) -> Build:
        companions = tuple(
            Companion(
                name=item.name, sha256=item.sha256, path=self._fetch((item.name, item.sha256))
            )
            for item in build.companions
        )
        return replace(
            build, path=self._fetch((str(build.path), build.sha256)), companions=companions
        )

    def _fetch(self, content: Content) -> Path:
        name, sha256 = content
        return self.contents.fetch(sha256, name)


def _ended(error: BenchfarmError) -> Ended:
    """Return the end of a job by an error."""
    note = _error_note(error)
    for kind, wait_s in _LATER.items():
        if isinstance(error, kind):
            return Ended(status="waits", note=note, wait_s=wait_s)
    return Ended(status="again" if isinstance(error, _PASSING) else "failed", note=note)


def _error_note(error: BenchfarmError) -> str:
    return one_line(f"{error} ({error.hint})" if error.hint else str(error))


def _restored(workspace: Workspace, device: Device, note: str) -> Ended:
    """Restore the phone of a job whose results are stored, and return the job's end: it is retried
    if that fails.

    An earlier host may have died, or had no disk for its journal, before the restoring.
    """
    try:
        if workspace.conditioner.pending(device):
            (item,) = restore_phones(workspace, [device.serial])
            if item.error is not None:
                raise item.error
    except _PASSING as error:
        note = f"{note}; the phone isn't restored yet: {_error_note(error)}"
        return Ended(status="again", note=note)
    return Ended(status="done", note=note)


def _run_campaign(workspace: Workspace, opened_campaign: Prepared) -> str:
    """Measure until all is stored, and return the note of that; raises DeviceError kinds when runs
    are left.
    """
    measured = measure(workspace, opened_campaign).checked()
    campaign, result = opened_campaign.campaign, measured.result
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        kind = DeviceBusyError if result.busy else DeviceError
        raise kind(f"{result.stored} stored, {result.left} left: {reasons}")
    if not campaign.invocations:
        return "the time budget was too small for any of its cases"
    # The models are those of the open cases.
    note = f"{result.stored} stored" if opened_campaign.models else "everything was stored already"
    counts = workspace.store.result_counts([campaign.campaign_id]).get(campaign.campaign_id)
    text = counts.text if counts is not None else ""
    return "; ".join(filter(None, (note, text, left_out_text(measured.cut))))
