"""From a plan and the devices that are there to cases, skips with reasons, and the order of
invocations.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from orchestrator.delegates import DELEGATES, needed_companions
from orchestrator.frozen import frozen
from orchestrator.passes import pass_of
from orchestrator.passes.parity import can_be_checked
from orchestrator.passes.specification import PassSpec
from orchestrator.planning.selection import (
    cores_skip,
    delegates_for,
    flags_skip,
    is_not_there,
    mode_skip,
    model_skip,
    skip_reason,
    threads_for,
    threads_skip,
    tools_for,
)
from orchestrator.programs import program
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
    Skip,
    SkippedCase,
    ToolName,
    grouped,
)
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.plan import Order, Plan, PlanTerms
from orchestrator.records.run import DelegateTruth, Outcome, RunRecord
from orchestrator.units import counted


def shared_case(case: Case) -> CaseKey | None:
    """Return what a case has in common with its other thread counts.

    None where threads always count.
    """
    if DELEGATES[case.delegate].uses_threads:
        return None
    return replace(case, threads=0).case_key


def first_of_each(cases: Sequence[Case], order: Iterable[Case]) -> list[Case]:
    """Return cases in this order, but of those that may be one in the order of ``cases``: the first
    shows it.
    """
    waiting: dict[CaseKey, list[Case]] = {}
    for case in cases:
        if (key := shared_case(case)) is not None:
            waiting.setdefault(key, []).append(case)
    found = []
    for case in order:
        key = shared_case(case)
        found.append(case if key is None else waiting[key].pop(0))
    return found


class UnusedThreads:
    """Which cases one device needn't measure: their delegate took all operators with another number
    of threads.
    """

    def __init__(self, runs: Iterable[RunRecord] = ()) -> None:
        self._measured: dict[CaseKey, Case] = {}
        for run in runs:
            self.learn(run)

    def learn(self, run: RunRecord) -> None:
        """Note a run, in the order in which they were stored."""
        if run.outcome is not Outcome.COMPLETED or run.report is None:
            return
        if (
            run.report.delegate.truth is DelegateTruth.FULL
            and (key := shared_case(run.case)) is not None
        ):
            self._measured.setdefault(key, run.case)

    def reason(self, case: Case) -> str:
        """Return why a case needn't be measured, empty when it is."""
        key = shared_case(case)
        measured = self._measured.get(key) if key is not None else None
        if measured is None or measured.threads == case.threads:
            return ""
        count = counted(measured.threads, "thread")
        return f"threads unused: all operators ran on the {case.delegate.value}; the figure is that of {count}"


def bounds_s(plan: Plan, queue: Sequence[Invocation]) -> tuple[float, float]:
    """Return the seconds that a device's queue takes at least: when nothing is added, and when all
    is.

    Thread counts that a delegate may leave unused count once when nothing is added: one of them
    shows the figure.
    """
    known: dict[CaseKey, CaseKey] = {}
    least = most = 0.0
    for item in queue:
        duration_s = least_duration_s(item, plan)
        key = None if plan.matrix.every_thread_count else shared_case(item.case)
        if key is None or known.setdefault(key, item.case.case_key) == item.case.case_key:
            least += duration_s
        most += duration_s
    if plan.stopping is None:
        return least, most
    beyond = plan.stopping.most - plan.invocations.first
    first = (item for item in queue if item.run_pass is FIGURE_PASS and item.number == 0)
    added = sum(beyond * least_duration_s(item, plan) for item in first)
    return least, max(least, min(most + added, plan.budget or math.inf))


def least_duration_s(invocation: Invocation, terms: PlanTerms) -> float:
    """Return the seconds that an invocation takes at least; one that stands for several runs those
    of all.
    """
    return pass_of(invocation.run_pass).least_s(invocation.case, terms)


def _lacking(own: PassSpec, case: Case, kind: DeviceKind) -> str:
    """Return why a pass isn't for a case on a kind of device, to stand after the program's name;
    empty where it is.
    """
    if kind not in own.kinds:
        return f"can't be run in it on {kind.noun}"
    return own.lacking(program(case.tool))


def _further(
    plan: Plan, own: PassSpec, cases: Sequence[Case], kind: DeviceKind
) -> Iterator[Invocation]:
    """Yield the invocations of a pass beside timing, case by case or in turns."""
    fit = [case for case in cases if not _lacking(own, case, kind)]
    numbers = {case.case_key: own.numbers(plan, case, program(case.tool)) for case in fit}
    most = max(map(len, numbers.values()), default=0)
    width = most if own.turn is None else own.turn(plan)
    for place in range(0, most, width or 1):
        turn = [
            Invocation(case=case, run_pass=own.name, number=number)
            for case in fit
            for number in numbers[case.case_key][place : place + width]
        ]
        yield from reversed(turn) if place // width % 2 else turn


def order_invocations(
    plan: Plan, facts: DeviceFacts, cases: Sequence[Case]
) -> tuple[Invocation, ...]:
    """Return a device's invocations: timing round by round, then each further pass, case by case.

    What goes on for a time comes last, because it heats; its one invocation stands for all that fit
    into that time.
    """
    others = [pass_of(name) for name in plan.passes if name is not FIGURE_PASS]
    others.sort(key=lambda own: own.is_open_ended)
    further = [item for own in others for item in _further(plan, own, cases, facts.kind)]
    rounds = range(plan.invocations.first) if FIGURE_PASS in plan.passes else range(0)
    if plan.order is Order.SEQUENTIAL:
        timing = [
            Invocation(case=case, run_pass=FIGURE_PASS, number=number)
            for case in cases
            for number in rounds
        ]
        return (*timing, *further)
    # The order is for spreading drift, not for secrecy.
    shuffler = random.Random(f"{plan.seed}:{facts.serial}")  # noqa: S311
    timing = []
    for number in rounds:
        shuffled = list(cases)
        shuffler.shuffle(shuffled)
        shuffled = first_of_each(cases, shuffled)
        timing += [Invocation(case=case, run_pass=FIGURE_PASS, number=number) for case in shuffled]
    return (*timing, *further)


@frozen
class HostFiles:
    """What is placed on a phone for a flag that names a file of this computer."""

    #: The file's own name there.
    name: str
    #: The file and what it needs beside it: (name, sha256).
    files: tuple[tuple[str, str], ...]
    #: sha256 -> where it lies on this computer.
    paths: Mapping[str, Path] = field(default_factory=dict)


@frozen
class Stock:
    """What there is to measure with."""

    #: Of each device's programs the build, or why there is none.
    builds: Mapping[tuple[Serial, ToolName], Build | Skip]
    profiles: Mapping[str, DeviceProfile] = field(default_factory=dict)
    #: What is placed for each flag value that names a file of this computer (``@path``).
    host_files: Mapping[str, HostFiles] = field(default_factory=dict)
    #: A build's sha256 -> the one with TensorFlow's operators, which takes its place for a model
    #: with such.
    twins: Mapping[str, Build] = field(default_factory=dict)


@frozen
class Expansion:
    """What a plan means on the devices that are there."""

    #: Each case once, device by device, in the plan's order: the queues' order is shuffled.
    cases: tuple[Case, ...]
    #: For every device in the order in which it is to run them.
    invocations: Mapping[Serial, tuple[Invocation, ...]]
    skipped: tuple[SkippedCase, ...]

    def estimate_s(self, plan: Plan) -> tuple[float, float]:
        """Seconds that the busiest device needs by the plan's minimum times: when nothing is added,
        and when all is.
        """
        bounds = [bounds_s(plan, queue) for queue in self.invocations.values()]
        return max((low for low, _ in bounds), default=0.0), max(
            (high for _, high in bounds), default=0.0
        )


def reference_case(
    plan: Plan,
    facts: DeviceFacts,
    model: Model,
    builds: Mapping[tuple[Serial, ToolName], Build | Skip],
) -> Case | None:
    """Return the reference workload of a device: fixed whatever the plan says, so that nights can
    be set side by side.

    It is measured by the first of the plan's programs that the device has and that runs one case in
    a process.
    """
    for tool in tools_for(plan, facts.kind):
        build = builds.get((facts.serial, tool))
        why = skip_reason(facts, None, tool, USUAL_DELEGATE, build)
        if not tool.is_session and why is None and isinstance(build, Build):
            return Case(
                serial=facts.serial,
                model_sha256=model.sha256,
                model_name=model.name,
                delegate=USUAL_DELEGATE,
                threads=1,
                tool=tool,
                build_sha256=build.sha256,
                num_runs=10,
                min_secs=1.0,
                max_secs=30.0,
                warmup_runs=1,
                warmup_min_secs=0.2,
                affinity="big",
                files=_placed(build, facts, USUAL_DELEGATE),
            )
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
            for item in _of_model(plan, facts, model, stock):
                if isinstance(item, Case):
                    unique.setdefault(item.case_key, item)
                else:
                    skipped.append(item)
        queues[facts.serial] = order_invocations(plan, facts, list(unique.values()))
        keys = {item.case.case_key for item in queues[facts.serial]}
        planned += [case for key, case in unique.items() if key in keys]
        skipped += _without_pass(plan, unique.values(), facts.kind)
    return Expansion(
        cases=tuple(planned), invocations=queues, skipped=tuple(dict.fromkeys(skipped))
    )


def _of_model(
    plan: Plan, facts: DeviceFacts, model: Model, stock: Stock
) -> Iterator[Case | SkippedCase]:
    """Yield the cases of one model on one device, and what is skipped of them."""
    matrix, kind = plan.matrix, facts.kind
    profile = stock.profiles.get(facts.profile)
    settings = tuple(itertools.product(matrix.flags, matrix.modes or (None,)))
    for tool in tools_for(plan, kind):
        misfit = model_skip(tool, model)
        if misfit is not None and not matrix.tools:
            continue
        build = stock.builds.get((facts.serial, tool))
        if model.needs_flex and isinstance(build, Build):
            build = stock.twins.get(build.sha256, build)
        for delegate in delegates_for(plan, kind, tool):
            unfit = (
                misfit
                or skip_reason(facts, profile, tool, delegate, build)
                or cores_skip(kind, tool, plan.settings.affinity)
            )
            for threads in threads_for(plan, facts):
                skip = unfit or threads_skip(facts, threads)
                for flags, mode in settings:
                    why = skip or flags_skip(tool, delegate, flags) or mode_skip(kind, tool, mode)
                    if why is None:
                        assert isinstance(build, Build)
                        plain = replace(_case(plan, facts, model, build, delegate), threads=threads)
                        for own in program(tool).options(DELEGATES[delegate], flags):
                            case = _with_flags(plain, flags + own, stock.host_files)
                            # The usual mode isn't named, so that the case keeps the key that it
                            # has without.
                            yield case if mode is case.process_mode else replace(case, mode=mode)
                    elif not is_not_there(plan, kind, tool, why.reason_code):
                        yield SkippedCase(
                            serial=facts.serial,
                            model_name=model.name,
                            delegate=delegate,
                            threads=threads,
                            tool=tool,
                            reason_code=why.reason_code,
                            reason=why.reason,
                        )


def _without_pass(plan: Plan, cases: Iterable[Case], kind: DeviceKind) -> Iterator[SkippedCase]:
    """Yield the cases that a pass of the plan isn't for, once for all passes with one reason."""
    for case in cases:
        lacking = {name: _lacking(pass_of(name), case, kind) for name in plan.passes}
        for why, names in grouped(plan.passes, lacking.__getitem__).items():
            if why:
                reason = f"pass {', '.join(names)}: '{case.tool}' {why}"
                yield SkippedCase.of(case, NOT_IN_TOOL, reason)


def without(expansion: Expansion, skips: Mapping[CaseKey, Skip]) -> Expansion:
    """Return an expansion without some cases, which are listed as skipped with their reasons."""
    if not skips:
        return expansion
    dropped = [(case, skips[case.case_key]) for case in expansion.cases if case.case_key in skips]
    queues = {
        serial: tuple(item for item in queue if item.case.case_key not in skips)
        for serial, queue in expansion.invocations.items()
    }
    further = (SkippedCase.of(case, skip.reason_code, skip.reason) for case, skip in dropped)
    return replace(
        expansion,
        cases=tuple(case for case in expansion.cases if case.case_key not in skips),
        invocations=queues,
        skipped=tuple(dict.fromkeys((*expansion.skipped, *further))),
    )


def _case(
    plan: Plan, facts: DeviceFacts, model: Model, build: Build, delegate: DelegateName
) -> Case:
    settings = plan.settings
    return Case(
        serial=facts.serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=delegate,
        threads=-1,
        tool=build.tool,
        build_sha256=build.sha256,
        num_runs=settings.num_runs,
        min_secs=settings.min_secs,
        max_secs=settings.max_secs,
        warmup_runs=settings.warmup_runs,
        warmup_min_secs=settings.warmup_min_secs,
        # Nothing on an iPhone chooses the cores.
        affinity="all" if facts.kind is DeviceKind.IOS else settings.affinity,
        files=_placed(build, facts, delegate),
    )


def _placed(
    build: Build, facts: DeviceFacts, delegate: DelegateName
) -> tuple[tuple[str, str], ...]:
    """Return the files that a program needs beside it: name and sha256."""
    companions = needed_companions(build, facts, delegate)
    return tuple(sorted((item.name, item.sha256) for item in companions))


def _with_flags(
    case: Case, flags: tuple[tuple[str, str], ...], host_files: Mapping[str, HostFiles]
) -> Case:
    """Return a case with flags, and with the files that they name."""
    placed, worded = dict(case.files), []
    for name, value in flags:
        known = host_files.get(value)
        placed |= dict(known.files) if known else {}
        worded.append((name, f"@{known.name}" if known else value))
    return replace(case, flags=tuple(sorted(worded)), files=tuple(sorted(placed.items())))


def with_output_checks(expansion: Expansion, is_wanted: Callable[[Case], bool]) -> Expansion:
    """Return an expansion in which each wanted configuration's outputs are compared once.

    With one number of threads, and after the first round of figures: who waits sees these first.
    """
    return replace(
        expansion,
        invocations={
            serial: _with_checks(queue, is_wanted)
            for serial, queue in expansion.invocations.items()
        },
    )


def _with_checks(
    queue: Sequence[Invocation], is_wanted: Callable[[Case], bool]
) -> tuple[Invocation, ...]:
    first = [item for item in queue if item.run_pass is FIGURE_PASS and item.number == 0]
    checks = output_checks((item.case for item in first), is_wanted)
    begun = max((place for place, item in enumerate(queue) if item in first), default=-1) + 1
    return (*queue[:begun], *checks, *queue[begun:])


def output_checks(cases: Iterable[Case], is_wanted: Callable[[Case], bool]) -> list[Invocation]:
    """Return the processes that compare the outputs of cases, one for each wanted configuration."""
    # In the plan's order, the fewest threads first: a further number of them may turn out unused.
    found: dict[tuple[str, str], Case] = {}
    for case in sorted(cases, key=lambda case: case.threads):
        found.setdefault((case.serial, case.outputs_key), case)
    return [
        Invocation(case=case, run_pass=OUTPUT_CHECK_PASS, number=0)
        for case in found.values()
        if can_be_checked(case) and is_wanted(case)
    ]
