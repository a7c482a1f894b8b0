"""A phone's NPU, which LiteRT drives through the dispatch library of the chip's vendor."""

import re

from orchestrator.delegates import ON_PHONES, Delegate, FlagFamily
from orchestrator.records.case import Build, DelegateName, Skip
from orchestrator.records.device import DeviceFacts, DeviceKind

#: Vendor as LiteRT's libraries spell it -> beginnings of ``ro.soc.model`` and
#: ``ro.soc.manufacturer``, lower case.
_VENDORS = {
    "Qualcomm": ("sm", "qcs", "qcm", "sa8", "sxr", "qti", "qualcomm"),
    "MediaTek": ("mt", "mediatek"),
    "GoogleTensor": ("tensor", "gs1", "gs2", "zuma", "google"),
    "Samsung": ("s5e", "exynos", "samsung"),
}
#: Runtime libraries of the vendors themselves.
_RUNTIMES = {
    "libQnn": "Qualcomm",
    "libneuron": "MediaTek",
    "libenn": "Samsung",
    "libedgetpu": "GoogleTensor",
}
#: LiteRT's libraries for the vendors' drivers, and the vendors' own runtimes.
LIBRARY = re.compile(
    rf"libLiteRt(?:Dispatch|CompilerPlugin)_(?P<vendor>\w+)\.so$|(?P<runtime>{'|'.join(_RUNTIMES)})(?:HtpV(?P<htp>\d+))?"
)
#: ``ro.soc.model`` -> version of its Hexagon tensor processor, as Qualcomm's libraries carry it in
#: their names.
_HTP_VERSIONS = {
    "sm8350": "68",
    "sm8450": "69",
    "sm8475": "69",
    "sm8550": "73",
    "sm8650": "75",
    "sm8750": "79",
    "sm8850": "81",
}


def _vendor(facts: DeviceFacts) -> str:
    """Return the vendor of a phone's NPU, as the dispatch libraries spell it; empty when its chip isn't
    known.
    """
    soc = facts.properties.get("ro.soc.model", "") or facts.soc
    for name in (soc.lower(), facts.properties.get("ro.soc.manufacturer", "").lower()):
        for vendor, starts in _VENDORS.items():
            if name.startswith(starts):
                return vendor
    return ""


def needs_library(name: str, facts: DeviceFacts) -> bool:
    """Whether a phone's chip needs one of the vendors' libraries, or may need it.

    A phone that doesn't name its chip (no ``ro.soc.model`` before Android 12) gets those of all.
    """
    match = LIBRARY.match(name)
    if match is None:
        return False
    names_chip = facts.kind is not DeviceKind.ANDROID or facts.properties.get("ro.soc.model")
    if not _vendor(facts) and not names_chip:
        return True
    # Google's compiler plugin is spelled google_tensor, its dispatch library GoogleTensor.
    vendor = match["vendor"] or _RUNTIMES[match["runtime"]]
    if vendor.replace("_", "").lower() != _vendor(facts).lower():
        return False
    version = _HTP_VERSIONS.get(facts.properties.get("ro.soc.model", "").lower())
    return match["htp"] is None or version is None or match["htp"] == version


def _library_skip(build: Build, facts: DeviceFacts) -> Skip | None:
    vendor = _vendor(facts)
    if any(companion.name == f"libLiteRtDispatch_{vendor}.so" for companion in build.companions):
        return None
    chip = vendor or f"the unknown chip {facts.soc or facts.platform}"
    return Skip(
        reason_code="npu-libraries-missing",
        reason=f"{build.name} has no dispatch library for {chip} beside it",
    )


DELEGATE = Delegate(
    name=DelegateName.NPU,
    label="NPU",
    is_in_profiles=True,
    flags={
        FlagFamily.LITERT: {"use_cpu": "false", "use_gpu": "false", "use_npu": "true"},
        FlagFamily.LITERT_BENCHMARK: {"use_npu": "true", "no_cpu": "true"},
        FlagFamily.LITERT_LM: {"backend": "npu"},
    },
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    tried_on=ON_PHONES,
    is_on_dsp=True,
    is_half=lambda flags: True,
    library=LIBRARY,
    needs_library=needs_library,
    library_skip=_library_skip,
    called={"dispatchdelegate": "npu"},
    echoes={"Use NPU": "use_npu"},
    unavailable=(
        "NPU accelerator could not be loaded and registered",
        "Failed to apply compiler plugins",
    ),
)
