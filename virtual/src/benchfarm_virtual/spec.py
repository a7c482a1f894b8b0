"""Which virtual phone is wanted: a profile, a serial number, and where it differs from the profile."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.profiles import VirtualProfile, load_profile

#: Android release -> API level.
_SDK: Final[Mapping[str, int]] = {
    "5": 21,
    "5.1": 22,
    "6": 23,
    "7": 24,
    "7.1": 25,
    "8": 26,
    "8.1": 27,
    "9": 28,
    "10": 29,
    "11": 30,
    "12": 31,
    "12L": 32,
    "13": 33,
    "14": 34,
    "15": 35,
    "16": 36,
}
_USB: Final = re.compile(r"\d{1,3}-\d{1,3}(\.\d{1,3}){0,6}")
#: Also a folder's name on the host, so nothing that could lead out of it.
_SERIAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSpec:
    """One virtual phone as it is asked for.

    Raises UsageError for a serial number that can't be one.
    """

    profile: str
    serial: str
    #: ABIs, best first; empty: the profile's.
    abis: tuple[str, ...] = ()
    #: Android release, for example ``"15"``; "": the profile's.
    android: str = ""
    #: Has ``su``.
    rooted: bool = False
    #: Speaks adb as before Android 7: no shell_v2, exit codes are lost.
    legacy: bool = False
    #: The USB path that it says it is plugged in at, such as ``1-2.3``; empty: none.
    usb: str = ""
    #: TCP port on 127.0.0.1; 0: a free one.
    port: int = 0

    def __post_init__(self) -> None:
        if not _SERIAL.fullmatch(self.serial):
            raise UsageError(
                f"{self.serial!r} can't be a serial number: 1 to 64 letters, digits, '-' and '_'"
            )
        if self.usb and not _USB.fullmatch(self.usb):
            raise UsageError(f"{self.serial}: {self.usb!r} is no USB path such as 1-2.3")
        if self.android and self.android not in _SDK:
            raise UsageError(f"Android {self.android!r} isn't known; known are {', '.join(_SDK)}")
        if not 0 <= self.port < 65536:
            raise UsageError(
                f"{self.serial}: port must be 0 (a free one) to 65535, not {self.port}"
            )

    def resolve_profile(self) -> VirtualProfile:
        """Return the profile with this phone's differences in its properties; raise UsageError for
        an unknown one.
        """
        profile = load_profile(self.profile)
        changes: dict[str, str] = {}
        if self.abis:
            wide = [abi for abi in self.abis if "64" in abi]
            narrow = [abi for abi in self.abis if "64" not in abi]
            changes |= {
                "ro.product.cpu.abi": self.abis[0],
                "ro.product.cpu.abilist": ",".join(self.abis),
                "ro.product.cpu.abilist64": ",".join(wide),
                "ro.product.cpu.abilist32": ",".join(narrow),
            }
        if self.android:
            changes |= {
                "ro.build.version.release": self.android,
                "ro.build.version.sdk": str(_SDK[self.android]),
                "ro.build.version.release_or_codename": self.android,
            }
        if self.usb:
            changes["ro.benchfarm.usb"] = self.usb
        return (
            dataclasses.replace(profile, props={**profile.props, **changes}) if changes else profile
        )

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return dataclasses.asdict(self) | {"abis": list(self.abis)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PhoneSpec:
        """Read what to_json wrote.

        Raise UsageError for what isn't a phone.
        """
        try:
            return cls(**{**value, "abis": tuple(value.get("abis", ()))})
        except TypeError as error:
            raise UsageError(f"the request describes no virtual phone: {error}") from None
