"""Delegates: which of them the flags ask for, what each takes of a model, and what it says of that.

A delegate is created first, which may say why there is none, and applied then, which puts its
kernels into the plan or ends the run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.delegation import (
    FLEX,
    GPU,
    HEXAGON,
    NNAPI,
    NPU,
    XNNPACK,
    SubgraphPlan,
    accelerator_takes,
    gpu_objection,
    xnnpack_takes,
)
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.graph import Operator
from benchfarm_virtual.profiles import AcceleratorSpec, GpuSpec
from benchfarm_virtual.programs.process import (
    APP_FOLDERS,
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
    #: What faults and its kernels call it.
    subject: str
    kernel: str
    #: Applies it; returns how many kernels the primary subgraph got. Raises BenchmarkFailedError.
    apply: Callable[[Interpreter], int]


def created(interpreter: Interpreter) -> list[Delegate]:
    """Create the delegates that the flags ask for, in the providers' order; return them in the
    command line's.
    """
    run, flags = interpreter.run, interpreter.flags
    makers: Mapping[str, Callable[[Interpreter], Delegate | None]] = {
        "use_xnnpack": _create_xnnpack,
        "external_delegate_path": _create_external,
        "use_gpu": _create_litert_gpu if run.is_litert else _create_gpu,
        "use_hexagon": _create_hexagon,
        "use_nnapi": _create_nnapi,
        "use_npu": _create_npu,
        "stable_delegate_settings_file": _create_stable,
    }
    found: list[tuple[int, Delegate]] = []
    for flag, make in makers.items():
        delegate = make(interpreter) if flags.values.get(flag) else None
        if delegate is None:
            continue
        if not run.is_litert and run.is_first("delegate created"):
            run.say.info(f"{delegate.provider} delegate created.")
        found.append((flags.positions.get(flag, 0), delegate))
    return [delegate for _, delegate in sorted(found, key=lambda item: item[0])]


# What all share


def _fails(interpreter: Interpreter, kind: FaultKind, subject: str) -> bool:
    return interpreter.run.take_fault(kind, subject) is not None


def _say_created(interpreter: Interpreter, text: str) -> None:
    if interpreter.run.is_first(text):
        interpreter.tell("INFO", text)


def _taken(plan: SubgraphPlan, takes: Callable[[Operator], bool]) -> frozenset[int]:
    """Return the nodes that still are operators of the model, and that a delegate takes."""
    operators = ((node_id, plan.nodes[node_id].operator) for node_id in plan.execution)
    return frozenset(i for i, operator in operators if operator is not None and takes(operator))


def _reduced(
    interpreter: Interpreter, plan: SubgraphPlan, taken: frozenset[int], subject: str
) -> frozenset[int]:
    """Take only a share of the nodes, when that fault was asked for."""
    if plan is not interpreter.plan:
        return taken
    fault = interpreter.run.take_fault(FaultKind.DELEGATE_PARTIAL, subject)
    if fault is None:
        return taken
    keep = math.floor(len(taken) * max(0.0, min(1.0, fault.number("share"))))
    return frozenset(sorted(taken)[:keep])


def _replace(
    interpreter: Interpreter, plan: SubgraphPlan, delegate: str, taken: frozenset[int]
) -> int:
    """Put kernels into a plan and say so; return how many."""
    if not taken:
        return 0
    total = len(plan.execution)
    partitions, kernels = plan.replace(delegate, taken)
    interpreter.tell(
        "VERBOSE",
        f"Replacing {len(taken)} out of {total} node(s) with delegate ({interpreter.shown(delegate)}) node, "
        f"yielding {partitions} partitions for subgraph {plan.index} ({plan.subgraph.name}).",
    )
    return kernels


def _say_taken(interpreter: Interpreter, name: str, taken: frozenset[int]) -> None:
    """Say what a simple delegate takes, as all of them do."""
    plan = interpreter.plan
    partitions = sum(1 for run in plan.partitions(taken) if run and run[0] in taken)
    interpreter.tell(
        "INFO",
        f"{name} delegate: {len(taken)} nodes delegated out of {len(plan.execution)} nodes with {partitions} "
        "partitions.\n",
    )


def _not_prepared(interpreter: Interpreter, delegate: str, node: int) -> NoReturn:
    """Say that a kernel failed to prepare, and raise BenchmarkFailedError."""
    interpreter.tell(
        "ERROR", f"Node number {node} ({interpreter.shown(delegate)}) failed to prepare."
    )
    raise BenchmarkFailedError


def _keep(interpreter: Interpreter, path: str, magic: str) -> None:
    """Write what a delegate keeps in a file: a head that names the model, then nothing, at most 1
    MB.
    """
    head = f"{magic}{interpreter.graph.sha256}".encode()
    size = min(1_000_000, max(len(head), interpreter.graph.weight_bytes))
    write_whole(interpreter.run.call, path, head.ljust(size, b"\0"))


# XNNPACK and Flex

_WEIGHT_CACHE_GAIN: Final = 0.4


def _create_xnnpack(interpreter: Interpreter) -> Delegate | None:
    say, flags = interpreter.run.say, interpreter.flags
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, "xnnpack"):
        return None
    if flags.switch("xnnpack_force_fp16"):
        say.info("XNNPack FP16 inference enabled.")
    if flags.text("xnnpack_weight_cache_file_path"):
        say.info("XNNPack file-backed weight cache enabled.")
    _say_created(interpreter, _XNNPACK_CREATED)
    return Delegate("XNNPACK", "xnnpack", XNNPACK, _apply_explicit_xnnpack)


_XNNPACK_CREATED: Final = "Created TensorFlow Lite XNNPACK delegate for CPU."


def _apply_explicit_xnnpack(interpreter: Interpreter) -> int:
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, "xnnpack"):
        interpreter.tell("ERROR", "failed to create XNNPACK runtime")
        _not_prepared(interpreter, XNNPACK, len(interpreter.plan.nodes))
    return apply_xnnpack(interpreter)


def apply_xnnpack(interpreter: Interpreter) -> int:
    """Apply XNNPACK, also where the runtime does so by itself; return the kernels of the primary
    subgraph.
    """
    _say_created(interpreter, _XNNPACK_CREATED)
    kernels = []
    for plan in interpreter.plans:
        subgraph = plan.subgraph
        taken = _taken(plan, lambda operator: xnnpack_takes(subgraph, operator))  # noqa: B023 - called at once
        taken = _reduced(interpreter, plan, taken, "xnnpack")
        kernels.append(_replace(interpreter, plan, XNNPACK, taken))
    path = interpreter.flags.text("xnnpack_weight_cache_file_path")
    if path and kernels[0]:
        if size_of(interpreter.run.call, path):
            interpreter.init_us -= _WEIGHT_CACHE_GAIN * interpreter.init_us
        else:
            _keep(interpreter, path, "XNNP")
    return kernels[0]


def apply_flex(interpreter: Interpreter) -> None:
    """Apply the delegate for TensorFlow's own operators, in builds that have it and models that
    need it.
    """
    for plan in interpreter.plans:
        taken = _taken(plan, lambda operator: operator.custom and operator.name.startswith("Flex"))
        if taken:
            _say_created(interpreter, "Created TensorFlow Lite delegate for select TF ops.")
        _replace(interpreter, plan, FLEX, taken)


# Delegates from libraries

#: The names in the notes of fake libraries for them, and what their kernels are called.
DUMMY_PROGRAM: Final = "dummy_external_delegate"
STABLE_PROGRAM: Final = "sample_stable_delegate"
_DUMMY: Final = "DummyDelegate"
_STABLE: Final = "google_sample_delegate"
_DUMMY_ERRORS: Final = ("error_during_init", "error_during_prepare", "error_during_invoke")


def _create_external(interpreter: Interpreter) -> Delegate | None:
    flags = interpreter.flags
    # A library that is missing, or none, is passed over without a word, as release builds do.
    try:
        note = note_of(read_whole(interpreter.run.call, flags.text("external_delegate_path")))
    except PhoneFileError:
        return None
    if note is None or note.program != DUMMY_PROGRAM:
        return None
    # ``key:value;key:value``: what can't be read is dropped without a word.
    pairs = flags.text("external_delegate_options").split(";")
    given = dict(pair.split(":", 1) for pair in pairs if ":" in pair)
    code = given.get("allowed_builtin_code", "")
    allowed = int(code) if code.isdigit() else -1
    for name, value in (("allowed_builtin_code", allowed), *((name, 0) for name in _DUMMY_ERRORS)):
        interpreter.tell("INFO", f"Dummy delegate: {name} set to {value}.")
    return Delegate("EXTERNAL", "external", _DUMMY, lambda applied: _apply_dummy(applied, allowed))


def _apply_dummy(interpreter: Interpreter, allowed_code: int) -> int:
    """Give the test delegate the operators of one kind."""
    taken = _taken(interpreter.plan, lambda operator: operator.code == allowed_code)
    _say_taken(interpreter, _DUMMY, taken)
    return _replace(interpreter, interpreter.plan, _DUMMY, taken)


def _create_stable(interpreter: Interpreter) -> Delegate | None:
    call, say = interpreter.run.call, interpreter.run.say
    path = interpreter.flags.text("stable_delegate_settings_file")
    try:
        settings = json.loads(read_whole(call, path))
        library = str(settings["stable_delegate_loader_settings"]["delegate_path"])
    except (PhoneFileError, ValueError, LookupError, TypeError):
        say.error(f"Failed to load the delegate settings file ({path}).")
        say.error("Invalid TFLiteSettings for the stable delegate.")
        return None
    folder, _, name = library.rpartition("/")
    note = find_library(call, name, [folder] if folder else linked_folders(call))
    if note is None or note.program != STABLE_PROGRAM:
        say.error(
            f"Failed to load stable ABI delegate from stable ABI delegate binary ({library})."
        )
        return None
    return Delegate("STABLE_DELEGATE", "stable", _STABLE, _apply_stable)


def _apply_stable(interpreter: Interpreter) -> int:
    """Give TensorFlow Lite's sample of a stable delegate the additions and subtractions."""
    taken = _taken(interpreter.plan, lambda operator: operator.name in {"ADD", "SUB"})
    return _replace(interpreter, interpreter.plan, _STABLE, taken)


# Devices of the phone's maker: NNAPI, Hexagon, NPU

#: The device that every phone with NNAPI has; it computes on the CPU.
REFERENCE_DEVICE: Final = "nnapi-reference"
_NO_DISPATCH: Final = "[dispatch_delegate.cc:116] Failed to initialize Dispatch API: ERROR"
#: ``ro.soc.manufacturer``, lower case -> the vendor as LiteRT's libraries spell it.
_VENDORS: Final = {
    "qti": "Qualcomm",
    "mediatek": "MediaTek",
    "google": "GoogleTensor",
    "samsung": "Samsung",
}


def _apply_device(interpreter: Interpreter, device: AcceleratorSpec, delegate: str) -> int:
    """Give a device what it takes; return how many kernels that makes."""
    plan, hexagon = interpreter.plan, delegate == HEXAGON
    taken = _taken(
        plan, lambda operator: accelerator_takes(plan.subgraph, operator, device, hexagon=hexagon)
    )
    taken = _reduced(interpreter, plan, taken, "hexagon" if hexagon else "nnapi")
    interpreter.accelerator = device
    interpreter.init_us += (
        1000 * (device.init_ms + device.compile_ms_per_op * len(taken)) if taken else 0.0
    )
    if hexagon:
        _say_taken(interpreter, delegate, taken)
    return _replace(interpreter, plan, delegate, taken)


def _create_nnapi(interpreter: Interpreter) -> Delegate | None:
    devices, plan = interpreter.run.profile.nnapi, interpreter.plan
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, "nnapi") or not devices:
        interpreter.run.say.warn("NNAPI acceleration is unsupported on this platform.")
        return None
    _say_created(interpreter, "Created TensorFlow Lite delegate for NNAPI.")

    def merit(device: AcceleratorSpec) -> tuple[int, float]:
        """NNAPI chooses what takes most of the model, the fastest of equals."""
        taken = _taken(
            plan, lambda operator: accelerator_takes(plan.subgraph, operator, device, hexagon=False)
        )
        return len(taken), max(device.f32_gmacs, device.int8_gmacs)

    named = interpreter.flags.text("nnapi_accelerator_name")
    usable = [
        device
        for device in devices
        if device.name == named or (not named and device.name != REFERENCE_DEVICE)
    ]
    device = max(usable, key=merit, default=None)
    return Delegate("NNAPI", "nnapi", NNAPI, lambda applied: _apply_nnapi(applied, device))


def _apply_nnapi(interpreter: Interpreter, device: AcceleratorSpec | None) -> int:
    """Give the device that was named, or the best one, what it takes."""
    named = interpreter.flags.text("nnapi_accelerator_name")
    if named and device is None:
        names = ",".join(known.name for known in interpreter.run.profile.nnapi)
        interpreter.tell(
            "ERROR",
            f"Could not find the specified NNAPI accelerator: {named}. Must be one of: {{{names}}}.",
        )
        raise BenchmarkFailedError
    if device is None:
        return 0
    kernels = _apply_device(interpreter, device, NNAPI)
    failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, "nnapi")
    if kernels and (failing or device.compilation_fails):
        interpreter.tell(
            "ERROR",
            "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n",
        )
        _not_prepared(interpreter, NNAPI, interpreter.plan.execution[0])
    return kernels


def _create_hexagon(interpreter: Interpreter) -> Delegate | None:
    device = interpreter.run.profile.hexagon
    is_missing = _fails(interpreter, FaultKind.DELEGATE_MISSING, "hexagon")
    if device is None or is_missing or not _has_dsp_libraries(interpreter, device):
        interpreter.tell("WARNING", "Hexagon Delegate is not supported.\n")
        interpreter.run.say.warn(
            "Could not create Hexagon delegate: platform may not support delegate or required libraries are missing"
        )
        return None
    _say_created(interpreter, "Created TensorFlow Lite delegate for Hexagon.")
    return Delegate("Hexagon", "hexagon", HEXAGON, lambda applied: _apply_hexagon(applied, device))


def _has_dsp_libraries(interpreter: Interpreter, device: AcceleratorSpec) -> bool:
    """Say whether the interface library and the DSP's own are there; an app brings them with it."""
    call, folder = interpreter.run.call, interpreter.flags.text("hexagon_lib_path")
    generation = device.name.rpartition("-")[2]
    suffix = f"_{generation}" if generation in {"v65", "v66"} else ""
    needed = {"libhexagon_interface.so": linked_folders(call)}
    needed[f"libhexagon_nn_skel{suffix}.so"] = [folder]
    return folder.startswith(APP_FOLDERS) or all(
        find_library(call, name, folders) for name, folders in needed.items()
    )


def _apply_hexagon(interpreter: Interpreter, device: AcceleratorSpec) -> int:
    """Give the DSP the quantized operators."""
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, "hexagon"):
        interpreter.tell("ERROR", "Failed to prepare graph.")
        _not_prepared(interpreter, HEXAGON, len(interpreter.plan.nodes))
    return _apply_device(interpreter, device, HEXAGON)


def _create_npu(interpreter: Interpreter) -> Delegate | None:
    """None when nothing was compiled for it, which the program doesn't say."""
    call, profile = interpreter.run.call, interpreter.run.profile
    folder = interpreter.flags.text("dispatch_library_path")
    if not folder:
        interpreter.tell(
            "ERROR",
            "[compiled_model.cc:967] You should provide the `DispatchLibraryDir` option to use NPU.",
        )
        raise BenchmarkFailedError
    vendor = _VENDORS.get(call.system.props.get("ro.soc.manufacturer", "").lower(), "Unknown")
    library = f"libLiteRtDispatch_{vendor}.so"
    plugins = [interpreter.flags.text("compiler_plugin_library_path")]
    if find_library(call, f"libLiteRtCompilerPlugin_{vendor}.so", plugins) is None:
        return None
    interpreter.tell(
        "INFO", f"[compiled_model.cc:1324] 1 compiler plugins were applied successfully: {vendor}"
    )
    # The phone's fastest accelerator stands for its NPU.
    known = [device for device in profile.nnapi if device.name != REFERENCE_DEVICE]
    known += [profile.hexagon] if profile.hexagon is not None else []
    if not known or find_library(call, library, [folder]) is None:
        interpreter.tell("ERROR", _NO_DISPATCH)
        _no_npu_runtime(interpreter)
    interpreter.tell("INFO", f"[litert_dispatch.cc:159] Loading shared library: {folder}/{library}")
    device = max(known, key=lambda device: (device.f32_gmacs, device.int8_gmacs))
    return Delegate("NPU", "nnapi", NPU, lambda applied: _apply_npu(applied, device))


def _apply_npu(interpreter: Interpreter, device: AcceleratorSpec) -> int:
    """Give the NPU what the compiler plugin could compile; a runtime that can't be loaded is told
    after the nodes were replaced.
    """
    failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, "npu")
    if failing:
        interpreter.tell("ERROR", _NO_DISPATCH)
    kernels = _apply_device(interpreter, device, NPU)
    if failing:
        _no_npu_runtime(interpreter)
    return kernels


def _no_npu_runtime(interpreter: Interpreter) -> NoReturn:
    interpreter.tell(
        "ERROR",
        "[dispatch_delegate.cc:131] Failed to create a dispatch delegate kernel: No usable Dispatch runtime found",
    )
    raise BenchmarkFailedError


# The GPU, by benchmark_model's delegate and by LiteRT's accelerators for OpenCL and OpenGL

#: Init from kept kernels, and OpenGL's shaders, take so much of OpenCL's time.
_SERIALIZED_SHARE: Final = 0.12
_OPENGL_COMPILE_SHARE: Final = 0.6
_LITERT_NAMES: Final = {"cl": "LITERT_CL", "gl": "LITERT_OPENGL"}


def _gpu_nodes(interpreter: Interpreter, plan: SubgraphPlan) -> frozenset[int]:
    """Return the nodes of the largest partitions of what the GPU takes; say why it doesn't take
    the others.
    """
    flags = interpreter.flags
    quantized = flags.switch("gpu_experimental_enable_quant")
    objections = {}
    for node_id in plan.execution:
        node = plan.nodes[node_id]
        if node.operator is None:
            objections[node_id] = f"DELEGATE {node.name}: Operation is not supported."
        elif reason := gpu_objection(plan.subgraph, node.operator, quantized=quantized):
            custom = "CUSTOM " if node.operator.custom else ""
            objections[node_id] = f"{custom}{node.name}: {reason}"
    taken = frozenset(i for i in plan.execution if i not in objections)
    taken = _reduced(interpreter, plan, taken, "gpu")
    taken = plan.largest(taken, max(1, flags.integer("max_delegated_partitions")))
    if objections:
        total, left = len(plan.execution), len(plan.execution) - len(taken)
        end = f"No operations will run on the GPU, and all {total} operations will run on the CPU."
        if taken:
            end = (
                f"{len(taken)} operations will run on the GPU, and the remaining {left} operations will run on the "
                "CPU."
            )
        reasons = sorted(set(objections.values()))
        head = "Following operations are not supported by GPU delegate:"
        interpreter.tell("ERROR", "\n".join([head, *reasons, end]))
    return taken


def _compile_for_gpu(
    interpreter: Interpreter, gpu: GpuSpec, backend: str, operators: int, share: float = 1.0
) -> None:
    interpreter.gpu_backend = backend
    compiled = gpu.compile_ms_per_op * operators
    if backend == "gl":
        compiled *= _OPENGL_COMPILE_SHARE
    interpreter.init_us += 1000 * share * (gpu.init_ms + compiled)


def _create_gpu(interpreter: Interpreter) -> Delegate | None:
    _say_created(interpreter, "Created TensorFlow Lite delegate for GPU.")
    return Delegate("GPU", "gpu", GPU, _apply_gpu)


def _apply_gpu(interpreter: Interpreter) -> int:
    """Give it the largest partitions of what it takes."""
    kernels = [_apply_gpu_to(interpreter, plan) for plan in interpreter.plans]
    return kernels[0]


def _apply_gpu_to(interpreter: Interpreter, plan: SubgraphPlan) -> int:
    _say_created(interpreter, "Loaded OpenCL library with dlopen.")
    taken = _gpu_nodes(interpreter, plan)
    node = len(plan.nodes)
    count = _replace(interpreter, plan, GPU, taken)
    if count and not _starts_gpu(interpreter, len(taken)):
        interpreter.tell("INFO", "Created 0 GPU delegate kernels.")
        interpreter.tell("ERROR", "TfLiteGpuDelegate Prepare: delegate is not initialized")
        _not_prepared(interpreter, GPU, node)
    interpreter.tell("INFO", f"Created {count} GPU delegate kernels.")
    return count


def _starts_gpu(interpreter: Interpreter, operators: int) -> bool:
    """Compile for OpenCL, or else OpenGL; False when neither can be had, which is told."""
    gpu, wanted = interpreter.run.profile.gpu, interpreter.flags.text("gpu_backend")
    missing = _fails(interpreter, FaultKind.DELEGATE_MISSING, "gpu")
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, "gpu"):
        interpreter.tell(
            "ERROR",
            "TfLiteGpuDelegate Init: Failed to build program executable - Out of resources",
        )
        return False
    backends = () if gpu is None or missing else gpu.backends
    if gpu is not None and wanted != "gl" and "cl" in backends:
        share, kept = _kept_kernels(interpreter, gpu)
        _compile_for_gpu(interpreter, gpu, "cl", operators, share)
        _say_created(interpreter, f"Initialized OpenCL-based API{kept}.")
        return True
    if wanted != "gl":
        interpreter.tell(
            "ERROR",
            'Can not open OpenCL library on this device - dlopen failed: library "libOpenCL.so" not found',
        )
        if wanted == "cl":
            interpreter.tell("ERROR", "TfLiteGpuDelegate Init: OpenCL-based API is not available.")
            return False
        interpreter.tell("ERROR", "Falling back to OpenGL")
    if gpu is None or "gl" not in backends:
        interpreter.tell("ERROR", "TfLiteGpuDelegate Init: No EGL error, but eglGetDisplay failed")
        return False
    _compile_for_gpu(interpreter, gpu, "gl", operators)
    _say_created(interpreter, "Initialized OpenGL-based API.")
    return True


def _kept_kernels(interpreter: Interpreter, gpu: GpuSpec) -> tuple[float, str]:
    """Look for compiled kernels, or keep them; return the share of the init that is left, and how
    it is told.
    """
    flags, call = interpreter.flags, interpreter.run.call
    folder, token = flags.text("delegate_serialize_dir"), flags.text("delegate_serialize_token")
    if not folder or not token:
        return 1.0, ""
    key = hashlib.sha256(f"{interpreter.graph.sha256}{gpu.name}".encode()).digest()
    path = f"{folder}/{token}_{int.from_bytes(key[:8], 'little')}.bin"
    if size := size_of(call, path):
        interpreter.tell("INFO", f"Found serialized data for model {token} ({size} B) at {path}")
        return _SERIALIZED_SHARE, " from serialized data"
    interpreter.tell(
        "ERROR", f"File {path} couldn't be opened for reading: No such file or directory"
    )
    _keep(interpreter, path, "CLPG")
    return 1.0, ""


def _create_litert_gpu(interpreter: Interpreter) -> Delegate | None:
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, "gpu"):
        interpreter.tell(
            "WARNING", "[gpu_registry.cc:131] GPU accelerator could not be loaded and registered."
        )
        return None
    interpreter.tell("INFO", "[gpu_environment.h:155] Created LiteRT GpuEnvironment.")
    return Delegate("GPU", "gpu", GPU, _apply_litert_gpu)


def _apply_litert_gpu(interpreter: Interpreter) -> int:
    """Give the accelerator for OpenCL or OpenGL, as LiteRT's program loads it, the largest
    partition of what it takes.
    """
    gpu, wanted = interpreter.run.profile.gpu, interpreter.flags.text("gpu_backend")
    backend = "gl"
    if wanted == "cl" or (wanted != "gl" and gpu is not None and "cl" in gpu.backends):
        backend = "cl"
        interpreter.tell("INFO", "Loaded OpenCL library with dlopen.")
        interpreter.tell(
            "INFO",
            "[gpu_environment.cc:220] Created OpenCL device from provided device id and platform id.",
        )
    elif wanted != "gl":
        interpreter.tell(
            "INFO",
            "[ml_drift_cl_gl_accelerator.cc:126] OpenCL not supported on this platform. Using OpenGL instead.",
        )
    interpreter.shown_names[GPU] = _LITERT_NAMES[backend]
    kernels = []
    for plan in interpreter.plans:
        taken = _gpu_nodes(interpreter, plan)
        kernels.append(_replace(interpreter, plan, GPU, taken))
        if not kernels[-1]:
            continue
        failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, "gpu")
        if failing or gpu is None or backend not in gpu.backends:
            interpreter.tell(
                "ERROR",
                "Failed to create litert::ml_drift::DelegateKernelLiteRt: UNAVAILABLE: Failed to build program",
            )
            raise BenchmarkFailedError
        _compile_for_gpu(interpreter, gpu, backend, len(taken))
    return kernels[0]
