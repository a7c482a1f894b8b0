"""Why a run failed: found from the program's text, its exit code or signal, and the phone's own log together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SIGNALS: Final[Mapping[int, tuple[str, str]]] = {
    1: ("terminated", "SIGHUP"),
    2: ("interrupted", "SIGINT"),
    3: ("aborted", "SIGQUIT"),
    4: ("illegal-instruction", "SIGILL"),
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
#: Signals that a program brings upon itself; the others come from outside.
_CRASH_SIGNALS: Final = frozenset({3, 4, 6, 7, 8, 11, 31})
_SHELL_CODES: Final[Mapping[int, str]] = {126: "not-executable", 127: "program-not-found"}

#: (rank, code, pattern): the lowest rank explains the failure, among equals the first line that was printed.
#: A pattern's group 1, when it has one, is the reason.
RULES: Final[tuple[tuple[int, str, re.Pattern[str]], ...]] = tuple(
    (rank, code, re.compile(pattern))
    for rank, code, pattern in (
        (0, "wrong-abi", r".*?(not executable: (?:32|64)-bit ELF file)"),
        (0, "wrong-abi", r".*?(cannot execute binary file.*|Exec format error.*)"),
        (
            0,
            "wrong-abi",
            r".*?(\"[^\"]*\" (?:is (?:32|64)-bit instead of (?:32|64)-bit|has bad ELF magic|is for EM_\w+).*)",
        ),
        (0, "missing-symbol", r"(CANNOT LINK EXECUTABLE .*cannot locate symbol.*)"),
        (0, "missing-library", r"(CANNOT LINK EXECUTABLE .*)"),
        (0, "missing-library", r".*?(error while loading shared libraries: .*)"),
        (0, "activity-missing", r".*?(Activity class \{[^}]*\} does not exist.*)"),
        (0, "install-failed", r".*?\[?(INSTALL_(?:PARSE_)?FAILED_[A-Z_]+)"),
        (
            0,
            "device-unreachable",
            r"(?:.*?: )?((?:adb|error): (?:device .*not found|device (?:off|unauth).*|no devices.*|more than one.*))",
        ),
        (0, "mode-not-reached", r"benchfarm: (mode not reached: .*)"),
        (1, "bad-flag", r"(Failed to parse flag .*)"),
        (1, "bad-flag", r"(There are invalid perf options in .*|The 'none' option can not be used .*)"),
        (1, "bad-flag", r"(Please specify the name of your TF Lite input file.*|Output mode.* is not supported.*)"),
        (1, "bad-flag", r"(Requesting full delegation and CPU acceleration are incompatible.*)"),
        (1, "provider-missing", r"(\w+ was not found\.)$"),
        (1, "bad-threads", r"(num_threads should be .*)"),
        (1, "model-not-found", r"(Could not open '.*'\.)"),
        (1, "model-not-found", r"(Couldn't find '.*' in bundle\.)"),
        (2, "out-of-memory", r"(Mmap of .* failed with error '12'\.)"),
        (2, "model-corrupt", r"(The model is not a valid Flatbuffer.*|mmap of size 0 requested\.)"),
        (2, "model-corrupt", r"(No subgraph in the model\.|Mmap of .* failed with error .*)"),
        (3, "model-corrupt", r"(The model allocation is null/empty|Failed to load model.*)"),
        (2, "model-too-new", r"(Didn't find op for builtin opcode .*|Op builtin_code out of range.*)"),
        (2, "signature-needed", r"(Signature not specified or incorrect\..*)"),
        (2, "bad-input-shape", r"(Incorrect size string specified.*|Input tensor #\d+ should have .*)"),
        (2, "bad-input-shape", r"(The number of items in --input_layer.*|Any unknown sizes in the shapes.*)"),
        (2, "bad-input-shape", r"(Wrong input value range item specified.*)"),
        (2, "bad-input-file", r"(Failed to read the input_layer_value_file.*|The size of .* bytes\. It should be .*)"),
        (3, "flex-ops-missing", r"(Node number \d+ \(Flex\w+\) failed to (?:prepare|invoke)\.?)"),
        (4, "flex-ops-missing", r"(Select TensorFlow op\(s\), included in the given model.*)"),
        (4, "flex-ops-missing", r"(Encountered unresolved custom op: Flex\w+).*"),
        (4, "unresolved-custom-op", r"(Encountered unresolved custom op: [\w.:-]+)"),
        # Qualcomm's QNN, MediaTek's Neuron, and LiteRT's own dispatch interface; a library that is only newer is a
        # warning and runs ("... is used. The version LiteRT using is ...").
        (4, "npu-version-skew", r".*?(Qnn (?:\w+ )?library version \S+ is (?:mismatched|not supported)\..*)"),
        (4, "npu-version-skew", r".*?(Stub lib id mismatch: expected .*)"),
        (
            4,
            "npu-version-skew",
            r".*?(Failed to create context from context binary: Unsupported context binary version.*)",
        ),
        (4, "npu-version-skew", r".*?(Incompatible Neuron SDK major version: .*)"),
        (4, "npu-version-skew", r".*?(Unsupported dispatch runtime version.*)"),
        (5, "nnapi-failed", r"(NN API returned error .*)"),
        (5, "npu-init-failed", r"(Failed to create a dispatch delegate kernel: .*)"),
        (6, "npu-init-failed", r"(No usable Dispatch runtime.*|Failed to initialize Dispatch API.*)"),
        (6, "npu-init-failed", r"(You should provide the `DispatchLibraryDir` option.*)"),
        (5, "hexagon-version-skew", r"(Incompatible versions between interface library and libhexagon_skel.*)"),
        (5, "hexagon-init-failed", r"(Failed to fetch Hexagon NN version.*)"),
        (5, "gpu-init-failed", r"(TfLiteGpuDelegate Init: .*)"),
        (5, "gpu-init-failed", r"(\[GPU\] Failed to initialize: .*)"),
        (5, "gpu-init-failed", r".*?(Failed to create litert::ml_drift::DelegateKernelLiteRt: .*)"),
        (6, "gpu-init-failed", r"(Node number \d+ \(LITERT_\w+\) failed to prepare\.?)"),
        (5, "dynamic-tensors", r"(Attempting to use a delegate that only supports static-sized tensors.*)"),
        (5, "full-delegation-refused", r"(Disallowed CPU fallback detected\.)"),
        (5, "xnnpack-failed", r"(failed to create XNNPACK runtime.*|XNNPack delegate failed to .*)"),
        (5, "out-of-memory", r".*?(std::bad_alloc.*|[Oo]ut of memory.*)"),
        (5, "storage-full", r".*?(No space left on device.*)"),
        (6, "op-failed", r"(Node number \d+ \(\w+\) failed to invoke\.?)"),
        (6, "external-delegate-failed", r"(Failed to apply (?:EXTERNAL|STABLE_DELEGATE) delegate\.)"),
        (6, "delegate-failed", r"(Failed to apply \w+ delegate\.)"),
        (7, "app-crashed", r"(Failed to create the interpreter with error: .*)"),
        (7, "benchmark-failed", r"(Failed to initialize: internalError.*)"),
        (7, "allocation-failed", r"(Node number \d+ \(\w+\) failed to prepare\.?)"),
        (8, "allocation-failed", r"(Failed to allocate tensors!)"),
        (8, "benchmark-failed", r"(Failed to initialize the interpreter|Failed to set thread number|Run failed: .*)"),
        (8, "benchmark-failed", r"(Failed to (?:load|compile) model\..*|Failed to create litert environment.*)"),
        (9, "help-shown", r"(usage: \S+ <flags>)"),
        (9, "signatures-listed", r"(The Model contains \d+ signature key\(s\)\.)"),
        (10, "benchmark-failed", r"(Error while (?:running a single-option run|parsing the flags for .*): .*)"),
        (11, "benchmark-failed", r"(Benchmarking failed\.)"),
    )
)
#: All rules that stand at a line's start at once, without groups, which is tried far faster; and words of which one
#: is in whatever the others know: most lines are of no rule.
_AT_START: Final = re.compile(
    "|".join(
        re.sub(r"(?<!\\)\((?!\?)", "(?:", p.pattern) for _, _, p in RULES if not p.pattern.startswith((".*?", "(?:"))
    )
)
_INSIDE: Final = (
    "not executable", "cannot execute", "Exec format", "-bit instead of", "bad ELF magic", "is for EM_",
    "loading shared libraries", "Activity class ", "INSTALL_", "Qnn ", "Stub lib id", "context binary", "Neuron SDK",
    "dispatch runtime version", "DelegateKernelLiteRt", "bad_alloc", "ut of memory", "No space left",
    "adb: ", "error: ",
)  # fmt: skip
_SHELL_CRASHES: Final[tuple[tuple[str, int], ...]] = (
    ("Segmentation fault", 11),
    ("Aborted", 6),
    ("Bus error", 7),
    ("Illegal instruction", 4),
    ("Floating point exception", 8),
    ("Killed", 9),
    ("Terminated", 15),
)
_SHELL_WORDS: Final = tuple(words for words, _ in _SHELL_CRASHES)
_MOST_KNOWN_LINES: Final = 1000
#: A longer line is nobody's last word.
_LONGEST_OF_SYSTEM: Final = 1000
_MOST_CRASHES: Final = 500
_FATAL_SIGNAL: Final = re.compile(
    r"(Fatal signal (\d{1,2}) \(SIG\w+\), code -?\d+(?: \([^)]*\))?(?:, fault addr \S+)?)", re.ASCII
)
_CRASHED_PROCESS: Final = re.compile(r"pid: (\d{1,9}), tid: \d{1,9}, name: .*>>> (\S+) <<<", re.ASCII)
_FRAME: Final = re.compile(r"#(\d\d) pc \S+\s+(.*)")
_DIED: Final = re.compile(r"Process (\S+) \(pid (\d{1,9})\) has died")
_LMK: Final = re.compile(r"(?:Killing|Kill|killing) '?([\w.:/-]+)'? \((\d{1,9})\)")
_ANR: Final = re.compile(r"ANR in (\S+)")
#: What follows it, each in a line of its own.
_ANR_PID: Final = re.compile(r"\s*PID: (\d{1,9})\s*", re.ASCII)
_ANR_REASON: Final = re.compile(r"\s*Reason: (.{1,300})")
#: One denial of SELinux; with ``permissive=1`` it is only noted, and what was asked for is allowed.
_DENIAL: Final = re.compile(r"avc: {1,2}denied {1,2}(\{[^}]{1,200}\} for .{1,600})")
_DENIED_PID: Final = re.compile(r"\bpid=(\d{1,9})", re.ASCII)
_DENIED_OBJECT: Final = re.compile(r"\b(?:name|path)=\"([^\"]{1,300})\"")
_MOST_DENIALS: Final = 1000
_JAVA: Final = re.compile(r"Process: (\S+), PID: (\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run failed: the code, and the line that says so."""

    code: str
    reason: str
    #: "failed", "crashed" or "truncated".
    outcome: str = "failed"


@dataclass(slots=True)
class FailureClues:
    """The lines of one run that may say why it failed, the best explanation first."""

    best: tuple[int, int, str, str] | None = None
    invoke_failure: str = ""
    crash_signal: int | None = None
    crash_line: str = ""
    is_fatal: bool = False
    count: int = 0
    #: The first error that no rule knows, told beside a failure that only says where it happened.
    unknown_error: str = ""
    _known_lines: set[str] = field(default_factory=set)

    def has_seen(self, text: str) -> bool:
        """Whether the very line was read before: a failing operator repeats its own a hundred thousand times."""
        return text in self._known_lines

    def feed(self, text: str, severity: str = "") -> bool:
        """Read one line; return whether it tells of a failure."""
        for words, signal in _SHELL_CRASHES if text.startswith(_SHELL_WORDS) else ():
            if text.startswith(words) and len(text) <= len(words) + 40 and self.crash_signal is None:
                self.crash_signal, self.crash_line = signal, words
                return True
        if severity == "F":
            self.is_fatal = True
        if not (_AT_START.match(text) or any(word in text for word in _INSIDE)):
            return self._pass_over(text, severity)
        for rank, code, pattern in RULES:
            match = pattern.match(text)
            if match:
                self._note(rank, code, match[1].strip())
                self._remember(text)
                return True
        return self._pass_over(text, severity)

    def _pass_over(self, text: str, severity: str) -> bool:
        """Keep an error that no rule knows; return that the line tells of no failure that is known."""
        if severity in {"E", "F"}:
            self._remember(text)
            if self.best is None and not self.unknown_error:
                self.unknown_error = text[:300]
        return False

    def _remember(self, text: str) -> None:
        if len(self._known_lines) < _MOST_KNOWN_LINES:
            self._known_lines.add(text)

    def _note(self, rank: int, code: str, reason: str) -> None:
        self.count += 1
        if code == "op-failed" and not self.invoke_failure:
            self.invoke_failure = reason
        if self.best is None or rank < self.best[0]:
            self.best = (rank, self.count, code, reason)

    @property
    def ended_badly(self) -> bool:
        """Whether a line says that the run failed, beside those that any run may print."""
        return self.best is not None or self.crash_signal is not None

    @property
    def is_of_a_benchmark(self) -> bool:
        """Whether a line is a benchmark program's own, not a shell's, a linker's or a package manager's."""
        return self.best is not None and self.best[0] > 0

    def text_failure(self) -> Failure | None:
        """Return the failure that the text explains by itself."""
        if self.best is None and self.crash_signal is None:
            return None
        reason = self.best[3] if self.best else ""
        code = self.best[2] if self.best else ""
        if code == "nnapi-failed" and self.invoke_failure:
            reason = f"{reason} / {self.invoke_failure}"
        if code in {"op-failed", "allocation-failed", "external-delegate-failed"} and self.unknown_error:
            reason = f"{self.unknown_error} / {reason}"
        if self.crash_signal is None:
            return Failure(code=code, reason=reason)
        crash_code, _ = SIGNALS[self.crash_signal]
        outcome = "crashed" if self.crash_signal in _CRASH_SIGNALS else "truncated"
        if reason:
            return Failure(code=code, reason=f"{reason} then {self.crash_line}", outcome=outcome)
        return Failure(code=crash_code, reason=self.crash_line, outcome=outcome)


@dataclass(slots=True)
class Crash:
    """One process's end as the phone's log tells it."""

    code: str
    reason: str
    pid: int | None = None
    process: str = ""
    frames: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SystemLog:
    """What other parts of the phone logged about processes that ended."""

    crashes: list[Crash] = field(default_factory=list)
    #: What SELinux denied; most denials are harmless, so that one alone ends nothing.
    denials: list[Crash] = field(default_factory=list)
    #: What the benchmark's own process is called where its number isn't known; empty where that isn't known either.
    program: str = ""

    #: Words of which a line must hold one to be of use here.
    WORDS = (
        b"Fatal signal", b"DEBUG   :", b"has died", b"AndroidRuntime", b"lowmemorykiller", b"lmkd", b"ANR in ", b"avc:",
        b"ActivityManager: PID: ", b"ActivityManager: Reason: ",
    )  # fmt: skip

    def feed(self, text: str, *, tag: str, pid: int | None, severity: str) -> None:
        """Read one logcat line of another tag than the benchmark's."""
        if "avc:" in text:
            self._read_denial(text, pid, tag)
        elif tag in {"libc", "DEBUG"}:
            self._read_native_crash(text, tag=tag, pid=pid)
        elif tag == "AndroidRuntime" and severity == "E":
            self._read_java_crash(text)
        elif tag in {"lowmemorykiller", "lmkd", "ActivityManager", "ActivityTaskManager"}:
            self._read_killing(text, tag)

    def _read_native_crash(self, text: str, *, tag: str, pid: int | None) -> None:
        match = _FATAL_SIGNAL.search(text)
        if match and tag == "libc":
            code = SIGNALS.get(int(match[2]), ("aborted", ""))[0]
            self._add(Crash(code=code, reason=match[1], pid=pid))
            return
        match = _CRASHED_PROCESS.search(text)
        if match:
            crash = next((c for c in self.crashes if c.pid == int(match[1])), None)
            if crash is None:
                crash = Crash(code="aborted", reason="native crash", pid=int(match[1]))
                self._add(crash)
            crash.process = match[2]
            return
        match = _FRAME.search(text)
        if match and self.crashes and len(self.crashes[-1].frames) < 5:
            self.crashes[-1].frames.append(f"#{match[1]} {match[2]}")

    def _read_java_crash(self, text: str) -> None:
        match = _JAVA.match(text)
        if match:
            self._add(Crash(code="app-crashed", reason="", pid=int(match[2]), process=match[1]))
        elif self.crashes and self.crashes[-1].code == "app-crashed" and not self.crashes[-1].reason:
            self.crashes[-1].reason = text.strip()[:300]

    def _read_killing(self, text: str, tag: str) -> None:
        if tag in {"lowmemorykiller", "lmkd"} and (match := _LMK.search(text)):
            self._add(Crash(code="low-memory-kill", reason=text.strip()[:300], pid=int(match[2]), process=match[1]))
        elif match := _DIED.search(text):
            self._add(Crash(code="process-died", reason=text.strip()[:300], pid=int(match[2]), process=match[1]))
        elif match := _ANR.search(text):
            self._add(Crash(code="app-not-responding", reason=match[0], process=match[1]))
        elif self.crashes and self.crashes[-1].code == "app-not-responding":
            self._read_anr(text, self.crashes[-1])

    @staticmethod
    def _read_anr(text: str, anr: Crash) -> None:
        if (match := _ANR_PID.fullmatch(text)) and anr.pid is None:
            anr.pid = int(match[1])
        elif (match := _ANR_REASON.match(text)) and ": " not in anr.reason:
            anr.reason = f"{anr.reason}: {match[1].strip()}"

    def _add(self, crash: Crash) -> None:
        """Keep a process's end; of very many the latest count."""
        self.crashes.append(crash)
        if len(self.crashes) > 2 * _MOST_CRASHES:
            del self.crashes[:_MOST_CRASHES]

    def _read_denial(self, text: str, pid: int | None, tag: str) -> None:
        match = _DENIAL.search(text)
        if match is None or "permissive=1" in match[1] or len(self.denials) >= _MOST_DENIALS:
            return
        named = _DENIED_PID.search(match[1])
        self.denials.append(
            Crash(
                code="selinux-denied",
                reason=f"avc: denied {match[1].strip()}"[:300],
                pid=int(named[1]) if named else pid,
                # Tagged with the name of who was denied, as the kernel knows it.
                process=tag,
            )
        )

    def _names(self, processes: Iterable[str]) -> tuple[str, ...]:
        # The kernel keeps 15 letters of a name.
        return (*processes, self.program[:15]) if self.program else tuple(processes)

    def denial_of(self, pid: int | None, told: str = "", processes: Iterable[str] = ()) -> Crash | None:
        """Return what SELinux denied a process: of what ``told`` names by its path, or the first where it is empty.

        A process whose number isn't known is one of those that are called so.
        """
        names = self._names(processes)
        for denial in self.denials:
            thing = _DENIED_OBJECT.search(denial.reason)
            name = thing[1].rpartition("/")[2] if thing else ""
            is_its = denial.pid == pid if pid is not None else bool(names) and denial.process.startswith(names)
            if is_its and (not told or (name and name in told)):
                return denial
        return None

    def end_of(self, pid: int | None, processes: Iterable[str] = ()) -> Crash | None:
        """Return how a process ended, the most telling line first; None when the log doesn't say."""
        order = ["low-memory-kill", "app-crashed", "segfault", "aborted", "app-not-responding", "process-died"]
        names = self._names(processes)
        own = [crash for crash in self.crashes if pid is not None and crash.pid == pid]
        # Another process of the same name is another run, unless the line names no process number.
        named = [
            crash
            for crash in self.crashes
            if (pid is None or crash.pid is None) and names and crash.process.rpartition("/")[2].startswith(names)
        ]
        # The log's first second may tell of the run before: the last process of that name is this run's.
        own += [crash for crash in named if crash.pid is None or crash.pid == named[-1].pid]
        return min(own, key=lambda c: order.index(c.code) if c.code in order else len(order), default=None)


def system_failure(text: str) -> Failure | None:
    """Return how a linker, a shell or the kernel ended a program, by one line; None for a line of the program's own."""
    clues = FailureClues()
    if len(text) > _LONGEST_OF_SYSTEM or not clues.feed(text) or clues.is_of_a_benchmark:
        return None
    return clues.text_failure()


def signal_failure(exit_code: int | None) -> Failure | None:
    """Return the failure that an exit code stands for by itself: a signal, or the shell's own codes."""
    if exit_code is None:
        return None
    if exit_code in _SHELL_CODES:
        return Failure(code=_SHELL_CODES[exit_code], reason=f"exit code {exit_code}")
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in SIGNALS:
        code, name = SIGNALS[number]
        outcome = "crashed" if number in _CRASH_SIGNALS else "truncated"
        return Failure(code=code, reason=f"ended by {name} (exit code {exit_code})", outcome=outcome)
    return None
