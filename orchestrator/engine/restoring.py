"""Restoring a device, whoever asks for it: its campaign, a resume, a farm's job, a trace, `device
restore`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.errors import (
    AdbUnavailableError,
    DeviceBusyError,
    DeviceChangedError,
    DeviceError,
    DeviceUnauthorizedError,
    NoDeviceError,
)
from orchestrator.ports import Device

if TYPE_CHECKING:
    from orchestrator.devices.conditioning import LadderConditioner

#: How often restoring a device is tried when its connection fails, each time after this long to
#: answer again: a phone that is gone must not hold the others' end.
_RESTORES_MAX: Final = 3
_RESTORE_READY_S: Final = 20.0


def restore(
    device: Device,
    conditioner: LadderConditioner,
    *,
    on_note: Callable[[str], None],
    take: bool = False,
) -> Sequence[str]:
    """Undo what was changed on a device, under its lease, and return what was undone.

    Tried again where the connection fails. What can't be undone now stays in the journal. Raises
    what LadderConditioner.restore raises.
    """
    tries = 1
    while True:
        try:
            if tries > 1:
                device.wait_until_ready(timeout_s=_RESTORE_READY_S)
            return conditioner.restore(device, on_note=on_note, take=take)
        except DeviceError as error:
            if tries == _RESTORES_MAX or not may_return(error):
                raise
            tries += 1


def why_not_restored(serial: str, error: Exception) -> str:
    """Return that a device couldn't be restored, and what does it later."""
    again = f"'benchfarm device restore {shlex.quote(serial)}' tries again"
    return f"could not be restored ({error}); {again}"


def may_return(error: DeviceError) -> bool:
    """Whether waiting may help: the connection to the device is lost, or another one is in its
    place.
    """
    if isinstance(error, DeviceBusyError):
        return False
    return error.transient or isinstance(
        error, DeviceChangedError | DeviceUnauthorizedError | AdbUnavailableError | NoDeviceError
    )
