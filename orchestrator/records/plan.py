"""A plan as read and checked: what is to be measured, on what, how often. Nothing here has met a device yet."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from orchestrator.records.contention import USUAL_LOADS
from orchestrator.records.workload import FIGURE_PASS, USUAL_DELEGATE, DelegateName, Pass, ProcessMode, ToolName


class Order(enum.StrEnum):
    """In which order a device gets its invocations."""

    #: Round by round: each case once, shuffled by the seed, then each case again. Drift hits all cases alike.
    INTERLEAVED = "interleaved"
    #: All invocations of a case, then the next case.
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanModel:
    """A model that the plan names."""

    name: str
    path: Path
    #: The content that the plan's author meant; None when any content will do.
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSelection:
    """Which devices; a device must fit every rule that is given. An empty selection takes every usable phone."""

    serials: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    #: Predicates on facts, all of which must hold: ``android >= 13``, ``soc = "sm8*"``, ``virtual = false``.
    where: tuple[str, ...] = ()
    #: Also measure on this computer.
    host: bool = False
    #: A fact by its name in predicates: of the phones that fit, one for each of its values. Empty: all.
    one_of_each: str = ""
    #: At most N phones of those that fit; None: all.
    most: int | None = None


class DelegateChoice(enum.StrEnum):
    """Words that stand in place of delegates' names."""

    #: What a device and its program usually have: the CPU with and without XNNPACK, the GPU, an NPU with its libraries.
    AUTO = "auto"
    #: All that the program has.
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The axes; every combination that isn't excluded is a case."""

    #: Empty where ``choice`` says it.
    delegates: tuple[DelegateName, ...] = (USUAL_DELEGATE,)
    choice: DelegateChoice | None = None
    #: Empty: 4, or as many as a device with fewer cores has; with ``auto`` also 1.
    threads: tuple[int, ...] = ()
    #: Empty: each device's usual program, ``native`` on phones and ``litert`` on this computer.
    tools: tuple[ToolName, ...] = ()
    #: Sets of further flags; each set is a configuration of its own.
    flags: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    #: As what the program runs. Empty: as each program usually does.
    modes: tuple[ProcessMode, ...] = ()
    #: Whether also a delegate that takes all operators, and so uses no threads, is measured with each number of them.
    every_thread_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How one invocation measures; the names are the benchmark programs' own."""

    num_runs: int = 50
    min_secs: float = 1.0
    max_secs: float = 150.0
    warmup_runs: int = 1
    warmup_min_secs: float = 0.5
    affinity: str = "big"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLimits:
    """What a device must be like before an invocation starts."""

    battery_percent_min: int = 20
    battery_heat_c_max: float = 40.0
    #: PowerManager's thermal status, 0 to 6.
    thermal_status_max: int = 0
    #: How long to wait for it.
    wait_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """How many invocations a case gets; ``first == most`` is a fixed number."""

    #: Before this many nothing is decided: a rule that may stop earlier stops on lucky draws.
    first: int = 8
    #: Enough when half the 95 % interval is under this share of the estimate.
    half_width: float = 0.02
    #: Never more; a case that gets here stays as wide as it is, and says so.
    most: int = 40


class Screen(enum.StrEnum):
    """What the screen is to be while measuring."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """How a phone is brought to rest; None leaves a setting as it is."""

    screen: Screen = Screen.ON
    airplane: bool | None = None
    #: Doze is kept off.
    no_doze: bool | None = None
    animations_off: bool | None = None
    sync_off: bool | None = None
    #: ``cmd power set-fixed-performance-mode-enabled``.
    fixed_performance: bool | None = None
    #: As root: governor ``performance``, smallest clock = largest clock.
    pin_clocks: bool | None = None
    #: As root: the GPU's devfreq at its maximum.
    pin_gpu: bool | None = None
    #: As root: the vendor's own thermal services stopped; never tuned, because the phone may get too hot.
    thermal_control_off: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """What a plan says of the work beside its cases; a campaign keeps it, and it changes no case's identity."""

    limits: FitLimits = field(default_factory=FitLimits)
    #: None: the planned invocations, no more and no less.
    stopping: StoppingRule | None = None
    #: The time of the whole campaign on each device; None is no limit.
    budget_s: float | None = None
    #: Nothing begins that would end later.
    until: datetime | None = None
    quiet: Quiet = field(default_factory=Quiet)
    #: Whether a phone whose reference workload moved may be rebooted.
    may_reboot: bool = False
    #: How long the pass ``sustained`` goes on.
    sustained_s: float = 1800.0
    #: The loads of the pass ``contention`` (records/contention.py).
    contention: tuple[str, ...] = USUAL_LOADS
    #: For one invocation, beyond what max_secs allows for warm-up and measurement.
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanTerms):
    """A whole plan."""

    name: str
    models: tuple[PlanModel, ...]
    matrix: Matrix = field(default_factory=Matrix)
    devices: DeviceSelection = field(default_factory=DeviceSelection)
    settings: RunSettings = field(default_factory=RunSettings)
    passes: tuple[Pass, ...] = (FIGURE_PASS,)
    #: Invocations of each case that the timing pass begins with; the other passes have one.
    invocations: int = 3
    #: Whether the reference workload is run before, after and between on each device; None: when it costs little.
    reference_check: bool | None = None
    #: Folder with inputs for the pass ``parity``, ``<model>.<number>.bin`` each; None: made from a seed.
    parity_inputs: Path | None = None
    order: Order = Order.INTERLEAVED
    seed: int = 0
    #: Tool -> name of a build in apk_builds/ or path of a file; empty means the default.
    builds: Mapping[ToolName, str] = field(default_factory=dict)
    #: The text that it was read from, byte for byte.
    text: str = ""
    #: Where relative paths in it start; not part of what it means.
    folder: Path | None = field(default=None, compare=False)
