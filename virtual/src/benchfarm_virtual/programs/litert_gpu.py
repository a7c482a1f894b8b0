"""LiteRT's GPU and NPU accelerators: delegates that say little of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import ProcessContext
from benchfarm_virtual.delegation import GPU, NPU, SubgraphPlan
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.profiles import AcceleratorSpec
from benchfarm_virtual.programs.accelerator_delegates import REFERENCE_DEVICE, apply_accelerator
from benchfarm_virtual.programs.delegate_steps import Delegate, replace_nodes
from benchfarm_virtual.programs.gpu_delegate import GpuDelegate
from benchfarm_virtual.programs.phone_files import find_library
from benchfarm_virtual.programs.process import BenchmarkFailedError

if TYPE_CHECKING:
    from benchfarm_virtual.programs.interpreter import Interpreter


_NAMES: Final = {"cl": "LITERT_CL", "gl": "LITERT_OPENGL"}
#: OpenGL's shaders are compiled in so much of OpenCL's time.
_OPENGL_COMPILE_SHARE: Final = 0.6


class LitertGpuDelegate(GpuDelegate):
    """The accelerator for OpenCL and OpenGL, as LiteRT's program loads it."""

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the largest partition of what it takes."""
        self._backend = self._choose_backend(interpreter)
        interpreter.shown_names[GPU] = _NAMES[self._backend]
        return super().apply(interpreter)

    def _choose_backend(self, interpreter: Interpreter) -> str:
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

    def _apply_to(self, interpreter: Interpreter, plan: SubgraphPlan) -> int:
        run, backend = interpreter.run, self._backend
        gpu = run.bench.profile.gpu
        taken = self.choose(interpreter, plan)
        done = replace_nodes(interpreter, plan, GPU, taken)
        if done is None:
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
        return len(done.kernels)


def create_litert_gpu(interpreter: Interpreter) -> Delegate | None:
    """Create it, or say that it couldn't be loaded (then None)."""
    say = interpreter.run.say
    if interpreter.run.bench.take_fault(FaultKind.DELEGATE_MISSING, "gpu") is not None:
        say.runtime(
            "WARNING", "[gpu_registry.cc:131] GPU accelerator could not be loaded and registered."
        )
        return None
    say.runtime("INFO", "[gpu_environment.h:155] Created LiteRT GpuEnvironment.")
    return LitertGpuDelegate()


#: ``ro.soc.manufacturer``, lower case -> the vendor as LiteRT's libraries spell it.
_VENDORS: Final = {
    "qti": "Qualcomm",
    "mediatek": "MediaTek",
    "google": "GoogleTensor",
    "samsung": "Samsung",
}


class NpuDelegate:
    """The NPU; it takes what the compiler plugin could compile."""

    provider = "NPU"
    static_only = True

    def __init__(self, device: AcceleratorSpec) -> None:
        self._device = device

    def apply(self, interpreter: Interpreter) -> int:
        """Give it what it takes; a runtime that can't be loaded is told after the nodes were
        replaced.
        """
        failing = interpreter.run.bench.take_fault(FaultKind.DELEGATE_FAILING, "npu") is not None
        if failing:
            interpreter.run.say.runtime(
                "ERROR", "[dispatch_delegate.cc:116] Failed to initialize Dispatch API: ERROR"
            )
        kernels = apply_accelerator(interpreter, self._device, NPU, hexagon=False)
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
        run.say.runtime(
            "ERROR", "[dispatch_delegate.cc:116] Failed to initialize Dispatch API: ERROR"
        )
        _no_runtime(interpreter)
        return None
    run.say.runtime("INFO", f"[litert_dispatch.cc:159] Loading shared library: {folder}/{library}")
    return NpuDelegate(device)


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
