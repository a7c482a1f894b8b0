"""A fake binary as a process on the phone: what it has of the phone, its moments, its sleep and its
death.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from benchfarm_virtual.contract import SIGKILL, ProcessContext, ProgramDiedError
from benchfarm_virtual.faults import Fault, FaultKind, FaultTable
from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.profiles import VirtualProfile

#: In a fake binary's version, for tests and demonstrations: its inferences take so much longer or
#: shorter.
_TIME_MARK: Final = re.compile(r"(?:^|\s)time([+-]\d{1,3}(?:\.\d{1,4})?)%(?:\s|$)", re.ASCII)
#: No version makes a program faster than this.
_LEAST_TIME: Final = 0.05

SIGABRT: Final = 6


class BenchmarkFailedError(Exception):
    """The run ended with an error that has been reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a fake binary needs of its phone."""

    profile: VirtualProfile
    hardware: VirtualHardware
    faults: FaultTable | None = None
    #: How long everything takes with this program, against the usual one; see
    #: :func:`time_factor_of`.
    time_factor: float = 1.0

    def take_fault(self, kind: FaultKind, subject: str) -> Fault | None:
        """Return the fault of this kind that happens to a delegate now, if one was asked for."""
        return (
            self.faults.take(kind, "delegate", subject=subject) if self.faults is not None else None
        )


@dataclass(slots=True)
class ProcessOnce:
    """What a process says only once, however many runs it makes, and the memory that it has had."""

    said: set[str] = field(default_factory=set)
    #: The high-water mark of its memory, in kB.
    max_rss_kb: float = 0.0

    def first(self, name: str) -> bool:
        """Return True the first time."""
        if name in self.said:
            return False
        self.said.add(name)
        return True


def time_factor_of(version: str) -> float:
    """Return how long inferences take in a fake of this version: 1.03 for ``2.1 time+3%``, 1.0
    without a mark.
    """
    found = _TIME_MARK.search(version)
    return max(_LEAST_TIME, 1.0 + float(found[1]) / 100.0) if found else 1.0


def announce(process: ProcessContext, name: str) -> None:
    """Tell the phone that a program has come to a named moment."""
    if process.moment is not None:
        process.moment(name, process)
    check_killed(process)


def pause(process: ProcessContext, seconds: float) -> None:
    """Sleep in phone time; raise ProgramDiedError when the process is killed."""
    if seconds > 0:
        process.time.sleep(seconds, process.killed)
    check_killed(process)


def check_killed(process: ProcessContext) -> None:
    """Raise ProgramDiedError when the process has been killed."""
    if process.killed.is_set():
        raise ProgramDiedError(process.signal or SIGKILL)
