"""How controlled a device was during one invocation: the grade by rule. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.run import RunConditions, RunSamples, Sample
from orchestrator.records.verdict import Grade

#: A clock within this share of its limit is at it.
_AT_LIMIT: Final = 0.99
#: The mean clock of the fastest cluster that counts as "at its maximum throughout".
_AT_MAXIMUM: Final = 0.99
#: Other work and the load before that still count as quiet.
_QUIET_CORES: Final = 0.5
_QUIET_LOAD_PER_CORE: Final = 1.0
#: What makes a device one whose state was touched.
_TOUCHED: Final = frozenset(
    {"throttled", "clocks-capped", "foreign-load", "screen-off", "battery-low", "clock-jumped"}
)


def grade_of(
    facts: DeviceFacts,
    before: DeviceState | None,
    after: DeviceState | None,
    *,
    looks: RunSamples,
    conditions: RunConditions,
    codes: frozenset[str],
) -> Grade:
    """Return the grade: the first that fits from the worst, what is unknown never counting for a
    better one.

    ``codes`` are the invocation's findings.
    """
    if before is None or after is None or facts.is_emulator or not _is_seen(before):
        return Grade.E
    if codes & _TOUCHED:
        return Grade.D
    if _is_pinned(before) and _is_pinned(after) and is_held(before, after, looks):
        return Grade.A
    if not before.clock_limit_khz or not after.clock_limit_khz:
        return Grade.D
    at_maximum = conditions.is_sampled and (_fastest_share(facts, conditions) or 0.0) >= _AT_MAXIMUM
    if at_maximum or is_held(before, after, looks):
        return Grade.B
    is_awake = before.screen_on is True and after.screen_on is True
    is_cool = before.thermal_status == 0 and after.thermal_status == 0
    return Grade.C if is_awake and is_cool and _is_quiet(facts, before, conditions) else Grade.D


def is_held(before: DeviceState | None, after: DeviceState | None, looks: RunSamples) -> bool:
    """Whether every cluster was seen at one and the same clock, its limit, before, during and after
    the run.

    That is what pinned clocks and a fixed performance mode look like: an idle phone's clocks are
    else far below.
    """
    if before is None or after is None or not before.clock_khz or not before.clock_limit_khz:
        return False
    limits = before.clock_limit_khz
    moments: tuple[Sample | DeviceState, ...] = (before, *looks.samples, after)
    return all(
        dict(moment.clock_limit_khz) == dict(limits) and _are_at(moment.clock_khz, limits)
        for moment in moments
    )


def _fastest_share(facts: DeviceFacts, conditions: RunConditions) -> float | None:
    """Return the mean clock's share of the highest for the cluster with the highest clock."""
    fastest = max(facts.clusters, key=lambda cluster: cluster.max_khz or 0, default=None)
    shares = {one.cpu: one.share for one in conditions.clusters}
    return shares.get(min(fastest.cpus)) if fastest is not None and fastest.cpus else None


def _are_at(clocks: Mapping[int, int], limits: Mapping[int, int]) -> bool:
    return all(clocks.get(cpu, 0) >= _AT_LIMIT * limit for cpu, limit in limits.items())


def _is_pinned(state: DeviceState) -> bool:
    """Whether no cluster has a choice: its lowest clock is its highest, or its governor keeps the
    highest.
    """
    return bool(state.clock_limit_khz) and all(
        state.clock_floor_khz.get(cpu) == limit or state.governors.get(cpu) == "performance"
        for cpu, limit in state.clock_limit_khz.items()
    )


def _is_seen(state: DeviceState) -> bool:
    return (
        bool(state.clock_limit_khz or state.heat_c)
        or state.thermal_status is not None
        or state.load_1min is not None
    )


def _is_quiet(facts: DeviceFacts, before: DeviceState, conditions: RunConditions) -> bool:
    if conditions.foreign_cores is not None:
        return conditions.foreign_cores <= _QUIET_CORES
    cores = sum(len(cluster.cpus) for cluster in facts.clusters)
    return (
        before.load_1min is not None
        and cores > 0
        and before.load_1min <= _QUIET_LOAD_PER_CORE * cores
    )
