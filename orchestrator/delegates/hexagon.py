"""The delegate for Qualcomm's Hexagon DSP."""

import re

from orchestrator.delegates import Delegate, FlagFamily
from orchestrator.records.case import Build, DelegateName, Skip
from orchestrator.records.device import DeviceFacts

_INTERFACE = "libhexagon_interface.so"
_SKEL = "libhexagon_nn_skel"
_PLATFORMS = {"kona", "lahaina", "taro", "kalama", "pineapple", "sun", "lito", "bengal", "holi"}


def _skip(facts: DeviceFacts) -> Skip | None:
    maker = (
        facts.properties.get("ro.soc.manufacturer", "") + facts.properties.get("ro.hardware", "")
    ).lower()
    starts = ("sm", "sdm", "msm", "qcs", "apq", "snapdragon")
    if (
        any(name in maker for name in ("qti", "qualcomm", "qcom"))
        or any(name.lower().startswith(starts) for name in (facts.soc, facts.platform))
        or facts.platform in _PLATFORMS
    ):
        return None
    return Skip(
        reason_code="delegate-not-on-soc",
        reason=f"Hexagon is Qualcomm's; this phone has {facts.soc or facts.platform or 'an unknown SoC'}",
    )


def _library_skip(build: Build, facts: DeviceFacts) -> Skip | None:
    del facts
    names = {companion.name for companion in build.companions}
    if _INTERFACE in names and any(name.startswith(_SKEL) for name in names):
        return None
    return Skip(
        reason_code="hexagon-libraries-missing",
        reason=f"{build.name} has no {_INTERFACE} with its {_SKEL} libraries beside it",
    )


DELEGATE = Delegate(
    name=DelegateName.HEXAGON,
    label="Hexagon",
    is_in_profiles=True,
    flags={
        FlagFamily.BENCHMARK_MODEL: {"use_hexagon": "true", "use_xnnpack": "false"},
    },
    is_on_dsp=True,
    is_half=lambda flags: True,
    skip=_skip,
    library=re.compile(r"libhexagon_(?:interface|nn_skel(?:_v\d+)?)\.so$"),
    library_skip=_library_skip,
    called={"hexagon": "hexagon", "tflitehexagondelegate": "hexagon"},
    echoes={"Use Hexagon": "use_hexagon"},
    unavailable=("Could not create Hexagon delegate", "Hexagon Delegate is not supported"),
)
