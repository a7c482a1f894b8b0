"""What faults do to a benchmark program at the moments that it announces."""

from __future__ import annotations

from typing import Final, NoReturn

from benchfarm_virtual.contract import (
    SIGKILL,
    ByteSink,
    LogPriority,
    ProcessContext,
    ProgramDiedError,
)
from benchfarm_virtual.faults import FaultKind, FaultTable

SIGSEGV: Final = 11
#: Under whose names the system itself writes to the log.
_LMKD_PID: Final = 497
_LMKD_UID: Final = 1069
_SYSTEM_PID: Final = 1003
_FOR_EVER_S: Final = 1e6


class CutOutput:
    """A program's output of which nothing arrives after the byte that a fault names."""

    def __init__(self, sink: ByteSink, faults: FaultTable, subject: str) -> None:
        self._sink = sink
        self._faults = faults
        self._subject = subject
        self._lost = False

    def write(self, data: bytes) -> None:
        """Hand on what comes before the cut; the writer never learns of it."""
        if self._lost:
            return
        passing, cut = self._faults.advance(
            FaultKind.OUTPUT_CUT, len(data), "program", subject=self._subject
        )
        if passing:
            self._sink.write(data[:passing])
        self._lost = cut is not None


class ProgramMoments:
    """Lets the faults of one phone happen to its programs."""

    def __init__(self, faults: FaultTable) -> None:
        self._faults = faults

    def __call__(self, name: str, process: ProcessContext) -> None:
        """Do what faults ask for at the moment; raise ProgramDiedError when the program ends by it."""
        program = process.argv[0].rpartition("/")[2] if process.argv else ""
        if name == "init":
            process.stdout = CutOutput(process.stdout, self._faults, program)
        self._faults.reach(name, subject=program)
        if process.killed.is_set():
            raise ProgramDiedError(process.signal or SIGKILL)
        if self._faults.take(FaultKind.PROGRAM_HANG, name, subject=program):
            process.killed.wait()
            raise ProgramDiedError(process.signal or SIGKILL)
        if process.group == "top-app":
            anr = self._faults.take(FaultKind.NOT_RESPONDING, name, subject=program)
            if anr is not None:
                self._stop_responding(process, anr.number("seconds"))
        if self._faults.take(FaultKind.SEGV, name, subject=program):
            raise ProgramDiedError(SIGSEGV)
        if self._faults.take(FaultKind.LOW_MEMORY, name, subject=program):
            process.logs.log(
                "I",
                "lowmemorykiller",
                f"Kill '{program}' ({process.pid}), uid {process.uid}, oom_score_adj 0 "
                "to free 412672kB rss, 0kB swap; reason: low watermark is breached and swap is low",
                pid=_LMKD_PID,
                uid=_LMKD_UID,
                buffer="system",
            )
            raise ProgramDiedError(SIGKILL)

    @staticmethod
    def _stop_responding(process: ProcessContext, seconds: float) -> NoReturn:
        """Log what the activity manager logs, wait for somebody to end the app, and end it after a
        while.
        """
        package = process.argv[0]
        component = f"{package}/.BenchmarkModelActivity"

        def log(priority: LogPriority, text: str) -> None:
            process.logs.log(
                priority, "ActivityManager", text, pid=_SYSTEM_PID, uid=1000, buffer="system"
            )

        for line in (
            f"ANR in {package} ({component})",
            f"PID: {process.pid}",
            f"Reason: Input dispatching timed out (3f1c2a {component} is not responding. Waited 5003ms for FocusEvent)",
            f"Parent: {component}",
            "Load: 6.4 / 4.17 / 3.4",
        ):
            log("E", line)
        if process.time.sleep(seconds or _FOR_EVER_S, process.killed):
            raise ProgramDiedError(process.signal or SIGKILL)
        log(
            "I",
            f"Killing {process.pid}:{package}/u0a{process.uid - 10000} (adj 0): user request after error",
        )
        raise ProgramDiedError(SIGKILL)
