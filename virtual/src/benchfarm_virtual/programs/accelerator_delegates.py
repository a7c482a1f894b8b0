"""NNAPI and Hexagon: delegates that hand operators to a device of the phone's maker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_virtual.delegation import HEXAGON, NNAPI, accelerator_takes
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.profiles import AcceleratorSpec
from benchfarm_virtual.programs.delegates import (
    Delegate,
    not_prepared,
    note_wrong,
    operators_of,
    reduced,
    replace_nodes,
    say_taken,
)
from benchfarm_virtual.programs.process import (
    APP_FOLDERS,
    BenchmarkFailedError,
    find_library,
    linked_folders,
)

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter

_USE_COMPATIBLE: Final = (
    "You must use compatible versions. Refer to Tensorflow Lite Hexagon Delegate Guide."
)
#: The device that every phone with NNAPI has; it computes on the CPU.
REFERENCE_DEVICE: Final = "nnapi-reference"


def _apply_nnapi(interpreter: Interpreter, device: AcceleratorSpec | None) -> int:
    """Give the device that was named, or the best one, what it takes."""
    run = interpreter.run
    named = run.parameters.text("nnapi_accelerator_name")
    if named and device is None:
        names = ",".join(known.name for known in run.bench.profile.nnapi)
        run.say.runtime(
            "ERROR",
            f"Could not find the specified NNAPI accelerator: {named}. Must be one of: {{{names}}}.",
        )
        raise BenchmarkFailedError
    if device is None or (device.name == REFERENCE_DEVICE and not named):
        return 0
    kernels = apply_accelerator(interpreter, device, NNAPI)
    failing = run.bench.take_fault(FaultKind.DELEGATE_FAILING, "nnapi") is not None
    if kernels and (failing or device.compilation_fails):
        run.say.runtime(
            "ERROR",
            "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n",
        )
        not_prepared(interpreter, interpreter.plan, NNAPI, node=interpreter.plan.execution[0])
    return kernels


def apply_accelerator(interpreter: Interpreter, device: AcceleratorSpec, delegate: str) -> int:
    """Give a device of the phone's maker what it takes; return how many kernels that makes."""
    plan, hexagon = interpreter.plan, delegate == HEXAGON
    subject = "hexagon" if hexagon else "nnapi"
    taken = frozenset(
        i
        for i, op in operators_of(plan)
        if accelerator_takes(plan.subgraph, op, device, hexagon=hexagon)
    )
    taken = reduced(interpreter, taken, subject)
    interpreter.accelerator = device
    interpreter.init_us += (
        1000 * (device.init_ms + device.compile_ms_per_op * len(taken)) if taken else 0.0
    )
    note_wrong(interpreter, subject, delegate)
    if hexagon:
        say_taken(interpreter, plan, delegate, taken)
    return replace_nodes(interpreter, plan, delegate, taken)


def create_nnapi(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    devices = run.bench.profile.nnapi
    if not devices or run.bench.take_fault(FaultKind.DELEGATE_MISSING, "nnapi") is not None:
        run.say.warn("NNAPI acceleration is unsupported on this platform.")
        return None
    if run.once.first("nnapi created"):
        run.say.runtime("INFO", "Created TensorFlow Lite delegate for NNAPI.")
    named = run.parameters.text("nnapi_accelerator_name")
    device = (
        next((d for d in devices if d.name == named), None)
        if named
        else _best_device(interpreter, devices)
    )
    return Delegate("NNAPI", lambda applied: _apply_nnapi(applied, device))


def _best_device(
    interpreter: Interpreter, devices: tuple[AcceleratorSpec, ...]
) -> AcceleratorSpec | None:
    """Return the device that NNAPI would choose: the one that takes most of the model, the fastest
    of equals.
    """
    plan = interpreter.plan
    usable = [device for device in devices if device.name != REFERENCE_DEVICE]

    def merit(device: AcceleratorSpec) -> tuple[int, float]:
        taken = sum(
            1
            for _, op in operators_of(plan)
            if accelerator_takes(plan.subgraph, op, device, hexagon=False)
        )
        return taken, max(device.f32_gmacs, device.int8_gmacs)

    return max(usable, key=merit, default=None)


def _apply_hexagon(interpreter: Interpreter, device: AcceleratorSpec) -> int:
    """Give the DSP the quantized operators."""
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "hexagon") is not None:
        interpreter.run.say.runtime("ERROR", "Failed to prepare graph.")
        not_prepared(interpreter, interpreter.plan, HEXAGON)
    return apply_accelerator(interpreter, device, HEXAGON)


def create_hexagon(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    run = interpreter.run
    device = run.bench.profile.hexagon
    if device is None or run.bench.take_fault(FaultKind.DELEGATE_MISSING, "hexagon") is not None:
        _no_hexagon(interpreter, "Hexagon Delegate is not supported.\n")
        return None
    if not _has_dsp_libraries(interpreter, device):
        return None
    if run.once.first("hexagon created"):
        run.say.runtime("INFO", "Created TensorFlow Lite delegate for Hexagon.")
    return Delegate("Hexagon", lambda applied: _apply_hexagon(applied, device))


def _no_hexagon(interpreter: Interpreter, why: str) -> None:
    interpreter.run.say.runtime("WARNING", why)
    interpreter.run.say.warn(
        "Could not create Hexagon delegate: platform may not support delegate or required libraries are missing"
    )


def _has_dsp_libraries(interpreter: Interpreter, device: AcceleratorSpec) -> bool:
    """Say whether the interface library and the DSP's own are there and of one version; an app
    brings them with it.
    """
    run = interpreter.run
    folder = run.parameters.text("hexagon_lib_path")
    if folder.startswith(APP_FOLDERS):
        return True
    interface = find_library(run.process, "libhexagon_interface.so", linked_folders(run.process))
    if interface is None:
        _no_hexagon(interpreter, "Hexagon Delegate is not supported.\n")
        return False
    generation = device.name.rpartition("-")[2]
    name = (
        f"libhexagon_nn_skel_{generation}.so"
        if generation in {"v65", "v66"}
        else "libhexagon_nn_skel.so"
    )
    skel = find_library(run.process, name, [folder])
    if skel is None:
        _no_hexagon(interpreter, f"Failed to fetch Hexagon NN version. {_USE_COMPATIBLE}")
    elif skel.version != interface.version:
        numbers = f"{_number(interface.version)} vs {_number(skel.version)}"
        _no_hexagon(
            interpreter,
            f"Incompatible versions between interface library and libhexagon_skel {numbers}. {_USE_COMPATIBLE}",
        )
    return skel is not None and skel.version == interface.version


def _number(version: str) -> int:
    """Return a version as the real libraries tell theirs, as a number."""
    digits = "".join(letter for letter in version if letter.isdigit())
    return int(digits or "0")
