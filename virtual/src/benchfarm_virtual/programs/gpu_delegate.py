"""The GPU delegate, and LiteRT's accelerators for GPU and NPU."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NoReturn

from benchfarm_virtual.contract import ProcessContext
from benchfarm_virtual.delegation import GPU, NPU, SubgraphPlan, gpu_name, gpu_objection
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.profiles import AcceleratorSpec, GpuSpec
from benchfarm_virtual.programs.accelerator_delegates import REFERENCE_DEVICE, apply_accelerator
from benchfarm_virtual.programs.delegates import (
    Delegate,
    kept_file,
    not_prepared,
    note_wrong,
    reduced,
    replace_nodes,
)
from benchfarm_virtual.programs.process import (
    BenchmarkFailedError,
    find_library,
    size_of,
    write_whole,
)

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


_SERIALIZED_SHARE: Final = 0.12


def _apply_gpu(interpreter: Interpreter) -> int:
    """Give it the largest partitions of what it takes."""
    kernels = 0
    for plan in interpreter.plans:
        done = _apply_to(interpreter, plan)
        if plan is interpreter.plan:
            kernels = done
    note_wrong(interpreter, "gpu", GPU)
    return kernels


def _apply_to(interpreter: Interpreter, plan: SubgraphPlan) -> int:
    run = interpreter.run
    if run.once.first("opencl"):
        run.say.runtime("INFO", "Loaded OpenCL library with dlopen.")
    taken = _choose(interpreter, plan)
    if not taken:
        run.say.runtime("INFO", "Created 0 GPU delegate kernels.")
        return 0
    kernel_node = len(plan.nodes)
    count = replace_nodes(interpreter, plan, GPU, taken)
    _initialize(interpreter, plan, len(taken), kernel_node)
    run.say.runtime("INFO", f"Created {count} GPU delegate kernels.")
    return count


def _choose(interpreter: Interpreter, plan: SubgraphPlan) -> frozenset[int]:
    """Return the nodes of the largest partitions of what the GPU takes; say why it doesn't take
    the others.
    """
    run = interpreter.run
    quantized = run.parameters.switch("gpu_experimental_enable_quant")
    objections = _objections(plan, quantized=quantized)
    taken = frozenset(i for i in plan.execution if i not in objections)
    if plan is interpreter.plan:
        taken = reduced(interpreter, taken, "gpu")
    limit = run.parameters.integer("max_delegated_partitions")
    taken = plan.largest(taken, limit if limit > 0 else 1)
    if objections:
        _object(interpreter, plan, sorted(set(objections.values())), len(taken))
    return taken


def _objections(plan: SubgraphPlan, *, quantized: bool) -> dict[int, str]:
    found = {}
    for node_id in plan.execution:
        node = plan.nodes[node_id]
        if node.operator is None:
            found[node_id] = f"DELEGATE {node.name}: Operation is not supported."
            continue
        reason = gpu_objection(plan.subgraph, node.operator, quantized=quantized)
        if reason is not None:
            found[node_id] = f"{gpu_name(node.operator)}: {reason}"
    return found


def _object(interpreter: Interpreter, plan: SubgraphPlan, reasons: list[str], taken: int) -> None:
    total = len(plan.execution)
    if taken:
        left = total - taken
        end = f"{taken} operations will run on the GPU, and the remaining {left} operations will run on the CPU."
    else:
        end = f"No operations will run on the GPU, and all {total} operations will run on the CPU."
    interpreter.run.say.runtime(
        "ERROR",
        "\n".join(["Following operations are not supported by GPU delegate:", *reasons, end]),
    )


def _initialize(
    interpreter: Interpreter, plan: SubgraphPlan, operators: int, kernel_node: int
) -> None:
    run = interpreter.run
    gpu = run.bench.profile.gpu
    wanted = run.parameters.text("gpu_backend")
    missing = run.bench.take_fault(FaultKind.DELEGATE_MISSING, "gpu") is not None
    if run.bench.take_fault(FaultKind.DELEGATE_FAILING, "gpu") is not None:
        run.say.runtime(
            "ERROR",
            "TfLiteGpuDelegate Init: Failed to build program executable - Out of resources",
        )
        _fail(interpreter, plan, kernel_node)
    has_cl = gpu is not None and "cl" in gpu.backends and not missing
    has_gl = gpu is not None and "gl" in gpu.backends and not missing
    if wanted != "gl" and has_cl and gpu is not None:
        _use_opencl(interpreter, gpu, operators)
        return
    if wanted != "gl":
        run.say.runtime(
            "ERROR",
            'Can not open OpenCL library on this device - dlopen failed: library "libOpenCL.so" not found',
        )
        if wanted == "cl":
            run.say.runtime("ERROR", "TfLiteGpuDelegate Init: OpenCL-based API is not available.")
            _fail(interpreter, plan, kernel_node)
        run.say.runtime("ERROR", "Falling back to OpenGL")
    if not has_gl or gpu is None:
        run.say.runtime("ERROR", "TfLiteGpuDelegate Init: No EGL error, but eglGetDisplay failed")
        _fail(interpreter, plan, kernel_node)
    interpreter.gpu_backend = "gl"
    interpreter.init_us += 1000 * (
        gpu.init_ms + _OPENGL_COMPILE_SHARE * gpu.compile_ms_per_op * operators
    )
    if run.once.first("gl initialized"):
        run.say.runtime("INFO", "Initialized OpenGL-based API.")


def _fail(interpreter: Interpreter, plan: SubgraphPlan, kernel_node: int) -> NoReturn:
    interpreter.run.say.runtime("INFO", "Created 0 GPU delegate kernels.")
    interpreter.run.say.runtime("ERROR", "TfLiteGpuDelegate Prepare: delegate is not initialized")
    not_prepared(interpreter, plan, GPU, node=kernel_node)


def _use_opencl(interpreter: Interpreter, gpu: GpuSpec, operators: int) -> None:
    run = interpreter.run
    compile_us = 1000 * (gpu.init_ms + gpu.compile_ms_per_op * operators)
    folder, token = (
        run.parameters.text("delegate_serialize_dir"),
        run.parameters.text("delegate_serialize_token"),
    )
    serialized = False
    if folder and token:
        key = hashlib.sha256(f"{interpreter.graph.sha256}{gpu.name}".encode()).digest()
        path = f"{folder}/{token}_{int.from_bytes(key[:8], 'little')}.bin"
        size = size_of(run.process, path)
        if size:
            serialized = True
            run.say.runtime("INFO", f"Found serialized data for model {token} ({size} B) at {path}")
        else:
            run.say.runtime(
                "ERROR",
                f"File {path} couldn't be opened for reading: No such file or directory",
            )
            write_whole(
                run.process,
                path,
                kept_file(interpreter, "CLPG", interpreter.graph.weight_bytes),
            )
    interpreter.init_us += compile_us * (_SERIALIZED_SHARE if serialized else 1.0)
    said = (
        "Initialized OpenCL-based API from serialized data."
        if serialized
        else "Initialized OpenCL-based API."
    )
    if run.once.first(said):
        run.say.runtime("INFO", said)


def create_gpu(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say why there is none (then None)."""
    if interpreter.run.once.first("gpu created"):
        interpreter.run.say.runtime("INFO", "Created TensorFlow Lite delegate for GPU.")
    return Delegate("GPU", _apply_gpu)


_NAMES: Final = {"cl": "LITERT_CL", "gl": "LITERT_OPENGL"}
#: OpenGL's shaders are compiled in so much of OpenCL's time.
_OPENGL_COMPILE_SHARE: Final = 0.6


def _apply_litert_gpu(interpreter: Interpreter) -> int:
    """Give the accelerator for OpenCL or OpenGL, as LiteRT's program loads it, the largest
    partition of what it takes.
    """
    backend = _choose_backend(interpreter)
    interpreter.shown_names[GPU] = _NAMES[backend]
    kernels = [_apply_litert_to(interpreter, plan, backend) for plan in interpreter.plans]
    note_wrong(interpreter, "gpu", GPU)
    return kernels[0]


def _choose_backend(interpreter: Interpreter) -> str:
    say, gpu = interpreter.run.say, interpreter.run.bench.profile.gpu
    wanted = interpreter.run.parameters.text("gpu_backend")
    if wanted == "gl":
        return "gl"
    if wanted == "cl" or (gpu is not None and "cl" in gpu.backends):
        say.runtime("INFO", "Loaded OpenCL library with dlopen.")
        say.runtime(
            "INFO",
            "[gpu_environment.cc:220] Created OpenCL device from provided device id and platform id.",
        )
        return "cl"
    say.runtime(
        "INFO",
        "[ml_drift_cl_gl_accelerator.cc:126] OpenCL not supported on this platform. Using OpenGL instead.",
    )
    return "gl"


def _apply_litert_to(interpreter: Interpreter, plan: SubgraphPlan, backend: str) -> int:
    run = interpreter.run
    gpu = run.bench.profile.gpu
    taken = _choose(interpreter, plan)
    kernels = replace_nodes(interpreter, plan, GPU, taken)
    if not kernels:
        return 0
    failing = run.bench.take_fault(FaultKind.DELEGATE_FAILING, "gpu") is not None
    if failing or gpu is None or backend not in gpu.backends:
        run.say.runtime(
            "ERROR",
            "Failed to create litert::ml_drift::DelegateKernelLiteRt: UNAVAILABLE: Failed to build program",
        )
        raise BenchmarkFailedError
    interpreter.gpu_backend = backend
    share = 1.0 if backend == "cl" else _OPENGL_COMPILE_SHARE
    interpreter.init_us += 1000 * (gpu.init_ms + share * gpu.compile_ms_per_op * len(taken))
    return kernels


def create_litert_gpu(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say that it couldn't be loaded (then None)."""
    say = interpreter.run.say
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_MISSING, "gpu") is not None:
        say.runtime(
            "WARNING", "[gpu_registry.cc:131] GPU accelerator could not be loaded and registered."
        )
        return None
    say.runtime("INFO", "[gpu_environment.h:155] Created LiteRT GpuEnvironment.")
    return Delegate("GPU", _apply_litert_gpu)


_NO_DISPATCH: Final = "[dispatch_delegate.cc:116] Failed to initialize Dispatch API: ERROR"
#: ``ro.soc.manufacturer``, lower case -> the vendor as LiteRT's libraries spell it.
_VENDORS: Final = {
    "qti": "Qualcomm",
    "mediatek": "MediaTek",
    "google": "GoogleTensor",
    "samsung": "Samsung",
}


def _apply_npu(interpreter: Interpreter, device: AcceleratorSpec) -> int:
    """Give the NPU what the compiler plugin could compile; a runtime that can't be loaded is told
    after the nodes were replaced.
    """
    failing = interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "npu") is not None
    if failing:
        interpreter.run.say.runtime("ERROR", _NO_DISPATCH)
    kernels = apply_accelerator(interpreter, device, NPU)
    if failing:
        _no_runtime(interpreter)
    return kernels


def create_npu(interpreter: Interpreter) -> Delegate | None:
    """Create it; None when nothing was compiled for it, which the program doesn't say."""
    run = interpreter.run
    folder = run.parameters.text("dispatch_library_path")
    if not folder:
        run.say.runtime(
            "ERROR",
            "[compiled_model.cc:967] You should provide the `DispatchLibraryDir` option to use NPU.",
        )
        raise BenchmarkFailedError
    vendor = _vendor(run.process)
    library = f"libLiteRtDispatch_{vendor}.so"
    plugin = f"libLiteRtCompilerPlugin_{vendor}.so"
    if (
        find_library(run.process, plugin, [run.parameters.text("compiler_plugin_library_path")])
        is None
    ):
        return None
    run.say.runtime(
        "INFO", f"[compiled_model.cc:1324] 1 compiler plugins were applied successfully: {vendor}"
    )
    device = _device(run.bench.profile.nnapi, run.bench.profile.hexagon)
    if device is None or find_library(run.process, library, [folder]) is None:
        run.say.runtime("ERROR", _NO_DISPATCH)
        _no_runtime(interpreter)
        return None
    run.say.runtime("INFO", f"[litert_dispatch.cc:159] Loading shared library: {folder}/{library}")
    return Delegate("NPU", lambda applied: _apply_npu(applied, device))


def _no_runtime(interpreter: Interpreter) -> None:
    interpreter.run.say.runtime(
        "ERROR",
        "[dispatch_delegate.cc:131] Failed to create a dispatch delegate kernel: No usable Dispatch runtime found",
    )
    raise BenchmarkFailedError


def _vendor(process: ProcessContext) -> str:
    return _VENDORS.get(process.props.get("ro.soc.manufacturer", "").lower(), "Unknown")


def _device(
    nnapi: tuple[AcceleratorSpec, ...], hexagon: AcceleratorSpec | None
) -> AcceleratorSpec | None:
    """Return the phone's fastest accelerator, which stands for its NPU."""
    known = [
        device
        for device in (*nnapi, hexagon)
        if device is not None and device.name != REFERENCE_DEVICE
    ]
    return max(known, key=lambda device: (device.f32_gmacs, device.int8_gmacs), default=None)
