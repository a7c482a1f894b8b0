"""What benchfarm knows of a pass, in one record that its module fills."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, assert_never

from orchestrator.delegates import FlagFamily
from orchestrator.frozen import frozen
from orchestrator.ports import Change, Device, InvocationRequest, Tool
from orchestrator.programs import Program
from orchestrator.records.case import Case, Pass
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import Finding, PlacedInput

if TYPE_CHECKING:
    from orchestrator.tables.passes import PassTable

#: What an invocation costs beside its inferences, in seconds: start, load, probes before and after.
OVERHEAD_S: Final = 3.0
RUNTIME_INFO_FILE: Final = "runtime_info.pb"
PROFILE_FILE: Final = "op_profile.pb"
#: Flags that only gather more about a run; a program that doesn't have them (older ones don't) runs
#: without.
OMITTABLE_FLAGS: Final = frozenset(
    {"result_file_path", "export_model_runtime_info", "model_runtime_info_output_file"}
)
#: What shows where the operators ran, in a file of its own.
INFO_FLAGS: Final = {FlagFamily.BENCHMARK_MODEL: {"export_model_runtime_info": "true"}}
INFO_FILES: Final = {
    FlagFamily.BENCHMARK_MODEL: {"model_runtime_info_output_file": RUNTIME_INFO_FILE},
    FlagFamily.LITERT: {"model_runtime_info_output_file": RUNTIME_INFO_FILE},
}


class Repetition(enum.StrEnum):
    """How often a pass runs a case."""

    #: In rounds over all cases, until each figure is certain enough.
    UNTIL_CERTAIN = "until-certain"
    #: As often as it has numbers.
    COUNTED = "counted"
    #: One run directly after the other for a stated time; its one planned invocation stands for
    #: all.
    FOR_A_TIME = "for-a-time"
    #: Before, between and after the runs of the other passes; no plan names it.
    AROUND_OTHERS = "around-others"


class PortPower(Protocol):
    """What can keep a phone's cable from charging it."""

    def can_switch(self, device: Device) -> bool:
        """Whether a device's port can be powered off."""
        ...

    def off(
        self, device: Device, *, after_s: float, lasts_s: float
    ) -> AbstractContextManager[None]:
        """Power it off for a span that begins after a while, and on again at the end in any case."""
        ...


class Hold(Protocol):
    """Makes a change on a device by a command, after it has written the change down."""

    def __call__(self, device: Device, change: Change, command: str) -> None:
        """Raise HostStorageError (nothing is changed then), and DeviceError kinds."""


class PassServices(Protocol):
    """What a pass may use of the computer and change on a phone."""

    @property
    def hub_power(self) -> PortPower:
        """The power of the USB ports."""
        ...

    @property
    def hold(self) -> Hold:
        """What changes something on a phone."""
        ...

    def folder(self, name: str) -> Path:
        """Return the folder of this computer in which a pass keeps what it has found out; it may be
        missing.
        """
        ...


class RunProgram(Protocol):
    """Runs a program once, in a pass's way."""

    def __call__(
        self,
        tool: Tool,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Return all that the run left behind.

        Raises DeviceError kinds, UsageError where it can't be done.
        """
        ...


#: A report with the figures that a pass reads from the run's output beside those of the program.
ReadMore: TypeAlias = Callable[[Tool, ToolReport, RawOutput, Case], ToolReport]


def _run(
    tool: Tool,
    device: Device,
    request: InvocationRequest,
    *,
    cancelled: threading.Event | None = None,
) -> RawOutput:
    """Run a program as it is."""
    return tool.run(device, request, cancelled=cancelled)


def plainly(services: PassServices) -> RunProgram:
    """Return what runs a program as it is."""
    return _run


def executable(program: Program) -> str:
    """Return why a program is none for a pass of executables; empty where it is one."""
    return "is an app, no executable" if program.name.is_app else ""


def as_printed(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report as the program's own output says it."""
    return report


def no_findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterable[Finding]:
    """Return nothing: what holds for every run is judged without its pass."""
    return ()


def usual_least_s(case: Case, terms: PlanTerms) -> float:
    """Return the seconds that one run takes at least, by the case's settings."""
    return OVERHEAD_S + case.warmup_min_secs + case.min_secs


def rounds(plan: Plan, otherwise: int) -> int:
    """Return how often a pass runs each case: as often as the plan says, or ``otherwise`` where
    timing goes on until it is certain.
    """
    return plan.invocations.first if plan.stopping is None else otherwise


@frozen
class Figure:
    """One figure of a pass, as the report shows it: the median over the pass's runs of a case."""

    #: As a column's head says it, with the unit: ``rest mW``.
    head: str
    #: The figure of one run; None where it has none.
    value: Callable[[ToolReport], float | None]
    #: Digits after the point.
    digits: int = 1


@frozen
class Prepared:
    """What was prepared on a device for one invocation."""

    model_path: str = "model.tflite"
    #: Where the program may write its files.
    folder: str = "/"
    #: What its number means in its pass; empty where any may be meant.
    variant: str = ""
    cache_folder: str = "/caches"
    inputs: tuple[PlacedInput, ...] = ()


NOTHING_PREPARED: Final = Prepared()


@frozen
class PassSpec:
    """Everything that depends on which pass it is."""

    name: Pass
    #: What it measures, as help and the docs say it: a sentence without its full stop.
    about: str
    #: Its guide in docs/guides, without ``.md``; empty for none.
    guide: str = ""
    repetition: Repetition = Repetition.COUNTED

    # What is run.
    #: Flags for each family of programs.
    flags: Mapping[FlagFamily, Mapping[str, str]] = field(default_factory=dict)
    #: Flags that name a file in the run's folder -> the file, which is kept with the run.
    files: Mapping[FlagFamily, Mapping[str, str]] = field(default_factory=dict)
    #: Makes what runs programs in this pass, once in a process.
    runner: Callable[[PassServices], RunProgram] = plainly
    #: The case as it is run, by any program: fewer inferences, another time; it is stored as it
    #: was asked for.
    as_run: Callable[[Case], Case] = lambda case: case
    #: Flags of benchmark_model's that depend on the invocation, after all others.
    last_flags: Callable[[Case, Prepared], Mapping[str, str]] = lambda case, prepared: {}
    #: Flags that a plan can't set in it.
    withheld_flags: frozenset[str] = frozenset()
    #: Whether one process may measure several cases.
    shares_process: bool = False
    #: Whether the memory of its runs is the process's peak.
    measures_memory: bool = False
    #: Whether the model gets inputs whose outputs the reference computes, too.
    compares_outputs: bool = False

    # What is planned.
    #: The kinds of devices that it is for.
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    #: The numbers of a case's invocations, at least one; mostly ``range(rounds(plan, n))``.
    numbers: Callable[[Plan, Case, Program], Sequence[int]] = lambda plan, case, program: (0,)
    #: What a program lacks for it beside flags, after the program's name; empty for nothing.
    needs: Callable[[Program], str] = lambda program: ""
    #: How many invocations of a case belong to a turn: A B, B A ... so that drift hits all alike.
    #: None: case by case.
    turn: Callable[[PlanTerms], int] | None = None
    #: Whether programs that a file declares can be run in it: of them nothing but the time is
    #: known.
    takes_declared: bool = False
    #: What a campaign of this pass alone is, if it is no measurement of a plan: ``a trace``.
    alone: str = ""
    #: The least seconds of an invocation; of a pass that goes on for a time, of all.
    least_s: Callable[[Case, PlanTerms], float] = usual_least_s
    #: What an invocation's number means: a stage, a load; empty for nothing.
    variant: Callable[[int, PlanTerms], str] = lambda number, terms: ""

    # What its runs show.
    #: The report with what the run left behind beside the program's own figures.
    read: ReadMore = as_printed
    #: What speaks against a run's figures.
    findings: Callable[[ToolReport, Case, DeviceFacts], Iterable[Finding]] = no_findings
    #: Figures of its own, beside those that a program prints in any pass.
    figures: tuple[Figure, ...] = ()
    #: A table of its own, for what isn't a figure a run; None for none.
    table: PassTable[Any] | None = None
    #: Rules of advice by their names: what each says of a device's clean rows (report/advice.py).
    advice: Mapping[str, Callable[[Sequence[Any]], Iterator[Any]]] = field(default_factory=dict)
    #: Whether a run's latency is told when it is stored.
    tells_latency: bool = False
    #: What else is told of a run when it is stored; empty: that it is done.
    tells: Callable[[RunRecord], str] = lambda run: ""
    #: Whether a suspect run is named above the results: its case's latency may be clean beside it.
    warns: bool = False
    #: Whether runs of several campaigns stand beside each other, where else the newest counts.
    keeps_all_campaigns: bool = False

    def __post_init__(self) -> None:
        """Refuse what would store ordinary runs under a name of its own, and a second pass that no
        plan may name.
        """
        if not self.is_in_plans and self.name is not Pass.REFERENCE:
            raise ValueError(
                f"the pass {self.name.value!r} has the repetition {self.repetition.value!r}, which is of "
                f"{Pass.REFERENCE.value!r} alone: give it another one"
            )
        own = type(self).__dataclass_fields__
        is_plain = not self._is_made_of_flags and all(
            getattr(self, name) is own[name].default for name in ("as_run", "last_flags", "runner")
        )
        if self.repetition is Repetition.COUNTED and is_plain:
            raise ValueError(
                f"the pass {self.name.value!r} runs a program as it is: give it flags, last_flags, "
                "as_run or a runner"
            )

    @property
    def _is_made_of_flags(self) -> bool:
        """Whether without its flags its runs would be ordinary ones under its name."""
        return any(own.keys() - OMITTABLE_FLAGS for own in self.flags.values())

    def unsupported_reason(self, program: Program) -> str:
        """Return why a program can't be run in it, to stand after the program's name; empty where it
        can.
        """
        if program.name.is_declared and not self.takes_declared:
            return "is declared: nothing but its time is known"
        if self._is_made_of_flags and program.family not in self.flags:
            return "has no flags for it"
        return self.needs(program)

    @property
    def is_in_plans(self) -> bool:
        """Whether a plan may name it."""
        return self.repetition is not Repetition.AROUND_OTHERS

    @property
    def is_open_ended(self) -> bool:
        """Whether one planned invocation stands for as many runs as there will be."""
        match self.repetition:
            case Repetition.UNTIL_CERTAIN | Repetition.COUNTED:
                return False
            case Repetition.FOR_A_TIME | Repetition.AROUND_OTHERS:
                return True
            case _:
                assert_never(self.repetition)
