"""Benchmark programs: how they are called and read; flags, references, and observers of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from orchestrator.ports.device import Device
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import RunId
from orchestrator.records.parity import ParityBasis, PlacedInput
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.records.workload import Build, Case, Model, Pass, ToolName


def _as_it_is(command: str) -> str:
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationRequest:
    """What a tool needs to run one invocation: the device's facts and where its files lie."""

    case: Case
    run_id: RunId
    run_pass: Pass
    facts: DeviceFacts
    build: Build
    model_path: str
    #: Path of the program on the device; empty for an app.
    program_path: str
    timeout_s: float
    #: Name -> path on the device of each of the case's files.
    file_paths: Mapping[str, str] = field(default_factory=dict)
    #: The flags that this very program has, as it says itself; empty when it wasn't asked.
    known_flags: frozenset[str] = frozenset()
    #: The invocation's number within its pass; in the pass ``cold`` it means a stage (records/start.py).
    number: int = 0
    #: Where the case's caches lie between the stages of the pass ``cold``.
    cache_folder: str = ""
    #: What else the phone is to do meanwhile; of the pass ``contention`` only (records/contention.py).
    load: str = ""
    #: The model's inputs on the device, in the model's order; of the pass ``parity`` only.
    inputs: tuple[PlacedInput, ...] = ()
    #: Returns the command line in which a program's own is run; of the passes ``energy`` and ``contention`` only.
    enclosed: Callable[[str], str] = _as_it_is
    #: Files that this command line writes beside the program's.
    enclosing_files: tuple[str, ...] = ()


class Tool(Protocol):
    """A benchmark program: how it is called and how its output is read."""

    @property
    def name(self) -> ToolName:
        """Which program."""

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """Run one invocation and return all that it left behind, whatever its end; raises DeviceError kinds."""

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; pure, total: an unreadable output is a report that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One of the things that a process did."""

    seconds: float
    #: 0 for what it did in between.
    tokens: int
    #: Whether it is what the case measures.
    is_own: bool


@runtime_checkable
class SessionTool(Tool, Protocol):
    """A program that measures several cases in one process; ``parse`` reads the run of the case that it is given."""

    def session(self, case: Case, run_pass: Pass) -> str:
        """Return what the cases have in common that one process measures; empty for a case that is run alone."""

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """Return cases that the process measured and nobody could plan: an option for each accelerator it found."""


def session_of(tools: Mapping[ToolName, Tool], case: Case) -> str:
    """Return what a case has in common with others that one process measures; empty when it is run alone."""
    tool = tools[case.tool]
    return tool.session(case, Pass.TIMING) if isinstance(tool, SessionTool) else ""


@runtime_checkable
class TurnTool(Tool, Protocol):
    """A program whose process does different things in turns, one of which is a case's: prefill and decode."""

    def for_energy(self, case: Case, repetitions: int) -> Case:
        """Return a case as a block of energy runs it, so often; nothing but its own turns, where that can be had."""

    def turns(self, raw: RawOutput, case: Case) -> Sequence[Turn]:
        """Return what a process did, in order, up to its end; nothing where it didn't tell."""


class ParityReference(Protocol):
    """Computes what a model's outputs are to be."""

    def basis(self, model: Model, given: str = "") -> ParityBasis:
        """Return inputs and the reference's outputs for them.

        ``given`` is a folder with inputs as ``<model>.<number>.bin``, raw; where it has none for the model, or is
        empty, they are made from a seed. Raises ModelError for a model that the reference can't compute.
        """


class Observer(Protocol):
    """Hears what the engine does, as it does it; must return quickly and never raise."""

    def on_event(self, event: object) -> None:
        """Take one of the records of engine/events.py."""
