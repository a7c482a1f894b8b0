"""What benchfarm knows of a delegate, in one record that its module fills."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.records.case import Build, DelegateName, Skip
from orchestrator.records.device import DeviceFacts, DeviceKind


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """Everything that depends on which delegate it is."""

    name: DelegateName
    #: As people write it: ``Core ML``.
    label: str
    #: The flags that it means, for each family of programs that has it. ``use_xnnpack`` is always
    #: among benchmark_model's: without it the programs apply XNNPACK by themselves.
    flags: Mapping[FlagFamily, Mapping[str, str]]
    kinds: frozenset[DeviceKind] = ON_PHONES
    #: Where it is among those that are tried when a plan leaves the choice to benchfarm (``auto``).
    tried_on: frozenset[DeviceKind] = frozenset()
    #: Flags that switch it, or a relative, on -> what that one is called in an output.
    switches: Mapping[str, str] = field(default_factory=dict)
    #: Whether a plan's flags have to name it: any of ``switches``.
    is_named_by_flag: bool = False

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
    #: Names in outputs -> the interface through which that one drives the hardware.
    backends: Mapping[str, str] = field(default_factory=dict)
