"""What may be stored, decided the same way for every kind of store. Pure: facts in, a StoreError or nothing out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from orchestrator.errors import StoreError
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, RunId, Serial
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Case


def check_campaign(
    campaign: Campaign,
    *,
    devices: Iterable[DeviceFacts],
    known_devices: Mapping[Serial, bool],
    model_sha256s: Collection[str],
    build_sha256s: Collection[str],
) -> None:
    """Raise StoreError when a campaign can't be stored as it is.

    Args:
        campaign: what is to be stored.
        devices: the facts that come with it.
        known_devices: serial -> is_virtual of the devices that the store holds already.
        model_sha256s: the models that the store holds or is given with the campaign.
        build_sha256s: the same for builds.
    """
    where = f"campaign {campaign.campaign_id}"
    check_moment(campaign.created_at, f"{where}: created_at")
    check_moment(campaign.finished_at, f"{where}: finished_at")
    check_moment(campaign.terms.until, f"{where}: until")
    virtual = dict(known_devices)
    for facts in devices:
        if virtual.setdefault(facts.serial, facts.is_virtual) != facts.is_virtual:
            raise StoreError(
                f"{where}: device {facts.serial} is stored as a {_kind(virtual[facts.serial])} and now calls itself "
                f"a {_kind(facts.is_virtual)}; numbers of the two are never mixed",
                hint="give the virtual phone a serial number of its own",
            )
    seen = set()
    for planned in campaign.invocations:
        key = (planned.case.case_key, planned.run_pass, planned.number)
        if key in seen:
            raise StoreError(f"{where}: invocation {_invocation(*key)} is planned twice")
        seen.add(key)
        check_case(
            planned.case,
            where=where,
            device_is_virtual=virtual.get(planned.case.serial),
            model_known=planned.case.model_sha256 in model_sha256s,
            build_known=planned.case.build_sha256 in build_sha256s,
        )


def check_case(case: Case, *, where: str, device_is_virtual: bool | None, model_known: bool, build_known: bool) -> None:
    """Raise StoreError when a case refers to something that the store doesn't hold (None: no such device)."""
    missing = []
    if device_is_virtual is None:
        missing.append(f"device {case.serial}")
    if not model_known:
        missing.append(f"model {case.model_name} ({case.model_sha256})")
    if not build_known:
        missing.append(f"build {case.build_sha256}")
    if missing:
        raise StoreError(
            f"{where}: case {case.case_key} refers to {' and '.join(missing)}, which the store doesn't hold",
            hint="begin the campaign with everything that its cases refer to",
        )


def check_run(run: RunRecord, *, device_is_virtual: bool | None, model_known: bool, build_known: bool) -> None:
    """Raise StoreError when a run can't be stored as it is, above all when it hides that its phone is virtual."""
    where = f"run {run.run_id}"
    check_moment(run.started_at, f"{where}: started_at")
    for state in (run.state_before, run.state_after):
        check_moment(None if state is None else state.at, f"{where}: state")
    if not math.isfinite(run.duration_s):
        raise StoreError(f"{where}: duration_s is {run.duration_s}, which is no time span")
    check_case(
        run.case,
        where=where,
        device_is_virtual=device_is_virtual,
        model_known=model_known,
        build_known=build_known,
    )
    if run.is_virtual != device_is_virtual:
        raise StoreError(
            f"{where}: marked as measured on a {_kind(run.is_virtual)}, but device {run.case.serial} is a "
            f"{_kind(bool(device_is_virtual))}; the mark must be the one of the device's facts"
        )


def check_moment(moment: datetime | None, what: str) -> None:
    """Raise StoreError when a moment could mean another one elsewhere."""
    if moment is not None and moment.utcoffset() is None:
        raise StoreError(f"{what} has no time zone; use the clock's now()")


def no_campaign(campaign_id: CampaignId) -> StoreError:
    """Return the error for a campaign that the store doesn't hold."""
    return StoreError(f"campaign {campaign_id}: the store holds no such campaign")


def campaign_exists(campaign_id: CampaignId) -> StoreError:
    """Return the error for a campaign that is begun a second time."""
    return StoreError(f"campaign {campaign_id}: the store holds a campaign of this id already")


def no_run(run_id: RunId) -> StoreError:
    """Return the error for a run that the store doesn't hold."""
    return StoreError(f"run {run_id}: the store holds no such run")


def run_id_taken(run_id: RunId) -> StoreError:
    """Return the error for a new run under the id of another one."""
    return StoreError(f"run {run_id}: the store holds another run of this id")


def closed() -> StoreError:
    """Return the error for any use of a store that was closed."""
    return StoreError("the store is closed")


def _kind(is_virtual: bool) -> str:
    return "virtual phone" if is_virtual else "real device"


def _invocation(case_key: str, run_pass: str, number: int) -> str:
    return f"{number + 1} of pass {run_pass} of case {case_key}"
