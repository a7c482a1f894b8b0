"""The delegates: what benchfarm knows of one, in one record that its module fills; a module for each, named
as a plan names it. Whoever needs to know something asks its record.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from orchestrator.frozen import frozen
from orchestrator.plugins import every
from orchestrator.records.case import Build, Companion, DelegateName, Skip
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import OPENGL, DelegateEvidence


class FlagFamily(enum.StrEnum):
    """Programs with flags in common."""

    BENCHMARK_MODEL = "benchmark_model"
    #: LiteRT's benchmark_model.
    LITERT = "litert"
    #: The ai-edge-litert package's program on this computer.
    LITERT_BENCHMARK = "litert-benchmark"
    #: LiteRT-LM's, which name the backend.
    LITERT_LM = "litert-lm"


ON_PHONES = frozenset({DeviceKind.ANDROID})
EVERYWHERE = frozenset(DeviceKind)


def serialized(folder: str, token: str) -> Mapping[str, str]:
    """Return the flags that make a delegate keep what it compiles; ``token`` names the model in the
    folder.
    """
    return {"delegate_serialize_dir": folder, "delegate_serialize_token": token}


@frozen
class Delegate:
    """Everything that depends on which delegate it is."""

    name: DelegateName
    #: As people write it: ``Core ML``.
    label: str
    #: The flags that it means, for each family of programs that has it; a run that was given them
    #: asked for it. ``use_xnnpack`` is always among benchmark_model's: without it the programs apply
    #: XNNPACK by themselves.
    flags: Mapping[FlagFamily, Mapping[str, str]]
    kinds: frozenset[DeviceKind] = ON_PHONES
    #: Where it is among those that are tried when a plan leaves the choice to benchfarm (``auto``).
    tried_on: frozenset[DeviceKind] = frozenset()
    #: Further flags that switch it, or a relative, on -> what that one is called in an output.
    switches: Mapping[str, str] = field(default_factory=dict)
    #: Whether a plan's flags have to name it: any of ``switches``.
    is_named_by_flag: bool = False
    #: Whether a phone with a profile has it only where the profile lists it.
    is_in_profiles: bool = False

    #: The runtime's own kernels, which nothing but the absence of all delegates proves.
    is_builtin: bool = False
    #: Whether the number of threads counts whatever it takes of a model.
    uses_threads: bool = False
    is_on_gpu: bool = False
    is_on_dsp: bool = False
    #: Whether its figures are of half precision with some flags.
    is_half: Callable[[Mapping[str, str]], bool] = lambda flags: False
    #: The flags that make it keep what it compiles or packs, for a folder and a model's token;
    #: None: it keeps nothing.
    cache_flags: Callable[[str, str], Mapping[str, str]] | None = None
    #: Whether it says that it used what it had kept.
    reports_cache: bool = False

    #: Why it can't run on an Android phone.
    skip: Callable[[DeviceFacts], Skip | None] = lambda facts: None
    #: Its own libraries, by the beginning of their names.
    library: re.Pattern[str] | None = None
    #: Whether a phone needs one of them.
    needs_library: Callable[[str, DeviceFacts], bool] = lambda name, facts: True
    #: Why a build without its libraries makes a run on a phone pointless.
    library_skip: Callable[[Build, DeviceFacts], Skip | None] = lambda build, facts: None

    #: Names in outputs, lower case, of it and its relatives -> benchfarm's word.
    called: Mapping[str, str] = field(default_factory=dict)
    #: Parameters that name it, spelled as programs echo them -> the flag each stands for.
    echoes: Mapping[str, str] = field(default_factory=dict)
    #: Beginnings of lines that say that it couldn't be had and the run goes on without it.
    unavailable: tuple[str, ...] = ()
    #: Names in outputs, and flags with a value (``gpu_backend=cl``) -> the interface through which
    #: that one drives the hardware, or is to do so.
    backends: Mapping[str, str] = field(default_factory=dict)


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
#: Flags with their values, each also with ``""``, which is any but those of _OFF.
Switch: TypeAlias = frozenset[tuple[str, str]]
#: Values of a flag that ask for nothing.
_OFF: Final = frozenset({"", "0", "false"})


def _switch(flags: Mapping[str, str]) -> Switch:
    return frozenset(
        (name, told)
        for name, value in flags.items()
        if value != "false"
        for told in ("", value.replace("true", ""))
    )


#: What switches a delegate on, and what that one is called in an output. LiteRT's flags for the CPU
#: ask for what the runtime does by itself.
SWITCHES: Final[Mapping[Switch, str]] = MappingProxyType(
    {
        _switch(flags): name
        for name, own in DELEGATES.items()
        if not name.is_cpu
        for flags in own.flags.values()
        if _switch(flags)
    }
    | {
        _switch({flag: ""}): called
        for own in DELEGATES.values()
        for flag, called in own.switches.items()
    }
)


def asked_for(flags: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the delegates that flags ask for, as outputs call them, and the names of the flags
    that do; of two by the same flags the one that says more.
    """
    on = {name: value for name, value in flags.items() if value.strip().lower() not in _OFF}
    given = {(name, told) for name, value in on.items() for told in ("", value.strip())}
    met = [switch for switch in SWITCHES if switch <= given]
    return {
        SWITCHES[switch]: frozenset(dict(switch))
        for switch in met
        if not any(switch < other for other in met)
    }


def delegates_of(family: FlagFamily, kind: DeviceKind) -> frozenset[DelegateName]:
    """Return the delegates that programs with these flags have on a kind of device."""
    return frozenset(
        name for name, own in DELEGATES.items() if family in own.flags and kind in own.kinds
    )


def is_on_gpu(name: str) -> bool:
    """Whether a delegate of this name, as a plan has it, runs on the GPU."""
    return any(own.is_on_gpu and own.name.value == name for own in DELEGATES.values())


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
