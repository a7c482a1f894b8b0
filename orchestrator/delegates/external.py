"""A delegate in a library of its own, which a plan's flags name."""

from orchestrator.delegates import Delegate, FlagFamily
from orchestrator.delegates.npu import LIBRARY, needs_library
from orchestrator.records.case import DelegateName
from orchestrator.records.device import DeviceKind

DELEGATE = Delegate(
    name=DelegateName.EXTERNAL,
    label="external delegate",
    flags={FlagFamily.BENCHMARK_MODEL: {"use_xnnpack": "false"}},
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    switches={"external_delegate_path": "external", "stable_delegate_settings_file": "external"},
    is_named_by_flag=True,
    # Qualcomm's and MediaTek's load the runtime of the chip, Qualcomm's by ADSP_LIBRARY_PATH too.
    is_on_dsp=True,
    library=LIBRARY,
    needs_library=needs_library,
    # Whether it uses the threads isn't known.
    uses_threads=True,
    is_half=lambda flags: True,
    called={"external": "external", "stable_delegate": "external"},
    echoes={
        "External delegate path": "external_delegate_path",
        "Delegate settings file path": "stable_delegate_settings_file",
    },
    unavailable=(
        "Invalid TFLiteSettings for the stable delegate",
        "Failed to load stable ABI delegate",
        "Failed to load the delegate settings file",
        "Unable to load external delegate",
    ),
)
