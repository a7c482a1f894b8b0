"""Lines as people pass them on: quoted, numbered, in lists and tables, coloured, wrapped by a
narrow window.

A program's own output has none of this, so that only texts of unknown origin are read this way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from orchestrator.extensions.interop.texts.headers import any_header
from orchestrator.reading.lines import BANNER_KEYS, LAST_WORD, NUMBER, Line, parse_decoded

_SPACES: Final = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u202f", " ") | dict.fromkeys("\u200b\ufeff")
)
#: A colour, also one whose escape character was lost or written out.
_COLOUR: Final = re.compile(
    r"(?:\x1b|\u241b|\^\[|\\x1b|\\033|\\e)?\[(?:\d{1,3};){0,4}\d{1,3}m(?!s\])", re.ASCII
)
_EMPHASIS: Final = re.compile(r"_?\*\*_?")
#: What a build server puts before each line: the time, and where several jobs are shown the job's
#: and the step's name.
_SERVER_TIME: Final = r"(?:[^\t]{1,200}\t[^\t]{1,200}\t)?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z ?"
_DECORATION: Final = re.compile(
    rf"{_SERVER_TIME}"
    # Quoted, or a comment of a notebook.
    r"|\s{0,12}(?:>\s?)+|\s{0,12}#\s+"
    # An item of a list, a line number, an omission. What is indented further is a program's own
    # list.
    r"|\s{0,3}(?:[-*+\u2022]\s+(?=\S)|(?:\.\.\.|\u2026)\s+)"
    r"|\s{0,8}\d{1,6}(?:[.)]\s+|\t|\s{1,2}(?=[A-Z\d\[(|/]|count=))"
    # What grep puts in front.
    r"|(?:[^\s:]{1,200}\.(?:txt|log|out|md|logcat)|\(standard input\))[:-](?:\d{1,7}[:-](?!\d\d \d))?"
    r"|\d{1,7}:(?!\d\d[:.])"
    # A log's tag whose severity was left out.
    r"|(?:tflite|litert)\s*: ",
    re.ASCII,
)
_CELL: Final = re.compile(r"\s*[|\u2502]\s*([^|\u2502]+?)\s*[|\u2502]\s*")
_CODE: Final = re.compile(r"\s*(`{1,3})([^`]+)\1\s*")
_MOST_DECORATIONS: Final = 6

_ECHO_START: Final = re.compile(r"[#A-Z][^\[\]:]{0,60}:(?: \[[^\]]*)?$")
_STARTS: Final = (
    "count=",
    "Inference timings in us",
    "Average inference timings",
    "Memory footprint delta",
    "Peak memory footprint",
    "The input model file size",
    "Initialized session in",
    "Running benchmark for",
    "Replacing ",
    "Explicitly applied ",
    "Applied ",
    "Though ",
    "Overall peak memory",
    "Node number ",
    *BANNER_KEYS,
)
_LONGEST_START: Final = max(map(len, _STARTS))
#: Messages from their beginning to their end.
_WHOLE: Final = re.compile(
    rf"count=\d+(?: \w+={NUMBER})* (?:std|p95)={NUMBER}|count=\d+ curr={NUMBER}(?:\(all same\))?"
    rf"|(?:Average i|I)nference timings in us: (?:[\w ()]+: {NUMBER}, )*(?:Inference(?: \(avg\))?|no stats): {NUMBER}"
    rf"|(?:Memory footprint delta from the start of the tool|Peak memory footprint) \(MB\): init={NUMBER}"
    rf" overall={NUMBER}|Overall peak memory footprint \(MB\) via periodic monitoring: {NUMBER}"
    rf"|The input model file size \(MB\): {NUMBER}|Initialized session in {NUMBER} ?ms\.?"
    rf"|Running benchmark for at least \d+ iterations and at least {NUMBER} seconds"
    rf"(?: but terminate if exceeding {NUMBER} seconds)?\.?"
    r"|Replacing \d+ out of \d+ node\(s\) with delegate \(\w+\) node, yielding \d+ partitions"
    r"(?: for subgraph \d+(?: \([^()]*\))?)?\.?"
    r"|(?:Explicitly applied|Applied|Though) \w+ delegate(?: is)?(?: explicitly)?(?: applied)?,(?: and)?"
    r" the model graph will(?: not)? be(?: only)?(?: completely| partially)? executed (?:by|w/|with) the delegate"
    r"(?: w/ \d+ delegate kernels)?\.?"
    r"|Node number \d+ \([\w ]+\) failed to (?:invoke|prepare)\.?|[#A-Z][^\[\]:]{0,60}: \[[^\[\]]*\]"
    rf"|(?:{'|'.join(map(re.escape, BANNER_KEYS))}): +{NUMBER}(?: (?:ms|us|MB/s|MB))?(?: \(\d+ runs\))?",
    re.ASCII,
)
_DIGITS: Final = re.compile(r"[\d.]{1,12}(?:e[+-]?\d*)?(?:$|[ ,(].*)", re.ASCII)
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
        if line.style != "console" or (rest := _without_decoration(text)) is None:
            break
        line, text = parse_decoded(rest, cut=cut, header=any_header), rest
    return line


def _without_decoration(text: str) -> str | None:
    first = text.lstrip()[:1]
    if first in {"|", "\u2502"} and (cell := _CELL.fullmatch(text)):
        return cell[1]
    if first == "`" and (code := _CODE.fullmatch(text)):
        return code[2]
    found = _DECORATION.match(text)
    return text[found.end() :] if found else None


class Rejoiner:
    """Makes one line of a message that was wrapped into several.

    A message that ends inside its last figure, with its rest lost, comes as one that was cut off.
    """

    def __init__(self) -> None:
        """Begin with no line."""
        self._held: list[Line] = []

    def feed(self, line: Line) -> Iterator[Line]:
        """Take a line and yield those of which nothing can follow any more."""
        if self._held and self._goes_on(line):
            self._held.append(line)
            return
        yield from self.flush()
        if _starts(line):
            self._held = [line]
        else:
            yield line

    def waits_for(self, text: str) -> bool:
        """Whether the next line may belong to the last one."""
        return bool(self._held) and self._goes_on(parse_pasted(text))

    def flush(self) -> Iterator[Line]:
        """Yield the lines that were held back."""
        held, self._held = self._held, []
        yield from _joined(held)

    def end(self) -> Iterator[Line]:
        """Yield the lines that were held back at the end of the text."""
        held = self._held
        if len(held) > 1 and held[0].style != "console" and _DATE_START.fullmatch(held[-1].raw):
            # The log ends in the next line's date.
            held.pop()
        yield from self.flush()

    def _goes_on(self, line: Line) -> bool:
        return len(self._held) < _MOST_PIECES and _continues(self._held, line)


def _starts(line: Line) -> bool:
    text = line.text
    if line.is_foreign or not text:
        return False
    if text.startswith(_STARTS) or (":" in text and _ECHO_START.match(text) is not None):
        return True
    return len(text) < _LONGEST_START and any(start.startswith(text) for start in _STARTS)


def _continues(held: list[Line], line: Line) -> bool:
    is_plain = (
        line.style == "console" and not line.severity and not line.source_file and line.text != ""
    )
    if not is_plain or line.raw.startswith("\t"):
        return False
    pieces = _pieces(held)
    if _starts(line):
        # "Inference (avg): ..." is a line of its own, and the end of another.
        return _message(pieces) == "" and _message([*pieces, line.raw.rstrip()]) != ""
    if len(held) == 1 and _WHOLE.fullmatch(held[0].text):
        is_figure = (
            _NUMBER_END.search(held[0].text) is not None and _DIGITS.match(line.raw) is not None
        )
        return is_figure or line.text.startswith("p5=")
    return True


def _pieces(held: list[Line]) -> list[str]:
    return [held[0].text, *(line.raw.rstrip() for line in held[1:])]


def _message(pieces: list[str]) -> str:
    """Return the message that was broken into pieces, at spaces or inside words; "" where they
    aren't a whole one.
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


def _joined(held: list[Line]) -> Iterator[Line]:
    if len(held) < 2:
        yield from held
        return
    pieces = _pieces(held)
    for count in range(len(pieces), 1, -1):
        if text := _message(pieces[:count]):
            whole = replace(held[0], raw=text, text=text)
            yield _cut(whole) if held[count - 1].is_cut else whole
            yield from held[count:]
            return
    yield (
        _cut(held[0]) if _NUMBER_END.search(held[0].text) and _DIGITS.match(pieces[1]) else held[0]
    )
    yield from held[1:]


def _cut(line: Line) -> Line:
    """Return a line whose last word may not be whole."""
    word = LAST_WORD.search(line.text)
    text = line.text[: word.start()].rstrip() if word else line.text
    return replace(line, text=text, cut_word=word[0] if word else "", is_cut=True)
