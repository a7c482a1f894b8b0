"""A plan made of command-line options, checked by the same rules as a plan file, and its text as such a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from orchestrator.config.faults import Faults
from orchestrator.config.plan import to_plan
from orchestrator.config.yaml_file import Location, Value, format_location
from orchestrator.records.plan import Plan

#: Where a value of the plan comes from on the command line; others are called as in a file.
#: Characters of a model's name that a campaign is called after.
_NAME_SHOWN: Final = 80
_OPTIONS: Final[Mapping[Location, str]] = {
    ("name",): "--name",
    ("models",): "model",
    ("matrix", "delegates"): "--delegate",
    ("matrix", "threads"): "--threads",
    ("matrix", "tools"): "--tool",
    ("matrix", "flags"): "--flag",
    ("matrix", "modes"): "--mode",
    ("invocations",): "--invocations",
    ("devices", "serials"): "--serial",
    ("devices", "profiles"): "--profile",
    ("devices", "pools"): "--pool",
    ("devices", "tags"): "--tag",
    ("devices", "where"): "--where",
    ("passes",): "--pass",
    ("parity_inputs",): "--parity-inputs",
    ("builds",): "--build",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSource:
    """Values given as options; a location is told as the option that it came from."""

    value: dict[str, Value]
    label: str = "command line"

    def describe(self, location: Location, *, at_key: bool = False) -> str:
        """Return the option that a location came from."""
        for length in range(len(location), 0, -1):
            if location[:length] in _OPTIONS:
                return _OPTIONS[location[:length]]
        last = next((part for part in reversed(location) if isinstance(part, str)), "")
        return f"--{last.replace('_', '-')}" if last else format_location(location)


def plan_from_options(
    *,
    models: Sequence[str | Path],
    delegates: Sequence[str] = (),
    threads: Sequence[str | int] = (),
    tools: Sequence[str] = (),
    flags: Sequence[str] = (),
    modes: Sequence[str] = (),
    every_thread_count: bool = False,
    serials: Sequence[str] = (),
    profiles: Sequence[str] = (),
    pools: Sequence[str] = (),
    tags: Sequence[str] = (),
    where: Sequence[str] = (),
    one_of_each: str = "",
    at_most: int | None = None,
    host: bool = False,
    passes: Sequence[str] = (),
    builds: Mapping[str, str] | None = None,
    settings: Mapping[str, str | float | int] | None = None,
    limits: Mapping[str, str | float | int] | None = None,
    name: str | None = None,
    invocations: int | str | None = None,
    precision: str | None = None,
    budget: str | None = None,
    sustained: str | None = None,
    parity_inputs: str | None = None,
    sentinel: bool | None = None,
    reboot: bool = False,
    order: str | None = None,
    seed: int | str | None = None,
    timeout: str | float | None = None,
) -> Plan:
    """Return the plan that options mean; ``plan.text`` is a plan file that means the same from any folder.

    Args:
        models: Paths from the current folder; taken as they are, the shell has expanded patterns.
        delegates: Names; each text may hold several, joined by commas. So may ``threads``, ``tools`` and ``passes``.
        threads: Numbers of threads.
        tools: Names of benchmark programs.
        flags: ``name=value`` each; all of them make one set that every case has.
        modes: As what the program runs; names, joined by commas too.
        every_thread_count: Also measure a delegate that takes all operators with each number of threads.
        serials: Devices, as ``profiles``, ``pools``, ``tags`` and ``where`` (see DeviceSelection).
        profiles: Names of device profiles.
        pools: Names of pools.
        tags: Tags.
        where: Predicates on a device's facts.
        one_of_each: A fact: of the phones that fit, one for each of its values.
        at_most: So many of the phones that fit; None: all.
        host: Also measure on this computer.
        passes: Passes, ``timing`` when empty.
        builds: Tool -> name of a build or path of a file.
        settings: Keys of a plan's ``settings``.
        limits: Keys of a plan's ``limits``.
        name: What the plan is called; after its models when None.
        invocations: Of each case, a fixed number; ``8-40`` are the first and the most of as many as are needed.
        precision: Half width of the interval at which a case has enough, as a share (``2 %``).
        budget: For all that is added to the first invocations, on one device.
        sustained: How long the pass ``sustained`` goes on.
        parity_inputs: Folder with inputs for the pass ``parity``.
        sentinel: Whether the reference workload brackets the campaign.
        reboot: Whether a phone whose reference workload moved may be booted anew.
        order: ``interleaved`` or ``sequential``.
        seed: Of the order.
        timeout: Of one invocation, in seconds or with a unit.

    Raises:
        PlanError: with one line for each fault, which names the option.
    """
    name = _name_of([Path(path).stem for path in models]) if name is None else name
    matrix: dict[str, Value] = {
        "delegates": _split(delegates),
        "threads": _split(threads),
        "tools": _split(tools),
        "modes": _split(modes),
        "every_thread_count": "true" if every_thread_count else "",
    }
    devices: dict[str, Value] = {
        "serials": list(serials),
        "profiles": list(profiles),
        "pools": list(pools),
        "tags": list(tags),
        "where": list(where),
        "one_of_each": one_of_each,
        "any": _text(at_most),
        "host": "true" if host else "",
    }
    value: dict[str, Value] = {
        "name": name,
        "models": [{"path": str(Path(path).expanduser().absolute())} for path in models],
        "matrix": matrix,
        "devices": devices,
        "settings": _texts(settings),
        "limits": _texts(limits),
        "passes": _split(passes),
        "invocations": _bounds(_text(invocations)),
        "precision": _text(precision),
        "budget": _text(budget),
        "sustained": _text(sustained),
        "parity_inputs": str(Path(parity_inputs).expanduser().absolute()) if parity_inputs else "",
        "sentinel": {None: "", True: "true", False: "false"}[sentinel],
        "reboot": "true" if reboot else "",
        "order": _text(order),
        "seed": _text(seed),
        "timeout": _text(timeout),
        "builds": {tool: _absolute(build) for tool, build in (builds or {}).items()},
    }
    matrix["flags"] = [_flag_set(flags, OptionSource(value={}))] if flags else []
    # An empty name is a mistake, not a name that wasn't given.
    given = _without_empty(value) | {"name": name}
    if not models:
        given["models"] = []
    source = OptionSource(value=given)
    text = yaml.dump(_plain(given), Dumper=_PlanDumper, sort_keys=False, allow_unicode=True, width=10_000)
    return to_plan(source, text=text, folder=Path.cwd(), default_name=name)


def _name_of(models: Sequence[str]) -> str:
    """Return a name that tells measurements apart: the model's, and how many more there are."""
    first = "".join(letter if letter.isprintable() else "?" for letter in "".join(models[:1]))[:_NAME_SHOWN].strip()
    return f"{first or 'bench'} and {len(models) - 1} more" if len(models) > 1 else first or "bench"


class _PlanDumper(yaml.SafeDumper):
    """Quotes and escapes what isn't printable: in other styles some line ends would be folded to spaces."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Return the node of a text."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_PlanDumper.add_representer(str, _PlanDumper.represent_text)


def _plain(value: Value) -> object:
    """Return what YAML writes without quotes where that reads as the same text again: ``4`` and not ``'4'``."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case "true" | "false":
            return value == "true"
        case str() if re.fullmatch(r"0|[1-9]\d{0,15}", value, re.ASCII):
            return int(value)
        case _:
            return value


def _split(values: Sequence[str | int]) -> list[Value]:
    return [part.strip() for value in values for part in str(value).split(",") if part.strip()]


def _text(value: float | str | None) -> str:
    return "" if value is None else str(value)


def _bounds(text: str) -> Value:
    first, dash, most = text.partition("-")
    return {"first": first.strip(), "most": most.strip()} if dash and first.strip() else text


def _texts(values: Mapping[str, str | float | int] | None) -> dict[str, Value]:
    return {key: str(value) for key, value in (values or {}).items()}


def _absolute(build: str) -> str:
    return str(Path(build).expanduser().absolute()) if "/" in build else build


def _flag_set(flags: Sequence[str], source: OptionSource) -> dict[str, Value]:
    """Return ``name=value`` flags as a mapping."""
    faults = Faults(source)
    found: dict[str, Value] = {}
    for flag in flags:
        flag_name, equals, flag_value = flag.partition("=")
        if not equals:
            faults.add(("matrix", "flags"), f"{flag!r} lacks a value; write name=value")
        elif flag_name in found:
            faults.add(("matrix", "flags"), f"{flag_name} is given twice; keep one of them")
        found[flag_name] = flag_value
    faults.raise_if_any()
    return found


def _without_empty(value: dict[str, Value]) -> dict[str, Value]:
    """Leave out what wasn't given, so that the text shows what was asked for."""
    found: dict[str, Value] = {}
    for key, item in value.items():
        kept = _without_empty(item) if isinstance(item, dict) else item
        if kept:
            found[key] = kept
    return found
