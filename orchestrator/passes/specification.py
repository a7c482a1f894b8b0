"""The record of a pass, which each pass's module fills."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, assert_never

from orchestrator.delegates import FlagFamily
from orchestrator.ports import Device, InvocationRequest, SettingChange, Tool
from orchestrator.program import Program
from orchestrator.records import frozen
from orchestrator.records.case import Case, Pass
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import RUNTIME_INFO_FILE, RawOutput, RunRecord, ToolReport
from orchestrator.records.verdict import Finding

if TYPE_CHECKING:
    from orchestrator.tables.passes import PassTable

#: The seconds of an invocation without its inferences: start, load, probes before and after.
OVERHEAD_S: Final = 3.0
#: Flags that only record more about a run; older programs without them run without.
OMITTABLE_FLAGS: Final = frozenset(
    {"result_file_path", "export_model_runtime_info", "model_runtime_info_output_file"}
)
#: As few inferences as programs take.
ONE_INFERENCE: Final[Mapping[str, str]] = {
    "num_runs": "1",
    "min_secs": "0",
    "warmup_runs": "1",
    "warmup_min_secs": "0",
}
#: The flags for a file that shows where the operators ran.
INFO_FLAGS: Final = {FlagFamily.BENCHMARK_MODEL: {"export_model_runtime_info": "true"}}
INFO_FILES: Final = {
    FlagFamily.BENCHMARK_MODEL: {"model_runtime_info_output_file": RUNTIME_INFO_FILE},
    FlagFamily.LITERT: {"model_runtime_info_output_file": RUNTIME_INFO_FILE},
}


class Repetition(enum.StrEnum):
    """How often a pass runs a case."""

    #: In rounds over all cases, until each figure is certain enough.
    UNTIL_CERTAIN = "until-certain"
    #: Once for each of its numbers.
    COUNTED = "counted"
    #: Back-to-back runs for a stated time; its one planned invocation stands for all.
    FOR_A_TIME = "for-a-time"
    #: Before, between and after the runs of the other passes; no plan names it.
    AROUND_OTHERS = "around-others"


class PortPower(Protocol):
    """Switches a phone's USB power, so that its cable doesn't charge it."""

    def can_switch(self, device: Device) -> bool:
        """Whether a device's port can be powered off."""
        ...

    def off(
        self, device: Device, *, after_s: float, lasts_s: float
    ) -> AbstractContextManager[None]:
        """Power it off after ``after_s`` for ``lasts_s``; it is always powered on again."""
        ...


class Hold(Protocol):
    """Changes a device by a command, after recording the change in the journal."""

    def __call__(self, device: Device, change: SettingChange, command: str) -> None:
        """Raise HostStorageError, with nothing changed, and DeviceError kinds."""


class PassServices(Protocol):
    """The services that a pass may use on the computer and the phone."""

    @property
    def hub_power(self) -> PortPower:
        """The power of the USB ports."""
        ...

    @property
    def hold(self) -> Hold:
        """Makes a change on a phone."""
        ...

    def folder(self, name: str) -> Path:
        """Return the folder of this computer for a pass's own data; it may not exist."""
        ...


#: Runs a program once, as a pass requires, and returns its raw output; raises DeviceError kinds,
#: and UsageError where it can't be run.
RunProgram: TypeAlias = Callable[[Tool, Device, InvocationRequest], RawOutput]
#: Adds a pass's own figures from the raw output to the report.
ReadMore: TypeAlias = Callable[[Tool, ToolReport, RawOutput, Case], ToolReport]


def run_unchanged(services: PassServices) -> RunProgram:
    """Return the function that runs a program unchanged."""
    return lambda tool, device, request: tool.run(device, request)


def why_not_executable(program: Program, terms: PlanTerms) -> str:
    """Return why a program isn't an executable, or an empty text."""
    return "is an app, no executable" if program.name.is_app else ""


def report_unchanged(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return the program's own report, unchanged."""
    return report


def no_findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterable[Finding]:
    """Return no findings: those of every run don't depend on the pass."""
    return ()


def usual_least_s(case: Case, terms: PlanTerms) -> float:
    """Return the least seconds of a run, by the case's settings."""
    return OVERHEAD_S + case.warmup_min_secs + case.min_secs


def rounds(plan: Plan, otherwise: int) -> int:
    """Return the number of a pass's runs of each case: the plan's, or ``otherwise`` where timing
    runs until it is certain.
    """
    return plan.invocations.first if plan.stopping is None else otherwise


@frozen
class Figure:
    """One figure of a pass, as the report shows it: the median over the pass's runs of a case."""

    #: The column's heading, with the unit: ``rest mW``.
    head: str
    #: Returns the figure of one run, or None.
    value: Callable[[ToolReport], float | None]
    #: Digits after the decimal point.
    digits: int = 1


@frozen
class PassSpec:
    """Everything that depends on which pass it is."""

    name: Pass
    #: What it measures, for help and docs: a sentence without its full stop.
    about: str
    #: Its guide in docs/guides, without ``.md``; empty for none.
    guide: str = ""
    repetition: Repetition = Repetition.COUNTED

    # What is run.
    #: Flags for each family of programs.
    flags: Mapping[FlagFamily, Mapping[str, str]] = field(default_factory=dict)
    #: Flags that name a file in the run's folder -> the file, which is stored with the run.
    files: Mapping[FlagFamily, Mapping[str, str]] = field(default_factory=dict)
    #: Returns the function that runs programs in this pass; called once in a process.
    runner: Callable[[PassServices], RunProgram] = run_unchanged
    #: Returns the case as it is run, such as with fewer inferences; the plan's case is stored.
    as_run: Callable[[Case], Case] = lambda case: case
    #: Flags of benchmark_model that depend on the invocation, after all others.
    last_flags: Callable[[InvocationRequest], Mapping[str, str]] = lambda request: {}
    #: Flags that a plan can't set in it.
    withheld_flags: frozenset[str] = frozenset()
    #: Whether one process may measure several cases.
    shares_process: bool = False
    #: Whether it measures the process's peak memory.
    measures_memory: bool = False
    #: Whether it compares the model's outputs with the reference's.
    compares_outputs: bool = False

    # What is planned.
    #: The kinds of devices that it can run on.
    kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
    #: The numbers of a case's invocations, at least one; mostly ``range(rounds(plan, n))``.
    numbers: Callable[[Plan, Case, Program], Sequence[int]] = lambda plan, case, program: (0,)
    #: Returns what a program lacks for it beside flags, as text after the program's name.
    needs: Callable[[Program, PlanTerms], str] = lambda program, terms: ""
    #: The number of a case's invocations per turn: A B, B A ... spreads drift. None: case by case.
    turn: Callable[[PlanTerms], int] | None = None
    #: Whether declared programs can be run in it, which report only their time.
    takes_declared: bool = False
    #: The title of a campaign of this pass alone, if it isn't a measurement: ``a trace``.
    campaign_title: str = ""
    #: The least seconds of an invocation; for a sustained pass, of all.
    least_s: Callable[[Case, PlanTerms], float] = usual_least_s
    #: Returns the variant for an invocation's number: a stage, a load; empty for none.
    variant: Callable[[int, PlanTerms], str] = lambda number, terms: ""

    # What its runs show.
    #: Adds the pass's own figures to the report.
    read: ReadMore = report_unchanged
    #: Returns the findings against a run's figures.
    findings: Callable[[ToolReport, Case, DeviceFacts], Iterable[Finding]] = no_findings
    #: The pass's own figures, beside those that a program prints in any pass.
    figures: tuple[Figure, ...] = ()
    #: The pass's own table, for results other than a figure per run; None for none.
    table: PassTable[Any] | None = None
    #: Rules of advice by name, each applied to a device's clean rows (report/advice.py).
    advice: Mapping[str, Callable[[Sequence[Any]], Iterator[Any]]] = field(default_factory=dict)
    #: Whether a run's latency is printed when the run is stored.
    prints_latency: bool = False
    #: Returns further text that is printed when a run is stored; empty: only that it is done.
    run_text: Callable[[RunRecord], str] = lambda run: ""
    #: Whether a suspect run is named above the results, as its case's latency may be clean.
    names_suspect_runs: bool = False
    #: Whether runs of all campaigns are shown, and not only those of the newest.
    keeps_all_campaigns: bool = False

    def __post_init__(self) -> None:
        """Refuse a pass whose runs would be ordinary ones, and a second one outside of plans."""
        if not self.is_in_plans and self.name is not Pass.REFERENCE:
            raise ValueError(
                f"the pass {self.name.value!r} has the repetition {self.repetition.value!r}, which is of "
                f"{Pass.REFERENCE.value!r} alone: give it another one"
            )
        fields = type(self).__dataclass_fields__
        is_plain = not self._relies_on_flags and all(
            getattr(self, name) is fields[name].default
            for name in ("as_run", "last_flags", "runner")
        )
        if self.repetition is Repetition.COUNTED and is_plain:
            raise ValueError(
                f"the pass {self.name.value!r} runs a program as it is: give it flags, last_flags, "
                "as_run or a runner"
            )

    @property
    def _relies_on_flags(self) -> bool:
        """Whether only its flags distinguish its runs from ordinary ones."""
        return any(flags.keys() - OMITTABLE_FLAGS for flags in self.flags.values())

    def unsupported_reason(self, program: Program, terms: PlanTerms) -> str:
        """Return why a program can't be run in it, as text after the program's name; empty where it
        can.
        """
        if program.name.is_declared and not self.takes_declared:
            return "is declared: only its time is known"
        if self._relies_on_flags and program.family not in self.flags:
            return "has no flags for it"
        return self.needs(program, terms)

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
