"""Where a program's words go: two streams with prefixes for a native program, the phone's log for an app."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from benchfarm_lab.contract import LogPriority, PhoneFileError, ProcessContext

LOG_TAG: Final = "tflite"
RuntimeSeverity = Literal["VERBOSE", "INFO", "WARNING", "ERROR"]


class Transcript(Protocol):
    """What a benchmark program says. A message may have several lines; only the first carries a prefix."""

    def info(self, message: str) -> None:
        """Say something (the tool itself)."""
        ...

    def warn(self, message: str) -> None:
        """Warn (the tool itself)."""
        ...

    def error(self, message: str) -> None:
        """Report an error (the tool itself)."""
        ...

    def fatal(self, message: str) -> None:
        """Report what the program aborts for."""
        ...

    def runtime(self, severity: RuntimeSeverity, message: str) -> None:
        """Say something (the runtime below the tool)."""
        ...


class StreamTranscript:
    """A native program's: INFO and WARN of the tool on stdout, everything else on stderr."""

    def __init__(self, process: ProcessContext) -> None:
        self._process = process

    def info(self, message: str) -> None:
        """Print to stdout."""
        self._write("INFO: " + message, to_stderr=False)

    def warn(self, message: str) -> None:
        """Print to stdout."""
        self._write("WARN: " + message, to_stderr=False)

    def error(self, message: str) -> None:
        """Print to stderr."""
        self._write("ERROR: " + message, to_stderr=True)

    def fatal(self, message: str) -> None:
        """Print to stderr."""
        self._write("FATAL: " + message, to_stderr=True)

    def runtime(self, severity: RuntimeSeverity, message: str) -> None:
        """Print to stderr."""
        self._write(f"{severity}: {message}", to_stderr=True)

    def _write(self, message: str, *, to_stderr: bool) -> None:
        stream = self._process.stderr if to_stderr else self._process.stdout
        try:
            stream.write(message.encode("utf-8", "surrogateescape") + b"\n")
        except PhoneFileError:
            pass  # as C++ streams do: output to a full device is lost without a word


class LogTranscript:
    """An app's: every message goes to the log under the tag tflite, without prefixes."""

    def __init__(self, process: ProcessContext) -> None:
        self._process = process

    def info(self, message: str) -> None:
        """Log at I."""
        self._log("I", message)

    def warn(self, message: str) -> None:
        """Log at W."""
        self._log("W", message)

    def error(self, message: str) -> None:
        """Log at E."""
        self._log("E", message)

    def fatal(self, message: str) -> None:
        """Log at E, as the tool maps it."""
        self._log("E", message)

    def runtime(self, severity: RuntimeSeverity, message: str) -> None:
        """Log at the level that the runtime's logger maps to."""
        priorities: dict[RuntimeSeverity, LogPriority] = {"VERBOSE": "I", "INFO": "I", "WARNING": "W", "ERROR": "E"}
        self._log(priorities[severity], message)

    def _log(self, priority: LogPriority, message: str) -> None:
        process = self._process
        process.logs.log(priority, LOG_TAG, message, pid=process.pid, uid=process.uid)


def number(value: float) -> str:
    """Return a number as C++ streams print a double: six significant digits."""
    return f"{value:g}"
