"""From a plan and the devices that are there to cases, skips with reasons, and the order of invocations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.delegates import DELEGATES, needed_companions
from orchestrator.planning.assignment import Assignment, Present, assign, equal_phones
from orchestrator.planning.order import DECLARED_PASSES, bounds_s, order_invocations
from orchestrator.planning.skips import (
    NoBuild,
    delegates_for,
    flags_skip,
    is_not_there,
    mode_skip,
    model_skip,
    skip_reason,
    threads_of,
    tools_for,
)
from orchestrator.programs import program
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.plan import Plan, Shard, Sharding
from orchestrator.records.workload import USUAL_DELEGATE, Build, Case, DelegateName, Model, Skip, SkippedCase, ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFiles:
    """What is placed on a phone for a flag that names a file of this computer."""

    #: The file's own name there.
    name: str
    #: The file and what it needs beside it: (name, sha256).
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What a plan means on the devices that are there."""

    #: For every device in the order in which it is to run them.
    invocations: Mapping[Serial, tuple[Invocation, ...]]
    skipped: tuple[SkippedCase, ...]
    #: Phones that share invocations.
    shards: tuple[Shard, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """Each case once, device by device, sorted as people look for them: the queues' order is shuffled."""
        seen = {item.case.case_key: item.case for queue in self.invocations.values() for item in queue}
        delegates = list(DelegateName)
        return tuple(
            sorted(
                seen.values(),
                key=lambda case: (
                    case.serial,
                    case.model_name,
                    case.tool,
                    delegates.index(case.delegate),
                    case.threads,
                ),
            )
        )

    def estimate_s(self, plan: Plan) -> tuple[float, float]:
        """Seconds that the busiest device needs by the plan's minimum times: when nothing is added, and when all is."""
        bounds = [bounds_s(plan, queue) for queue in self.invocations.values()]
        return max((low for low, _ in bounds), default=0.0), max((high for _, high in bounds), default=0.0)


def reference_case(
    plan: Plan, facts: DeviceFacts, model: Model, builds: Mapping[tuple[Serial, ToolName], Build | NoBuild]
) -> Case | None:
    """Return the reference workload of a device: fixed whatever the plan says, so that nights can be set side by side.

    It is measured by the first of the plan's programs that the device has and that runs one case in a process.
    """
    for tool in tools_for(plan, facts.kind):
        build = builds.get((facts.serial, tool))
        why = skip_reason(facts, None, tool, USUAL_DELEGATE, 1, build)
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
                files=tuple(sorted((c.name, c.sha256) for c in needed_companions(build, facts, USUAL_DELEGATE))),
            )
    return None


def expand(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    models: Sequence[Model],
    builds: Mapping[tuple[Serial, ToolName], Build | NoBuild],
    profiles: Mapping[str, DeviceProfile] | None = None,
    host_files: Mapping[str, HostFiles] | None = None,
) -> Expansion:
    """Return cases, skips and the order of invocations; the same inputs give the same order (plan.seed).

    ``host_files``: for each flag value that names a file of this computer (``@path``), what is to be placed for it.
    """
    queues: dict[Serial, tuple[Invocation, ...]] = {}
    skipped: list[SkippedCase] = []
    for facts in devices:
        profile = (profiles or {}).get(facts.profile)
        cases: list[Case] = []
        for model in models:
            for tool in tools_for(plan, facts.kind):
                misfit = model_skip(tool, model)
                if misfit is not None and not plan.matrix.tools:
                    continue
                for delegate in delegates_for(plan, facts.kind, tool):
                    for threads in threads_of(plan, facts, tool, delegate):
                        build = builds.get((facts.serial, tool))
                        skip = misfit or skip_reason(facts, profile, tool, delegate, threads, build)
                        for flags, mode in itertools.product(plan.matrix.flags, plan.matrix.modes or (None,)):
                            why = skip or flags_skip(tool, delegate, flags) or mode_skip(facts.kind, tool, mode)
                            if why is None:
                                assert isinstance(build, Build)
                                for own in program(tool).options(DELEGATES[delegate], flags):
                                    case = _case(
                                        plan, facts, model, build, delegate, threads, flags + own, host_files or {}
                                    )
                                    # The usual mode isn't named, so that the case keeps the key that it has without.
                                    cases.append(case if mode is case.process_mode else replace(case, mode=mode))
                                continue
                            if is_not_there(plan, facts.kind, tool, why.reason_code):
                                continue
                            skipped.append(
                                SkippedCase(
                                    serial=facts.serial,
                                    model_name=model.name,
                                    delegate=delegate,
                                    threads=threads,
                                    tool=tool,
                                    reason_code=why.reason_code,
                                    reason=why.reason,
                                )
                            )
        unique = {case.case_key: case for case in cases}
        queues[facts.serial] = order_invocations(plan, facts.serial, list(unique.values()))
        skipped += _without_pass(plan, unique, queues[facts.serial])
    shards = equal_phones(devices) if plan.sharding is Sharding.EQUAL_PHONES else ()
    present = [Present(facts=facts, invocations=queues[facts.serial]) for facts in devices]
    work = assign(Assignment(shards=shards), present).work
    invocations = {facts.serial: work.get(facts.serial, ()) for facts in devices}
    return Expansion(invocations=invocations, skipped=tuple(dict.fromkeys(skipped)), shards=shards)


def _without_pass(plan: Plan, cases: Mapping[CaseKey, Case], queue: Sequence[Invocation]) -> list[SkippedCase]:
    """Return the cases that a pass of the plan isn't for, once for all such passes."""
    planned = {(item.case.case_key, item.run_pass) for item in queue}
    found = []
    for key, case in cases.items():
        missing = [run_pass for run_pass in plan.passes if (key, run_pass) not in planned]
        if missing and (case.tool.is_declared or len(missing) == len(plan.passes)):
            what = f"pass {', '.join(missing)}: "
            own = " and ".join(DECLARED_PASSES)
            why = (
                f"'{case.tool}' is declared, which has {own} only"
                if case.tool.is_declared
                else f"'{case.tool}' has no process of its own for each case, whose start could be cold"
            )
            found.append(SkippedCase.of(case, "pass-not-in-tool", what + why))
    return found


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
    return replace(expansion, invocations=queues, skipped=tuple(dict.fromkeys((*expansion.skipped, *further))))


def _case(
    plan: Plan,
    facts: DeviceFacts,
    model: Model,
    build: Build,
    delegate: DelegateName,
    threads: int,
    flags: tuple[tuple[str, str], ...],
    host_files: Mapping[str, HostFiles],
) -> Case:
    settings = plan.settings
    placed = {companion.name: companion.sha256 for companion in needed_companions(build, facts, delegate)}
    worded = []
    for name, value in flags:
        known = host_files.get(value)
        placed |= dict(known.files) if known else {}
        worded.append((name, f"@{known.name}" if known else value))
    return Case(
        serial=facts.serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=delegate,
        threads=threads,
        tool=build.tool,
        build_sha256=build.sha256,
        flags=tuple(sorted(worded)),
        num_runs=settings.num_runs,
        min_secs=settings.min_secs,
        max_secs=settings.max_secs,
        warmup_runs=settings.warmup_runs,
        warmup_min_secs=settings.warmup_min_secs,
        # Nothing on an iPhone chooses the cores.
        affinity="all" if facts.kind is DeviceKind.IOS else settings.affinity,
        files=tuple(sorted(placed.items())),
    )
