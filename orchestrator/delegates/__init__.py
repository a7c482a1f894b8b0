"""The delegates: a module for each, named as a plan names it. Whoever needs to know something asks its record."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from orchestrator.delegates.specification import Delegate, FlagFamily
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.workload import Build, Companion, DelegateName

#: Every delegate's record, in the order in which they are listed.
DELEGATES: Final[Mapping[DelegateName, Delegate]] = MappingProxyType(
    {name: import_module(f"{__name__}.{name.value}").DELEGATE for name in DelegateName}
)
#: Flags that switch a delegate on, and what it is called in an output.
ENABLING_FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    {flag: called for delegate in DELEGATES.values() for flag, called in delegate.switches.items()}
)


def delegates_of(family: FlagFamily, kind: DeviceKind) -> frozenset[DelegateName]:
    """Return the delegates that programs with these flags have on a kind of device."""
    return frozenset(name for name, own in DELEGATES.items() if family in own.flags and kind in own.kinds)


def flags_of(delegate: DelegateName, family: FlagFamily) -> Mapping[str, str]:
    """Return the flags that a delegate means; none for one that programs with these flags don't have."""
    return DELEGATES[delegate].flags.get(family, {})


def needed_companions(build: Build, facts: DeviceFacts, delegate: DelegateName) -> tuple[Companion, ...]:
    """Return the companions that a case needs, by name: another delegate's or another chip's aren't placed.

    A library whose use isn't known from its name is needed always.
    """

    def is_needed(name: str) -> bool:
        owner = next((own for own in DELEGATES.values() if own.library and own.library.match(name)), None)
        return owner is None or (owner.name is delegate and owner.needs_library(name, facts))

    needed = (item for item in build.companions if is_needed(item.name))
    return tuple(sorted(needed, key=lambda companion: companion.name))
