"""The delegates: a module for each, named as a plan names it.

Whoever needs to know something asks its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from orchestrator.delegates.specification import Delegate, FlagFamily
from orchestrator.plugins import every
from orchestrator.records.case import Build, Companion, DelegateName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import OPENGL, DelegateEvidence


class _Delegates(dict[DelegateName, Delegate]):
    def __missing__(self, name: DelegateName) -> Delegate:
        """Return what is known of a delegate whose plugin isn't installed any more: stored runs
        name it.
        """
        if not name.is_of_plugin:
            raise KeyError(name)
        return Delegate(name=name, label=name.value, flags={}, kinds=frozenset())


#: Every delegate's record, in the order in which they are listed, benchfarm's own first.
DELEGATES: Final[Mapping[DelegateName, Delegate]] = MappingProxyType(
    _Delegates(
        {name: import_module(f"{__name__}.{name.value}").DELEGATE for name in DelegateName}
        | {
            own.name: own
            for name, own in every("delegates", Delegate, skips_broken=True).items()
            if own.name.is_of_plugin and own.name.value == name
        }
    )
)
#: Flags that switch a delegate on, and what it is called in an output.
ENABLING_FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    {flag: called for delegate in DELEGATES.values() for flag, called in delegate.switches.items()}
)


def delegates_of(family: FlagFamily, kind: DeviceKind) -> frozenset[DelegateName]:
    """Return the delegates that programs with these flags have on a kind of device."""
    return frozenset(
        name for name, own in DELEGATES.items() if family in own.flags and kind in own.kinds
    )


def is_on_gpu(name: str) -> bool:
    """Whether a delegate of this name, as a plan has it, runs on the GPU."""
    return any(own.is_on_gpu for delegate, own in DELEGATES.items() if delegate.value == name)


def is_on_opengl(evidence: DelegateEvidence) -> bool:
    """Whether the GPU was driven through OpenGL: slower than OpenCL, and all that some phones have."""
    return evidence.backend == OPENGL.lower() and any(map(is_on_gpu, evidence.actual.split("+")))


def place_of(evidence: DelegateEvidence) -> str:
    """Return where the operators ran, for people: ``actual``, with the GPU's backend where it isn't
    the usual one.
    """
    if not is_on_opengl(evidence):
        return evidence.actual
    names = evidence.actual.split("+")
    return "+".join(f"{name} ({OPENGL})" if is_on_gpu(name) else name for name in names)


def flags_of(delegate: DelegateName, family: FlagFamily) -> Mapping[str, str]:
    """Return the flags that a delegate means; none for one that programs with these flags don't
    have.
    """
    return DELEGATES[delegate].flags.get(family, {})


def needed_companions(
    build: Build, facts: DeviceFacts, delegate: DelegateName
) -> tuple[Companion, ...]:
    """Return the companions that a case needs, by name: another delegate's or another chip's aren't
    placed.

    A library whose use isn't known from its name is needed always.
    """

    def is_needed(name: str) -> bool:
        owners = [own for own in DELEGATES.values() if own.library and own.library.match(name)]
        mine = (own for own in owners if own.name is delegate)
        return not owners or any(own.needs_library(name, facts) for own in mine)

    needed = (item for item in build.companions if is_needed(item.name))
    return tuple(sorted(needed, key=lambda companion: companion.name))
