"""One line of output, taken apart: what the program said, and what the way it took put in front.

The same message reaches us as ``INFO: msg`` (console, since about 2023), ``msg`` (console, older),
``06-18 10:20:41.572 4669 4669 I tflite  : msg`` (logcat threadtime), ``06-18 10:20:41.572 I/tflite  ( 4669): msg``
(time), ``I/tflite  ( 4669): msg`` (brief), ``I( 4669) msg  (tflite)`` (process), ``I( 4669: 4669) msg`` (thread), with
seconds in the place of the date (epoch, monotonic), below a line ``[ 06-18 10:20:41.572  4669: 4669 I/tflite   ]``
(long), as Android Studio shows it, with an NSLog header (iOS), or indented; and any of these in colours, or in UTF-16,
which a Windows shell writes. What people put around lines is in ``pasted``.
"""

from __future__ import annotations

import codecs
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Logcat tags of the benchmark programs and of the runtime below them.
OUR_TAGS: Final = frozenset({"tflite", "litert", "tflite_BenchmarkModelActivity", "TfLiteBenchmarkLatency"})
#: A line longer than this is no line of a benchmark program; its rest is dropped.
LONGEST_LINE_BYTES: Final = 65_536

_BLOCK_BYTES: Final = 1 << 15

_DATE: Final = r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d"
_SECONDS: Final = r"\d{1,12}\.\d{3,9}"
_THREADTIME: Final = re.compile(
    rf"\s*(?:{_DATE}\.\d{{3,9}}(?: [+-]\d{{4}})?|{_SECONDS})\s+(?:[a-z_]\w*\s+|\d+\s+(?=\d+\s+\d+ ))?"
    r"(?P<pid>\d{1,9})\s+\d{1,9} (?P<severity>[VDIWEFAS]) (?P<tag>[^\s:][^:]*?)\s*:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
_BRIEF: Final = re.compile(
    rf"\s*(?:(?:(?:(?:\d{{4}}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{{3,9}})?|{_SECONDS}) )?"
    r"(?:(?P<studio_pid>\d{1,9})-\d{1,9}/\S{1,200} )?"
    r"(?P<severity>[VDIWEFAS])/(?P<tag>[^(]*?)\s*(?:\(\s*(?P<pid>\d{1,9})\))?:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
#: Android Studio since 2022: tag and process's name in columns, the message two spaces after the severity. The date
#: and the process's name can be switched off.
_STUDIO: Final = re.compile(
    rf"\s*(?:{_DATE}|\d\d:\d\d:\d\d)\.\d{{3}}\s+(?P<pid>\d{{1,9}})-\d{{1,9}}\s+(?P<tag>\S.{{0,80}}?)\s+"
    r"(?:\S{1,200}\s+)?(?P<severity>[VDIWEFA])(?: {1,2}(?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
#: A line whose process number, and maybe time, somebody took out; of our tags only, since less shows what it is.
_SHORTENED: Final = re.compile(
    rf"\s*(?:(?:{_DATE}|\d\d:\d\d:\d\d)(?:\.\d{{3,9}})?\s+)?(?P<severity>[VDIWEF])\s+"
    rf"(?P<tag>{'|'.join(sorted(OUR_TAGS, key=len, reverse=True))})\s*:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
#: Logcat's letters; only a line that begins with a digit or one of these and a mark can have a header.
_LETTERS: Final = frozenset("VDIWEFAS")
_DIGITS: Final = frozenset("0123456789")
_PROCESS: Final = re.compile(
    r"(?P<severity>[VDIWEFAS])\(\s*(?P<pid>\d{1,9})\) (?P<text>.*?)  \((?P<tag>[^()]{1,80})\)\s*$",
    re.ASCII | re.DOTALL,
)
#: It names no tag, so that a line may be anybody's: it is read as one of ours.
_THREAD: Final = re.compile(
    r"(?P<severity>[VDIWEFAS])\(\s*(?P<pid>\d{1,9}):\s*(?:0x)?[0-9a-f]{1,9}\) (?P<text>.*)$", re.ASCII | re.DOTALL
)
_COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]", re.ASCII)
_NSLOG: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+(?:[+-]\d{4})? [^\[\]]{1,100}\[(?P<pid>\d{1,9})(?::\d+)?\] (?P<text>.*)$",
    re.ASCII | re.DOTALL,
)
_SEVERITY: Final = re.compile(r"(?P<severity>INFO|WARN|WARNING|ERROR|FATAL|VERBOSE|DEBUG): ?(?P<text>.*)$", re.DOTALL)
_SOURCE_FILE: Final = re.compile(
    r"\[(?:[A-Za-z]:)?(?P<file>[\w./\\ +-]+\.(?:cc|h|cpp|mm)):\d+\] ?(?P<text>.*)$", re.DOTALL
)
_LONG_HEADER: Final = re.compile(
    rf"\[ +(?:{_DATE}\.\d{{3,9}}(?: [+-]\d{{4}})?|{_SECONDS})\s+(?:[a-z_]\w*:\s*)?"
    r"(?P<pid>\d{1,9}):\s*(?:0x)?[0-9a-f]{1,9} (?P<severity>[VDIWEFAS])/(?P<tag>.*?)\s*\]$",
    re.ASCII,
)
_LONG_START: Final = re.compile(
    rb"^(?:\x1b\[[\d;]*m)?\[ +(?:(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d|\d{1,12})\.\d{3}.{3,60} [VDIWEFAS]/.{0,80}\]\r?$",
    re.MULTILINE,
)
LAST_WORD: Final = re.compile(r"[^\s,]*$")
#: Ends of a line after which nothing of its last word can be missing.
_WHOLE_END: Final = re.compile(r"(?:[)\]|=!*]|[A-Za-z]\.|\d ?(?:[mu]s|MB(?:/s)?))$", re.ASCII)
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


#: A line that another part of the phone logged, in the formats of long logs, under a tag that isn't ours and by which
#: nothing is said of how a process ended.
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
    #: The last word of a line that was cut off; it isn't part of ``text``: a figure in it may lack digits.
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


def parse_line(data: bytes, *, cut: bool = False) -> Line:
    """Take one line apart; ``cut`` says that it has no line end, so its last word may not be whole."""
    return parse_decoded(data[:LONGEST_LINE_BYTES].decode("utf-8", "replace"), cut=cut)


def parse_decoded(whole: str, *, cut: bool = False) -> Line:
    """Take one line apart like :func:`parse_line`, of which the bytes are decoded."""
    whole = whole.rstrip("\r\n\0")
    if "\x1b" in whole:
        whole = _COLOUR.sub("", whole)
    line = _without_header(whole) if _may_have_header(whole) else Line(whole, whole)
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
    elif text[:1] in _LETTERS and (header := _SHORTENED.match(text)) is not None:
        line.severity, line.tag, line.style = header["severity"], header["tag"], "logcat"
        text = header["text"] or ""
        line.raw = text
    return text


def _may_have_header(whole: str) -> bool:
    start = whole.lstrip()[:2]
    return start[:1] in _DIGITS or (start[:1] in _LETTERS and start[1:] in {"/", "("})


def _without_header(whole: str) -> Line:
    for pattern in (_THREADTIME, _BRIEF, _STUDIO, _SHORTENED, _PROCESS, _THREAD):
        if match := pattern.match(whole):
            groups = match.groupdict()
            text, pid = groups["text"] or "", groups.get("pid") or groups.get("studio_pid")
            return Line(
                raw=text,
                text=text,
                severity=match["severity"],
                style="logcat",
                tag=_whole_tag(groups.get("tag", "tflite").strip()),
                pid=int(pid) if pid else None,
            )
    if match := _NSLOG.match(whole):
        return Line(raw=match["text"], text=match["text"], style="nslog", pid=int(match["pid"]))
    return Line(raw=whole, text=whole)


def _whole_tag(tag: str) -> str:
    """Return the tag of ours that Android Studio shortened in its middle; any other as it is."""
    start, dots, end = tag.partition("...")
    if not dots:
        return tag
    return next((ours for ours in OUR_TAGS if ours.startswith(start) and ours.endswith(end)), tag)


def to_utf8(buffer: Buffer) -> Buffer:
    """Return a text that begins with a byte order mark as UTF-8 without it; any other as it is."""
    for mark, encoding in _MARKS:
        if buffer[: len(mark)] == mark:
            return buffer[len(mark) :].decode(encoding, "replace").encode()
    return buffer


def iterate_lines(buffer: Buffer) -> Iterator[tuple[bytes, bool]]:
    """Yield every line with its end removed, and whether it was cut off (the buffer ends without a line end)."""
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
            yield buffer[start : start + LONGEST_LINE_BYTES] + (b"\n" if buffer[end - 1 : end] == b"\n" else b"")
        start = end


def without_foreign(block: bytes) -> bytes:
    """Return whole lines without those of a log that tell nothing of a benchmark or of how it ended."""
    # What SELinux denies is logged under the tag of whom it denied it to.
    return block if b"denied" in block else _FOREIGN_LINES.sub(b"", b"\n" + block)[1:]


def is_long_logcat(buffer: Buffer) -> bool:
    """Whether the text has the headers of ``logcat -v long``, each on a line of its own above its message."""
    return _LONG_START.search(buffer[0:65_536]) is not None


def iterate_long_logcat(buffer: Buffer) -> Iterator[Line]:
    """Yield the lines of every message of a ``logcat -v long`` text, each as if its header stood before it."""
    header: re.Match[str] | None = None
    for data, cut in iterate_lines(buffer):
        line = parse_line(data, cut=cut)
        found = _LONG_HEADER.match(line.raw.rstrip()) if line.style == "console" else None
        if found is not None:
            header = found
        elif header is None or line.style != "console":
            yield line
        else:
            line.style, line.tag = "logcat", header["tag"]
            line.severity, line.pid = header["severity"], int(header["pid"])
            yield line
