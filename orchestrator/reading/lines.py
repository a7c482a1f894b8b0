"""One line of output, taken apart: what the program said, and what the way it took put in front.

A program's own line is ``INFO: msg`` (since about 2023) or ``msg``; the phone's log, as benchfarm
has it written, puts ``06-18 10:20:41.572 4669 4669 I tflite  : `` before it. Other formats are in
``extensions/interop/texts/headers.py``.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

#: Logcat tags of the benchmark programs and of the runtime below them.
OUR_TAGS: Final = frozenset(
    {"tflite", "litert", "tflite_BenchmarkModelActivity", "TfLiteBenchmarkLatency"}
)
#: A line longer than this is no line of a benchmark program; its rest is dropped.
LONGEST_LINE_BYTES: Final = 65_536

_BLOCK_BYTES: Final = 1 << 15

DATE: Final = r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d"
SECONDS: Final = r"\d{1,12}\.\d{3,9}"
_THREADTIME: Final = re.compile(
    rf"\s*(?:{DATE}\.\d{{3,9}}(?: [+-]\d{{4}})?|{SECONDS})\s+(?:[a-z_]\w*\s+|\d+\s+(?=\d+\s+\d+ ))?"
    r"(?P<pid>\d{1,9})\s+\d{1,9} (?P<severity>[VDIWEFAS]) (?P<tag>[^\s:][^:]*?)\s*:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
_DIGITS: Final = frozenset("0123456789")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]", re.ASCII)
_SEVERITY: Final = re.compile(
    r"(?P<severity>INFO|WARN|WARNING|ERROR|FATAL|VERBOSE|DEBUG): ?(?P<text>.*)$", re.DOTALL
)
_SOURCE_FILE: Final = re.compile(
    r"\[(?:[A-Za-z]:)?(?P<file>[\w./\\ +-]+\.(?:cc|h|cpp|mm)):\d+\] ?(?P<text>.*)$", re.DOTALL
)
LAST_WORD: Final = re.compile(r"[^\s,]*$")
#: Ends of a line after which nothing of its last word can be missing.
_WHOLE_END: Final = re.compile(r"(?:[)\]|=!*]|[A-Za-z]\.|\d ?(?:[mu]s|MB(?:/s)?))$", re.ASCII)

#: A line that another part of the phone logged, in the formats of long logs, under a tag that isn't
#: ours and by which nothing is said of how a process ended.
_NOT_OURS: Final = r"(?!tf|TfLite|lit|libc|DEBUG|Android|low|lmkd|Activity|ExecutionPlan)"
_FOREIGN_LINE: Final = (
    rf"(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} (?: *\d+ +\d+ [VDIWEFAS] {_NOT_OURS}\w|[VDIWEFAS]/{_NOT_OURS}\w)"
    rf"|[VDIWEFAS]/{_NOT_OURS}[^\n(]{{1,80}}\()[^\n]*"
)
_FOREIGN_LINES: Final = re.compile(rf"\n{_FOREIGN_LINE}(?:\n{_FOREIGN_LINE})*(?=\n)".encode())

#: Bytes that can be searched without being copied.
Buffer = bytes | mmap.mmap


@dataclass(slots=True)
class Line:
    """One line without the header that its way put in front."""

    #: As it stood there, without the line end and without a logcat or NSLog header.
    raw: str
    #: What the program said: ``raw`` without indentation, comment mark, severity and source file.
    text: str
    #: First letter of the severity ("I", "W", "E", "F", "V", "D"), empty when none is named.
    severity: str = ""
    #: "console", "logcat" or "nslog".
    style: str = "console"
    tag: str = ""
    pid: int | None = None
    #: Source file that a LiteRT line names, for example ``dispatch_delegate.cc``.
    source_file: str = ""
    #: The last word of a line that was cut off; it isn't part of ``text``: a figure in it may lack
    #: digits.
    cut_word: str = ""
    #: Whether the text ended here without a line end.
    is_cut: bool = False

    @property
    def whole(self) -> str:
        """The text with its last word, also where that was cut off."""
        return f"{self.text} {self.cut_word}" if self.cut_word else self.text

    @property
    def is_foreign(self) -> bool:
        """Whether the line was logged by another part of the system."""
        return self.style == "logcat" and self.tag not in OUR_TAGS


def threadtime_header(whole: str) -> Line | None:
    """Return a line without the header of ``logcat -v threadtime``; None where it has none."""
    if whole.lstrip()[:1] not in _DIGITS or (match := _THREADTIME.match(whole)) is None:
        return None
    text = match["text"] or ""
    return Line(
        raw=text,
        text=text,
        severity=match["severity"],
        style="logcat",
        tag=match["tag"].strip(),
        pid=int(match["pid"]),
    )


def parse_line(data: bytes, *, cut: bool = False) -> Line:
    """Take one line apart; ``cut`` says that it has no line end, so its last word may not be whole."""
    return parse_decoded(data[:LONGEST_LINE_BYTES].decode("utf-8", "replace"), cut=cut)


def parse_decoded(
    whole: str, *, cut: bool = False, header: Callable[[str], Line | None] = threadtime_header
) -> Line:
    """Take one line apart like :func:`parse_line`, of which the bytes are decoded; ``header`` takes
    a log's off.
    """
    whole = whole.rstrip("\r\n\0")
    if "\x1b" in whole:
        whole = _COLOUR.sub("", whole)
    line = header(whole) or Line(whole, whole)
    stripped = _plain(line) if line.style == "console" else line.text.lstrip()
    if stripped.startswith("[") and (match := _SOURCE_FILE.match(stripped)):
        line.source_file = match["file"].replace("\\", "/").rpartition("/")[2]
        stripped = match["text"].lstrip()
    if cut:
        line.is_cut = True
        word = LAST_WORD.search(stripped)
        if word and word[0] and not _WHOLE_END.search(stripped):
            line.cut_word = word[0]
            stripped = stripped[: word.start()]
    line.text = stripped.rstrip()
    return line


def _plain(line: Line) -> str:
    """Return a console's line without indentation and its severity, which is kept."""
    text = line.text.lstrip()
    if (match := _SEVERITY.match(text)) is not None:
        line.severity = match["severity"][0]
        text = match["text"]
    return text


def iterate_lines(buffer: Buffer) -> Iterator[tuple[bytes, bool]]:
    """Yield every line with its end removed, and whether it was cut off (the buffer ends without a
    line end).
    """
    start, size = 0, len(buffer)
    while start < size:
        end = buffer.find(b"\n", start)
        if end < 0:
            yield buffer[start : min(size, start + LONGEST_LINE_BYTES)], True
            return
        yield buffer[start : min(end, start + LONGEST_LINE_BYTES)], False
        start = end + 1


def own_lines(buffer: Buffer) -> Iterator[Line]:
    """Yield the lines of a program's own output."""
    for data, cut in iterate_lines(buffer):
        yield parse_line(data, cut=cut)


def iterate_blocks(buffer: Buffer) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines, about ``_BLOCK_BYTES`` each.

    A longer line is a block of its own, and what is beyond ``LONGEST_LINE_BYTES`` of it is dropped.
    """
    start, size = 0, len(buffer)
    while start < size:
        end = buffer.rfind(b"\n", start, min(size, start + _BLOCK_BYTES)) + 1
        if end <= start or start + _BLOCK_BYTES >= size:
            end = size if start + _BLOCK_BYTES >= size else buffer.find(b"\n", start) + 1 or size
        if end - start <= LONGEST_LINE_BYTES:
            yield buffer[start:end]
        else:
            yield buffer[start : start + LONGEST_LINE_BYTES] + (
                b"\n" if buffer[end - 1 : end] == b"\n" else b""
            )
        start = end


def without_foreign(block: bytes) -> bytes:
    """Return whole lines without those of a log that tell nothing of a benchmark or of how it
    ended.
    """
    # What SELinux denies is logged under the tag of whom it denied it to.
    return block if b"denied" in block else _FOREIGN_LINES.sub(b"", b"\n" + block)[1:]
