"""``benchfarm tune``: a search as a campaign, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from orchestrator.app.options import Texts, opt
from orchestrator.app.searching import StoredSearch, search_plan, stored_search
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.frame import PlanKeys, command, refuse
from orchestrator.cli.measuring import execute
from orchestrator.cli.result import CommandResult, share_of, table
from orchestrator.config.plan_keys import PlanOptions
from orchestrator.errors import UsageError
from orchestrator.records.search import SearchArm, SearchRule, SearchStanding
from orchestrator.report.escapes import one_line
from orchestrator.units import format_change, format_duration, format_latency

_ENDINGS: Final = {
    "one-left": "everything else was slower",
    "alike": "what is left differs by less than what matters",
    "most": "no more processes are given",
    "budget": "more would take over the share of the full product's time that --budget gives",
    "nothing-left": "no configuration has a figure of its own",
}
_TUNE = PlanKeys(
    "models? delegates threads devices profiles where one_of_each at_most builds tools min_secs seed",
    delegates="Delegates to try (default: cpu,xnnpack,gpu,nnapi,hexagon).",
    threads="Thread counts to try (default: 1,2,4,8).",
    tools="native, apk or litert-native (default: native).",
)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How long 'tune' searches."""

    flag_sets: Annotated[
        Texts, opt("--flags", "A set of flags to try beside none, name=value,name=value. Repeat for several.")
    ] = ()
    most: Annotated[int, opt("--most", "Processes per configuration, at most.", min=2, max=64)] = 8
    alike: Annotated[str, opt("--alike", "Ignore differences below this.")] = "2%"
    budget: Annotated[
        str,
        opt("--budget", "Share of the time of measuring every configuration, at most (from 8 configurations on)."),
    ] = "33%"
    parity: Annotated[bool, opt("--parity/--no-parity", "Compare the outputs of the finalists.")] = True


@command("tune")
def tune(
    settings: Settings,
    context: typer.Context,
    options: Annotated[PlanOptions, _TUNE],
    search: SearchOptions,
    campaign: Annotated[str, opt("--campaign", "Measure nothing. Show this search (id or its beginning).")] = "",
) -> CommandResult:
    """Find a model's fastest configuration on each phone.

    Example: benchfarm tune model.tflite --device SERIAL

    Tries delegates x threads x flags, and drops early what is clearly slower.
    """
    if bool(options.get("models")) == bool(campaign):
        raise UsageError(
            "give either models or --campaign",
            hint="benchfarm tune m.tflite --device SERIAL | benchfarm tune --campaign ID",
        )
    if campaign:
        refuse(
            context, {item.name or "" for item in context.command.params} - {"campaign", "as_json"}, "with --campaign"
        )
        return stored(settings, campaign)
    rule = SearchRule(
        most=search.most,
        alike=share_of(search.alike, "--alike", least=0.0, most=0.99),
        parity=search.parity,
        budget=share_of(search.budget, "--budget", least=0.0, most=1.0),
    )
    done = execute(settings, search_plan(options, search.flag_sets, rule), None)
    assert isinstance(done.data, dict)
    result = stored(settings, str(done.data["campaign_id"]))
    assert isinstance(result.data, dict)
    further = {key: done.data[key] for key in ("status", "left", "lost", "report")}
    goes_on = f"'benchfarm run --resume --campaign {done.data['campaign_id']}' resumes it"
    left = [f"{done.data['left']} invocations are left; {goes_on}"] if done.data["left"] else []
    left += [f"{serial}: {one_line(reason)}" for serial, reason in done.data["lost"].items()]
    return replace(result, text="\n".join([result.text, *left]), data={**result.data, **further}, is_kept=True)


def stored(settings: Settings, prefix: str) -> CommandResult:
    """Show how a stored search stands; raises UsageError for a campaign that is none."""
    with Farm(settings, makes_store=False) as farm:
        search = stored_search(farm, prefix)
    campaign, standings, titles = search.campaign, search.standings, search.titles
    lines = [
        line for item in standings for line in (*_told(item, titles.get(item.serial, item.serial), search.rule), "")
    ]
    lines += ["figures of virtual phones: no measurements"] if search.is_virtual else []
    lines.append(f"campaign {campaign.campaign_id}; 'benchfarm report {campaign.campaign_id}' shows all of it")
    found = all(item.is_over and item.best is not None for item in standings)
    return CommandResult(text="\n".join(lines), data=_data(search), exit_code=int(not found))


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


def _data(search: StoredSearch) -> dict[str, object]:
    return {
        "campaign_id": search.campaign.campaign_id,
        "is_virtual": search.is_virtual,
        "searches": [
            {
                "serial": item.serial,
                "model": item.model_name,
                "best": item.best.case.configuration if item.best else None,
                "tied": [arm.case.configuration for arm in item.tied],
                **_chosen(item, "is_over ended_by invocations full_invocations device_s full_s"),
                "arms": [
                    {
                        "configuration": arm.case.configuration,
                        "case_key": arm.case.case_key,
                        **_chosen(arm, "status latency_us low_us high_us used reason parity"),
                    }
                    for arm in item.arms
                ],
            }
            for item in search.standings
        ],
    }


def _chosen(record: object, names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names.split()}
