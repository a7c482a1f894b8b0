"""A search for each model's fastest configuration: its plan, and how a stored one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.search import search_standings
from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Farm
from orchestrator.config.plan_keys import PlanOptions, each
from orchestrator.delegates import DELEGATES
from orchestrator.errors import UsageError
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import Plan
from orchestrator.records.search import SearchRule, SearchStanding
from orchestrator.records.workload import USUAL_TOOL

_THREADS: Final = ("1", "2", "4", "8")
#: What may make a configuration faster beside delegate and threads; where a set has no effect, it isn't run.
_FLAG_SETS: Final = ("xnnpack_force_fp16=true", "gpu_precision_loss_allowed=false")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSearch:
    """How a search stands."""

    campaign: Campaign
    rule: SearchRule
    standings: Sequence[SearchStanding]
    #: Serial number -> what the device is called.
    titles: Mapping[str, str]
    is_virtual: bool


def search_plan(given: PlanOptions, flag_sets: Sequence[str], rule: SearchRule) -> Plan:
    """Return the campaign that a search is; raises UsageError kinds.

    Args:
        given: models, devices, delegates ... where they differ from the usual ones.
        flag_sets: each ``name=value,name=value``; empty: the usual ones.
        rule: when the search is over.
    """
    from orchestrator.config.plan_options import plan_from_options

    usual = PlanOptions(tools=USUAL_TOOL.value, delegates=_delegates(), threads=_THREADS)
    is_host = "host" in each(given.get("devices"))
    options = PlanOptions({**usual, **given, "num_runs": 10, "invocations": 1, "name": "tune", "host": is_host})
    plan = plan_from_options(**options)
    flags = ((), *map(_flag_set, flag_sets or _FLAG_SETS))
    return replace(plan, search=rule, matrix=replace(plan.matrix, flags=tuple(dict.fromkeys(flags))))


def stored_search(farm: Farm, prefix: str) -> StoredSearch:
    """Return how a stored search stands; raises UsageError for a campaign that is none."""
    campaign = find_campaign(farm.store, prefix)
    rule = campaign.terms.search
    if rule is None:
        raise UsageError(f"campaign {campaign.campaign_id} is no search", hint="'benchfarm tune MODEL' makes one")
    runs = list(farm.store.runs(campaign_ids=[campaign.campaign_id]))
    return StoredSearch(
        campaign=campaign,
        rule=rule,
        standings=search_standings(campaign, runs, rule),
        titles={serial: facts.title for serial, facts in farm.store.devices().items()},
        is_virtual=any(run.is_virtual for run in runs),
    )


def _flag_set(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in (item.strip() for item in text.split(",") if item.strip()):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise UsageError(f"--flags {text!r}: {part!r} isn't name=value", hint="--flags xnnpack_force_fp16=true")
        pairs.append((name, value))
    return tuple(sorted(pairs))


def _delegates() -> tuple[str, ...]:
    """Return what a phone's usual program may be fastest with."""
    offered = program(USUAL_TOOL).delegates(DeviceKind.ANDROID)
    return tuple(name.value for name, own in DELEGATES.items() if name in offered and not own.is_named_by_flag)
