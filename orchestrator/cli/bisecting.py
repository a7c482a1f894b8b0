"""``benchfarm bisect``: the first archived build that is slower than a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.pairing import AbRequest, Prepared, go_on, measure, pair_comparison, prepare
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.engine.ab import equal_campaign
from orchestrator.engine.bisect import BisectResult, Compared, Probe
from orchestrator.engine.bisect import bisect as search
from orchestrator.engine.campaign import CampaignResult
from orchestrator.errors import ArtifactError, DeviceUnusableError, PlanError, UsageError
from orchestrator.ports import Device
from orchestrator.quantities import parse_seconds
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.report.comparisons import interval_text
from orchestrator.units import format_change

if TYPE_CHECKING:
    from orchestrator.artifacts.releases import Release

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
    """The options of ``benchfarm bisect``; ``ab`` has no sides yet."""

    good: str
    bad: str
    fresh_s: float
    ab: AbRequest


def fresh_of(text: str) -> float:
    """Return a time span in seconds; raises UsageError."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--fresh: {error}") from error


def bisect(settings: Settings, request: BisectRequest) -> CommandResult:
    """Search the archived builds between two; every comparison is stored, and used again when the command is repeated.

    Raises:
        UsageError: the builds aren't of one name, in the wrong order, or nothing lies between; several devices fit.
        ArtifactError: a build isn't archived.
        DeviceError kinds: the device was lost; what was measured is stored, and the same command goes on.
    """
    from orchestrator.cli.progress import observer_for_stderr

    with Farm(settings) as farm:
        good, bad = farm.library.find_release(request.good), farm.library.find_release(request.bad)
        devices = farm.open_devices(DeviceSelection(serials=request.ab.serials))
        if len(devices) != 1:
            names = ", ".join(facts.serial for _, facts in devices)
            raise UsageError(f"{len(devices)} devices fit: {names}", hint="name one with --device")
        releases = releases_between(farm.library.history.releases(good.name), good, bad, devices[0][1].abis)
        comparer = _Comparer(farm, request, releases, devices)
        observer = observer_for_stderr(farm.settings.log_format)
        result = search(
            len(releases),
            comparer.compare,
            on_probe=lambda probe: observer.on_event(comparer.note(probe)),
        )
    return _shown(result, releases, devices[0][1])


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
        devices: Sequence[tuple[Device, DeviceFacts]],
    ) -> None:
        self._farm = farm
        self._request = request
        self._releases = releases
        self._devices = devices

    def compare(self, baseline: int, candidate: int) -> Compared:
        """Return the gravest verdict of the cases; a build that can't be used or put on the phone is told as such."""
        sides = tuple(f"build:{_address(self._releases[index])}" for index in (baseline, candidate))
        try:
            prepared = prepare(self._farm, replace(self._request.ab, sides=sides), self._devices)
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

        text = f"{_titled(self._releases[probe.index])}: {probe.judgement}{_figure(probe.compared)}"
        return DeviceNote(serial=self._devices[0][1].serial, text=text)

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

    def _finished(self, result: CampaignResult) -> Campaign:
        if result.status is not CampaignStatus.FINISHED:
            reason = next(iter(result.lost.values()), "it was given up")
            raise DeviceUnusableError(reason, hint="what was measured is stored; the same command goes on from there")
        found = self._farm.store.campaign(CampaignId(result.campaign.campaign_id))
        assert found is not None, "it has just been run"
        return found


def _shown(result: BisectResult, releases: Sequence[Release], facts: DeviceFacts) -> CommandResult:
    rows = []
    for index, release in enumerate(releases):
        probe = next((item for item in result.probes if item.index == index), None)
        judgement = "the good one" if index == 0 else probe.judgement.value if probe is not None else ""
        verdict = probe.compared.verdict if probe is not None else None
        why = probe.compared.reason if probe is not None else ""
        change = format_change(verdict.ratio) if verdict is not None else why
        interval = interval_text(verdict) if verdict is not None else ""
        mark = "<- first bad" if index == result.first_bad else ""
        rows.append((release.release_id, release.tag, f"{release.seen_at:%Y-%m-%d}", judgement, change, interval, mark))
    lines = [
        f"{releases[0].name} on {facts.title} {facts.serial}",
        "",
        table(("release", "which", "first seen", "is", "change", "interval", ""), rows),
        "",
        one_line(_sentence(result, releases)),
        *(one_line(remark) for remark in result.remarks),
    ]
    if facts.is_virtual:
        lines.append("Figures of virtual phones are computed; they are no measurement.")
    return CommandResult(
        text="\n".join(lines),
        data={
            "serial": facts.serial,
            "is_virtual": facts.is_virtual,
            "first_bad": _release_data(releases, result.first_bad),
            "last_good": _release_data(releases, result.last_good),
            "suspects": [_release_data(releases, index) for index in result.suspects],
            "step": result.step,
            "remarks": result.remarks,
            "builds": [_release_data(releases, index) for index in range(len(releases))],
            "probes": [
                {
                    **(_release_data(releases, probe.index) or {}),
                    "judgement": probe.judgement,
                    "compared": probe.compared,
                }
                for probe in result.probes
            ],
        },
        exit_code=int(result.first_bad is None),
    )


def _sentence(result: BisectResult, releases: Sequence[Release]) -> str:
    if result.first_bad is not None and result.last_good is not None:
        return (
            f"first bad: {_titled(releases[result.first_bad])}; last good: {_titled(releases[result.last_good])}"
            f"{_figure(result.step)}"
        )
    if result.suspects and result.last_good is not None:
        among = ", ".join(_titled(releases[index]) for index in result.suspects)
        last = _titled(releases[result.last_good])
        return f"the first bad one is among {among}; last good: {last}{_figure(result.step)}"
    return "no first bad build was found"


def _figure(compared: Compared | None) -> str:
    if compared is None:
        return ""
    verdict = compared.verdict
    if verdict is None or verdict.ratio is None:
        return f" ({compared.reason or ' '.join(verdict.reasons if verdict is not None else ())})"
    interval = f" ({interval_text(verdict)})" if verdict.low is not None else ""
    return f", time {format_change(verdict.ratio)}{interval}"


def _release_data(releases: Sequence[Release], index: int | None) -> dict[str, object] | None:
    if index is None:
        return None
    release = releases[index]
    return {
        "name": release.name,
        "release_id": release.release_id,
        "tag": release.tag,
        "seen_at": release.seen_at,
        "build_sha256": release.program.sha256,
    }


def _titled(release: Release) -> str:
    return _address(release) + (f" ({release.tag})" if release.tag else "")


def _address(release: Release) -> str:
    return f"{release.name}@{release.release_id}"
