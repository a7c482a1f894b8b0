import inspect

import adbutils.errors
import pytest

from orchestrator.devices.failures import (
    ADBUTILS_ERRORS,
    as_errors_of_ours,
    error_of_ours,
    server_failure,
    sync_failure,
    writing_failure,
)
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceTimeoutError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    InstallError,
    LinkLostError,
    TransferError,
)


def adbutils_errors() -> list[type[Exception]]:
    modules = [adbutils, adbutils.errors]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("adbutils")
    }
    return sorted(found, key=lambda kind: kind.__name__)


def test_every_error_of_adbutils_is_mapped_by_its_own_name() -> None:
    assert {kind.__name__ for kind in adbutils_errors()} == set(ADBUTILS_ERRORS)


@pytest.mark.parametrize("kind", adbutils_errors(), ids=lambda kind: kind.__name__)
def test_an_error_of_adbutils_becomes_its_own_kind_and_keeps_its_words(kind: type[Exception]) -> None:
    with (
        pytest.raises(ADBUTILS_ERRORS[kind.__name__], match=r"S1: listing: .*something odd") as caught,
        as_errors_of_ours(serial="S1", what="listing"),
    ):
        raise kind("closed: something odd")
    assert caught.value.serial == "S1"
    assert isinstance(caught.value.__cause__, kind)


def test_an_install_error_of_adbutils_keeps_its_code() -> None:
    error = error_of_ours(adbutils.errors.AdbInstallError("Failure [INSTALL_FAILED_OLDER_SDK: minSdk 30]"))
    assert isinstance(error, InstallError)
    assert error.install_code == "INSTALL_FAILED_OLDER_SDK"


def test_an_error_of_adbutils_without_a_word_gets_one() -> None:
    assert "no reason" in str(error_of_ours(adbutils.errors.AdbError("")))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("timed out"), DeviceTimeoutError),
        (ConnectionResetError("reset"), LinkLostError),
        (BrokenPipeError("pipe"), LinkLostError),
        (EOFError("Expected 4 bytes, got 0"), LinkLostError),
        (ValueError("invalid literal for int() with base 16"), LinkLostError),
    ],
)
def test_what_sockets_and_torn_answers_raise_is_mapped(error: Exception, kind: type[DeviceError]) -> None:
    with pytest.raises(kind), as_errors_of_ours():
        raise error


def test_an_error_of_ours_and_a_fault_in_our_code_stay_what_they_are() -> None:
    with pytest.raises(AdbUnavailableError, match=r"^gone$"), as_errors_of_ours(what="x"):
        raise AdbUnavailableError("gone")
    with pytest.raises(KeyError), as_errors_of_ours():
        raise KeyError("a bug")


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
