"""Who measures what of a running campaign, also of devices that come: by ``planning.assignment``, stored, then done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from orchestrator.engine.workload import Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.planning.assignment import Assignment, Present, RunKey, assign, key_of
from orchestrator.ports import Device, Store
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Build, Model, SkippedCase


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


#: How often a phone that waits for the others' last invocations checks whether all was cancelled.
_POLL_S: Final = 0.5


class Assigner:
    """The campaign as it is stored, and what equal phones share of it; for all devices' threads."""

    def __init__(
        self, campaign: Campaign, store: Store, runs: Iterable[RunRecord], *, cancelled: threading.Event
    ) -> None:
        """``runs`` are the campaign's stored ones."""
        self.campaign = campaign
        self._store = store
        self._cancelled = cancelled
        self._changed = threading.Condition()
        #: What is stored, as far as it was asked for: of all that phones share, and of lost devices.
        self._stored = _keys(runs) if campaign.terms.shards else set()
        self._running: dict[Serial, Invocation] = {}
        #: Shared invocations that are neither stored nor run.
        self._open = self._shared()

    def join(
        self, arrival: Arrival, known: Iterable[DeviceFacts], lost: Serial | None = None, runs: Iterable[RunRecord] = ()
    ) -> None:
        """Give a device that comes its work; ``known`` are the campaign's other devices.

        ``lost`` is the device whose place it takes, ``runs`` are that one's. Raises StoreError, nothing changed.
        """
        come = Present(facts=arrival.facts, invocations=arrival.invocations, instead_of=lost)
        others = [Present(facts=facts) for facts in known if facts.serial != arrival.facts.serial]
        with self._changed:
            self._stored |= _keys(runs)
            self._assign([*others, come], arrival=arrival)

    def has_shared(self, serial: Serial) -> bool:
        """Whether a phone, or one that it shares with, has shared invocations open."""
        with self._changed:
            return any(self._open.get(other) for other in self._group(serial))

    def begin(self, serial: Serial) -> Invocation | None:
        """Return the shared invocation that a phone is to run next; :meth:`end` must follow.

        None when its group has nothing left. While another phone's last invocation runs it waits, because that phone
        may be lost. Raises InterruptedByUserError, StoreError.
        """
        with self._changed:
            while group := self._group(serial):
                if self._cancelled.is_set():
                    raise InterruptedByUserError
                if not self._open.get(serial) and any(self._open.get(other) for other in group):
                    self._assign(idle=[serial])
                if own := self._open.get(serial):
                    self._running[serial] = own.pop(0)
                    return self._running[serial]
                if not any(other in self._running for other in group):
                    break
                self._changed.wait(_POLL_S)
            return None

    def end(self, serial: Serial, *, is_done: bool) -> None:
        """Take back what a phone was given: when it isn't done it is open again, for this phone or another."""
        with self._changed:
            item = self._running.pop(serial)
            if is_done:
                self._stored.add(key_of(item))
            else:
                self._open.setdefault(serial, []).append(item)
            self._changed.notify_all()

    def _assign(
        self, devices: Sequence[Present] = (), *, idle: Sequence[Serial] = (), arrival: Arrival | None = None
    ) -> None:
        """Ask the rule, and store its answer before it holds."""
        terms = self.campaign.terms
        before = Assignment(invocations=self.campaign.invocations, shards=terms.shards, replaced=terms.replaced)
        now = assign(before, devices, self._settled(), idle=idle)
        terms = replace(terms, shards=now.shards, replaced=now.replaced)
        amended = replace(self.campaign, invocations=now.invocations, terms=terms)
        if arrival is not None:
            amended = arrival.added_to(amended, is_sharing=bool(now.group_of(arrival.facts.serial)))
        if amended != self.campaign:
            self._store.amend_campaign(
                amended,
                devices=[arrival.facts] if arrival is not None else [],
                models=list(arrival.models) if arrival is not None else [],
                builds=list(arrival.builds) if arrival is not None else [],
            )
            self.campaign = amended
            self._open = self._shared()

    def _group(self, serial: Serial) -> tuple[Serial, ...]:
        return Assignment(shards=self.campaign.terms.shards).group_of(serial)

    def _settled(self) -> set[RunKey]:
        return self._stored | {key_of(item) for item in self._running.values()}

    def _shared(self) -> dict[Serial, list[Invocation]]:
        settled, found = self._settled(), dict[Serial, list[Invocation]]()
        for item in self.campaign.invocations:
            if item.case.shard and key_of(item) not in settled:
                found.setdefault(item.case.serial, []).append(item)
        return found


def _keys(runs: Iterable[RunRecord]) -> set[RunKey]:
    return {key_of(run) for run in runs if run.outcome is not Outcome.UNFIT}
