"""Commands that start a benchmark program, as texts show them: behind a phone's or a computer's
prompt, a word such as ``CMD:``, a time, or inside ``adb shell "cd ... && ..."``.

A command may go over several lines that end in a backslash, or that a narrow window broke.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.reading.failures import Failure, FailureClues
from orchestrator.reading.lines import Line
from orchestrator.records.model import is_model_file
from orchestrator.records.run import ToolReport

#: A benchmark program or its app's activity as a word of its own.
_PROGRAM: Final = re.compile(
    r"(?:^|[\s\"'`/\\(;&|=>])(?:[\w.+-]{1,60}_)?benchmark_(?:litert_|tflite_)?model\w*(?:\.exe)?(?=[\s\"'`\\^]|$)"
    r"|\.BenchmarkModelActivity\b",
    re.ASCII,
)
_MODEL: Final = re.compile(r"--(?:graph|model)=")
_FLAG: Final = re.compile(r"--[\w-]+=")
#: Text that may stand before a program in a command, as against a sentence about it.
_BEFORE: Final = re.compile(
    r"(?:.{0,160}[$#%!>\]] ?|.{0,60}\b(?:cmd|command|run|running|exec|executing)\b ?[:=] ?|.{0,160}\badb\b.*|[\s+*`-]*"
    r"|.{0,160}(?:&&|;) ?|[\d\s:.,TZ/-]{1,60}|.{0,160}\b(?:taskset|nohup|su|sudo|time|env)\b.*)"
    r"[\"'`(]?(?:[A-Za-z]:)?[\w./\\~-]{0,200}$",
    re.IGNORECASE,
)
_CONTINUES: Final = ("\\", " ^", " `")
#: Lines and characters of one command.
_MOST_LINES, _LONGEST = 60, 20_000


def is_command(text: str) -> bool:
    """Whether a line starts a benchmark program: its model, or the text before the program,
    distinguishes it from a sentence.
    """
    if "enchmark" not in text:
        return False
    match = _PROGRAM.search(text)
    if match is None:
        return False
    rest = text[match.end() :]
    if _MODEL.search(rest):
        return True
    goes_on = rest.rstrip().endswith(_CONTINUES)
    return (goes_on or _FLAG.search(rest) is not None) and _BEFORE.match(
        text[: match.start() + 1]
    ) is not None


#: A shorter line isn't wrapped inside a word.
_NARROWEST: Final = 40
_TRUTHS: Final = frozenset({"true", "false"})
#: The line below a command that is wrapped inside a word: its rest, flags, and shell operators.
_REST: Final = re.compile(
    r"(?P<word>(?:[\w./\\,+=~${}-]|:\d(?![\w:]))+)[\"'`)]*"
    r"(?P<more>(?: +--[\w-]+=\S*)*(?: +(?:-{1,2}[\w-]*|[\\^`]|\d?>.*|[|&;<].*))?)",
    re.ASCII,
)


def _is_rest(word: str, text: str, width: int) -> bool:
    """Whether a line begins with the rest of the word in which a command's line of ``width``
    characters ends.
    """
    rest = _REST.fullmatch(text)
    if width < _NARROWEST or rest is None or _is_complete(word):
        return False
    if word[-1].isdigit() and word.partition("=")[2].isdigit():
        return re.fullmatch(r"[\d.,]+", rest["word"], re.ASCII) is not None
    is_word_of_a_shell = rest["word"].isalpha() and rest["word"].istitle()
    is_flag = "=" in word + rest["word"] and not is_word_of_a_shell
    return bool(rest["more"]) or len(text) == width or is_flag


def _is_complete(word: str) -> bool:
    """Whether a command's last word is complete."""
    value = word.partition("=")[2]
    return not word.startswith("-") or value in _TRUTHS or is_model_file(Path(value))


#: A script's variable, which a line sets, and which a command names.
_SETS: Final = re.compile(
    r"(?:export |for )?(?P<name>\w{1,60})(?: ?= ?|(?= in ))(?P<value>.{1,200})$", re.ASCII
)
_SIMPLE_VALUE: Final = re.compile(r"([\"']?)([\w./+-]+)\1;?", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)|\{(\w+)\}", re.ASCII)
_MOST_VARIABLES: Final = 100


def _without_mark(text: str) -> str:
    text = text.rstrip()
    return next(
        (text.removesuffix(mark).rstrip() for mark in _CONTINUES if text.endswith(mark)), text
    )


class OpenCommand:
    """A command whose next line may belong to it."""

    def __init__(self, line: Line) -> None:
        """Begin with its first line."""
        self._texts = [line.text]
        self._indent = line.raw[: len(line.raw) - len(line.raw.lstrip())]
        self._goes_on = False
        #: Characters of the last line, 0 where that ends in a space.
        self._width = 0
        self._take_end(line)

    def take(self, line: Line) -> bool:
        """Take a line that goes on with the command."""
        text = line.text
        is_full = len(self._texts) >= _MOST_LINES or sum(map(len, self._texts)) > _LONGEST
        if line.severity or is_full:
            return False
        has_flags = _FLAG.search(text) is not None
        is_flag = text.startswith(("--", "-e ", "'--", '"--'))
        if is_flag or (self._goes_on and (has_flags or _PROGRAM.search(text))):
            self._texts.append(text)
        elif not is_command(text) and _is_rest(
            self._last_word,
            # What has flags is of a command, whatever it is indented by.
            text if has_flags else self._without_indent(line).rstrip(),
            self._width,
        ):
            self._texts[-1] += text
        else:
            return False
        self._take_end(line)
        return True

    def end(self, after: Line | None) -> str:
        """Return the whole command; without the rest of its last word where the line after it has
        flags and is no command.
        """
        is_torn = (
            after is not None
            and _FLAG.search(after.text) is not None
            and not is_command(after.text)
            and not _is_complete(self._last_word)
        )
        if is_torn:
            self._texts[-1] = f"{self._texts[-1].rpartition(' ')[0]} ..."
        return " ".join(map(_without_mark, self._texts))

    @property
    def _last_word(self) -> str:
        return self._texts[-1].rpartition(" ")[2]

    def _take_end(self, line: Line) -> None:
        self._goes_on = line.text.endswith(_CONTINUES)
        raw = self._without_indent(line)
        self._width = 0 if raw.endswith(" ") else len(raw)

    def _without_indent(self, line: Line) -> str:
        return line.raw.removeprefix(self._indent)


@dataclass(slots=True)
class Variables:
    """The variables of a script."""

    _values: dict[str, str] = field(default_factory=dict)

    def read(self, text: str) -> None:
        """Store the value that a line sets, and forget one with an unknown value."""
        if ("=" not in text and " in " not in text) or (match := _SETS.match(text)) is None:
            return
        if (value := _SIMPLE_VALUE.fullmatch(match["value"])) is None:
            self._values.pop(match["name"], None)
        elif len(self._values) < _MOST_VARIABLES:
            self._values[match["name"]] = value[2]

    def filled(self, command: str) -> str:
        """Return a command with the values of its variables."""
        return _VARIABLE.sub(
            lambda match: self._values.get(match[1] or match[2] or match[3], match[0]), command
        )


_INSTALL: Final = re.compile(r"^\s*Performing (?:Streamed|Push) Install\s*$", re.MULTILINE)
_SUCCESS: Final = re.compile(r"^\s*Success\s*$", re.MULTILINE)
_PUSHED: Final = re.compile(r"\d+ files? pushed\b.*?\((\d{1,18}) bytes in", re.ASCII)
_STARTING: Final = re.compile(r"^\s*(Starting: Intent \{.*\})\s*$", re.MULTILINE)
#: The line below an intent that wasn't started, whatever its reason.
_NOT_STARTED: Final = re.compile(
    r"^\s*((?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*)", re.MULTILINE
)
_STATUS: Final = re.compile(r"^\s*Status: (\w+)\s*$", re.MULTILINE)


#: What each text with a started activity holds.
STARTING: Final = b"Starting: Intent {"
_REFUSED_START: Final = re.compile(
    # The command, what it prints before it starts anything, and what stands in the place of a
    # started activity.
    r"(?:^.*\bam start\b.*\n)?(?:^[ \t]*Stopping: .*\n)?^[ \t]*Starting: Intent \{.*\}[ \t\r]*\n(?:[ \t\r]*\n)*"
    r"[ \t]*(?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*\n?"
    r"(?:^[ \t]*(?:at |\.\.\. |Caused by: |callingUid|Error\b|[\w.]+Exception\b).*\n?)*",
    re.MULTILINE,
)


def without_refused_starts(text: str) -> tuple[str, list[ToolReport]]:
    """Return a text without the starts of activities that a phone refused, and a report for each."""
    refused = [_report(match[0]) for match in _REFUSED_START.finditer(text)]
    return (_REFUSED_START.sub("", text) if refused else text), refused


def parse_adb_session(text: str) -> list[ToolReport]:
    """Return a report per installation, or one for a started activity; empty when the text has
    neither.
    """
    installs = [match.start() for match in _INSTALL.finditer(text)]
    if len(installs) > 1:
        ends = [*installs[1:], len(text)]
        return [_report(text[start:end]) for start, end in zip(installs, ends, strict=True)]
    is_session = installs or _PUSHED.search(text) or _STARTING.search(text)
    return [_report(text)] if is_session else _refusals(text)


def _report(text: str) -> ToolReport:
    extra: dict[str, float | str] = {}
    if refused := _refusals(text):
        return refused[0]
    if _SUCCESS.search(text):
        extra["install"] = "Success"
    if match := _PUSHED.search(text):
        extra["pushed_bytes"] = float(match[1])
    if match := _STARTING.search(text):
        extra["am_start"] = match[1]
    if _INSTALL.search(text) and not _SUCCESS.search(text) and not _STARTING.search(text):
        reason = "the session ends before the package manager's answer"
        return Failure(code="no-result", reason=reason, outcome="truncated").report()
    if _STARTING.search(text) and (match := _NOT_STARTED.search(text)):
        return Failure(code="activity-refused", reason=match[1].strip()[:300]).report()
    status = _STATUS.search(text)
    if status is not None and status[1] != "ok":
        return Failure(code="activity-missing", reason=f"Status: {status[1]}").report(extra=extra)
    return ToolReport(outcome="ok", extra=extra)


def _refusals(text: str) -> list[ToolReport]:
    """Return a report of a shell's or linker's error when a program can't be started, else none."""
    clues = FailureClues()
    for line in text.splitlines()[:10_000]:
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            clues.feed(stripped)
    failure = clues.text_failure()
    if failure is None or clues.best is None or clues.is_benchmark_line:
        return []
    return [failure.report()]
