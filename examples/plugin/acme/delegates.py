"""A delegate: a library of the phone's."""

from orchestrator.plugins import Delegate, FlagFamily
from orchestrator.records.case import DelegateName

NPU = Delegate(
    name=DelegateName("acme.npu"),
    label="Acme NPU",
    flags={
        FlagFamily.BENCHMARK_MODEL: {
            "external_delegate_path": "/vendor/lib64/libacme.so",
            "use_xnnpack": "false",
        }
    },
    called={"acmedelegate": "acme.npu"},
)
