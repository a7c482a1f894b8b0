"""settings, svc, input, cmd, stop, start: what a shell tells the system's services."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.package_commands import package_command
from benchfarm_virtual.commands.registry import command
from benchfarm_virtual.contract import SYSTEM_UID
from benchfarm_virtual.fault_kinds import FaultKind
from benchfarm_virtual.system import NAMESPACES

_WRITE = "android.permission.WRITE_SECURE_SETTINGS"
_ANDROID_11 = 30
_ANDROID_13 = 33


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
    verb, namespace, name, *values = (*call.args, "", "", "")[: max(3, len(call.args))]
    if verb not in {"get", "put", "delete", "list"} or namespace not in NAMESPACES:
        call.error("Settings provider (settings) commands:\n  help\n      Print this help text.")
        return 255
    table = call.system.settings
    if verb in {"put", "delete"} and _is_refused(
        call, f"Permission denial: writing to settings requires:{_WRITE}"
    ):
        return 255
    if verb == "list":
        for key, value in table.all(namespace).items():
            call.out.line(f"{key}={value}")
    elif not name:
        call.error("Bad arguments")
        return 255
    elif verb == "get":
        call.out.line(
            table.get(namespace, name) if table.get(namespace, name) is not None else "null"
        )
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
    if _is_refused(call, f"Permission denial: writing to settings requires:{_WRITE}"):
        return 255
    if service == "power" and verb == "stayon":
        bits = {"true": "7", "false": "0", "ac": "1", "usb": "2", "wireless": "4"}.get(value)
        if bits is not None:
            table.put("global", "stay_on_while_plugged_in", bits)
            if bits != "0":
                state.wake()
            return 0
    if service in {"wifi", "data"} and verb in {"enable", "disable"}:
        table.put(
            "global", "wifi_on" if service == "wifi" else "mobile_data", str(int(verb == "enable"))
        )
        return 0
    call.error(
        "Available commands:\n    help\n    power\n    data\n    wifi\n    usb\n    nfc\n    bluetooth"
    )
    return 1


@command("input")
def input_(call: Invocation) -> int:
    """Press keys that switch the screen; MENU takes an insecure keyguard away."""
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
            case "MENU" | "82" if state.screen_on:
                state.keyguard = False
    return 0


@command("cmd")
def cmd(call: Invocation) -> int:
    """Talk to a service."""
    args = list(call.args)
    handler = _HANDLERS.get(args[0]) if args else None
    if handler is None:
        call.error(f"cmd: Can't find service: {args[0] if args else ''}")
        return 20
    return handler(call, args[1:])


def _power(call: Invocation, args: Sequence[str]) -> int:
    if (
        args[:1] == ["set-fixed-performance-mode-enabled"]
        and len(args) > 1
        and args[1] in {"true", "false"}
    ):
        if call.system.props.sdk < _ANDROID_11:
            call.error(f"Unknown command: {args[0]}")
            return 255
        call.system.state.fixed_performance = args[1] == "true"
        call.system.hardware.set_fixed_performance(enabled=args[1] == "true")
        return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


def _connectivity(call: Invocation, args: Sequence[str]) -> int:
    if args[:1] == ["airplane-mode"] and call.system.props.sdk >= _ANDROID_11:
        if len(args) == 1:
            call.out.line(
                "enabled"
                if call.system.settings.get("global", "airplane_mode_on") == "1"
                else "disabled"
            )
            return 0
        if args[1] in {"enable", "disable"}:
            call.system.settings.put("global", "airplane_mode_on", str(int(args[1] == "enable")))
            return 0
    call.error(f"Unknown command: {args[0] if args else ''}")
    return 255


_HANDLERS: Mapping[str, Callable[[Invocation, Sequence[str]], int]] = {
    "package": package_command,
    "power": _power,
    "connectivity": _connectivity,
}


@command("stop", "start")
def framework(call: Invocation) -> int:
    """Stopping the framework, or a service of init's, is for root."""
    if call.uid != 0:
        call.error("Must be root")
        return 1
    for name in call.args:
        if f"init.svc.{name}" in call.system.props:
            call.system.props.set(
                f"init.svc.{name}", "running" if call.name == "start" else "stopped"
            )
            if "thermal" in name:
                call.system.hardware.set_thermal_control(enabled=call.name == "start")
    return 0


@command("settaskprofile")
def settaskprofile(call: Invocation) -> int:
    """Give a process task profiles (Android 13 and later): it writes to cgroups, which are the
    system's own.
    """
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
