"""The builtin kernels, without any delegate."""

from orchestrator.delegates import EVERYWHERE, Delegate, FlagFamily
from orchestrator.records.case import DelegateName

DELEGATE = Delegate(
    name=DelegateName.CPU,
    label="CPU",
    is_in_profiles=True,
    flags={
        FlagFamily.BENCHMARK_MODEL: {"use_xnnpack": "false"},
    },
    kinds=EVERYWHERE,
    tried_on=EVERYWHERE,
    is_builtin=True,
    uses_threads=True,
    # What a build brings for TensorFlow's operators comes by itself and runs on the CPU.
    called={"select tf ops": "flex", "tfliteflexdelegate": "flex"},
)
