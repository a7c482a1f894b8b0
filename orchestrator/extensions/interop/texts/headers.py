"""What logs put before a line, in every format in which people keep them.

The same message reaches us as ``INFO: msg`` (console, since about 2023), ``msg`` (console, older),
``06-18 10:20:41.572 4669 4669 I tflite  : msg`` (logcat threadtime), ``06-18 10:20:41.572 I/tflite
( 4669): msg`` (time), ``I/tflite  ( 4669): msg`` (brief), ``I( 4669) msg  (tflite)`` (process),
``I( 4669: 4669) msg`` (thread), with seconds in the place of the date (epoch, monotonic), below a
line ``[ 06-18 10:20:41.572  4669: 4669 I/tflite   ]`` (long), as Android Studio shows it, with an
NSLog header (iOS), or indented; and any of these in UTF-16, which a Windows shell writes. benchfarm
itself logs in the first of logcat's formats, which ``reading.lines`` reads.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from orchestrator.reading.lines import (
    DATE,
    OUR_TAGS,
    SECONDS,
    Buffer,
    Line,
    iterate_lines,
    parse_decoded,
    threadtime_header,
)

_BRIEF: Final = re.compile(
    rf"\s*(?:(?:(?:(?:\d{{4}}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{{3,9}})?|{SECONDS}) )?"
    r"(?:(?P<studio_pid>\d{1,9})-\d{1,9}/\S{1,200} )?"
    r"(?P<severity>[VDIWEFAS])/(?P<tag>[^(]*?)\s*(?:\(\s*(?P<pid>\d{1,9})\))?:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
#: Android Studio since 2022: tag and process's name in columns, the message two spaces after the
#: severity. The date and the process's name can be switched off.
_STUDIO: Final = re.compile(
    rf"\s*(?:{DATE}|\d\d:\d\d:\d\d)\.\d{{3}}\s+(?P<pid>\d{{1,9}})-\d{{1,9}}\s+(?P<tag>\S.{{0,80}}?)\s+"
    r"(?:\S{1,200}\s+)?(?P<severity>[VDIWEFA])(?: {1,2}(?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
#: A line whose process number, and maybe time, somebody took out; of our tags only, since less
#: shows what it is.
_SHORTENED: Final = re.compile(
    rf"\s*(?:(?:{DATE}|\d\d:\d\d:\d\d)(?:\.\d{{3,9}})?\s+)?(?P<severity>[VDIWEF])\s+"
    rf"(?P<tag>{'|'.join(sorted(OUR_TAGS, key=len, reverse=True))})\s*:(?: (?P<text>.*))?$",
    re.ASCII | re.DOTALL,
)
_PROCESS: Final = re.compile(
    r"(?P<severity>[VDIWEFAS])\(\s*(?P<pid>\d{1,9})\) (?P<text>.*?)  \((?P<tag>[^()]{1,80})\)\s*$",
    re.ASCII | re.DOTALL,
)
#: It names no tag, so that a line may be anybody's: it is read as one of ours.
_THREAD: Final = re.compile(
    r"(?P<severity>[VDIWEFAS])\(\s*(?P<pid>\d{1,9}):\s*(?:0x)?[0-9a-f]{1,9}\) (?P<text>.*)$",
    re.ASCII | re.DOTALL,
)
_NSLOG: Final = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+(?:[+-]\d{4})? [^\[\]]{1,100}\[(?P<pid>\d{1,9})(?::\d+)?\] (?P<text>.*)$",
    re.ASCII | re.DOTALL,
)
_LONG_HEADER: Final = re.compile(
    rf"\[ +(?:{DATE}\.\d{{3,9}}(?: [+-]\d{{4}})?|{SECONDS})\s+(?:[a-z_]\w*:\s*)?"
    r"(?P<pid>\d{1,9}):\s*(?:0x)?[0-9a-f]{1,9} (?P<severity>[VDIWEFAS])/(?P<tag>.*?)\s*\]$",
    re.ASCII,
)
_LONG_START: Final = re.compile(
    rb"^(?:\x1b\[[\d;]*m)?\[ +(?:(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d|\d{1,12})\.\d{3}.{3,60} [VDIWEFAS]/.{0,80}\]\r?$",
    re.MULTILINE,
)
#: Logcat's letters; only a line that begins with one of these and a mark, or a digit, can have a
#: header.
_LETTERS: Final = frozenset("VDIWEFAS")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def any_header(whole: str) -> Line | None:
    """Return a line without the header of a log of any format; None where it has none."""
    start = whole.lstrip()[:2]
    if not start[:1].isdigit() and not (start[:1] in _LETTERS and start[1:] in {"/", "(", " "}):
        return None
    if (line := threadtime_header(whole)) is not None:
        line.tag = _whole_tag(line.tag)
        return line
    for pattern in (_BRIEF, _STUDIO, _SHORTENED, _PROCESS, _THREAD):
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
    return None


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


def is_long_logcat(buffer: Buffer) -> bool:
    """Whether the text has the headers of ``logcat -v long``, each on a line of its own above its
    message.
    """
    return _LONG_START.search(buffer[0:65_536]) is not None


def iterate_long_logcat(buffer: Buffer) -> Iterator[Line]:
    """Yield the lines of every message of a ``logcat -v long`` text, each as if its header stood
    before it.
    """
    header: re.Match[str] | None = None
    for data, cut in iterate_lines(buffer):
        line = parse_decoded(data.decode("utf-8", "replace"), cut=cut, header=any_header)
        found = _LONG_HEADER.match(line.raw.rstrip()) if line.style == "console" else None
        if found is not None:
            header = found
        elif header is None or line.style != "console":
            yield line
        else:
            line.style, line.tag = "logcat", header["tag"]
            line.severity, line.pid = header["severity"], int(header["pid"])
            yield line
