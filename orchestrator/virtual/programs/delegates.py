"""The delegates as the programs create and apply them: what they say, what they take, how they fail."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Protocol

from orchestrator.virtual.contract import PhoneFileError
from orchestrator.virtual.delegation import (
    FLEX,
    GPU,
    HEXAGON,
    NNAPI,
    XNNPACK,
    Replacement,
    SubgraphPlan,
    accelerator_takes,
    dynamic_outputs,
    gpu_name,
    gpu_objection,
    xnnpack_takes,
)  # fmt: skip
from orchestrator.virtual.elf import note_of
from orchestrator.virtual.faults import FaultKind
from orchestrator.virtual.graph import Operator
from orchestrator.virtual.profiles import AcceleratorSpec, GpuSpec
from orchestrator.virtual.programs.external_delegate import DUMMY_PROGRAM, DummyDelegate
from orchestrator.virtual.programs.phone_files import absolute, read_whole, size_of, write_whole
from orchestrator.virtual.programs.process import BenchmarkFailedError

if TYPE_CHECKING:
    from orchestrator.virtual.programs.interpreter import Interpreter

#: The device that every phone with NNAPI has; it computes on the CPU.
REFERENCE_DEVICE: Final = "nnapi-reference"
_WEIGHT_CACHE_GAIN: Final = 0.4
_SERIALIZED_SHARE: Final = 0.12


class Delegate(Protocol):
    """A delegate that was created."""

    #: The provider's name in the tool's lines.
    provider: str
    #: Whether it refuses graphs with dynamic shapes.
    static_only: bool

    def apply(self, interpreter: Interpreter) -> int:
        """Apply it; return how many kernels the primary subgraph got. Raises BenchmarkFailedError."""
        ...


def create(interpreter: Interpreter) -> list[Delegate]:
    """Create the delegates that the flags ask for, in the providers' order; return them in the command line's."""
    flags, say, once = interpreter.run.parameters, interpreter.run.say, interpreter.run.once
    makers: list[tuple[str, bool, Callable[[Interpreter], Delegate | None]]] = [
        ("use_xnnpack", flags.switch("use_xnnpack"), _create_xnnpack),
        ("external_delegate_path", bool(flags.text("external_delegate_path")), _create_external),
        ("use_gpu", flags.switch("use_gpu"), _create_gpu),
        ("use_hexagon", flags.switch("use_hexagon"), _create_hexagon),
        ("use_nnapi", flags.switch("use_nnapi"), _create_nnapi),
        ("stable_delegate_settings_file", bool(flags.text("stable_delegate_settings_file")), _create_stable),
    ]
    created: list[tuple[int, Delegate]] = []
    for flag, wanted, make in makers:
        if flag == "use_nnapi" and not wanted and flags.text("nnapi_accelerator_name"):
            name = flags.text("nnapi_accelerator_name")
            say.warn(f"`--use_nnapi=true` must be set for the provided NNAPI accelerator ({name}) to be used.")
        delegate = make(interpreter) if wanted else None
        if delegate is None:
            continue
        if once.first("delegate created"):
            say.info(f"{delegate.provider} delegate created.")
        created.append((flags.positions.get(flag, 0), delegate))
    return [delegate for _, delegate in sorted(created, key=lambda item: item[0])]


def _replace(interpreter: Interpreter, plan: SubgraphPlan, delegate: str, taken: frozenset[int]) -> Replacement | None:
    """Put kernels into a plan and say so; None when there is nothing to replace."""
    if not taken:
        return None
    done = plan.replace(delegate, taken)
    interpreter.run.say.runtime(
        "VERBOSE",
        f"Replacing {done.nodes} out of {done.total} node(s) with delegate ({delegate}) node, yielding "
        f"{done.partitions} partitions for subgraph {plan.index} ({plan.subgraph.name}).",
    )
    return done


def _operators(plan: SubgraphPlan) -> Iterator[tuple[int, Operator]]:
    for node_id in plan.execution:
        operator = plan.nodes[node_id].operator
        if operator is not None:
            yield node_id, operator


def _reduced(interpreter: Interpreter, taken: frozenset[int], subject: str) -> frozenset[int]:
    """Take only a share of the nodes, when that fault was asked for."""
    fault = interpreter.run.bench.take_fault(FaultKind.DELEGATE_PARTIAL, subject)
    if fault is None:
        return taken
    keep = math.floor(len(taken) * max(0.0, min(1.0, fault.number("share"))))
    return frozenset(sorted(taken)[:keep])


def _note_wrong(interpreter: Interpreter, subject: str, delegate: str) -> None:
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_WRONG, subject) is not None:
        interpreter.wrong.add(delegate)


def _not_prepared(interpreter: Interpreter, plan: SubgraphPlan, delegate: str, *, node: int | None = None) -> NoReturn:
    number = len(plan.nodes) if node is None else node
    interpreter.run.say.runtime("ERROR", f"Node number {number} ({delegate}) failed to prepare.")
    raise BenchmarkFailedError


# XNNPACK --------------------------------------------------------------------------------------------------------------


class XnnpackDelegate:
    """XNNPACK, when it was asked for."""

    provider = "XNNPACK"
    static_only = False

    def apply(self, interpreter: Interpreter) -> int:
        """Give it what it takes of every subgraph."""
        if interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "xnnpack") is not None:
            interpreter.run.say.runtime("ERROR", "failed to create XNNPACK runtime")
            _not_prepared(interpreter, interpreter.plan, XNNPACK)
        return _apply_xnnpack(interpreter)


def _create_xnnpack(interpreter: Interpreter) -> Delegate | None:
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
        taken = frozenset(i for i, operator in _operators(plan) if xnnpack_takes(plan.subgraph, operator, dynamic))
        if plan is interpreter.plan:
            taken = _reduced(interpreter, taken, "xnnpack")
        done = _replace(interpreter, plan, XNNPACK, taken)
        if done is not None and plan is interpreter.plan:
            kernels = len(done.kernels)
    _note_wrong(interpreter, "xnnpack", XNNPACK)
    path = interpreter.run.parameters.text("xnnpack_weight_cache_file_path")
    if path and kernels:
        if size_of(interpreter.run.process, path):
            interpreter.init_us -= _WEIGHT_CACHE_GAIN * interpreter.init_us
        else:
            write_whole(interpreter.run.process, path, _blob(interpreter, "XNNP", interpreter.graph.weight_bytes))
    return kernels


def _blob(interpreter: Interpreter, magic: str, size_bytes: int) -> bytes:
    """Return what a delegate keeps in a file: a head that names the model, then nothing, at most 1 MB."""
    head = f"{magic}{interpreter.graph.sha256}".encode()
    return head.ljust(min(1_000_000, max(len(head), size_bytes)), b"\0")


# Flex -----------------------------------------------------------------------------------------------------------------


def apply_flex(interpreter: Interpreter) -> None:
    """Apply the delegate for TensorFlow's own operators, in builds that have it and models that need it."""
    for plan in interpreter.plans:
        taken = frozenset(i for i, operator in _operators(plan) if operator.custom and operator.name.startswith("Flex"))
        if taken and interpreter.run.once.first("flex created"):
            interpreter.run.say.runtime("INFO", "Created TensorFlow Lite delegate for select TF ops.")
        _replace(interpreter, plan, FLEX, taken)


# GPU ------------------------------------------------------------------------------------------------------------------


class GpuDelegate:
    """The GPU delegate: OpenCL, and OpenGL where OpenCL can't be had."""

    provider = "GPU"
    static_only = True

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the largest partitions of what it takes."""
        kernels = 0
        for plan in interpreter.plans:
            done = self._apply_to(interpreter, plan)
            if plan is interpreter.plan:
                kernels = done
        _note_wrong(interpreter, "gpu", GPU)
        return kernels

    def _apply_to(self, interpreter: Interpreter, plan: SubgraphPlan) -> int:
        run = interpreter.run
        if run.once.first("opencl"):
            run.say.runtime("INFO", "Loaded OpenCL library with dlopen.")
        quantized = run.parameters.switch("gpu_experimental_enable_quant")
        objections = self._objections(plan, quantized=quantized)
        taken = frozenset(i for i in plan.execution if i not in objections)
        if plan is interpreter.plan:
            taken = _reduced(interpreter, taken, "gpu")
        limit = run.parameters.integer("max_delegated_partitions")
        taken = plan.largest(taken, limit if limit > 0 else 1)
        if objections:
            self._object(interpreter, plan, sorted(set(objections.values())), len(taken))
        if not taken:
            run.say.runtime("INFO", "Created 0 GPU delegate kernels.")
            return 0
        kernel_node = len(plan.nodes)
        done = _replace(interpreter, plan, GPU, taken)
        self._initialize(interpreter, plan, len(taken), kernel_node)
        count = len(done.kernels) if done is not None else 0
        run.say.runtime("INFO", f"Created {count} GPU delegate kernels.")
        return count

    def _objections(self, plan: SubgraphPlan, *, quantized: bool) -> dict[int, str]:
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

    def _object(self, interpreter: Interpreter, plan: SubgraphPlan, reasons: list[str], taken: int) -> None:
        total = len(plan.execution)
        if taken:
            end = f"{taken} operations will run on the GPU, and the remaining {total - taken} operations will run on the CPU."
        else:
            end = f"No operations will run on the GPU, and all {total} operations will run on the CPU."
        interpreter.run.say.runtime(
            "ERROR", "\n".join(["Following operations are not supported by GPU delegate:", *reasons, end])
        )

    def _initialize(self, interpreter: Interpreter, plan: SubgraphPlan, operators: int, kernel_node: int) -> None:
        run = interpreter.run
        gpu = run.bench.profile.gpu
        wanted = run.parameters.text("gpu_backend")
        missing = run.bench.take_fault(FaultKind.DELEGATE_MISSING, "gpu") is not None
        if run.bench.take_fault(FaultKind.DELEGATE_FAILING, "gpu") is not None:
            run.say.runtime("ERROR", "TfLiteGpuDelegate Init: Failed to build program executable - Out of resources")
            self._fail(interpreter, plan, kernel_node)
        has_cl = gpu is not None and "cl" in gpu.backends and not missing
        has_gl = gpu is not None and "gl" in gpu.backends and not missing
        if wanted != "gl" and has_cl and gpu is not None:
            self._use_opencl(interpreter, gpu, operators)
            return
        if wanted != "gl":
            run.say.runtime(
                "ERROR",
                'Can not open OpenCL library on this device - dlopen failed: library "libOpenCL.so" not found',
            )
            if wanted == "cl":
                run.say.runtime("ERROR", "TfLiteGpuDelegate Init: OpenCL-based API is not available.")
                self._fail(interpreter, plan, kernel_node)
            run.say.runtime("ERROR", "Falling back to OpenGL")
        if not has_gl or gpu is None:
            run.say.runtime("ERROR", "TfLiteGpuDelegate Init: No EGL error, but eglGetDisplay failed")
            self._fail(interpreter, plan, kernel_node)
        interpreter.gpu_backend = "gl"
        interpreter.init_us += 1000 * (gpu.init_ms + 0.6 * gpu.compile_ms_per_op * operators)
        if run.once.first("gl initialized"):
            run.say.runtime("INFO", "Initialized OpenGL-based API.")

    def _fail(self, interpreter: Interpreter, plan: SubgraphPlan, kernel_node: int) -> NoReturn:
        interpreter.run.say.runtime("INFO", "Created 0 GPU delegate kernels.")
        interpreter.run.say.runtime("ERROR", "TfLiteGpuDelegate Prepare: delegate is not initialized")
        _not_prepared(interpreter, plan, GPU, node=kernel_node)

    def _use_opencl(self, interpreter: Interpreter, gpu: GpuSpec, operators: int) -> None:
        run = interpreter.run
        compile_us = 1000 * (gpu.init_ms + gpu.compile_ms_per_op * operators)
        folder, token = run.parameters.text("delegate_serialize_dir"), run.parameters.text("delegate_serialize_token")
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
                    "ERROR", f"File {path} couldn't be opened for reading: No such file or directory"
                )  # fmt: skip
                write_whole(run.process, path, _blob(interpreter, "CLPG", interpreter.graph.weight_bytes))
        interpreter.init_us += compile_us * (_SERIALIZED_SHARE if serialized else 1.0)
        said = "Initialized OpenCL-based API from serialized data." if serialized else "Initialized OpenCL-based API."
        if run.once.first(said):
            run.say.runtime("INFO", said)


def _create_gpu(interpreter: Interpreter) -> Delegate | None:
    if interpreter.run.once.first("gpu created"):
        interpreter.run.say.runtime("INFO", "Created TensorFlow Lite delegate for GPU.")
    return GpuDelegate()


# NNAPI and Hexagon ----------------------------------------------------------------------------------------------------


class NnapiDelegate:
    """NNAPI with the device that was named, or with the best one."""

    provider = "NNAPI"

    def __init__(self, device: AcceleratorSpec | None, *, dynamic: bool) -> None:
        self._device = device
        self.static_only = not dynamic

    def apply(self, interpreter: Interpreter) -> int:
        """Give it what its device takes."""
        run = interpreter.run
        named = run.parameters.text("nnapi_accelerator_name")
        if named and self._device is None:
            names = ",".join(device.name for device in run.bench.profile.nnapi)
            run.say.runtime(
                "ERROR", f"Could not find the specified NNAPI accelerator: {named}. Must be one of: {{{names}}}."
            )
            raise BenchmarkFailedError
        device = self._device
        if device is None or (device.name == REFERENCE_DEVICE and not named):
            return 0
        kernels = _apply_accelerator(interpreter, device, NNAPI, hexagon=False)
        failing = run.bench.take_fault(FaultKind.DELEGATE_FAILING, "nnapi") is not None
        if kernels and (failing or device.compilation_fails):
            run.say.runtime(
                "ERROR",
                "NN API returned error ANEURALNETWORKS_OP_FAILED at line 4768 while completing NNAPI compilation.\n",
            )
            _not_prepared(interpreter, interpreter.plan, NNAPI, node=interpreter.plan.execution[0])
        return kernels


def _apply_accelerator(interpreter: Interpreter, device: AcceleratorSpec, delegate: str, *, hexagon: bool) -> int:
    plan = interpreter.plan
    subject = "hexagon" if hexagon else "nnapi"
    taken = frozenset(
        i for i, op in _operators(plan) if accelerator_takes(plan.subgraph, op, device, hexagon=hexagon)
    )  # fmt: skip
    taken = _reduced(interpreter, taken, subject)
    flags = interpreter.run.parameters
    limit = flags.integer("max_delegated_partitions")
    if limit > 0:
        taken = plan.largest(taken, limit)
    smallest = flags.integer("min_nodes_per_partition")
    if smallest > 0:
        runs = [run for run in plan.partitions(taken) if run and run[0] in taken and len(run) >= smallest]
        taken = frozenset(i for run in runs for i in run)
    interpreter.accelerator = device
    interpreter.init_us += 1000 * (device.init_ms + device.compile_ms_per_op * len(taken)) if taken else 0.0
    _note_wrong(interpreter, subject, delegate)
    if hexagon:
        kernels = sum(1 for run in plan.partitions(taken) if run and run[0] in taken)
        interpreter.run.say.runtime(
            "INFO",
            f"{delegate} delegate: {len(taken)} nodes delegated out of {len(plan.execution)} nodes with {kernels} "
            "partitions.\n",
        )
    done = _replace(interpreter, plan, delegate, taken)
    return len(done.kernels) if done is not None else 0


def _create_nnapi(interpreter: Interpreter) -> Delegate | None:
    run = interpreter.run
    library = run.parameters.text("nnapi_support_library_path")
    if library and size_of(run.process, library) is None:
        run.say.warn(f"Couldn't load NNAPI support library from path: {library}")
        return None
    devices = run.bench.profile.nnapi
    if not devices or run.bench.take_fault(FaultKind.DELEGATE_MISSING, "nnapi") is not None:
        run.say.warn("NNAPI acceleration is unsupported on this platform.")
        return None
    if run.once.first("nnapi created"):
        run.say.runtime("INFO", "Created TensorFlow Lite delegate for NNAPI.")
    named = run.parameters.text("nnapi_accelerator_name")
    device = next((d for d in devices if d.name == named), None) if named else _best_device(interpreter, devices)
    return NnapiDelegate(device, dynamic=run.parameters.switch("nnapi_allow_dynamic_dimensions"))


def _best_device(interpreter: Interpreter, devices: tuple[AcceleratorSpec, ...]) -> AcceleratorSpec | None:
    """Return the device that NNAPI would choose: the one that takes most of the model, the fastest of equals."""
    plan = interpreter.plan
    usable = [device for device in devices if device.name != REFERENCE_DEVICE]

    def merit(device: AcceleratorSpec) -> tuple[int, float]:
        taken = sum(1 for _, op in _operators(plan) if accelerator_takes(plan.subgraph, op, device, hexagon=False))
        return taken, max(device.f32_gmacs, device.int8_gmacs)

    return max(usable, key=merit, default=None)


class HexagonDelegate:
    """The Hexagon delegate on a DSP."""

    provider = "Hexagon"
    static_only = True

    def __init__(self, device: AcceleratorSpec) -> None:
        self._device = device

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the quantized operators."""
        if interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "hexagon") is not None:
            interpreter.run.say.runtime("ERROR", "Failed to prepare graph.")
            _not_prepared(interpreter, interpreter.plan, HEXAGON)
        return _apply_accelerator(interpreter, self._device, HEXAGON, hexagon=True)


def _create_hexagon(interpreter: Interpreter) -> Delegate | None:
    run = interpreter.run
    device = run.bench.profile.hexagon
    if device is None or run.bench.take_fault(FaultKind.DELEGATE_MISSING, "hexagon") is not None:
        run.say.runtime("WARNING", "Hexagon Delegate is not supported.\n")
        run.say.warn(
            "Could not create Hexagon delegate: platform may not support delegate or required libraries are missing"
        )
        return None
    if run.once.first("hexagon created"):
        run.say.runtime("INFO", "Created TensorFlow Lite delegate for Hexagon.")
    return HexagonDelegate(device)


# External and stable --------------------------------------------------------------------------------------------------


class ExternalDelegate:
    """A delegate from a library; the only one that this phone can stand in for is the test delegate."""

    provider = "EXTERNAL"
    static_only = True
    #: The delegate's own name in the plan.
    runtime_name: ClassVar[str] = "DummyDelegate"

    def __init__(self, dummy: DummyDelegate) -> None:
        self._dummy = dummy

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the operators of one kind."""
        say, plan = interpreter.run.say, interpreter.plan
        taken = frozenset(i for i, op in _operators(plan) if op.code == self._dummy.allowed_builtin_code)
        partitions = sum(1 for run in plan.partitions(taken) if run and run[0] in taken)
        say.runtime(
            "INFO",
            f"{self.runtime_name} delegate: {len(taken)} nodes delegated out of {len(plan.execution)} nodes with "
            f"{partitions} partitions.\n",
        )
        kernel_node = len(plan.nodes)
        done = _replace(interpreter, plan, self.runtime_name, taken)
        if done is None:
            return 0
        if self._dummy.error_during_init:
            say.runtime("ERROR", "Failed to initialize kernel.")
            raise BenchmarkFailedError
        if self._dummy.error_during_prepare:
            _not_prepared(interpreter, plan, self.runtime_name, node=kernel_node)
        return len(done.kernels)


def _create_external(interpreter: Interpreter) -> Delegate | None:
    run = interpreter.run
    # A library that is missing, or none, is passed over without a word, as release builds do.
    try:
        note = note_of(read_whole(run.process, run.parameters.text("external_delegate_path")))
    except PhoneFileError:
        return None
    if note is None or note.program != DUMMY_PROGRAM:
        return None
    dummy = DummyDelegate.from_options(run.parameters.text("external_delegate_options"))
    for name, value in dummy.settings():
        run.say.runtime("INFO", f"Dummy delegate: {name} set to {value}.")
    return ExternalDelegate(dummy)


def _create_stable(interpreter: Interpreter) -> Delegate | None:
    run = interpreter.run
    path = run.parameters.text("stable_delegate_settings_file")
    try:
        settings = json.loads(read_whole(run.process, absolute(run.process, path)))
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
    run.say.error(f"Failed to load stable ABI delegate from stable ABI delegate binary ({library}).")
    return None
