"""The delegates: a record for each with all its facts, in a module with its name in plans."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from orchestrator.installation import every
from orchestrator.records import frozen
from orchestrator.records.case import Build, Case, CaseKey, Companion, DelegateName, Skip
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
    """The facts of a delegate."""

    name: DelegateName
    #: Its name in texts: ``Core ML``.
    label: str
    #: The flags that request it, for each family of programs that has it. ``use_xnnpack`` is always
    #: among benchmark_model's: without it the programs apply XNNPACK by themselves.
    flags: Mapping[FlagFamily, Mapping[str, str]]
    kinds: frozenset[DeviceKind] = ON_PHONES
    #: The kinds of device on which a plan's ``auto`` tries it.
    tried_on: frozenset[DeviceKind] = frozenset()
    #: Further flags that switch on it or a related delegate -> the name of that one in an output.
    switches: Mapping[str, str] = field(default_factory=dict)
    #: Whether a plan's flags have to name it: any of ``switches``.
    is_named_by_flag: bool = False
    #: Whether a phone with a profile has it only where the profile lists it.
    is_in_profiles: bool = False

    #: The runtime's own kernels, which nothing but the absence of all delegates proves.
    is_builtin: bool = False
    #: Whether the number of threads matters even if it takes the whole model.
    uses_threads: bool = False
    is_on_gpu: bool = False
    is_on_dsp: bool = False
    #: Whether these flags make its figures half precision.
    is_half: Callable[[Mapping[str, str]], bool] = lambda flags: False
    #: The flags that make it cache what it compiles or packs, for a folder and a model's token;
    #: None: it has no cache.
    cache_flags: Callable[[str, str], Mapping[str, str]] | None = None
    #: Whether the output shows that it used its cache.
    reports_cache: bool = False

    #: Why it can't run on an Android phone.
    skip: Callable[[DeviceFacts], Skip | None] = lambda facts: None
    #: Its own libraries, by the beginning of their names.
    library: re.Pattern[str] | None = None
    #: Whether a phone needs one of them.
    needs_library: Callable[[str, DeviceFacts], bool] = lambda name, facts: True
    #: Why a build without its libraries makes a run on a phone pointless.
    library_skip: Callable[[Build, DeviceFacts], Skip | None] = lambda build, facts: None

    #: Names in outputs, lower case, of it and related delegates -> benchfarm's word.
    called: Mapping[str, str] = field(default_factory=dict)
    #: Parameters that name it, spelled as programs echo them -> the flag each stands for.
    echoes: Mapping[str, str] = field(default_factory=dict)
    #: Beginnings of lines which report that it is unavailable, and that the run continues without it.
    unavailable: tuple[str, ...] = ()
    #: Names in outputs, and flags with a value (``gpu_backend=cl``) -> the interface to the hardware
    #: that is used, or requested.
    backends: Mapping[str, str] = field(default_factory=dict)


class _Delegates(dict[DelegateName, Delegate]):
    def __missing__(self, name: DelegateName) -> Delegate:
        """Return a minimal record for a delegate whose plugin isn't installed any more, which
        stored runs may name.
        """
        if not name.is_of_plugin:
            raise KeyError(name)
        return Delegate(name=name, label=name.value, flags={}, kinds=frozenset())


#: Every delegate's record, in the order in which they are listed, benchfarm's own first.
DELEGATES: Final[Mapping[DelegateName, Delegate]] = MappingProxyType(
    _Delegates(
        {name: import_module(f"{__name__}.{name.value}").DELEGATE for name in DelegateName}
        | {
            record.name: record
            for name, record in every("delegates", Delegate, skips_broken=True).items()
            if record.name.is_of_plugin and record.name.value == name
        }
    )
)
#: LiteRT's name of a phone's hardware -> the delegate that uses it.
ACCELERATORS: Final[Mapping[str, DelegateName]] = {
    record.flags[FlagFamily.LITERT_LM]["backend"]: name
    for name, record in DELEGATES.items()
    if FlagFamily.LITERT_LM in record.flags
}
#: Flags with their values, each also with ``""``, which is any but those of _OFF.
Switch: TypeAlias = frozenset[tuple[str, str]]
#: Values that switch a flag off.
_OFF: Final = frozenset({"", "0", "false"})


def _switch(flags: Mapping[str, str]) -> Switch:
    return frozenset(
        (name, text)
        for name, value in flags.items()
        if value != "false"
        for text in ("", value.replace("true", ""))
    )


#: The flags that switch a delegate on -> its name in an output. LiteRT's flags for the CPU aren't
#: among them: they request the default.
SWITCHES: Final[Mapping[Switch, str]] = MappingProxyType(
    {
        _switch(flags): name
        for name, record in DELEGATES.items()
        if not name.is_cpu
        for flags in record.flags.values()
        if _switch(flags)
    }
    | {
        _switch({flag: ""}): called
        for record in DELEGATES.values()
        for flag, called in record.switches.items()
    }
)


def requested_delegates(flags: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the delegates that flags request, by their names in outputs, with the names of these
    flags; if the flags of one are a part of another's, only the other.
    """
    on = {name: value for name, value in flags.items() if value.strip().lower() not in _OFF}
    enabled = {(name, text) for name, value in on.items() for text in ("", value.strip())}
    met = [switch for switch in SWITCHES if switch <= enabled]
    return {
        SWITCHES[switch]: frozenset(dict(switch))
        for switch in met
        if not any(switch < other for other in met)
    }


def delegates_of(family: FlagFamily, kind: DeviceKind) -> frozenset[DelegateName]:
    """Return the delegates that programs with these flags have on a kind of device."""
    return frozenset(
        name
        for name, delegate in DELEGATES.items()
        if family in delegate.flags and kind in delegate.kinds
    )


def delegate_called(name: str) -> DelegateName | None:
    """Return the delegate that outputs, or benchfarm in its words for them, call by a name, or by
    the interface to its hardware; None for another name.
    """
    word = name.strip().lower()
    return next(
        (
            owner
            for owner, record in DELEGATES.items()
            if word in (owner, *record.called, *record.called.values(), *record.backends.values())
        ),
        None,
    )


def is_on_gpu(name: str) -> bool:
    """Whether a delegate of this name, as a plan has it, runs on the GPU."""
    return any(
        delegate.is_on_gpu and delegate.name.value == name for delegate in DELEGATES.values()
    )


def is_on_opengl(evidence: DelegateEvidence) -> bool:
    """Whether the GPU ran through OpenGL, which is slower than OpenCL and all that some phones have."""
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
    """Return the flags that request a delegate; none if programs of this family don't have it."""
    return DELEGATES[delegate].flags.get(family, {})


def needed_companions(
    build: Build, facts: DeviceFacts, delegate: DelegateName
) -> tuple[Companion, ...]:
    """Return the companions that a case needs, by name, without other delegates' and other chips'.

    A library whose name shows no delegate is always needed.
    """

    def is_needed(name: str) -> bool:
        owners = [
            record for record in DELEGATES.values() if record.library and record.library.match(name)
        ]
        matching = (record for record in owners if record.name is delegate)
        return not owners or any(record.needs_library(name, facts) for record in matching)

    needed = (item for item in build.companions if is_needed(item.name))
    return tuple(sorted(needed, key=lambda companion: companion.name))


def shared_case(case: Case) -> CaseKey | None:
    """Return the key that a case shares with its other thread counts.

    None where the thread count always matters.
    """
    if DELEGATES[case.delegate].uses_threads:
        return None
    return replace(case, threads=0).case_key
