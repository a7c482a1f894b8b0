"""Which of the devices that are there a plan means, which program measures on each, and why one or a
combination is left out there, by documented codes. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from orchestrator.delegates import DELEGATES, Delegate, asked_for, flags_of
from orchestrator.errors import UsageError, nearest
from orchestrator.frozen import frozen
from orchestrator.programs import declared_for, program, programs, usual_tool
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
    NoLabels,
    parse_predicate,
    value_of,
)
from orchestrator.records.model import is_foreign, is_language_model, model_ending
from orchestrator.records.plan import DelegateChoice, DeviceSelection, Plan


@frozen
class Choice:
    """What became of the devices that could be measured on."""

    #: In the order of their serial numbers.
    chosen: tuple[Serial, ...]
    #: Devices that fit and weren't needed, with the reason.
    unneeded: Mapping[Serial, str] = field(default_factory=dict)
    #: Devices that don't fit, with the reason.
    unfit: Mapping[Serial, str] = field(default_factory=dict)
    #: What the plan asks for and isn't there, in words; empty for nothing.
    lacking: str = ""


def check_names(
    selection: DeviceSelection, profiles: Iterable[str], labels: Iterable[Labels]
) -> None:
    """Raise UsageError for a profile, pool or tag that is known of no device: no device would ever
    fit a typo.

    Args:
        selection: What is meant.
        profiles: Profiles that are declared, or that devices have.
        labels: What is said of all devices.
    """
    labels = list(labels)
    for kind, wanted, known in (
        ("device profile", selection.profiles, set(profiles)),
        ("pool", selection.pools, {name for item in labels for name in item.pools}),
        ("tag", selection.tags, {name for item in labels for name in item.tags}),
    ):
        for name in wanted:
            if name not in known:
                there = (
                    f"there are {', '.join(sorted(known))}"
                    if known
                    else f"devices.yaml gives no phone a {kind}"
                )
                raise UsageError(
                    f"there is no {kind} {name!r}", hint=nearest(name, sorted(known)) or there
                )


def choose(
    selection: DeviceSelection,
    devices: Iterable[DeviceFacts],
    labels: Mapping[Serial, Labels],
) -> Choice:
    """Return which devices a selection means; the same devices always give the same choice.

    ``one_of_each`` takes the first device of each group and ``any`` the first N, by serial number.
    """
    known = sorted(devices, key=lambda facts: facts.serial)
    unfit = {
        facts.serial: reason
        for facts in known
        if (reason := misfit(selection, facts, labels.get(facts.serial)))
    }
    chosen: list[DeviceFacts] = []
    unneeded: dict[Serial, str] = {}
    for facts in known:
        if facts.serial in unfit:
            continue
        reason = _unneeded(selection, facts, chosen)
        if reason:
            unneeded[facts.serial] = reason
        else:
            chosen.append(facts)
    lacking = ""
    phones = sum(facts.kind is not DeviceKind.HOST for facts in chosen)
    if selection.any is not None and phones < selection.any:
        each = f" of different {selection.one_of_each}" if selection.one_of_each else ""
        lacking = f"the plan asks for {selection.any} phones{each}, and {phones} fit"
    return Choice(
        chosen=tuple(sorted(facts.serial for facts in chosen)),
        unneeded=unneeded,
        unfit=unfit,
        lacking=lacking,
    )


def missed(
    selection: DeviceSelection,
    left_out: Mapping[str, str],
    here: Collection[str],
    labels: Mapping[Serial, Labels],
    known: Mapping[Serial, DeviceFacts],
) -> dict[str, str]:
    """Return the phones that a selection means and that can't be measured on, with the reason.

    Of those that aren't there at all, the ones that it names, or that are what it wants by the
    inventory and by what was seen of them last. None when any few of several are wanted:
    Choice.lacking tells of that.

    Args:
        selection: What is meant.
        left_out: Phones that are there, may be meant and can't be used, with the reason.
        here: Serial numbers and adb's names of the phones that are there.
        labels: The inventory.
        known: What phones were when they were seen last.
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
        name: why
        for name, why in sorted(reasons.items())
        if selection.serials
        or not misfit(
            selection,
            known.get(Serial(name))
            or DeviceFacts(serial=Serial(name), kind=DeviceKind.ANDROID, is_virtual=False),
            labels.get(Serial(name)),
        )
    }


def misfit(selection: DeviceSelection, facts: DeviceFacts, labels: Labels | None) -> str:
    """Return why a device doesn't fit what a selection says of each device by itself, empty when it
    does.
    """
    if selection.profiles and facts.profile not in selection.profiles:
        return f"its profile is {facts.profile or 'unknown'}, not {' or '.join(selection.profiles)}"
    labels = labels or NoLabels()
    if selection.pools and not set(selection.pools) & set(labels.pools):
        return f"it isn't in the pool {' or '.join(selection.pools)}"
    if missing := [tag for tag in selection.tags if tag not in labels.tags]:
        return f"it lacks the tag {', '.join(missing)}"
    for text in selection.where:
        if not all(claim.holds(facts, labels) for claim in parse_predicate(text)):
            return f"{text!r} doesn't hold"
    return ""


def _unneeded(selection: DeviceSelection, facts: DeviceFacts, chosen: Sequence[DeviceFacts]) -> str:
    """Return why a device that fits isn't needed beside those chosen before it; this computer is
    never counted.
    """
    phones = [other for other in chosen if other.kind is not DeviceKind.HOST]
    if facts.kind is DeviceKind.HOST:
        return ""
    if selection.one_of_each:
        group = group_of(selection, facts)
        if not group:
            return f"its {selection.one_of_each} isn't known, and one phone of each is wanted"
        for other in phones:
            if group_of(selection, other) == group:
                return f"{other.serial} has the same {selection.one_of_each}, {group}"
    if selection.any is not None and len(phones) >= selection.any:
        return f"{selection.any} {'phone is' if selection.any == 1 else 'phones are'} enough for the plan"
    return ""


def group_of(selection: DeviceSelection, facts: DeviceFacts) -> str:
    """Return the value by which ``one_of_each`` tells devices apart, empty when it isn't known or
    isn't asked for.
    """
    value = value_of(selection.one_of_each, facts) if selection.one_of_each else None
    return "" if value is None else str(value).lower()


#: As many as the public reference figures were measured with.
USUAL_THREADS: Final = 4


def tools_for(plan: Plan, kind: DeviceKind) -> tuple[ToolName, ...]:
    """Return the programs that a plan means for a kind of device.

    Of several programs, those that don't exist for this kind are meant for other devices; where
    none of them does, all are returned, to be skipped with a reason.
    """
    if not plan.matrix.tools:
        beside = (
            tuple(own.name for own in programs() if own.beside_on is kind)
            if tries_npu(plan, kind)
            else ()
        )
        are_bundles = {is_language_model(model.path) for model in plan.models}
        of_bundles = (
            tuple(own.name for own in programs() if own.is_for_bundles)
            if True in are_bundles
            else ()
        )
        others = frozenset(model.path.suffix for model in plan.models if is_foreign(model.path))
        is_usual = any(model_ending(model.path) == ".tflite" for model in plan.models)
        usual = (usual_tool(kind), *beside) if is_usual or not plan.models else ()
        return (*usual, *of_bundles, *(declared_for(others) if others else ()))
    fitting = tuple(tool for tool in plan.matrix.tools if kind in program(tool).kinds)
    return fitting or plan.matrix.tools


def tries_npu(plan: Plan, kind: DeviceKind) -> bool:
    """Whether a phone's NPU is tried beside its usual program: by LiteRT's own, where that is at
    hand.
    """
    return (
        plan.matrix.choice is DelegateChoice.AUTO
        and not plan.matrix.tools
        and kind is DeviceKind.ANDROID
    )


def delegates_for(plan: Plan, kind: DeviceKind, tool: ToolName) -> tuple[DelegateName, ...]:
    """Return the delegates that a plan means for a program on a kind of device."""
    offered = program(tool).delegates(kind)
    is_usual = plan.matrix.delegates == (USUAL_DELEGATE,) and USUAL_DELEGATE not in offered
    if plan.matrix.choice is None and not (tool.is_declared and is_usual):
        return plan.matrix.named
    if plan.matrix.choice is DelegateChoice.ALL:
        return tuple(
            name for name, own in DELEGATES.items() if name in offered and not own.is_named_by_flag
        )
    if tool.is_declared:
        # No file says that one of them is the best: what needs no accelerator is there on every
        # device.
        return tuple(name for name in DelegateName if name in offered)[:1]
    usual = usual_tool(kind)
    # The program beside the usual one is there for what that one lacks.
    others = program(usual).delegates(kind) if _is_beside(plan, kind, tool) else frozenset()
    return tuple(
        name for name, own in DELEGATES.items() if kind in own.tried_on and name in offered - others
    )


def is_not_there(plan: Plan, kind: DeviceKind, tool: ToolName, reason_code: str) -> bool:
    """Whether a skip only says that a device lacks what ``auto`` would have tried there."""
    if plan.matrix.choice is not DelegateChoice.AUTO:
        return False
    return (
        _is_beside(plan, kind, tool)
        or reason_code == "no-gpu"
        or reason_code.endswith("-libraries-missing")
    )


def _is_beside(plan: Plan, kind: DeviceKind, tool: ToolName) -> bool:
    return tries_npu(plan, kind) and program(tool).beside_on is kind


def threads_for(plan: Plan, facts: DeviceFacts) -> tuple[int, ...]:
    """Return the thread counts that a plan means for a device."""
    usual = min(USUAL_THREADS, core_count(facts) or USUAL_THREADS)
    several = (1, usual) if plan.matrix.choice is DelegateChoice.AUTO and usual > 1 else (usual,)
    return plan.matrix.threads or several


def core_count(facts: DeviceFacts) -> int:
    """Return how many cores a device has, 0 when that isn't known."""
    return sum(len(cluster.cpus) for cluster in facts.clusters)


#: What may run the operators that an accelerator leaves to the CPU.
_CPU_LIBRARIES: Final = frozenset(
    called for name, own in DELEGATES.items() if name.is_cpu for called in own.switches.values()
)

#: The code of a program that isn't on this computer.
NO_BUILD: Final = "no-build"


def skip_reason(
    facts: DeviceFacts,
    profile: DeviceProfile | None,
    tool: ToolName,
    delegate: DelegateName,
    build: Build | Skip | None,
) -> Skip | None:
    """Return why a program's delegate can't or shouldn't be run on a device, None when it can."""
    its = program(tool)
    if facts.kind not in its.kinds:
        reason = f"benchfarm doesn't start '{tool}'; 'benchfarm import' reads its results"
        if its.kinds:
            reason = f"the program '{tool}' doesn't run on {facts.kind.noun}"
        return Skip(reason_code="tool-not-on-device", reason=reason)
    if delegate not in its.delegates(facts.kind):
        able = [
            f"'--tool {other.name}'"
            for other in programs()
            if delegate in other.delegates(facts.kind)
            and other.is_for_bundles is its.is_for_bundles
        ]
        which = f"; {' and '.join(able)} can" if able else ""
        return Skip(
            reason_code="delegate-not-in-tool",
            reason=f"'{tool}' has no delegate '{delegate}'{which}",
        )
    if build is None or isinstance(build, Skip):
        return build or Skip(reason_code=NO_BUILD, reason=f"no build of '{tool}' is known")
    own = DELEGATES[delegate]
    if build.is_virtual and not facts.is_virtual:
        return Skip(
            reason_code="virtual-build",
            reason=f"{build.name} is a fake binary that only a virtual phone can run",
        )
    if facts.kind is DeviceKind.HOST and own.is_on_gpu and not facts.gpu:
        return Skip(reason_code="no-gpu", reason="no GPU was found on this computer")
    if facts.kind is DeviceKind.ANDROID:
        skip = own.skip(facts) or _profile_skip(profile, own)
        # An app carries its libraries in itself; those of TFLite are of no use to another runtime.
        if skip or tool.is_app or tool.is_declared:
            return skip
        return own.library_skip(build, facts)
    return _profile_skip(profile, own) if facts.kind is DeviceKind.IOS else None


def threads_skip(facts: DeviceFacts, threads: int) -> Skip | None:
    """Return why a program can't or shouldn't be run with so many threads, None when it can."""
    cores = core_count(facts)
    if cores and threads > cores:
        return Skip(
            reason_code="more-threads-than-cores",
            reason=f"{threads} threads on {cores} cores measure the scheduler, not the model",
        )
    return None


def model_skip(tool: ToolName, model: Model) -> Skip | None:
    """Return why a program can't run a model at all, None when it can."""
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
        what = "a" if model.is_language_model else "no"
        reason = f"{model.name} is {what} language model's bundle: '{tool}' can't run it"
    return Skip(reason_code="model-not-in-tool", reason=reason)


def flags_skip(
    tool: ToolName, delegate: DelegateName, flags: tuple[tuple[str, str], ...]
) -> Skip | None:
    """Return why a program or delegate can't be run with some flags, None when it can."""
    given, own = dict(flags), DELEGATES[delegate]
    if own.is_named_by_flag and asked_for(given).keys().isdisjoint(own.switches.values()):
        return Skip(
            reason_code="external-delegate-unnamed",
            reason=f"the delegate '{delegate}' needs one of the flags {', '.join(sorted(own.switches))}",
        )
    if flags and not program(tool).has_flags:
        names = ", ".join(name for name, _ in flags)
        return Skip(
            reason_code="flags-not-in-tool",
            reason=f"'{tool}' has no flags of benchmark_model ({names})",
        )
    usual = flags_of(delegate, program(tool).family)
    by_itself, asked = asked_for(usual), asked_for({**usual, **given})
    makes = frozenset[str]().union(*(by_itself[name] for name in by_itself.keys() - asked.keys()))
    if off := sorted(makes & given.keys()):
        return Skip(
            reason_code="flag-of-another-delegate",
            reason=f"{', '.join(off)} switches off '{delegate}', under whose name the figure would stand",
        )
    allowed = {delegate, *by_itself, *(() if delegate.is_cpu else _CPU_LIBRARIES)}
    others = frozenset[str]().union(*(asked[other] for other in asked.keys() - allowed))
    foreign = [name for name in given if name in others]
    if foreign:
        return Skip(
            reason_code="flag-of-another-delegate",
            reason=f"{', '.join(foreign)} switches on another delegate, whose figure would stand under '{delegate}'",
        )
    return None


def mode_skip(kind: DeviceKind, tool: ToolName, mode: ProcessMode | None) -> Skip | None:
    """Return why a program can't be run as what a plan asks for, None when it can."""
    is_app = tool.is_app
    if mode is None or (is_app == (mode is ProcessMode.FOREGROUND) and kind is DeviceKind.ANDROID):
        return None
    if kind is DeviceKind.ANDROID:
        wanted = "is an app and runs in the foreground" if is_app else "is started from the shell"
        reason = f"'{tool}' {wanted}, not as '{mode}'"
    elif mode is ProcessMode.SHELL and kind is DeviceKind.HOST:
        return None
    else:
        reason = f"only Android runs programs as '{mode}'"
    return Skip(reason_code="mode-not-in-tool", reason=reason)


def cores_skip(kind: DeviceKind, tool: ToolName, affinity: str) -> Skip | None:
    """Return why a program can't be kept to the cores that a plan names, None when it can."""
    if affinity in {"big", "all"} or not (tool.is_app or kind is DeviceKind.IOS):
        return None
    return Skip(
        reason_code="affinity-not-in-tool",
        reason=f"'{tool}' is an app, which nothing keeps to the cores {affinity}",
    )


def _profile_skip(profile: DeviceProfile | None, own: Delegate) -> Skip | None:
    if profile is None or own.name in profile.delegates or not own.is_in_profiles:
        return None
    return Skip(
        reason_code="delegate-not-on-profile",
        reason=f"the profile {profile.name} doesn't list the delegate '{own.name}'",
    )
