"""The passes: a module for each, named as a plan names it.

Everything about a pass is in its record. The names alone, which a command's help shows, load none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.errors import PluginError, UsageError, choices
from orchestrator.installation import is_own, load, plugins
from orchestrator.records.case import Pass
from orchestrator.records.plan import Plan, PlanKey, keys_of

if TYPE_CHECKING:
    from orchestrator.passes.specification import PassServices, PassSpec, RunProgram
    from orchestrator.records.campaign import Invocation
    from orchestrator.records.run import RunRecord
    from orchestrator.tables.passes import PassTable

_BUILTIN = tuple(item.value for item in Pass)


@functools.cache
def pass_of(name: Pass) -> PassSpec:
    """Return the record of a pass.

    Raises UsageError for an unknown one, PluginError for a broken one.
    """
    from orchestrator.passes.specification import PassSpec

    if name.value not in pass_names():
        raise UsageError(
            f"there is no pass {name.value!r}", hint=choices(name.value, plan_pass_names())
        )
    is_builtin = name.value in _BUILTIN
    pass_spec = (
        import_module(f"{__name__}.{name.value}").PASS
        if is_builtin
        else load(plugins("passes")[name.value], PassSpec)
    )
    assert isinstance(pass_spec, PassSpec)
    if pass_spec.name is not name:
        raise PluginError(f"the pass {name.value!r} calls itself {pass_spec.name.value!r}")
    if not is_builtin and "." not in name.value and not is_own(plugins("passes")[name.value]):
        raise PluginError(
            f"the pass {name.value!r} of a plugin lacks a prefix and a dot before its name: acme.idle"
        )
    return pass_spec


@functools.cache
def stored_pass(name: Pass) -> PassSpec:
    """Return the record of a stored run's pass; an empty one where the pass isn't installed."""
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
    return (*_BUILTIN, *(name for name in plugins("passes") if name not in _BUILTIN))


def plan_pass_names() -> tuple[str, ...]:
    """Return the names of the passes that a plan may name."""
    return tuple(name for name in pass_names() if name != Pass.REFERENCE)


def plan_keys() -> Mapping[str, PlanKey]:
    """Return the keys of a plan by their keywords; ``passes`` lists the passes."""
    keys = {key.keyword: key for key in keys_of(Plan)}
    first, *further = plan_pass_names()
    passes_key = replace(
        keys["passes"].key, about=f"{first} (the default), {', '.join(further)} (a,b)."
    )
    return {**keys, "passes": replace(keys["passes"], key=passes_key)}


@functools.cache
def passes() -> tuple[PassSpec, ...]:
    """Return all passes in their order, without a plugin's broken ones: naming one is an error."""
    specs = []
    for name in pass_names():
        with suppress(PluginError):
            specs.append(pass_of(Pass(name)))
    return tuple(specs)


def pass_tables() -> tuple[PassTable[Any], ...]:
    """Return the passes' own tables, and the table of the other passes' figures."""
    from orchestrator.tables.passes import FIGURES_TABLE

    return (
        *(pass_spec.table for pass_spec in passes() if pass_spec.table is not None),
        FIGURES_TABLE,
    )


def is_sustained(item: Invocation | RunRecord) -> bool:
    """Whether an invocation or run belongs to a pass that runs for a stated time."""
    from orchestrator.passes.specification import Repetition

    return stored_pass(item.run_pass).repetition is Repetition.FOR_A_TIME


def is_reference_run(item: Invocation | RunRecord) -> bool:
    """Whether an invocation or run is of the reference workload, which shows device changes."""
    return item.run_pass is Pass.REFERENCE
