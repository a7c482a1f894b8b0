"""LiteRT's GPU accelerator: delegates named after what they drive the GPU through, which say little of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchfarm_lab.delegation import GPU, SubgraphPlan
from benchfarm_lab.faults import FaultKind
from benchfarm_lab.programs.delegate_steps import Delegate, note_wrong, replace_nodes
from benchfarm_lab.programs.gpu_delegate import GpuDelegate
from benchfarm_lab.programs.process import BenchmarkFailedError

if TYPE_CHECKING:
    from benchfarm_lab.programs.interpreter import Interpreter

_NAMES: Final = {"cl": "LITERT_CL", "gl": "LITERT_OPENGL"}
#: OpenGL's shaders are compiled in so much of OpenCL's time.
_OPENGL_COMPILE_SHARE: Final = 0.6


class LitertGpuDelegate(GpuDelegate):
    """The accelerator for OpenCL and OpenGL, as LiteRT's program loads it."""

    def apply(self, interpreter: Interpreter) -> int:
        """Give it the largest partition of what it takes."""
        backend = self._backend(interpreter)
        interpreter.shown_names[GPU] = _NAMES[backend]
        kernels = 0
        for plan in interpreter.plans:
            done = self._compile(interpreter, plan, backend)
            if plan is interpreter.plan:
                kernels = done
        note_wrong(interpreter, "gpu", GPU)
        return kernels

    def _backend(self, interpreter: Interpreter) -> str:
        say, gpu = interpreter.run.say, interpreter.run.bench.profile.gpu
        wanted = interpreter.run.parameters.text("gpu_backend")
        if wanted == "gl":
            return "gl"
        if wanted == "cl" or (gpu is not None and "cl" in gpu.backends):
            say.runtime("INFO", "Loaded OpenCL library with dlopen.")
            say.runtime(
                "INFO", "[gpu_environment.cc:220] Created OpenCL device from provided device id and platform id."
            )
            return "cl"
        say.runtime(
            "INFO",
            "[ml_drift_cl_gl_accelerator.cc:126] OpenCL not supported on this platform. Using OpenGL instead.",
        )
        return "gl"

    def _compile(self, interpreter: Interpreter, plan: SubgraphPlan, backend: str) -> int:
        run = interpreter.run
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
        say.runtime("WARNING", "[gpu_registry.cc:131] GPU accelerator could not be loaded and registered.")
        return None
    say.runtime("INFO", "[gpu_environment.h:155] Created LiteRT GpuEnvironment.")
    return LitertGpuDelegate()
