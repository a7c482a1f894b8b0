"""A job: one phone's part of a submission, which is a campaign of its own however often the job is
delivered.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.app import time_limits
from orchestrator.app.attached import open_devices
from orchestrator.app.measuring import measure, open_cases, reopen
from orchestrator.app.phones import restore_phones
from orchestrator.app.preparing import Inputs, Prepared, identify, prepare, start
from orchestrator.app.resuming import close_cancelled
from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    CampaignInUseError,
    DeviceChangedError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    PlanError,
    ProgramInUseError,
    StoreAwayError,
    StoreError,
)
from orchestrator.extensions.farm.manifest import (
    Content,
    Contents,
    Manifest,
    read_facts,
    read_manifest,
)
from orchestrator.extensions.farm.phones import Say, Shared
from orchestrator.extensions.farm.queue import Delivery, Ended
from orchestrator.frozen import frozen
from orchestrator.models.inspect import identify_model
from orchestrator.planning.expansion import HostFiles
from orchestrator.plugins import Workspace, program_sources
from orchestrator.ports import Device, Observer
from orchestrator.records.case import Build, Companion
from orchestrator.records.device import told_apart
from orchestrator.records.plan import DeviceSelection, Plan
from orchestrator.tables.escapes import one_line

#: What another try, here or on another host, may mend.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)
#: Seconds until a job is tried again that this benchfarm can't read, that needs a program which
#: another job declares otherwise, or a phone or campaign that somebody else uses.
_UNREADABLE_S: Final = 600.0
_IN_USE_S: Final = 60.0
_BUSY_S: Final = 5.0


@frozen
class Jobs:
    """The jobs of a host: how one is done, and given up."""

    shared: Shared
    contents: Contents
    host: str
    observer: Callable[[], Observer]
    say: Say

    def run(self, job: Delivery, cancelled: threading.Event) -> Ended:
        """Do what is open of a job until it is done or the event is set; raises nothing.

        A phone that this host couldn't restore is named in the note.
        """
        ended = self._run(job, cancelled)
        if ended.status == "done":
            return ended
        # It may have stopped answering, which its server doesn't notice.
        self.shared.asked.forget(job.serial)
        try:
            with self.shared.open() as workspace, workspace.lease.acquire(job.serial):
                # By this host's journal: the phone may be out of reach.
                is_changed = job.serial in workspace.conditioner.unrestored()
        except HostStorageError as error:
            return replace(ended, note=one_line(f"{ended.note}; {error}"))
        except (BenchfarmError, OSError):
            # Whoever uses it now restores it.
            return ended
        cure = f"its phone isn't restored: benchfarm device restore {shlex.quote(job.serial)}"
        return replace(ended, note=one_line(f"{ended.note}; {cure}")) if is_changed else ended

    def abandon(self, job: Delivery) -> None:
        """Close the campaign of a job that was cancelled; it can be closed later too."""
        try:
            with self.shared.open() as workspace:
                close_cancelled(workspace, [job.campaign_id])
        except BenchfarmError as error:
            cure = "its campaign stays open, 'benchfarm results close' ends it"
            text = one_line(f"job {job.job_id}: {cure}: {error}")
            self.say(text, level="error", job=job.job_id, serial=job.serial)

    def _run(self, job: Delivery, cancelled: threading.Event) -> Ended:
        try:
            manifest = read_manifest(job.document)
        except PlanError as error:
            hint = "is the submitter's benchfarm newer? install it on this host"
            return Ended(status="later", note=one_line(f"{error} ({hint})"), wait_s=_UNREADABLE_S)
        try:
            with (
                self.shared.open(self.observer()) as workspace,
                tempfile.TemporaryDirectory(prefix="benchfarm-inputs-") as folder,
                contextlib.ExitStack() as lent,
            ):
                workspace.cancelled = cancelled
                # First, for a model's ending may be one that only its program's file tells of.
                files = [self._fetch(item) for item in manifest.programs]
                for source in program_sources():
                    lent.enter_context(source.lent(files))
                return self._measure(workspace, job, manifest, Path(folder))
        except InterruptedByUserError:
            return Ended(status="aborted", note="stopped")
        except StoreAwayError as error:
            # That is no fault of the phone.
            return Ended(status="later", note=_noted(error), wait_s=_BUSY_S)
        except _PASSING as error:
            return _again(_noted(error))
        except ProgramInUseError as error:
            return Ended(status="later", note=_noted(error), wait_s=_IN_USE_S)
        except CampaignInUseError as error:
            # Somebody on this host resumes it; what is left then, also nothing, is this job's.
            return Ended(status="later", note=_noted(error), wait_s=_BUSY_S)
        except BenchfarmError as error:
            return Ended(status="failed", note=_noted(error))
        except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
            return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))

    def _measure(
        self, workspace: Workspace, job: Delivery, manifest: Manifest, folder: Path
    ) -> Ended:
        """Begin or resume a job's campaign, and end it with the phone restored."""
        meant = read_facts(job.facts)
        plan = replace(
            self._unpack(manifest, folder), devices=DeviceSelection(serials=(job.serial,))
        )
        workspace.builds.bring(
            [self._installed(build) for build in manifest.builds_for(meant)],
            {key: self._installed(build) for key, build in manifest.flex_builds.items()},
        )
        opened = open_devices(workspace, plan.devices)
        device, facts = opened.devices[0]
        if differences := told_apart(facts, meant):
            raise DeviceChangedError(
                f"the phone {job.serial} here is a {facts.title}, the job is for a {meant.title} of"
                f" that serial number: not the same {differences}"
            )
        named = {value: self._flag_file(files) for value, files in manifest.flag_files.items()}
        reference = None
        if manifest.reference is not None:
            reference = identify_model(self._fetch(manifest.reference))
        inputs = Inputs(models=identify(plan), named=named)
        campaign = workspace.store.campaign(job.campaign_id)
        prepared = prepare(workspace, plan, opened, inputs, reference=reference)
        if campaign is None:
            own = replace(prepared.campaign, campaign_id=job.campaign_id, host=self.host)
            begun = start(workspace, replace(prepared, campaign=own))
        else:
            # It may have begun on another host, where the same contents lie elsewhere.
            terms = replace(
                campaign.terms,
                files={**campaign.terms.files, **prepared.campaign.terms.files},
                parity_inputs=str(plan.parity_inputs or ""),
            )
            campaign = replace(campaign, terms=terms)
            begun = reopen(workspace, campaign, open_cases(workspace, campaign), opened)
        ended = _run_campaign(workspace, begun)
        return _restored(workspace, device, ended) if ended.status == "done" else ended

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

    def _flag_file(self, files: tuple[Content, ...]) -> HostFiles:
        return HostFiles(
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


def _again(note: str) -> Ended:
    """Return the end of a delivery after which the job comes again: as a further try, or when
    nobody uses the phone.

    Somebody may by what its file says, also a host that died a moment ago.
    """
    if "in use by " in note:
        return Ended(status="later", note=note, wait_s=_BUSY_S)
    return Ended(status="again", note=note)


def _noted(error: BenchfarmError) -> str:
    return one_line(f"{error} ({error.hint})" if error.hint else str(error))


def _restored(workspace: Workspace, device: Device, ended: Ended) -> Ended:
    """Return how a job ended whose results are stored: it isn't over as long as its phone isn't as
    it was before.

    An earlier delivery may have died, or had no disk for its journal, between the last result and
    that.
    """
    try:
        if workspace.conditioner.pending(device):
            (item,) = restore_phones(workspace, [device.serial])
            if item.error is not None:
                raise item.error
    except _PASSING as error:
        return Ended(
            status="again", note=f"{ended.note}; the phone isn't restored yet: {_noted(error)}"
        )
    return ended


def _run_campaign(workspace: Workspace, begun: Prepared) -> Ended:
    measured = measure(workspace, begun).checked()
    campaign, result = begun.campaign, measured.result
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        return _again(one_line(f"{result.stored} stored, {result.left} left: {reasons}"))
    if not campaign.invocations:
        return Ended(status="done", note="there was no time for any of its cases")
    # Models are those of open cases.
    note = f"{result.stored} stored" if begun.models else "everything was stored already"
    given = workspace.store.yields([campaign.campaign_id]).get(campaign.campaign_id)
    told = [note, given.text if given is not None else "", time_limits.told(measured.cut)]
    return Ended(status="done", note="; ".join(filter(None, told)))
