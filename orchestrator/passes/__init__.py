"""The passes: a module for each, named as a plan names it.

Whoever needs to know something asks its record. No record is loaded for the names alone, which a
command's help asks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PluginError, UsageError, nearest
from orchestrator.plugins import is_own, load, plugins
from orchestrator.records.case import Pass
from orchestrator.records.plan import Plan, PlanKey, keys_of

if TYPE_CHECKING:
    from orchestrator.passes.specification import PassServices, PassSpec, RunProgram
    from orchestrator.records.campaign import Invocation
    from orchestrator.records.run import RunRecord
    from orchestrator.tables.passes import PassTable

_OWN = tuple(item.value for item in Pass)


@functools.cache
def pass_of(name: Pass) -> PassSpec:
    """Return what is known of a pass.

    Raises UsageError for an unknown one, PluginError for a broken one.
    """
    from orchestrator.passes.specification import PassSpec

    if name.value not in pass_names():
        raise UsageError(f"there is no pass {name.value!r}", hint=known_hint(name.value))
    own = name.value in _OWN
    found = (
        import_module(f"{__name__}.{name.value}").PASS
        if own
        else load(plugins("passes")[name.value], PassSpec)
    )
    assert isinstance(found, PassSpec)
    if found.name is not name:
        raise PluginError(f"the pass {name.value!r} calls itself {found.name.value!r}")
    if not own and "." not in name.value and not is_own(plugins("passes")[name.value]):
        raise PluginError(
            f"the pass {name.value!r} of a plugin lacks a prefix and a dot before its name: acme.idle"
        )
    return found


def known_hint(name: str) -> str:
    """Return which pass that a plan may name may be meant."""
    names = plan_pass_names()
    return nearest(name, names) or f"there are {', '.join(names)}"


@functools.cache
def shown(name: Pass) -> PassSpec:
    """Return what is known of the pass of a stored run: nothing, where what brings it isn't
    installed any more.
    """
    if name.value in pass_names():
        return pass_of(name)
    from orchestrator.passes.specification import PassSpec

    def refuse(services: PassServices) -> RunProgram:
        raise UsageError(f"there is no pass {name.value!r}")

    return PassSpec(
        name=name,
        about="A pass of a package that isn't installed",
        runner=refuse,
    )


@functools.cache
def pass_names() -> tuple[str, ...]:
    """Return the names of all passes, in the order in which they are listed."""
    return (*_OWN, *(name for name in plugins("passes") if name not in _OWN))


def plan_pass_names() -> tuple[str, ...]:
    """Return those that a plan may name."""
    return tuple(name for name in pass_names() if name != Pass.REFERENCE)


def plan_keys() -> Mapping[str, PlanKey]:
    """Return the keys of a plan by their names as keywords; what its ``passes`` are, is said there."""
    keys = {key.keyword: key for key in keys_of(Plan)}
    first, *others = plan_pass_names()
    own = replace(keys["passes"].key, about=f"{first} (the default), {', '.join(others)} (a,b).")
    return {**keys, "passes": replace(keys["passes"], key=own)}


@functools.cache
def passes() -> tuple[PassSpec, ...]:
    """Return all passes, in the order in which they are listed, but a plugin's that is broken: who
    names it is told.
    """
    found = []
    for name in pass_names():
        with suppress(PluginError):
            found.append(pass_of(Pass(name)))
    return tuple(found)


def pass_tables() -> tuple[PassTable[Any], ...]:
    """Return the tables that passes have of their own, and that of the figures of the others."""
    from orchestrator.tables.passes import FURTHER

    return (*(own.table for own in passes() if own.table is not None), FURTHER)


def goes_on(item: Invocation | RunRecord) -> bool:
    """Whether something belongs to a pass that goes on for a stated time."""
    from orchestrator.passes.specification import Repetition

    return shown(item.run_pass).repetition is Repetition.FOR_A_TIME


def is_around_others(item: Invocation | RunRecord) -> bool:
    """Whether something belongs to the pass that is run around the others, to see whether the
    device changes.
    """
    return item.run_pass is Pass.REFERENCE
