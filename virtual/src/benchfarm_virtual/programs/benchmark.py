"""One run of benchmark_model: from the parameter log to the results, in the order of the real
program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from benchfarm_virtual.commands.invocation import Invocation
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.faults import Fault, FaultKind
from benchfarm_virtual.graph import Graph, MalformedModelError, read_graph
from benchfarm_virtual.latency import Noise
from benchfarm_virtual.programs import reports
from benchfarm_virtual.programs.flags import Parameters
from benchfarm_virtual.programs.interpreter import Interpreter, parse_layers
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    Transcript,
    announce,
    number,
    read_content,
    time_factor_of,
)
from benchfarm_virtual.programs.run_loop import Footprint, Limits, RunLoop, Stat, run_footprint

#: How fast a model file is read and checked, bytes a microsecond.
_LOAD_BYTES_PER_US: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a run measured."""

    init_us: int
    warmup: Stat
    runs: Stat
    footprint: Footprint
    input_bytes: int
    model_bytes: int

    @property
    def first_us(self) -> int:
        """The first inference of the warm-up; 0 without one."""
        return self.warmup.first


class BenchmarkRun:
    """One run with one set of parameters."""

    def __init__(
        self,
        call: Invocation,
        say: Transcript,
        parameters: Parameters,
        version: str = "",
        *,
        flex: bool = False,
        is_litert: bool = False,
    ) -> None:
        self.call = call
        self.hardware = call.system.hardware
        self.profile = self.hardware.profile
        #: As the program was made; empty for a real one's name.
        self.version = version
        self.time_factor = time_factor_of(version)
        self.say = say
        self.parameters = parameters
        #: Messages that it prints only once.
        self._printed: set[str] = set()
        self.flex = flex
        #: Whether it is LiteRT's program, with its own delegates, and other messages about them and
        #: the results.
        self.is_litert = is_litert
        self.noise = Noise(self.hardware.next_process_seed())

    def run(self) -> Results:
        """Run the program; raise BenchmarkFailedError, or ProgramDiedError when it aborts or is
        killed.
        """
        try:
            layers = parse_layers(self.parameters)
        except ValueError:
            self.fail("A virtual phone can't read --input_layer and what belongs to it.")
        self.say.info(f"Log parameter values verbosely: [{int(self.parameters.switch('verbose'))}]")
        for line in self._echo():
            self.say.info(line)
        self.moment("init")
        graph = self._load()
        interpreter = Interpreter(self, graph, layers)
        init_us = interpreter.initialize()
        self.say.info(f"The input model file size (MB): {number(graph.size_bytes / 1e6)}")
        self.say.info(f"Initialized session in {number(init_us / 1e3)}ms.")
        interpreter.read_inputs()
        return self._measure(interpreter, init_us)

    def _measure(self, interpreter: Interpreter, init_us: int) -> Results:
        loop = RunLoop(self, interpreter)
        flags = self.parameters
        self.moment("warmup")
        most_s = flags.number("max_secs")
        warmup = loop.run(
            Limits(flags.integer("warmup_runs"), flags.number("warmup_min_secs"), most_s)
        )
        self.moment("run")
        runs = loop.run(
            Limits(flags.integer("num_runs"), flags.number("min_secs"), most_s),
            profiled=flags.switch("enable_op_profiling"),
        )
        self.moment("results")
        results = Results(
            init_us=init_us,
            warmup=warmup,
            runs=runs,
            footprint=run_footprint(interpreter, warmup.count + runs.count),
            input_bytes=interpreter.input_bytes,
            model_bytes=interpreter.graph.size_bytes,
        )
        if not self.is_litert:
            reports.say_results(self, results)
        reports.report_details(self, interpreter, results)
        return results

    def _echo(self) -> list[str]:
        lines = list(self.parameters.echo())
        if self.parameters.switch("use_nnapi") and self.profile.nnapi:
            names = ",".join(device.name for device in self.profile.nnapi)
            lines.append(f"NNAPI accelerators available: [{names}]")
        return lines

    def _load(self) -> Graph:
        path = self.parameters.text("graph")
        if self.is_litert:
            self.say.runtime("INFO", f"[benchmark_litert_model.cc:305] Loading model from: {path}")
        try:
            data = read_content(self.call, path)
            graph = read_graph(data)
        except PhoneFileError:
            self.say.runtime("ERROR", f"Could not open '{path}'.")
            self.say.error("The model allocation is null/empty")
            self.fail(f"Failed to load model {path}")
        except MalformedModelError:
            self.say.runtime("ERROR", "The model is not a valid Flatbuffer buffer")
            self.fail(f"Failed to load model {path}")
        self.sleep_us(len(data) / _LOAD_BYTES_PER_US)
        if not self.is_litert:
            self.say.info(f"Loaded model {path}")
        return graph

    # Used by the parts
    # ------------------------------------------------------------------------------------------------

    def fail(self, message: str) -> NoReturn:
        """Report an error and end the run."""
        self.say.error(message)
        raise BenchmarkFailedError

    def is_first(self, text: str) -> bool:
        """Return True the first time that this text is to be printed."""
        is_new = text not in self._printed
        self._printed.add(text)
        return is_new

    def moment(self, name: str) -> None:
        """Announce a named moment of the program to the faults."""
        announce(self.call, name)

    def sleep_us(self, duration_us: float) -> None:
        """Let phone time pass; raise ProgramDiedError when the process is killed meanwhile."""
        self.call.sleep(max(0.0, duration_us) / 1e6)

    def take_fault(self, kind: FaultKind, subject: str) -> Fault | None:
        """Return the fault of this kind that happens to a delegate now, if requested: in all
        programs, or in those of a version (``xnnpack of 2.17``).
        """
        faults = self.call.system.faults
        names = (subject, f"{subject} of {self.version}")
        faults_of_names = (faults.take(kind, "delegate", subject=name) for name in names)
        return next((fault for fault in faults_of_names if fault is not None), None)
