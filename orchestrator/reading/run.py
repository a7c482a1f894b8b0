"""One run of ours: what its process printed, what the phone logged meanwhile, and the files that it
wrote.

It is known that this is one process of one program, so that nothing is searched for and nothing is
split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.reading.failures import SystemLog
from orchestrator.reading.lines import Line, iterate_blocks, own_lines, without_foreign
from orchestrator.reading.report import RunFiles, build_report
from orchestrator.reading.transcript import Transcript
from orchestrator.records.run import ToolReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How a run was started."""

    #: The file name of a native program, by which the phone's log names its process.
    program: str = ""
    #: What the plan set; not every program echoes it.
    flags: Mapping[str, str] = field(default_factory=dict)


def parse_run(
    *,
    stdout: bytes = b"",
    stderr: bytes = b"",
    logcat: bytes = b"",
    exit_code: int | None,
    timed_out: bool = False,
    files: RunFiles | None = None,
    requested: str = "",
    started: Started | None = None,
) -> ToolReport:
    """Read one invocation of ours; whatever it left behind, a report comes back.

    Args:
        stdout: the program's standard output, as a whole.
        stderr: its standard error.
        logcat: what the phone logged meanwhile; for an app this is the only text.
        exit_code: None when there is none (an app) or it isn't known.
        timed_out: whether benchfarm ended the run at its deadline.
        files: what it wrote beside its output.
        requested: the delegate that was asked for; the flags in the output are used when it is
            empty.
        started: how it was started, where that is known.
    """
    started = started or Started()
    console = Transcript()
    for data in (stdout, stderr):
        for line in own_lines(data):
            console.feed(line)
    system = SystemLog(program=started.program)
    blocks = (without_foreign(block) for block in iterate_blocks(logcat))
    logged = logged_processes((line for block in blocks for line in own_lines(block)), system)
    transcript = _of_the_benchmark(console, logged)
    transcript.flags = {**started.flags, **transcript.flags}
    return build_report(
        transcript,
        system=system,
        exit_code=exit_code,
        timed_out=timed_out,
        files=files,
        requested=requested,
    )


def logged_processes(lines: Iterable[Line], system: SystemLog) -> list[Transcript]:
    """Return what each process of ours logged, in the order in which they begin; all else is the
    system's.
    """
    found: list[Transcript] = []
    by_pid: dict[int | None, Transcript] = {}
    for line in lines:
        if line.is_foreign:
            system.feed(line.text, tag=line.tag, pid=line.pid, severity=line.severity)
            if line.tag != "ExecutionPlan":
                continue
        own = by_pid.get(line.pid)
        if own is None or (
            line.text.startswith("STARTING!") and not own.is_empty and not own.has_only_start
        ):
            # A process of an app may run the benchmark again.
            own = by_pid[line.pid] = Transcript(pid=line.pid)
            found.append(own)
        if line.is_foreign:
            own.delegates.read_system_line(f"ExecutionPlan: {line.text}")
        else:
            own.feed(line)
    return found


def _of_the_benchmark(console: Transcript, logged: list[Transcript]) -> Transcript:
    """Return the transcript of the benchmark: the console's, or for an app its process's among
    those that log.

    What the console holds of an app is the activity manager's answer, which counts when it is a
    refusal.
    """
    if not console.is_empty or console.failures.ended_badly:
        return console
    found = (
        [log for log in logged if log.has_start]
        or [log for log in logged if not log.is_empty]
        or [console]
    )
    # A process that only fills caches makes no inference.
    return max(found, key=lambda log: (log.has_inferences, log.stage, len(log.echoed)))
