"""Every failure code: its meaning, its next step, and the texts that show it.

They stand in failures.toml, one record a code. docs/reference/failures.md, ``benchfarm explain``,
next steps in reports and the readers of programs' and phones' texts are made from these records. A
code never changes its meaning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final


class Source(StrEnum):
    """The origin of a text, which decides how it is matched."""

    #: A program, linker, shell or package manager, in what a run printed: a pattern of a line from
    #: its start.
    PROGRAM = "program"
    #: The adb server, adbd or the adb client: a pattern of any part of a message, in any case.
    ADB = "adb"
    #: The phone's file service or a shell command that writes: likewise.
    WRITING = "writing"
    #: A tool that asks a service of Android's (``cmd``, ``am``, ``pm``, ``settings``, ``run-as``):
    #: likewise.
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class FailureText:
    """A text that shows a failure."""

    #: Group 1 is the reason where a program says it.
    pattern: str
    #: A text as it is printed; a test runs each through the reader.
    example: str
    #: Of several texts in one run, the one of the lowest rank explains it; among equals the first.
    rank: int = 0
    source: Source = Source.PROGRAM
    #: Meaning and next step of the text, where they say more than the code's.
    meaning: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class FailureCode:
    """One code."""

    code: str
    meaning: str
    next_step: str
    texts: tuple[FailureText, ...] = ()


_FILE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _codes(kind: str) -> tuple[FailureCode, ...]:
    return tuple(
        FailureCode(
            code=item["code"],
            meaning=item["meaning"],
            next_step=item["next_step"],
            texts=tuple(
                FailureText(**{**text, "source": Source(text.get("source", Source.PROGRAM))})
                for text in item.get("texts", ())
            ),
        )
        for item in _FILE[kind]
    )


#: Codes of what a run printed, and of how it ended.
RUN_FAILURES: Final = _codes("run")
#: Codes of the errors that end a run (errors.py), and the engine's own.
ERROR_FAILURES: Final = _codes("error")
#: The package manager's codes -> what to do.
INSTALL_STEPS: Final[Mapping[str, str]] = _FILE["install"]
#: Code -> its record.
FAILURES: Final[Mapping[str, FailureCode]] = {
    item.code: item for item in (*ERROR_FAILURES, *RUN_FAILURES)
}


def next_step_of(code: str, reason: str = "") -> str:
    """Return a failure's next step, empty for an unknown code; that of its reason where one is known."""
    failure = FAILURES.get(code)
    if failure is None:
        return ""
    if (word := re.search(r"\bINSTALL_[A-Z_]+|(?<=Failure \[)-\d+", reason)) and word[
        0
    ] in INSTALL_STEPS:
        return INSTALL_STEPS[word[0]]
    of_text = (
        text.next_step
        for text in failure.texts
        if text.next_step and re.search(text.pattern, reason, re.I)
    )
    return next(of_text, failure.next_step)


def texts_of(source: Source) -> tuple[tuple[FailureText, FailureCode], ...]:
    """Return the texts of a source with their codes, in the order in which they are tried."""
    texts = [
        (text, item) for item in FAILURES.values() for text in item.texts if text.source is source
    ]
    return tuple(sorted(texts, key=lambda pair: pair[0].rank))
