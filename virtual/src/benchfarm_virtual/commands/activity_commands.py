"""am."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchfarm_virtual.activities import ActivityMissingError, full_class, short_component
from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.commands.registry import command

#: Options that benchfarm doesn't send, with a value: the intent is started without what they say.
_WITH_VALUE = frozenset({"-c", "-d", "-f", "-t", "--user"})


@command("am")
def am(call: Invocation) -> int:
    """The activity manager."""
    name, *rest = call.args or ("",)
    match name:
        case "start":
            return _start(call, rest)
        case "force-stop" if rest:
            call.system.activities.force_stop(rest[0], reason=f"from pid {call.process.pid}")
            return 0
        case "broadcast":
            shown = _Intent()
            _read_intent(call, rest, shown)
            call.out.line(
                f"Broadcasting: Intent {{ {shown.describe()} }}\nBroadcast completed: result=0"
            )
            return 0
    call.error(f"Unknown command: {name}")
    return 255


@dataclass(slots=True)
class _Intent:
    """What ``am start`` was told."""

    component: str = ""
    action: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    wait: bool = False
    stop_first: bool = False

    def describe(self) -> str:
        """Return it as Android prints an intent."""
        parts = []
        if self.action:
            parts.append(f"act={self.action}")
        if self.component:
            package, _, activity = self.component.partition("/")
            parts.append(f"cmp={short_component(package, activity)}")
        if self.extras:
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
        if arg in {"--es", "--ez"}:
            key = value(arg)
            intent.extras[key] = value(arg)
        elif arg == "-n":
            intent.component = value(arg)
            if "/" not in intent.component:
                return f"Bad component name: {intent.component}"
        elif arg == "-a":
            intent.action = value(arg)
        elif arg in _WITH_VALUE:
            value(arg)
        elif arg in {"-W", "-S"}:
            intent.wait, intent.stop_first = (
                intent.wait or arg == "-W",
                intent.stop_first or arg == "-S",
            )
        else:
            return f"Unknown option: {arg}"
    return ""


def _start(call: Invocation, args: Sequence[str]) -> int:
    intent = _Intent()
    fault = _read_intent(call, args, intent)
    if fault:
        call.error(
            f"Exception occurred while executing 'start':\njava.lang.IllegalArgumentException: {fault}"
        )
        return 255
    package, _, activity = intent.component.partition("/")
    shown = intent.describe()
    if intent.stop_first and package:
        call.out.line(f"Stopping: {package}")
        call.system.activities.force_stop(package, reason=f"from pid {call.process.pid}")
    call.out.line(f"Starting: Intent {{ {shown} }}")
    if not intent.component:
        call.error(
            f"Error: Activity not started, unable to resolve Intent {{ {shown} flg=0x10000000 }}"
        )
        return 0
    begun_s = call.system.time.uptime_s()
    try:
        started = call.system.activities.start(
            package, activity, intent.extras, from_uid=call.uid, shown=f"flg=0x10000000 {shown}"
        )
    except ActivityMissingError:
        call.error(
            f"Error type 3\nError: Activity class {{{package}/{full_class(package, activity)}}} does not exist."
        )
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
