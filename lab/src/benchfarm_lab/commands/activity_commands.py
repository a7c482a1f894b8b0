"""am and ``cmd activity``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchfarm_lab.activities import ActivityMissingError, full_class, short_component
from benchfarm_lab.commands.invocation import Invocation
from benchfarm_lab.commands.registry import command

_EXTRA_TEXT = frozenset({"--es", "-e", "--esa", "--esal"})
_EXTRA_VALUE = frozenset({"--ez", "--ei", "--el", "--ef", "--eu", "--ecn", "--eia", "--eial", "--ela", "--efa", "--ed"})
_WITH_VALUE = frozenset({"-d", "-t", "-c", "-f", "--user", "-P", "--display", "--windowingMode", "-R", "-p",
                         "--attach-agent", "--start-profiler", "--sampling", "-i"})  # fmt: skip


@command("am")
def am(call: Invocation) -> int:
    """The activity manager."""
    return activity_command(call, call.args)


def activity_command(call: Invocation, args: Sequence[str]) -> int:
    """Do what ``am args`` and ``cmd activity args`` do."""
    if not args:
        call.out.line("Activity manager (activity) commands:\n  help\n      Print this help text.")
        return 1
    name, *rest = args
    match name:
        case "start" | "start-activity":
            return _start(call, rest)
        case "force-stop" | "kill":
            packages = [arg for arg in rest if not arg.startswith("-") and not arg.isdigit()]
            if not packages:
                call.error(
                    "Error: No package name specified"
                    if name == "kill"
                    else 'java.lang.IllegalArgumentException: Argument expected after "force-stop"'
                )
                return 255
            if name == "force-stop":
                call.system.activities.force_stop(packages[0], reason=f"from pid {call.process.pid}")
            return 0
        case "kill-all":
            return 0
        case "broadcast":
            shown = _Intent()
            _read_intent(call, rest, shown)
            call.out.line(f"Broadcasting: Intent {{ {shown.describe()} }}\nBroadcast completed: result=0")
            return 0
        case "get-current-user":
            call.out.line("0")
            return 0
        case "get-config":
            width, height = call.system.build.screen
            call.out.line(
                f"config: en-rUS-ldltr-sw{min(width, height) * 160 // 440}dp\nabi: arm64-v8a,armeabi-v7a,armeabi"
            )
            return 0
        case "get-started-user-state":
            call.out.line("RUNNING_UNLOCKED")
            return 0
        case "wait-for-broadcast-idle":
            call.out.line("All broadcast queues are idle!")
            return 0
        case "startservice" | "start-service" | "start-foreground-service" | "stopservice" | "stop-service":
            call.out.line("Starting service: Intent { }")
            call.error("Error: Not found; no service started.")
            return 255
        case "instrument":
            wanted = rest[-1] if rest else ""
            call.out.line(
                "INSTRUMENTATION_STATUS: id=ActivityManagerService\nINSTRUMENTATION_STATUS: Error=Unable to find "
                f"instrumentation info for: ComponentInfo{{{wanted}}}\nINSTRUMENTATION_STATUS_CODE: -1"
            )
            call.error(f"android.util.AndroidException: INSTRUMENTATION_FAILED: {wanted}")
            return 1
        case "stack" | "task" | "set-debug-app" | "clear-debug-app" | "set-inactive" | "set-standby-bucket":
            return 0
    call.error(f"Unknown command: {name}")
    return 255


@dataclass(slots=True)
class _Intent:
    """What ``am start`` was told."""

    component: str = ""
    action: str = ""
    categories: list[str] = field(default_factory=list)
    data: str = ""
    flags: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    #: Extras of other types: they count as extras but no program here reads them.
    other_extras: int = 0
    wait: bool = False
    stop_first: bool = False

    def describe(self) -> str:
        """Return it as Android prints an intent."""
        parts = []
        if self.action:
            parts.append(f"act={self.action}")
        if self.categories:
            parts.append(f"cat=[{','.join(self.categories)}]")
        if self.data:
            parts.append(f"dat={self.data}")
        if self.flags:
            parts.append(f"flg={self.flags}")
        if self.component:
            package, _, activity = self.component.partition("/")
            parts.append(f"cmp={short_component(package, activity)}")
        if self.extras or self.other_extras:
            parts.append("(has extras)")
        return " ".join(parts)


def _read_intent(call: Invocation, args: Sequence[str], intent: _Intent) -> str:
    """Read the arguments of an intent; return what is wrong with them."""
    todo = list(args)

    def value(name: str) -> str:
        if not todo:
            call.fail(f'Argument expected after "{name}"', 255)
        return todo.pop(0)

    while todo:
        arg = todo.pop(0)
        if arg in _EXTRA_TEXT:
            key = value(arg)
            intent.extras[key] = value(arg)
        elif arg in _EXTRA_VALUE:
            value(arg)
            value(arg)
            intent.other_extras += 1
        elif arg == "--esn":
            value(arg)
        elif arg == "-n":
            intent.component = value(arg)
            if "/" not in intent.component:
                return f"Bad component name: {intent.component}"
        elif arg == "-a":
            intent.action = value(arg)
        elif arg == "-c":
            intent.categories.append(value(arg))
        elif arg == "-d":
            intent.data = value(arg)
        elif arg == "-f":
            intent.flags = value(arg)
        elif arg in _WITH_VALUE:
            value(arg)
        elif arg in {"-W", "-S"}:
            intent.wait, intent.stop_first = intent.wait or arg == "-W", intent.stop_first or arg == "-S"
        elif arg in {"-D", "-N", "--streaming", "--activity-clear-top", "--activity-new-task", "--activity-clear-task",
                     "--grant-read-uri-permission", "--include-stopped-packages", "--activity-single-top"}:  # fmt: skip
            continue
        elif arg.startswith("-"):
            return f"Unknown option: {arg}"
        elif "/" in arg and ":" not in arg:
            intent.component = arg
        elif ":" in arg:
            intent.data = arg
        else:
            found = call.system.packages.get(arg)
            intent.component = f"{arg}/{found.info.activities[0]}" if found and found.info.activities else ""
            intent.action = intent.action or "android.intent.action.MAIN"
    return ""


def _start(call: Invocation, args: Sequence[str]) -> int:
    intent = _Intent()
    fault = _read_intent(call, args, intent)
    if fault:
        call.error(f"Exception occurred while executing 'start':\njava.lang.IllegalArgumentException: {fault}")
        return 255
    package, _, activity = intent.component.partition("/")
    shown = intent.describe()
    if intent.stop_first and package:
        call.out.line(f"Stopping: {package}")
        call.system.activities.force_stop(package, reason=f"from pid {call.process.pid}")
    call.out.line(f"Starting: Intent {{ {shown} }}")
    if not intent.component:
        call.error(f"Error: Activity not started, unable to resolve Intent {{ {shown} flg=0x10000000 }}")
        return 0
    begun_s = call.system.time.uptime_s()
    try:
        started = call.system.activities.start(
            package, activity, intent.extras, from_uid=call.uid, shown=f"flg=0x10000000 {shown}"
        )
    except ActivityMissingError:
        call.error(f"Error type 3\nError: Activity class {{{package}/{full_class(package, activity)}}} does not exist.")
        return 0
    if intent.wait:
        call.sleep(started.launch_ms / 1000)
        waited_ms = max(started.launch_ms, round((call.system.time.uptime_s() - begun_s) * 1000))
        call.out.line(
            f"Status: ok\nLaunchState: {'WARM' if started.warm else 'COLD'}\n"
            f"Activity: {short_component(package, activity)}\nTotalTime: {started.launch_ms}\n"
            f"WaitTime: {waited_ms}\nComplete"
        )
    return 0
