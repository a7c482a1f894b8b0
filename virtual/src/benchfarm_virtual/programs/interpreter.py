"""The runtime below the tool: a model's execution plan with delegates applied, its speed now, and
its memory.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from benchfarm_virtual import latency
from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.delegation import BUILTIN, Apply, Delegate, SubgraphPlan
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.graph import Graph, Subgraph
from benchfarm_virtual.latency import NodeWork, Speeds
from benchfarm_virtual.profiles import AcceleratorSpec, GpuSpec, UnitSpec
from benchfarm_virtual.programs.delegates import (
    XNNPACK,
    apply_flex,
    apply_xnnpack,
    create_delegates,
)
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    RuntimeSeverity,
    read_content,
    thread_cores,
)

if TYPE_CHECKING:
    from benchfarm_virtual.programs.benchmark import BenchmarkRun
    from benchfarm_virtual.programs.flags import Parameters


#: Custom operators that the programs have built in.
_KNOWN_CUSTOM: Final = frozenset(
    {"TFLite_Detection_PostProcess", "NumericVerify", "Mfcc", "AudioSpectrogram"}
)
#: On a core of this rate: bytes a microsecond that the interpreter reads and XNNPACK packs, and the
#: cost per operator.
_REFERENCE_GMACS: Final = 14.0
_BUILD_US: Final = 250.0
_BUILD_BYTES_PER_US: Final = 900.0
_PACK_BYTES_PER_US: Final = 450.0
_PREPARE_US_PER_OP: Final = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLayer:
    """One input as the flags describe it."""

    shape: tuple[int, ...]
    #: The file with its values, "" for random ones.
    value_file: str = ""


def parse_layers(flags: Parameters) -> list[InputLayer]:
    """Return the input layers of the flags."""
    names, shapes = flags.text("input_layer"), flags.text("input_layer_shape")
    # The first single ':' divides; '::' stands for a ':' in the name.
    matches = re.finditer(r"((?:[^:,]|::)+):(?!:)([^,]*)", flags.text("input_layer_value_files"))
    files = {match[1].replace("::", ":"): match[2] for match in matches}
    return [
        InputLayer(shape=tuple(map(int, shape.split(","))), value_file=files.get(name, ""))
        for name, shape in zip(names.split(","), shapes.split(":"), strict=True)
        if name
    ]


class Interpreter:
    """A loaded model in a run."""

    def __init__(self, run: BenchmarkRun, graph: Graph, layers: list[InputLayer]) -> None:
        self.run = run
        self.flags = run.parameters
        self.graph = graph
        self.layers = layers
        self.plans = [
            SubgraphPlan.of(subgraph, index) for index, subgraph in enumerate(graph.subgraphs)
        ]
        #: The contents of the files that inputs were read from.
        self.input_values: list[bytes] = []
        #: The GPU's programming interface in use: cl or gl.
        self.gpu_backend = "cl"
        #: Delegate -> its device beside the CPU.
        self.devices: dict[Delegate, UnitSpec] = {}
        #: The delegates that compute wrong numbers (a fault).
        self.wrong: set[Delegate] = set()
        self.init_us = 0.0
        self._known_times: dict[tuple[object, ...], float] = {}

    @property
    def plan(self) -> SubgraphPlan:
        """The plan of the subgraph that runs."""
        return self.plans[0]

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph that runs."""
        return self.graph.subgraphs[0]

    @property
    def input_bytes(self) -> int:
        """The size of all inputs."""
        return sum(self.subgraph.tensors[i].size_bytes for i in self.subgraph.inputs)

    def log(self, severity: RuntimeSeverity, message: str) -> None:
        """Log a message of the runtime."""
        self.run.say.runtime(severity, message)

    def read_inputs(self) -> None:
        """Read the files with input values."""
        for layer in self.layers:
            if not layer.value_file:
                continue
            try:
                self.input_values.append(read_content(self.run.call, layer.value_file))
            except PhoneFileError:
                self.run.fail(f"Failed to read the input_layer_value_file:{layer.value_file}")

    # Initialisation
    # ---------------------------------------------------------------------------------------------------

    def initialize(self) -> int:
        """Build, delegate and allocate; return the time in microseconds.

        Ends the run where the program would fail.
        """
        run = self.run
        self.init_us = self._preparing_us(_BUILD_US + self.graph.size_bytes / _BUILD_BYTES_PER_US)
        run.moment("delegate")
        applied = create_delegates(self)
        if not applied and self.flags.switch("require_full_delegation"):
            run.fail("Disallowed CPU fallback detected.")
        if len(applied) > 1 and not run.is_litert:
            run.say.info(f"Going to apply {len(applied)} delegates one after another.")
        for delegate, apply in applied:
            self._apply(delegate, apply)
        self._allocate()
        self.init_us *= run.noise.process_factor * (1.0 + 0.2 * run.noise.uniform())
        run.sleep_us(self.init_us)
        return max(1, round(self.init_us))

    def _apply(self, delegate: Delegate, apply: Apply) -> None:
        run = self.run
        nodes_before = len(self.plan.nodes)
        try:
            replaced = apply()
        except BenchmarkFailedError:
            if len(self.plan.nodes) > nodes_before:
                self.log(
                    "ERROR", "Restored original execution plan after delegate application failure."
                )
            run.fail(
                "Failed to compile model."
                if run.is_litert
                else f"Failed to apply {delegate.provider} delegate."
            )
        self._note_wrong(delegate)
        full = replaced > 0 and self.plan.fully_delegated
        if not full and self.flags.switch("require_full_delegation"):
            run.fail("Disallowed CPU fallback detected.")
        if run.is_litert:
            return
        applied = f"Explicitly applied {delegate.provider} delegate, and the model graph will be"
        if full:
            run.say.info(f"{applied} completely executed by the delegate.")
        elif replaced:
            run.say.info(
                f"{applied} partially executed by the delegate w/ {replaced} delegate kernels."
            )
        else:
            run.say.info(
                f"Though {delegate.provider} delegate is explicitly applied, the model graph will not be executed by "
                "the delegate."
            )

    def _note_wrong(self, delegate: Delegate) -> None:
        """Have a delegate compute wrong numbers, with that fault."""
        if self.run.take_fault(FaultKind.DELEGATE_WRONG, delegate.name) is not None:
            self.wrong.add(delegate)

    def _allocate(self) -> None:
        run = self.run
        if "use_xnnpack" not in self.flags.explicit and not self.plan.fully_delegated:
            apply_xnnpack(self)
            self._note_wrong(XNNPACK)
        if run.flex:
            apply_flex(self)
        for plan in self.plans:
            for node_id in plan.execution:
                node = plan.nodes[node_id]
                if (
                    node.operator is not None
                    and node.operator.custom
                    and node.name not in _KNOWN_CUSTOM
                ):
                    self._unresolved(node_id, node.name)
        packed = sum(len(plan.delegated) for plan in self.plans)
        if any(delegate.packs_weights for delegate in self.delegates):
            self.init_us += self._preparing_us(self.graph.weight_bytes / _PACK_BYTES_PER_US)
        nodes = packed + sum(len(plan.execution) for plan in self.plans)
        self.init_us += self._preparing_us(_PREPARE_US_PER_OP * nodes)

    def _preparing_us(self, reference_us: float) -> float:
        """Return the current time of one thread of this phone for work of ``reference_us`` on the
        reference core.
        """
        first = self.threads()[0]
        shares = self.run.hardware.core_shares()
        gmacs = next(c.f32_gmacs for c in self.run.profile.clusters if first in c.cpus)
        return reference_us * _REFERENCE_GMACS / max(0.1, gmacs * shares[first])

    def _unresolved(self, node_id: int, name: str) -> None:
        run = self.run
        if name.startswith("Flex"):
            self.log(
                "ERROR",
                "Select TensorFlow op(s), included in the given model, is(are) not supported by this interpreter. Make "
                "sure you apply/link the Flex delegate before inference. For the Android, it can be resolved by adding "
                '"org.tensorflow:tensorflow-lite-select-tf-ops" dependency. See instructions: '
                "https://www.tensorflow.org/lite/guide/ops_select",
            )
        else:
            self.log(
                "ERROR",
                f"Encountered unresolved custom op: {name}.\nSee instructions: "
                "https://www.tensorflow.org/lite/guide/ops_custom ",
            )
        self.log("ERROR", f"Node number {node_id} ({name}) failed to prepare.")
        run.fail("Failed to allocate tensors!")

    # Speed
    # ------------------------------------------------------------------------------------------------------------

    @cached_property
    def works(self) -> list[NodeWork]:
        """The work of each node of the plan."""
        return latency.plan_work(self.plan)

    @property
    def delegates(self) -> set[Delegate]:
        """The delegates in the plans of all subgraphs, with BUILTIN."""
        return {plan.nodes[i].delegate or BUILTIN for plan in self.plans for i in plan.execution}

    @property
    def units(self) -> set[Delegate]:
        """The delegates in the plan of the subgraph that runs."""
        return {work.unit for work in self.works}

    @property
    def used(self) -> list[UnitSpec]:
        """The devices beside the CPU in the subgraph that runs."""
        return [device for unit, device in self.devices.items() if unit in self.units]

    def threads(self) -> tuple[int, ...]:
        """Return the cores where the CPU's part runs."""
        return thread_cores(self.run.call, self.flags.integer("num_threads"), self.run.noise)

    def speeds(self, shares: dict[int, float], gpu_share: float) -> Speeds:
        """Return the speeds of all units at these clocks."""
        flags = self.flags
        fp16 = flags.switch("xnnpack_force_fp16") or flags.switch("allow_fp16")
        memory_share = self.run.hardware.memory_share()
        cpu = partial(
            latency.cpu_speed, self.run.profile, self.threads(), shares, memory_share=memory_share
        )
        speeds = {BUILTIN: cpu(xnnpack=False)}
        for unit in self.units:
            match self.devices.get(unit):
                case GpuSpec() as gpu:
                    speeds[unit] = latency.gpu_speed(
                        gpu,
                        gpu_share,
                        fp16=flags.switch("gpu_precision_loss_allowed"),
                        backend=self.gpu_backend,
                        memory_share=memory_share,
                    )
                case AcceleratorSpec() as device:
                    speeds[unit] = latency.accelerator_speed(device)
                case None if unit.packs_weights:
                    speeds[unit] = cpu(xnnpack=True, fp16=fp16)
        return speeds

    def inference_us(self, shares: dict[int, float], gpu_share: float) -> float:
        """Return the time of one inference at these clocks, before noise."""
        key = (*shares.values(), gpu_share, self.run.hardware.memory_share())
        time_us = self._known_times.get(key)
        if time_us is None:
            speeds = self.speeds(shares, gpu_share)
            factor = latency.unpinned_factor(
                self.run.profile,
                affinity=self.run.call.process.affinity,
                group=self.run.call.process.group,
            )
            cpu = sum(w.time_us(speeds) for w in self.works if w.unit.is_on_cpu)
            other = sum(w.time_us(speeds) for w in self.works if not w.unit.is_on_cpu)
            time_us = (cpu * factor + other * math.sqrt(factor)) * self.run.time_factor
            time_us = min(1e12, max(0.3, time_us))
            self._known_times[key] = time_us
        return time_us

    def load(self) -> tuple[tuple[int, ...], float, float, float]:
        """Return its load of the phone: cores, their share, the GPU's share, watts in an accelerator."""
        threads, used = self.threads(), self.used
        if not used:
            return threads, 1.0, 0.0, 0.0
        on_gpu = any(isinstance(device, GpuSpec) for device in used)
        watts = sum(device.watts for device in used if not isinstance(device, GpuSpec))
        cpus = threads if any(unit.is_on_cpu for unit in self.units) else threads[:1]
        return cpus, 0.35, float(on_gpu), watts
