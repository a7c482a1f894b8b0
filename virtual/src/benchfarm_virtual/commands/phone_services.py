"""The phone's services as commands ask them: settings, svc, input, cmd; and what dumpsys tells of
each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchfarm_virtual.commands.app_commands import dump_package, package_command
from benchfarm_virtual.commands.invocation import Invocation, command
from benchfarm_virtual.contract import ThermalZone
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.processes import FIRST_APP_UID, Process
from benchfarm_virtual.system import NAMESPACES

_WRITE = "android.permission.WRITE_SECURE_SETTINGS"
_ANDROID_11 = 30


def _is_refused(call: Invocation, exception: str) -> bool:
    """Whether the phone's maker keeps the shell user from this.

    It is told as the service tells it.
    """
    if call.system.faults.take(FaultKind.SHELL_RESTRICTED, subject=call.name) is None:
        return False
    call.error(
        f"\nException occurred while executing '{call.args[0]}':\njava.lang.SecurityException: {exception}\n"
        "\tat android.os.Parcel.createExceptionOrNull(Parcel.java:3011)"
    )
    return True


@command("settings")
def settings(call: Invocation) -> int:
    """Read and write settings."""
    table = call.system.settings
    verb = call.args[0] if call.args else ""
    if verb in {"put", "delete"} and _is_refused(
        call, f"Permission denial: writing to settings requires:{_WRITE}"
    ):
        return 255
    match call.args:
        case ["list", namespace] if namespace in NAMESPACES:
            for key, value in table.all(namespace).items():
                call.out.line(f"{key}={value}")
        case ["get", namespace, name] if namespace in NAMESPACES:
            found = table.get(namespace, name)
            call.out.line("null" if found is None else found)
        case ["put", namespace, name, value, *_] if namespace in NAMESPACES:
            table.put(namespace, name, value)
        case ["delete", namespace, name] if namespace in NAMESPACES:
            call.out.line(f"Deleted {int(table.get(namespace, name) is not None)} rows")
            table.put(namespace, name, None)
        case _:
            call.error("Bad arguments")
            return 255
    return 0


@command("svc")
def svc(call: Invocation) -> int:
    """Switch radios; keep the screen on."""
    table = call.system.settings
    if _is_refused(call, f"Permission denial: writing to settings requires:{_WRITE}"):
        return 255
    match call.args:
        case ["power", "stayon", "true" | "false" | "ac" | "usb" | "wireless" as plugs]:
            bits = {"true": "7", "false": "0", "ac": "1", "usb": "2", "wireless": "4"}[plugs]
            table.put("global", "stay_on_while_plugged_in", bits)
            if bits != "0":
                call.system.state.wake()
        case ["wifi" | "data" as radio, "enable" | "disable" as verb]:
            name = "wifi_on" if radio == "wifi" else "mobile_data"
            table.put("global", name, str(int(verb == "enable")))
        case _:
            call.error("Available commands:\n    help\n    power\n    data\n    wifi")
            return 1
    return 0


@command("input")
def input_(call: Invocation) -> int:
    """Press keys that switch the screen."""
    if call.args[:1] != ("keyevent",):
        call.error(f"Error: Unknown command: {call.args[0] if call.args else ''}")
        return 255
    if _is_refused(call, "Injecting to another application requires INJECT_EVENTS permission"):
        return 255
    state = call.system.state
    for key in call.args[1:]:
        match key.removeprefix("KEYCODE_"):
            case "WAKEUP":
                state.wake()
            case "SLEEP":
                state.lock()
            case _:
                call.error(f"a virtual phone has no key {key}")
                return 1
    return 0


@command("cmd")
def cmd(call: Invocation) -> int:
    """Talk to a service."""
    name, *args = call.args or ("",)
    has_android_11, state = call.system.props.sdk >= _ANDROID_11, call.system.state
    match [name, *args]:
        case ["package", *rest]:
            return package_command(call, rest)
        case ["power", "set-fixed-performance-mode-enabled", "true" | "false" as wanted] if (
            has_android_11
        ):
            state.fixed_performance = wanted == "true"
            call.system.hardware.set_fixed_performance(enabled=state.fixed_performance)
        case ["connectivity", "airplane-mode"] if has_android_11:
            is_on = call.system.settings.get("global", "airplane_mode_on") == "1"
            call.out.line("enabled" if is_on else "disabled")
        case ["connectivity", "airplane-mode", "enable" | "disable" as wanted] if has_android_11:
            call.system.settings.put("global", "airplane_mode_on", str(int(wanted == "enable")))
        case ["power" | "connectivity", *_]:
            call.error(f"Unknown command: {args[0] if args else ''}")
            return 255
        case _:
            call.error(f"cmd: Can't find service: {name}")
            return 20
    return 0


#: android.os.Temperature's types, by what a zone's name says.
_TYPES: Final = (
    ("cpu", 0),
    ("gpu", 1),
    ("batt", 2),
    ("maxfg", 2),
    ("skin", 3),
    ("quiet", 3),
    ("fps-therm", 3),
    ("back", 3),
    ("usb", 4),
    ("pa-", 5),
    ("npu", 9),
    ("tpu", 9),
)


@command("dumpsys")
def dumpsys(call: Invocation) -> None:
    """Print what a service says."""
    name = call.args[0] if call.args else ""
    if name in _SERVICES:
        call.out.line(_SERVICES[name](call))
    else:
        call.error(f"Can't find service: {name}")


def _battery(call: Invocation) -> str:
    battery, health = call.system.hardware.battery(), call.system.hardware.battery_health
    status = (5 if battery.level_percent >= 100 else 2) if battery.plugged else 3
    return (
        "Current Battery Service state:\n"
        f"  AC powered: false\n  USB powered: {_yes(battery.plugged)}\n"
        f"  Wireless powered: false\n  Max charging current: {500000 * battery.plugged}\n"
        f"  Charge counter: {battery.charge_counter_uah}\n"
        f"  status: {status}\n  health: {health or (3 if battery.heat_c >= 60 else 2)}\n  present: true\n"
        f"  level: {battery.level_percent}\n  scale: 100\n  voltage: {battery.voltage_mv}\n"
        f"  temperature: {round(battery.heat_c * 10)}\n  technology: Li-ion"
    )


def _yes(value: bool) -> str:
    return "true" if value else "false"


def temperature_type(name: str) -> int:
    """Return android.os.Temperature's type for a zone; -1 when its name doesn't say."""
    return next((kind for part, kind in _TYPES if part in name.lower()), -1)


def _temperature(zone: ThermalZone, status: int) -> str:
    kind = temperature_type(zone.name)
    shown = status if kind == 3 else 0
    return f"\tTemperature{{mValue={round(zone.heat_c, 3)}, mType={kind}, mName={zone.name}, mStatus={shown}}}"


def _thermalservice(call: Invocation) -> str:
    status = call.system.hardware.thermal_status()
    zones = [zone for zone in call.system.hardware.zones() if temperature_type(zone.name) >= 0]
    rows = "\n".join(_temperature(zone, status) for zone in zones)
    devices = "\n".join(
        f"\tCoolingDevice{{mValue={cluster.cooling_steps}, mType=2, mName=thermal-cpufreq-{cluster.cpus[0]}}}"
        for cluster in call.system.hardware.clusters()
    )
    return (
        f"IsStatusOverride: false\nThermal Status: {status}\nCached temperatures:\n{rows}\n"
        f"HAL Ready: true\nCurrent temperatures from HAL:\n{rows}\nCurrent cooling devices from HAL:\n{devices}"
    )


def _dump_power(call: Invocation) -> str:
    state, battery = call.system.state, call.system.hardware.battery()
    plugged = 2 * battery.plugged
    stay_on = int(call.system.settings.get("global", "stay_on_while_plugged_in") or "0")
    return (
        "POWER MANAGER (dumpsys power)\n\nPower Manager State:\n"
        f"  mWakefulness={'Awake' if state.screen_on else 'Asleep'}\n  mWakefulnessChanging=false\n"
        f"  mIsPowered={_yes(plugged > 0)}\n  mPlugType={plugged}\n  mBatteryLevel={battery.level_percent}\n"
        f"  mStayOn={_yes(bool(stay_on & plugged))}\n  mBootCompleted=true\n\n"
        f"Settings and Configuration:\n  mStayOnWhilePluggedInSetting={stay_on}\n\n"
        f"Display Power: state={'ON' if state.screen_on else 'OFF'}\n\nWake Locks: size=0"
    )


def _window(call: Invocation) -> str:
    state = call.system.state
    shown = _yes(state.keyguard)
    focus = "StatusBar" if state.keyguard else "com.android.launcher/com.android.launcher.Launcher"
    running = _apps(call)
    if running and not state.keyguard:
        focus = running[-1].argv[0]
    return (
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"    mAwake={_yes(state.screen_on)}\n    mShowingLockscreen={shown} mDreamingLockscreen={shown}\n"
        f"    KeyguardServiceDelegate\n      showing={shown}\n      isKeyguardShowing={shown}\n"
        f"  mCurrentFocus=Window{{a1b2c3 u0 {focus}}}\n  mFocusedApp=ActivityRecord{{d4e5f6 u0 {focus} t7}}"
    )


def _surfaceflinger(call: Invocation) -> str:
    gpu = call.system.hardware.profile.gpu
    return (
        "Visible layers (count = 12)\n"
        + (f"GLES: {gpu.gles}\n" if gpu else "")
        + "  orientation=ROTATION_0"
    )


def _apps(call: Invocation) -> list[Process]:
    apps = [process for process in call.system.processes.live() if process.group == "top-app"]
    # A shell's process that was moved to the cgroup is no app for that.
    return [process for process in apps if process.uid >= FIRST_APP_UID]


def _activity(call: Invocation) -> str:
    lines = [
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)",
        "Display #0 (activities from top to bottom):",
    ]
    for process in reversed(_apps(call)):
        found = call.system.packages.get(process.argv[0])
        shown = found.component if found else process.argv[0]
        lines.append(
            f"    mResumedActivity: ActivityRecord{{{process.pid:x} u0 {shown} t{process.pid}}}"
        )
    lines.append("ACTIVITY MANAGER RUNNING PROCESSES (dumpsys activity processes)")
    for process in _apps(call):
        record = f"{process.pid:x} {process.pid}:{process.argv[0]}/u0a{process.uid - 10000}"
        lines.append(f"  *APP* UID {process.uid} ProcessRecord{{{record}}}")
    return "\n".join(lines)


def _deviceidle(call: Invocation) -> str:
    """Doze, each of its kinds: enable, disable, enabled."""
    state = call.system.state
    _, verb, asked = (*call.args, "", "all")[:3]
    kinds = [kind for kind in ("deep", "light") if (asked or "all") in {kind, "all"}]
    if verb == "enabled":
        return str(int(not state.doze_off & set(kinds)))
    if verb not in {"disable", "enable"}:
        return f"  mScreenOn={_yes(state.screen_on)}\n  mState=ACTIVE mLightState=ACTIVE"
    state.doze_off = (
        state.doze_off | set(kinds) if verb == "disable" else state.doze_off - set(kinds)
    )
    return "\n".join(f"{kind.capitalize()} idle mode {verb}d" for kind in kinds)


_SERVICES: Final[Mapping[str, Callable[[Invocation], str]]] = {
    "battery": _battery,
    "thermalservice": _thermalservice,
    "power": _dump_power,
    "window": _window,
    "SurfaceFlinger": _surfaceflinger,
    "package": dump_package,
    "activity": _activity,
    "deviceidle": _deviceidle,
}
