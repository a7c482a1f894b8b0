"""Commands for the phone's services: settings, svc, input, cmd; and dumpsys of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchfarm_virtual.commands.app_commands import dump_package, package_command
from benchfarm_virtual.commands.invocation import Invocation, command
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.processes import FIRST_APP_UID, Process

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
        case ["list", namespace] if namespace in table:
            for key, value in sorted(table[namespace].items()):
                call.out.line(f"{key}={value}")
        case ["get", namespace, name] if namespace in table:
            call.out.line(table[namespace].get(name, "null"))
        case ["put", namespace, name, value, *_] if namespace in table:
            table[namespace][name] = value
        case ["delete", namespace, name] if namespace in table:
            deleted = table[namespace].pop(name, None)
            call.out.line(f"Deleted {int(deleted is not None)} rows")
        case _:
            call.error("Bad arguments")
            return 255
    return 0


@command("svc")
def svc(call: Invocation) -> int:
    """Switch radios; keep the screen on."""
    table = call.system.settings["global"]
    if _is_refused(call, f"Permission denial: writing to settings requires:{_WRITE}"):
        return 255
    match call.args:
        case ["power", "stayon", "true" | "false" | "ac" | "usb" | "wireless" as plugs]:
            bits = {"true": "7", "false": "0", "ac": "1", "usb": "2", "wireless": "4"}[plugs]
            table["stay_on_while_plugged_in"] = bits
            if bits != "0":
                call.system.state.wake()
        case ["wifi" | "data" as radio, "enable" | "disable" as verb]:
            name = "wifi_on" if radio == "wifi" else "mobile_data"
            table[name] = str(int(verb == "enable"))
        case _:
            call.error("a virtual phone knows svc power stayon, wifi and data only")
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
    has_android_11 = call.system.props.sdk >= _ANDROID_11
    match [name, *args]:
        case ["package", *rest]:
            return package_command(call, rest)
        case ["power", "set-fixed-performance-mode-enabled", "true" | "false" as mode] if (
            has_android_11
        ):
            call.system.hardware.set_fixed_performance(enabled=mode == "true")
        case ["connectivity", "airplane-mode", "enable" | "disable" as mode] if has_android_11:
            call.system.settings["global"]["airplane_mode_on"] = str(int(mode == "enable"))
        case ["power" | "connectivity", *_]:
            call.error(f"Unknown command: {args[0] if args else ''}")
            return 255
        case _:
            call.error(f"cmd: Can't find service: {name}")
            return 20
    return 0


#: android.os.Temperature's types, by the part of the phone whose heat a zone shows.
_TYPES: Final = {"soc": 0, "gpu": 1, "battery": 2, "skin": 3}


@command("dumpsys")
def dumpsys(call: Invocation) -> None:
    """Print a service's report."""
    name = call.args[0] if call.args else ""
    if name in _SERVICES:
        call.out.line(_SERVICES[name](call))
    else:
        call.error(f"Can't find service: {name}")


def _battery(call: Invocation) -> str:
    battery, health = call.system.hardware.battery(), call.system.hardware.battery_health
    return (
        "Current Battery Service state:\n"
        f"  AC powered: false\n  USB powered: {'true' if battery.plugged else 'false'}\n"
        f"  Wireless powered: false\n  Charge counter: {battery.charge_counter_uah}\n"
        f"  health: {health or (3 if battery.heat_c >= 60 else 2)}\n"
        f"  level: {battery.level_percent}\n  scale: 100\n  voltage: {battery.voltage_mv}\n"
        f"  temperature: {round(battery.heat_c * 10)}"
    )


def _thermalservice(call: Invocation) -> str:
    hardware = call.system.hardware
    status, heats = hardware.thermal_status(), hardware.zones()
    rows = [
        f"\tTemperature{{mValue={heats[zone.name]}, mType={_TYPES[zone.follows]}, mName={zone.name}, "
        f"mStatus={status if zone.follows == 'skin' else 0}}}"
        for zone in hardware.profile.thermal.zones
    ]
    devices = [
        f"\tCoolingDevice{{mValue={cluster.cooling_steps}, mType=2, mName=thermal-cpufreq-{cluster.cpus[0]}}}"
        for cluster in hardware.clusters()
    ]
    head = f"Thermal Status: {status}", "Current temperatures from HAL:"
    return "\n".join([*head, *rows, "Current cooling devices from HAL:", *devices])


def _dump_power(call: Invocation) -> str:
    is_on = call.system.state.screen_on
    return (
        "POWER MANAGER (dumpsys power)\n\nPower Manager State:\n"
        f"  mWakefulness={'Awake' if is_on else 'Asleep'}\n\n"
        f"Display Power: state={'ON' if is_on else 'OFF'}"
    )


def _window(call: Invocation) -> str:
    focus = "com.android.launcher/com.android.launcher.Launcher"
    running = _apps(call)
    if call.system.state.keyguard:
        focus = "StatusBar"
    elif running:
        focus = running[-1].argv[0]
    return (
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"  mCurrentFocus=Window{{a1b2c3 u0 {focus}}}"
    )


def _surfaceflinger(call: Invocation) -> str:
    gpu = call.system.hardware.profile.gpu
    return f"GLES: {gpu.gles}" if gpu else ""


def _apps(call: Invocation) -> list[Process]:
    apps = [process for process in call.system.processes.live() if process.group == "top-app"]
    # A shell's process that was moved to the cgroup is no app for that.
    return [process for process in apps if process.uid >= FIRST_APP_UID]


def _activity(call: Invocation) -> str:
    lines = ["ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)"]
    for process in _apps(call):
        package = call.system.packages.get(process.argv[0])
        component = package.component if package else process.argv[0]
        lines.append(f"    mResumedActivity: ActivityRecord{{{process.pid:x} u0 {component}}}")
    return "\n".join(lines)


def _deviceidle(call: Invocation) -> str:
    """Doze of a kind (``deep``, ``light``): enable, disable, enabled."""
    _, verb, kind = call.args
    off = call.system.state.doze_off
    if verb == "enabled":
        return str(int(kind not in off))
    (off.add if verb == "disable" else off.discard)(kind)
    return f"{kind.capitalize()} idle mode {verb}d"


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
