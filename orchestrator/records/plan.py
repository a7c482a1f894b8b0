"""A plan: each key once, with its type and bounds, its default, its help and its option.

These records are what a plan file is checked against, what a command's options and a Python call's
keywords are made from, what the JSON schema and the table of keys are written from, and what a
campaign keeps. What a key needs to know beyond its own text (files, programs, facts of phones) is a
rule that the reader of the file gives (``config.plan``).
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema

from orchestrator.fields import (
    NO_KEY,
    SOME,
    AnyText,
    Celsius,
    OneOrMany,
    Percent,
    Seconds,
    Sha256,
    Short,
    Text,
    by_rule,
    is_written,
    unique,
)
from orchestrator.records import Key, frozen
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.case import (
    FIGURE_PASS,
    USUAL_DELEGATE,
    USUAL_LOADS,
    DelegateName,
    Pass,
    ProcessMode,
    ToolName,
    load_of,
)

#: What a plan is made of without a file: values by the names of its keys. A list may also be one
#: text with commas.
PlanOptions: TypeAlias = dict[str, Any]
DEVICES: Final = "Devices"
MEASURING: Final = "Measuring"
ADVANCED: Final = "Advanced"


@dataclass(frozen=True, slots=True)
class PlanKey:
    """A key with its place in a plan."""

    #: ``("matrix", "threads")``.
    at: tuple[str, ...]
    kind: Any
    key: Key
    default: object

    @property
    def keyword(self) -> str:
        """Its name as a keyword of Python."""
        return self.key.keyword or self.at[-1]

    @property
    def option(self) -> str:
        """Its option's first name, or the one that it would have."""
        return (self.key.option or f"--{self.keyword.replace('_', '-')}").split()[0]

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return any(get_origin(part) is tuple for part in _parts(self.kind))

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return int in _parts(self.kind)

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false."""
        return bool in _parts(self.kind)


def _parts(kind: Any) -> Iterator[Any]:  # noqa: ANN401 - any type expression
    """Yield a type without Annotated, or the types of a union."""
    if get_origin(kind) is Annotated:
        yield from _parts(get_args(kind)[0])
    elif get_origin(kind) is tuple or not get_args(kind):
        yield kind
    else:
        yield from (part for item in get_args(kind) for part in _parts(item))


def keys_of(model: type, path: tuple[str, ...] = ()) -> Iterator[PlanKey]:
    """Yield the keys of a plan's record with those of its sections, its own before inherited ones."""
    hints = get_type_hints(model, include_extras=True)
    for item in sorted(fields(model), key=lambda item: item.name not in model.__annotations__):
        hint = hints[item.name]
        key = next(
            (part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Key)), None
        )
        if key is not None:
            default = item.default_factory() if callable(item.default_factory) else item.default
            yield PlanKey((*path, item.name), hint, key, default)
        elif is_dataclass(hint):
            assert isinstance(hint, type), "a section's type is its record"
            yield from keys_of(hint, (*path, item.name))


class Order(enum.StrEnum):
    """In which order a device gets its invocations."""

    #: Round by round: each case once, shuffled by the seed, then each case again. Drift hits all
    #: cases alike.
    INTERLEAVED = "interleaved"
    #: All invocations of a case, then the next case.
    SEQUENTIAL = "sequential"


class DelegateChoice(enum.StrEnum):
    """Words that stand in place of delegates' names."""

    #: What a device and its program usually have: the CPU with and without XNNPACK, the GPU, an NPU
    #: with its libraries.
    AUTO = "auto"
    #: All that the program has.
    ALL = "all"


class Screen(enum.StrEnum):
    """The state of the screen while measuring."""

    ON = "on"
    OFF = "off"


def _delegates(
    words: tuple[DelegateName | DelegateChoice, ...],
) -> tuple[DelegateName | DelegateChoice, ...]:
    choice = next((word for word in words if isinstance(word, DelegateChoice)), None)
    if choice is not None and len(words) > 1:
        raise ValueError(
            f"{choice.value!r} stands for several delegates; leave out the other names"
        )
    return unique(words)


_TEXTS_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_FLAG_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@functools.cache
def _flag_texts() -> TypeAdapter[dict[str, str]]:
    return TypeAdapter(dict[str, Annotated[AnyText, by_rule("flag")]])


def _flags(value: object, info: ValidationInfo) -> object:
    return (
        list(_flag_texts().validate_python(value, context=info.context).items())
        if is_written(info)
        else value
    )


def _flag_set(flags: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return one set of flags in the order of their names."""
    for name, text in flags:
        if not _FLAG_NAME.fullmatch(name):
            raise ValueError(f"{name!r} isn't the name of a flag")
        if name in OWNED_FLAGS:
            raise ValueError(f"the flag {name} can't be set here: {OWNED_FLAGS[name]}")
        if "\0" in text or "\n" in text:
            raise ValueError(f"the value of {name} must not hold line ends or NUL")
    return tuple(sorted(flags))


def _campaign_name(text: str) -> str:
    if len(text) > _NAME_MAX:
        raise ValueError(f"has {len(text)} characters; at most {_NAME_MAX} are possible")
    if not text.isprintable():
        raise ValueError("must be of printable characters")
    return text


#: Characters of a campaign's name.
_NAME_MAX: Final = 100


def _affinity(text: str) -> str:
    if text in {"big", "all"}:
        return text
    mask = text.lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,32}", mask) or int(mask, 16) == 0:
        raise ValueError(
            f"{text!r} isn't big, all or a mask of cores in hexadecimal digits such as f0"
        )
    return f"{int(mask, 16):x}"


#: PowerManager's words for its thermal status.
THERMAL_STATUS: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")


def _thermal_status(value: object) -> object:
    return THERMAL_STATUS.index(value) if value in THERMAL_STATUS else value


def _load(text: str) -> str:
    load_of(text)
    return text


_Words: TypeAlias = Annotated[OneOrMany[tuple[Text, ...]], SOME]


@frozen
class PlanModel:
    """A model that the plan names; in a file its path may be a pattern of several."""

    #: In a file empty: the file's name.
    name: Annotated[Text, Field(description="Its name in reports (default: the file's name)")] = ""
    path: Annotated[
        Path, by_rule("model"), Field(description="A .tflite file, or a pattern of several")
    ]
    #: The content that the plan's author meant; None when any content will do.
    sha256: Annotated[Sha256 | None, Field(description="Refuse any other content")] = None


@frozen
class DeviceSelection:
    """The selection of devices; a device must fit every given rule.

    An empty selection takes every usable phone.
    """

    serials: Annotated[
        _Words,
        Key(
            "Serial number, or host. Repeat for several.",
            "--serial -s",
            DEVICES,
            "devices",
            "serial numbers, the adb server's names, or `host` for this computer",
            "all usable phones",
        ),
    ] = ()
    profiles: Annotated[
        _Words,
        Key(
            "Device profile, for example pixel-4.",
            "--profile",
            DEVICES,
            "",
            "names of [device profiles](profiles.md); of phones and [iPhones](iphone.md)",
            "any",
        ),
    ] = ()
    pools: Annotated[
        _Words, Key("Pools of phones.", means="names given to phones, any of them", default="any")
    ] = ()
    tags: Annotated[
        _Words, Key("Tags of phones.", means="names given to phones, all of them", default="any")
    ] = ()
    #: Predicates on facts, all of which must hold: ``android >= 13``, ``soc = "sm8*"``, ``virtual =
    #: false``.
    where: Annotated[
        OneOrMany[tuple[Annotated[Text, by_rule("predicate")], ...]],
        SOME,
        Key(
            "Rule on device facts, for example 'android >= 13'.",
            "--where",
            DEVICES,
            "",
            "[rules on device facts](#rules-on-device-facts); all must hold",
            "none",
        ),
    ] = ()
    host: Annotated[bool, Key("Include this computer.", "--with-host", DEVICES)] = False
    one_of_each: Annotated[
        Text,
        by_rule("fact"),
        Key(
            "One matching phone for each value of a fact: profile, soc ...",
            "--one-of-each",
            DEVICES,
            "",
            "a fact (`profile`, `model`, `soc`, any of those [below](#rules-on-device-facts)): of the phones that fit, "
            "one for each of its values",
            "all that fit",
        ),
    ] = ""
    any: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None,
        Key(
            "Use at most N matching phones (default: all).",
            "--any",
            DEVICES,
            "at_most",
            "at most N of the phones that fit",
            "all that fit",
        ),
    ] = None

    @property
    def names_phones(self) -> bool:
        """Whether it says which phones are meant."""
        return bool(self.serials or self.profiles or self.pools or self.tags or self.where)


@frozen
class Matrix:
    """The axes; every combination that isn't excluded is a case."""

    #: Names, or one word for several.
    delegates: Annotated[
        OneOrMany[
            tuple[
                Annotated[
                    DelegateName | DelegateChoice,
                    by_rule("delegate"),
                    WithJsonSchema({"enum": [*DelegateName, *DelegateChoice]}),
                ],
                ...,
            ]
        ],
        SOME,
        AfterValidator(_delegates),
        Key(
            "cpu, xnnpack, gpu, nnapi, hexagon ... (a,b,c), or all (default: try what is there).",
            "--delegate -d",
            "",
            "",
            f"{', '.join(f'`{name}`' for name in DelegateName)}, in any case (`cpu` is builtin kernels); "
            "or `auto`: what a device and its program usually have, on the CPU with 1 thread and with 4; or `all` of "
            "the program",
            commas=True,
        ),
    ] = (USUAL_DELEGATE,)
    #: Empty: 4, or as many as a device with fewer cores has; with ``auto`` also 1.
    threads: Annotated[
        OneOrMany[tuple[Annotated[int, Field(ge=1, le=128)], ...]],
        SOME,
        AfterValidator(unique),
        Key(
            "Thread counts (1,4).",
            "--threads -t",
            "",
            "",
            "numbers from 1 to 128",
            "4, or as many as a device with fewer cores has",
            commas=True,
        ),
    ] = ()
    #: Whether also a delegate that takes all operators, and so uses no threads, is measured with
    #: each number of them.
    every_thread_count: Annotated[
        bool,
        Key(
            "Try every thread count, even where the delegate runs all operators.",
            "--every-thread-count",
            "",
            "",
            "whether a delegate that takes all operators (as `gpu` may) is measured with each number of "
            "threads; else only the first number is, and the others are stored as skipped "
            "(`threads-unused`) once it is known that the delegate takes all",
        ),
    ] = False
    #: Empty: each device's usual program, ``native`` on phones and ``litert`` on this computer.
    tools: Annotated[
        OneOrMany[
            tuple[Annotated[ToolName, by_rule("program"), WithJsonSchema({"type": "string"})], ...]
        ],
        SOME,
        AfterValidator(unique),
        Key(
            "native, apk, litert, perf-options, litert-native, litert-lm, litert-ios (a,b).",
            "--tool",
            ADVANCED,
            "",
            "`native`, `apk`, `litert`, `perf-options`, `litert-native`, `litert-lm`, `litert-ios` "
            "(see [below](#programs))",
            "each device's usual one",
            commas=True,
        ),
    ] = ()
    #: Sets of further flags; each set is a configuration of its own.
    flags: Annotated[
        OneOrMany[
            tuple[
                Annotated[
                    tuple[tuple[str, str], ...],
                    BeforeValidator(_flags),
                    AfterValidator(_flag_set),
                    WithJsonSchema(_TEXTS_SCHEMA),
                ],
                ...,
            ]
        ],
        SOME,
        AfterValidator(lambda sets: tuple(dict.fromkeys(sets))),
        Key(
            "Flag of the program, name=value. Repeat for several.",
            "--flag",
            ADVANCED,
            "",
            "one set of flags or a list of sets; each set is a configuration of its own",
            "one empty set",
        ),
    ] = ((),)
    #: How the program runs. Empty: each program's default.
    modes: Annotated[
        OneOrMany[tuple[ProcessMode, ...]],
        SOME,
        AfterValidator(unique),
        Key(
            "Run as foreground (apk), shell, top-app (native) (a,b).",
            "--mode",
            ADVANCED,
            "",
            "how the program runs: `foreground` (an app on the screen), `shell` (a child of adb's shell), "
            "`top-app` (the same with the task profiles of the app on the screen)",
            "`foreground` for `apk`, `shell` for the others",
            commas=True,
        ),
    ] = ()

    @property
    def choice(self) -> DelegateChoice | None:
        """The word for several delegates; None where they are named."""
        return next((word for word in self.delegates if isinstance(word, DelegateChoice)), None)

    @property
    def named(self) -> tuple[DelegateName, ...]:
        """The delegates that are named; none where a word stands for several."""
        return tuple(word for word in self.delegates if isinstance(word, DelegateName))


@frozen
class RunSettings:
    """The settings of one invocation; the names are the benchmark programs' own."""

    num_runs: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Key("Inferences per process, at least (default: 50).", "--inferences", MEASURING),
    ] = 50
    min_secs: Annotated[
        Seconds,
        Field(ge=0, le=86_400),
        Key(
            "Seconds per process, at least (default: 1).", "--min-secs", MEASURING, default="`1 s`"
        ),
    ] = 1.0
    max_secs: Annotated[
        Seconds,
        Field(gt=0, le=86_400),
        Key(
            "Seconds per process, at most (default: 150).",
            "--max-secs",
            MEASURING,
            "",
            "time of the warm-up, and of the measurement, at most",
            "`150 s`",
        ),
    ] = 150.0
    warmup_runs: Annotated[
        int, Field(ge=0, le=1_000_000), Key("Inferences of warm-up, at least.")
    ] = 1
    warmup_min_secs: Annotated[
        Seconds,
        Field(ge=0, le=86_400),
        Key("Seconds of warm-up, at least.", default="`0.5 s`"),
    ] = 0.5
    affinity: Annotated[
        Text,
        AfterValidator(_affinity),
        Key(
            "Cores to use: big (the default), all, or a hexadecimal mask.",
            "--affinity",
            ADVANCED,
            "",
            "`big` (all clusters but the slowest), `all`, or a mask of cores in hexadecimal digits",
        ),
    ] = "big"

    def __post_init__(self) -> None:
        for name in ("min_secs", "warmup_min_secs"):
            if getattr(self, name) > self.max_secs:
                raise ValueError(
                    f"{name} ({getattr(self, name):g} s) is more than max_secs ({self.max_secs:g} s)"
                )


#: The fields of a case that are its run's settings.
SETTINGS: Final = tuple(item.name for item in fields(RunSettings))


@frozen
class FitLimits:
    """Limits of a device's state before an invocation starts."""

    #: Percent.
    battery_min: Annotated[
        Percent,
        Field(ge=0, le=100),
        Key("A phone with less isn't fit, in percent.", default="`20 %`"),
    ] = 20.0
    #: Degrees Celsius.
    battery_heat_max: Annotated[
        Celsius,
        Field(ge=0, le=100),
        Key("A phone whose battery is hotter isn't fit, in degrees Celsius.", default="`40 C`"),
    ] = 40.0
    #: PowerManager's thermal status, 0 to 6.
    thermal_status_max: Annotated[
        int,
        Field(ge=0, le=6),
        BeforeValidator(_thermal_status),
        WithJsonSchema({"enum": [*range(7), *THERMAL_STATUS]}),
        Key(
            "The highest thermal status of a fit phone.",
            means="`none`, `light`, `moderate`, `severe`, `critical`, `emergency`, `shutdown`, or 0 to 6",
            default="`none`",
        ),
    ] = 0
    #: Seconds.
    wait: Annotated[
        Seconds,
        Field(ge=0, le=86_400),
        Key("How long to wait before each run for a fit phone.", default="`5 min`"),
    ] = 300.0


@frozen
class StoppingRule:
    """The number of invocations of a case; ``first == most`` is a fixed number."""

    #: No decision before this many: a rule that may stop earlier stops on lucky draws.
    first: int = 8
    #: Enough when half the 95 % interval is under this share of the estimate.
    half_width: float = 0.02
    #: Never more; a case that gets here keeps its wide interval, and reports it.
    most: int = 40


@frozen
class InvocationCount:
    """The number of processes of each case in the timing pass: as its noise needs, within these
    bounds.
    """

    first: Annotated[int, Field(ge=1, le=10_000)] = StoppingRule().first
    most: Annotated[int, Field(ge=1, le=10_000)] = StoppingRule().most

    def __post_init__(self) -> None:
        if self.first > self.most:
            raise ValueError(f"first ({self.first}) is more than most ({self.most})")
        if self.first == 1 < self.most:
            raise ValueError("first (1) is too small; the minimum is 2")

    @property
    def is_fixed(self) -> bool:
        """Whether every case gets the same number."""
        return self.first == self.most


def fixed_count(count: int) -> InvocationCount:
    """Return the bounds of a fixed number of invocations."""
    return InvocationCount(first=count, most=count)


def _bounds(value: object) -> object:
    """Return the bounds of a number or a text such as ``8-40``."""
    if isinstance(value, str):
        first, dash, maximum = value.partition("-")
        if dash and first.strip():
            value = {"first": first.strip(), "most": maximum.strip()}
    if isinstance(value, str | int):
        try:
            count = int(value)
        except ValueError:
            raise ValueError(f"{value!r} isn't a whole number") from None
        if not 1 <= count <= 10_000:
            raise ValueError(f"{count} isn't between 1 and 10000")
        return {"first": count, "most": count}
    return value


@frozen
class Quiet:
    """How a phone is prepared for measuring (quiet mode); None leaves a setting as it is."""

    screen: Annotated[Screen, Key("`on` or `off` while measuring.")] = Screen.ON
    airplane: Annotated[bool | None, Key("Airplane mode.", default="as it is")] = None
    no_doze: Annotated[bool | None, Key("Keep Doze off.", default="as it is")] = None
    animations_off: Annotated[bool | None, Key("Switch animations off.", default="as it is")] = None
    sync_off: Annotated[bool | None, Key("Switch synchronisation off.", default="as it is")] = None
    #: ``cmd power set-fixed-performance-mode-enabled``.
    fixed_performance: Annotated[
        bool | None, Key("Android's fixed performance mode.", default="as it is")
    ] = None
    pin_clocks: Annotated[
        bool | None, Key("With root: hold the CPU's clocks at their maximum.", default="as it is")
    ] = None
    pin_gpu: Annotated[
        bool | None, Key("With root: hold the GPU's clock at its maximum.", default="as it is")
    ] = None


@frozen
class PlanTerms:
    """A plan's terms, without its cases; a campaign stores them, and they change no case's identity."""

    limits: FitLimits = field(default_factory=FitLimits)
    #: The time of the whole campaign on each device, in seconds; None is no limit.
    budget: Annotated[
        Annotated[Seconds, Field(gt=0, le=604_800)] | None,
        Key(
            "Time of the whole campaign on each device (2h). Cases that don't fit are left out.",
            "--budget",
            MEASURING,
            "",
            "the time budget of the whole campaign on each device (see [below](#when-the-time-is-short))",
            "no limit",
        ),
    ] = None
    #: Seconds of the pass ``sustained``.
    sustained: Annotated[
        Seconds,
        Field(ge=10, le=86_400),
        Key(
            "Run processes without a pause for this time (30m).",
            "--sustained",
            MEASURING,
            "",
            "how long the pass [`sustained`](../guides/in-use.md#sustained-load) goes on for each case",
            "`30 min`",
            only_in="sustained",
        ),
    ] = 1800.0
    #: The loads of the pass ``contention`` (records/case.py).
    contention: Annotated[
        OneOrMany[tuple[Annotated[Text, AfterValidator(_load)], ...]],
        Field(max_length=16),
        SOME,
        AfterValidator(unique),
        Key(
            "Loads of the pass contention.",
            means="the loads of the pass [`contention`](../guides/in-use.md#contention): `cpu=N`, `memory=N`, `gpu=1`, or "
            "several joined by `+`",
            only_in="contention",
        ),
    ] = USUAL_LOADS
    #: Whether an unreachable phone may be rebooted.
    reboot: Annotated[
        bool, Key("Reboot an unreachable phone as the last resort.", "--reboot", ADVANCED)
    ] = False
    quiet: Quiet = field(default_factory=Quiet)
    #: Seconds for one invocation, beyond what max_secs allows for warm-up and measurement.
    timeout: Annotated[
        Seconds,
        Field(gt=0, le=86_400),
        Key(
            "Seconds that a process may take beyond twice --max-secs (default: 120).",
            "--timeout",
            ADVANCED,
            "",
            "of one invocation, beyond the `max_secs` of its warm-up and of its measurement",
            "`120 s`",
        ),
    ] = 120.0
    #: Program -> name of a build in apk_builds/ or path of a file; empty means the default.
    builds: Annotated[
        dict[Annotated[ToolName, by_rule("program")], Annotated[Text, by_rule("build")]],
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
        Key(
            "Program to use: TOOL=NAME or TOOL=FILE, or NAME or FILE for a single tool. Repeat for several.",
            "--build",
            ADVANCED,
            "",
            "tool: name, sha256 or path of a [build](models-and-builds.md); what has a slash is a path",
            "the default build",
        ),
    ] = field(default_factory=dict)
    #: No invocation starts that would end later.
    until: Annotated[datetime | None, NO_KEY, SkipJsonSchema()] = None


@frozen
class Plan(PlanTerms):
    """A whole plan."""

    name: Annotated[
        Text,
        AfterValidator(_campaign_name),
        Key(
            "Name of the campaign (default: the models' names).",
            "--name",
            "Output",
            "",
            "the campaign's name",
            "the file's name",
        ),
    ] = ""
    models: Annotated[
        OneOrMany[
            tuple[
                Annotated[
                    PlanModel,
                    Short(
                        lambda value: {"path": value} if isinstance(value, str | Path) else value,
                        lambda _: {"type": "string"},
                    ),
                ],
                ...,
            ]
        ],
        SOME,
        Key(
            "Model files (.tflite).",
            # No option: an argument of some commands, -m of others.
            "model",
            "",
            "",
            "paths, patterns, or `path` with `name` and `sha256`",
            "needed",
        ),
    ]
    matrix: Matrix = field(default_factory=Matrix)
    devices: DeviceSelection = field(default_factory=DeviceSelection)
    settings: RunSettings = field(default_factory=RunSettings)
    passes: Annotated[
        OneOrMany[
            tuple[
                Annotated[
                    Pass,
                    by_rule("pass"),
                    WithJsonSchema({"type": "string"}),
                ],
                ...,
            ]
        ],
        SOME,
        AfterValidator(unique),
        Key(
            "Passes (a,b).",
            "--pass",
            "",
            "",
            "names of [passes](#passes); a latency comes from `timing` only",
            commas=True,
        ),
    ] = (FIGURE_PASS,)
    #: Of each case in the timing pass; the other passes have one.
    invocations: Annotated[
        InvocationCount,
        Short(_bounds, lambda _: {"type": ["integer", "string"]}),
        Key(
            "Processes per case: N, or MIN-MAX (default: 8-40).",
            "--runs -n",
            MEASURING,
            "",
            "a number: the processes of every case in the timing pass. With `invocations.first` and "
            "`invocations.most`, or `8-40`, a case gets as many as its figure needs "
            "(see [below](#how-many-invocations))",
            "`first: 8`, `most: 40`",
        ),
    ] = InvocationCount()
    #: Percent of the estimate.
    precision: Annotated[
        Percent,
        Field(ge=0.1, lt=100),
        Key(
            "Stop a case at this half width of its 95 % interval (2%).",
            "--precision",
            MEASURING,
            "",
            "a case has enough when half its 95 % interval is under this share of the figure",
            "`2 %`",
        ),
    ] = 100 * StoppingRule().half_width
    #: Whether the reference workload is run before, after and between on each device; None: when it
    #: costs little.
    reference_check: Annotated[
        bool | None,
        Key(
            "Measure a reference workload before and after: ~30 s per phone.",
            "--reference-check",
            ADVANCED,
            "",
            "whether a reference workload is run before, between and after (see [below](#the-reference-workload))",
            "on when a device has 10 minutes of work",
        ),
    ] = None
    #: Whether outputs are compared once for each configuration that is new; None: as the settings say.
    check_outputs: Annotated[
        bool | None,
        Key(
            "Compare the outputs of new configurations once (default: on).",
            "--check-outputs",
            ADVANCED,
            "",
            "whether the outputs of each new model, delegate, phone, system and program are "
            "[compared once](../guides/choose-a-delegate.md#checked-by-default)",
            "on",
        ),
    ] = None
    #: Folder with inputs for the pass ``parity``, ``<model>.<number>.bin`` each; None: made from a
    #: seed.
    parity_inputs: Annotated[
        Annotated[Path, by_rule("folder")] | None,
        Key(
            "Folder with input files for the pass parity: MODEL.0.bin ...",
            "--parity-inputs",
            ADVANCED,
            "",
            "a folder with inputs for the pass [`parity`](../guides/choose-a-delegate.md#parity), "
            "`<model>.<number>.bin` each, raw",
            "made from a seed",
            only_in="parity",
        ),
    ] = None
    order: Annotated[
        Order,
        Key(
            "interleaved or sequential.",
            means="`interleaved` (each case once, in seeded order, then each again) or `sequential`",
        ),
    ] = Order.INTERLEAVED
    seed: Annotated[
        int,
        Field(ge=0, lt=2**63),
        Key("Seed for the order of invocations (default: 0).", "--seed", ADVANCED),
    ] = 0
    #: The text that it was read from, byte for byte.
    text: Annotated[str, NO_KEY, SkipJsonSchema()] = ""
    #: Where relative paths in it start; no part of its meaning.
    folder: Annotated[Path | None, NO_KEY, SkipJsonSchema()] = field(default=None, compare=False)

    @property
    def stopping(self) -> StoppingRule | None:
        """When a case has enough invocations; None: just the planned ones."""
        if self.invocations.is_fixed:
            return None
        bounds = self.invocations
        return StoppingRule(first=bounds.first, half_width=self.precision / 100, most=bounds.most)
