"""Keys typed at a phone's terminal."""

import pytest

from benchfarm_lab.shell_stream import TerminalInput


class Keys:
    def __init__(self, *typed):
        self.typed = list(typed)

    def read(self, limit=-1):
        return self.typed.pop(0) if self.typed else b""


class Screen:
    def __init__(self):
        self.shown = b""

    def write(self, data):
        self.shown += data


@pytest.mark.parametrize(
    ("typed", "line", "shown"),
    [
        ([b"ls\r"], b"ls\n", b"ls\r\n"),
        ([b"l", b"s", b"\r"], b"ls\n", b"ls\r\n"),
        ([b"lx\x7fs\n"], b"ls\n", b"lx\b \bs\r\n"),
        ([b"\x7f\x7fls\r"], b"ls\n", b"ls\r\n"),
        ([b"never\x03"], b"\n", b"never^C\r\n"),
        ([b"half a line\x04"], b"half a line", b"half a line"),
        ([b"no newline"], b"no newline", b"no newline"),
        ([b"\x04"], b"", b""),
    ],
)
def test_line_is_echoed_edited_and_handed_on(typed, line, shown):
    screen = Screen()
    assert TerminalInput(Keys(*typed), screen).read(4096) == line
    assert screen.shown == shown


def test_lines_typed_at_once_come_in_the_pieces_that_are_asked_for():
    terminal = TerminalInput(Keys(b"one\rtwo\r"), Screen())
    assert [terminal.read(3) for _ in range(4)] == [b"one", b"\ntw", b"o\n", b""]


def test_terminal_shell_answers_what_is_typed(link):
    result = link.adb("shell", "-tt", stdin=b"echo $((6 * 7))\nexit\n")
    assert b"42\r\n" in result.stdout
