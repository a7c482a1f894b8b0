"""Which program measures on which kind of device, with which delegates and threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.delegates import DELEGATES, delegates_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import DelegateChoice, Plan
from orchestrator.records.workload import DelegateName, ToolName

#: Which delegates each program has, by the kind of device it runs on.
PROGRAM_DELEGATES: Final[Mapping[tuple[ToolName, DeviceKind], frozenset[DelegateName]]] = {
    (tool, kind): delegates_of(family, kind)
    for tool, family, kind in (
        (ToolName.NATIVE, FlagFamily.BENCHMARK_MODEL, DeviceKind.ANDROID),
        (ToolName.APK, FlagFamily.BENCHMARK_MODEL, DeviceKind.ANDROID),
        (ToolName.PERF_OPTIONS, FlagFamily.PERFORMANCE_OPTIONS, DeviceKind.ANDROID),
        (ToolName.LITERT_NATIVE, FlagFamily.LITERT, DeviceKind.ANDROID),
        (ToolName.NATIVE, FlagFamily.BENCHMARK_MODEL, DeviceKind.HOST),
        (ToolName.LITERT, FlagFamily.LITERT_BENCHMARK, DeviceKind.HOST),
        (ToolName.IOS_APP, FlagFamily.IOS_APP, DeviceKind.IOS),
    )
}

#: What a device is measured with when the plan names no program.
USUAL_TOOL: Final[Mapping[DeviceKind, ToolName]] = {
    DeviceKind.ANDROID: ToolName.NATIVE,
    DeviceKind.HOST: ToolName.LITERT,
    DeviceKind.IOS: ToolName.IOS_APP,
}

#: As many as the public reference figures were measured with.
USUAL_THREADS: Final = 4

#: What benchmark_model_performance_options tries on the CPU; every other option of it has one thread.
OPTION_THREADS: Final = (1, 2, 4)


def tools_for(plan: Plan, kind: DeviceKind) -> tuple[ToolName, ...]:
    """Return the programs that a plan means for a kind of device.

    Of several programs, those that don't exist for this kind are meant for other devices; where none of them does, all
    are returned, to be skipped with a reason.
    """
    if not plan.matrix.tools:
        usual = USUAL_TOOL.get(kind, ToolName.NATIVE)
        return (usual, ToolName.LITERT_NATIVE) if tries_npu(plan, kind) else (usual,)
    fitting = tuple(tool for tool in plan.matrix.tools if (tool, kind) in PROGRAM_DELEGATES)
    return fitting or plan.matrix.tools


def tries_npu(plan: Plan, kind: DeviceKind) -> bool:
    """Whether a phone's NPU is tried beside its usual program: by LiteRT's own, where that is at hand."""
    return plan.matrix.choice is DelegateChoice.AUTO and not plan.matrix.tools and kind is DeviceKind.ANDROID


def delegates_for(plan: Plan, kind: DeviceKind, tool: ToolName) -> tuple[DelegateName, ...]:
    """Return the delegates that a plan means for a program on a kind of device."""
    if plan.matrix.choice is None:
        return plan.matrix.delegates
    offered = PROGRAM_DELEGATES.get((tool, kind), frozenset())
    if plan.matrix.choice is DelegateChoice.ALL:
        return tuple(name for name, own in DELEGATES.items() if name in offered and not own.is_named_by_flag)
    usual = USUAL_TOOL.get(kind, ToolName.NATIVE)
    # The program beside the usual one is there for what that one lacks.
    others = PROGRAM_DELEGATES[usual, kind] if tries_npu(plan, kind) and tool is not usual else frozenset()
    return tuple(name for name, own in DELEGATES.items() if kind in own.tried_on and name in offered - others)


def is_not_there(plan: Plan, kind: DeviceKind, tool: ToolName, reason_code: str) -> bool:
    """Whether a skip only says that a device lacks what ``auto`` would have tried there."""
    if plan.matrix.choice is not DelegateChoice.AUTO:
        return False
    is_beside = tool is not USUAL_TOOL.get(kind) and tries_npu(plan, kind)
    return is_beside or reason_code == "no-gpu" or reason_code.endswith("-libraries-missing")


def threads_for(plan: Plan, facts: DeviceFacts) -> tuple[int, ...]:
    """Return the thread counts that a plan means for a device."""
    usual = min(USUAL_THREADS, core_count(facts) or USUAL_THREADS)
    several = (1, usual) if plan.matrix.choice is DelegateChoice.AUTO and usual > 1 else (usual,)
    return plan.matrix.threads or several


def threads_of(plan: Plan, facts: DeviceFacts, tool: ToolName, delegate: DelegateName) -> tuple[int, ...]:
    """Return the thread counts of a program that chooses them itself, else the plan's."""
    if tool is not ToolName.PERF_OPTIONS:
        return threads_for(plan, facts)
    if not delegate.is_cpu:
        return (1,)
    cores = core_count(facts)
    return plan.matrix.threads or tuple(count for count in OPTION_THREADS if not cores or count <= cores)


def option_flags(tool: ToolName, delegate: DelegateName) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return a set of flags for each way in which a program tries a delegate by itself."""
    if tool is ToolName.PERF_OPTIONS and DELEGATES[delegate].is_on_gpu:
        return tuple((("gpu_precision_loss_allowed", value),) for value in ("true", "false"))
    return ((),)


def core_count(facts: DeviceFacts) -> int:
    """Return how many cores a device has, 0 when that isn't known."""
    return sum(len(cluster.cpus) for cluster in facts.clusters)
