"""What the delegates share when they are applied: putting kernels into a plan, faults, files that
they keep.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, Protocol

from benchfarm_virtual.delegation import Replacement, SubgraphPlan
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.graph import Operator
from benchfarm_virtual.programs.process import BenchmarkFailedError

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


class Delegate(Protocol):
    """A delegate that was created."""

    #: The provider's name in the tool's lines.
    provider: str
    #: Whether it refuses graphs with dynamic shapes.
    static_only: bool

    def apply(self, interpreter: Interpreter) -> int:
        """Apply it; return how many kernels the primary subgraph got.

        Raises BenchmarkFailedError.
        """
        ...


def replace_nodes(
    interpreter: Interpreter, plan: SubgraphPlan, delegate: str, taken: frozenset[int]
) -> Replacement | None:
    """Put kernels into a plan and say so; None when there is nothing to replace."""
    if not taken:
        return None
    done = plan.replace(delegate, taken)
    interpreter.run.say.runtime(
        "VERBOSE",
        f"Replacing {done.nodes} out of {done.total} node(s) with delegate ({interpreter.shown(delegate)}) node, "
        f"yielding {done.partitions} partitions for subgraph {plan.index} ({plan.subgraph.name}).",
    )
    return done


def operators_of(plan: SubgraphPlan) -> Iterator[tuple[int, Operator]]:
    """Yield the nodes of a plan that still are operators of the model."""
    for node_id in plan.execution:
        operator = plan.nodes[node_id].operator
        if operator is not None:
            yield node_id, operator


def reduced(interpreter: Interpreter, taken: frozenset[int], subject: str) -> frozenset[int]:
    """Take only a share of the nodes, when that fault was asked for."""
    fault = interpreter.run.bench.take_fault(FaultKind.DELEGATE_PARTIAL, subject)
    if fault is None:
        return taken
    keep = math.floor(len(taken) * max(0.0, min(1.0, fault.number("share"))))
    return frozenset(sorted(taken)[:keep])


def note_wrong(interpreter: Interpreter, subject: str, delegate: str) -> None:
    """Have a delegate compute wrong numbers, when that fault was asked for."""
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_WRONG, subject) is not None:
        interpreter.wrong.add(delegate)


def not_prepared(
    interpreter: Interpreter, plan: SubgraphPlan, delegate: str, *, node: int | None = None
) -> NoReturn:
    """Say that a kernel failed to prepare, and raise BenchmarkFailedError; by default it would be
    the next node.
    """
    number = len(plan.nodes) if node is None else node
    interpreter.run.say.runtime(
        "ERROR", f"Node number {number} ({interpreter.shown(delegate)}) failed to prepare."
    )
    raise BenchmarkFailedError


def kept_file(interpreter: Interpreter, magic: str, size_bytes: int) -> bytes:
    """Return what a delegate keeps in a file: a head that names the model, then nothing, at most 1
    MB.
    """
    head = f"{magic}{interpreter.graph.sha256}".encode()
    return head.ljust(min(1_000_000, max(len(head), size_bytes)), b"\0")
