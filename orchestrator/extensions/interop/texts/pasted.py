"""Lines as people paste them: quoted, numbered, in lists and tables, coloured, wrapped by a narrow
window.

A program's own output has none of this, so that only texts of unknown origin are read this way.

Before a line logs put a header: the same message reaches us as ``INFO: msg`` (console, since about
2023), ``msg`` (console, older), ``06-18 10:20:41.572 4669 4669 I tflite  : msg`` (logcat
threadtime), ``06-18 10:20:41.572 I/tflite ( 4669): msg`` (time), ``I/tflite  ( 4669): msg``
(brief), ``I( 4669) msg  (tflite)`` (process), ``I( 4669: 4669) msg`` (thread), with seconds in the
place of the date (epoch, monotonic), as Android Studio shows it, with an NSLog header (iOS), or
indented; and any of these in UTF-16, which a Windows shell writes. benchfarm itself logs in the
first of logcat's formats, which ``reading.lines`` reads.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from orchestrator.reading.lines import (
    DATE,
    LAST_WORD,
    LONGEST_LINE_BYTES,
    OUR_TAGS,
    SECONDS,
    Buffer,
    Line,
    parse_decoded,
    threadtime_header,
)
from orchestrator.reading.transcript import KINDS

_SPACES: Final = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u202f", " ") | dict.fromkeys("\u200b\ufeff")
)
#: A colour, also one whose escape character was lost or written out.
_COLOUR: Final = re.compile(
    r"(?:\x1b|\u241b|\^\[|\\x1b|\\033|\\e)?\[(?:\d{1,3};){0,4}\d{1,3}m(?!s\])", re.ASCII
)
_EMPHASIS: Final = re.compile(r"_?\*\*_?")
_TIME: Final = r"(?:\d{4}-\d\d-\d\d[T ]|[A-Z][a-z]{2} [ \d]?\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d| UTC)?"
_LEVEL: Final = "(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
#: What build servers and services put before each line: the time, where several jobs are shown the
#: job's and the step's name before it, and after it GitLab's or Kubernetes' stream, Python's
#: logger or the journal's host and process; or Docker's container alone, whose name Compose ends
#: in a number or the user chose.
_SERVER: Final = (
    rf"(?:[^\t]{{1,200}}\t[^\t]{{1,200}}\t)?(?:\[{_TIME}\]|{_TIME})"
    rf"(?: \d\d[OE][+ ]| std(?:out|err) [FP] | - [\w.]{{1,80}} - {_LEVEL} - "
    r"| [\w.-]{1,80} (?P<unit>[^\s\[\]]{1,80}\[\d{1,9}\]): ?| ?)"
    rf"|{_LEVEL}:[\w.]{{1,80}}:|(?P<container>[a-z\d][\w.-]{{0,80}}[-_]\d{{1,3}}) +\| ?"
    r"|(?P<service>[A-Za-z\d][\w.-]{1,80}+)  +\| ?(?=\||[^|]*$)"
)
#: The phone that a script with several of them puts before each line; a word and its number
#: (``RESNET50``) is none.
_SERIAL: Final = (
    r"(?P<serial>emulator-\d{4}|\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}"
    r"|(?![A-Z]{4})(?=[A-Za-z]++\d++[A-Za-z]|\d++[A-Za-z]++\d)(?:[A-Z\d]{8,20}|[a-f\d]{8,16})): "
)
_DECORATION: Final = re.compile(
    rf"{_SERVER}|{_SERIAL}"
    # Quoted, or a comment of a notebook.
    r"|\s{0,12}(?:>\s?)+|\s{0,12}#\s+"
    # An item of a list, a line number, an omission. What is indented further is a program's own
    # list, but for code.
    r"|(?P<item>\s{4,12}[-*+]\s+(?=`)|\s{0,3}(?:[-*+\u2022]\s+(?=\S)|(?:\.\.\.|\u2026)\s+)"
    r"|\s{0,8}\d{1,6}(?:[.)]\s+|\t|\s{1,2}(?=[A-Z\d\[(|/]|count=)))"
    # What grep puts in front.
    r"|(?:[^\s:]{1,200}\.(?:txt|log|out|md|logcat)|\(standard input\))[:-](?:\d{1,7}[:-](?!\d\d \d))?"
    r"|\d{1,7}:(?!\d\d[:.])"
    # A log's tag whose severity was left out.
    r"|(?:tflite|litert)\s*: ",
    re.ASCII,
)
#: A line of Kubernetes' log, which has a P where another part of it follows.
_PART: Final = re.compile(
    rf"(?P<head>{_TIME} (?P<stream>std(?:out|err)) )(?P<mark>[FP]) (?P<text>.*)",
    re.ASCII | re.DOTALL,
)
_CELL: Final = re.compile(r"\s*[|\u2502]\s*([^|\u2502]+?)\s*[|\u2502]\s*")
_CODE: Final = re.compile(r"\s*(`{1,3})([^`]+)\1\s*")
_MOST_DECORATIONS: Final = 6

_ECHO_START: Final = re.compile(r"[#A-Z][^\[\]:]{0,60}:(?: \[[^\]]*)?$")
#: Beginnings of the messages that can be put together again.
_STARTS: Final = tuple(start for kind in KINDS if kind.whole for start in kind.starts)
#: And of a list of the phone's accelerators, or the name of one, as a parameter.
_HELD: Final = (*_STARTS, "NNAPI accelerator")
_BEGINNINGS: Final = frozenset(start[:size] for start in _HELD for size in range(1, len(start)))
#: Messages from their beginning to their end.
_WHOLE: Final = re.compile(
    "|".join(kind.whole for kind in KINDS if kind.whole)
    # What begins as another message is no option's name.
    + rf"|(?!{'|'.join(map(re.escape, _STARTS))})[#A-Z][^\[\]:]{{0,60}}: \[[^\[\]]*\]",
    re.ASCII,
)
_DIGITS: Final = re.compile(r"[\d.]{1,12}(?:e[+-]?\d*)?(?:$|[ ,(].*)", re.ASCII)
_DIGITS_ALONE: Final = re.compile(r"[\d.]{1,12}(?:e[+-]?\d*)?(?:$|, [A-Z]| [a-z]\w*=)", re.ASCII)
_DATE_START: Final = re.compile(r"\d{1,2}", re.ASCII)
_NUMBER_END: Final = re.compile(r"[\d.]$", re.ASCII)
#: Into how many lines a message is broken, at most.
_MOST_PIECES: Final = 7


def parse_pasted(text: str, *, cut: bool = False) -> Line:
    """Take apart one line of a text of unknown origin; see ``parse_decoded``."""
    if not text.isascii():
        text = text.translate(_SPACES)
    if "[" in text and "m" in text:
        text = _COLOUR.sub("", text)
    if "**" in text:
        text = _EMPHASIS.sub("", text)
    line = parse_decoded(text, cut=cut, header=any_header)
    for _ in range(_MOST_DECORATIONS):
        if line.style != "console" or (stripped := _without_decoration(text)) is None:
            break
        text, stream, item = stripped[0], stripped[1] or line.stream, line.item + stripped[2]
        line = parse_decoded(text, cut=cut, header=any_header)
        line.stream, line.item = stream, item
    return line


def _without_decoration(text: str) -> tuple[str, str, str] | None:
    """Return a line without its decoration, the process that the decoration names, and the mark or
    number of an item.
    """
    first = text.lstrip()[:1]
    if first in {"|", "\u2502"} and (cell := _CELL.fullmatch(text)):
        return cell[1], "", ""
    if first == "`" and (code := _CODE.fullmatch(text)):
        return code[2], "", ""
    match = _DECORATION.match(text)
    if match is None:
        return None
    names = match.group("unit", "container", "service", "serial")
    return text[match.end() :], next(filter(None, names), ""), match["item"] or ""


def whole_line(text: str, parts: dict[str, str]) -> str | None:
    """Return a line, with those parts of it before it that Kubernetes logged; None where another
    part follows. ``parts`` keeps the lines whose end may follow, by their stream.
    """
    match = _PART.match(text) if parts or " P " in text else None
    if match is None:
        return text
    line = parts.pop(match["stream"], f"{match['head']}F ") + match["text"]
    if match["mark"] == "F":
        return line
    parts[match["stream"]] = line[:LONGEST_LINE_BYTES]
    return None


class Rejoiner:
    """Makes one line of a message that was wrapped into several.

    A message that ends inside its last figure, with its rest lost, comes as one that was cut off.
    """

    def __init__(self) -> None:
        """Begin with no line."""
        self._held: list[Line] = []

    def feed(self, line: Line) -> Sequence[Line]:
        """Take a line and return the lines that are complete."""
        if self._held and self._goes_on(line):
            self._held.append(line)
            return ()
        done = self.flush()
        if _starts(line):
            self._held = [line]
            return done
        return (*done, line) if done else (line,)

    @property
    def holds(self) -> bool:
        """Whether a line is held back, as more of it may follow."""
        return bool(self._held)

    def waits_for(self, text: str) -> bool:
        """Whether the next line may belong to the last one."""
        return bool(self._held) and self._goes_on(parse_pasted(text))

    def flush(self) -> Sequence[Line]:
        """Return the lines that were held back."""
        held = self._held
        if not held:
            return ()
        self._held = []
        return held if len(held) == 1 else _joined(held)

    def end(self) -> Sequence[Line]:
        """Return the lines that were held back at the end of the text."""
        held = self._held
        while len(held) > 1 and not held[-1].raw.strip():
            held.pop()
        if len(held) > 1 and held[0].style != "console" and _DATE_START.fullmatch(held[-1].raw):
            # The log ends in the next line's date.
            held.pop()
        return self.flush()

    def _goes_on(self, line: Line) -> bool:
        return len(_pieces(self._held)) < _MOST_PIECES and _continues(self._held, line)


def _starts(line: Line) -> bool:
    text = line.text
    if line.is_foreign or not text:
        return False
    if text.startswith(_HELD) or (":" in text and _ECHO_START.match(text) is not None):
        return True
    return text in _BEGINNINGS


def _continues(held: list[Line], line: Line) -> bool:
    is_plain = line.style == "console" and not line.severity and not line.source_file
    if not is_plain or line.raw.startswith("\t") or line.stream != held[0].stream:
        return False
    if not line.raw.strip():
        # Every second line of a text may be empty.
        return held[-1].raw.strip() != ""
    pieces = _pieces([*held, line])
    if _starts(line):
        # "Inference (avg): ..." is a line of its own, and the end of another.
        return _message(pieces[:-1]) == "" and _message(pieces) != ""
    if len(pieces) == 2 and _WHOLE.fullmatch(held[0].text):
        is_rest = line.text.startswith("p5=") or _message(pieces) != ""
        return is_rest or _is_broken([*held, line])
    return True


def _pieces(held: Sequence[Line]) -> list[str]:
    """Return the pieces of a message in the lines: without the first one's indentation, and without
    empty ones.

    A leading number belongs to the message where the first line is no list item.
    """
    indent = ""
    if held[0].style == "console":
        indent = held[0].raw[: len(held[0].raw) - len(held[0].raw.lstrip())]
    is_list = held[0].item != ""
    rest = (
        ("" if is_list else line.item) + line.raw.rstrip().removeprefix(indent) for line in held[1:]
    )
    # A message has one space between its words; more were put in front of its lines.
    return [
        held[0].text,
        *(each.lstrip() if each.startswith("  ") else each for each in rest if each.strip()),
    ]


def _message(pieces: list[str]) -> str:
    """Return the message that was broken into pieces, at spaces or inside words; "" where it isn't
    complete.
    """
    for gaps in itertools.product(("", " "), repeat=len(pieces) - 1):
        rest = (
            gap + (piece.lstrip() if gap else piece)
            for gap, piece in zip(gaps, pieces[1:], strict=True)
        )
        text = pieces[0] + "".join(rest)
        if _WHOLE.fullmatch(text):
            return text
    return ""


def _is_broken(held: Sequence[Line]) -> bool:
    """Whether the first line ends in a figure that the second one may go on with."""
    pieces = _pieces(held)
    if len(pieces) < 2 or not _NUMBER_END.search(held[0].text):
        return False
    # Below an empty line a number may begin a sentence.
    return (_DIGITS if held[1].raw.strip() else _DIGITS_ALONE).match(pieces[1]) is not None


def _joined(held: Sequence[Line]) -> Sequence[Line]:
    for count in range(len(held), 1, -1):
        last = held[count - 1]
        if last.raw.strip() and (text := _message(_pieces(held[:count]))):
            whole = replace(held[0], raw=text, text=text)
            return (_cut(whole) if last.is_cut else whole, *held[count:])
    return (_cut(held[0]) if _is_broken(held) else held[0], *held[1:])


def _cut(line: Line) -> Line:
    """Return a line whose last word may not be whole."""
    word = LAST_WORD.search(line.text)
    text = line.text[: word.start()].rstrip() if word else line.text
    return replace(line, text=text, cut_word=word[0] if word else "", is_cut=True)


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
#: A line without its process number, and maybe time; of our tags only, since the rest is ambiguous.
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
        line.tag = _full_tag(line.tag)
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
                tag=_full_tag(groups.get("tag", "tflite").strip()),
                pid=int(pid) if pid else None,
            )
    if match := _NSLOG.match(whole):
        return Line(raw=match["text"], text=match["text"], style="nslog", pid=int(match["pid"]))
    return None


def _full_tag(tag: str) -> str:
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
