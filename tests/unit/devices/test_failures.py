import pytest

from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.sockets import server_failure, sync_failure
from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    LinkLostError,
    SystemDownError,
    TransferError,
)
from orchestrator.ports import ShellResult
from orchestrator.records.failures import FailureText, Source, texts_of
from orchestrator.scripts import check_success, service_failure, without_stack, writing_failure

READERS = {
    Source.ADB: server_failure,
    Source.WRITING: writing_failure,
    Source.SERVICE: service_failure,
}


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [(source, item.code, text) for source in READERS for text, item in texts_of(source)],
)
def test_every_text_of_a_phone_is_read_as_its_code(
    source: Source, code: str, text: FailureText
) -> None:
    error = READERS[source](text.example, serial="S1", action="opening")
    assert error is not None
    assert error.code == code
    assert text.next_step in error.hint
    assert error.hint
    assert text.meaning in str(error)
    assert text.example.splitlines()[0] in str(error)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("device offline (no transport)", LinkLostError),
        ("closed", LinkLostError),
        ("device still connecting", LinkLostError),
        ("no device with transport id '7'", LinkLostError),
        ("device unresponsive", LinkLostError),
        ("unknown host service", LinkLostError),
        ("transport is closing", LinkLostError),
        ("something new", DeviceError),
    ],
)
def test_what_the_server_refuses_with_is_understood(message: str, kind: type[DeviceError]) -> None:
    error = server_failure(message, serial="S1", action="opening")
    assert type(error) is kind
    assert message in str(error)


def test_a_java_exception_is_told_by_its_message() -> None:
    said = "Exception occurred:\njava.lang.SecurityException: no\n\tat a.b.C.d(C.java:1)\n\t... 7 more\n"
    assert without_stack(said).splitlines()[-1] == "java.lang.SecurityException: no"


def test_the_cause_of_a_java_exception_is_told_last() -> None:
    said = (
        "Exception occurred while executing 'put':\njava.lang.RuntimeException: can't write\n\tat a.b.C.d(C.java:1)\n"
        "Caused by: android.os.DeadObjectException\n\tat e.F.g(F.java:2)\nCaused by: java.lang.SecurityException: no\n"
        "\tat h.I.j(I.java:3)\n\t... 7 more\nbye\n"
    )
    told = without_stack(said).splitlines()
    assert told[-1] == "Caused by: java.lang.SecurityException: no"
    assert "java.lang.RuntimeException: can't write" in told


def test_a_name_with_a_blank_is_listed_whole() -> None:
    text = "adb-R58M12-x1 (2)._adb-tls-connect._tcp device product:a transport_id:3\n????  no permissions (user)\n"
    assert [(one.address, one.state) for one in parse_devices(text)] == [
        ("adb-R58M12-x1 (2)._adb-tls-connect._tcp", "device"),
        ("????", "no permissions (user)"),
    ]


def test_a_full_phone_is_told_from_another_failed_push() -> None:
    assert (
        type(sync_failure("couldn't write: No space left on device", serial="", path="/a"))
        is DeviceStorageError
    )
    assert (
        type(sync_failure("couldn't create file: Is a directory", serial="", path="/a"))
        is TransferError
    )


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("write: Disk quota exceeded", "device-storage"),
        ("secure_mkdirs failed: Operation not permitted", "folder-refused"),
        ("mkdir: 'runs/1': File exists", None),
    ],
)
def test_other_words_of_a_cause_are_understood_and_no_others(said: str, code: str | None) -> None:
    error = writing_failure(said, serial="S1", action="starting a run")
    assert (error and error.code) == code


def test_a_command_that_had_to_succeed_tells_a_full_phone_and_one_whose_services_are_down() -> None:
    for said, kind in (
        (b"mkdir: 'caches': No space left on device", DeviceStorageError),
        (b"cmd: Can't find service: settings", SystemDownError),
        (b"perfetto: no such option", DeviceCommandError),
    ):
        result = ShellResult(exit_code=1, stdout=b"", stderr=said)
        with pytest.raises(kind, match="S1: preparing the caches"):
            check_success(result, serial="S1", action="preparing the caches")
