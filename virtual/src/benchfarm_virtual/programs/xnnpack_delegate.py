"""XNNPACK, applied because it was asked for or by the runtime itself, and the delegate for
TensorFlow's operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_virtual.delegation import FLEX, XNNPACK, dynamic_outputs, xnnpack_takes
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.programs.delegate_steps import (
    Delegate,
    kept_file,
    not_prepared,
    note_wrong,
    operators_of,
    reduced,
    replace_nodes,
)
from benchfarm_virtual.programs.phone_files import size_of, write_whole

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter

_WEIGHT_CACHE_GAIN: Final = 0.4


class XnnpackDelegate:
    """XNNPACK, when it was asked for."""

    provider = "XNNPACK"
    static_only = False

    def apply(self, interpreter: Interpreter) -> int:
        """Give it what it takes of every subgraph."""
        if interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "xnnpack") is not None:
            interpreter.run.say.runtime("ERROR", "failed to create XNNPACK runtime")
            not_prepared(interpreter, interpreter.plan, XNNPACK)
        return _apply_xnnpack(interpreter)


def create_xnnpack(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    if run.bench.take_fault(FaultKind.DELEGATE_MISSING, "xnnpack") is not None:
        return None
    if run.parameters.switch("xnnpack_force_fp16"):
        run.say.info("XNNPack FP16 inference enabled.")
    if run.parameters.text("xnnpack_weight_cache_file_path"):
        run.say.info("XNNPack file-backed weight cache enabled.")
    _say_xnnpack(interpreter)
    return XnnpackDelegate()


def _say_xnnpack(interpreter: Interpreter) -> None:
    if interpreter.run.once.first("xnnpack created"):
        interpreter.run.say.runtime("INFO", "Created TensorFlow Lite XNNPACK delegate for CPU.")


def apply_implicit_xnnpack(interpreter: Interpreter) -> None:
    """Apply XNNPACK as the runtime does by itself; nobody is told how much it took."""
    _say_xnnpack(interpreter)
    _apply_xnnpack(interpreter)


def _apply_xnnpack(interpreter: Interpreter) -> int:
    kernels = 0
    for plan in interpreter.plans:
        dynamic = dynamic_outputs(plan.subgraph)
        taken = frozenset(
            i
            for i, operator in operators_of(plan)
            if xnnpack_takes(plan.subgraph, operator, dynamic)
        )
        if plan is interpreter.plan:
            taken = reduced(interpreter, taken, "xnnpack")
        done = replace_nodes(interpreter, plan, XNNPACK, taken)
        if done is not None and plan is interpreter.plan:
            kernels = len(done.kernels)
    note_wrong(interpreter, "xnnpack", XNNPACK)
    path = interpreter.run.parameters.text("xnnpack_weight_cache_file_path")
    if path and kernels:
        if size_of(interpreter.run.process, path):
            interpreter.init_us -= _WEIGHT_CACHE_GAIN * interpreter.init_us
        else:
            write_whole(
                interpreter.run.process,
                path,
                kept_file(interpreter, "XNNP", interpreter.graph.weight_bytes),
            )
    return kernels


def apply_flex(interpreter: Interpreter) -> None:
    """Apply the delegate for TensorFlow's own operators, in builds that have it and models that
    need it.
    """
    for plan in interpreter.plans:
        taken = frozenset(
            i
            for i, operator in operators_of(plan)
            if operator.custom and operator.name.startswith("Flex")
        )
        if taken and interpreter.run.once.first("flex created"):
            interpreter.run.say.runtime(
                "INFO", "Created TensorFlow Lite delegate for select TF ops."
            )
        replace_nodes(interpreter, plan, FLEX, taken)
