"""Phones that come while a campaign runs: what each brings, and how the campaign takes it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from orchestrator.engine.workload import Workload
from orchestrator.planning.shards import equality_of, shard_title
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import Shard
from orchestrator.records.workload import Build, Model, SkippedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A device that may join, with what the plan means on it; all of it is empty for one that has work already."""

    device: Device
    facts: DeviceFacts
    invocations: tuple[Invocation, ...] = ()
    skipped: tuple[SkippedCase, ...] = ()
    #: See Terms.pauses_s.
    pauses_s: Mapping[Serial, float] = field(default_factory=dict)
    models: tuple[Model, ...] = ()
    #: Those of the cases, and what stands in for them when TensorFlow's operators are needed.
    builds: tuple[Build, ...] = ()
    flex_builds: Mapping[str, Build] = field(default_factory=dict)
    #: The flags that each build has, by its sha256.
    known_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: Where each content lies on this computer, by sha256.
    files: Mapping[str, str] = field(default_factory=dict)


class Arrivals(Protocol):
    """Tells of devices that could join a campaign."""

    def take(self) -> Sequence[Arrival]:
        """Return the devices that have come since and that the plan means; must return at once."""
        ...

    def spare_for(self, serial: Serial, is_free: Callable[[Serial], bool]) -> Arrival | None:
        """Return a device that may stand in for one that is lost, None when there is none now; each only once.

        One that isn't free now may be later. One that was returned and is lost before it begins is told as lost itself.
        """
        ...


def joined(campaign: Campaign, arrival: Arrival, *, equals: Sequence[DeviceFacts] = ()) -> Campaign:
    """Return a campaign with a device that joins; one that equals others which share their cases shares with them.

    ``equals`` are the facts of the campaign's devices.
    """
    terms = replace(
        campaign.terms,
        files={**campaign.terms.files, **arrival.files},
        pauses_s={**campaign.terms.pauses_s, **arrival.pauses_s},
        fingerprints={**campaign.terms.fingerprints, arrival.facts.serial: arrival.facts.fingerprint},
    )
    equality = equality_of(arrival.facts)
    twins = tuple(facts.serial for facts in equals if equality and equality_of(facts) == equality)
    group = next((shard for shard in terms.shards if set(shard.serials) & set(twins)), None)
    if group is None or arrival.facts.serial in group.serials:
        own = {(item.case.case_key, item.run_pass, item.number) for item in campaign.invocations}
        new = (item for item in arrival.invocations if (item.case.case_key, item.run_pass, item.number) not in own)
        return replace(
            campaign,
            terms=terms,
            invocations=(*campaign.invocations, *new),
            skipped=tuple(dict.fromkeys((*campaign.skipped, *arrival.skipped))),
        )
    larger = Shard(title=shard_title(arrival.facts), serials=(*group.serials, arrival.facts.serial))
    return replace(
        campaign,
        terms=replace(terms, shards=tuple(larger if shard is group else shard for shard in terms.shards)),
    )


def without_open_work(campaign: Campaign, serial: Serial, open_items: Sequence[Invocation]) -> Campaign:
    """Return a campaign without what is open of a device that another stands in for; what it shared is its equals'."""
    gone = {
        (item.case.case_key, item.run_pass, item.number)
        for item in open_items
        if item.case.serial == serial and not item.case.shard
    }
    return replace(
        campaign,
        invocations=tuple(
            item for item in campaign.invocations if (item.case.case_key, item.run_pass, item.number) not in gone
        ),
    )


def workload_with(workload: Workload, campaign: Campaign, arrival: Arrival) -> Workload:
    """Return what a device that joins works with."""
    return replace(
        workload,
        campaign=campaign,
        models={**workload.models, **{model.sha256: model for model in arrival.models}},
        builds={**workload.builds, **{build.sha256: build for build in arrival.builds}},
        flex_builds={**workload.flex_builds, **arrival.flex_builds},
        known_flags={**workload.known_flags, **arrival.known_flags},
    )
