"""The first archived build that is slower than a good one, found by comparing builds with the
good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.analysis.bisection import BisectResult, Compared, Probe, search, worst_verdict
from orchestrator.analysis.pairing import is_reusable, pairing_of
from orchestrator.app.attached import open_devices
from orchestrator.app.comparing import pair_comparison, unmeasured_reason
from orchestrator.app.measuring import measure
from orchestrator.app.pairing import Sides, prepare_pair, sides_of
from orchestrator.app.preparing import Prepared, start
from orchestrator.app.requests import PairLimits
from orchestrator.app.resuming import open_cases, reopen
from orchestrator.app.workspace import Workspace
from orchestrator.engine.events import DeviceNote
from orchestrator.errors import ArtifactError, DeviceUnusableError, PlanError, UsageError
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import PlanOptions
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.tables.comparisons import change_text

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release


def bisect(
    workspace: Workspace,
    ends: tuple[str, str],
    options: PlanOptions,
    limits: PairLimits,
    *,
    fresh_s: float,
) -> tuple[BisectResult, Sequence[Release], DeviceFacts]:
    """Search the archived builds between two; every comparison is stored, and used again when the
    command is repeated within ``fresh_s``.

    ``ends`` are the good build and the bad one, ``options`` the devices and settings of both sides
    of each comparison. Returns the result of the search, the releases from the good to the bad one,
    and the device.

    Raises:
        UsageError: the builds aren't of one name, in the wrong order, or nothing lies between;
            several devices fit.
        ArtifactError: a build isn't archived.
        DeviceError kinds: the device was lost; what was measured is stored, and the same command
            resumes.
    """

    def sides_for(builds: Iterable[str]) -> Sides:
        return sides_of([f"build:{build}" for build in builds], options)

    plan = sides_for(ends).plan
    good, bad = map(workspace.library.find_release, ends)
    opened = open_devices(workspace, plan.devices)
    if len(opened.devices) != 1:
        names = ", ".join(facts.serial for facts in opened.facts)
        raise UsageError(
            f"{len(opened.devices)} devices fit: {names}", hint="name one with --serial"
        )
    releases = releases_between(
        workspace.library.archive.releases(good.name), good, bad, opened.facts[0].abis
    )
    last = len(releases) - 1

    def compare(baseline: int, candidate: int) -> Compared:
        builds = (releases[index].address for index in (baseline, candidate))
        try:
            prepared = prepare_pair(workspace, sides_for(builds), limits, opened)
        except PlanError:
            raise
        except (ArtifactError, UsageError) as error:
            # A wrong option would fail with every build. The ends are compared first, so it fails
            # at once.
            if candidate == last:
                raise
            return Compared(verdict=None, reason=str(error))
        return _compared(workspace, prepared, fresh_s)

    def note(probe: Probe) -> None:
        text = f"{titled(releases[probe.index])}: {probe.judgement}{figure_text(probe.compared)}"
        workspace.observer.on_event(DeviceNote(serial=opened.facts[0].serial, text=text))

    result = search(len(releases), compare, on_probe=note)
    if result.last_good is None:
        result = replace(result, remarks=(not_slower(result.probes[0]),))
    return result, releases, opened.facts[0]


def releases_between(
    releases: Sequence[Release], good: Release, bad: Release, abis: Sequence[str]
) -> list[Release]:
    """Return the releases from the good to the bad one for a device, in the order in which they
    were first seen.
    """
    if good.name != bad.name:
        raise UsageError(
            f"GOOD and BAD are of two builds: {good.name} and {bad.name}",
            hint="name two of one build",
        )
    fitting = {
        release.release_id: release
        for release in sorted(releases, key=lambda item: item.seen_at, reverse=True)
        if set(release.abis) & {*abis, ""}
    }
    ordered = sorted(fitting.values(), key=lambda item: item.seen_at)
    places = []
    for option, end in (("GOOD", good), ("BAD", bad)):
        if end.release_id not in fitting:
            raise UsageError(f"{option} {end.address} isn't for this device ({', '.join(abis)})")
        places.append([item.release_id for item in ordered].index(end.release_id))
    if places[0] >= places[1]:
        raise UsageError(
            "GOOD wasn't archived before BAD", hint="'benchfarm build list --all' lists the order"
        )
    return ordered[places[0] : places[1] + 1]


def _compared(workspace: Workspace, prepared: Prepared, fresh_s: float) -> Compared:
    """Return the worst verdict of the cases, from the store where it is."""
    if pairing_of(prepared.campaign).is_same:
        return Compared(
            verdict=ComparisonVerdict(
                outcome=ComparisonOutcome.SAME, ratio=1.0, method="same content"
            )
        )
    campaign = _stored(workspace, prepared, fresh_s)
    if campaign is None or campaign.status is not CampaignStatus.FINISHED:
        prepared = (
            start(workspace, prepared)
            if campaign is None
            else reopen(workspace, campaign, open_cases(workspace, campaign))
        )
        measured = measure(workspace, prepared).checked()
        if measured.unfinished:
            raise DeviceUnusableError(
                measured.unfinished,
                hint="what was measured is stored; the same command resumes there",
            )
        campaign = measured.campaign
    verdicts = [row.verdict for row in pair_comparison(workspace, campaign).rows]
    reason = "" if verdicts else "nothing was measured"
    return Compared(
        verdict=worst_verdict(verdicts), reason=reason, campaign_id=campaign.campaign_id
    )


def _stored(workspace: Workspace, prepared: Prepared, fresh_s: float) -> Campaign | None:
    """Return a stored campaign that compared the same on the same system not too long ago.

    A campaign whose budget was too small for a pair of each case doesn't count, nor does a closed
    one. An interrupted one is resumed.
    """
    since = workspace.clock.now() - timedelta(seconds=fresh_s)
    for item in workspace.store.campaigns():
        if (
            item.created_at >= since
            and item.terms.fingerprints == prepared.campaign.terms.fingerprints
            and is_reusable(item, prepared.campaign)
            and item.status is not CampaignStatus.CLOSED
            and (campaign := workspace.store.campaign(item.campaign_id))
            and not any(map(unmeasured_reason, pair_comparison(workspace, campaign).rows))
        ):
            return campaign
    return None


def figure_text(compared: Compared | None) -> str:
    """Return a comparison's change as text that follows a build's name, empty for None."""
    if compared is None:
        return ""
    verdict = compared.verdict
    if verdict is None or verdict.ratio is None:
        return f" ({compared.reason or ' '.join(verdict.reasons if verdict is not None else ())})"
    what, change, ends = change_text(verdict, is_speed=False)
    return f", {what} {change}" + (f" ({ends})" if verdict.low is not None else "")


def not_slower(end: Probe) -> str:
    """Return a remark on a bad build against which the good one isn't faster."""
    return f"The bad build isn't found slower: {end.judgement}{figure_text(end.compared)}."


def titled(release: Release) -> str:
    """Return a build's address, with its tag."""
    return release.address + (f" ({release.tag})" if release.tag else "")
