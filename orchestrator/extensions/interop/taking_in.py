"""Taking a bundle in: what it holds and a store doesn't, read again with this version."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.extensions.interop.bundle import Bundle
from orchestrator.files import sha256_of
from orchestrator.records.campaign import Campaign, CampaignStatus, Origin
from orchestrator.records.case import CampaignId, Case, RunId, Serial, SkippedCase
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import RunRecord
from orchestrator.store.own_folders import own_folders

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

Id = TypeVar("Id", bound=str)
Placed = TypeVar("Placed", DeviceFacts, Case, SkippedCase)
#: Reads a run again from its raw output.
Reading = Callable[[RunRecord, DeviceFacts, Campaign], RunRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What taking a bundle in did."""

    #: Campaigns that the store didn't hold before.
    new_campaigns: tuple[CampaignId, ...]
    #: Campaigns of the bundle, new or known.
    campaigns: tuple[CampaignId, ...]
    new_runs: int
    #: Runs that the store held already, the very same ones.
    known_runs: int
    #: Runs in whose place the store holds others, which were kept: run ids of the bundle's.
    other_runs: tuple[RunId, ...] = ()
    origin: Origin


def take_in(bundle: Bundle, store: Store, *, read: Reading) -> TakenIn:
    """Store what a bundle holds and the store doesn't; what the store holds already is never
    changed.

    Figures and verdicts are what ``read`` makes of the raw output, never what the bundle says. A
    file can name any device: each is stored as ``SERIAL@HOST``, with the name of the bundle's
    computer, and apart from this lab's own. An import that was cut off is continued by importing
    again.

    Args:
        bundle: What is taken in.
        store: Into which.
        read: Reads a run again.

    Raises:
        StoreCorruptError: the bundle is damaged; nothing was stored, or, where raw output is,
            nothing from there on.
        StoreError: a campaign of this id is stored and is another one, or a record can't be stored
            as it is.
    """
    origin = Origin(file=bundle.path.name, sha256=sha256_of(bundle.path))
    records = bundle.checked()
    campaigns: dict[CampaignId, Campaign] = {
        _plain(bundle, item.campaign_id): item for item in records["campaign"]
    }
    stored_ids = (
        {run.run_id for run in store.runs(campaign_ids=list(campaigns))} if campaigns else set()
    )
    # Nothing that comes from a file is added to what this lab has measured itself.
    stored = [store.campaign(campaign_id) for campaign_id in campaigns]
    own = {item.campaign_id for item in stored if item is not None and item.terms.origin is None}
    begun = _begin(bundle, store, records, campaigns, origin)
    facts = store.devices() if campaigns else {}
    new, known, others = 0, 0, []
    for run in bundle.runs():
        campaign = campaigns.get(run.campaign_id)
        if campaign is None:
            raise StoreCorruptError(
                f"{bundle.path}: run {run.run_id} is of a campaign that the bundle doesn't hold"
            )
        _plain(bundle, run.run_id)
        if run.run_id in stored_ids:
            known += 1
            continue
        moved = replace(run, case=_here(run.case, campaign))
        serial = moved.case.serial
        is_new = run.campaign_id not in own and store.append_run(
            read(moved, facts[serial], campaign) if serial in facts else moved
        )
        new += is_new
        others += [] if is_new else [run.run_id]
    for campaign_id in begun:
        store.set_status(campaign_id, CampaignStatus.FINISHED, campaigns[campaign_id].finished_at)
    return TakenIn(
        new_campaigns=tuple(begun),
        campaigns=tuple(campaigns),
        new_runs=new,
        known_runs=known,
        other_runs=tuple(others),
        origin=origin,
    )


def _plain(bundle: Bundle, name: Id) -> Id:
    """Return an id that may become a part of a file's name; raises StoreCorruptError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name):
        raise StoreCorruptError(f"{bundle.path}: {name[:80]!r} is no id of a campaign or run")
    return name


def _here(record: Placed, campaign: Campaign) -> Placed:
    """Return a device, case or skip under the serial number that it has in this store."""
    return replace(record, serial=Serial(f"{record.serial}@{campaign.host}"))


def _begin(
    bundle: Bundle,
    store: Store,
    records: Mapping[str, list[Any]],
    campaigns: Mapping[CampaignId, Campaign],
    origin: Origin,
) -> list[CampaignId]:
    """Begin the campaigns that the store doesn't hold; return their ids."""
    begun = []
    # What the store knows of a device, a model or a build, above all where its file is, stays as it
    # is.
    known_devices, known_models, known_builds = store.devices(), store.models(), store.builds()
    devices: list[DeviceFacts] = records["device"]
    models = [known_models.get(item.sha256, item) for item in records["model"]]
    builds = [known_builds.get(item.sha256, item) for item in records["build"]]
    for campaign_id, campaign in campaigns.items():
        stored = store.campaign(campaign_id)
        if stored is not None:
            plans = {stored.plan_text, own_folders(store, [stored], ()).hide(stored.plan_text)}
            if (stored.created_at, stored.host) != (campaign.created_at, campaign.host) or (
                campaign.plan_text not in plans
            ):
                raise StoreError(
                    f"{bundle.path}: campaign {campaign_id} is stored here already and is another one",
                    hint="import the bundle into a store of its own (--store FILE)",
                )
            continue
        moved = [replace(_here(facts, campaign), is_imported=True) for facts in devices]
        kept = [known_devices.get(facts.serial, facts) for facts in moved]
        store.begin_campaign(
            replace(
                campaign,
                # Whatever it was, and however far this import comes: it can't be resumed here.
                status=CampaignStatus.FINISHED,
                terms=replace(campaign.terms, origin=origin),
                invocations=tuple(
                    replace(item, case=_here(item.case, campaign)) for item in campaign.invocations
                ),
                skipped=tuple(_here(item, campaign) for item in campaign.skipped),
            ),
            # The store refuses a virtual phone under a real one's serial number, and the other way
            # round.
            devices=[
                item if item.is_virtual == new.is_virtual else new
                for item, new in zip(kept, moved, strict=True)
            ],
            models=models,
            builds=builds,
        )
        begun.append(campaign_id)
    return begun
