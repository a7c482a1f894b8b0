"""settings, svc, input, wm, cmd, service, screencap: what a shell tells the system's services."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from benchfarm_lab.commands.activity_commands import activity_command
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.package_commands import package_command
from benchfarm_lab.commands.registry import command
from benchfarm_lab.contract import SYSTEM_UID
from benchfarm_lab.settings import NAMESPACES

_ANDROID_11 = 30
_ANDROID_13 = 33
_SERVICES = ("activity", "battery", "connectivity", "deviceidle", "package", "power", "settings", "thermalservice",
             "uimode", "wifi", "window", "SurfaceFlinger", "display")  # fmt: skip


@command("settings")
def settings(call: Invocation) -> int:
    """Read and write settings."""
    return settings_command(call, call.args)


def settings_command(call: Invocation, args: Sequence[str]) -> int:
    """Do what ``settings args`` does."""
    rest = [arg for place, arg in enumerate(args) if arg != "--user" and (not place or args[place - 1] != "--user")]
    verb, namespace, name, *values = (*rest, "", "", "")[: max(3, len(rest))]
    if verb not in {"get", "put", "delete", "list", "reset"} or namespace not in NAMESPACES:
        call.error("Settings provider (settings) commands:\n  help\n      Print this help text.")
        return 255
    table = call.system.settings
    if verb == "list":
        for key, value in table.all(namespace).items():
            call.out.line(f"{key}={value}")
    elif not name:
        call.error("Bad arguments")
        return 255
    elif verb == "get":
        call.out.line(table.get(namespace, name) if table.get(namespace, name) is not None else "null")
    elif verb == "put":
        if not values:
            call.error("Bad arguments")
            return 255
        table.put(namespace, name, values[0])
    else:
        existed = table.get(namespace, name) is not None
        table.put(namespace, name, None)
        call.out.line(f"Deleted {int(existed)} rows")
    return 0


@command("svc")
def svc(call: Invocation) -> int:
    """Switch radios; keep the screen on."""
    service, verb, value = (*call.args, "", "", "")[:3]
    state, table = call.system.state, call.system.settings
    if service == "power" and verb == "stayon":
        bits = {"true": "7", "false": "0", "usb": "2", "ac": "1", "wireless": "4"}.get(value)
        if bits is not None:
            table.put("global", "stay_on_while_plugged_in", bits)
            if bits != "0":
                state.wake(call.system.time.uptime_s())
            return 0
    if service == "power" and verb == "reboot":
        call.system.on_reboot(value)
        return 0
    if service in {"wifi", "data", "bluetooth", "nfc"} and verb in {"enable", "disable"}:
        on = verb == "enable"
        if service == "wifi":
            state.wifi = on
            table.put("global", "wifi_on", str(int(on)))
        elif service == "data":
            state.mobile_data = on
            table.put("global", "mobile_data", str(int(on)))
        _switch_network(call)
        return 0
    call.error("Available commands:\n    help\n    power\n    data\n    wifi\n    usb\n    nfc\n    bluetooth")
    return 1


_KEYS: Mapping[str, str] = {
    "26": "POWER", "82": "MENU", "223": "SLEEP", "224": "WAKEUP", "3": "HOME", "4": "BACK", "66": "ENTER",
    "62": "SPACE",
}  # fmt: skip


@command("input")
def input_(call: Invocation) -> int:
    """Press keys: the power key and its kin switch the screen; a swipe or MENU takes an insecure keyguard away."""
    args = [arg for arg in call.args if arg not in {"keyboard", "touchscreen", "--longpress"}]
    state, now_s = call.system.state, call.system.time.uptime_s()
    if args[:1] == ["keyevent"]:
        for key in args[1:]:
            name = _KEYS.get(key, key.upper().removeprefix("KEYCODE_"))
            if name == "WAKEUP" or (name == "POWER" and not state.screen_on):
                state.wake(now_s)
            elif name in {"SLEEP", "POWER"}:
                state.lock()
            elif name == "MENU" and state.screen_on:
                state.keyguard = False
        return 0
    if args[:1] == ["swipe"] and state.screen_on:
        state.keyguard = False
        return 0
    if args[:1] in (["tap"], ["text"], ["swipe"], ["press"], ["roll"], ["motionevent"], ["draganddrop"]):
        return 0
    call.error(f"Error: Unknown command: {args[0] if args else ''}")
    return 255


@command("wm")
def wm(call: Invocation) -> int:
    """The screen's size and density; dismiss-keyguard."""
    verb, value = (*call.args, "", "")[:2]
    state = call.system.state
    if verb == "size":
        match = re.fullmatch(r"(\d+)x(\d+)", value)
        if match:
            state.size_override = (int(match.group(1)), int(match.group(2)))
        elif value == "reset":
            state.size_override = None
        elif not value:
            call.out.line("Physical size: {}x{}".format(*call.system.build.screen))
            if state.size_override is not None:
                call.out.line("Override size: {}x{}".format(*state.size_override))
        return 0
    if verb == "density":
        if value.isdigit():
            state.density_override = int(value)
        elif value == "reset":
            state.density_override = None
        else:
            call.out.line("Physical density: 440")
            if state.density_override is not None:
                call.out.line(f"Override density: {state.density_override}")
        return 0
    if verb == "dismiss-keyguard":
        state.wake(call.system.time.uptime_s())
        state.keyguard = False
        return 0
    call.error(f"Unknown command: {verb}")
    return 255


@command("cmd")
def cmd(call: Invocation) -> int:
    """Talk to a service."""
    args = [arg for arg in call.args if arg not in {"-w"}]
    if args[:1] == ["-l"]:
        call.out.line("Currently running services:")
        for service in _SERVICES:
            call.out.line(f"  {service}")
        return 0
    handler = _HANDLERS.get(args[0]) if args else None
    if handler is None:
        call.error(f"cmd: Can't find service: {args[0] if args else ''}")
        return 20
    return handler(call, args[1:])


def _switch_network(call: Invocation) -> None:
    state = call.system.state
    flying = call.system.settings.get("global", "airplane_mode_on") == "1"
    call.system.hardware.set_network(enabled=not flying and (state.wifi or state.mobile_data))


def _power(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["set-fixed-performance-mode-enabled"] and len(args) > 1 and args[1] in {"true", "false"}:
        if call.system.props.sdk < _ANDROID_11:
            call.error(f"Unknown command: {args[0]}")
            return 255
        call.system.state.fixed_performance = args[1] == "true"
        call.system.hardware.set_fixed_performance(enabled=args[1] == "true")
        return 0
    if args[:1] == ["set-mode"]:
        call.system.settings.put("global", "low_power", args[1] if len(args) > 1 else "0")
        return 0
    if args[:1] == ["set-adaptive-power-saver-enabled"]:
        return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


def _thermal(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["override-status"] and len(args) > 1:
        if not args[1].isdigit() or int(args[1]) > 6:
            call.error(f"Invalid status: {args[1]}")
            return 255
        call.system.state.thermal_override = int(args[1])
        return 0
    if args[:1] == ["reset"]:
        call.system.state.thermal_override = None
        return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


def _connectivity(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["airplane-mode"] and call.system.props.sdk >= _ANDROID_11:
        if len(args) == 1:
            call.out.line("enabled" if call.system.settings.get("global", "airplane_mode_on") == "1" else "disabled")
            return 0
        if args[1] in {"enable", "disable"}:
            call.system.settings.put("global", "airplane_mode_on", str(int(args[1] == "enable")))
            _switch_network(call)
            return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


def _uimode(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["night"]:
        if len(args) > 1:
            if args[1] not in {"yes", "no", "auto"}:
                call.error("Error: mode must be 'yes', 'no', or 'auto'")
                return 255
            call.system.state.night_mode = args[1]
        call.out.line(f"Night mode: {call.system.state.night_mode}")
        return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


def _battery(call: Invocation, args: Sequence[str]) -> int:
    from benchfarm_lab.commands.dumpsys import battery_command

    return battery_command(call, args)


def _wifi(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["set-wifi-enabled"] and len(args) > 1:
        call.system.state.wifi = args[1] == "enabled"
        call.system.settings.put("global", "wifi_on", str(int(call.system.state.wifi)))
        _switch_network(call)
        return 0
    call.out.line(f"Wifi is {'enabled' if call.system.state.wifi else 'disabled'}")
    return 0


def _deviceidle(call: Invocation, args: Sequence[str]) -> int:
    from benchfarm_lab.commands.dumpsys import deviceidle_command

    return deviceidle_command(call, args)


def _window(call: Invocation, args: Sequence[str]) -> int:
    return call.become(["/system/bin/wm", *args])


_HANDLERS: Mapping[str, Callable[[Invocation, Sequence[str]], int]] = {
    "package": package_command, "activity": activity_command, "power": _power, "thermalservice": _thermal,
    "connectivity": _connectivity, "uimode": _uimode, "settings": settings_command, "battery": _battery, "wifi": _wifi,
    "deviceidle": _deviceidle, "window": _window,
}  # fmt: skip


@command("service")
def service(call: Invocation) -> int:
    """List services."""
    if call.args[:1] == ["list"]:
        call.out.line(f"Found {len(_SERVICES)} services:")
        for place, name in enumerate(_SERVICES):
            call.out.line(f"{place}\t{name}: [android.os.I{name}]")
        return 0
    if call.args[:1] == ["check"] and len(call.args) > 1:
        call.out.line(f"Service {call.args[1]}: {'found' if call.args[1] in _SERVICES else 'not found'}")
        return 0
    call.error("service: Unknown command")
    return 10


@command("screencap", "screenrecord", "uiautomator", "monkey")
def refused(call: Invocation) -> int:
    """There are no pictures on this phone."""
    call.error(f"{call.name}: not available on a virtual phone")
    return 1


@command("stop", "start")
def framework(call: Invocation) -> int:
    """Stopping the framework, or a service of init's, is for root."""
    if call.uid != 0:
        call.error("Must be root")
        return 1
    for name in call.args:
        if f"init.svc.{name}" in call.system.props:
            call.system.props.set(f"init.svc.{name}", "running" if call.name == "start" else "stopped")
            if "thermal" in name:
                call.system.hardware.set_thermal_control(enabled=call.name == "start")
    return 0


@command("settaskprofile")
def settaskprofile(call: Invocation) -> int:
    """Give a process task profiles (Android 13 and later): it writes to cgroups, which are the system's own."""
    if len(call.args) < 2 or not call.args[0].isdigit():
        call.error("Usage: settaskprofile <tid> <profile> [... profileN]")
        return 1
    process = call.system.processes.find(int(call.args[0]))
    if call.system.props.sdk < _ANDROID_13 or process is None:
        call.error("settaskprofile: not there")
        return 127
    top = {"MaxPerformance", "CPUSET_SP_TOP_APP", "SCHED_SP_TOP_APP"} & set(call.args[1:])
    if top and call.uid not in {0, SYSTEM_UID}:
        call.error("Failed to set task profile")
        return 1
    if top:
        process.group = "top-app"
    return 0
