"""Which of a build's libraries a case needs beside the program: by its delegate and by the phone's chip. Pure."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.records.device import DeviceFacts
from orchestrator.records.workload import Build, Companion, DelegateName

#: Vendor as LiteRT's libraries spell it -> beginnings of ``ro.soc.model`` and ``ro.soc.manufacturer``, lower case.
_VENDORS: Final = {
    "Qualcomm": ("sm", "qcs", "qcm", "sa8", "sxr", "qti", "qualcomm"),
    "MediaTek": ("mt", "mediatek"),
    "GoogleTensor": ("tensor", "gs1", "gs2", "zuma", "google"),
    "Samsung": ("s5e", "exynos", "samsung"),
}
#: ``ro.soc.model`` -> version of its Hexagon tensor processor, as Qualcomm's libraries carry it in their names.
_HTP_VERSIONS: Final = {
    "sm8350": "68", "sm8450": "69", "sm8475": "69", "sm8550": "73", "sm8650": "75", "sm8750": "79", "sm8850": "81",
}  # fmt: skip
_HEXAGON: Final = re.compile(r"libhexagon_(?:interface|nn_skel(?:_v\d+)?)\.so")
_NPU_VENDOR: Final = re.compile(r"libLiteRt(?:Dispatch|CompilerPlugin)_(\w+)\.so")
#: Runtime libraries of the vendors themselves.
_NPU_RUNTIMES: Final = (
    ("libQnn", "Qualcomm"), ("libneuron", "MediaTek"), ("libenn", "Samsung"), ("libedgetpu", "GoogleTensor"),
)  # fmt: skip
_HTP: Final = re.compile(r"libQnnHtpV(\d+)")

HEXAGON_INTERFACE: Final = "libhexagon_interface.so"


def npu_vendor(facts: DeviceFacts) -> str:
    """Return whose NPU a phone has, as the dispatch libraries spell it; empty when its chip isn't known."""
    soc = facts.properties.get("ro.soc.model", "") or facts.soc
    for name in (soc.lower(), facts.properties.get("ro.soc.manufacturer", "").lower()):
        for vendor, starts in _VENDORS.items():
            if name.startswith(starts):
                return vendor
    return ""


def dispatch_library(build: Build, facts: DeviceFacts) -> str:
    """Return the name of the build's dispatch library for a phone's NPU, empty when it has none."""
    name = f"libLiteRtDispatch_{npu_vendor(facts)}.so"
    return name if any(companion.name == name for companion in build.companions) else ""


def needed_companions(build: Build, facts: DeviceFacts, delegate: DelegateName) -> tuple[Companion, ...]:
    """Return the companions that a case needs, by name: another delegate's or another chip's aren't placed.

    A library whose use isn't known from its name is needed always.
    """
    needed = (item for item in build.companions if _is_needed(item.name, facts, delegate))
    return tuple(sorted(needed, key=lambda companion: companion.name))


def _is_needed(name: str, facts: DeviceFacts, delegate: DelegateName) -> bool:
    if _HEXAGON.fullmatch(name):
        return delegate is DelegateName.HEXAGON
    own = _NPU_VENDOR.fullmatch(name)
    vendor = own[1] if own else next((owner for start, owner in _NPU_RUNTIMES if name.startswith(start)), "")
    if not vendor:
        return True
    if delegate is not DelegateName.NPU or vendor != npu_vendor(facts):
        return False
    version = _HTP_VERSIONS.get(facts.properties.get("ro.soc.model", "").lower())
    match = _HTP.match(name)
    return match is None or version is None or match[1] == version
