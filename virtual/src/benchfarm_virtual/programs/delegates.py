"""Delegates: what all share when they are applied (kernels in a plan, faults, kept files), XNNPACK,
Flex, and those from libraries.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.delegation import (
    FLEX,
    XNNPACK,
    SubgraphPlan,
    dynamic_outputs,
    xnnpack_takes,
)
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.graph import Operator
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    find_library,
    linked_folders,
    read_whole,
    size_of,
    write_whole,
)
from benchfarm_virtual.samples import note_of

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


@dataclass(frozen=True, slots=True)
class Delegate:
    """A delegate that was created."""

    #: The provider's name in the tool's lines.
    provider: str
    #: Applies it; returns how many kernels the primary subgraph got. Raises BenchmarkFailedError.
    apply: Callable[[Interpreter], int]


def replace_nodes(
    interpreter: Interpreter, plan: SubgraphPlan, delegate: str, taken: frozenset[int]
) -> int:
    """Put kernels into a plan and say so; return how many."""
    if not taken:
        return 0
    total = len(plan.execution)
    partitions, kernels = plan.replace(delegate, taken)
    interpreter.run.say.runtime(
        "VERBOSE",
        f"Replacing {len(taken)} out of {total} node(s) with delegate ({interpreter.shown(delegate)}) node, "
        f"yielding {partitions} partitions for subgraph {plan.index} ({plan.subgraph.name}).",
    )
    return kernels


def say_taken(
    interpreter: Interpreter, plan: SubgraphPlan, name: str, taken: frozenset[int]
) -> None:
    """Say what a simple delegate takes, as all of them do."""
    partitions = sum(1 for run in plan.partitions(taken) if run and run[0] in taken)
    interpreter.run.say.runtime(
        "INFO",
        f"{name} delegate: {len(taken)} nodes delegated out of {len(plan.execution)} nodes with {partitions} "
        "partitions.\n",
    )


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


_WEIGHT_CACHE_GAIN: Final = 0.4


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
    return Delegate("XNNPACK", _apply_explicit_xnnpack)


def _apply_explicit_xnnpack(interpreter: Interpreter) -> int:
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "xnnpack") is not None:
        interpreter.run.say.runtime("ERROR", "failed to create XNNPACK runtime")
        not_prepared(interpreter, interpreter.plan, XNNPACK)
    return _apply_xnnpack(interpreter)


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
        if plan is interpreter.plan:
            kernels = done
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


#: The name in the note of a fake library for it.
DUMMY_PROGRAM: Final = "dummy_external_delegate"
STABLE_PROGRAM: Final = "sample_stable_delegate"
_DUMMY_NAME: Final = "DummyDelegate"
_DUMMY_ERRORS: Final = ("error_during_init", "error_during_prepare", "error_during_invoke")
_STABLE_NAME: Final = "google_sample_delegate"
_STABLE_OPERATORS: Final = frozenset({"ADD", "SUB"})


def create_external(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    # A library that is missing, or none, is passed over without a word, as release builds do.
    try:
        note = note_of(read_whole(run.process, run.parameters.text("external_delegate_path")))
    except PhoneFileError:
        return None
    if note is None or note.program != DUMMY_PROGRAM:
        return None
    options = _dummy_options(run.parameters.text("external_delegate_options"))
    for name, value in options.items():
        run.say.runtime("INFO", f"Dummy delegate: {name} set to {value}.")
    return Delegate("EXTERNAL", lambda applied: _apply_dummy(applied, options))


def _dummy_options(text: str) -> dict[str, int]:
    """Return what ``key:value;key:value`` says; what can't be read is dropped without a word."""
    given = dict(part.split(":", 1) for part in text.split(";") if ":" in part)
    code = given.get("allowed_builtin_code", "")
    return {
        "allowed_builtin_code": int(code) if code.isdigit() else -1,
        **{name: int(given.get(name) == "true") for name in _DUMMY_ERRORS},
    }


def _apply_dummy(interpreter: Interpreter, options: Mapping[str, int]) -> int:
    """Give the test delegate the operators of one kind."""
    say, plan = interpreter.run.say, interpreter.plan
    taken = frozenset(
        i for i, op in operators_of(plan) if op.code == options["allowed_builtin_code"]
    )
    say_taken(interpreter, plan, _DUMMY_NAME, taken)
    kernel_node = len(plan.nodes)
    kernels = replace_nodes(interpreter, plan, _DUMMY_NAME, taken)
    if kernels and options["error_during_init"]:
        say.runtime("ERROR", "Failed to initialize kernel.")
        raise BenchmarkFailedError
    if kernels and options["error_during_prepare"]:
        not_prepared(interpreter, plan, _DUMMY_NAME, node=kernel_node)
    if kernels and options["error_during_invoke"]:
        interpreter.invoke_error = f"Node number {kernel_node} ({_DUMMY_NAME}) failed to invoke."
    return kernels


def create_stable(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    path = run.parameters.text("stable_delegate_settings_file")
    try:
        settings = json.loads(read_whole(run.process, path))
    except PhoneFileError:
        run.say.error(f"Failed to load the delegate settings file ({path}).")
        settings = None
    except ValueError:
        run.say.error(f"Failed to parse the delegate settings file ({path}).")
        settings = None
    loader = settings.get("stable_delegate_loader_settings") if isinstance(settings, dict) else None
    library = loader.get("delegate_path") if isinstance(loader, dict) else None
    if not isinstance(library, str):
        run.say.error("Invalid TFLiteSettings for the stable delegate.")
        return None
    folders = [library.rpartition("/")[0]] if "/" in library else linked_folders(run.process)
    note = find_library(run.process, library.rpartition("/")[2], folders)
    if note is None or note.program != STABLE_PROGRAM:
        run.say.error(
            f"Failed to load stable ABI delegate from stable ABI delegate binary ({library})."
        )
        return None
    return Delegate("STABLE_DELEGATE", _apply_stable)


def _apply_stable(interpreter: Interpreter) -> int:
    """Give TensorFlow Lite's sample of a stable delegate the additions and subtractions."""
    plan = interpreter.plan
    taken = frozenset(i for i, op in operators_of(plan) if op.name in _STABLE_OPERATORS)
    return replace_nodes(interpreter, plan, _STABLE_NAME, taken)
