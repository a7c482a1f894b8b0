import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.devices.sockets import cut_packets
from orchestrator.ports import ShellResult
from orchestrator.scripts import failure_reason

PACKETS = st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=200)), max_size=20)


@given(packets=PACKETS, cuts=st.lists(st.integers(1, 50), max_size=100))
def test_packets_are_read_whole_however_the_stream_was_torn(
    packets: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(struct.pack("<BI", number, len(data)) + data for number, data in packets)
    received, seen, start = bytearray(), [], 0
    for size in [*cuts, len(stream)]:
        received += stream[start : start + size]
        seen += cut_packets(received)
        start += size
    assert seen == packets


def test_a_length_that_no_shell_sends_is_refused() -> None:
    with pytest.raises(ValueError, match="isn't from a shell"):
        list(cut_packets(bytearray(b"\x01\xff\xff\xff\xff")))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ShellResult(exit_code=1, stdout=b"", stderr=b"sh: no\n"), "sh: no"),
        (ShellResult(exit_code=1, stdout=b"Failure [NO]\n", stderr=b""), "Failure [NO]"),
        (
            ShellResult(exit_code=137, stdout=b"", stderr=b""),
            "it was killed on the phone by signal 9 (SIGKILL)",
        ),
        (
            ShellResult(exit_code=255, stdout=b"", stderr=b""),
            "exit code 255, and it printed nothing",
        ),
        (ShellResult(exit_code=3, stdout=b"", stderr=b"\n"), "exit code 3, and it printed nothing"),
    ],
)
def test_a_failure_without_a_word_tells_what_its_exit_code_does(
    result: ShellResult, reason: str
) -> None:
    assert failure_reason(result).startswith(reason)
