"""Commands about apps: cmd package and pm, am."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchfarm_virtual.commands.invocation import Invocation, command
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.packages import ActivityMissingError, InstallRefusedError

#: From the request to the window, in phone time.
_LAUNCH_S: Final = 0.2


@command("pm")
def pm(call: Invocation) -> int:
    """The package manager."""
    return package_command(call, call.args)


def package_command(call: Invocation, args: Sequence[str]) -> int:
    """Do what ``pm args`` and ``cmd package args`` do."""
    name, *rest = args or ("",)
    if call.system.props.get("sys.boot_completed", "1") != "1":
        call.error("cmd: Can't find service: package")
        return 20
    match name:
        case "path":
            return _path(call, rest)
        case "install":
            return _install(call, rest)
        case "uninstall":
            return _uninstall(call, rest)
    call.error(f"Unknown command: {name}")
    return 255


def _path(call: Invocation, args: Sequence[str]) -> int:
    package = call.system.packages.get(args[-1] if args else "")
    if package is None:
        return 1
    call.out.line(f"package:{package.apk_path}")
    return 0


def _install(call: Invocation, args: Sequence[str]) -> int:
    """Install what is streamed: ``install [OPTIONS] -S SIZE``, over what is there."""
    size = args[args.index("-S") + 1] if "-S" in args[:-1] else ""
    if not size.isdigit():
        call.error("Error: must either specify a package size or an APK file")
        return 1
    apk = b""
    while len(apk) < int(size) and (piece := call.stdin.read(int(size) - len(apk))):
        apk += piece
    try:
        refused = call.system.faults.active(FaultKind.INSTALL_REFUSED)
        if refused is not None:
            raise InstallRefusedError(refused.text("text"))
        call.check_alive()
        package = call.system.packages.install(apk)
    except InstallRefusedError as exc:
        call.out.line(f"Failure [{exc}]")
        return 1
    name = package.info.package
    call.system.activities.force_stop(name)
    call.out.line("Success")
    return 0


def _uninstall(call: Invocation, args: Sequence[str]) -> int:
    name = args[-1] if args else ""
    call.system.activities.force_stop(name)
    if call.system.packages.uninstall(name):
        call.out.line("Success")
        return 0
    call.out.line("Failure [not installed for 0]")
    return 1


def dump_package(call: Invocation) -> str:
    """Return the output of ``dumpsys package NAME``."""
    name = call.args[-1]
    package = call.system.packages.get(name)
    if package is None:
        return f"Unable to find package: {name}"
    info = package.info
    return (
        f"Packages:\n  Package [{name}]:\n    versionCode={info.version_code} minSdk={info.min_sdk}\n"
        f"    versionName={info.version_name}"
    )


@command("am")
def am(call: Invocation) -> int:
    """The activity manager."""
    name, *rest = call.args or ("",)
    match name:
        case "start":
            return _start(call, rest)
        case "force-stop" if rest:
            call.system.activities.force_stop(rest[0])
            return 0
    call.error(f"Unknown command: {name}")
    return 255


def _start(call: Invocation, args: Sequence[str]) -> int:
    """Start an activity: ``-n COMPONENT``, ``--es NAME VALUE``, -S to stop it first, -W to wait."""
    component, extras, todo, waits, stops = "", dict[str, str](), list(args), False, False
    while todo:
        match todo:
            case ["--es", name, value, *todo]:
                extras[name] = value
            case ["-n", component, *todo]:
                pass
            case ["-W", *todo]:
                waits = True
            case ["-S", *todo]:
                stops = True
            case _:
                call.error(f"java.lang.IllegalArgumentException: Unknown option: {todo[0]}")
                return 255
    if "/" not in component:
        call.error(f"java.lang.IllegalArgumentException: Bad component name: {component}")
        return 255
    package, _, activity = component.partition("/")
    component = f"{package}/{activity.removeprefix(package)}"
    intent = f"cmp={component}" + (" (has extras)" if extras else "")
    if stops:
        call.out.line(f"Stopping: {package}")
        call.system.activities.force_stop(package)
    call.out.line(f"Starting: Intent {{ {intent} }}")
    try:
        call.system.activities.start(component, extras)
    except ActivityMissingError:
        call.error(f"Error type 3\nError: Activity class {{{component}}} does not exist.")
        return 0
    if waits:
        call.sleep(_LAUNCH_S)
        call.out.line(f"Status: ok\nActivity: {component}\nComplete")
    return 0
