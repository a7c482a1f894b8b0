import pytest

from orchestrator.devices.connection import (
    server_failure,
    sync_failure,
    writing_failure,
)
from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    LinkLostError,
    TransferError,
)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("device 'X' not found", LinkLostError),
        ("device offline", LinkLostError),
        ("device offline (no transport)", LinkLostError),
        ("closed", LinkLostError),
        ("device still connecting", LinkLostError),
        ("no device with transport id '7'", LinkLostError),
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set", DeviceUnauthorizedError),
        ("device still authorizing", DeviceUnauthorizedError),
        ("insufficient permissions for device: user in plugdev group; are your udev rules wrong?", DeviceUnusableError),
        ("more than one device with serial X", DeviceUnusableError),
        ("something new", DeviceError),
    ],
)
def test_what_the_server_refuses_with_is_understood(message: str, kind: type[DeviceError]) -> None:
    error = server_failure(message, serial="S1")
    assert type(error) is kind
    assert message.splitlines()[0] in str(error)


def test_a_full_phone_is_told_from_another_failed_push() -> None:
    assert type(sync_failure("couldn't write: No space left on device", serial="", path="/a")) is DeviceStorageError
    assert type(sync_failure("couldn't create file: Is a directory", serial="", path="/a")) is TransferError


@pytest.mark.parametrize(
    ("said", "kind", "cause", "hint"),
    [
        ("mkdir: 'runs/1': No space left on device", DeviceStorageError, "no space left on the phone", "free some"),
        ("write: Disk quota exceeded", DeviceStorageError, "no space left on the phone", "free some"),
        ("sh: can't create boot: Read-only file system", DeviceUnusableError, "storage is read-only", "boot the phone"),
        ("mkdir: 'runs/1': Permission denied", DeviceCommandError, "may not write there", "remove /data/local/tmp"),
        ("chmod: Operation not permitted", DeviceCommandError, "may not write there", "remove /data/local/tmp"),
    ],
)
def test_what_keeps_our_folder_from_being_written_is_told_by_its_cause(
    said: str, kind: type[DeviceError], cause: str, hint: str
) -> None:
    error = writing_failure(said, serial="S1", what="starting a run")
    assert type(error) is kind
    assert cause in str(error)
    assert said in str(error)
    assert hint in error.hint
    assert writing_failure("mkdir: 'runs/1': File exists", serial="S1", what="starting a run") is None
