"""What the devices of a campaign use together, what its cases refer to, and what a device that joins brings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from orchestrator.clock import Clock
from orchestrator.ports import Device, Observer, ParityReference, Tool
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.workload import Build, Model, SkippedCase, ToolName

if TYPE_CHECKING:
    from orchestrator.devices.conditioning import LadderConditioner
    from orchestrator.store.opening import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every device of a campaign uses together."""

    store: Store
    tools: Mapping[ToolName, Tool]
    conditioner: LadderConditioner
    observer: Observer
    clock: Clock
    cancelled: threading.Event
    #: What the pass ``parity`` compares with; None where nothing computes it.
    reference: ParityReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the cases of a campaign refer to, by content."""

    campaign: Campaign
    models: Mapping[str, Model]
    builds: Mapping[str, Build]
    #: The flags that a build has, by its sha256; those that weren't asked are left out.
    known_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: A build's sha256 -> the build of the same program that has TensorFlow's operators, where there is one.
    flex_builds: Mapping[str, Build] = field(default_factory=dict)

    def build(self, sha256: str) -> Build:
        """Return a build that a case names, also one that took another's place."""
        twins: dict[str, Build] = {twin.sha256: twin for twin in self.flex_builds.values()}
        return self.builds.get(sha256) or twins[sha256]

    def of_package(self, package: str) -> set[str]:
        """Return the builds of an app: only one of them can be installed."""
        builds = (*self.builds.values(), *self.flex_builds.values())
        return {build.sha256 for build in builds if build.package == package}

    def with_arrival(self, campaign: Campaign, arrival: Arrival) -> Workload:
        """Return what a device that joins works with."""
        return replace(
            self,
            campaign=campaign,
            models={**self.models, **{model.sha256: model for model in arrival.models}},
            builds={**self.builds, **{build.sha256: build for build in arrival.builds}},
            flex_builds={**self.flex_builds, **arrival.flex_builds},
            known_flags={**self.known_flags, **arrival.known_flags},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A device that may join, with what the plan means on it; all of it is empty for one that has work already."""

    device: Device
    facts: DeviceFacts
    invocations: tuple[Invocation, ...] = ()
    skipped: tuple[SkippedCase, ...] = ()
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

        One that isn't free now may be later. One that was returned and is lost before it begins counts as lost itself.
        """
        ...
