"""Why a combination can't or shouldn't be run on a device, by documented codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.libraries import HEXAGON_INTERFACE, dispatch_library, npu_vendor
from orchestrator.planning.programs import DELEGATES, OPTION_THREADS, core_count
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.flag import ENABLING_FLAGS
from orchestrator.records.workload import IMPORTED_TOOLS, Build, DelegateName, ProcessMode, ToolName

#: NNAPI is deprecated from Android 15 (API level 35) on and exists from Android 8.1 (27) on.
_NNAPI_FIRST_SDK: Final = 27
_NNAPI_DEPRECATED_SDK: Final = 35
#: Flags that it sets itself before each option, whatever the command line says.
_OPTION_FLAGS: Final = frozenset(
    {
        "use_xnnpack", "xnnpack_force_fp16", "gpu_precision_loss_allowed", "nnapi_accelerator_name",
        "disable_nnapi_cpu", "nnapi_allow_fp16", "max_delegated_partitions",
    }
)  # fmt: skip
#: Flags of which one names the external delegate.
_EXTERNAL_FLAGS: Final = frozenset(
    flag for flag, delegate in ENABLING_FLAGS.items() if delegate == DelegateName.EXTERNAL
)
#: What may run the operators that an accelerator leaves to the CPU.
_CPU_LIBRARIES: Final = frozenset({"xnnpack", "ynnpack"})
_OFF: Final = frozenset({"", "0", "false"})


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


def skip_reason(
    facts: DeviceFacts,
    profile: DeviceProfile | None,
    tool: ToolName,
    delegate: DelegateName,
    threads: int,
    build: Build | NoBuild | None,
) -> Skip | None:
    """Return why a combination can't or shouldn't be run on a device, None when it can."""
    offered = DELEGATES.get((tool, facts.kind))
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
    if tool is ToolName.PERF_OPTIONS and threads not in OPTION_THREADS:
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


def flags_skip(tool: ToolName, delegate: DelegateName, flags: tuple[tuple[str, str], ...]) -> Skip | None:
    """Return why a program or delegate can't be run with some flags, None when it can."""
    given = {name for name, _ in flags}
    enabling = {name: ENABLING_FLAGS[name] for name, value in flags if name in ENABLING_FLAGS and value not in _OFF}
    if delegate is DelegateName.EXTERNAL and not enabling.keys() & _EXTERNAL_FLAGS:
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
    allowed: set[str] = {delegate} if delegate.is_cpu else {delegate, *_CPU_LIBRARIES}
    foreign = [name for name, other in enabling.items() if other not in allowed]
    if foreign:
        return Skip(
            reason_code="flag-of-another-delegate",
            reason=f"{', '.join(foreign)} switches on another delegate, whose figure would stand under '{delegate}'",
        )
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
