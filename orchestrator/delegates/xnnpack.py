"""XNNPACK, which the runtime applies by default."""

from orchestrator.delegates import EVERYWHERE, Delegate, FlagFamily
from orchestrator.records.case import DelegateName

DELEGATE = Delegate(
    name=DelegateName.XNNPACK,
    label="XNNPACK",
    is_in_profiles=True,
    flags={
        FlagFamily.BENCHMARK_MODEL: {"use_xnnpack": "true"},
        FlagFamily.LITERT: {"use_cpu": "true", "use_gpu": "false", "use_npu": "false"},
        FlagFamily.LITERT_BENCHMARK: {},
        FlagFamily.LITERT_LM: {"backend": "cpu"},
    },
    kinds=EVERYWHERE,
    tried_on=EVERYWHERE,
    switches={"use_xnnpack": "xnnpack", "use_ynnpack": "ynnpack"},
    uses_threads=True,
    cache_flags=lambda folder, token: {"xnnpack_weight_cache_file_path": f"{folder}/weights.bin"},
    called={"xnnpack": "xnnpack", "tflitexnnpackdelegate": "xnnpack", "ynnpack": "ynnpack"},
    echoes={"Use xnnpack": "use_xnnpack", "Use ynnpack": "use_ynnpack"},
)
