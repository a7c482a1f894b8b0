"""A plan made of command-line options, checked by the same rules as a plan file, and its text as such a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Unpack

import yaml

from orchestrator.config.faults import Faults, OptionSource
from orchestrator.config.plan import to_plan
from orchestrator.config.plan_keys import PlanOptions, builds_of, each, plan_keys, split
from orchestrator.config.yaml_file import Location, Value
from orchestrator.errors import UsageError
from orchestrator.records.plan import Plan

#: Characters of a model's name that a campaign is called after.
_NAME_SHOWN: Final = 80


def plan_from_options(**options: Unpack[PlanOptions]) -> Plan:
    """Return the plan that options mean; ``plan.text`` is a plan file that means the same from any folder.

    Paths are from the current folder, and taken as they are: the shell has expanded patterns.

    Raises:
        PlanError: with one line for each fault, which names the option.
        UsageError: a build that is of no tool in use.
    """
    return _plan(options, {key.at: key.option for key in plan_keys().values()}, "command line")


def plan_from_keywords(**options: Unpack[PlanOptions]) -> Plan:
    """Return the plan that keyword arguments mean; as :func:`plan_from_options`, but faults name the argument.

    Raises UsageError, too, for a keyword that isn't known.
    """
    unknown = options.keys() - plan_keys().keys()
    if unknown:
        known = ", ".join(sorted(plan_keys()))
        raise UsageError(f"there is no option {', '.join(sorted(unknown))}", hint=f"there are {known}")
    return _plan(options, {key.at: name for name, key in plan_keys().items()}, "options")


def _plan(options: PlanOptions, names: Mapping[Location, str], label: str) -> Plan:
    source = OptionSource(label=label, names=names)
    faults = Faults(source)
    given: dict[str, Any] = {"models": [], **options}
    if given.get("name") is None:
        given["name"] = _name_of([Path(path).stem for path in each(given["models"])])
    if given.get("sustained") and not given.get("passes"):
        given["passes"] = ["sustained"]
    builds = given.get("builds") or {}
    if not isinstance(builds, Mapping):
        given["builds"] = builds_of([builds] if isinstance(builds, str) else builds, split(given.get("tools")))
    value = source.value
    for name, key in plan_keys().items():
        if name not in given:
            continue
        try:
            written = key.write(given[name])
        except ValueError as error:
            faults.add(key.at, str(error))
            continue
        # What is empty wasn't asked for; an empty name is a mistake, and so is no model.
        if written or name in {"name", "models"}:
            section = value
            for part in key.at[:-1]:
                section = section.setdefault(part, {})  # type: ignore[assignment]
            section[key.at[-1]] = written
    faults.raise_if_any()
    text = yaml.dump(_plain(value), Dumper=_PlanDumper, sort_keys=False, allow_unicode=True, width=10_000)
    return to_plan(source, text=text, folder=Path.cwd(), default_name=str(given["name"]))


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
