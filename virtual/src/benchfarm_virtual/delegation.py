"""Delegates of the programs, and the partitions of a graph for them.

The order of execution is partitioned as in TensorFlow Lite: nodes of one kind are gathered as long
as all their inputs are there, so that partitions are as few as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.profiles import AcceleratorSpec

if TYPE_CHECKING:
    from benchfarm_virtual.programs.flags import Flag
    from benchfarm_virtual.programs.interpreter import Interpreter

#: Applies a delegate; returns how many kernels the primary subgraph got. Raises
#: BenchmarkFailedError.
Apply = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delegate:
    """Everything that depends on which delegate it is; the records are in programs/delegates.py."""

    #: What faults and profiles call it.
    name: str
    #: The name of its kernels.
    kernel: str
    #: The provider's name in the tool's lines.
    provider: str = ""
    #: The flag that asks for it; "" for one that the runtime applies by itself.
    flag: str = ""
    #: Creates it, which may say why there is none.
    create: Callable[[Interpreter, Delegate], Apply | None] = lambda interpreter, own: None
    #: Its flags in benchmark_model and in LiteRT's program, in the order of --help.
    flags: tuple[Flag, ...] = ()
    litert_flags: tuple[Flag, ...] = ()
    #: The operators that it takes where the type allows it.
    operators: frozenset[str] = frozenset()
    #: The device that it drives on phones whose profile has none for it under ``accelerators``.
    device: AcceleratorSpec | None = None
    #: It computes on the CPU's threads; with weights that it packs, faster than builtin kernels.
    is_on_cpu: bool = False
    packs_weights: bool = False
    #: What it takes beside the tensors.
    memory_kb: float = 0.0
    #: It is made of TensorFlow Lite's SimpleDelegate, which says what it takes.
    is_simple: bool = False
    #: What profiles call an operator and its place in a kernel; None: they show the kernel.
    label: Callable[[Subgraph, Operator, int], str] | None = None
    #: A run's name in the summary of benchmark_model_performance_options.
    summary: str = ""


#: The runtime's own kernels.
BUILTIN: Final = Delegate(name="", kernel="", is_on_cpu=True)


def data_type(subgraph: Subgraph, operator: Operator) -> str:
    """Return the type that an operator computes in: that of its first input, or of its output for
    DEQUANTIZE.
    """
    tensors = subgraph.operator_inputs(operator) or subgraph.operator_outputs(operator)
    return tensors[0].type_name if tensors else "FLOAT32"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """A node that the interpreter knows: an operator of the model, or a delegate's kernel in place
    of several.
    """

    node_id: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operator: Operator | None = None
    #: The delegate whose kernel it is, and the nodes that it stands for.
    delegate: Delegate | None = None
    replaced: tuple[int, ...] = ()


@dataclass(slots=True)
class SubgraphPlan:
    """One subgraph's nodes and the order in which they are executed, changed as delegates are
    applied.
    """

    subgraph: Subgraph
    index: int
    nodes: list[PlanNode] = field(default_factory=list)
    execution: list[int] = field(default_factory=list)
    #: Node -> the delegate kernel that replaced it.
    delegated: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, subgraph: Subgraph, index: int) -> SubgraphPlan:
        """Return the plan of a subgraph before any delegate."""
        nodes = [
            PlanNode(node_id=i, name=op.name, inputs=op.inputs, outputs=op.outputs, operator=op)
            for i, op in enumerate(subgraph.operators)
        ]
        return cls(subgraph, index, nodes, [node.node_id for node in nodes])

    @property
    def fully_delegated(self) -> bool:
        """Whether one delegate's kernel is all that is left."""
        return len(self.execution) == 1 and self.nodes[self.execution[0]].delegate is not None

    def partitions(self, taken: frozenset[int]) -> list[list[int]]:
        """Return the runs of nodes, alternately taken and not, beginning with the kind of the first
        node.
        """
        if not self.execution:
            return []
        first_taken = self.execution[0] in taken
        ready: dict[int, int] = {}
        runs: list[list[int]] = []
        for node_id in self.execution:
            node = self.nodes[node_id]
            epoch = max((ready.get(i, 0) for i in node.inputs), default=0)
            if (node_id in taken) != (first_taken == (epoch % 2 == 0)):
                epoch += 1
            while len(runs) <= epoch:
                runs.append([])
            runs[epoch].append(node_id)
            for output in node.outputs:
                ready[output] = epoch
        return [run for run in runs if run]

    def largest(self, taken: frozenset[int], limit: int) -> frozenset[int]:
        """Return the nodes of the ``limit`` largest partitions."""
        runs = [run for run in self.partitions(taken) if run[0] in taken]
        chosen = sorted(runs, key=len, reverse=True)[:limit]
        return frozenset(node for run in chosen for node in run)

    def replace(self, delegate: Delegate, name: str, taken: frozenset[int]) -> tuple[int, int]:
        """Put a delegate's kernels in the place of the nodes that it takes, under a name; return
        how many partitions the runtime counts in its log (runs of nodes of either kind), and
        kernels.
        """
        runs = self.partitions(taken)
        execution: list[int] = []
        used_later = self._consumers()
        before = len(self.nodes)
        for run in runs:
            if run[0] not in taken:
                execution.extend(run)
                continue
            kernel = self._kernel(run, used_later, delegate=delegate, name=name)
            self.nodes.append(kernel)
            execution.append(kernel.node_id)
            self.delegated.update(dict.fromkeys(run, kernel.node_id))
        self.execution = execution
        return len(runs), len(self.nodes) - before

    def _consumers(self) -> dict[int, set[int]]:
        consumers: dict[int, set[int]] = {}
        for node_id in self.execution:
            for tensor in self.nodes[node_id].inputs:
                consumers.setdefault(tensor, set()).add(node_id)
        return consumers

    def _kernel(
        self,
        run: Sequence[int],
        consumers: Mapping[int, set[int]],
        *,
        delegate: Delegate,
        name: str,
    ) -> PlanNode:
        inside = set(run)
        produced = {t for node_id in run for t in self.nodes[node_id].outputs}
        read = {t for node_id in run for t in self.nodes[node_id].inputs if t >= 0}
        outputs = {
            t for t in produced if t in self.subgraph.outputs or consumers.get(t, set()) - inside
        }
        return PlanNode(
            node_id=len(self.nodes),
            name=name,
            inputs=tuple(sorted(read - produced)),
            outputs=tuple(sorted(outputs)),
            delegate=delegate,
            replaced=tuple(run),
        )
