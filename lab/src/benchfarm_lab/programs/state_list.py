"""The list of tensors and nodes that --print_preinvoke_state and --print_postinvoke_state ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_lab.delegation import PlanNode, SubgraphPlan
from benchfarm_lab.graph import Tensor

if TYPE_CHECKING:
    from benchfarm_lab.programs.interpreter import Interpreter

_MB: Final = 1 << 20
_NOT_OVERLAPPING: Final = (
    "One possible set of tensors that have non-overlapping memory spaces with each other, and they take up the "
    "whole arena:"
)


def describe(interpreter: Interpreter) -> str:
    """Return the list for all subgraphs; addresses in it are made up, as there is no memory behind them."""
    flags = interpreter.run.parameters
    widths = (
        flags.integer("tensor_name_display_length"), flags.integer("tensor_type_display_length"),
        flags.integer("alloc_type_display_length"),
    )  # fmt: skip
    parts = [f"Interpreter has {len(interpreter.plans)} subgraphs.\n"]
    total = 0
    for plan in interpreter.plans:
        arena = _arena(plan)
        parts.append(_subgraph(plan, arena, widths))
        total += sum(tensor.size_bytes for tensor in arena.values())
    parts.append(_memory(interpreter, total))
    return "\n".join(parts)


def _arena(plan: SubgraphPlan) -> dict[int, Tensor]:
    """Return the tensors that have memory: inputs, outputs and what passes between executed nodes."""
    used = {i for node_id in plan.execution for i in (*plan.nodes[node_id].inputs, *plan.nodes[node_id].outputs)}
    used.update(plan.subgraph.inputs, plan.subgraph.outputs)
    return {i: t for i, t in enumerate(plan.subgraph.tensors) if i in used and not t.constant}


def _subgraph(plan: SubgraphPlan, arena: dict[int, Tensor], widths: tuple[int, int, int]) -> str:
    subgraph = plan.subgraph
    columns = f"Tensor  ID {'Name':<{widths[0]}} {'Type':<{widths[1]}} {'AllocType':<{widths[2]}}"
    lines = [
        f"-----------Subgraph-{plan.index} has {len(subgraph.tensors)} tensors and {len(plan.nodes)} nodes------------",
        f"{len(subgraph.inputs)} Inputs: {_listed(subgraph.inputs)} -> {_size(plan, subgraph.inputs)}",
        f"{len(subgraph.outputs)} Outputs: {_listed(subgraph.outputs)} -> {_size(plan, subgraph.outputs)}", "",
        f"{columns} {'Size (Bytes/MB)':<18} {'Shape':<10} {'MemAddr-Offset':<16}",
    ]  # fmt: skip
    offset = constant_offset = 0
    for index, tensor in enumerate(subgraph.tensors):
        place = (-1, -1)
        if tensor.constant:
            place = (constant_offset, constant_offset + tensor.size_bytes)
            constant_offset = place[1] + 12
        elif index in arena:
            place = (offset, offset + tensor.size_bytes)
            offset = place[1]
        lines.append(_tensor_line(index, tensor, place, widths))
    lines += ["", *_allocation("kTfLiteArenaRw", arena)]
    lines += ["kTfLiteArenaRwPersistent Info: not holding any allocation.", ""]
    constants = {i: t for i, t in enumerate(subgraph.tensors) if t.constant}
    lines += [*_allocation("kTfLiteMmapRo", constants), "kTfLiteDynamic Info: not holding any allocation.", ""]
    for node in plan.nodes:
        lines += _node_lines(plan, node)
    executed = plan.execution
    lines += ["", f"Execution plan as the list of {len(executed)} nodes invoked in-order: {_listed(tuple(executed))}"]
    kernels = [plan.nodes[i] for i in executed if plan.nodes[i].delegate]
    if kernels:
        lines.append("Among these nodes in the execution plan:")
    for node in kernels:
        replaced = _listed(node.replaced)
        lines.append(
            f"  Node {node.node_id} is a {node.delegate} node (0x{0x5000_0000_0000 + 64 * node.node_id:x}), which has "
            f"delegated {len(node.replaced)} nodes: {replaced}"
        )
    lines.append(f"--------------Subgraph-{plan.index} dump has completed--------------")
    return "\n".join(lines) + "\n"


def _tensor_line(index: int, tensor: Tensor, place: tuple[int, int], widths: tuple[int, int, int]) -> str:
    name = tensor.name or "(nil)"
    name = name if len(name) <= widths[0] else name[: max(0, widths[0] - 3)] + "..."
    kind = "kTfLite" + tensor.type_name.capitalize().replace("Uint", "UInt")
    allocation = "kTfLiteMmapRo" if tensor.constant else "kTfLiteArenaRw"
    shape = "[" + ",".join(map(str, tensor.shape)) + "]" if tensor.shape else "(null)"
    size = tensor.size_bytes
    return (
        f"Tensor {index:3d} {name:<{widths[0]}} {kind:<{widths[1]}} {allocation:<{widths[2]}} {size:<8d} / "
        f"{size / _MB:.2f} {shape} [{place[0]}, {place[1]})"
    )


def _allocation(kind: str, tensors: dict[int, Tensor]) -> list[str]:
    if not tensors:
        return [f"{kind} Info: not holding any allocation.", ""]
    largest = max(tensors, key=lambda i: tensors[i].size_bytes)
    size = tensors[largest].size_bytes
    total = sum(tensor.size_bytes for tensor in tensors.values())
    start = 0x7000_0000_0000
    place = f"This memory arena is estimated as[0x{start + total:x}, 0x{start:x})"
    return [
        f"{kind} Info: ", f"Tensor {largest} has the max size {size} bytes ({size / _MB:.3f} MB).",
        f"{place}, taking {total} bytes ({total / _MB:.3f} MB).",
        _NOT_OVERLAPPING,
        "Tensor " + " -> ".join(map(str, tensors)) + ".", "",
    ]  # fmt: skip


def _node_lines(plan: SubgraphPlan, node: PlanNode) -> list[str]:
    if node.operator is None or node.operator.custom:
        head = f"Node {node.node_id:3d} Operator Custom Name {node.name}"
    else:
        head = f"Node {node.node_id:3d} Operator Builtin Code {node.operator.code:3d} {node.name}"
    if node.delegate:
        head += " "
    elif node.node_id in plan.delegated:
        head += f" (delegated by node {plan.delegated[node.node_id]})"
    else:
        head += " (not delegated)"
    return [
        head, f"  {len(node.inputs)} Input Tensors:{_listed(node.inputs)} -> {_size(plan, node.inputs)}",
        f"  {len(node.outputs)} Output Tensors:{_listed(node.outputs)} -> {_size(plan, node.outputs)}",
    ]  # fmt: skip


def _listed(indices: tuple[int, ...]) -> str:
    """Return numbers with runs drawn together: ``[0-4,7]``."""
    parts: list[str] = []
    position = 0
    while position < len(indices):
        end = position
        while end + 1 < len(indices) and indices[end + 1] == indices[end] + 1:
            end += 1
        parts.append(f"{indices[position]}-{indices[end]}" if end > position + 1 else
                     ",".join(map(str, indices[position : end + 1])))  # fmt: skip
        position = end + 1
    return "[" + ",".join(parts) + "]"


def _size(plan: SubgraphPlan, indices: tuple[int, ...]) -> str:
    tensors = [plan.subgraph.tensor(i) for i in indices]
    size = sum(t.size_bytes for t in tensors if t is not None)
    return f"{size}B ({size / _MB:.2f}MB)"


def _memory(interpreter: Interpreter, total: int) -> str:
    lines = [
        "--------------Memory Arena Status Start--------------",
        f"Total memory usage: {total} bytes ({total / _MB:.3f} MB)",
        f"- Total arena memory usage: {total} bytes ({total / _MB:.3f} MB)",
        "- Total dynamic memory usage: 0 bytes (0.000 MB)", "",
    ]  # fmt: skip
    for plan in interpreter.plans:
        size = sum(tensor.size_bytes for tensor in _arena(plan).values())
        share = 100 * size / total if total else 0.0
        lines.append(f"Subgraph#{plan.index:<3} Arena (Normal){size:>15} ({share:.2f}%)")
    return "\n".join([*lines, "--------------Memory Arena Status End--------------", ""])
