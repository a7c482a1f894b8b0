"""Apple's Core ML, on an iPhone's Neural Engine."""

from orchestrator.delegates import Delegate
from orchestrator.records.case import DelegateName
from orchestrator.records.device import DeviceKind

DELEGATE = Delegate(
    name=DelegateName.COREML,
    label="Core ML",
    is_in_profiles=True,
    flags={},
    kinds=frozenset({DeviceKind.IOS}),
    switches={"use_coreml": "coreml"},
    is_half=lambda flags: True,
    called={"coreml": "coreml", "tflitecoremldelegate": "coreml"},
    echoes={"Use CoreML": "use_coreml"},
)
