"""The specification of a virtual phone: profile, serial number, and differences from the profile."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.profiles import VirtualProfile, load_profile

_USB: Final = re.compile(r"\d{1,3}-\d{1,3}(\.\d{1,3}){0,6}")
#: Also a folder's name on the host, so nothing that could lead out of it.
_SERIAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSpec:
    """One requested virtual phone.

    Raises UsageError for a serial number that can't be one.
    """

    profile: str
    serial: str
    #: Has ``su``.
    rooted: bool = False
    #: Speaks adb as before Android 7: it has no shell_v2.
    legacy: bool = False
    #: The USB path that it reports, such as ``1-2.3``; empty: none.
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

    def resolve_profile(self) -> VirtualProfile:
        """Return the profile with this phone's differences in its properties; raise UsageError for
        an unknown one.
        """
        profile = load_profile(self.profile)
        if not self.usb:
            return profile
        return dataclasses.replace(profile, props={**profile.props, "ro.benchfarm.usb": self.usb})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PhoneSpec:
        """Read it from its fields; raise UsageError for what isn't a phone."""
        try:
            return cls(**value)
        except TypeError as error:
            raise UsageError(f"the request describes no virtual phone: {error}") from None
