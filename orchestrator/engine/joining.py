"""Phones that come while a campaign runs: what each brings, and how the campaign takes it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from orchestrator.engine.workload import Workload
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
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

    def added_to(self, campaign: Campaign, *, is_sharing: bool) -> Campaign:
        """Return a campaign that knows of this device; what a phone that shares would skip is its group's."""
        terms = replace(
            campaign.terms,
            files={**campaign.terms.files, **self.files},
            pauses_s={**campaign.terms.pauses_s, **self.pauses_s},
            fingerprints={**campaign.terms.fingerprints, self.facts.serial: self.facts.fingerprint},
        )
        skipped = () if is_sharing else self.skipped
        return replace(campaign, terms=terms, skipped=tuple(dict.fromkeys((*campaign.skipped, *skipped))))


class Arrivals(Protocol):
    """Tells of devices that could join a campaign."""

    def take(self) -> Sequence[Arrival]:
        """Return the devices that have come since and that the plan means; must return at once."""
        ...

    def spare_for(self, serial: Serial, is_free: Callable[[Serial], bool]) -> Arrival | None:
        """Return a spare device for one that is lost, None when there is none now; each only once.

        One that isn't free now may be later. One that was returned and is lost before it begins is told as lost itself.
        """
        ...


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
