"""Selects a plan's devices, programs, delegates and threads, and says by documented codes why a
device or combination is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from orchestrator.delegates import DELEGATES, Delegate, flags_of, requested_delegates
from orchestrator.errors import UsageError, choices
from orchestrator.programs import declared_for, program, programs, usual_tool
from orchestrator.programs.flags import schema_of
from orchestrator.records import frozen
from orchestrator.records.case import (
    USUAL_DELEGATE,
    Build,
    DelegateName,
    Model,
    ProcessMode,
    Serial,
    Skip,
    ToolName,
)
from orchestrator.records.device import (
    DeviceFacts,
    DeviceKind,
    DeviceProfile,
    Labels,
    parse_predicate,
    value_of,
)
from orchestrator.records.model import is_foreign, is_language_model, model_ending
from orchestrator.records.plan import DelegateChoice, DeviceSelection, Plan
from orchestrator.units import counted


@frozen
class Choice:
    """The selected devices, and why others are left out."""

    #: In the order of their serial numbers.
    chosen: tuple[Serial, ...]
    #: Devices that fit but aren't needed, with the reason.
    unneeded: Mapping[Serial, str] = field(default_factory=dict)
    #: Devices that don't fit, with the reason.
    unfit: Mapping[Serial, str] = field(default_factory=dict)
    #: The plan's unmet request as text; empty for none.
    lacking: str = ""


def check_names(
    selection: DeviceSelection, profiles: Iterable[str], labels: Iterable[Labels]
) -> None:
    """Raise UsageError for a profile, pool or tag that no device has, such as a typo.

    Args:
        selection: The plan's selection.
        profiles: Profiles that are declared, or that devices have.
        labels: The labels of all devices.
    """
    labels = list(labels)
    for kind, names, existing in (
        ("device profile", selection.profiles, set(profiles)),
        ("pool", selection.pools, {name for item in labels for name in item.pools}),
        ("tag", selection.tags, {name for item in labels for name in item.tags}),
    ):
        for name in names:
            if name not in existing:
                hint = (
                    choices(name, sorted(existing))
                    if existing
                    else f"devices.yaml gives no phone a {kind}"
                )
                raise UsageError(f"there is no {kind} {name!r}", hint=hint)


def choose(
    selection: DeviceSelection,
    devices: Iterable[DeviceFacts],
    labels: Mapping[Serial, Labels],
) -> Choice:
    """Return the devices that match a selection; the same devices always give the same choice.

    ``one_of_each`` takes the first device of each group and ``any`` the first N, by serial number.
    """
    candidates = sorted(devices, key=lambda facts: facts.serial)
    unfit = {
        facts.serial: reason
        for facts in candidates
        if (reason := mismatch_reason(selection, facts, labels.get(facts.serial)))
    }
    chosen: list[DeviceFacts] = []
    unneeded: dict[Serial, str] = {}
    for facts in candidates:
        if facts.serial in unfit:
            continue
        reason = _unneeded(selection, facts, chosen)
        if reason:
            unneeded[facts.serial] = reason
        else:
            chosen.append(facts)
    shortage = ""
    phones = sum(facts.kind is not DeviceKind.HOST for facts in chosen)
    if selection.any is not None and phones < selection.any:
        distinct = f" of different {selection.one_of_each}" if selection.one_of_each else ""
        shortage = (
            f"the plan asks for {counted(selection.any, 'phone')}{distinct}, and {phones} fit"
        )
    return Choice(
        chosen=tuple(sorted(facts.serial for facts in chosen)),
        unneeded=unneeded,
        unfit=unfit,
        lacking=shortage,
    )


def unmeasurable_matches(
    selection: DeviceSelection,
    left_out: Mapping[str, str],
    here: Collection[str],
    labels: Mapping[Serial, Labels],
    last_facts: Mapping[Serial, DeviceFacts],
) -> dict[str, str]:
    """Return the phones that match a selection and can't be measured on, with the reason.

    Offline phones are included if the selection names them, or matches them by the inventory and
    their last known facts. Empty when any N phones are asked for: see Choice.lacking.

    Args:
        selection: The plan's selection.
        left_out: Attached phones that may match and can't be used, with the reason.
        here: Serial numbers and adb's names of the attached phones.
        labels: The inventory.
        last_facts: The facts of phones when they were last attached.
    """
    if selection.any is not None or selection.one_of_each:
        return {}
    expected = selection.serials or (
        labels if selection.pools or selection.tags or selection.where else ()
    )
    reasons = {serial: "is not attached" for serial in expected if serial not in here} | dict(
        left_out
    )
    return {
        name: reason
        for name, reason in sorted(reasons.items())
        if selection.serials
        or not mismatch_reason(
            selection,
            last_facts.get(Serial(name))
            or DeviceFacts(serial=Serial(name), kind=DeviceKind.ANDROID, is_virtual=False),
            labels.get(Serial(name)),
        )
    }


def mismatch_reason(selection: DeviceSelection, facts: DeviceFacts, labels: Labels | None) -> str:
    """Return why a device doesn't match a selection by itself; empty when it does."""
    if selection.profiles and facts.profile not in selection.profiles:
        return f"its profile is {facts.profile or 'unknown'}, not {' or '.join(selection.profiles)}"
    labels = labels or Labels()
    if selection.pools and not set(selection.pools) & set(labels.pools):
        return f"it isn't in the pool {' or '.join(selection.pools)}"
    if missing := [tag for tag in selection.tags if tag not in labels.tags]:
        return f"it lacks the tag {', '.join(missing)}"
    for text in selection.where:
        if not all(rule.holds(facts, labels) for rule in parse_predicate(text)):
            return f"{text!r} doesn't hold"
    return ""


def _unneeded(selection: DeviceSelection, facts: DeviceFacts, chosen: Sequence[DeviceFacts]) -> str:
    """Return why a device isn't needed beside those already chosen; this computer never counts."""
    phones = [other for other in chosen if other.kind is not DeviceKind.HOST]
    if facts.kind is DeviceKind.HOST:
        return ""
    if selection.one_of_each:
        group = group_value(selection, facts)
        if not group:
            return (
                f"its {selection.one_of_each} isn't known, and the plan asks for one phone of each"
            )
        for other in phones:
            if group_value(selection, other) == group:
                return f"{other.serial} has the same {selection.one_of_each}, {group}"
    if selection.any is not None and len(phones) >= selection.any:
        return f"{selection.any} {'phone is' if selection.any == 1 else 'phones are'} enough for the plan"
    return ""


def group_value(selection: DeviceSelection, facts: DeviceFacts) -> str:
    """Return a device's value of ``one_of_each``; empty when unknown or not used."""
    value = value_of(selection.one_of_each, facts) if selection.one_of_each else None
    return "" if value is None else str(value).lower()


#: The threads of the public reference figures.
USUAL_THREADS: Final = 4


def tools_for(plan: Plan, kind: DeviceKind) -> tuple[ToolName, ...]:
    """Return a plan's programs for a kind of device.

    Programs that don't run on this kind are left out, as they are for other devices; where none
    runs, all are returned, to be skipped with a reason.
    """
    if not plan.matrix.tools:
        npu_tools = (
            tuple(spec.name for spec in programs() if spec.also_tried_on is kind)
            if tries_npu(plan, kind)
            else ()
        )
        are_bundles = {is_language_model(model.path) for model in plan.models}
        bundle_tools = (
            tuple(spec.name for spec in programs() if spec.is_for_bundles)
            if True in are_bundles
            else ()
        )
        foreign_endings = frozenset(
            model.path.suffix for model in plan.models if is_foreign(model.path)
        )
        is_usual = any(model_ending(model.path) == ".tflite" for model in plan.models)
        usual = (usual_tool(kind), *npu_tools) if is_usual or not plan.models else ()
        return (*usual, *bundle_tools, *(declared_for(foreign_endings) if foreign_endings else ()))
    fitting = tuple(tool for tool in plan.matrix.tools if kind in program(tool).kinds)
    return fitting or plan.matrix.tools


def tries_npu(plan: Plan, kind: DeviceKind) -> bool:
    """Whether a phone's NPU is also tried, by LiteRT's own program where it is available."""
    return (
        plan.matrix.choice is DelegateChoice.AUTO
        and not plan.matrix.tools
        and kind is DeviceKind.ANDROID
    )


def delegates_for(plan: Plan, kind: DeviceKind, tool: ToolName) -> tuple[DelegateName, ...]:
    """Return a plan's delegates for a program on a kind of device."""
    offered = program(tool).delegates(kind)
    is_usual = plan.matrix.delegates == (USUAL_DELEGATE,) and USUAL_DELEGATE not in offered
    if plan.matrix.choice is None and not (tool.is_declared and is_usual):
        return plan.matrix.named
    if plan.matrix.choice is DelegateChoice.ALL:
        return tuple(
            name
            for name, spec in DELEGATES.items()
            if name in offered and not spec.is_named_by_flag
        )
    if tool.is_declared:
        # No file says which one is best: every device can run one that needs no accelerator.
        return tuple(name for name in DelegateName if name in offered)[:1]
    usual = usual_tool(kind)
    # The second program is for delegates that the usual one lacks.
    usual_delegates = (
        program(usual).delegates(kind) if _is_second_program(plan, kind, tool) else frozenset()
    )
    return tuple(
        name
        for name, spec in DELEGATES.items()
        if kind in spec.tried_on and name in offered - usual_delegates
    )


def is_unavailable_for_auto(plan: Plan, kind: DeviceKind, tool: ToolName, reason_code: str) -> bool:
    """Whether a skip only says that a device lacks something that ``auto`` would try."""
    if plan.matrix.choice is not DelegateChoice.AUTO:
        return False
    return (
        _is_second_program(plan, kind, tool)
        or reason_code == "no-gpu"
        or reason_code.endswith("-libraries-missing")
    )


def _is_second_program(plan: Plan, kind: DeviceKind, tool: ToolName) -> bool:
    return tries_npu(plan, kind) and program(tool).also_tried_on is kind


def threads_for(plan: Plan, facts: DeviceFacts) -> tuple[int, ...]:
    """Return a plan's thread counts for a device."""
    usual = min(USUAL_THREADS, core_count(facts) or USUAL_THREADS)
    counts = (1, usual) if plan.matrix.choice is DelegateChoice.AUTO and usual > 1 else (usual,)
    return plan.matrix.threads or counts


def core_count(facts: DeviceFacts) -> int:
    """Return the number of a device's cores; 0 when unknown."""
    return sum(len(cluster.cpus) for cluster in facts.clusters)


#: The libraries that may run the operators which an accelerator leaves to the CPU.
_CPU_LIBRARIES: Final = frozenset(
    library for name, spec in DELEGATES.items() if name.is_cpu for library in spec.switches.values()
)

#: The code of a program that isn't on this computer.
NO_BUILD: Final = "no-build"


def kind_skip(tool: ToolName, kind: DeviceKind) -> Skip | None:
    """Return why a program doesn't run on a kind of device, or None."""
    kinds = program(tool).kinds
    if kind in kinds:
        return None
    reason = f"benchfarm doesn't start '{tool}'; 'benchfarm import' reads its results"
    if kinds:
        reason = f"the program '{tool}' doesn't run on {kind.noun}"
    return Skip(reason_code="tool-not-on-device", reason=reason)


def skip_reason(
    facts: DeviceFacts,
    profile: DeviceProfile | None,
    tool: ToolName,
    delegate: DelegateName,
    build: Build | Skip | None,
) -> Skip | None:
    """Return why a program's delegate can't or shouldn't run on a device, or None."""
    spec = program(tool)
    if skip := kind_skip(tool, facts.kind):
        return skip
    if delegate not in spec.delegates(facts.kind):
        able_tools = [
            f"'--tool {other.name}'"
            for other in programs()
            if delegate in other.delegates(facts.kind)
            and other.is_for_bundles is spec.is_for_bundles
        ]
        alternatives = f"; {' and '.join(able_tools)} can" if able_tools else ""
        return Skip(
            reason_code="delegate-not-in-tool",
            reason=f"'{tool}' has no delegate '{delegate}'{alternatives}",
        )
    if build is None or isinstance(build, Skip):
        return build or Skip(reason_code=NO_BUILD, reason=f"no build of '{tool}' is known")
    delegate_spec = DELEGATES[delegate]
    if build.is_virtual and not facts.is_virtual:
        return Skip(
            reason_code="virtual-build",
            reason=f"{build.name} is a fake binary that only a virtual phone can run",
        )
    if facts.kind is DeviceKind.HOST and delegate_spec.is_on_gpu and not facts.gpu:
        return Skip(reason_code="no-gpu", reason="no GPU was found on this computer")
    if facts.kind is DeviceKind.ANDROID:
        skip = delegate_spec.skip(facts) or _profile_skip(profile, delegate_spec)
        # An app contains its libraries; TFLite's are of no use to another runtime.
        if skip or tool.is_app or tool.is_declared:
            return skip
        return delegate_spec.library_skip(build, facts)
    return _profile_skip(profile, delegate_spec) if facts.kind is DeviceKind.IOS else None


def threads_skip(facts: DeviceFacts, threads: int) -> Skip | None:
    """Return why a device shouldn't run this number of threads, or None."""
    cores = core_count(facts)
    if cores and threads > cores:
        return Skip(
            reason_code="more-threads-than-cores",
            reason=f"{threads} threads on {cores} cores measure the scheduler, not the model",
        )
    return None


def model_skip(tool: ToolName, model: Model) -> Skip | None:
    """Return why a program can't run a model at all, or None."""
    endings = program(tool).endings
    if endings or is_foreign(model.path):
        if model.path is None or model.path.suffix in endings:
            return None
        runs = (
            f"it runs {', '.join(sorted(endings))}" if endings else "a declared program may run it"
        )
        reason = f"'{tool}' can't run a file that ends with {model.path.suffix}: {runs}"
    elif model.is_language_model == program(tool).is_for_bundles:
        return None
    else:
        article = "a" if model.is_language_model else "no"
        reason = f"{model.name} is {article} language model's bundle: '{tool}' can't run it"
    return Skip(reason_code="model-not-in-tool", reason=reason)


def flags_skip(
    tool: ToolName, delegate: DelegateName, flags: tuple[tuple[str, str], ...]
) -> Skip | None:
    """Return why a program or delegate can't run with these flags, or None."""
    plan_flags, delegate_spec = dict(flags), DELEGATES[delegate]
    if delegate_spec.is_named_by_flag and requested_delegates(plan_flags).keys().isdisjoint(
        delegate_spec.switches.values()
    ):
        return Skip(
            reason_code="external-delegate-unnamed",
            reason=f"the delegate '{delegate}' needs one of the flags {', '.join(sorted(delegate_spec.switches))}",
        )
    spec = program(tool)
    if not spec.is_benchmark_model and (spec.usual_on is not None or not spec.has_flags):
        own_flags = schema_of(tool).flags if spec.has_flags else {}
        if others := [name for name in plan_flags if name not in own_flags]:
            return Skip(
                reason_code="flags-not-in-tool",
                reason=f"'{tool}' has no flag {', '.join(others)}",
            )
    usual_flags = flags_of(delegate, program(tool).family)
    usual_enabled, enabled = (
        requested_delegates(usual_flags),
        requested_delegates({**usual_flags, **plan_flags}),
    )
    usual_only = frozenset[str]().union(
        *(usual_enabled[name] for name in usual_enabled.keys() - enabled.keys())
    )
    if switching_off := sorted(usual_only & plan_flags.keys()):
        return Skip(
            reason_code="flag-of-another-delegate",
            reason=f"{', '.join(switching_off)} switches off '{delegate}', so the figure wouldn't be its own",
        )
    allowed = {delegate, *usual_enabled, *(() if delegate.is_cpu else _CPU_LIBRARIES)}
    foreign_flags = frozenset[str]().union(*(enabled[other] for other in enabled.keys() - allowed))
    foreign = [name for name in plan_flags if name in foreign_flags]
    if foreign:
        return Skip(
            reason_code="flag-of-another-delegate",
            reason=f"{', '.join(foreign)} switches on another delegate, so the figure wouldn't be that of '{delegate}'",
        )
    return None


def mode_skip(kind: DeviceKind, tool: ToolName, mode: ProcessMode | None) -> Skip | None:
    """Return why a program can't run in a plan's process mode, or None."""
    is_app = tool.is_app
    if mode is None or (is_app == (mode is ProcessMode.FOREGROUND) and kind is DeviceKind.ANDROID):
        return None
    if kind is DeviceKind.ANDROID:
        runs_as = "is an app and runs in the foreground" if is_app else "is started from the shell"
        reason = f"'{tool}' {runs_as}, not as '{mode}'"
    elif mode is ProcessMode.SHELL and kind is DeviceKind.HOST:
        return None
    else:
        reason = f"only Android runs programs as '{mode}'"
    return Skip(reason_code="mode-not-in-tool", reason=reason)


def cores_skip(kind: DeviceKind, tool: ToolName, affinity: str) -> Skip | None:
    """Return why a program can't be kept to a plan's cores, or None."""
    if affinity in {"big", "all"} or not (tool.is_app or kind is DeviceKind.IOS):
        return None
    return Skip(
        reason_code="affinity-not-in-tool",
        reason=f"'{tool}' is an app and can't be kept to the cores {affinity}",
    )


def _profile_skip(profile: DeviceProfile | None, delegate: Delegate) -> Skip | None:
    if profile is None or delegate.name in profile.delegates or not delegate.is_in_profiles:
        return None
    return Skip(
        reason_code="delegate-not-on-profile",
        reason=f"the profile {profile.name} doesn't list the delegate '{delegate.name}'",
    )
