"""dumpsys: what the services say of themselves, as AOSP prints it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchfarm_virtual.activities import short_component
from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.package_commands import dump_package
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import Battery, ThermalZone
from benchfarm_virtual.processes import FIRST_APP_UID, Process

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
def dumpsys(call: Invocation) -> int:
    """Print what a service says."""
    service = _SERVICES.get(call.args[0]) if call.args else None
    if service is None:
        call.error(f"Can't find service: {call.args[0] if call.args else ''}")
        return 0
    return service(call, call.args[1:])


def _health(battery: Battery) -> int:
    return 3 if battery.heat_c >= 60 else 2


def _status(battery: Battery) -> int:
    if battery.plugged == "none":
        return 3
    return 5 if battery.level_percent >= 100 else 2


def _battery(call: Invocation, args: Sequence[str]) -> int:
    battery = call.system.hardware.battery()
    health = call.system.state.battery_health
    plugged = battery.plugged
    call.out.line(
        "Current Battery Service state:\n"
        f"  AC powered: {_yes(plugged == 'ac')}\n  USB powered: {_yes(plugged == 'usb')}\n"
        f"  Wireless powered: false\n  Max charging current: {0 if plugged == 'none' else 500000}\n"
        f"  Charge counter: {battery.charge_counter_uah}\n"
        f"  status: {_status(battery)}\n  health: {_health(battery) if health is None else health}\n  present: true\n"
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
    status = call.system.hardware.thermal_status()
    zones = [zone for zone in call.system.hardware.zones() if temperature_type(zone.name) >= 0]
    rows = "\n".join(_temperature(zone, status) for zone in zones)
    devices = "\n".join(
        f"\tCoolingDevice{{mValue={cluster.cooling_steps}, mType=2, mName=thermal-cpufreq-{cluster.cpus[0]}}}"
        for cluster in call.system.hardware.clusters()
    )
    call.out.line(
        f"IsStatusOverride: false\nThermal Status: {status}\nCached temperatures:\n{rows}\n"
        f"HAL Ready: true\nCurrent temperatures from HAL:\n{rows}\nCurrent cooling devices from HAL:\n{devices}"
    )
    return 0


def _power(call: Invocation, args: Sequence[str]) -> int:
    state, battery = call.system.state, call.system.hardware.battery()
    plugged = {"none": 0, "ac": 1, "usb": 2}[battery.plugged]
    stay_on = int(call.system.settings.get("global", "stay_on_while_plugged_in") or "0")
    call.out.line(
        "POWER MANAGER (dumpsys power)\n\nPower Manager State:\n"
        f"  mWakefulness={'Awake' if state.screen_on else 'Asleep'}\n  mWakefulnessChanging=false\n"
        f"  mIsPowered={_yes(plugged > 0)}\n  mPlugType={plugged}\n  mBatteryLevel={battery.level_percent}\n"
        f"  mStayOn={_yes(bool(stay_on & plugged))}\n  mBootCompleted=true\n\n"
        f"Settings and Configuration:\n  mStayOnWhilePluggedInSetting={stay_on}\n\n"
        f"Display Power: state={'ON' if state.screen_on else 'OFF'}\n\nWake Locks: size=0"
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
        f"    mAwake={_yes(state.screen_on)}\n    mShowingLockscreen={shown} mDreamingLockscreen={shown}\n"
        f"    KeyguardServiceDelegate\n      showing={shown}\n      isKeyguardShowing={shown}\n"
        f"  mCurrentFocus=Window{{a1b2c3 u0 {focus}}}\n  mFocusedApp=ActivityRecord{{d4e5f6 u0 {focus} t7}}"
    )
    return 0


def _surfaceflinger(call: Invocation, args: Sequence[str]) -> int:
    gles = call.system.build.gles
    call.out.line(
        "Visible layers (count = 12)\n"
        + (f"GLES: {gles}\n" if gles else "")
        + "  orientation=ROTATION_0"
    )
    return 0


def _package(call: Invocation, args: Sequence[str]) -> int:
    return dump_package(call, args[-1] if args else "")


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
        activity = found.info.activity if found is not None else ""
        shown = short_component(process.argv[0], activity) if activity else process.argv[0]
        call.out.line(
            f"    mResumedActivity: ActivityRecord{{{process.pid:x} u0 {shown} t{process.pid}}}"
        )
    call.out.line("ACTIVITY MANAGER RUNNING PROCESSES (dumpsys activity processes)")
    for process in _apps(call):
        record = f"{process.pid:x} {process.pid}:{process.argv[0]}/u0a{process.uid - 10000}"
        call.out.line(f"  *APP* UID {process.uid} ProcessRecord{{{record}}}")
    return 0


def _deviceidle(call: Invocation, args: Sequence[str]) -> int:
    """Doze, each of its kinds: enable, disable, enabled."""
    state = call.system.state
    verb, asked = (*args, "", "")[:2]
    kinds = [kind for kind in ("deep", "light") if (asked or "all") in {kind, "all"}]
    match verb:
        case "disable" | "enable":
            for kind in kinds:
                (state.doze_off.add if verb == "disable" else state.doze_off.discard)(kind)
                call.out.line(f"{kind.capitalize()} idle mode {verb}d")
        case "enabled":
            call.out.line(int(not state.doze_off & set(kinds)))
        case _:
            call.out.line(
                f"  mScreenOn={_yes(state.screen_on)}\n  mState=ACTIVE mLightState=ACTIVE"
            )
    return 0


_SERVICES: Final[Mapping[str, Callable[[Invocation, Sequence[str]], int]]] = {
    "battery": _battery,
    "thermalservice": _thermalservice,
    "power": _power,
    "window": _window,
    "SurfaceFlinger": _surfaceflinger,
    "package": _package,
    "activity": _activity,
    "deviceidle": _deviceidle,
}
