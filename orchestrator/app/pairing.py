"""Two builds, models or configurations in turns on the same warm device (A/B), and one
configuration in several sessions, which tell what a phone can resolve (A/A).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.analysis.effect import threshold_for
from orchestrator.analysis.pairing import (
    Resolution,
    SmallestChange,
    campaign_session,
    first_invocations,
    pairing_of,
)
from orchestrator.app.attached import Needs, OpenedDevices, open_devices
from orchestrator.app.measuring import MeasuredCampaign, measure, run_plan
from orchestrator.app.preparing import (
    Prepared,
    Task,
    expansion_for,
    find_flag_files,
    identify_models,
    new_campaign,
    nothing_to_measure,
    output_checks_of,
    prepared_of,
    start,
)
from orchestrator.app.requests import PairLimits
from orchestrator.app.workspace import Workspace
from orchestrator.config.plan import plan_from_options
from orchestrator.errors import BenchfarmError, PlanError, UsageError
from orchestrator.planning.expansion import output_checks
from orchestrator.planning.selection import tools_for
from orchestrator.records import frozen
from orchestrator.records.campaign import Pairing, Terms
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    Case,
    SkippedCase,
    all_but,
    grouped,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import FIGURE, is_model_file
from orchestrator.records.plan import Plan, PlanOptions
from orchestrator.records.verdict import CHANGE_LEVEL
from orchestrator.tables.table import Column, Kind, Table
from orchestrator.units import as_list, format_percent, split

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

    @property
    def kind(self) -> str:
        """What the sides differ in."""
        return self.baseline.kind

    @property
    def plan(self) -> Plan:
        """The plan of the first side: its devices and settings are those of both."""
        return self.plans[0]


def compare_ab(workspace: Workspace, sides: Sides, limits: PairLimits) -> MeasuredCampaign | Plan:
    """Measure two sides in turns; return the plan of both, unmeasured, where they are one
    configuration.

    Raises UsageError kinds before anything runs.
    """
    prepared = prepare_pair(workspace, sides, limits)
    if pairing_of(prepared.campaign).is_same:
        return sides.plan
    return measure(workspace, start(workspace, prepared))


def prepare_pair(
    workspace: Workspace,
    sides: Sides,
    limits: PairLimits,
    opened: OpenedDevices | None = None,
) -> Prepared:
    """Return the campaign of two sides, on the given devices or on their own.

    Raises UsageError kinds.
    """
    models = [identify_models(plan) for plan in sides.plans]
    flag_files = [find_flag_files(plan) for plan in sides.plans]
    if opened is None:
        opened = open_devices(workspace, sides.plan.devices)
    tasks = [
        Task(plan=plan, models=side_models, flag_files=side_files, opened=opened)
        for plan, side_models, side_files in zip(sides.plans, models, flag_files, strict=True)
    ]
    cases: list[dict[Hashable, Case]] = []
    builds: dict[str, Build] = {}
    skipped: dict[SkippedCase, None] = {}
    for side, side_task in zip((sides.baseline, sides.candidate), tasks, strict=True):
        workspace.builds.check(side_task.plan, opened.facts, lacks_devices=opened.lacks_devices)
        expansion, side_builds = expansion_for(workspace, side_task)
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
        detect=limits.detect,
        level=CHANGE_LEVEL,
        threshold=threshold_for(limits.detect),
        most=limits.most,
    )
    cases_by_key = {case.case_key: case for pair in pairs for case in pair}
    # A phone without a pair isn't used.
    serials = {case.serial for case in cases_by_key.values()}
    task = Task(
        plan=replace(sides.plan, text="---\n".join(plan.text for plan in sides.plans)),
        models=[*models[0], *models[1]],
        flag_files={**flag_files[0], **flag_files[1]},
        opened=replace(
            opened,
            devices=tuple(item for item in opened.devices if item[1].serial in serials),
        ),
    )
    checks, is_wanted = output_checks_of(workspace, task)
    campaign = replace(
        new_campaign(workspace, task.plan.name),
        invocations=(
            *first_invocations(pairing, cases_by_key, seed=sides.plan.seed),
            # The outputs of a new configuration are compared with the reference once, after its
            # first pair.
            *output_checks(cases_by_key.values(), is_wanted),
        ),
        skipped=tuple(skipped),
        terms=Terms(output_checks=checks, pairing=pairing),
    )
    return prepared_of(task, campaign, list(builds.values()))


def sides_of(words: Sequence[str], options: PlanOptions) -> Sides:
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
    return Sides(baseline=before, candidate=after, plans=plans)


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
            options["flags"] = [*as_list(shared.get("flags")), *split(side.value)]
        case _:
            options[key] = side.value
    # Flags may be of both sides.
    called = {} if key == "flags" and shared.get(key) else {key: side.word}
    return plan_from_options(False, called, **options)


def _shared_key(case: Case, kind: str) -> Hashable:
    """Return a key of all that both sides of a pair have in common."""
    return all_but(*KINDS[kind])(case), dict(case.flags).get(FIGURE)


#: The name of its campaigns, by which stored ones are found.
NAME: Final = "aa"
#: The newest sessions that are used: older ones say little about the phone's present state.
_NEWEST: Final = 12
SMALLEST_CHANGES: Final[Sequence[Column[SmallestChange]]] = (
    Column("how", "comparison", lambda row: row.how),
    Column("minutes", "takes", lambda row: row.minutes, kind=Kind.NUMBER, unit="min", digits=1),
    Column(
        "change",
        "smallest change found",
        lambda row: row.change,
        kind=Kind.NUMBER,
        shown=lambda row: format_percent(row.change),
    ),
)


def measure_equal_sides(
    workspace: Workspace, plan: Plan, *, sessions: int
) -> Sequence[MeasuredCampaign]:
    """Measure a plan in several sessions, each a campaign of its own with its part of the budget.

    Raises as ``measuring.run_plan``, and what ended a device's part. Sessions that were measured before
    an error are stored; a notice reports their results.
    """
    measured: list[MeasuredCampaign] = []
    budget = plan.budget and plan.budget / sessions
    session_plan = replace(
        plan, name=NAME, check_outputs=False, reference_check=False, budget=budget
    )
    for _ in range(sessions):
        try:
            measured.append(run_plan(workspace, session_plan, Needs.EACH).checked())
        except BenchfarmError:
            # Where the store can't be read either, the error has the next step.
            with suppress(BenchfarmError):
                lines = [item.text for item in measured_resolutions(workspace, measured)]
                for text in dict.fromkeys([*lines, *problems_of(measured)]):
                    workspace.notice("report", text)
            raise
    return measured


def problems_of(measured: Iterable[MeasuredCampaign]) -> list[str]:
    """Return the problems of campaigns that were measured, each once."""
    return list(dict.fromkeys(text for item in measured for text in item.problems))


def measured_resolutions(
    workspace: Workspace, measured: Iterable[MeasuredCampaign]
) -> list[Resolution]:
    """Return the resolutions of the phones of some campaigns, from the newest stored sessions."""
    serials = {item.case.serial for done in measured for item in done.campaign.invocations}
    facts = [item for item in workspace.store.devices().values() if item.serial in serials]
    return stored_resolutions(workspace, facts)


def sample_model() -> Path:
    """Return the default model."""
    from orchestrator.models.inspect import sample_models

    return sample_models()[0]


def stored_resolutions(workspace: Workspace, devices: Iterable[DeviceFacts]) -> list[Resolution]:
    """Return each phone's resolutions from its newest stored sessions; none without a session."""
    facts = {device.serial: device for device in devices}
    campaigns = [item.campaign_id for item in workspace.store.campaigns() if item.name == NAME]
    runs = (
        workspace.store.runs(campaign_ids=campaigns, serials=list(facts), run_passes=[FIGURE_PASS])
        if campaigns and facts
        else ()
    )
    resolutions = []
    for of_case in grouped(runs, lambda run: run.case.case_key).values():
        of_campaigns = grouped(of_case, lambda run: run.campaign_id).values()
        sessions = [
            item
            for session_runs in of_campaigns
            if (item := campaign_session(session_runs)) is not None
        ]
        if sessions:
            case = of_case[0].case
            resolutions.append(
                Resolution(
                    serial=case.serial,
                    title=facts[case.serial].title,
                    configuration=f"{case.model_name}, {case.configuration}",
                    sessions=tuple(sessions[-_NEWEST:]),
                )
            )
    return resolutions


def resolution_table(resolution: Resolution) -> Table[SmallestChange]:
    """Return the smallest changes that a phone can show, by minutes of measuring."""
    return Table(
        name=f"resolution {resolution.serial}",
        caption="What the phone can resolve",
        columns=SMALLEST_CHANGES,
        rows=resolution.visible,
        nothing="too few processes to say what can be resolved",
    )
