"""The delegates: a record of each, the operators that it takes of a model, and its messages.

A new delegate is a record in ``DELEGATES``, at its place among the providers, with its ``create``;
the rest of the programs, the flags and the speeds follow from it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.delegation import Apply, Delegate, SubgraphPlan, data_type
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.latency import op_work
from benchfarm_virtual.profiles import AcceleratorSpec, GpuSpec
from benchfarm_virtual.programs.flags import FLAGS, part_flags
from benchfarm_virtual.programs.process import (
    APP_FOLDERS,
    BenchmarkFailedError,
    file_size,
    find_library,
    linked_folders,
    read_content,
    write_content,
)
from benchfarm_virtual.samples import DUMMY_PROGRAM, NPU_VENDORS, STABLE_PROGRAM, fake_note

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


def create_delegates(interpreter: Interpreter) -> list[tuple[Delegate, Apply]]:
    """Create the requested delegates in the providers' order; return them in the command line's."""
    run, flags = interpreter.run, interpreter.flags
    applies: dict[Delegate, Apply] = {}
    for delegate in DELEGATES:
        if flags.values.get(delegate.flag) and (apply := delegate.create(interpreter, delegate)):
            if not run.is_litert and run.is_first("delegate created"):
                run.say.info(f"{delegate.provider} delegate created.")
            applies[delegate] = apply
    return sorted(applies.items(), key=lambda item: flags.positions.get(item[0].flag, 0))


# Shared by all


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FLOAT_OPS: Final = _names(
    """ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CEIL CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV
    ELU EXP EXPAND_DIMS FLOOR FULLY_CONNECTED GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM
    MUL
    NEG PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR ROUND RSQRT SIN SLICE SOFTMAX SPACE_TO_DEPTH
    SPLIT SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV"""
)
_INT8_OPS: Final = _FLOAT_OPS - _names(
    """ABS BATCH_MATMUL CEIL DIV EXP FLOOR GELU HARD_SWISH LOG MINIMUM NEG PRELU RELU_N1_TO_1 ROUND RSQRT SIN SOFTMAX
    SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUM"""
)
_GPU_OPS: Final = _names(
    """ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D COS CUMSUM DEPTH_TO_SPACE DEPTHWISE_CONV_2D
    DEQUANTIZE DIV ELU EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GELU GREATER GREATER_EQUAL HARD_SWISH
    LEAKY_RELU
    LESS LESS_EQUAL LOG LOGICAL_AND LOGISTIC LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT
    PACK PAD POW PRELU QUANTIZE REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR RSQRT SELECT SELECT_V2 SIGN SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
    SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE TRANSPOSE_CONV UNPACK"""
)
_NNAPI_OPS: Final = _names(
    """ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D DEQUANTIZE DIV ELU
    EXP FLOOR FULLY_CONNECTED GATHER HARD_SWISH L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOG LOGISTIC MAXIMUM
    MAX_POOL_2D MEAN MINIMUM MUL NEG PAD PRELU QUANTIZE RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR RSQRT SIN SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQRT SQUEEZE STRIDED_SLICE SUB TANH TOPK_V2
    TRANSPOSE TRANSPOSE_CONV"""
)
_HEXAGON_OPS: Final = _names(
    """ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTH_TO_SPACE DEPTHWISE_CONV_2D FULLY_CONNECTED
    HARD_SWISH L2_NORMALIZATION LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG PACK PAD QUANTIZE RELU
    RELU6
    RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE
    STRIDED_SLICE SUB TANH TRANSPOSE TRANSPOSE_CONV"""
)
#: XNNPACK takes them where weights or shape are in the model.
_WITH_CONSTANT: Final = _names("CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV RESHAPE")
_FLOAT_TYPES: Final = frozenset({"FLOAT32", "FLOAT16"})
_QUANTIZED_TYPES: Final = frozenset({"INT8", "UINT8"})


def _fails(interpreter: Interpreter, kind: FaultKind, delegate: Delegate) -> bool:
    return interpreter.run.take_fault(kind, delegate.name) is not None


def _say_created(interpreter: Interpreter, text: str) -> None:
    if interpreter.run.is_first(text):
        interpreter.log("INFO", text)


_Takes = Callable[[Subgraph, Operator], bool]


def _taken_nodes(plan: SubgraphPlan, takes: _Takes) -> frozenset[int]:
    """Return the nodes that are still operators of the model and that a delegate takes."""
    operators = ((node_id, plan.nodes[node_id].operator) for node_id in plan.execution)
    return frozenset(
        i for i, operator in operators if operator is not None and takes(plan.subgraph, operator)
    )


def _reduced_by_fault(
    interpreter: Interpreter, plan: SubgraphPlan, taken: frozenset[int], delegate: Delegate
) -> frozenset[int]:
    """Return the nodes, or only a share of them with that fault."""
    if plan is not interpreter.plan:
        return taken
    fault = interpreter.run.take_fault(FaultKind.DELEGATE_PARTIAL, delegate.name)
    if fault is None:
        return taken
    keep = math.floor(len(taken) * max(0.0, min(1.0, fault.number("share"))))
    return frozenset(sorted(taken)[:keep])


def _replace(
    interpreter: Interpreter,
    plan: SubgraphPlan,
    delegate: Delegate,
    taken: frozenset[int],
    name: str = "",
) -> int:
    """Put kernels into a plan and log it; return their number. ``name``: other than the record's."""
    name, total = name or delegate.kernel, len(plan.execution)
    if delegate.is_simple:
        partitions = sum(run[0] in taken for run in plan.partitions(taken))
        interpreter.log(
            "INFO",
            f"{name} delegate: {len(taken)} nodes delegated out of {total} nodes with {partitions} "
            "partitions.\n",
        )
    if not taken:
        return 0
    partitions, kernels = plan.replace(delegate, name, taken)
    interpreter.log(
        "VERBOSE",
        f"Replacing {len(taken)} out of {total} node(s) with delegate ({name}) node, "
        f"yielding {partitions} partitions for subgraph {plan.index} ({plan.subgraph.name}).",
    )
    return kernels


def _not_prepared(interpreter: Interpreter, delegate: Delegate, node: int) -> NoReturn:
    """Log that a kernel failed to prepare, and raise BenchmarkFailedError."""
    interpreter.log("ERROR", f"Node number {node} ({delegate.kernel}) failed to prepare.")
    raise BenchmarkFailedError


def _write_cache(interpreter: Interpreter, path: str, magic: str) -> None:
    """Write a delegate's cache file: a head that names the model, then zeros, at most 1 MB."""
    head = f"{magic}{interpreter.graph.sha256}".encode()
    size = min(1_000_000, max(len(head), interpreter.graph.weight_bytes))
    write_content(interpreter.run.call, path, head.ljust(size, b"\0"))


# XNNPACK and Flex

_WEIGHT_CACHE_GAIN: Final = 0.4


def _create_xnnpack(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    say, flags = interpreter.run.say, interpreter.flags
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, delegate):
        return None
    if flags.switch("xnnpack_force_fp16"):
        say.info("XNNPack FP16 inference enabled.")
    if flags.text("xnnpack_weight_cache_file_path"):
        say.info("XNNPack file-backed weight cache enabled.")
    _say_created(interpreter, _XNNPACK_CREATED)
    return partial(_apply_explicit_xnnpack, interpreter)


_XNNPACK_CREATED: Final = "Created TensorFlow Lite XNNPACK delegate for CPU."


def _xnnpack_takes(subgraph: Subgraph, operator: Operator) -> bool:
    """Whether the XNNPACK delegate takes an operator."""
    if operator.name in _WITH_CONSTANT and len(operator.inputs) > 1:
        second = subgraph.tensor(operator.inputs[1])
        if second is None or not second.constant:
            return False
    kind = data_type(subgraph, operator)
    if kind in _QUANTIZED_TYPES:
        return operator.name in _INT8_OPS
    return kind in _FLOAT_TYPES and operator.name in _FLOAT_OPS


def _apply_explicit_xnnpack(interpreter: Interpreter) -> int:
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, XNNPACK):
        interpreter.log("ERROR", "failed to create XNNPACK runtime")
        _not_prepared(interpreter, XNNPACK, len(interpreter.plan.nodes))
    return apply_xnnpack(interpreter)


def apply_xnnpack(interpreter: Interpreter) -> int:
    """Apply XNNPACK, also as the runtime's default; return the number of kernels of the primary
    subgraph.
    """
    _say_created(interpreter, _XNNPACK_CREATED)
    kernels = []
    for plan in interpreter.plans:
        taken = _reduced_by_fault(interpreter, plan, _taken_nodes(plan, _xnnpack_takes), XNNPACK)
        kernels.append(_replace(interpreter, plan, XNNPACK, taken))
    path = interpreter.flags.text("xnnpack_weight_cache_file_path")
    if path and kernels[0]:
        if file_size(interpreter.run.call, path):
            interpreter.init_us -= _WEIGHT_CACHE_GAIN * interpreter.init_us
        else:
            _write_cache(interpreter, path, "XNNP")
    return kernels[0]


def apply_flex(interpreter: Interpreter) -> None:
    """Apply the delegate for TensorFlow's own operators, in builds that have it and models that
    need it.
    """
    for plan in interpreter.plans:
        taken = _taken_nodes(
            plan, lambda _, operator: operator.custom and operator.name.startswith("Flex")
        )
        if taken:
            _say_created(interpreter, "Created TensorFlow Lite delegate for select TF ops.")
        _replace(interpreter, plan, FLEX, taken)


_TYPE_TAGS: Final = {"FLOAT32": "F32", "FLOAT16": "F16", "INT8": "QS8", "UINT8": "QU8"}


def _xnnpack_label(subgraph: Subgraph, operator: Operator, _: int) -> str:
    tag = _TYPE_TAGS.get(data_type(subgraph, operator), "F32")
    if operator.name not in {"CONV_2D", "DEPTHWISE_CONV_2D"}:
        return f"{operator.name.replace('_', ' ').title()} (NC, {tag})"
    tag = tag.replace("QS8", "QC8")
    return {
        "depthwise": f"Convolution (NHWC, {tag}) DWConv",
        "pointwise": f"Fully Connected (NC, {tag}) GEMM",
        "conv": f"Convolution (NHWC, {tag}) IGEMM",
    }[op_work(subgraph, operator).op_class]


# Delegates from libraries

_DUMMY_ERRORS: Final = ("error_during_init", "error_during_prepare", "error_during_invoke")


def _create_external(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    flags = interpreter.flags
    # A missing or wrong library is ignored without a message, as in release builds.
    try:
        note = fake_note(read_content(interpreter.run.call, flags.text("external_delegate_path")))
    except PhoneFileError:
        return None
    if note is None or note.program != DUMMY_PROGRAM:
        return None
    # ``key:value;key:value``: unreadable pairs are dropped without a message.
    pairs = flags.text("external_delegate_options").split(";")
    options = dict(pair.split(":", 1) for pair in pairs if ":" in pair)
    code = options.get("allowed_builtin_code", "")
    allowed = int(code) if code.isdigit() else -1
    for name, value in (("allowed_builtin_code", allowed), *((name, 0) for name in _DUMMY_ERRORS)):
        interpreter.log("INFO", f"Dummy delegate: {name} set to {value}.")
    return lambda: _apply_library(
        interpreter, delegate, lambda _, operator: operator.code == allowed
    )


def _apply_library(interpreter: Interpreter, delegate: Delegate, takes: _Takes) -> int:
    return _replace(interpreter, interpreter.plan, delegate, _taken_nodes(interpreter.plan, takes))


def _create_stable(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    call, say = interpreter.run.call, interpreter.run.say
    path = interpreter.flags.text("stable_delegate_settings_file")
    try:
        settings = json.loads(read_content(call, path))
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
    return lambda: _apply_library(
        interpreter, delegate, lambda _, operator: operator.name in delegate.operators
    )


# Devices of the phone's maker: NNAPI, Hexagon, NPU


#: The device that every phone with NNAPI has; it computes on the CPU.
REFERENCE_DEVICE: Final = "nnapi-reference"
_NO_DISPATCH: Final = "[dispatch_delegate.cc:116] Failed to initialize Dispatch API: ERROR"


def _device_nodes(
    interpreter: Interpreter, delegate: Delegate, device: AcceleratorSpec
) -> frozenset[int]:
    """Return the nodes that a device takes for a delegate."""

    def takes(subgraph: Subgraph, operator: Operator) -> bool:
        if operator.name not in delegate.operators:
            return False
        kind = "INT8" if operator.name == "QUANTIZE" else data_type(subgraph, operator)
        if kind in _QUANTIZED_TYPES:
            return device.int8_gmacs > 0
        return kind in _FLOAT_TYPES and device.f32_gmacs > 0

    return _taken_nodes(interpreter.plan, takes)


def _apply_device(interpreter: Interpreter, delegate: Delegate, device: AcceleratorSpec) -> int:
    """Give a device its nodes; return the number of kernels."""
    plan = interpreter.plan
    taken = _reduced_by_fault(
        interpreter, plan, _device_nodes(interpreter, delegate, device), delegate
    )
    interpreter.devices[delegate] = device
    interpreter.init_us += (
        1000 * (device.init_ms + device.compile_ms_per_op * len(taken)) if taken else 0.0
    )
    return _replace(interpreter, plan, delegate, taken)


def _create_nnapi(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    devices = interpreter.run.profile.nnapi
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, delegate) or not devices:
        interpreter.run.say.warn("NNAPI acceleration is unsupported on this platform.")
        return None
    _say_created(interpreter, "Created TensorFlow Lite delegate for NNAPI.")

    def merit(device: AcceleratorSpec) -> tuple[int, float]:
        """NNAPI chooses the device that takes most of the model, the fastest of equals."""
        taken = _device_nodes(interpreter, delegate, device)
        return len(taken), max(device.f32_gmacs, device.int8_gmacs)

    requested = interpreter.flags.text("nnapi_accelerator_name")
    usable = [
        device
        for device in devices
        if (device.name == requested if requested else device.name != REFERENCE_DEVICE)
    ]
    device = max(usable, key=merit, default=None)
    return lambda: _apply_nnapi(interpreter, delegate, device)


def _apply_nnapi(
    interpreter: Interpreter, delegate: Delegate, device: AcceleratorSpec | None
) -> int:
    """Give the requested device, or the best one, its nodes."""
    requested = interpreter.flags.text("nnapi_accelerator_name")
    if requested and device is None:
        names = ",".join(accelerator.name for accelerator in interpreter.run.profile.nnapi)
        interpreter.log(
            "ERROR",
            f"Could not find the specified NNAPI accelerator: {requested}. Must be one of: {{{names}}}.",
        )
        raise BenchmarkFailedError
    if device is None:
        return 0
    kernels = _apply_device(interpreter, delegate, device)
    failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, delegate)
    if kernels and (failing or device.compilation_fails):
        interpreter.log(
            "ERROR",
            "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n",
        )
        _not_prepared(interpreter, delegate, interpreter.plan.execution[0])
    return kernels


def _create_hexagon(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    device = interpreter.run.profile.accelerators.get(delegate.name, delegate.device)
    is_missing = _fails(interpreter, FaultKind.DELEGATE_MISSING, delegate)
    if device is None or is_missing or not _has_dsp_libraries(interpreter, device):
        interpreter.log("WARNING", "Hexagon Delegate is not supported.\n")
        interpreter.run.say.warn(
            "Could not create Hexagon delegate: platform may not support delegate or required libraries are missing"
        )
        return None
    _say_created(interpreter, "Created TensorFlow Lite delegate for Hexagon.")
    return lambda: _apply_hexagon(interpreter, delegate, device)


def _has_dsp_libraries(interpreter: Interpreter, device: AcceleratorSpec) -> bool:
    """Return whether the interface library and the DSP's own are there; an app has them with it."""
    call, folder = interpreter.run.call, interpreter.flags.text("hexagon_lib_path")
    generation = device.name.rpartition("-")[2]
    suffix = f"_{generation}" if generation in {"v65", "v66"} else ""
    needed = {"libhexagon_interface.so": linked_folders(call)}
    needed[f"libhexagon_nn_skel{suffix}.so"] = [folder]
    return folder.startswith(APP_FOLDERS) or all(
        find_library(call, name, folders) for name, folders in needed.items()
    )


def _apply_hexagon(interpreter: Interpreter, delegate: Delegate, device: AcceleratorSpec) -> int:
    """Give the DSP the quantized operators."""
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, delegate):
        interpreter.log("ERROR", "Failed to prepare graph.")
        _not_prepared(interpreter, delegate, len(interpreter.plan.nodes))
    return _apply_device(interpreter, delegate, device)


def _create_npu(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    """None when nothing was compiled for the NPU, without a message of the program."""
    call, profile = interpreter.run.call, interpreter.run.profile
    folder = interpreter.flags.text("dispatch_library_path")
    if not folder:
        interpreter.log(
            "ERROR",
            "[compiled_model.cc:967] You should provide the `DispatchLibraryDir` option to use NPU.",
        )
        raise BenchmarkFailedError
    vendor = NPU_VENDORS.get(call.system.props.get("ro.soc.manufacturer", "").lower(), "Unknown")
    library = f"libLiteRtDispatch_{vendor}.so"
    plugins = [interpreter.flags.text("compiler_plugin_library_path")]
    if find_library(call, f"libLiteRtCompilerPlugin_{vendor}.so", plugins) is None:
        return None
    interpreter.log(
        "INFO", f"[compiled_model.cc:1324] 1 compiler plugins were applied successfully: {vendor}"
    )
    # The phone's fastest accelerator stands for its NPU.
    devices = (*profile.nnapi, *profile.accelerators.values())
    usable = [device for device in devices if device.name != REFERENCE_DEVICE]
    if not usable or find_library(call, library, [folder]) is None:
        interpreter.log("ERROR", _NO_DISPATCH)
        _no_npu_runtime(interpreter)
    interpreter.log("INFO", f"[litert_dispatch.cc:159] Loading shared library: {folder}/{library}")
    device = max(usable, key=lambda device: (device.f32_gmacs, device.int8_gmacs))
    return lambda: _apply_npu(interpreter, delegate, device)


def _apply_npu(interpreter: Interpreter, delegate: Delegate, device: AcceleratorSpec) -> int:
    """Give the NPU the nodes that the compiler plugin could compile; a runtime that can't be loaded
    is reported after the nodes were replaced.
    """
    failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, delegate)
    if failing:
        interpreter.log("ERROR", _NO_DISPATCH)
    kernels = _apply_device(interpreter, delegate, device)
    if failing:
        _no_npu_runtime(interpreter)
    return kernels


def _no_npu_runtime(interpreter: Interpreter) -> NoReturn:
    interpreter.log(
        "ERROR",
        "[dispatch_delegate.cc:131] Failed to create a dispatch delegate kernel: No usable Dispatch runtime found",
    )
    raise BenchmarkFailedError


# The GPU, by benchmark_model's delegate and by LiteRT's accelerators for OpenCL and OpenGL

#: Shares of OpenCL's time for init from serialized kernels, and for OpenGL's shaders.
_SERIALIZED_SHARE: Final = 0.12
_OPENGL_COMPILE_SHARE: Final = 0.6
_LITERT_NAMES: Final = {"cl": "LITERT_CL", "gl": "LITERT_OPENGL"}
#: LiteRT's values of gpu_backend. Phones have the accelerator for OpenCL and OpenGL: for WebGPU it
#: takes OpenCL; else it chooses.
_LITERT_BACKENDS: Final = {"webgpu": "cl", "opengl": "gl", "gl": "gl"}


def _gpu_objection(subgraph: Subgraph, operator: Operator, *, quantized: bool) -> str | None:
    """Return the GPU delegate's reason for not taking an operator; None when it takes it."""
    if operator.name not in GPU.operators:
        return "Operation is not supported."
    computed = [
        t for t in subgraph.operator_inputs(operator) if not t.constant
    ] + subgraph.operator_outputs(operator)
    allowed = _FLOAT_TYPES | (_QUANTIZED_TYPES if quantized else frozenset())
    if any(t.type_name not in allowed or len(t.shape) > 4 for t in computed):
        return "OP is supported, but tensor type/shape isn't compatible."
    return None


def _gpu_nodes(interpreter: Interpreter, plan: SubgraphPlan) -> frozenset[int]:
    """Return the nodes of the largest partitions that the GPU takes; log why it doesn't take the
    others.
    """
    flags = interpreter.flags
    quantized = flags.switch("gpu_experimental_enable_quant")
    objections = {}
    for node_id in plan.execution:
        node = plan.nodes[node_id]
        if node.operator is None:
            objections[node_id] = f"DELEGATE {node.name}: Operation is not supported."
        elif reason := _gpu_objection(plan.subgraph, node.operator, quantized=quantized):
            custom = "CUSTOM " if node.operator.custom else ""
            objections[node_id] = f"{custom}{node.name}: {reason}"
    taken = frozenset(i for i in plan.execution if i not in objections)
    taken = _reduced_by_fault(interpreter, plan, taken, GPU)
    taken = plan.largest(taken, max(1, flags.integer("max_delegated_partitions")))
    if objections:
        total, on_cpu = len(plan.execution), len(plan.execution) - len(taken)
        end = f"No operations will run on the GPU, and all {total} operations will run on the CPU."
        if taken:
            end = (
                f"{len(taken)} operations will run on the GPU, and the remaining {on_cpu} operations will run on the "
                "CPU."
            )
        reasons = sorted(set(objections.values()))
        head = "Following operations are not supported by GPU delegate:"
        interpreter.log("ERROR", "\n".join([head, *reasons, end]))
    return taken


def _compile_for_gpu(
    interpreter: Interpreter, gpu: GpuSpec, backend: str, operators: int, share: float = 1.0
) -> None:
    interpreter.gpu_backend, interpreter.devices[GPU] = backend, gpu
    compiled = gpu.compile_ms_per_op * operators
    if backend == "gl":
        compiled *= _OPENGL_COMPILE_SHARE
    interpreter.init_us += 1000 * share * (gpu.init_ms + compiled)


def _create_gpu(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    if interpreter.run.is_litert:
        return _create_litert_gpu(interpreter, delegate)
    _say_created(interpreter, "Created TensorFlow Lite delegate for GPU.")
    return partial(_apply_gpu, interpreter)


def _apply_gpu(interpreter: Interpreter) -> int:
    """Give the GPU the largest partitions of its nodes."""
    kernels = [_apply_gpu_to(interpreter, plan) for plan in interpreter.plans]
    return kernels[0]


def _apply_gpu_to(interpreter: Interpreter, plan: SubgraphPlan) -> int:
    _say_created(interpreter, "Loaded OpenCL library with dlopen.")
    taken = _gpu_nodes(interpreter, plan)
    node = len(plan.nodes)
    count = _replace(interpreter, plan, GPU, taken)
    if count and not _starts_gpu(interpreter, len(taken)):
        interpreter.log("INFO", "Created 0 GPU delegate kernels.")
        interpreter.log("ERROR", "TfLiteGpuDelegate Prepare: delegate is not initialized")
        _not_prepared(interpreter, GPU, node)
    interpreter.log("INFO", f"Created {count} GPU delegate kernels.")
    return count


def _starts_gpu(interpreter: Interpreter, operators: int) -> bool:
    """Compile for OpenCL, or else OpenGL; return False and log it when neither is available."""
    gpu, requested = interpreter.run.profile.gpu, interpreter.flags.text("gpu_backend")
    missing = _fails(interpreter, FaultKind.DELEGATE_MISSING, GPU)
    if _fails(interpreter, FaultKind.DELEGATE_FAILING, GPU):
        interpreter.log(
            "ERROR",
            "TfLiteGpuDelegate Init: Failed to build program executable - Out of resources",
        )
        return False
    backends = () if gpu is None or missing else gpu.backends
    if gpu is not None and requested != "gl" and "cl" in backends:
        share, source = _load_kernels(interpreter, gpu)
        _compile_for_gpu(interpreter, gpu, "cl", operators, share)
        _say_created(interpreter, f"Initialized OpenCL-based API{source}.")
        return True
    if requested != "gl":
        interpreter.log(
            "ERROR",
            'Can not open OpenCL library on this device - dlopen failed: library "libOpenCL.so" not found',
        )
        if requested == "cl":
            interpreter.log("ERROR", "TfLiteGpuDelegate Init: OpenCL-based API is not available.")
            return False
        interpreter.log("ERROR", "Falling back to OpenGL")
    if gpu is None or "gl" not in backends:
        interpreter.log("ERROR", "TfLiteGpuDelegate Init: No EGL error, but eglGetDisplay failed")
        return False
    _compile_for_gpu(interpreter, gpu, "gl", operators)
    _say_created(interpreter, "Initialized OpenGL-based API.")
    return True


def _load_kernels(interpreter: Interpreter, gpu: GpuSpec) -> tuple[float, str]:
    """Load compiled kernels, or write them; return the remaining share of the init, and its words in
    the log.
    """
    flags, call = interpreter.flags, interpreter.run.call
    folder, token = flags.text("delegate_serialize_dir"), flags.text("delegate_serialize_token")
    if not folder or not token:
        return 1.0, ""
    key = hashlib.sha256(f"{interpreter.graph.sha256}{gpu.name}".encode()).digest()
    path = f"{folder}/{token}_{int.from_bytes(key[:8], 'little')}.bin"
    if size := file_size(call, path):
        interpreter.log("INFO", f"Found serialized data for model {token} ({size} B) at {path}")
        return _SERIALIZED_SHARE, " from serialized data"
    interpreter.log(
        "ERROR", f"File {path} couldn't be opened for reading: No such file or directory"
    )
    _write_cache(interpreter, path, "CLPG")
    return 1.0, ""


def _create_litert_gpu(interpreter: Interpreter, delegate: Delegate) -> Apply | None:
    if _fails(interpreter, FaultKind.DELEGATE_MISSING, delegate):
        interpreter.log(
            "WARNING", "[gpu_registry.cc:131] GPU accelerator could not be loaded and registered."
        )
        return None
    interpreter.log("INFO", "[gpu_environment.h:155] Created LiteRT GpuEnvironment.")
    return partial(_apply_litert_gpu, interpreter)


def _apply_litert_gpu(interpreter: Interpreter) -> int:
    """Give LiteRT's accelerator for OpenCL or OpenGL the largest partition of its nodes."""
    gpu = interpreter.run.profile.gpu
    requested, backend = _LITERT_BACKENDS.get(interpreter.flags.text("gpu_backend")), "gl"
    if requested == "cl" or (requested != "gl" and gpu is not None and "cl" in gpu.backends):
        backend = "cl"
        interpreter.log("INFO", "Loaded OpenCL library with dlopen.")
        interpreter.log(
            "INFO",
            "[gpu_environment.cc:220] Created OpenCL device from provided device id and platform id.",
        )
    elif requested != "gl":
        interpreter.log(
            "INFO",
            "[ml_drift_cl_gl_accelerator.cc:126] OpenCL not supported on this platform. Using OpenGL instead.",
        )
    kernels = []
    for plan in interpreter.plans:
        taken = _gpu_nodes(interpreter, plan)
        kernels.append(_replace(interpreter, plan, GPU, taken, _LITERT_NAMES[backend]))
        if not kernels[-1]:
            continue
        failing = _fails(interpreter, FaultKind.DELEGATE_FAILING, GPU)
        if failing or gpu is None or backend not in gpu.backends:
            interpreter.log(
                "ERROR",
                "Failed to create litert::ml_drift::DelegateKernelLiteRt: UNAVAILABLE: Failed to build program",
            )
            raise BenchmarkFailedError
        _compile_for_gpu(interpreter, gpu, backend, len(taken))
    return kernels[0]


# The records

XNNPACK: Final = Delegate(
    name="xnnpack",
    kernel="TfLiteXNNPackDelegate",
    provider="XNNPACK",
    flag="use_xnnpack",
    create=_create_xnnpack,
    flags=FLAGS["xnnpack"],
    is_on_cpu=True,
    packs_weights=True,
    memory_kb=900.0,
    label=_xnnpack_label,
)
FLEX: Final = Delegate(name="flex", kernel="TfLiteFlexDelegate", is_on_cpu=True)
GPU: Final = Delegate(
    name="gpu",
    kernel="TfLiteGpuDelegateV2",
    provider="GPU",
    flag="use_gpu",
    create=_create_gpu,
    flags=FLAGS["gpu"],
    operators=_GPU_OPS,
    memory_kb=84_000.0,
    label=lambda subgraph, operator, place: f"{operator.name.lower()} {place}",
    summary="gpu-default",
)
#: In the order of benchmark_model's providers, and of the flags in its --help.
DELEGATES: Final = (
    XNNPACK,
    Delegate(
        name="external",
        kernel="DummyDelegate",
        provider="EXTERNAL",
        flag="external_delegate_path",
        create=_create_external,
        flags=FLAGS["external"],
        is_simple=True,
    ),
    GPU,
    Delegate(
        name="hexagon",
        kernel="TfLiteHexagonDelegate",
        provider="Hexagon",
        flag="use_hexagon",
        create=_create_hexagon,
        flags=FLAGS["hexagon"],
        operators=_HEXAGON_OPS,
        memory_kb=6_000.0,
        is_simple=True,
        summary="dsp w/ hexagon",
    ),
    Delegate(
        name="nnapi",
        kernel="TfLiteNnapiDelegate",
        provider="NNAPI",
        flag="use_nnapi",
        create=_create_nnapi,
        flags=FLAGS["nnapi"],
        operators=_NNAPI_OPS,
        memory_kb=9_500.0,
        summary="nnapi(w/o accel name)",
    ),
    Delegate(
        name="npu",
        kernel="DispatchDelegate",
        provider="NPU",
        flag="use_npu",
        create=_create_npu,
        litert_flags=FLAGS["npu"],
        operators=_NNAPI_OPS,
        memory_kb=12_000.0,
    ),
    Delegate(
        name="stable",
        kernel="google_sample_delegate",
        provider="STABLE_DELEGATE",
        flag="stable_delegate_settings_file",
        create=_create_stable,
        flags=FLAGS["stable"],
        operators=frozenset({"ADD", "SUB"}),
    ),
)
#: The flags of a build for Android with every delegate linked.
ANDROID_FLAGS: Final = (
    *part_flags("core", "model", "default"),
    *(flag for delegate in DELEGATES for flag in delegate.flags),
)
