"""From a plan and the devices that are there to cases, skips with reasons, and the order of invocations. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.libraries import HEXAGON_INTERFACE, dispatch_library, needed_companions, npu_vendor
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.plan import Order, Plan
from orchestrator.records.start import cold_numbers
from orchestrator.records.workload import (
    IMPORTED_TOOLS,
    Build,
    Case,
    DelegateName,
    Model,
    Pass,
    ProcessMode,
    SkippedCase,
    ToolName,
)

#: NNAPI is deprecated from Android 15 (API level 35) on and exists from Android 8.1 (27) on.
_NNAPI_FIRST_SDK: Final = 27
_NNAPI_DEPRECATED_SDK: Final = 35

#: Which delegates each program has, by the kind of device it runs on.
_DELEGATES: Final[Mapping[tuple[ToolName, DeviceKind], frozenset[DelegateName]]] = {
    (tool, DeviceKind.ANDROID): frozenset(
        {
            DelegateName.CPU,
            DelegateName.XNNPACK,
            DelegateName.GPU,
            DelegateName.NNAPI,
            DelegateName.HEXAGON,
            DelegateName.EXTERNAL,
        }
    )
    for tool in (ToolName.NATIVE, ToolName.APK)
} | {
    (ToolName.PERF_OPTIONS, DeviceKind.ANDROID): frozenset(
        {DelegateName.CPU, DelegateName.XNNPACK, DelegateName.GPU, DelegateName.NNAPI, DelegateName.HEXAGON}
    ),
    (ToolName.LITERT_NATIVE, DeviceKind.ANDROID): frozenset({DelegateName.XNNPACK, DelegateName.GPU, DelegateName.NPU}),
    (ToolName.NATIVE, DeviceKind.HOST): frozenset(
        {DelegateName.CPU, DelegateName.XNNPACK, DelegateName.GPU, DelegateName.EXTERNAL}
    ),
    (ToolName.LITERT, DeviceKind.HOST): frozenset({DelegateName.XNNPACK, DelegateName.GPU, DelegateName.NPU}),
    (ToolName.IOS_APP, DeviceKind.IOS): frozenset(
        {DelegateName.CPU, DelegateName.XNNPACK, DelegateName.GPU, DelegateName.COREML}
    ),
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
_OPTION_THREADS: Final = (1, 2, 4)
#: Flags that it sets itself before each option, whatever the command line says.
_OPTION_FLAGS: Final = frozenset(
    {
        "use_xnnpack", "xnnpack_force_fp16", "gpu_precision_loss_allowed", "nnapi_accelerator_name",
        "disable_nnapi_cpu", "nnapi_allow_fp16", "max_delegated_partitions",
    }
)  # fmt: skip
#: A flag without which the external delegate isn't named.
_EXTERNAL_FLAGS: Final = frozenset({"external_delegate_path", "stable_delegate_settings_file"})

#: Rounds of cold starts where no fixed number is given.
_COLD_ROUNDS: Final = 3
#: What one invocation costs beside its inferences: start, load, probes before and after.
_OVERHEAD_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBuild:
    """Why a device has no build of a tool."""

    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A reason not to run something, by a documented code."""

    reason_code: str
    reason: str


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
        bounds = [_bounds_s(plan, queue) for queue in self.invocations.values()]
        return max((low for low, _ in bounds), default=0.0), max((high for _, high in bounds), default=0.0)


def _bounds_s(plan: Plan, queue: Sequence[Invocation]) -> tuple[float, float]:
    least = sum(least_duration_s(item, sustained_s=plan.sustained_s) for item in queue)
    if plan.stopping is None:
        return least, least
    beyond = plan.stopping.most - plan.invocations
    added = sum(beyond * least_duration_s(item) for item in queue if item.run_pass is Pass.TIMING and item.number == 0)
    return least, least + (added if plan.budget_s is None else min(added, plan.budget_s))


def least_duration_s(invocation: Invocation, *, sustained_s: float = 0.0) -> float:
    """Seconds that an invocation takes at the least; that of the pass ``sustained`` stands for all of them."""
    case = invocation.case
    if invocation.run_pass is Pass.SUSTAINED:
        return sustained_s
    if invocation.run_pass is Pass.COLD:
        return _OVERHEAD_S
    return _OVERHEAD_S + case.warmup_min_secs + case.min_secs


def sentinel_case(
    plan: Plan, facts: DeviceFacts, model: Model, builds: Mapping[tuple[Serial, ToolName], Build | NoBuild]
) -> Case | None:
    """Return the reference workload of a device: fixed whatever the plan says, so that nights can be set side by side.

    It is measured by the first of the plan's programs that the device has and that runs one case in a process.
    """
    for tool in tools_for(plan, facts.kind):
        build = builds.get((facts.serial, tool))
        why = skip_reason(facts, None, tool, DelegateName.XNNPACK, 1, build)
        if tool is not ToolName.PERF_OPTIONS and why is None and isinstance(build, Build):
            return Case(
                serial=facts.serial,
                model_sha256=model.sha256,
                model_name=model.name,
                delegate=DelegateName.XNNPACK,
                threads=1,
                tool=tool,
                build_sha256=build.sha256,
                num_runs=10,
                min_secs=1.0,
                max_secs=30.0,
                warmup_runs=1,
                warmup_min_secs=0.2,
                affinity="big",
                files=tuple(sorted((c.name, c.sha256) for c in needed_companions(build, facts, DelegateName.XNNPACK))),
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
                for delegate in plan.matrix.delegates:
                    for threads in _threads_of(plan, facts, tool, delegate):
                        build = builds.get((facts.serial, tool))
                        skip = skip_reason(facts, profile, tool, delegate, threads, build)
                        for flags, mode in itertools.product(plan.matrix.flags, plan.matrix.modes or (None,)):
                            why = skip or _flags_skip(tool, delegate, flags) or mode_skip(facts.kind, tool, mode)
                            if why is None:
                                assert isinstance(build, Build)
                                for own in _option_flags(tool, delegate):
                                    case = _case(
                                        plan, facts, model, build, delegate, threads, flags + own, host_files or {}
                                    )
                                    # The usual mode isn't named, so that the case keeps the key that it has without.
                                    cases.append(case if mode is case.process_mode else replace(case, mode=mode))
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
        skipped += _without_pass(unique, queues[facts.serial])
    return Expansion(invocations=queues, skipped=tuple(dict.fromkeys(skipped)))


def _without_pass(cases: Mapping[CaseKey, Case], queue: Sequence[Invocation]) -> list[SkippedCase]:
    """Return the cases that no pass of the plan is for."""
    planned = {item.case.case_key for item in queue}
    return [
        SkippedCase(
            serial=case.serial,
            model_name=case.model_name,
            delegate=case.delegate,
            threads=case.threads,
            tool=case.tool,
            reason_code="pass-not-in-tool",
            reason=f"'{case.tool}' has no process of its own for each case, whose start could be cold",
        )
        for key, case in cases.items()
        if key not in planned
    ]


def without(expansion: Expansion, skips: Mapping[CaseKey, Skip]) -> Expansion:
    """Return an expansion without some cases, which are listed as skipped with their reasons."""
    if not skips:
        return expansion
    dropped = [(case, skips[case.case_key]) for case in expansion.cases if case.case_key in skips]
    queues = {
        serial: tuple(item for item in queue if item.case.case_key not in skips)
        for serial, queue in expansion.invocations.items()
    }
    further = (
        SkippedCase(
            serial=case.serial,
            model_name=case.model_name,
            delegate=case.delegate,
            threads=case.threads,
            tool=case.tool,
            reason_code=skip.reason_code,
            reason=skip.reason,
        )
        for case, skip in dropped
    )
    return Expansion(invocations=queues, skipped=tuple(dict.fromkeys((*expansion.skipped, *further))))


def tools_for(plan: Plan, kind: DeviceKind) -> tuple[ToolName, ...]:
    """Return the programs that a plan means for a kind of device.

    Of several programs, those that don't exist for this kind are meant for other devices; where none of them does, all
    are returned, to be skipped with a reason.
    """
    if not plan.matrix.tools:
        return (USUAL_TOOL.get(kind, ToolName.NATIVE),)
    fitting = tuple(tool for tool in plan.matrix.tools if (tool, kind) in _DELEGATES)
    return fitting or plan.matrix.tools


def threads_for(plan: Plan, facts: DeviceFacts) -> tuple[int, ...]:
    """Return the thread counts that a plan means for a device."""
    return plan.matrix.threads or (min(USUAL_THREADS, core_count(facts) or USUAL_THREADS),)


def _threads_of(plan: Plan, facts: DeviceFacts, tool: ToolName, delegate: DelegateName) -> tuple[int, ...]:
    """Return the thread counts of a program that chooses them itself, else the plan's."""
    if tool is not ToolName.PERF_OPTIONS:
        return threads_for(plan, facts)
    if delegate not in {DelegateName.CPU, DelegateName.XNNPACK}:
        return (1,)
    cores = core_count(facts)
    return plan.matrix.threads or tuple(count for count in _OPTION_THREADS if not cores or count <= cores)


def _option_flags(tool: ToolName, delegate: DelegateName) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return a set of flags for each way in which a program tries a delegate by itself."""
    if tool is ToolName.PERF_OPTIONS and delegate is DelegateName.GPU:
        return tuple((("gpu_precision_loss_allowed", value),) for value in ("true", "false"))
    return ((),)


def core_count(facts: DeviceFacts) -> int:
    """Return how many cores a device has, 0 when that isn't known."""
    return sum(len(cluster.cpus) for cluster in facts.clusters)


def skip_reason(
    facts: DeviceFacts,
    profile: DeviceProfile | None,
    tool: ToolName,
    delegate: DelegateName,
    threads: int,
    build: Build | NoBuild | None,
) -> Skip | None:
    """Return why a combination can't or shouldn't be run on a device, None when it can."""
    offered = _DELEGATES.get((tool, facts.kind))
    if offered is None:
        if tool in IMPORTED_TOOLS and tool is not ToolName.IOS_APP:
            reason = f"benchfarm doesn't start '{tool}'; 'benchfarm import' reads its results"
            return Skip(reason_code="tool-not-on-device", reason=reason)
        where = {DeviceKind.HOST: "this computer", DeviceKind.IOS: "an iPhone"}.get(facts.kind, "a phone")
        return Skip(reason_code="tool-not-on-device", reason=f"the program '{tool}' doesn't run on {where}")
    if delegate not in offered:
        return Skip(reason_code="delegate-not-in-tool", reason=f"'{tool}' has no delegate '{delegate}'")
    if build is None or isinstance(build, NoBuild):
        known = build or NoBuild(reason_code="no-build", reason=f"no build of '{tool}' is known")
        return Skip(reason_code=known.reason_code, reason=known.reason)
    if build.is_virtual and not facts.is_virtual:
        return Skip(reason_code="virtual-build", reason=f"{build.name} is a stand-in that only a virtual phone can run")
    if facts.kind is DeviceKind.HOST and delegate is DelegateName.GPU and not facts.gpu:
        return Skip(reason_code="no-gpu", reason="no GPU was found on this computer")
    if facts.kind is DeviceKind.ANDROID:
        skip = _android_skip(facts, profile, delegate) or _library_skip(facts, tool, delegate, build)
        if skip is not None:
            return skip
    if facts.kind is DeviceKind.IOS and (skip := _profile_skip(profile, delegate)) is not None:
        return skip
    if tool is ToolName.PERF_OPTIONS and threads not in _OPTION_THREADS:
        return Skip(
            reason_code="option-not-in-program",
            reason=f"'{tool}' tries 1, 2 and 4 threads by itself and no other number ({threads})",
        )
    cores = core_count(facts)
    if cores and threads > cores:
        return Skip(
            reason_code="more-threads-than-cores",
            reason=f"{threads} threads on {cores} cores measure the scheduler, not the model",
        )
    return None


def _library_skip(facts: DeviceFacts, tool: ToolName, delegate: DelegateName, build: Build) -> Skip | None:
    """Return why a delegate's libraries make a run pointless: without them it falls back or fails on every phone."""
    names = {companion.name for companion in build.companions}
    if delegate is DelegateName.HEXAGON and tool is not ToolName.APK:
        skels = [name for name in names if name.startswith("libhexagon_nn_skel")]
        if HEXAGON_INTERFACE not in names or not skels:
            return Skip(
                reason_code="hexagon-libraries-missing",
                reason=f"{build.name} has no {HEXAGON_INTERFACE} with its libhexagon_nn_skel libraries beside it",
            )
    if tool is ToolName.LITERT_NATIVE and delegate is DelegateName.NPU and not dispatch_library(build, facts):
        whose = npu_vendor(facts) or f"the unknown chip {facts.soc or facts.platform}"
        return Skip(
            reason_code="npu-libraries-missing", reason=f"{build.name} has no dispatch library for {whose} beside it"
        )
    return None


def _flags_skip(tool: ToolName, delegate: DelegateName, flags: tuple[tuple[str, str], ...]) -> Skip | None:
    given = {name for name, _ in flags}
    if delegate is DelegateName.EXTERNAL and not given & _EXTERNAL_FLAGS:
        return Skip(
            reason_code="external-delegate-unnamed",
            reason=f"the delegate 'external' needs one of the flags {', '.join(sorted(_EXTERNAL_FLAGS))}",
        )
    if tool is ToolName.PERF_OPTIONS and given & _OPTION_FLAGS:
        names = ", ".join(sorted(given & _OPTION_FLAGS))
        return Skip(reason_code="flags-not-in-tool", reason=f"'{tool}' sets {names} itself before each option")
    if tool is ToolName.LITERT and flags:
        names = ", ".join(name for name, _ in flags)
        return Skip(reason_code="flags-not-in-tool", reason=f"'{tool}' has no flags of benchmark_model ({names})")
    return None


def mode_skip(kind: DeviceKind, tool: ToolName, mode: ProcessMode | None) -> Skip | None:
    """Return why a program can't be run as what a plan asks for, None when it can."""
    is_app = tool is ToolName.APK
    if mode is None or (is_app == (mode is ProcessMode.FOREGROUND) and kind is DeviceKind.ANDROID):
        return None
    if kind is DeviceKind.ANDROID:
        wanted = "is an app and runs in the foreground" if is_app else "is started from the shell"
        return Skip(reason_code="mode-not-in-tool", reason=f"'{tool}' {wanted}, not as '{mode}'")
    if mode is ProcessMode.SHELL and kind is DeviceKind.HOST:
        return None
    return Skip(reason_code="mode-not-in-tool", reason=f"only Android runs programs as '{mode}'")


def _android_skip(facts: DeviceFacts, profile: DeviceProfile | None, delegate: DelegateName) -> Skip | None:
    if delegate is DelegateName.NNAPI and facts.sdk is not None:
        if facts.sdk >= _NNAPI_DEPRECATED_SDK:
            return Skip(
                reason_code="nnapi-deprecated",
                reason=f"NNAPI is deprecated from Android 15 on (this phone has API level {facts.sdk})",
            )
        if facts.sdk < _NNAPI_FIRST_SDK:
            return Skip(
                reason_code="nnapi-missing",
                reason=f"NNAPI came with Android 8.1 (this phone has API level {facts.sdk})",
            )
    if delegate is DelegateName.HEXAGON and not _is_qualcomm(facts):
        return Skip(
            reason_code="delegate-not-on-soc",
            reason=f"Hexagon is Qualcomm's; this phone has {facts.soc or facts.platform or 'an unknown SoC'}",
        )
    return _profile_skip(profile, delegate)


def _profile_skip(profile: DeviceProfile | None, delegate: DelegateName) -> Skip | None:
    declared = profile is not None and profile.delegates
    if declared and profile is not None and delegate not in profile.delegates and delegate is not DelegateName.EXTERNAL:
        return Skip(
            reason_code="delegate-not-on-profile",
            reason=f"the profile {profile.name} doesn't list the delegate '{delegate}'",
        )
    return None


def _is_qualcomm(facts: DeviceFacts) -> bool:
    maker = facts.properties.get("ro.soc.manufacturer", "") + facts.properties.get("ro.hardware", "")
    names = (facts.soc, facts.platform)
    return (
        "qti" in maker.lower()
        or "qualcomm" in maker.lower()
        or "qcom" in maker.lower()
        or any(name.lower().startswith(("sm", "sdm", "msm", "qcs", "apq", "snapdragon")) for name in names)
        or facts.platform in {"kona", "lahaina", "taro", "kalama", "pineapple", "sun", "lito", "bengal", "holi"}
    )


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


def cold_rounds(plan: Plan) -> int:
    """Return how many rounds of its stages the pass ``cold`` has."""
    return plan.invocations if plan.stopping is None else min(plan.invocations, _COLD_ROUNDS)


def order_invocations(plan: Plan, serial: Serial, cases: Sequence[Case]) -> tuple[Invocation, ...]:
    """Return a device's invocations: timing round by round, then each further pass, case by case.

    A further pass has one invocation of each case; ``cold`` has as many rounds of its stages as timing has invocations.
    ``sustained`` comes last, because it heats; its one invocation stands for all that fit into its time.
    """
    passes = [run_pass for run_pass in plan.passes if run_pass is not Pass.TIMING]
    passes.sort(key=lambda run_pass: run_pass is Pass.SUSTAINED)
    further = [
        Invocation(case=case, run_pass=run_pass, number=number)
        for run_pass in passes
        for case in cases
        for number in (cold_numbers(case, cold_rounds(plan)) if run_pass is Pass.COLD else (0,))
    ]
    rounds = range(plan.invocations) if Pass.TIMING in plan.passes else range(0)
    if plan.order is Order.SEQUENTIAL:
        timing = [Invocation(case=case, run_pass=Pass.TIMING, number=number) for case in cases for number in rounds]
        return (*timing, *further)
    # The order is for spreading drift, not for secrecy.
    shuffler = random.Random(f"{plan.seed}:{serial}")  # noqa: S311
    timing = []
    for number in rounds:
        shuffled = list(cases)
        shuffler.shuffle(shuffled)
        timing += [Invocation(case=case, run_pass=Pass.TIMING, number=number) for case in shuffled]
    return (*timing, *further)
