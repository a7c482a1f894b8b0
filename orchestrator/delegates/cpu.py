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
    # A build's Flex delegate is applied by default and runs on the CPU.
    called={"select tf ops": "flex", "tfliteflexdelegate": "flex"},
)
