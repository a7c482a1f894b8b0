"""Which program measures on which kind of device, with which delegates and threads."""

from __future__ import annotations

from typing import Final

from orchestrator.delegates import DELEGATES
from orchestrator.programs import program, programs, usual_tool
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import DelegateChoice, Plan
from orchestrator.records.tokens import is_language_model
from orchestrator.records.workload import DelegateName, ToolName

#: As many as the public reference figures were measured with.
USUAL_THREADS: Final = 4


def tools_for(plan: Plan, kind: DeviceKind) -> tuple[ToolName, ...]:
    """Return the programs that a plan means for a kind of device.

    Of several programs, those that don't exist for this kind are meant for other devices; where none of them does, all
    are returned, to be skipped with a reason.
    """
    if not plan.matrix.tools:
        beside = tuple(own.name for own in programs() if own.beside_on is kind) if tries_npu(plan, kind) else ()
        are_bundles = {is_language_model(model.path) for model in plan.models}
        of_bundles = tuple(own.name for own in programs() if own.is_for_bundles) if True in are_bundles else ()
        return (*((usual_tool(kind), *beside) if are_bundles != {True} else ()), *of_bundles)
    fitting = tuple(tool for tool in plan.matrix.tools if kind in program(tool).kinds)
    return fitting or plan.matrix.tools


def tries_npu(plan: Plan, kind: DeviceKind) -> bool:
    """Whether a phone's NPU is tried beside its usual program: by LiteRT's own, where that is at hand."""
    return plan.matrix.choice is DelegateChoice.AUTO and not plan.matrix.tools and kind is DeviceKind.ANDROID


def delegates_for(plan: Plan, kind: DeviceKind, tool: ToolName) -> tuple[DelegateName, ...]:
    """Return the delegates that a plan means for a program on a kind of device."""
    if plan.matrix.choice is None:
        return plan.matrix.delegates
    offered = program(tool).delegates(kind)
    if plan.matrix.choice is DelegateChoice.ALL:
        return tuple(name for name, own in DELEGATES.items() if name in offered and not own.is_named_by_flag)
    usual = usual_tool(kind)
    # The program beside the usual one is there for what that one lacks.
    others = program(usual).delegates(kind) if _is_beside(plan, kind, tool) else frozenset()
    return tuple(name for name, own in DELEGATES.items() if kind in own.tried_on and name in offered - others)


def is_not_there(plan: Plan, kind: DeviceKind, tool: ToolName, reason_code: str) -> bool:
    """Whether a skip only says that a device lacks what ``auto`` would have tried there."""
    if plan.matrix.choice is not DelegateChoice.AUTO:
        return False
    return _is_beside(plan, kind, tool) or reason_code == "no-gpu" or reason_code.endswith("-libraries-missing")


def _is_beside(plan: Plan, kind: DeviceKind, tool: ToolName) -> bool:
    return tries_npu(plan, kind) and program(tool).beside_on is kind


def threads_for(plan: Plan, facts: DeviceFacts) -> tuple[int, ...]:
    """Return the thread counts that a plan means for a device."""
    usual = min(USUAL_THREADS, core_count(facts) or USUAL_THREADS)
    several = (1, usual) if plan.matrix.choice is DelegateChoice.AUTO and usual > 1 else (usual,)
    return plan.matrix.threads or several


def threads_of(plan: Plan, facts: DeviceFacts, tool: ToolName, delegate: DelegateName) -> tuple[int, ...]:
    """Return the thread counts of a program that chooses them itself, else the plan's."""
    own = program(tool).threads
    if not own:
        return threads_for(plan, facts)
    if not delegate.is_cpu:
        return (1,)
    cores = core_count(facts)
    return plan.matrix.threads or tuple(count for count in own if not cores or count <= cores)


def core_count(facts: DeviceFacts) -> int:
    """Return how many cores a device has, 0 when that isn't known."""
    return sum(len(cluster.cpus) for cluster in facts.clusters)
