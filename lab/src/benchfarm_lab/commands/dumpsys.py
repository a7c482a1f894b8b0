"""dumpsys: what the services say of themselves, as AOSP prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_lab.activities import short_component
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.package_commands import dump_package
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import Battery, ThermalZone
from benchfarm_lab.processes import FIRST_APP_UID, Process
from benchfarm_lab.trees.proc import busy_share, memory_figures

#: android.os.Temperature's types, by what a zone's name says.
_TYPES: Final = (
    ("cpu", 0), ("gpu", 1), ("batt", 2), ("maxfg", 2), ("skin", 3), ("quiet", 3), ("fps-therm", 3), ("back", 3),
    ("usb", 4), ("pa-", 5), ("npu", 9), ("tpu", 9),
)  # fmt: skip


@command("dumpsys")
def dumpsys(call: Invocation) -> int:
    """Print what a service says."""
    args = list(call.args)
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option in {"-t", "-T"} and args:
            args.pop(0)
        if option == "-l":
            call.out.line("Currently running services:")
            for name in sorted(_SERVICES):
                call.out.line(f"  {name}")
            return 0
    if not args:
        for name in sorted(_SERVICES):
            call.out.line(f"{'-' * 79}\nDUMP OF SERVICE {name}:")
            _SERVICES[name](call, [])
        return 0
    service = _SERVICES.get(args[0])
    if service is None:
        call.error(f"Can't find service: {args[0]}")
        return 0
    return service(call, args[1:])


def _health(battery: Battery) -> int:
    return 3 if battery.heat_c >= 60 else 2


def _status(battery: Battery) -> int:
    if battery.plugged == "none":
        return 3
    return 5 if battery.level_percent >= 100 else 2


def battery_command(call: Invocation, args: Sequence[str]) -> int:
    """``dumpsys battery``, with set, unplug and reset."""
    state = call.system.state
    if args[:1] == ["unplug"]:
        state.battery_override |= {"ac": 0, "usb": 0, "wireless": 0}
        return 0
    if args[:1] == ["reset"]:
        state.battery_override.clear()
        return 0
    if args[:1] == ["set"] and len(args) > 2:
        name, text = args[1], args[-1]
        if name not in {"ac", "usb", "wireless", "dock", "status", "level", "temp", "present", "counter", "invalid"}:
            call.error(f"Unknown set option: {name}")
            return 255
        if not text.lstrip("-").isdigit():
            call.error(f"Bad value: {text}")
            return 255
        state.battery_override[name] = int(text)
        return 0
    battery, override = state.battery(), state.battery_override
    plugged = battery.plugged
    health = _health(battery) if state.battery_health is None else state.battery_health
    call.out.line(
        "Current Battery Service state:\n"
        + ("  (UPDATES STOPPED -- use 'reset' to restart)\n" if override else "")
        + f"  AC powered: {_yes(plugged == 'ac')}\n  USB powered: {_yes(plugged == 'usb')}\n"
        f"  Wireless powered: {_yes(bool(override.get('wireless')))}\n"
        f"  Max charging current: {0 if plugged == 'none' else 500000}\n"
        f"  Max charging voltage: {0 if plugged == 'none' else 5000000}\n"
        f"  Charge counter: {override.get('counter', battery.charge_counter_uah)}\n"
        f"  status: {override.get('status', _status(battery))}\n  health: {health}\n  present: true\n"
        f"  level: {battery.level_percent}\n  scale: 100\n  voltage: {battery.voltage_mv}\n"
        f"  temperature: {round(battery.heat_c * 10)}\n  technology: Li-ion"
    )
    return 0


def _yes(value: bool) -> str:
    return "true" if value else "false"


def temperature_type(name: str) -> int:
    """Return android.os.Temperature's type for a zone; -1 when its name doesn't say."""
    return next((kind for part, kind in _TYPES if part in name.lower()), -1)


def _temperature(zone: ThermalZone, status: int) -> str:
    kind = temperature_type(zone.name)
    shown = status if kind == 3 else 0
    return f"\tTemperature{{mValue={round(zone.heat_c, 3)}, mType={kind}, mName={zone.name}, mStatus={shown}}}"


def _thermalservice(call: Invocation, args: Sequence[str]) -> int:
    status = call.system.state.thermal_status()
    zones = [zone for zone in call.system.hardware.zones() if temperature_type(zone.name) >= 0]
    rows = "\n".join(_temperature(zone, status) for zone in zones)
    devices = "\n".join(
        f"\tCoolingDevice{{mValue={cluster.cooling_steps}, mType=2, mName=thermal-cpufreq-{cluster.cpus[0]}}}"
        for cluster in call.system.hardware.clusters()
    )
    call.out.line(
        f"IsStatusOverride: {_yes(call.system.state.thermal_override is not None)}\nThermalEventListeners:\n"
        "\tcallbacks: 3\n\tkilled: false\n\tbroadcasts count: -1\nThermalStatusListeners:\n\tcallbacks: 4\n"
        f"\tkilled: false\n\tbroadcasts count: -1\nThermal Status: {status}\nCached temperatures:\n{rows}\n"
        f"HAL Ready: true\nHAL connection:\n\tThermalHAL 2.0 connected: yes\nCurrent temperatures from HAL:\n{rows}\n"
        f"Current cooling devices from HAL:\n{devices}"
    )
    return 0


def _power(call: Invocation, args: Sequence[str]) -> int:
    state, battery = call.system.state, call.system.state.battery()
    plugged = {"none": 0, "ac": 1, "usb": 2}[battery.plugged]
    since_ms = int((call.system.time.uptime_s() - state.last_wake_s) * 1000)
    stay_on = int(call.system.settings.get("global", "stay_on_while_plugged_in") or "0")
    call.out.line(
        "POWER MANAGER (dumpsys power)\n\nPower Manager State:\n  mDirty=0x0\n"
        f"  mWakefulness={'Awake' if state.screen_on else 'Asleep'}\n  mWakefulnessChanging=false\n"
        f"  mIsPowered={_yes(plugged > 0)}\n  mPlugType={plugged}\n  mBatteryLevel={battery.level_percent}\n"
        f"  mBatteryLevelWhenDreamStarted=0\n  mDockState=0\n  mStayOn={_yes(bool(stay_on & plugged))}\n"
        "  mProximityPositive=false\n  mBootCompleted=true\n  mSystemReady=true\n"
        f"  mHalInteractiveModeEnabled={_yes(state.screen_on)}\n  mWakeLockSummary=0x0\n"
        f"  mBatteryLevelLow={_yes(battery.level_percent <= 15)}\n  mLightDeviceIdleMode=false\n"
        f"  mDeviceIdleMode={_yes(state.device_idle)}\n"
        f"  mLastWakeTime={int(state.last_wake_s * 1000)} ({since_ms} ms ago)\n"
        f"  mHoldingDisplaySuspendBlocker={_yes(state.screen_on)}\n"
        f"  mIsVrModeEnabled=false\n\nSettings and Configuration:\n  mStayOnWhilePluggedInSetting={stay_on}\n"
        f"  mScreenOffTimeoutSetting={call.system.settings.get('system', 'screen_off_timeout')}\n"
        f"  mScreenBrightnessModeSetting={call.system.settings.get('system', 'screen_brightness_mode')}\n\n"
        f"Battery saving stats:\n  Battery Saver is currently: "
        f"{'ON' if call.system.settings.get('global', 'low_power') == '1' else 'OFF'}\n\n"
        f"Display Power: state={'ON' if state.screen_on else 'OFF'}\n\nWake Locks: size=0"
    )
    return 0


def _display(call: Invocation, args: Sequence[str]) -> int:
    width, height = call.system.state.size_override or call.system.build.screen
    screen = "ON" if call.system.state.screen_on else "OFF"
    call.out.line(
        f"DISPLAY MANAGER (dumpsys display)\n  mOnlyCode=false\n  mSafeMode=false\n  mGlobalDisplayState={screen}\n"
        f'\nDisplay Devices: size=1\n  DisplayDeviceInfo{{"Built-in Screen": uniqueId="local:0", {width} x {height}, '
        f"modeId 1, defaultModeId 1, supportedModes [{{id=1, width={width}, height={height}, fps=60.0}}], density 440, "
        f"state {screen}, type INTERNAL}}\n\nLogical Displays: size=1\n  Display 0:\n    mDisplayId=0\n"
        f'    mBaseDisplayInfo=DisplayInfo{{"Built-in Screen", displayId 0, real {width} x {height}, mode 1, '
        f"renderFrameRate 60.0, state {screen}}}\n\nDisplay Power Controller:\n  mScreenState={screen}\n"
        f"  mScreenBrightness={call.system.settings.get('system', 'screen_brightness')}"
    )
    return 0


def _window(call: Invocation, args: Sequence[str]) -> int:
    state = call.system.state
    shown = _yes(state.keyguard)
    focus = "StatusBar" if state.keyguard else "com.android.launcher/com.android.launcher.Launcher"
    running = _apps(call)
    if running and not state.keyguard:
        focus = running[-1].argv[0]
    call.out.line(
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"    mSafeMode=false mSystemReady=true mSystemBooted=true\n    mAwake={_yes(state.screen_on)} "
        f"mScreenOnEarly={_yes(state.screen_on)} mScreenOnFully={_yes(state.screen_on)}\n"
        f"    mShowingLockscreen={shown} mShowingDream=false mDreamingLockscreen={shown}\n"
        f"    KeyguardServiceDelegate\n      showing={shown}\n      inputRestricted={shown}\n      occluded=false\n"
        f"      secure=false\n      isKeyguardShowing={shown}\n"
        f"  screenState={'SCREEN_STATE_ON' if state.screen_on else 'SCREEN_STATE_OFF'}\n"
        f"  mCurrentFocus=Window{{a1b2c3 u0 {focus}}}\n  mFocusedApp=ActivityRecord{{d4e5f6 u0 {focus} t7}}\n"
        f"  mDreamingLockscreen={shown}"
    )
    return 0


def _surfaceflinger(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["--latency"]:
        call.out.line("16666666")
        return 0
    gles = call.system.build.gles
    width, height = call.system.build.screen
    call.out.line(
        "Build configuration: [sf PRESENT_TIME_OFFSET=0 FORCE_HWC_FOR_RBG_TO_YUV=1 MAX_VIRT_DISPLAY_DIM=4096]\n\n"
        "Visible layers (count = 12)\n"
        + (f"GLES: {gles}\n" if gles else "")
        + f"  Region undefinedRegion (this=0 count=1)\n  orientation=ROTATION_0, isPoweredOn="
        f"{_yes(call.system.state.screen_on)}\n  refresh-rate              : 60.000002 fps\n  h/w composer state: "
        f"{width}x{height}"
    )
    return 0


def _package(call: Invocation, args: Sequence[str]) -> int:
    names = [arg for arg in args if not arg.startswith("-")]
    if not names:
        for package in call.system.packages.all():
            dump_package(call, package.info.package)
        return 0
    return dump_package(call, names[-1])


def _apps(call: Invocation) -> list[Process]:
    apps = [process for process in call.system.processes.live() if process.group == "top-app"]
    # A shell's process that was moved to the cgroup is no app for that.
    return [process for process in apps if process.uid >= FIRST_APP_UID]


def _activity(call: Invocation, args: Sequence[str]) -> int:
    call.out.line(
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\nDisplay #0 (activities from top to bottom):"
    )
    for process in reversed(_apps(call)):
        found = call.system.packages.get(process.argv[0])
        names = found.info.activities if found is not None else ()
        shown = short_component(process.argv[0], names[0]) if names else process.argv[0]
        call.out.line(f"    mResumedActivity: ActivityRecord{{{process.pid:x} u0 {shown} t{process.pid}}}")
    call.out.line("ACTIVITY MANAGER RUNNING PROCESSES (dumpsys activity processes)")
    for process in _apps(call):
        record = f"{process.pid:x} {process.pid}:{process.argv[0]}/u0a{process.uid - 10000}"
        call.out.line(f"  *APP* UID {process.uid} ProcessRecord{{{record}}}")
    return 0


def _cpuinfo(call: Invocation, args: Sequence[str]) -> int:
    share = busy_share(call.system) * 100
    load = busy_share(call.system) * 2
    call.out.line(f"Load: {load:.2f} / {load * 0.9:.2f} / {load * 0.8:.2f}\nCPU usage from 60000ms to 0ms ago:")
    for process in call.system.processes.rows():
        if process.context is not None:
            call.out.line(f"  98% {process.pid}/{process.name}: 97% user + 1% kernel")
    call.out.line(f"{share:.1f}% TOTAL: {share * 0.7:.1f}% user + {share * 0.3:.1f}% kernel")
    return 0


def _meminfo(call: Invocation, args: Sequence[str]) -> int:
    total, free, available = memory_figures(call.system)
    names = [arg for arg in args if not arg.startswith("-")]
    if names:
        found = next((p for p in call.system.processes.rows() if names[0] in {p.name, p.argv[0], str(p.pid)}), None)
        if found is None:
            call.out.line(f"No process found for: {names[0]}")
            return 0
        call.out.line(
            f"** MEMINFO in pid {found.pid} [{found.argv[0]}] **\n                   Pss\n                 Total\n"
            f"                ------\n        TOTAL   {found.rss_bytes // 1024:>6}"
        )
        return 0
    used_kb = (total - available) // 1024
    call.out.line(f"Total RAM: {total // 1024:,}K (status normal)\n Free RAM: {available // 1024:,}K "
                  f"(0K cached pss + {(available - free) // 1024:,}K cached kernel + {free // 1024:,}K free)\n"
                  f" Used RAM: {used_kb:,}K ({used_kb // 2:,}K used pss + {used_kb // 2:,}K kernel)")  # fmt: skip
    return 0


def deviceidle_command(call: Invocation, args: Sequence[str]) -> int:
    """``dumpsys deviceidle`` and ``cmd deviceidle``: enable, disable, get, force-idle, unforce, step, whitelist."""
    state = call.system.state
    match args[0] if args else "":
        case "get":
            kind = args[1] if len(args) > 1 else ""
            answers = {
                "deep": "IDLE" if state.device_idle else "ACTIVE", "light": "ACTIVE", "screen": _yes(state.screen_on),
                "charging": _yes(state.battery().plugged != "none"),
            }  # fmt: skip
            call.out.line(answers.get(kind, ""))
        case "force-idle":
            state.device_idle = True
            call.out.line("Now forced in to deep idle mode")
        case "unforce" | "step":
            state.device_idle = False
            call.out.line("Light state: ACTIVE, deep state: ACTIVE")
        case "disable" | "enable":
            kinds = [kind for kind in ("deep", "light") if (args[1:] or ["all"])[0] in {kind, "all"}]
            for kind in kinds:
                (state.doze_off.add if args[0] == "disable" else state.doze_off.discard)(kind)
                call.out.line(f"{kind.capitalize()} idle mode {args[0]}d")
            state.device_idle = state.device_idle and "deep" not in state.doze_off
        case "enabled":
            kinds = [kind for kind in ("deep", "light") if (args[1:] or ["all"])[0] in {kind, "all"}]
            call.out.line(int(not state.doze_off & set(kinds)))
        case "whitelist":
            for arg in args[1:]:
                call.out.line(f"{'Added' if arg.startswith('+') else 'Removed'}: {arg[1:]}")
        case _:
            call.out.line(f"  Settings:\n    light_after_inactive_to=+4m0s0ms\n  mLightEnabled=true\n"
                          f"  mForceIdle={_yes(state.device_idle)}\n  mScreenOn={_yes(state.screen_on)}\n"
                          f"  mState={'IDLE' if state.device_idle else 'ACTIVE'} mLightState=ACTIVE")  # fmt: skip
    return 0


_SERVICES: Final[Mapping[str, Callable[[Invocation, Sequence[str]], int]]] = {
    "battery": battery_command, "thermalservice": _thermalservice, "power": _power, "display": _display,
    "window": _window, "SurfaceFlinger": _surfaceflinger, "package": _package, "activity": _activity,
    "cpuinfo": _cpuinfo, "meminfo": _meminfo, "deviceidle": deviceidle_command,
}  # fmt: skip
