"""From a plan and the available devices to cases, skips with reasons, and the order of
invocations.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Final

from orchestrator.delegates import DELEGATES, needed_companions, shared_case
from orchestrator.passes import pass_of
from orchestrator.passes.parity import can_be_checked
from orchestrator.passes.specification import PassSpec
from orchestrator.planning.selection import (
    cores_skip,
    delegates_for,
    flags_skip,
    is_unavailable_for_auto,
    mode_skip,
    model_skip,
    skip_reason,
    threads_for,
    threads_skip,
    tools_for,
)
from orchestrator.planning.time_budget import Recent, bounds_s, case_costs_s, over_budget
from orchestrator.programs import program
from orchestrator.records import frozen
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import (
    FIGURE_PASS,
    NOT_IN_TOOL,
    OUTPUT_CHECK_PASS,
    USUAL_DELEGATE,
    Build,
    Case,
    CaseKey,
    DelegateName,
    Model,
    Serial,
    SeriesKey,
    Skip,
    SkippedCase,
    ToolName,
    grouped,
)
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.plan import Order, Plan, RunSettings
from orchestrator.records.run import OUT_OF_TIME


def keep_shared_order(cases: Sequence[Case], order: Iterable[Case]) -> list[Case]:
    """Return cases in ``order``, but those with the same shared case in the order of ``cases``."""
    waiting: dict[CaseKey, list[Case]] = {}
    for case in cases:
        if (key := shared_case(case)) is not None:
            waiting.setdefault(key, []).append(case)
    ordered = []
    for case in order:
        key = shared_case(case)
        ordered.append(case if key is None else waiting[key].pop(0))
    return ordered


def _pass_misfit(plan: Plan, pass_spec: PassSpec, case: Case, kind: DeviceKind) -> str:
    """Return why a pass can't run a case on a kind of device, as text after the program's name;
    empty where it can.
    """
    if kind not in pass_spec.kinds:
        return f"can't be run in it on {kind.noun}"
    return pass_spec.unsupported_reason(program(case.tool), plan)


def _extra_invocations(
    plan: Plan, pass_spec: PassSpec, cases: Sequence[Case], kind: DeviceKind
) -> Iterator[Invocation]:
    """Yield the invocations of a pass other than timing, case by case or in turns."""
    suitable = [case for case in cases if not _pass_misfit(plan, pass_spec, case, kind)]
    numbers = {
        case.case_key: pass_spec.numbers(plan, case, program(case.tool)) for case in suitable
    }
    longest = max(map(len, numbers.values()), default=0)
    width = longest if pass_spec.turn is None else pass_spec.turn(plan)
    for start in range(0, longest, width or 1):
        turn = [
            Invocation(case=case, run_pass=pass_spec.name, number=number)
            for case in suitable
            for number in numbers[case.case_key][start : start + width]
        ]
        yield from reversed(turn) if start // width % 2 else turn


def order_invocations(
    plan: Plan, facts: DeviceFacts, cases: Sequence[Case]
) -> tuple[Invocation, ...]:
    """Return a device's invocations: timing round by round, then each other pass, case by case.

    Sustained passes come last, because they heat the device; their one invocation stands for all
    that fit into the time.
    """
    extra_passes = [pass_of(name) for name in plan.passes if name is not FIGURE_PASS]
    extra_passes.sort(key=lambda pass_spec: pass_spec.is_open_ended)
    extra = [
        item
        for pass_spec in extra_passes
        for item in _extra_invocations(plan, pass_spec, cases, facts.kind)
    ]
    rounds = range(plan.invocations.first) if FIGURE_PASS in plan.passes else range(0)
    if plan.order is Order.SEQUENTIAL:
        timing = [
            Invocation(case=case, run_pass=FIGURE_PASS, number=number)
            for case in cases
            for number in rounds
        ]
        return (*timing, *extra)
    # Shuffled to spread drift, not for secrecy.
    shuffler = random.Random(f"{plan.seed}:{facts.serial}")  # noqa: S311
    timing = []
    for number in rounds:
        shuffled = list(cases)
        shuffler.shuffle(shuffled)
        shuffled = keep_shared_order(cases, shuffled)
        timing += [Invocation(case=case, run_pass=FIGURE_PASS, number=number) for case in shuffled]
    return (*timing, *extra)


@frozen
class FlagFiles:
    """The files that are placed on a phone for a flag that names a file of this computer."""

    #: The file's name on the phone.
    name: str
    #: The file and the files that it needs: (name, sha256).
    files: tuple[tuple[str, str], ...]
    #: sha256 -> path on this computer.
    paths: Mapping[str, Path] = field(default_factory=dict)


@frozen
class Stock:
    """The builds, profiles and files that are available for measuring."""

    #: The build of each device's program, or why there is none.
    builds: Mapping[tuple[Serial, ToolName], Build | Skip]
    profiles: Mapping[str, DeviceProfile] = field(default_factory=dict)
    #: The files for each flag value that names a file of this computer (``@path``).
    flag_files: Mapping[str, FlagFiles] = field(default_factory=dict)
    #: A build's sha256 -> the build with TensorFlow's operators, used for models that need them.
    flex_builds: Mapping[str, Build] = field(default_factory=dict)


@frozen
class Expansion:
    """A plan's cases and invocations on the available devices."""

    #: Each case once, device by device, in the plan's order: the queues' order is shuffled.
    cases: tuple[Case, ...]
    #: Each device's invocations in the order of running.
    invocations: Mapping[Serial, tuple[Invocation, ...]]
    skipped: tuple[SkippedCase, ...]

    def estimate_s(self, plan: Plan) -> tuple[float, float]:
        """Return the least seconds of the busiest device: with nothing added, and with everything
        added.
        """
        bounds = [bounds_s(plan, queue) for queue in self.invocations.values()] or [(0.0, 0.0)]
        least, most = zip(*bounds, strict=True)
        return max(least), max(most)


#: How often and how long the reference workload runs, whatever the defaults of plans are.
_REFERENCE: Final = RunSettings(
    num_runs=10, min_secs=1.0, max_secs=30.0, warmup_runs=1, warmup_min_secs=0.2, affinity="big"
)


def reference_case(
    plan: Plan,
    facts: DeviceFacts,
    model: Model,
    builds: Mapping[tuple[Serial, ToolName], Build | Skip],
) -> Case | None:
    """Return a device's reference workload: the same for every plan, so that nightly runs compare.

    It uses the first of the plan's programs that the device has and that runs one case per process.
    """
    for tool in tools_for(plan, facts.kind):
        build = builds.get((facts.serial, tool))
        skip = skip_reason(facts, None, tool, USUAL_DELEGATE, build)
        if not tool.is_session and skip is None and isinstance(build, Build):
            case = _new_case(_REFERENCE, facts, model, build, USUAL_DELEGATE)
            # The same on an iPhone: earlier checks are found by the case's key.
            return replace(case, threads=1, affinity=_REFERENCE.affinity)
    return None


def expand(
    plan: Plan, devices: Sequence[DeviceFacts], models: Sequence[Model], stock: Stock
) -> Expansion:
    """Return cases, skips and the order of invocations; the same inputs give the same order
    (plan.seed).
    """
    queues: dict[Serial, tuple[Invocation, ...]] = {}
    planned: list[Case] = []
    skipped: list[SkippedCase] = []
    for facts in devices:
        unique: dict[CaseKey, Case] = {}
        for model in models:
            for item in _model_cases(plan, facts, model, stock):
                if isinstance(item, Case):
                    unique.setdefault(item.case_key, item)
                else:
                    skipped.append(item)
        queues[facts.serial] = order_invocations(plan, facts, list(unique.values()))
        keys = {item.case.case_key for item in queues[facts.serial]}
        planned += [case for key, case in unique.items() if key in keys]
        skipped += _pass_skips(plan, unique.values(), facts.kind)
    return Expansion(
        cases=tuple(planned), invocations=queues, skipped=tuple(dict.fromkeys(skipped))
    )


def _model_cases(
    plan: Plan, facts: DeviceFacts, model: Model, stock: Stock
) -> Iterator[Case | SkippedCase]:
    """Yield the cases of one model on one device, and the skipped ones."""
    matrix, kind = plan.matrix, facts.kind
    profile = stock.profiles.get(facts.profile)
    settings = tuple(itertools.product(matrix.flags, matrix.modes or (None,)))
    for tool in tools_for(plan, kind):
        misfit = model_skip(tool, model)
        if misfit is not None and not matrix.tools:
            continue
        build = stock.builds.get((facts.serial, tool))
        if model.needs_flex and isinstance(build, Build):
            build = stock.flex_builds.get(build.sha256, build)
        for delegate in delegates_for(plan, kind, tool):
            unfit = (
                misfit
                or skip_reason(facts, profile, tool, delegate, build)
                or cores_skip(kind, tool, plan.settings.affinity)
            )
            for threads in threads_for(plan, facts):
                skip = unfit or threads_skip(facts, threads)
                for flags, mode in settings:
                    case_skip = (
                        skip or flags_skip(tool, delegate, flags) or mode_skip(kind, tool, mode)
                    )
                    if case_skip is None:
                        assert isinstance(build, Build)
                        base_case = replace(
                            _new_case(plan.settings, facts, model, build, delegate), threads=threads
                        )
                        for option_flags in program(tool).options(DELEGATES[delegate], flags):
                            case = _with_flags(base_case, flags + option_flags, stock.flag_files)
                            # The usual mode isn't set, so that it doesn't change the case's key.
                            yield case if mode is case.process_mode else replace(case, mode=mode)
                    elif not is_unavailable_for_auto(plan, kind, tool, case_skip.reason_code):
                        yield SkippedCase(
                            serial=facts.serial,
                            model_name=model.name,
                            delegate=delegate,
                            threads=threads,
                            tool=tool,
                            reason_code=case_skip.reason_code,
                            reason=case_skip.reason,
                        )


def _pass_skips(plan: Plan, cases: Iterable[Case], kind: DeviceKind) -> Iterator[SkippedCase]:
    """Yield the cases that passes of the plan can't run, once per case and reason."""
    for case in cases:
        reasons = {name: _pass_misfit(plan, pass_of(name), case, kind) for name in plan.passes}
        for reason, names in grouped(plan.passes, reasons.__getitem__).items():
            if reason:
                skip_text = f"pass {', '.join(names)}: '{case.tool}' {reason}"
                yield SkippedCase.of(case, NOT_IN_TOOL, skip_text)


def with_skips(expansion: Expansion, skips: Mapping[CaseKey, Skip]) -> Expansion:
    """Return an expansion with some cases skipped, each with its reason."""
    if not skips:
        return expansion
    queues = {
        serial: tuple(item for item in queue if item.case.case_key not in skips)
        for serial, queue in expansion.invocations.items()
    }
    new_skips = (
        SkippedCase.of(case, skip.reason_code, skip.reason)
        for case in expansion.cases
        if (skip := skips.get(case.case_key)) is not None
    )
    return replace(
        expansion,
        cases=tuple(case for case in expansion.cases if case.case_key not in skips),
        invocations=queues,
        skipped=tuple(dict.fromkeys((*expansion.skipped, *new_skips))),
    )


def _new_case(
    settings: RunSettings,
    facts: DeviceFacts,
    model: Model,
    build: Build,
    delegate: DelegateName,
) -> Case:
    # Nothing on an iPhone chooses the cores.
    affinity = "all" if facts.kind is DeviceKind.IOS else settings.affinity
    return Case(
        serial=facts.serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=delegate,
        threads=-1,
        tool=build.tool,
        build_sha256=build.sha256,
        files=_companion_files(build, facts, delegate),
        **asdict(replace(settings, affinity=affinity)),
    )


def _companion_files(
    build: Build, facts: DeviceFacts, delegate: DelegateName
) -> tuple[tuple[str, str], ...]:
    """Return the files that a program needs beside it: name and sha256."""
    companions = needed_companions(build, facts, delegate)
    return tuple(sorted((item.name, item.sha256) for item in companions))


def _with_flags(
    case: Case, flags: tuple[tuple[str, str], ...], flag_files: Mapping[str, FlagFiles]
) -> Case:
    """Return a case with flags and the files that they name."""
    placed, resolved = dict(case.files), []
    for name, value in flags:
        files = flag_files.get(value)
        placed |= dict(files.files) if files else {}
        resolved.append((name, f"@{files.name}" if files else value))
    return replace(case, flags=tuple(sorted(resolved)), files=tuple(sorted(placed.items())))


def with_output_checks(expansion: Expansion, is_wanted: Callable[[Case], bool]) -> Expansion:
    """Return an expansion in which each wanted configuration's outputs are compared once.

    With one thread count, and after the first timing round, whose figures users see first.
    """
    return replace(
        expansion,
        invocations={
            serial: _add_checks(queue, is_wanted) for serial, queue in expansion.invocations.items()
        },
    )


def _add_checks(
    queue: Sequence[Invocation], is_wanted: Callable[[Case], bool]
) -> tuple[Invocation, ...]:
    first = [item for item in queue if item.run_pass is FIGURE_PASS and item.number == 0]
    checks = output_checks((item.case for item in first), is_wanted)
    split_index = max((index for index, item in enumerate(queue) if item in first), default=-1) + 1
    return (*queue[:split_index], *checks, *queue[split_index:])


def output_checks(cases: Iterable[Case], is_wanted: Callable[[Case], bool]) -> list[Invocation]:
    """Return the invocations that compare outputs, one for each wanted configuration."""
    # In the plan's order, the fewest threads first: more threads may turn out to be unused.
    cases_by_outputs: dict[tuple[str, str], Case] = {}
    for case in sorted(cases, key=lambda case: case.threads):
        cases_by_outputs.setdefault((case.serial, case.outputs_key), case)
    return [
        Invocation(case=case, run_pass=OUTPUT_CHECK_PASS, number=0)
        for case in cases_by_outputs.values()
        if can_be_checked(case, program(case.tool)) and is_wanted(case)
    ]


def cut_to_time(
    plan: Plan,
    expansion: Expansion,
    limit_s: float | None,
    *,
    recent_of: Callable[[tuple[SeriesKey, ...]], Recent],
    unit_of: Callable[[Case], str],
) -> Expansion:
    """Return the expansion with the cases skipped that don't fit into the time, with reasons.

    Args:
        plan: its settings give the least time of each run.
        expansion: of the plan.
        limit_s: each device's time; None for no limit.
        recent_of: returns the last runs of some series.
        unit_of: returns the key of cases that share a process; empty for a case that runs alone.
    """
    if limit_s is None:
        return expansion
    skips: dict[CaseKey, Skip] = {}
    firsts: dict[CaseKey, CaseKey] = {}
    units: dict[CaseKey, str] = {}
    for serial, queue in expansion.invocations.items():
        recent = recent_of(tuple(dict.fromkeys(item.case.series_key for item in queue)))
        costs_s = case_costs_s(queue, recent, plan)
        cases = [
            case for case in expansion.cases if case.serial == serial and case.case_key in costs_s
        ]
        # Of thread counts that were never measured only the first costs time: its delegate
        # probably leaves the threads unused.
        for case in cases:
            shared = None if plan.matrix.every_thread_count else shared_case(case)
            first = firsts.setdefault(shared or case.case_key, case.case_key)
            unit = case.case_key if case.series_key in recent else first
            units[case.case_key] = unit_of(case) or unit
        reasons = over_budget(
            cases, costs_s, limit_s=limit_s, unit_of=lambda case: units[case.case_key]
        )
        skips |= {
            key: Skip(reason_code=OUT_OF_TIME, reason=reason) for key, reason in reasons.items()
        }
    return with_skips(expansion, skips)
