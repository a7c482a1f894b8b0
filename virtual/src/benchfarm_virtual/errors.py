"""The errors that virtual phones raise on purpose, with the exit code of their process."""

from __future__ import annotations

from typing import ClassVar


class VirtualError(Exception):
    """Something went wrong that has a name; the message says what, where, and what to do next."""

    exit_code: ClassVar[int] = 70
    #: The error's name in an answer of the control channel.
    code: ClassVar[str] = "fault"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(VirtualError):
    """What was asked for can't be done as written."""

    exit_code = 2
    code = "usage"


class DeviceError(VirtualError):
    """Something went wrong in the process or with a phone."""

    exit_code = 3
    code = "device"


class DeviceTimeoutError(DeviceError):
    """The process didn't answer in time."""


class LinkLostError(DeviceError):
    """The connection to the process ended before the answer was whole."""
