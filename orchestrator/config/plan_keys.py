"""The keys of a plan that a command or a call may give: each once, with its type, its place and its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypedDict, TypeVar, get_type_hints

from orchestrator.errors import UsageError
from orchestrator.passes import passes
from orchestrator.plugins import plugins
from orchestrator.records.workload import USUAL_TOOL, ToolName

#: A value as a plan file has it before it is checked.
Written = str | list[Any] | dict[str, Any]
_ItemT = TypeVar("_ItemT")
OneOrMore: TypeAlias = _ItemT | Sequence[_ItemT]


def _text(value: object) -> Written:
    return "" if value is None else str(value)


def _on(value: object) -> Written:
    return "true" if value else ""


def _on_off(value: object) -> Written:
    return "" if value is None else str(bool(value)).lower()


def each(value: object) -> list[Any]:
    """Return one value, or several, as a list; none for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _texts(value: object) -> Written:
    return [str(item) for item in each(value)]


def split(value: object) -> list[str]:
    """Return names of which each text may hold several, joined by commas."""
    return [part.strip() for item in each(value) for part in str(item).split(",") if part.strip()]


def _models(value: object) -> Written:
    return [{"path": _path(item)} for item in each(value)]


def _path(value: object) -> str:
    return str(Path(str(value)).expanduser().absolute()) if value else ""


def _bounds(value: object) -> Written:
    """Return ``8-40`` as the first and the most."""
    first, dash, most = str("" if value is None else value).partition("-")
    return {"first": first.strip(), "most": most.strip()} if dash and first.strip() else first


def flags_of(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return ``name=value`` words as flags; raises UsageError."""
    try:
        found = _flags(list(words))
    except ValueError as error:
        raise UsageError(f"--flag: {error}") from error
    return tuple((name, str(value)) for given in found if isinstance(given, dict) for name, value in given.items())


def _flags(value: object) -> Written:
    """Return one set of ``name=value`` flags; raises ValueError."""
    if isinstance(value, Mapping):
        return [{str(name): str(item) for name, item in value.items()}] if value else []
    found: dict[str, str] = {}
    for flag in each(value):
        name, equals, text = str(flag).partition("=")
        if not equals:
            raise ValueError(f"{flag!r} lacks a value; write name=value")
        if name in found:
            raise ValueError(f"{name} is given twice; keep one of them")
        found[name] = text
    return [found] if found else []


def _builds(value: object) -> Written:
    return {tool: _path(build) if "/" in build else build for tool, build in dict(value or {}).items()}  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: where it stands in a plan (``matrix.threads``), and its option on the command line with its help."""

    path: str
    about: str
    write: Callable[[Any], Written] = _text
    #: The option's short name.
    short: str = ""
    #: Empty: the key's own name with dashes.
    option: str = ""

    @property
    def at(self) -> tuple[str, ...]:
        """Where it stands in a plan."""
        return tuple(self.path.split("."))


def _pass_help() -> str:
    first, *others = (own.name.value for own in passes() if own.is_in_plans)
    return f"{first} (the default), {', '.join(others)} (a,b)."


class PlanOptions(TypedDict, total=False):
    """What a plan may be made of without a file. Several values stand in a list, or in one text with commas."""

    name: Annotated[str | None, Key("name", "Name of the campaign (default: the models' names).")]
    models: Annotated[OneOrMore[str | Path], Key("models", "Model files (.tflite).", _models, option="model")]
    delegates: Annotated[
        OneOrMore[str],
        Key(
            "matrix.delegates",
            "cpu, xnnpack, gpu, nnapi, hexagon ... (a,b,c), or all (default: try what is there).",
            split,
            short="-d",
            option="--delegate",
        ),
    ]
    threads: Annotated[OneOrMore[int | str], Key("matrix.threads", "Thread counts (1,4).", split, short="-t")]
    every_thread_count: Annotated[
        bool,
        Key("matrix.every_thread_count", "Use each thread count also where the delegate takes all operators.", _on),
    ]
    passes: Annotated[
        OneOrMore[str],
        Key(
            "passes",
            _pass_help(),
            split,
            option="--pass",
        ),
    ]
    host: Annotated[bool, Key("devices.host", "Include this computer.", _on)]
    invocations: Annotated[
        str | int | None,
        Key("invocations", "Processes per case: N, or FIRST-MOST (default: 8-40).", _bounds, short="-n"),
    ]
    precision: Annotated[str | None, Key("precision", "Stop a case at this half width of its 95 % interval (2%).")]
    budget: Annotated[
        str | float | None,
        Key("budget", "Time of the whole campaign on each device (2h). Cases that don't fit are left out."),
    ]
    sustained: Annotated[str | float | None, Key("sustained", "Run processes without a pause for this time (30m).")]
    tools: Annotated[
        OneOrMore[str],
        Key(
            "matrix.tools",
            "native, apk, litert, perf-options, litert-native, litert-lm, litert-ios (a,b).",
            split,
            option="--tool",
        ),
    ]
    flags: Annotated[
        Mapping[str, object] | OneOrMore[str],
        Key("matrix.flags", "Flag of the program, name=value. Repeat for several.", _flags, option="--flag"),
    ]
    modes: Annotated[
        OneOrMore[str],
        Key("matrix.modes", "Run as foreground (apk), shell, top-app (native) (a,b).", split, option="--mode"),
    ]
    parity_inputs: Annotated[
        str | Path | None, Key("parity_inputs", "Folder with inputs for parity: MODEL.0.bin ...", _path)
    ]
    reference_check: Annotated[
        bool | None, Key("reference_check", "Measure a reference workload before and after: ~30 s per phone.", _on_off)
    ]
    reboot: Annotated[bool, Key("reboot", "Reboot a phone whose reference check moved.", _on)]
    devices: Annotated[
        OneOrMore[str],
        Key("devices.serials", "Serial number, or host. Repeat for several.", _texts, short="-s", option="--device"),
    ]
    profiles: Annotated[
        OneOrMore[str], Key("devices.profiles", "Device profile, for example pixel-4.", _texts, option="--profile")
    ]
    pools: Annotated[OneOrMore[str], Key("devices.pools", "Pools of phones.", _texts, option="--pool")]
    tags: Annotated[OneOrMore[str], Key("devices.tags", "Tags of phones.", _texts, option="--tag")]
    where: Annotated[OneOrMore[str], Key("devices.where", "Rule on device facts, for example 'android >= 13'.", _texts)]
    one_of_each: Annotated[
        str, Key("devices.one_of_each", "One matching phone for each value of a fact: profile, soc ...")
    ]
    at_most: Annotated[int | None, Key("devices.any", "Use at most N matching phones (default: all).", option="--any")]
    builds: Annotated[
        Mapping[str, str] | OneOrMore[str],
        Key(
            "builds",
            "Program to use: TOOL=NAME or TOOL=FILE, or NAME or FILE for a single tool. Repeat for several.",
            _builds,
            option="--build",
        ),
    ]
    num_runs: Annotated[int, Key("settings.num_runs", "Inferences per process, at least (default: 50).")]
    min_secs: Annotated[float | str, Key("settings.min_secs", "Seconds per process, at least (default: 1).")]
    max_secs: Annotated[float | str, Key("settings.max_secs", "Seconds per process, at most (default: 150).")]
    warmup_runs: Annotated[int, Key("settings.warmup_runs", "Inferences before, at least.")]
    warmup_min_secs: Annotated[float | str, Key("settings.warmup_min_secs", "Seconds of warm-up, at least.")]
    affinity: Annotated[str, Key("settings.affinity", "Cores to use: big (the default), all, or a hexadecimal mask.")]
    timeout: Annotated[float | str, Key("timeout", "Seconds per process beyond --max-secs (default: 120).")]
    order: Annotated[str | None, Key("order", "interleaved or sequential.")]
    seed: Annotated[int, Key("seed", "Seed for the order of invocations (default: 0).")]


@cache
def plan_keys() -> Mapping[str, Key]:
    """Return each key's place and words."""
    found = {name: hint.__metadata__[0] for name, hint in get_type_hints(PlanOptions, include_extras=True).items()}
    return {name: replace(key, option=key.option or f"--{name.replace('_', '-')}") for name, key in found.items()}


def builds_of(texts: Sequence[str], tools: Sequence[str]) -> dict[str, str]:
    """Return what ``--build`` means: tool -> name, sha256 or path of its program.

    A text is ``TOOL=NAME`` or, where one tool is used, ``NAME``.

    ``tools`` are those that were asked for; none of them means ``native``. Raises UsageError.
    """
    from orchestrator.config.declared_programs import declared_names

    # A declared program may be named by its file.
    tools = [Path(tool).stem if tool.endswith(".yaml") else tool for tool in tools]
    used = list(dict.fromkeys(tools)) or [USUAL_TOOL.value]
    found: dict[str, str] = {}
    for text in texts:
        tool, equals, build = text.partition("=")
        # A path may hold the sign as well; a tool's name holds no slash.
        if not equals or "/" in tool:
            tool, build = used[0], text
            if len(used) > 1:
                raise UsageError(
                    f"--build {text!r} doesn't say which of {', '.join(used)} it is for",
                    hint=f"write TOOL=NAME: --build {used[0]}={text}",
                )
        if (
            tool not in (known := [*dict.fromkeys([*ToolName, *plugins("programs"), *declared_names()])])
            and tool not in used
        ):
            raise UsageError(f"--build {text!r}: {tool!r} isn't a tool", hint=f"there are {', '.join(known)}")
        if not build:
            raise UsageError(f"--build {text!r} names no program", hint="for example --build native=./benchmark_model")
        if found.setdefault(tool, build) != build:
            raise UsageError(f"--build names two programs for {tool}: {found[tool]} and {build}", hint="keep one")
    if unused := [tool for tool in found if tools and tool not in used]:
        raise UsageError(
            f"--build is for {', '.join(unused)}, and --tool says {', '.join(used)}", hint="let both name the same tool"
        )
    return found
