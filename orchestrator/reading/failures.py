"""Why a run failed, from the program's text, its exit code or signal, and the phone's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from orchestrator.reading.lines import Line
from orchestrator.records import frozen
from orchestrator.records.failures import Source, texts_of
from orchestrator.records.run import DelegateEvidence, RawOutput, ToolReport

#: (rank, code, pattern) of a program's lines, in the order in which they are tried.
RULES: Final = tuple(
    (text.rank, item.code, re.compile(text.pattern)) for text, item in texts_of(Source.PROGRAM)
)
SIGNALS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("terminated", "SIGHUP"),
    2: ("interrupted", "SIGINT"),
    3: ("aborted", "SIGQUIT"),
    4: ("illegal-instruction", "SIGILL"),
    5: ("aborted", "SIGTRAP"),
    6: ("aborted", "SIGABRT"),
    7: ("bus-error", "SIGBUS"),
    8: ("arithmetic-fault", "SIGFPE"),
    9: ("killed", "SIGKILL"),
    11: ("segfault", "SIGSEGV"),
    13: ("output-closed", "SIGPIPE"),
    15: ("terminated", "SIGTERM"),
    25: ("storage-full", "SIGXFSZ"),
    31: ("aborted", "SIGSYS"),
}
#: Signals that a program causes itself; the others come from outside.
_CRASH_SIGNALS: Final = frozenset({3, 4, 5, 6, 7, 8, 11, 31})
#: Codes of a process that crashed, from the phone's log.
_CRASH_CODES: Final = frozenset({"app-crashed", *(SIGNALS[number][0] for number in _CRASH_SIGNALS)})
_SHELL_CODES: Final[Mapping[int, str]] = {126: "not-executable", 127: "program-not-found"}
#: All rules that match at a line's start as one expression without groups, which is much faster;
#: and words of which one is in each line that the other rules match. Most lines match no rule.
_AT_START: Final = re.compile(
    "|".join(
        re.sub(r"(?<!\\)\((?!\?)", "(?:", p.pattern)
        for _, _, p in RULES
        if not p.pattern.startswith((".*?", "(?:"))
    )
)
_INSIDE: Final = (
    "not executable",
    "cannot execute",
    "Exec format",
    "-bit instead of",
    "bad ELF magic",
    "is for EM_",
    "loading shared libraries",
    "Activity class ",
    "INSTALL_",
    "Qnn ",
    "Stub lib id",
    "context binary",
    "Neuron SDK",
    "dispatch runtime version",
    "DelegateKernelLiteRt",
    "not accelerated",
    "bad_alloc",
    "ut of memory",
    "No space left",
    "adb: ",
    "error: ",
    "program alignment",
    "TLS segment",
    "osition-independent",
    "osition independent",
    "for the namespace",
    "taskset: ",
    "SecurityException",
    "Permission Denial",
    "does not exist",
    "cmd: ",
    "system running?",
    "Failure [",
    "undefined symbol: cl",
    "cl_khr_",
    "hexagon_nn_",
    "load skel",
    "qnn_open",
)
#: A shell's words for a child that a signal ended.
_SHELL_WORDS: Final[Mapping[str, int]] = {
    "Segmentation fault": 11,
    "Aborted": 6,
    "Bus error": 7,
    "Illegal instruction": 4,
    "Floating point exception": 8,
    "Killed": 9,
    "Terminated": 15,
    "Trace/breakpoint trap": 5,
    "Bad system call": 31,
}
_SHELL_LINE: Final = re.compile(rf"({'|'.join(_SHELL_WORDS)}).{{0,40}}$", re.DOTALL)
_MOST_KNOWN_LINES: Final = 1000
#: The kernel cuts the names of native processes after as many letters.
_NAME_LETTERS: Final = 15
_NATIVE_PROCESSES: Final = ("benchmark_model", "benchmark_liter")
_APP: Final = "org.tensorflow.lite.benchmark"
#: Codes of a process's end, the most informative first.
_END_CODES: Final = (
    "low-memory-kill",
    "phantom-process-kill",
    "app-crashed",
    "segfault",
    "aborted",
    "app-not-responding",
    "process-died",
)
#: A longer line isn't a system's line about a process's end.
_LONGEST_OF_SYSTEM: Final = 1000
_MOST_CRASHES: Final = 500
_FATAL_SIGNAL: Final = re.compile(
    r"(Fatal signal (\d{1,2}) \(SIG\w+\), code -?\d+(?: \([^)]*\))?(?:, fault addr \S+)?)", re.ASCII
)
_CRASHED_PROCESS: Final = re.compile(
    r"pid: (\d{1,9}), tid: \d{1,9}, name: .*>>> (\S+) <<<", re.ASCII
)
_FRAME: Final = re.compile(r"#(\d\d) pc \S+\s+(.*)")
_DIED: Final = re.compile(r"Process (\S+) \(pid (\d{1,9})\) has died")
_LMK: Final = re.compile(r"(?:Killing|Kill|killing|Reclaim) '?([\w.:/-]+)'? \((\d{1,9})\)")
_PHANTOM: Final = re.compile(
    r"\b(\d{1,9}):(?:\d{1,9}:)?([^/\s:]+)/\S+.*: Trimming phantom processes", re.ASCII
)
_ABORT: Final = re.compile(r"\s*Abort message: '(.{1,300}?)'?$")
_ANR: Final = re.compile(r"ANR in (\S+)")
#: The line after it.
_ANR_PID: Final = re.compile(r"\s*PID: (\d{1,9})\s*", re.ASCII)
#: One denial of SELinux; with ``permissive=1`` it is only logged, and the access is allowed.
_DENIAL: Final = re.compile(r"avc: {1,2}denied {1,2}(\{[^}]{1,200}\} for .{1,600})")
_DENIED_PID: Final = re.compile(r"\bpid=(\d{1,9})", re.ASCII)
_DENIED_OBJECT: Final = re.compile(r"\b(?:name|path)=\"([^\"]{1,300})\"")
_MOST_DENIALS: Final = 1000
_NO_EVIDENCE: Final = DelegateEvidence()
_JAVA: Final = re.compile(r"Process: (\S+), PID: (\d{1,9})", re.ASCII)


@frozen
class Failure:
    """Why a run failed: the code, and the line that shows it."""

    code: str
    reason: str
    #: "failed", "crashed" or "truncated".
    outcome: str = "failed"

    def report(
        self,
        delegate: DelegateEvidence = _NO_EVIDENCE,
        extra: Mapping[str, float | str] = MappingProxyType({}),
    ) -> ToolReport:
        """Return the report of a run of which only its failure is known."""
        return ToolReport(
            outcome=self.outcome,
            failure_code=self.code,
            failure_reason=self.reason,
            delegate=delegate,
            extra=dict(extra),
        )


@dataclass(slots=True)
class FailureClues:
    """The lines of one run that may explain its failure, and the best explanation among them."""

    best: Failure | None = None
    rank: int = 0
    #: Why a call of the model failed; the times that are printed are of such calls.
    invoke_failure: str = ""
    crash_signal: int | None = None
    crash_line: str = ""
    is_fatal: bool = False
    #: The first error that matches no rule, reported together with a failure that has only a place.
    unknown_error: str = ""
    _known_lines: set[str] = field(default_factory=set)

    def was_read(self, text: str) -> bool:
        """Whether the same line was read before: a failing operator may repeat its line 100,000
        times.
        """
        return text in self._known_lines

    def feed(self, text: str, severity: str = "") -> bool:
        """Read one line; return whether it is about a failure."""
        if self.crash_signal is None and (match := _SHELL_LINE.match(text)):
            self.crash_signal, self.crash_line = _SHELL_WORDS[match[1]], match[1]
            return True
        if severity == "F":
            self.is_fatal = True
        if _AT_START.match(text) or any(word in text for word in _INSIDE):
            for rank, code, pattern in RULES:
                if match := pattern.match(text):
                    reason = match[1].strip()
                    is_of_a_call = code == "op-failed" or text.startswith("Run failed:")
                    if is_of_a_call and not self.invoke_failure:
                        self.invoke_failure = reason
                    if self.best is None or rank < self.rank:
                        self.best, self.rank = Failure(code=code, reason=reason), rank
                    self._remember(text)
                    return True
        if severity in {"E", "F"}:
            self._remember(text)
            if self.best is None and not self.unknown_error:
                self.unknown_error = text[:300]
        return False

    def _remember(self, text: str) -> None:
        if len(self._known_lines) < _MOST_KNOWN_LINES:
            self._known_lines.add(text)

    @property
    def ended_badly(self) -> bool:
        """Whether a line shows that the run failed; errors that any run may print don't count."""
        return self.best is not None or self.crash_signal is not None

    @property
    def is_benchmark_line(self) -> bool:
        """Whether the best line is a benchmark program's, not a shell's, a linker's or a package
        manager's.
        """
        return self.best is not None and self.rank > 0

    def text_failure(self) -> Failure | None:
        """Return the failure that the text alone explains, or None."""
        if self.best is None and self.crash_signal is None:
            return None
        code, reason = (self.best.code, self.best.reason) if self.best else ("", "")
        if code == "nnapi-failed" and self.invoke_failure:
            reason = f"{reason} / {self.invoke_failure}"
        if (
            code
            in {"op-failed", "allocation-failed", "external-delegate-failed", "benchmark-failed"}
            and self.unknown_error
        ):
            reason = f"{self.unknown_error} / {reason}"
        if self.crash_signal is None:
            return Failure(code=code, reason=reason)
        outcome = "crashed" if self.crash_signal in _CRASH_SIGNALS else "truncated"
        if reason:
            return Failure(code=code, reason=f"{reason} then {self.crash_line}", outcome=outcome)
        return Failure(code=SIGNALS[self.crash_signal][0], reason=self.crash_line, outcome=outcome)


@dataclass(slots=True)
class Crash:
    """The end of one process in the phone's log."""

    code: str
    reason: str
    pid: int | None = None
    process: str = ""
    #: Its abort message.
    abort_message: str = ""
    frames: list[str] = field(default_factory=list)
    #: The number of the process that logs its tombstone, None before that begins.
    logger_pid: int | None = None

    @property
    def failure(self) -> Failure:
        """The failure of its run, which crashed by itself or failed as the system ended it."""
        outcome = "crashed" if self.code in _CRASH_CODES else "failed"
        return Failure(code=self.code, reason=self.reason, outcome=outcome)


@dataclass(slots=True)
class SystemLog:
    """The system's lines in the phone's log about processes that ended."""

    crashes: list[Crash] = field(default_factory=list)
    #: SELinux's denials; most are harmless, so that a denial alone isn't a failure.
    denials: list[Crash] = field(default_factory=list)
    #: The name of the benchmark's process, for when its number isn't known; empty if unknown too.
    program: str = ""

    def feed(self, line: Line) -> None:
        """Read one logcat line with a tag other than the benchmark's."""
        text, tag = line.text, line.tag
        if "avc:" in text:
            self._read_denial(line)
        elif tag in {"libc", "DEBUG"}:
            self._read_native_crash(text, line.pid, tag)
        elif tag == "AndroidRuntime" and line.severity == "E":
            self._read_java_crash(text)
        elif tag in {"lowmemorykiller", "lmkd", "ActivityManager", "ActivityTaskManager"}:
            self._read_killing(text, tag)

    def _read_native_crash(self, text: str, pid: int | None, tag: str) -> None:
        if tag == "libc" and (match := _FATAL_SIGNAL.search(text)):
            code = SIGNALS.get(int(match[2]), ("aborted", ""))[0]
            self._add(Crash(code=code, reason=match[1], pid=pid))
        elif match := _CRASHED_PROCESS.search(text):
            crash = next((c for c in self.crashes if c.pid == int(match[1])), None)
            if crash is None:
                crash = Crash(code="aborted", reason="native crash", pid=int(match[1]))
                self._add(crash)
            crash.process, crash.logger_pid = match[2], pid
        elif matches := [c for c in reversed(self.crashes) if c.logger_pid in {pid, None}]:
            # Another process may have crashed since, and its tombstone not have begun.
            crash = next((c for c in matches if c.logger_pid == pid), matches[0])
            if match := _ABORT.match(text):
                crash.abort_message = match[1]
            elif (match := _FRAME.search(text)) and len(crash.frames) < 5:
                crash.frames.append(f"#{match[1]} {match[2]}")

    def _read_java_crash(self, text: str) -> None:
        if match := _JAVA.match(text):
            self._add(Crash(code="app-crashed", reason="", pid=int(match[2]), process=match[1]))
        elif self.crashes and self.crashes[-1].code == "app-crashed":
            self.crashes[-1].reason = self.crashes[-1].reason or text.strip()[:300]

    def _read_killing(self, text: str, tag: str) -> None:
        is_killer = tag in {"lowmemorykiller", "lmkd"}
        last = self.crashes[-1] if self.crashes else None
        if match := _PHANTOM.search(text):
            reason = text.strip()[:300]
            self._add(
                Crash(
                    code="phantom-process-kill", reason=reason, pid=int(match[1]), process=match[2]
                )
            )
        elif match := (_LMK.search(text) if is_killer else None) or _DIED.search(text):
            code = "low-memory-kill" if match.re is _LMK else "process-died"
            self._add(
                Crash(code=code, reason=text.strip()[:300], pid=int(match[2]), process=match[1])
            )
        elif match := _ANR.search(text):
            self._add(Crash(code="app-not-responding", reason=match[0], process=match[1]))
        elif (
            last is not None
            and last.code == "app-not-responding"
            and last.pid is None
            and (match := _ANR_PID.fullmatch(text))
        ):
            last.pid = int(match[1])

    def _add(self, crash: Crash) -> None:
        """Keep a process's end; at most the latest ``2 * _MOST_CRASHES``."""
        self.crashes.append(crash)
        if len(self.crashes) > 2 * _MOST_CRASHES:
            del self.crashes[:_MOST_CRASHES]

    def _read_denial(self, line: Line) -> None:
        match = _DENIAL.search(line.text)
        if match is None or "permissive=1" in match[1] or len(self.denials) >= _MOST_DENIALS:
            return
        pid_match = _DENIED_PID.search(match[1])
        self.denials.append(
            Crash(
                code="selinux-denied",
                reason=f"avc: denied {match[1].strip()}"[:300],
                pid=int(pid_match[1]) if pid_match else line.pid,
                # The tag is the denied process's name, as the kernel has it.
                process=line.tag,
            )
        )

    def find_denial(self, pid: int | None, reason: str = "") -> Crash | None:
        """Return SELinux's first denial for a process, of a file that ``reason`` names unless it is
        empty; None for none.

        Without a process number, denials for any native benchmark program count.
        """
        for denial in self.denials:
            object_match = _DENIED_OBJECT.search(denial.reason)
            name = object_match[1].rpartition("/")[2] if object_match else ""
            is_same_process = (
                denial.pid == pid if pid is not None else denial.process.startswith(self._native)
            )
            if is_same_process and (not reason or (name and name in reason)):
                return denial
        return None

    @property
    def _native(self) -> tuple[str, ...]:
        return (
            (*_NATIVE_PROCESSES, self.program[:_NAME_LETTERS])
            if self.program
            else _NATIVE_PROCESSES
        )

    def find_end(self, pid: int | None) -> Crash | None:
        """Return a process's end by its most informative line; None where the log has none."""
        names = (_APP, *self._native)
        crashes = [crash for crash in self.crashes if pid is not None and crash.pid == pid]
        # Another process of the same name is another run, unless the line names no process number.
        same_name = [
            crash
            for crash in self.crashes
            if (pid is None or crash.pid is None)
            and crash.process.rpartition("/")[2].startswith(names)
        ]
        # The log's first second may be of the run before: the last process of that name is this
        # run's.
        crashes += [
            crash for crash in same_name if crash.pid is None or crash.pid == same_name[-1].pid
        ]
        return min(
            crashes,
            key=lambda c: _END_CODES.index(c.code) if c.code in _END_CODES else len(_END_CODES),
            default=None,
        )


def system_failure(text: str) -> Failure | None:
    """Return the failure in a line of a linker, a shell or the kernel; None for other lines."""
    clues = FailureClues()
    if len(text) > _LONGEST_OF_SYSTEM or not clues.feed(text) or clues.is_benchmark_line:
        return None
    return clues.text_failure()


def signal_failure(exit_code: int | None) -> Failure | None:
    """Return the failure of an exit code for a signal or of the shell's own codes, else None."""
    if exit_code is None:
        return None
    if exit_code in _SHELL_CODES:
        return Failure(code=_SHELL_CODES[exit_code], reason=f"exit code {exit_code}")
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in SIGNALS:
        code, name = SIGNALS[number]
        outcome = "crashed" if number in _CRASH_SIGNALS else "truncated"
        return Failure(
            code=code, reason=f"ended by {name} (exit code {exit_code})", outcome=outcome
        )
    return None


def end_failure(raw: RawOutput) -> Failure | None:
    """Return the failure in a process's end: its time limit, a signal or an exit code; None if it
    succeeded or the end isn't known.
    """
    if raw.timed_out:
        reason = f"no result after {raw.duration_s:.0f} s"
        return Failure(code="timed-out", reason=reason, outcome="truncated")
    if not raw.exit_code:
        return None
    return signal_failure(raw.exit_code) or Failure(
        code="benchmark-failed", reason=f"exit code {raw.exit_code}"
    )
