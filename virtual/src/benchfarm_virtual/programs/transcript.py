"""Where a program's words go: two streams with prefixes for a native program, the phone's log for
an app.
"""

from __future__ import annotations

from typing import Final, Literal

from benchfarm_virtual.contract import LogPriority, PhoneFileError, ProcessContext

LOG_TAG: Final = "tflite"
RuntimeSeverity = Literal["VERBOSE", "INFO", "WARNING", "ERROR"]


class Transcript:
    """What a benchmark program says. A message may have several lines; only the first carries a
    prefix.
    """

    def __init__(self, process: ProcessContext) -> None:
        self._process = process

    def info(self, message: str) -> None:
        """Say something (the tool itself)."""
        self._write("INFO", message, is_plain=True)

    def warn(self, message: str) -> None:
        """Warn (the tool itself)."""
        self._write("WARN", message, is_plain=True)

    def error(self, message: str) -> None:
        """Report an error (the tool itself)."""
        self._write("ERROR", message)

    def fatal(self, message: str) -> None:
        """Report what the program aborts for."""
        self._write("FATAL", message)

    def runtime(self, severity: RuntimeSeverity, message: str) -> None:
        """Say something (the runtime below the tool)."""
        self._write(severity, message)

    def _write(self, severity: str, message: str, *, is_plain: bool = False) -> None:
        raise NotImplementedError


class StreamTranscript(Transcript):
    """A native program's: INFO and WARN of the tool on stdout, everything else on stderr."""

    def _write(self, severity: str, message: str, *, is_plain: bool = False) -> None:
        stream = self._process.stdout if is_plain else self._process.stderr
        try:
            stream.write(f"{severity}: {message}\n".encode("utf-8", "surrogateescape"))
        except PhoneFileError:
            pass  # as C++ streams do: output to a full device is lost without a word


class LogTranscript(Transcript):
    """An app's: every message goes to the log under the tag tflite, without prefixes."""

    def _write(self, severity: str, message: str, *, is_plain: bool = False) -> None:
        priorities: dict[str, LogPriority] = {
            "WARN": "W",
            "WARNING": "W",
            "ERROR": "E",
            "FATAL": "E",
        }
        process = self._process
        process.logs.log(
            priorities.get(severity, "I"), LOG_TAG, message, pid=process.pid, uid=process.uid
        )


def number(value: float) -> str:
    """Return a number as C++ streams print a double: six significant digits."""
    return f"{value:g}"
