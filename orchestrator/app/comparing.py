"""Comparisons of stored results, case by case."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.comparison import (
    ABSOLUTE,
    CONFIG,
    Axis,
    ComparedCase,
    Comparison,
    Fact,
    Rule,
    compare_measured,
    compare_sides,
    title_of,
)
from orchestrator.analysis.pairing import PairCount, pair_counts, pairing_of
from orchestrator.analysis.summary import session_noises
from orchestrator.app.requests import CompareOptions
from orchestrator.app.status import ending_text
from orchestrator.app.stored import (
    check_stored,
    find_campaigns,
    judged,
    load_measured,
    read_campaign,
    resume_notes,
)
from orchestrator.app.workspace import Workspace
from orchestrator.engine.device_campaign import campaign_runs
from orchestrator.errors import ArtifactError, UsageError, check_word, choices
from orchestrator.files import safe_name
from orchestrator.records.campaign import Campaign, Pairing
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, grouped
from orchestrator.records.device import device_matches
from orchestrator.records.run import ABANDONED, OUT_OF_TIME, Outcome, RunRecord
from orchestrator.records.verdict import ChangeRule
from orchestrator.settings import Settings
from orchestrator.units import counted, format_percent

_SHORTEST_SHA: Final = 4
#: The code of runs that were left out -> its meaning when no pair is complete.
_LEFT_OUT: Final = {
    OUT_OF_TIME: "The budget left no time for a whole pair; give more with --budget.",
    ABANDONED: "It was closed before a pair was whole.",
}
#: What ended pairs without a decision, as a sentence begins.
_LIMITS: Final = {
    "most": "--runs allows",
    "budget": "The budget allowed",
    "closed": "The campaign was closed after",
}


def compare(workspace: Workspace, sides: Sequence[str], options: CompareOptions) -> Comparison:
    """Compare two campaigns, or two builds, models, devices, delegates or configurations within
    campaigns, by default within the newest one that has both sides.

    Raises UsageError for an axis or a fact that isn't known, an unknown side, and for another
    threshold or level than that of an A/B comparison.
    """
    rule = _rule(sides, options)
    if rule.axis is not Axis.CAMPAIGN:
        return _within_campaigns(workspace, sides, rule, options.campaign)
    if options.campaign:
        raise UsageError(
            "--campaign needs --by", hint="to compare two campaigns: benchfarm compare A B"
        )
    if len(sides) == 1:
        (campaign, *_) = find_campaigns(workspace.store, sides[0])
        if campaign.terms.pairing is not None:
            _check_change_rule(campaign.campaign_id, campaign.terms.pairing.change_rule, rule)
            return pair_comparison(workspace, campaign, allowed=rule.allowed)
    return _between_campaigns(workspace, sides, rule)


def _rule(sides: Sequence[str], options: CompareOptions) -> Rule:
    """Return the rule of a comparison; the keys of a configuration are facts that may differ."""
    check_word("--by", options.by, Axis)
    facts = [fact for fact in Fact if fact not in ABSOLUTE]
    for name in options.allow:
        if name not in facts:
            raise UsageError(
                f"--allow {name!r} isn't a fact that may differ", hint=choices(name, facts)
            )
    axis = Axis(options.by)
    parts = [part for side in sides for part in config_parts(side)] if axis is Axis.CONFIG else []
    return Rule(
        axis=axis,
        threshold=options.threshold,
        level=options.level,
        allowed=frozenset(Fact(name) for name in options.allow),
        # Any other name is a flag's.
        varied=frozenset(Fact(key) if key in CONFIG else Fact.FLAGS for key, _ in parts),
    )


def _check_change_rule(campaign_id: CampaignId, change_rule: ChangeRule, rule: Rule) -> None:
    """Raise UsageError where another threshold or level was asked for than an A/B comparison's."""
    pairs = ((rule.threshold, change_rule.threshold), (rule.level, change_rule.level))
    if any(
        share is not None and format_percent(share) != format_percent(claimed)
        for share, claimed in pairs
    ):
        raise UsageError(
            f"{campaign_id} is an A/B comparison, whose pairs ended by its own threshold "
            f"({format_percent(change_rule.threshold)}) and level ({format_percent(change_rule.level)})",
            hint="leave out --threshold and --level; 'benchfarm ab' has --detect for a new comparison",
        )


def allow_hints(comparison: Comparison, allowed: Collection[str]) -> Iterator[str]:
    """Yield a hint at ``--allow`` where it would make further cases comparable."""
    apart = [{item.fact for item in row.differences} for row in comparison.rows]
    helped = [facts for facts in apart if facts and not facts & ABSOLUTE]
    if helped:
        every = ",".join(sorted({*allowed, *(fact.value for facts in helped for fact in facts)}))
        cases = counted(len(helped), "case")
        yield f"'--allow {every}' compares {cases} more and notes what differs in each."


def _between_campaigns(workspace: Workspace, words: Sequence[str], rule: Rule) -> Comparison:
    if len(words) < 2:
        # The newest one alone is compared with the previous one.
        side = "".join(words)
        words = (side if side not in {"", "newest"} else "previous", "newest")
    if len(words) > 2:
        raise UsageError(
            "two sides can be compared, not more", hint="benchfarm compare BASELINE CANDIDATE"
        )
    check_stored(*words)
    before, after = (find_campaigns(workspace.store, word) for word in words)
    if both := {item.campaign_id for item in before} & {item.campaign_id for item in after}:
        raise UsageError(
            f"both sides are the campaign {min(both)}",
            hint="name two campaigns, or what differs within one: --by build|model|device|delegate|config A B",
        )
    names = (_side_name(before), _side_name(after))
    sides = load_measured(workspace, before), load_measured(workspace, after)
    return replace(_compared(workspace, sides, rule, names), notes=resume_notes(*before, *after))


def _compared(
    workspace: Workspace,
    sides: tuple[Sequence[CaseResult], Sequence[CaseResult]],
    rule: Rule,
    names: tuple[str, str],
) -> Comparison:
    """Compare two sides; for several sessions, with the noise between sessions of their series."""
    before, after = ({item.campaign_id for item in side} for side in sides)
    if len(before | after) > 1 or rule.axis is Axis.DEVICE:
        keys = sorted({item.case.series_key for side in sides for item in side})
        # Neither the candidate itself, nor A/B comparisons, nor hidden campaigns count for the
        # noise between sessions.
        listed = workspace.store.campaigns()
        plain = {item.campaign_id for item in listed if item.terms.pairing is None}
        points = workspace.store.points(series_keys=keys)
        rule = replace(rule, sessions=session_noises(points, only=plain - after))
    return compare_sides(*sides, rule, names=names)


def _side_name(campaigns: Sequence[Campaign]) -> str:
    """Return the title of a side: its first campaign, and the number of further ones."""
    further = f" and {len(campaigns) - 1} more" if len(campaigns) > 1 else ""
    return f"{campaigns[0].name} {campaigns[0].campaign_id}{further}"


def _within_campaigns(
    workspace: Workspace, words: Sequence[str], rule: Rule, campaigns: Sequence[str]
) -> Comparison:
    if len(words) != 2:
        raise UsageError(
            f"--by {rule.axis} needs two sides",
            hint=f"benchfarm compare --by {rule.axis} BASELINE CANDIDATE",
        )
    fits = tuple(_selector(workspace, rule.axis, word) for word in words)
    if campaigns:
        sides = _sides(load_measured(workspace, find_campaigns(workspace.store, *campaigns)), fits)
    else:
        sides = _newest_sides(workspace, fits)
    for word, side in zip(words, sides, strict=True):
        if not side:
            raise UsageError(
                f"no result of {rule.axis} {word!r} is stored there",
                hint="'benchfarm results runs' lists what is stored",
            )
        serials = sorted({item.case.serial for item in side})
        if rule.axis is Axis.DEVICE and len(serials) > 1:
            raise UsageError(f"device {word!r} fits {', '.join(serials)}", hint="name one of them")
    rules, candidate_rules = (
        {item.campaign_id: item.change_rule for item in side} for side in sides
    )
    for campaign_id, change_rule in rules.items():
        if change_rule is not None and campaign_id in candidate_rules:
            _check_change_rule(campaign_id, change_rule, rule)
    first, *further = {*rules.values()}
    if first is not None and not further and rules == candidate_rules:
        rule = replace(rule, threshold=first.threshold, level=first.level)
    of_baseline = {(item.campaign_id, item.case.case_key) for item in sides[0]}
    for item in sides[1]:
        if (item.campaign_id, item.case.case_key) in of_baseline:
            raise UsageError(
                f"both sides have {title_of(item, Rule())}",
                hint=f"name two that differ: --by {rule.axis} BASELINE CANDIDATE",
            )
    names = (f"{rule.axis} {words[0]}", f"{rule.axis} {words[1]}")
    compared = {item.campaign_id: item.campaign for side in sides for item in side}
    notes = resume_notes(*filter(None, compared.values()))
    return replace(_compared(workspace, (sides[0], sides[1]), rule, names), notes=notes)


def _sides(
    cases: Sequence[CaseResult], fits: Sequence[Callable[[Case], bool]]
) -> list[list[CaseResult]]:
    """Return the measured cases of each side."""
    return [[item for item in cases if fit(item.case)] for fit in fits]


def _newest_sides(
    workspace: Workspace, fits: Sequence[Callable[[Case], bool]]
) -> list[list[CaseResult]]:
    """Return both sides of the newest campaign that measured both, else each of the newest one that
    measured it.
    """
    newest: list[list[CaseResult]] = [[], []]
    # Where a side has no result at all, the newest campaign that tried it has the reason.
    tried: list[list[CaseResult]] = [[], []]
    for listed in workspace.store.campaigns():
        campaign = read_campaign(workspace.store, listed.campaign_id)
        planned = [any(fit(item.case) for item in campaign.invocations) for fit in fits]
        if not any(planned) or (all(newest) and not all(planned)):
            continue
        sides = _sides(load_measured(workspace, [campaign]), fits)
        has = [any(item.own_summary is not None for item in side) for side in sides]
        if all(has):
            return sides
        newest = [
            cases or (side if is_measured else [])
            for cases, side, is_measured in zip(newest, sides, has, strict=True)
        ]
        tried = [cases or side for cases, side in zip(tried, sides, strict=True)]
    return [cases or fallen_back for cases, fallen_back in zip(newest, tried, strict=True)]


def _selector(workspace: Workspace, axis: Axis, word: str) -> Callable[[Case], bool]:
    """Return a predicate: whether a case is of the side that a word means."""
    if not word:
        raise UsageError("an empty word names no side")
    match axis:
        case Axis.BUILD:
            shas = _build_shas(workspace, word)
            return lambda case: case.build_sha256 in shas
        case Axis.MODEL:
            return lambda case: case.model_name == word or _begins(case.model_sha256, word)
        case Axis.DEVICE:
            serials = _serials(workspace, word)
            return lambda case: case.serial in serials
        case Axis.DELEGATE:
            return lambda case: case.delegate.value == word
        case _:
            parts = config_parts(word)
            return lambda case: all(_has(case, key, value) for key, value in parts)


def _serials(workspace: Workspace, word: str) -> set[str]:
    """Return the devices that a serial number, a profile or a name means.

    Raises UsageError for none.
    """
    devices = workspace.store.devices()
    fitting = {
        str(serial) for serial, facts in devices.items() if device_matches(word, facts.names)
    }
    if not fitting:
        raise UsageError(
            f"no device {word!r} is stored in {workspace.store.name}",
            hint=f"there are {', '.join(sorted(devices)) or 'none'}",
        )
    return {word} & fitting or fitting


def _build_shas(workspace: Workspace, word: str) -> set[str]:
    name, _, digits = word.partition("@")
    stored = workspace.store.builds()
    shas = {
        str(sha)
        for sha, build in stored.items()
        if _begins(sha, word) or (build.name == name and sha.startswith(digits))
    }
    if not shas and digits:
        try:
            shas = {workspace.library.find_release(word).program.sha256}
        except ArtifactError as error:
            raise UsageError(str(error), hint=error.hint) from error
    # The store has one name of each content, that of the newest campaign.
    shas |= {release.program.sha256 for release in workspace.library.named(word)}
    if not shas:
        hint = "'benchfarm results runs' lists what is stored"
        raise UsageError(f"no build {word!r} is stored", hint=hint)
    return shas


def _begins(sha256: str, word: str) -> bool:
    return len(word) >= _SHORTEST_SHA and sha256.startswith(word)


def config_parts(word: str) -> list[tuple[str, str]]:
    """Return the parts of ``delegate=gpu,threads=1``.

    Raises UsageError for one that isn't name=value.
    """
    parts = []
    for part in word.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"{part!r} isn't name=value",
                hint="for example --by config delegate=xnnpack,threads=1 delegate=gpu",
            )
        parts.append((key.strip(), value.strip()))
    return parts


def _has(case: Case, key: str, value: str) -> bool:
    if key in CONFIG:
        return CONFIG[Fact(key)](case) == value
    return dict(case.flags).get(key) == value


def pair_comparison(
    workspace: Workspace, campaign: Campaign, *, allowed: frozenset[Fact] = frozenset()
) -> Comparison:
    """Return the comparison of an A/B campaign's pairs; ``allowed`` facts may differ and are noted."""
    pairing = pairing_of(campaign)
    rule = Rule(
        axis=Axis(pairing.kind) if pairing.kind in list(Axis) else Axis.CONFIG,
        threshold=pairing.threshold,
        level=pairing.level,
        varied=frozenset({Fact(pairing.kind)}),
        allowed=allowed,
    )
    runs = campaign_runs(workspace.store, campaign)
    measured = {item.case.case_key: item for item in judged(workspace, runs, [campaign])}
    counts = pair_counts(campaign, runs)
    cases = {item.case.case_key: item.case for item in campaign.invocations}
    rows: list[ComparedCase] = []
    unmeasured: list[str] = []
    for side, (baseline, candidate) in enumerate(pairing.sides):
        if baseline not in measured or candidate not in measured:
            case = cases.get(baseline) or cases.get(candidate)
            if case is None:
                # Some runs were imported, none of this side.
                continue
            title = f"{case.model_name} on {case.serial}: {case.configuration}"
            unmeasured.append(f"no pair that counts is complete: {title}")
            continue
        row = compare_measured(measured[baseline], measured[candidate], rule)
        failed = (
            *_failures("baseline", row.baseline, runs),
            *_failures("candidate", row.candidate, runs),
        )
        reasons = (*row.verdict.reasons, *failed, *_plan_reasons(row, pairing, counts.get(side)))
        rows.append(replace(row, verdict=replace(row.verdict, reasons=reasons), failed=failed))
    unfinished = resume_notes(campaign)
    return Comparison(
        axis=pairing.kind,
        baseline=pairing.baseline,
        candidate=pairing.candidate,
        rows=tuple(rows),
        change_rule=pairing.change_rule,
        is_incomplete=bool(unfinished),
        notes=(
            *unfinished,
            f"A difference of {format_percent(pairing.detect)} was to be found (A/B in turns).",
            "The first pair only warms the phone.",
            *unmeasured,
        ),
    )


def unmeasured_reason(row: ComparedCase) -> str:
    """Return why no run of a side was begun; empty where one was."""
    codes = {item.reason_code for item in (row.baseline, row.candidate)}
    return next((text for code, text in _LEFT_OUT.items() if code in codes), "")


def _failures(name: str, side: CaseResult, runs: Iterable[RunRecord]) -> Iterator[str]:
    """Yield a sentence for each cause of failed runs of a side, warm-up runs included; not for the
    cause that explains its missing figure.
    """
    side_runs = [run for run in runs if run.case.case_key == side.case.case_key]
    failed = [run for run in side_runs if run.is_begun and run.outcome is not Outcome.COMPLETED]
    causes = grouped(failed, lambda run: (run.run_pass, run.outcome, run.reason_code))
    for (run_pass, _, code), alike in causes.items():
        if code != side.reason_code:
            kind = "" if run_pass is FIGURE_PASS else f" ({run_pass} pass)"
            numbers = ", ".join(f"#{run.invocation + 1}" for run in alike)
            yield f"The {name} gave no result in {numbers}{kind}: {ending_text(alike[0]).rstrip('.')}."


def _plan_reasons(row: ComparedCase, pairing: Pairing, count: PairCount | None) -> list[str]:
    """Return reasons for a pair's verdict that follow from its plan."""
    if why := unmeasured_reason(row):
        return [why]
    if row.differences:
        return ["No further pairs were measured: more of them would not make the sides comparable."]
    if count is None:
        return ["Its first pairs aren't complete."]
    reasons = []
    if limit := _LIMITS.get(count.limit):
        suffix = "" if row.verdict.is_decided else ", too few to decide"
        reasons.append(f"{limit} {counted(count.pairs, 'pair')}{suffix}.")
    return reasons


def default_path(settings: Settings, comparison: Comparison) -> Path:
    """Return the default path of a comparison's page."""
    name = f"compare-{comparison.axis}-{comparison.baseline}-{comparison.candidate}"
    return settings.data_folder / "reports" / f"{safe_name(name[:120], 120)}.html"
