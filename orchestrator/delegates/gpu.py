"""The GPU delegate: OpenCL or OpenGL on Android, Metal on an iPhone, and LiteRT's own over each
interface.
"""

import re

from orchestrator.delegates import EVERYWHERE, Delegate, FlagFamily, serialized
from orchestrator.records.case import DelegateName

_ON = {"use_gpu": "true", "use_xnnpack": "false"}
#: LiteRT's own delegates, lower case -> the interface to the GPU.
_LITERT = {
    "litert_cl": "opencl",
    "litert_opengl": "opengl",
    "litert_webgpu": "webgpu",
    "litert_vulkan": "vulkan",
    "litert_metal": "metal",
}

DELEGATE = Delegate(
    name=DelegateName.GPU,
    label="GPU",
    is_in_profiles=True,
    flags={
        FlagFamily.BENCHMARK_MODEL: _ON,
        FlagFamily.LITERT: {"use_cpu": "false", "use_gpu": "true", "use_npu": "false"},
        FlagFamily.LITERT_BENCHMARK: {"use_gpu": "true", "no_cpu": "true"},
        FlagFamily.LITERT_LM: {"backend": "gpu"},
    },
    kinds=EVERYWHERE,
    tried_on=EVERYWHERE,
    is_on_gpu=True,
    # The flag's default is true.
    is_half=lambda flags: flags.get("gpu_precision_loss_allowed", "true") in {"true", "1"},
    cache_flags=serialized,
    reports_cache=True,
    # Of LiteRT's programs that don't hold it.
    library=re.compile(r"libLiteRtClGlAccelerator\.so$"),
    called={
        "gpu": "gpu",
        "tflitegpudelegatev2": "gpu",
        "tflitegpudelegate": "gpu",
        "metal": "metal",
        "tflitemetaldelegate": "metal",
        **{name: "metal" if backend == "metal" else "gpu" for name, backend in _LITERT.items()},
    },
    echoes={"Use gpu": "use_gpu", "GPU backend": "gpu_backend"},
    unavailable=("GPU accelerator could not be loaded and registered",),
    backends=_LITERT
    | {
        "gpu_backend=cl": "opencl",
        "gpu_backend=gl": "opengl",
        "gpu_backend=opengl": "opengl",
        "gpu_backend=webgpu": "webgpu",
    },
)
