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
from typing import TYPE_CHECKING, Final

from orchestrator.app import time_limits
from orchestrator.app.beginning import Inputs, begin, identify, prepare
from orchestrator.app.measuring import open_cases, reopen, run_campaign
from orchestrator.app.phones import restore_phones
from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    DeviceChangedError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    NewerPlanError,
    ProgramInUseError,
    StoreError,
)
from orchestrator.extensions.farm.manifest import read_facts, read_manifest
from orchestrator.extensions.farm.payload import Contents, Unpacked, unpack
from orchestrator.extensions.farm.queue import Delivery, Ended
from orchestrator.plugins import Workspace, program_sources
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts, told_apart
from orchestrator.records.plan import DeviceSelection
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: What another try, here or on another host, may mend.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)
#: Seconds until a job is tried again that needs a newer benchfarm, or a program that another job
#: declares otherwise.
_UPDATED_S: Final = 600.0
_IN_USE_S: Final = 60.0
#: Seconds until a phone that somebody else uses is asked again.
_BUSY_S: Final = 5.0


def run_job(
    open_workspace: Callable[[], Workspace],
    contents: Contents,
    job: Delivery,
    host: str,
    cancelled: threading.Event,
) -> Ended:
    """Do what is open of a job; raises nothing.

    A phone that this host couldn't restore is named in the note.
    """
    ended = _run_job(open_workspace, contents, job, host, cancelled)
    if ended.status == "done":
        return ended
    try:
        with open_workspace() as workspace, workspace.lease.acquire(job.serial):
            # By this host's journal: the phone may be out of reach.
            is_changed = job.serial in workspace.conditioner.unrestored()
    except HostStorageError as error:
        return replace(ended, note=one_line(f"{ended.note}; {error}"))
    except (BenchfarmError, OSError):
        # Whoever uses it now restores it.
        return ended
    text = f"{ended.note}; its phone isn't restored: benchfarm device restore {shlex.quote(job.serial)}"
    return replace(ended, note=one_line(text)) if is_changed else ended


def _run_job(
    open_workspace: Callable[[], Workspace],
    contents: Contents,
    job: Delivery,
    host: str,
    cancelled: threading.Event,
) -> Ended:
    try:
        manifest, facts = read_manifest(job.document), read_facts(job.facts)
        payload = manifest.payload_for(facts)
        with (
            open_workspace() as workspace,
            tempfile.TemporaryDirectory(prefix="benchfarm-inputs-") as folder,
        ):
            workspace.cancelled = cancelled
            # First, for a model's ending may be one that only its program's file tells of.
            files = [contents.fetch(item.sha256, item.name) for item in payload.programs]
            with contextlib.ExitStack() as lent:
                for source in program_sources():
                    lent.enter_context(source.lent(files))
                unpacked = unpack(workspace, contents, manifest.plan, payload, Path(folder))
                return _measure(workspace, job, facts, unpacked, host)
    except InterruptedByUserError:
        return Ended(status="aborted", note="stopped")
    except _PASSING as error:
        return _again(_noted(error))
    except ProgramInUseError as error:
        return Ended(status="later", note=_noted(error), wait_s=_IN_USE_S)
    except NewerPlanError as error:
        return Ended(status="later", note=_noted(error), wait_s=_UPDATED_S)
    except BenchfarmError as error:
        return Ended(status="failed", note=_noted(error))
    except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
        return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))


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


def _measure(
    workspace: Workspace, job: Delivery, meant: DeviceFacts, unpacked: Unpacked, host: str
) -> Ended:
    """Begin or resume a job's campaign; ``meant`` are the facts of the phone that it is for."""
    stored = workspace.store.campaign(job.campaign_id)
    plan = replace(unpacked.plan, devices=DeviceSelection(serials=(job.serial,)))
    inputs = Inputs(models=identify(plan), named=unpacked.named)
    devices = workspace.open_devices(plan.devices).devices
    if differences := told_apart(devices[0][1], meant):
        raise DeviceChangedError(
            f"the phone {job.serial} here is a {devices[0][1].title}, the job is for a {meant.title} of that serial"
            f" number: not the same {differences}"
        )
    beginning = prepare(workspace, plan, devices, inputs, reference=unpacked.reference)
    if stored is None:
        stored = begin(workspace, plan, devices, beginning, job=(job.campaign_id, host))
    # The campaign may have begun on another host, where the same contents lie elsewhere.
    files = {**stored.terms.files, **beginning.files}
    given = str(plan.parity_inputs) if plan.parity_inputs is not None else ""
    ended = _run(
        workspace, replace(stored, terms=replace(stored.terms, files=files, parity_inputs=given))
    )
    return _restored(workspace, devices[0][0], ended) if ended.status == "done" else ended


def _restored(workspace: Workspace, device: Device, ended: Ended) -> Ended:
    """Return how a job ended whose results are stored: it isn't over as long as its phone isn't as
    it was before.

    An earlier delivery may have died, or had no disk for its journal, between the last result and
    that.
    """
    try:
        is_left = workspace.conditioner.pending(device)
        for item in restore_phones(workspace, [device.serial] if is_left else []):
            if item.error is not None:
                raise item.error
    except _PASSING as error:
        return Ended(
            status="again", note=f"{ended.note}; the phone isn't restored yet: {_noted(error)}"
        )
    return ended


def _run(workspace: Workspace, campaign: Campaign) -> Ended:
    cases = open_cases(workspace, campaign)
    if not cases:
        workspace.store.set_status(
            campaign.campaign_id, CampaignStatus.FINISHED, workspace.clock.now()
        )
        if not campaign.invocations:
            return Ended(status="done", note="there was no time for any of its cases")
        return _done(workspace.store, campaign, "everything was stored already")
    result = run_campaign(workspace, reopen(workspace, campaign, cases))
    if result.fault is not None:
        raise result.fault
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        note = one_line(f"{result.stored} stored, {result.left} left: {reasons}")
        return _again(note)
    return _done(workspace.store, campaign, f"{result.stored} stored")


def _done(store: Store, campaign: Campaign, note: str) -> Ended:
    """Return how a job ended that did all it could, with what its campaign has no results of."""
    given = store.yields([campaign.campaign_id]).get(campaign.campaign_id)
    cut = time_limits.told(
        time_limits.stored_left_out(store, [campaign.campaign_id]).get(campaign.campaign_id, [])
    )
    lacking = [text for text in (given.text if given is not None else "", cut) if text]
    return Ended(status="done", note="; ".join([note, *lacking]))
