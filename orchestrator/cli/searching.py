"""``benchfarm tune``: a search as a campaign, and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.search import search_standings
from orchestrator.app.stored import find_campaign
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import share_of
from orchestrator.cli.measuring import execute
from orchestrator.cli.result import CommandResult, table
from orchestrator.delegates import DELEGATES
from orchestrator.errors import UsageError
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceKind
from orchestrator.records.search import SearchArm, SearchRule, SearchStanding
from orchestrator.records.workload import USUAL_TOOL
from orchestrator.report.escapes import one_line
from orchestrator.units import format_change, format_duration, format_latency

_THREADS: Final = ("1", "2", "4", "8")
#: What may make a configuration faster beside delegate and threads; where a set has no effect, it isn't run.
_FLAG_SETS: Final = ("xnnpack_force_fp16=true", "gpu_precision_loss_allowed=false")
_ENDINGS: Final = {
    "one-left": "everything else was slower",
    "alike": "what is left differs by less than what matters",
    "most": "no more processes are given",
    "budget": "more would take over the share of the full product's time that --budget gives",
    "nothing-left": "no configuration has a figure of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """The options of ``benchfarm tune``, as they were typed."""

    models: tuple[Path, ...]
    serials: tuple[str, ...]
    profiles: tuple[str, ...]
    where: tuple[str, ...]
    one_of_each: str
    at_most: int | None
    delegates: tuple[str, ...]
    threads: tuple[str, ...]
    #: None: the usual ones.
    flag_sets: tuple[str, ...] | None
    tool: str
    builds: tuple[str, ...]
    most: int
    alike: str
    budget: str
    min_secs: float
    parity: bool
    seed: int


def tune(settings: Settings, request: TuneRequest) -> CommandResult:
    """Search and store; raises UsageError kinds before anything runs."""
    from orchestrator.config.plan_options import plan_from_options

    plan = plan_from_options(
        models=request.models,
        delegates=request.delegates or _delegates(),
        threads=request.threads or _THREADS,
        tools=(request.tool,),
        builds=request.builds,
        devices=request.serials,
        profiles=request.profiles,
        where=request.where,
        one_of_each=request.one_of_each,
        at_most=request.at_most,
        host="host" in request.serials,
        min_secs=request.min_secs,
        num_runs=10,
        invocations=1,
        seed=request.seed,
        name="tune",
    )
    sets = _FLAG_SETS if request.flag_sets is None else request.flag_sets
    flags = ((), *(_flag_set(text) for text in sets))
    search = SearchRule(
        most=request.most,
        alike=share_of(request.alike, "--alike", least=0.0, most=0.99),
        parity=request.parity,
        budget=share_of(request.budget, "--budget", least=0.0, most=1.0),
    )
    plan = replace(plan, search=search, matrix=replace(plan.matrix, flags=tuple(dict.fromkeys(flags))))
    done = execute(settings, plan, None)
    assert isinstance(done.data, dict)
    result = stored(settings, str(done.data["campaign_id"]))
    assert isinstance(result.data, dict)
    further = {key: done.data[key] for key in ("status", "left", "lost", "report")}
    goes_on = f"'benchfarm run --resume --campaign {done.data['campaign_id']}' goes on"
    left = [f"{done.data['left']} invocations are left; {goes_on}"] if done.data["left"] else []
    left += [f"{serial}: {one_line(reason)}" for serial, reason in done.data["lost"].items()]
    return replace(result, text="\n".join([result.text, *left]), data={**result.data, **further}, is_kept=True)


def stored(settings: Settings, prefix: str) -> CommandResult:
    """Show how a stored search stands; raises UsageError for a campaign that is none."""
    with Farm(settings, makes_store=False) as farm:
        campaign = find_campaign(farm.store, prefix)
        rule = campaign.terms.search
        if rule is None:
            raise UsageError(f"campaign {campaign.campaign_id} is no search", hint="'benchfarm tune MODEL' makes one")
        runs = list(farm.store.runs(campaign_ids=[campaign.campaign_id]))
        titles = {serial: facts.title for serial, facts in farm.store.devices().items()}
        virtual = any(run.is_virtual for run in runs)
    standings = search_standings(campaign, runs, rule)
    lines = [line for item in standings for line in (*_told(item, titles.get(item.serial, item.serial), rule), "")]
    lines += ["figures of virtual phones: no measurements"] if virtual else []
    lines.append(f"campaign {campaign.campaign_id}; 'benchfarm report {campaign.campaign_id}' shows all of it")
    found = all(item.is_over and item.best is not None for item in standings)
    return CommandResult(text="\n".join(lines), data=_data(campaign, standings, virtual), exit_code=int(not found))


def _told(item: SearchStanding, title: str, rule: SearchRule) -> list[str]:
    """Return a search for people: the winner with its ties, what it took, and every configuration."""
    head = f"{item.model_name} on {title} ({item.serial})"
    best = item.best
    if best is None or best.latency_us is None:
        lines = [f"{head}: no configuration has a figure of its own that may be used"]
    else:
        word = "fastest" if item.is_over else "fastest so far"
        lines = [f"{head}: {word} is {best.case.configuration} with {format_latency(best.latency_us)}"]
        for arm in item.tied:
            unseen = ", outputs not compared" if rule.parity and item.is_over and arm.parity is None else ""
            lines.append(f"  can't be told from it: {arm.case.configuration} ({_against(arm, best)}{unseen})")
        if best.parity is None and rule.parity and item.is_over:
            lines.append("  its outputs were not compared with the reference")
        elif best.parity is not None:
            lines.append(f"  its outputs: {best.parity.value}")
    ended = f" ({_ENDINGS[item.ended_by]})" if item.ended_by else ""
    share = f" ({item.device_s / item.full_s:.0%} of what all of them would have taken)" if item.full_s else ""
    lines.append(
        f"  {item.invocations} processes of {item.full_invocations} that all configurations would have taken, "
        f"{format_duration(item.device_s)} of the phone's time{share}{ended}"
    )
    rows = [
        (arm.case.configuration, _figure(arm), str(len(arm.used)), arm.status.value, arm.reason) for arm in item.arms
    ]
    return [*lines, table(("configuration", "latency", "n", "status", "why"), rows, right=(1, 2))]


def _against(arm: SearchArm, best: SearchArm) -> str:
    if arm.latency_us is None or best.latency_us is None:
        return "no figure"
    return format_change(arm.latency_us / best.latency_us)


def _figure(arm: SearchArm) -> str:
    if arm.latency_us is None:
        return "-"
    if arm.low_us is None or arm.high_us is None:
        return format_latency(arm.latency_us)
    return f"{format_latency(arm.latency_us)} [{format_latency(arm.low_us)}, {format_latency(arm.high_us)}]"


def _data(campaign: Campaign, standings: Sequence[SearchStanding], virtual: bool) -> dict[str, object]:
    return {
        "campaign_id": campaign.campaign_id,
        "is_virtual": virtual,
        "searches": [
            {
                "serial": item.serial,
                "model": item.model_name,
                "best": item.best.case.configuration if item.best else None,
                "tied": [arm.case.configuration for arm in item.tied],
                "is_over": item.is_over,
                "ended_by": item.ended_by,
                "invocations": item.invocations,
                "full_invocations": item.full_invocations,
                "device_s": item.device_s,
                "full_s": item.full_s,
                "arms": [
                    {"configuration": arm.case.configuration, "case_key": arm.case.case_key, **_plain(arm)}
                    for arm in item.arms
                ],
            }
            for item in standings
        ],
    }


def _plain(arm: SearchArm) -> dict[str, object]:
    return {
        "status": arm.status,
        "latency_us": arm.latency_us,
        "low_us": arm.low_us,
        "high_us": arm.high_us,
        "used": arm.used,
        "reason": arm.reason,
        "parity": arm.parity,
    }


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
