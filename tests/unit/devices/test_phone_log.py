"""What the end of a phone's log means."""

import socket
import struct
from pathlib import Path

import pytest

from orchestrator.clock import Deadline
from orchestrator.devices.phone import log_lines
from orchestrator.devices.sockets import EXIT, STDERR, STDOUT, Connection, ServerAddress
from orchestrator.errors import DeviceError, LogOverrunError

LINE = (STDOUT, b"11-28 10:00:00.100  77  77 I tflite: first\n")
COMPLAINT = (STDERR, b"read: unexpected EOF!\n")


def end_of(packets: list[tuple[int, bytes]], folder: Path) -> Exception:
    """Return what a log that consists of these packets ends with."""
    path = folder / "adb.socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        with Connection(ServerAddress(path=str(path)), Deadline(30), action="log") as connection:
            phone, _ = server.accept()
            with phone:
                phone.sendall(
                    b"".join(
                        struct.pack("<BI", number, len(data)) + data for number, data in packets
                    )
                )
                with pytest.raises(DeviceError) as raised:
                    list(log_lines(connection))
    return raised.value


@pytest.mark.parametrize("packets", [[LINE, COMPLAINT], [COMPLAINT, LINE]])
def test_what_logcat_complained_of_is_the_reason_whatever_it_prints_beside(
    packets: list[tuple[int, bytes]], tmp_path: Path
) -> None:
    assert isinstance(end_of([*packets, (EXIT, b"\1")], tmp_path), LogOverrunError)


def test_a_log_that_ends_without_a_complaint_is_told_by_its_last_line(tmp_path: Path) -> None:
    error = end_of([LINE, (EXIT, b"\1")], tmp_path)
    assert not isinstance(error, LogOverrunError)
    assert "tflite: first" in str(error)
