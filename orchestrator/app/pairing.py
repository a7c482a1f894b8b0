"""Two builds, models or configurations in turns on the same warm device (A/B)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.comparison import (
    Axis,
    ComparedCase,
    Comparison,
    Fact,
    Rule,
    compare_measured,
)
from orchestrator.analysis.effect import threshold_for
from orchestrator.analysis.measured import Measured
from orchestrator.analysis.pairing import PairCount, first_invocations, pair_counts
from orchestrator.app.attached import OpenedDevices, open_devices
from orchestrator.app.inputs import inputs_of
from orchestrator.app.measuring import MeasuredCampaign, measure
from orchestrator.app.preparing import (
    Prepared,
    Task,
    campaign_of,
    expansion_for,
    nothing_to_measure,
    start,
    unchecked,
)
from orchestrator.app.requests import AbRequest
from orchestrator.app.stored import judged, resume_notes
from orchestrator.app.workspace import Workspace
from orchestrator.config.plan import plan_from_options
from orchestrator.engine.open_work import slim
from orchestrator.errors import PlanError, UsageError
from orchestrator.frozen import frozen
from orchestrator.planning.expansion import output_checks
from orchestrator.planning.selection import tools_for
from orchestrator.records.campaign import Campaign, Pairing
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    Case,
    SkippedCase,
    all_but,
    grouped,
)
from orchestrator.records.device import DeviceKind
from orchestrator.records.model import FIGURE, is_model_file
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.run import ABANDONED, OUT_OF_TIME, Outcome, RunRecord
from orchestrator.records.verdict import CLAIM_LEVEL
from orchestrator.units import counted, each, format_percent, split

#: What two sides may differ in, a fact that is then free -> the parts of a case that differ with
#: it.
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "build": ("build_sha256", "files"),
    "model": ("model_sha256", "model_name"),
    "flags": ("flags", "files"),
    "delegate": ("delegate", "files"),
    "threads": ("threads",),
    "tool": ("tool", "build_sha256", "files"),
    "mode": ("mode",),
}


#: The code of runs that were left out -> what it means where no pair is whole.
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


@frozen
class Side:
    """One side as a kind and a value: ``build``, ``benchmark_model@1a2b3c``."""

    #: As it was typed.
    word: str
    kind: str
    value: str

    @property
    def label(self) -> str:
        """Its title."""
        return f"{self.kind} {self.value}" if self.value else f"no {self.kind}"


def parse_side(text: str) -> Side:
    """Return the side of ``build:NAME``, ``flags:name=value`` ...; a bare word is a build, or a
    model by its ending.
    """
    kind, colon, value = text.partition(":")
    if not text or (kind in KINDS and colon and not value and kind != "flags"):
        raise UsageError(
            f"{text!r} names nothing", hint="benchfarm ab build:OLD build:NEW -m MODEL"
        )
    if colon and kind in KINDS:
        return Side(word=text, kind=kind, value=value)
    kind = "model" if is_model_file(Path(text)) else "build"
    return Side(word=text, kind=kind, value=text)


@frozen
class Sides:
    """Two sides to be measured in turns, and the plan of each."""

    baseline: Side
    candidate: Side
    plans: Sequence[Plan]
    #: The relative difference to detect, and the number of pairs that may be measured for it.
    detect: float
    most: int

    @property
    def kind(self) -> str:
        """What the sides differ in."""
        return self.baseline.kind

    @property
    def plan(self) -> Plan:
        """The plan of the first side: its devices and settings are those of both."""
        return self.plans[0]


def compare_ab(workspace: Workspace, sides: Sides) -> MeasuredCampaign | Plan:
    """Measure two sides in turns; return the plan of both, unmeasured, where they are one
    configuration.

    Raises UsageError kinds before anything runs.
    """
    prepared = prepare(workspace, sides)
    if pairing_of(prepared.campaign).is_same:
        return sides.plan
    return measure(workspace, start(workspace, prepared))


def prepare(workspace: Workspace, sides: Sides, opened: OpenedDevices | None = None) -> Prepared:
    """Return the campaign of two sides, on the given devices or on their own.

    Raises UsageError kinds.
    """
    inputs = [inputs_of(plan) for plan in sides.plans]
    if opened is None:
        opened = open_devices(workspace, sides.plan.devices)
    cases: list[dict[Hashable, Case]] = []
    builds: dict[str, Build] = {}
    skipped: dict[SkippedCase, None] = {}
    for side, plan, side_inputs in zip(
        (sides.baseline, sides.candidate), sides.plans, inputs, strict=True
    ):
        workspace.builds.check(plan, opened.facts, lacks_devices=opened.lacks_devices)
        expansion, side_builds = expansion_for(
            workspace, Task(plan=plan, inputs=side_inputs, opened=opened)
        )
        builds |= {build.sha256: build for build in side_builds}
        skipped |= dict.fromkeys(expansion.skipped)
        cases.append({_shared_key(case, sides.kind): case for case in expansion.cases})
        if len(cases[-1]) < len(expansion.cases):
            raise UsageError(
                f"{side.word!r} names several configurations",
                hint="a side is one of them: name one value",
            )
    pairs = [(cases[0][key], cases[1][key]) for key in cases[0] if key in cases[1]]
    if not pairs:
        if not skipped:
            raise UsageError("nothing can be compared: the sides have no case in common")
        raise nothing_to_measure(skipped)
    pairing = Pairing(
        sides=tuple((before.case_key, after.case_key) for before, after in pairs),
        baseline=sides.baseline.label,
        candidate=sides.candidate.label,
        kind=sides.kind,
        detect=sides.detect,
        level=CLAIM_LEVEL,
        threshold=threshold_for(sides.detect),
        most=sides.most,
    )
    cases_by_key = {case.case_key: case for pair in pairs for case in pair}
    # A phone without a pair isn't used.
    serials = {case.serial for case in cases_by_key.values()}
    task = Task(
        plan=replace(sides.plan, text="---\n".join(plan.text for plan in sides.plans)),
        inputs=inputs[0].with_others(inputs[1]),
        opened=replace(
            opened,
            devices=tuple(item for item in opened.devices if item[1].serial in serials),
        ),
    )
    checks, is_wanted = unchecked(workspace, task)
    return campaign_of(
        workspace,
        task,
        invocations=(
            *first_invocations(pairing, cases_by_key, seed=sides.plan.seed),
            # The outputs of a new configuration are compared with the reference once, after its
            # first pair.
            *output_checks(cases_by_key.values(), is_wanted),
        ),
        skipped=tuple(skipped),
        builds=list(builds.values()),
        checks=checks,
        pairing=pairing,
    )


def pairing_of(campaign: Campaign) -> Pairing:
    """Return the pairing of an A/B campaign."""
    assert campaign.terms.pairing is not None, "an A/B campaign has its pairing"
    return campaign.terms.pairing


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
    runs = [slim(run) for run in workspace.store.runs(campaign_ids=[campaign.campaign_id])]
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
        claim=pairing.claim,
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
    codes = {item.result.reason_code for item in (row.baseline, row.candidate)}
    return next((text for code, text in _LEFT_OUT.items() if code in codes), "")


def _failures(name: str, side: Measured, runs: Iterable[RunRecord]) -> Iterator[str]:
    """Yield a sentence for each cause of failed runs of a side, warm-up runs included; not for the
    cause that explains its missing figure.
    """
    side_runs = [run for run in runs if run.case.case_key == side.case.case_key]
    failed = [run for run in side_runs if run.is_begun and run.outcome is not Outcome.COMPLETED]
    causes = grouped(failed, lambda run: (run.run_pass, run.outcome, run.reason_code))
    for (run_pass, outcome, code), alike in causes.items():
        if code != side.result.reason_code:
            kind = "" if run_pass is FIGURE_PASS else f" ({run_pass} pass)"
            numbers = ", ".join(f"#{run.invocation + 1}" for run in alike)
            why = ": ".join(dict.fromkeys((outcome, code, alike[0].reason.rstrip("."))))
            yield f"The {name} gave no result in {numbers}{kind}: {why}."


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


def sides_of(words: Sequence[str], options: PlanOptions, request: AbRequest) -> Sides:
    """Return the sides of two words as typed, with the devices and settings of both. They are
    checked before any phone or program is searched.

    Raises UsageError kinds.
    """
    before, after = _sides(words, options)
    try:
        plans = [_plan(options, side) for side in (before, after)]
    except PlanError as error:
        if before.kind != "model" and not options.get("models"):
            error.hint = "name a model with -m FILE.tflite; repeat -m for several"
        raise
    return Sides(
        baseline=before, candidate=after, plans=plans, detect=request.detect, most=request.most
    )


def _sides(words: Sequence[str], options: PlanOptions) -> tuple[Side, Side]:
    if len(words) != 2:
        raise UsageError("ab needs two sides", hint="benchfarm ab build:OLD build:NEW -m MODEL")
    before, after = (parse_side(text) for text in words)
    if before.kind != after.kind:
        raise UsageError(
            f"the sides differ in kind: {before.kind} and {after.kind}",
            hint="vary one thing at a time",
        )
    key = _key_of(before.kind)
    if (option := _OPTIONS.get(key)) and options.get(key):
        raise UsageError(f"the {key} are the sides; leave {option} out")
    return before, after


#: Keys of a plan that are refused with sides of their kind -> their option.
_OPTIONS: Final = {
    "models": "-m",
    "builds": "--build",
    "delegates": "-d",
    "threads": "-t",
    "tools": "--tool",
}


def _key_of(kind: str) -> str:
    """Return the plan's key of a kind, which is its plural."""
    return f"{kind.removesuffix('s')}s"


def _plan(shared: PlanOptions, side: Side) -> Plan:
    """Return the plan of one side; raises PlanError, which names the typed word or the wrong
    options.
    """
    options = {"name": "ab", **shared, "invocations": 1}
    key = _key_of(side.kind)
    match side.kind:
        case "model":
            options["models"] = Path(side.value)
        case "build":
            usual = tools_for(plan_from_options(**options), DeviceKind.ANDROID)[:1]
            options["builds"] = dict.fromkeys(
                split(shared.get("tools")) or map(str, usual), side.value
            )
        case "flags":
            options["flags"] = [*each(shared.get("flags")), *split(side.value)]
        case _:
            options[key] = side.value
    # Flags may be of both sides.
    called = {} if key == "flags" and shared.get(key) else {key: side.word}
    return plan_from_options(False, called, **options)


def _shared_key(case: Case, kind: str) -> Hashable:
    """Return a key of all that both sides of a pair have in common."""
    return all_but(*KINDS[kind])(case), dict(case.flags).get(FIGURE)
