"""Which failures keep a device out of later campaigns until somebody has looked at it."""

from __future__ import annotations

from orchestrator.errors import DeviceError, DeviceSetAsideError


def quarantine_reason(error: DeviceError) -> str:
    """Return why a device that ended so is kept out; empty when it may simply be tried again.

    A device that is busy, unfit or away says nothing about its next night. One whose reference workload moved and
    didn't come back measures something else than before.
    """
    return str(error).removeprefix(f"{error.serial}: ") if isinstance(error, DeviceSetAsideError) else ""
