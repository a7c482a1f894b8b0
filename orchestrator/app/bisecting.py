"""The first archived build that is slower than a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.pairing import equal_campaign
from orchestrator.app.pairing import AbRequest, Prepared, go_on, measure, pair_comparison, prepare
from orchestrator.bootstrap import Farm, OpenedDevices
from orchestrator.config.plan_keys import each
from orchestrator.engine.bisect import BisectResult, Compared, Probe
from orchestrator.engine.bisect import bisect as search
from orchestrator.engine.events import CampaignEnded
from orchestrator.errors import ArtifactError, DeviceUnusableError, PlanError, UsageError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.report.comparisons import interval_text
from orchestrator.units import format_change

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release

#: The gravest first: one slow case makes a build bad.
_GRAVITY: Final = (
    ComparisonOutcome.SLOWER,
    ComparisonOutcome.INCONCLUSIVE,
    ComparisonOutcome.INCOMPARABLE,
    ComparisonOutcome.SAME,
    ComparisonOutcome.FASTER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectRequest:
    """Which builds to search between; ``ab`` has no sides yet."""

    good: str
    bad: str
    fresh_s: float
    ab: AbRequest


def bisect(farm: Farm, request: BisectRequest) -> tuple[BisectResult, Sequence[Release], DeviceFacts]:
    """Search the archived builds between two; every comparison is stored, and used again when the command is repeated.

    Returns what the search came to, the releases from the good to the bad one as it counts them, and the device.

    Raises:
        UsageError: the builds aren't of one name, in the wrong order, or nothing lies between; several devices fit.
        ArtifactError: a build isn't archived.
        DeviceError kinds: the device was lost; what was measured is stored, and the same command goes on.
    """
    good, bad = farm.library.find_release(request.good), farm.library.find_release(request.bad)
    opened = farm.open_devices(DeviceSelection(serials=tuple(each(request.ab.options.get("devices")))))
    if len(opened.devices) != 1:
        names = ", ".join(facts.serial for facts in opened.facts)
        raise UsageError(f"{len(opened.devices)} devices fit: {names}", hint="name one with --device")
    releases = releases_between(farm.library.archive.releases(good.name), good, bad, opened.facts[0].abis)
    comparer = _Comparer(farm, request, releases, opened)
    result = search(
        len(releases),
        comparer.compare,
        on_probe=lambda probe: farm.observer.on_event(comparer.note(probe)),
    )
    return result, releases, opened.facts[0]


def releases_between(releases: Sequence[Release], good: Release, bad: Release, abis: Sequence[str]) -> list[Release]:
    """Return the releases from the good to the bad one for a device, in the order in which they were first seen."""
    if good.name != bad.name:
        raise UsageError(
            f"--good and --bad are of two builds: {good.name} and {bad.name}", hint="name two of one build"
        )
    fitting = {
        release.release_id: release
        for release in sorted(releases, key=lambda item: item.seen_at, reverse=True)
        if set(release.abis) & {*abis, ""}
    }
    ordered = sorted(fitting.values(), key=lambda item: item.seen_at)
    places = []
    for option, wanted in (("--good", good), ("--bad", bad)):
        if wanted.release_id not in fitting:
            raise UsageError(f"{option} {_address(wanted)} isn't for this device ({', '.join(abis)})")
        places.append([item.release_id for item in ordered].index(wanted.release_id))
    if places[0] == places[1]:
        raise UsageError("--good and --bad are one and the same build", hint="benchfarm build list --all")
    if places[0] > places[1]:
        raise UsageError("--good was archived after --bad", hint="to look for what made it faster, swap the two")
    return ordered[places[0] : places[1] + 1]


class _Comparer:
    """Compares two of the releases, or takes what is stored of it."""

    def __init__(
        self,
        farm: Farm,
        request: BisectRequest,
        releases: Sequence[Release],
        opened: OpenedDevices,
    ) -> None:
        self._farm = farm
        self._request = request
        self._releases = releases
        self._opened = opened

    def compare(self, baseline: int, candidate: int) -> Compared:
        """Return the gravest verdict of the cases; a build that can't be used or put on the phone is told as such."""
        sides = tuple(f"build:{_address(self._releases[index])}" for index in (baseline, candidate))
        try:
            prepared = prepare(self._farm, replace(self._request.ab, sides=sides), self._opened)
        except PlanError:
            raise
        except (ArtifactError, UsageError) as error:
            # A wrong option would fail with every build; the ends are compared first, and so it is told at once.
            if candidate == len(self._releases) - 1:
                raise
            return Compared(verdict=None, reason=str(error))
        if prepared.is_same:
            return Compared(verdict=ComparisonVerdict(outcome=ComparisonOutcome.SAME, ratio=1.0, method="same content"))
        campaign = self._stored(prepared)
        if campaign is None:
            campaign = self._finished(measure(self._farm, prepared))
        elif campaign.status is not CampaignStatus.FINISHED:
            campaign = self._finished(go_on(self._farm, campaign))
        rows = pair_comparison(self._farm, campaign).rows
        verdicts = sorted(
            (row.verdict for row in rows), key=lambda item: (_GRAVITY.index(item.outcome), -(item.ratio or 0.0))
        )
        reason = "" if verdicts else "nothing was measured"
        return Compared(verdict=next(iter(verdicts), None), reason=reason, campaign_id=campaign.campaign_id)

    def note(self, probe: Probe) -> object:
        """Return the event that tells of a build that was looked at."""
        from orchestrator.engine.events import DeviceNote

        text = f"{titled(self._releases[probe.index])}: {probe.judgement}{figure_text(probe.compared)}"
        return DeviceNote(serial=self._opened.facts[0].serial, text=text)

    def _stored(self, prepared: Prepared) -> Campaign | None:
        """Return a stored campaign that compared the same on the same system not too long ago."""
        since = self._farm.clock.now() - timedelta(seconds=self._request.fresh_s)
        recent = [
            item
            for item in self._farm.store.campaigns()
            if item.created_at >= since and item.terms.fingerprints == prepared.campaign.terms.fingerprints
        ]
        found = equal_campaign(recent, prepared.pairing)
        return self._farm.store.campaign(found.campaign_id) if found is not None else None

    def _finished(self, result: CampaignEnded) -> Campaign:
        if result.status is not CampaignStatus.FINISHED:
            reason = next(iter(result.lost.values()), "it was abandoned")
            raise DeviceUnusableError(reason, hint="what was measured is stored; the same command resumes there")
        found = self._farm.store.campaign(CampaignId(result.campaign.campaign_id))
        assert found is not None, "it has just been run"
        return found


def figure_text(compared: Compared | None) -> str:
    """Return what a comparison came to, as it follows a build's name."""
    if compared is None:
        return ""
    verdict = compared.verdict
    if verdict is None or verdict.ratio is None:
        return f" ({compared.reason or ' '.join(verdict.reasons if verdict is not None else ())})"
    interval = f" ({interval_text(verdict)})" if verdict.low is not None else ""
    return f", time {format_change(verdict.ratio)}{interval}"


def titled(release: Release) -> str:
    """Return what people know a build by."""
    return _address(release) + (f" ({release.tag})" if release.tag else "")


def _address(release: Release) -> str:
    return f"{release.name}@{release.release_id}"
