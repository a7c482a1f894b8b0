"""Android's Neural Networks API, which hands a model to the phone's drivers."""

from orchestrator.delegates import Delegate, FlagFamily, serialized
from orchestrator.records.case import DelegateName, Skip
from orchestrator.records.device import DeviceFacts

#: It exists from Android 8.1 (API level 27) on and is deprecated from Android 15 (35) on.
_FIRST_SDK = 27
_DEPRECATED_SDK = 35


def _skip(facts: DeviceFacts) -> Skip | None:
    if facts.sdk is None or _FIRST_SDK <= facts.sdk < _DEPRECATED_SDK:
        return None
    level = f"(this phone has API level {facts.sdk})"
    if facts.sdk < _FIRST_SDK:
        return Skip(reason_code="nnapi-missing", reason=f"NNAPI came with Android 8.1 {level}")
    return Skip(
        reason_code="nnapi-deprecated", reason=f"NNAPI is deprecated from Android 15 on {level}"
    )


DELEGATE = Delegate(
    name=DelegateName.NNAPI,
    label="NNAPI",
    is_in_profiles=True,
    flags={
        FlagFamily.BENCHMARK_MODEL: {"use_nnapi": "true", "use_xnnpack": "false"},
    },
    switches={"use_legacy_nnapi": "nnapi"},
    is_half=lambda flags: True,
    cache_flags=serialized,
    skip=_skip,
    called={"nnapi": "nnapi", "tflitennapidelegate": "nnapi"},
    echoes={
        "Use NNAPI": "use_nnapi",
        "Use nnapi": "use_nnapi",
        "Use legacy nnapi": "use_legacy_nnapi",
    },
    unavailable=("Couldn't load NNAPI support library",),
)
