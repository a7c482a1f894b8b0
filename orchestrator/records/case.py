"""A case (what is measured): a model, by a tool, with a delegate and threads, on one device; its keys, and
the load beside it in the pass ``contention``.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NewType, TypeAlias, TypeVar

from orchestrator.errors import UsageError
from orchestrator.records import frozen
from orchestrator.records.model import (
    FIGURE,
    PHASES,
    SIGNATURE,
    chosen_signature,
    is_language_model,
    worded,
)
from orchestrator.units import counted

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


# Each identity is a type of its own, so that a serial number can't be passed where a case key is
# meant.
Serial = NewType("Serial", str)
ModelSha = NewType("ModelSha", str)
BuildSha = NewType("BuildSha", str)
CaseKey = NewType("CaseKey", str)
SeriesKey = NewType("SeriesKey", str)
RunId = NewType("RunId", str)
CampaignId = NewType("CampaignId", str)


def content_key(value: object) -> str:
    """Return the sha256 of a value's canonical JSON: equal values, equal keys, on every host and
    version.
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def campaign_id_of(submission: str, serial: Serial) -> CampaignId:
    """Return the campaign id of one phone in a farm's submission, unique for the two.

    After the last ``_`` is the serial number, in which each ``_`` is escaped.
    """
    escaped = re.sub("[^A-Za-z0-9.-]", lambda match: f"~{ord(match[0]):x}~", serial)
    return CampaignId(f"{submission}_{escaped}")


def name_fits(pattern: str, names: Iterable[str]) -> bool:
    """Whether any of some names fits a pattern: ``*`` and ``?`` stand for any characters, capitals
    don't matter.
    """
    escaped = pattern.casefold().replace("[", "[[]")
    return any(fnmatchcase(name.casefold(), escaped) for name in names)


_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_CAMPAIGN_ID: Final = f"{_NAME}(_[A-Za-z0-9.~-]{{1,120}})?"
NAME_RULE: Final = "at most 100 letters, digits, dots, dashes and underscores"


def is_name(text: str) -> bool:
    """Whether a text can name a submission, a build or a run: names are parts of file names."""
    return bool(re.fullmatch(_NAME, text))


def is_campaign_id(text: str) -> bool:
    """Whether a text can be a campaign's id: a name, or one of :func:`campaign_id_of`."""
    return bool(re.fullmatch(_CAMPAIGN_ID, text))


def run_folder_name(run_id: str) -> str:
    """Return the name of a run's folder.

    Raises UsageError for an id that could lead out of its parent folder.
    """
    if not is_name(run_id):
        raise UsageError(f"{run_id!r} can't be a run's id: {NAME_RULE}")
    return str(run_id)


#: The name of a plugin's delegate or program: a prefix, a dot and a name (``acme.sleep``), so that it
#: never equals one of benchfarm's own, now or later.
_OF_PLUGIN: Final = re.compile(r"[a-z][a-z0-9-]{0,19}\.[a-z0-9][a-z0-9_-]{0,19}")


class _OpenName(enum.StrEnum):
    """Names of benchfarm's own, and those of plugins."""

    @classmethod
    def _missing_(cls, value: object) -> Any:  # noqa: ANN401 - a member of the subclass
        if not isinstance(value, str) or not cls._is_open(value):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        # Two threads may make it at once; all are to have the same.
        return cls._value2member_map_.setdefault(value, member)

    @classmethod
    def _is_open(cls, value: str) -> bool:
        return _OF_PLUGIN.fullmatch(value) is not None

    @property
    def is_of_plugin(self) -> bool:
        """Whether a plugin brings it."""
        return _OF_PLUGIN.fullmatch(self.value) is not None


class DelegateName(_OpenName):
    """Where the operators are asked to run. ``cpu`` is the builtin kernels, without XNNPACK."""

    CPU = "cpu"
    XNNPACK = "xnnpack"
    GPU = "gpu"
    NNAPI = "nnapi"
    HEXAGON = "hexagon"
    NPU = "npu"
    COREML = "coreml"
    EXTERNAL = "external"

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU: the builtin kernels or XNNPACK."""
        return self in (DelegateName.CPU, DelegateName.XNNPACK)


#: The prefix of a declared program's name in the store, so that it never equals one of benchfarm's
#: own, now or later.
DECLARED: Final = "declared:"
_DECLARED_NAME: Final = re.compile(DECLARED + r"[a-z][a-z0-9_.-]{0,39}")


class ToolName(_OpenName):
    """The program that measures: one of these, a plugin's, or one that a file declares
    (``declared:`` and its name).
    """

    NATIVE = "native"
    APK = "apk"
    LITERT = "litert"
    #: ``benchmark_model_performance_options``, a process for each case.
    PERF_OPTIONS = "perf-options"
    #: LiteRT's own ``benchmark_model`` (``benchmark_litert_model``) on a phone.
    LITERT_NATIVE = "litert-native"
    #: LiteRT-LM's ``litert_lm_advanced_main`` on a phone, its command ``litert-lm benchmark`` on
    #: this computer.
    LITERT_LM = "litert-lm"
    #: LiteRT's benchmark app on an iPhone, started over the cable.
    LITERT_IOS = "litert-ios"
    #: Sessions of LiteRT's device lab and lines of its leaderboard; both are imported.
    DEVICE_LAB = "device-lab"
    #: An imported text of unknown origin, printed by a program.
    TEXT = "text"

    @classmethod
    def _is_open(cls, value: str) -> bool:
        return super()._is_open(value) or _DECLARED_NAME.fullmatch(value) is not None

    def __str__(self) -> str:
        """Return the name for people."""
        return self.value.removeprefix(DECLARED)

    @property
    def is_declared(self) -> bool:
        """Whether a file declares it."""
        return self.value.startswith(DECLARED)

    @property
    def is_app(self) -> bool:
        """Whether it is an app of Android that benchfarm installs and starts, else an executable."""
        return self is ToolName.APK

    @property
    def is_session(self) -> bool:
        """Whether one process of it measures several cases."""
        return self is ToolName.LITERT_LM


#: The package of TensorFlow Lite's benchmark app, the program ``apk``.
APP_PACKAGE: Final = "org.tensorflow.lite.benchmark"
#: The runtime's own kernels.
BUILTIN: Final = DelegateName.CPU
#: The default delegate.
USUAL_DELEGATE: Final = DelegateName.XNNPACK
#: The default program for phones.
USUAL_TOOL: Final = ToolName.NATIVE
#: Programs that measure language models: their figures are of one token.
PER_TOKEN_TOOLS: Final = frozenset({ToolName.LITERT_LM, ToolName.DEVICE_LAB, ToolName.TEXT})
#: Programs that benchfarm reads the results of and never starts.
IMPORTED_TOOLS: Final = frozenset({ToolName.DEVICE_LAB, ToolName.TEXT})
#: Of them, those that give only summaries: these are checked for signs of heat.
SUMMARY_TOOLS: Final = frozenset({ToolName.DEVICE_LAB})


#: What a pass may be called; a third party's has a dot: ``acme.idle``.
_PASS_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,29}(?:\.[a-z][a-z0-9-]{0,29})?")


class Pass(_OpenName):
    """The purpose of an invocation: one of these, or one of a plugin.

    Any name can be read from a store; ``passes.pass_of`` says which there are.
    """

    TIMING = "timing"
    MEMORY = "memory"
    PROFILE = "profile"
    COLD = "cold"
    PARITY = "parity"
    SUSTAINED = "sustained"
    REFERENCE = "reference"

    @classmethod
    def _is_open(cls, value: str) -> bool:
        return _PASS_NAME.fullmatch(value) is not None


#: The pass that a case's figure comes from, and no other.
FIGURE_PASS: Final = Pass.TIMING
#: The pass that is added to a plan whose cases' outputs aren't known yet.
OUTPUT_CHECK_PASS: Final = Pass.PARITY
#: The pass that is run around the others.
REFERENCE_PASS: Final = Pass.REFERENCE


class ProcessMode(enum.StrEnum):
    """How the program runs: Android's scheduler treats the three differently, so their figures
    differ.
    """

    #: An app with its activity on the screen.
    FOREGROUND = "foreground"
    #: A child of adb's shell.
    SHELL = "shell"
    #: A child of adb's shell with the task profiles of the app on the screen.
    TOP_APP = "top-app"


@frozen
class Model:
    """A .tflite file or a language model's bundle, known by its content."""

    name: str
    sha256: ModelSha
    size_bytes: int
    #: Where the file is on this host; not part of its identity, None for a model known only from
    #: the store.
    path: Path | None = None
    #: Whether it has operators of TensorFlow's own (Flex), which the plain programs lack; no part
    #: of its identity.
    needs_flex: bool = field(default=False, compare=False)

    @property
    def is_language_model(self) -> bool:
        """Whether the file is a language model's bundle."""
        return is_language_model(self.path)


@frozen
class Companion:
    """A library that must lie beside a program on a phone, known by its content."""

    name: str
    sha256: str
    #: Where the file is on this host; None when it is known only from the store.
    path: Path | None = None


@frozen
class Build:
    """One binary or APK of a tool, known by its content."""

    name: str
    tool: ToolName
    sha256: BuildSha
    abi: str
    #: What the program says about itself, or its source; empty when unknown.
    version: str = ""
    #: The Android package of an APK, the bundle identifier of an iPhone's app; empty for a binary.
    package: str = ""
    #: True for fake binaries that only a virtual phone can run.
    is_virtual: bool = False
    path: Path | None = None
    #: Libraries that belong beside it; which of them a case needs depends on its delegate and
    #: phone.
    companions: tuple[Companion, ...] = ()


#: The key of an invocation and its run in a campaign: case, pass, number.
RunKey: TypeAlias = tuple[CaseKey, Pass, int]

#: Fields that a case's row has only where they aren't empty: cases without them keep their older key.
_LATER: Final = frozenset({"files", "mode"})


@dataclass(frozen=True, kw_only=True)
class Case:
    """One device x model x delegate x threads x tool x flags: what a number belongs to."""

    serial: Serial
    model_sha256: ModelSha
    model_name: str
    delegate: DelegateName
    #: -1 where the program chose, which only imported results have.
    threads: int
    tool: ToolName
    build_sha256: BuildSha
    #: Flags beside those that delegate, threads and pass imply, sorted by name.
    flags: tuple[tuple[str, str], ...] = ()
    num_runs: int = 50
    min_secs: float = 1.0
    max_secs: float = 150.0
    warmup_runs: int = 1
    warmup_min_secs: float = 0.5
    #: CPU mask as hexadecimal digits, ``big`` (the fastest cluster and those beside it, as probed)
    #: or ``all``.
    affinity: str = "big"
    #: Files placed beside the program, (name, sha256), sorted: libraries, and what flags name as
    #: ``@name``.
    files: tuple[tuple[str, str], ...] = ()
    #: None: as the program usually runs, see ``process_mode``.
    mode: ProcessMode | None = None

    @property
    def process_mode(self) -> ProcessMode:
        """How the program runs."""
        usual = ProcessMode.FOREGROUND if self.tool.is_app else ProcessMode.SHELL
        return self.mode or usual

    @cached_property
    def without_figure(self) -> Case:
        """The case without the figure of it: the same for all figures of one process."""
        return replace(self, flags=tuple(flag for flag in self.flags if flag[0] != FIGURE))

    @cached_property
    def series_key(self) -> SeriesKey:
        """The key over the nights: of the case without the contents of model, program and libraries.

        Cases of one series differ at most in the contents that a night tests.
        """
        row = self.to_row()
        for content in ("model_sha256", "build_sha256", "files"):
            row.pop(content, None)
        row["files"] = [name for name, _ in self.files]
        return SeriesKey(content_key(row)[:32])

    @cached_property
    def case_key(self) -> CaseKey:
        """The hash of everything that may change the number."""
        return CaseKey(content_key(self.to_row())[:32])

    @cached_property
    def outputs_key(self) -> str:
        """The hash of what decides a model's outputs on one system: neither threads nor cores nor
        how often it runs.
        """
        contents = self.model_sha256, self.delegate, self.tool, self.build_sha256
        return content_key([self.serial, *contents, self.flags, self.files or None])[:32]

    def to_row(self) -> dict[str, object]:
        """Return the case as plain JSON values."""
        row: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in _LATER and not value:
                continue
            if isinstance(value, enum.StrEnum):
                value = value.value
            elif isinstance(value, tuple):
                value = [list(pair) for pair in value]
            elif item.type == "float":
                # 1 and 1.0 are the same time, and the same case.
                value = float(value)
            row[item.name] = value
        return row

    @cached_property
    def subject(self) -> str:
        """What is measured of which model: figures of two subjects are never compared."""
        has_figures = self.tool in PER_TOKEN_TOOLS or self.tool.is_declared
        flags = dict(self.flags)
        figure = chosen_signature(flags.get(SIGNATURE, ""))
        if has_figures:
            figure = flags.get(FIGURE, figure)
        return f"{self.model_sha256} {figure}".rstrip()

    @cached_property
    def is_per_token(self) -> bool:
        """Whether its figure is the time of one token of a language model, shown as tokens per
        second.
        """
        if not self.flags:
            return False
        if self.tool.is_declared:
            # A file's results of these names are of tokens, and no others.
            return any((FIGURE, phase) in self.flags for phase in PHASES)
        return self.tool in PER_TOKEN_TOOLS and any(name == FIGURE for name, _ in self.flags)

    @property
    def threads_text(self) -> str:
        """``4 threads``, or that the program chooses."""
        return counted(self.threads, "thread") if self.threads > 0 else "its own threads"

    @cached_property
    def configuration(self) -> str:
        """The case without device and model, for people: ``xnnpack, 4 threads, native``."""
        flags = "".join(f", {name}={value}" for name, value in self.flags)
        if self.tool in PER_TOKEN_TOOLS and self.is_per_token:
            flags = f", {worded(dict(self.flags))}"
        mode = f", {self.mode.value}" if self.mode is not None else ""
        return f"{self.delegate.value}, {self.threads_text}, {self.tool}{mode}{flags}"


def all_but(*aspects: str) -> Callable[[Case], tuple[object, ...]]:
    """Return a function that gives a case's fields without these aspects, to group cases that differ
    in nothing else.
    """
    return attrgetter(*(field.name for field in fields(Case) if field.name not in aspects))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> defaultdict[Key, list[Item]]:
    """Return items by a key, in their order."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


@frozen
class Skip:
    """A reason not to run something, by a documented code."""

    reason_code: str
    reason: str


#: The code of a case whose program can't run in a pass; it may run in another one.
NOT_IN_TOOL: Final = "pass-not-in-tool"


@frozen
class SkippedCase:
    """A combination that the plan names and that isn't run, with the reason."""

    serial: Serial
    model_name: str
    delegate: DelegateName
    threads: int
    tool: ToolName
    #: Documented code, for example ``delegate-not-on-soc``.
    reason_code: str
    reason: str

    @classmethod
    def of(cls, case: Case, reason_code: str, reason: str) -> SkippedCase:
        """Return the record of a case that isn't run."""
        values = {
            item.name: getattr(case, item.name) for item in fields(cls) if hasattr(case, item.name)
        }
        return cls(**values, reason_code=reason_code, reason=reason)


#: The attachment in which a run's load is stated, and proven to have run.
LOAD_FILE: Final = "load"
NO_LOAD: Final = "none"
#: The default loads.
USUAL_LOADS: Final = ("cpu=4", "memory=2")
#: The code of a run whose load didn't run from its begin to its end.
LOAD_DIED: Final = "load-died"
_PART: Final = re.compile(r"(?P<kind>cpu|memory|gpu)=(?P<count>[1-9]\d?)")


@frozen
class Load:
    """The load beside a run: busy cores, processes that write memory, GPU loops."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0


def load_of(text: str) -> Load:
    """Return the load of a text such as ``cpu=4`` or ``cpu=2+memory=1``.

    Raises ValueError.
    """
    counts: dict[str, int] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or match["kind"] in counts:
            raise ValueError(
                f"{text!r} is no load; write cpu=4, memory=2, gpu=1, or several joined by +"
            )
        counts[match["kind"]] = int(match["count"])
    if counts.get("gpu", 0) > 1:
        raise ValueError(f"{text!r}: there is one GPU loop at most")
    return Load(**counts)
