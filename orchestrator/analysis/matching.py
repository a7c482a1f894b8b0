"""Which cases of two sides belong together. Pure.

Two figures are compared when everything but the compared thing agrees. Cases are matched in steps
from "all alike" to "the same model by name, delegate, threads and tool", so that a case whose
settings or phone changed is reported as incomparable, with what differs, instead of being left out
without a word.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter, or_
from typing import Final

from orchestrator.analysis.autocorrelation import Autocorrelation
from orchestrator.analysis.case_result import (
    CaseResult,
    OutputChecks,
    autocorrelation_of_others,
    has_comparison,
    judge_case,
)
from orchestrator.analysis.compare import CLAIM_LEVEL, THRESHOLD
from orchestrator.analysis.sessions import SessionNoise
from orchestrator.delegates import DELEGATES, place_of
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    CampaignId,
    Case,
    CaseKey,
    SeriesKey,
    grouped,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.parity import Outputs, outputs_of
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Grade, Severity


class Axis(enum.StrEnum):
    """What the two sides differ in."""

    CAMPAIGN = "campaign"
    BUILD = "build"
    MODEL = "model"
    DEVICE = "device"
    DELEGATE = "delegate"
    #: Some of delegate, threads, tool, mode and flags.
    CONFIG = "config"


class Fact(enum.StrEnum):
    """What must agree before two figures are compared."""

    #: A virtual phone's figure is no measurement.
    VIRTUAL = "virtual"
    #: There is no figure, or it isn't one of what was asked for.
    FIGURE = "figure"
    #: The figure was rejected.
    QUALITY = "quality"
    MODEL = "model"
    BUILD = "build"
    DEVICE = "device"
    #: The operating system's fingerprint.
    SYSTEM = "system"
    #: Which delegate was asked for.
    DELEGATE = "delegate"
    #: Where the operators really ran.
    TRUTH = "truth"
    THREADS = "threads"
    TOOL = "tool"
    #: As what the program runs: shell, top-app, foreground.
    MODE = "mode"
    FLAGS = "flags"
    #: Runs, seconds, warm-up, cores.
    SETTINGS = "settings"
    GRADE = "grade"


#: What an axis is about, so that it may differ.
_FREE: Final[Mapping[Axis, frozenset[Fact]]] = {
    Axis.CAMPAIGN: frozenset({Fact.BUILD}),
    Axis.BUILD: frozenset({Fact.BUILD}),
    Axis.MODEL: frozenset({Fact.MODEL}),
    Axis.DEVICE: frozenset({Fact.DEVICE, Fact.SYSTEM, Fact.BUILD}),
    Axis.DELEGATE: frozenset({Fact.DELEGATE, Fact.TRUTH}),
    Axis.CONFIG: frozenset(),
}
SETTINGS: Final = ("num_runs", "min_secs", "max_secs", "warmup_runs", "warmup_min_secs", "affinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case in one campaign, with its timing invocations and what they come to."""

    case: Case
    campaign_id: CampaignId
    runs: tuple[RunRecord, ...]
    result: CaseResult
    device: str
    build: str
    is_virtual: bool
    #: The operating system's fingerprint when the campaign began; empty when it wasn't kept.
    system: str = ""
    #: Where the campaign was imported from, in words; empty for this lab's own.
    origin: str = ""

    @property
    def outputs(self) -> Outputs:
        """What is known of the outputs that its figure belongs to."""
        is_builtin = DELEGATES[self.case.delegate].is_builtin
        return outputs_of(self.result.parity, is_builtin=is_builtin)

    @property
    def used(self) -> dict[int, RunRecord]:
        """Invocation number -> run, of those that the figure comes from."""
        chosen = set(self.result.used)
        return {run.invocation: run for run in self.runs if run.run_id in chosen}

    @property
    def codes(self) -> frozenset[str]:
        """Codes of the warnings of the runs that the figure comes from, and of the figure itself."""
        made = [each for run in self.used.values() for each in run.verdict.findings]
        return frozenset(
            each.code
            for each in (*made, *self.result.findings)
            if each.severity is Severity.WARNING
        )

    @property
    def grade(self) -> Grade | None:
        """The worst grade among the runs used; None when one of them has none."""
        return self.result.grade

    @property
    def actual(self) -> str:
        """Where the operators ran, as the runs used show it: ``gpu, partial``; empty when nothing
        shows it.
        """
        reports = [run.report for run in self.used.values() if run.report is not None]
        places = sorted({place_of(report.delegate) for report in reports if report.delegate.actual})
        truths = sorted({report.delegate.truth.value for report in reports})
        return ", ".join([*places, *truths]) if places else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How sides are compared."""

    axis: Axis = Axis.CAMPAIGN
    threshold: float = THRESHOLD
    level: float = CLAIM_LEVEL
    #: Differences that the user lets pass; they are noted beside the figure.
    allowed: frozenset[Fact] = frozenset()
    #: For the axis CONFIG: what its selectors name.
    varied: frozenset[Fact] = field(default_factory=frozenset)
    #: For pairs that end as soon as their verdict is known: how many there are at the most.
    most_pairs: int | None = None
    #: What sessions of the series differ by; the default for one that isn't there.
    sessions: Mapping[SeriesKey, SessionNoise] = field(default_factory=dict)

    @property
    def free(self) -> frozenset[Fact]:
        """Facts that may differ because they are what is compared."""
        free = _FREE[self.axis] | self.varied
        if Fact.DELEGATE in free or Fact.MODEL in free:
            # How much of it a delegate takes is a property of a model.
            free |= {Fact.TRUTH}
        return free | {Fact.BUILD, Fact.MODE} if Fact.TOOL in free else free


def measured_cases(
    runs: Iterable[RunRecord],
    *,
    devices: Mapping[str, DeviceFacts],
    builds: Mapping[str, Build],
    systems: Mapping[tuple[CampaignId, str], str] | None = None,
    origins: Mapping[CampaignId, str] | None = None,
    campaigns: Mapping[CampaignId, Campaign] | None = None,
    wanted: Callable[[RunRecord], bool] | None = None,
) -> list[Measured]:
    """Return the cases that were measured, one for each campaign and case, in the order in which
    they were stored.

    ``systems`` says which fingerprint a device had in a campaign, ``origins`` where a campaign was
    imported from, ``checks`` what it knew of outputs; ``wanted`` leaves runs out.
    """
    fit = [
        run
        for run in runs
        if (run.run_pass is FIGURE_PASS or has_comparison(run)) and run.outcome is not Outcome.UNFIT
        if wanted is None or wanted(run)
    ]
    groups, compared = (
        grouped(
            (run for run in fit if has_comparison(run) is of),
            lambda run: (run.campaign_id, run.case.case_key),
        )
        for of in (False, True)
    )
    others: dict[tuple[CampaignId, CaseKey], Autocorrelation] = {}
    known: dict[CampaignId, OutputChecks] = {}
    for campaign_id, places in grouped(groups, itemgetter(0)).items():
        own = [campaigns[campaign_id]] if campaigns and campaign_id in campaigns else []
        others |= autocorrelation_of_others({place: groups[place] for place in places}, own)
        known[campaign_id] = OutputChecks(campaign.terms.output_checks for campaign in own)
    for runs_compared in compared.values():
        for run in runs_compared:
            if run.campaign_id in known:
                known[run.campaign_id].learn(run)
    found = []
    for (campaign_id, case_key), members in groups.items():
        case = members[0].case
        build = builds.get(case.build_sha256)
        facts = devices.get(case.serial)
        found.append(
            Measured(
                case=case,
                campaign_id=campaign_id,
                runs=tuple(members),
                result=judge_case(
                    [*members, *compared[campaign_id, case_key]],
                    others=others[campaign_id, case_key],
                    check=known[campaign_id].of(case),
                ),
                device=facts.title if facts is not None else str(case.serial),
                build=f"{build.name} {case.build_sha256[:8]}"
                if build is not None
                else case.build_sha256[:8],
                is_virtual=any(run.is_virtual for run in members),
                system=(systems or {}).get((campaign_id, case.serial), ""),
                origin=(origins or {}).get(campaign_id, ""),
            )
        )
    return found


def match(
    baseline: Sequence[Measured], candidate: Sequence[Measured], rule: Rule
) -> tuple[list[tuple[Measured, Measured]], list[Measured], list[Measured]]:
    """Return the pairs that belong together, and what is left of each side; nothing is in two
    pairs.
    """
    pairs: list[tuple[Measured, Measured]] = []
    left, right = list(baseline), list(candidate)
    for step, dropped in enumerate(_steps(rule)):
        keys = [_grouped(side, dropped, rule) for side in (left, right)]
        for key in keys[0].keys() & keys[1].keys():
            ones, others = keys[0][key], keys[1][key]
            if step >= _CLOSE_STEPS and (len(ones) > 1 or len(others) > 1):
                # Far from alike, and no way to tell which of them is meant.
                continue
            # The newest with the newest.
            pairs += list(zip(reversed(ones), reversed(others), strict=False))
        taken = {id(item) for pair in pairs for item in pair}
        left = [item for item in left if id(item) not in taken]
        right = [item for item in right if id(item) not in taken]
    return pairs, left, right


#: Steps in which several cases may be alike; in the further ones only a single one of each side is
#: paired.
_CLOSE_STEPS: Final = 3
_Parts = frozenset[str]


def _steps(rule: Rule) -> list[_Parts]:
    """Return what each step of matching no longer looks at."""
    more = ["campaign", "build model-content", "settings mode", "flags"]
    if rule.axis in {Axis.CAMPAIGN, Axis.BUILD}:
        more.append("device")
    if rule.axis is Axis.DEVICE:
        # No program runs on both an iPhone and an Android phone.
        more.append("tool")
    free = _Parts(fact.value for fact in rule.free)
    return list(accumulate((_Parts(parts.split()) for parts in more), or_, initial=free))


def _grouped(
    side: Sequence[Measured], dropped: _Parts, rule: Rule
) -> dict[tuple[object, ...], list[Measured]]:
    groups: dict[tuple[object, ...], list[Measured]] = defaultdict(list)
    for item in side:
        case = item.case
        parts: dict[str, object] = {
            "campaign": item.campaign_id if rule.axis is not Axis.CAMPAIGN else "",
            "build": case.build_sha256,
            "model-content": case.model_sha256 if Fact.MODEL not in rule.free else "",
            "model": case.model_name,
            "device": case.serial,
            "delegate": case.delegate,
            "threads": case.threads,
            "tool": case.tool,
            "mode": case.process_mode,
            "flags": case.flags,
            "settings": tuple(getattr(case, name) for name in SETTINGS),
        }
        groups[tuple(value for name, value in parts.items() if name not in dropped)].append(item)
    return groups


def title_of(item: Measured, rule: Rule) -> str:
    """Return a case's name without what is compared: ``mobilenet on Pixel 4 (virtual) A1: xnnpack,
    4 threads``.
    """
    case, free = item.case, rule.free
    model = "" if Fact.MODEL in free else case.model_name
    device = (
        ""
        if Fact.DEVICE in free
        else f"{item.device} {case.serial}"
        if item.device != case.serial
        else item.device
    )
    words = [
        "" if Fact.DELEGATE in free else item.result.named(case.delegate.value),
        "" if Fact.THREADS in free else case.threads_text,
        "" if Fact.TOOL in free else case.tool.value,
        "" if Fact.MODE in free or case.mode is None else case.mode.value,
        "" if Fact.FLAGS in free else ", ".join(f"{name}={value}" for name, value in case.flags),
    ]
    where = " on ".join(part for part in (model, device) if part)
    return ": ".join(part for part in (where, ", ".join(word for word in words if word)) if part)
