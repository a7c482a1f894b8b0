"""Runs that outlive the link: started in the background on the phone, awaited, killed by pid.

    begins -> running -> done | leftovers            it ended by itself
    begins, running -> overdue | cancelled           it is killed
    begins -> never began, running -> vanished -> gone, any -> rebooted    errors

    done, leftovers, overdue, cancelled -> ended | unfinished -> discarded -> its folder is removed

While the phone is offline its run stays in the state that was seen last.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from shlex import quote
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.link import PhoneLink, parse_files
from orchestrator.devices.retries import OFFLINE, ONE_TRY, Retry, until
from orchestrator.errors import (
    DeviceChangedError,
    DeviceCommandError,
    DeviceError,
    InterruptedByUserError,
    TransferError,
)
from orchestrator.files import OUTPUT_MOST_BYTES
from orchestrator.ports import DetachedCommand, ProcessResult
from orchestrator.records import frozen
from orchestrator.records.case import RunId, run_folder_name
from orchestrator.scripts import (
    Answer,
    failure_reason,
    script_command,
    script_text,
    section_mark,
    writing_failure,
)
from orchestrator.units import format_duration

#: Called with a text about an offline phone, and whether it is offline.
ReportAway = Callable[[str, bool], None]
#: In front of a run's folder in its wrapper's command line: identifies leftover runs.
LABEL: Final = "benchfarm-run:"
_OUTPUT_LIMIT_BYTES: Final = 64 << 20
#: The unit of the script that shortens outputs.
_BLOCK_BYTES: Final = 1 << 16
#: A file up to this size comes with the message of the run's end; a larger one is read apart.
_SMALL_BYTES: Final = 256 << 10
#: Longest wait on the phone, so that a silently dead link or a killed shell of a run is noticed.
_LONGEST_WAIT_S: Final = 5.0
#: Timeout for copying the ends of two outputs.
_SHORTENING_S: Final = 120.0
#: The phone's sleep steps while it waits: the delay when it isn't woken.
WAIT_STEP_S: Final = 0.5
#: Timeout of a round trip beside the wait itself.
_ANSWER_S: Final = 15.0
#: Timeout for the last removal; the next kill_leftover_runs removes the rest.
_CLOSING_S: Final = 3.0
#: A busy phone may take this long for the first step of a run's shell.
_BEGIN_S: Final = 20.0
#: Pause before a run without a process is polled again.
_GONE_PAUSE_S: Final = 1.0
#: Time after a run's deadline for reconnecting the phone and stopping the run.
_CLEANUP_S: Final = 30.0
#: A link that breaks later than that has this time.
_SHORTEST_AWAY_S: Final = 10.0
#: How long a killed process may take to end: one that waits for a driver ends late.
_KILL_TIMEOUT_S: Final = 10.0
_KILL_PAUSE_S: Final = 0.05


class RunState(StrEnum):
    """Where a run stands."""

    #: Its shell hasn't written its pid yet.
    BEGINS = "begins"
    RUNNING = "running"
    #: It has neither a process nor an exit code: a phone that shuts down ends its processes before
    #: its link, so it is polled once more.
    VANISHED = "vanished"
    DONE = "done"
    #: The program has ended, but not its helper processes.
    LEFTOVERS = "leftovers"
    OVERDUE = "overdue"
    CANCELLED = "cancelled"
    NEVER_BEGAN = "never began"
    GONE = "gone"
    REBOOTED = "rebooted"
    #: All of its processes have ended.
    ENDED = "ended"
    #: They couldn't be ended: the next kill_leftover_runs does it.
    UNFINISHED = "unfinished"
    #: The next command removes its folder.
    DISCARDED = "discarded"


_AWAITED: Final = frozenset({RunState.BEGINS, RunState.RUNNING, RunState.VANISHED})
#: Behind the output of ``wait.sh``: its state, the phone's boot ids when it began and now, and the
#: phone's uptimes at its end and now.
_WAIT_LINES: Final = (
    r"^(done (\d+)( left)?|running|begins|gone)\n(.*)\n(.*)(?:\n([\d.]*) ([\d.]*))?$"
)


@dataclass(kw_only=True)
class _Run:
    """One run on a phone, from its start to reading its files."""

    phone: DetachedRuns
    command: DetachedCommand
    #: Its own folder there, and the files that it leaves in it.
    folder: str
    names: Sequence[str]
    deadline: Deadline
    state: RunState = RunState.BEGINS
    #: Whether the phone was reported offline.
    is_away: bool = False
    exit_code: int | None = None
    #: How long before the last answer it had ended, while its phone was offline.
    ended_ago_s: float = 0.0
    #: Those of its files, if they came whole with the message of its end.
    contents: Sequence[bytes | None] | None = None
    begin_deadline: Deadline | None = None

    def follow(self) -> None:
        """Start the run and wait for its end, however often the link is lost meanwhile."""
        # By the token the run starts once, however often the script is sent.
        token = secrets.token_hex(8)
        folders = self.phone.runs_folder, self.folder
        scripts = script_text("run"), script_text("sampler")
        start = {"start": script_command("start", *folders, token, self.command.line, *scripts)}
        # The run continues offline; we stop it at its deadline, so the phone is awaited a little
        # longer.
        away_s = min(self.command.timeout_s, self.command.away_s) + _CLEANUP_S
        rule = until(_SHORTEST_AWAY_S, Deadline(away_s, self.phone.clock))
        while self.state in _AWAITED:
            poll, polled = partial(self._poll, start), Deadline(0.0, self.phone.clock)
            try:
                match, answer = self.phone.retry(
                    poll, rule, cancelled=self.command.cancelled, on_away=self._leave
                )
            except InterruptedByUserError:
                self.state = RunState.CANCELLED
                return
            if self.is_away:
                self.is_away = False
                ended, now = match.groups()[-2:]
                if ended and now:
                    self.ended_ago_s = min(float(now) - float(ended), polled.elapsed_s)
                self.phone.on_offline("is back", False)
            start = {}
            self.state = self._next_state(match, answer)
            if self.state is RunState.VANISHED:
                self.phone.clock.wait(_GONE_PAUSE_S, self.command.cancelled)

    def _leave(self, left_s: float) -> None:
        """Report once that the phone is offline."""
        if not self.is_away:
            self.is_away = True
            reason = "doesn't answer" if self.phone.hangs else "can't be reached"
            limit = format_duration(left_s)
            self.phone.on_offline(
                f"{reason}: its run may continue; waiting up to {limit} for it", True
            )

    def _poll(self, start: Mapping[str, str]) -> tuple[re.Match[str], Answer]:
        """Let the phone wait for the run's end, at most until its deadline.

        The answer includes the files, unless one is large or arrives damaged.
        """
        span_s = min(_LONGEST_WAIT_S, self.deadline.remaining_s)
        step_s = min(WAIT_STEP_S, span_s)
        steps = math.ceil(span_s / step_s) if step_s else 0
        scripts = {
            **start,
            "wait": script_command("wait", self.folder, f"{step_s:g}", steps),
            "read": script_command("read_files", section_mark(), _SMALL_BYTES, *self.names),
        }
        answer = self.phone.ask(
            scripts,
            timeout_s=span_s + _ANSWER_S,
            cancelled=self.command.cancelled,
            action="starting a run" if start else "waiting for a run",
        )
        match = re.search(_WAIT_LINES, answer.text("wait"), re.M)
        if match is None:
            action = "starting a run failed" if start else f"{self.folder} is gone"
            output = answer.stderr.decode("utf-8", "replace").strip()
            failure = writing_failure(output, serial=self.phone.serial, action=action)
            if failure is not None:
                raise failure
            self._check_writing(action)
            # Its start was cut off, or somebody removed it; another try uses a new folder.
            raise TransferError(f"{action}: {failure_reason(answer)}", serial=self.phone.serial)
        return match, answer

    def _next_state(self, match: re.Match[str], answer: Answer) -> RunState:
        """Return the state after an answer of the phone, and keep what came with the run's end."""
        line, exit_code, leftovers, boot_before, boot_now, *_ = match.groups()
        if boot_before and boot_now and boot_before != boot_now:
            return RunState.REBOOTED
        if exit_code is not None:
            self.exit_code = int(exit_code)
            if leftovers:
                return RunState.LEFTOVERS
            self.contents = parse_files(answer, len(self.names))
            return RunState.DONE
        state = RunState(line)
        if state is RunState.GONE:
            return state if self.state is RunState.VANISHED else RunState.VANISHED
        if state is RunState.BEGINS:
            self.begin_deadline = self.begin_deadline or Deadline(_BEGIN_S, self.phone.clock)
            if self.begin_deadline.expired:
                return RunState.NEVER_BEGAN
        return RunState.OVERDUE if self.deadline.expired else state

    def files(self) -> dict[str, bytes]:
        """Return the contents of its files by name; of long outputs both ends."""
        files = self.contents if self.contents is not None else self._read()
        return {
            name: data for name, data in zip(self.names, files, strict=True) if data is not None
        }

    def _read(self) -> Sequence[bytes | None]:
        phone, paths = self.phone, [f"{self.folder}/{name}" for name in self.names]
        blocks = OUTPUT_MOST_BYTES // 2 // _BLOCK_BYTES
        shorten = script_command("shorten", blocks, self.folder, "out", "err")

        def read() -> Sequence[bytes | None]:
            phone.shell(shorten, timeout_s=_SHORTENING_S, action="shortening a run's output")
            return phone.read_files(paths, limit_bytes=_OUTPUT_LIMIT_BYTES)

        return phone.retry(read, until(_CLEANUP_S))

    def _check_writing(self, action: str) -> None:
        """Raise the error if a run's folder isn't writable: a run fails in many ways then, few of
        which say so.
        """
        probe = script_command("probe_writing", self.folder, self.phone.runs_folder)
        result = self.phone.retry(
            lambda: self.phone.shell(probe, action="writing on the phone"), until(_CLEANUP_S)
        )
        output = (result.stderr or result.stdout).decode("utf-8", "replace")
        failure = writing_failure(output, serial=self.phone.serial, action=action)
        if result.exit_code != 0 and failure is not None:
            raise failure

    def early_end_error(self) -> DeviceError:
        """Return the error for a run whose shell ended without an exit code, or never began."""
        self._check_writing("the run's output")
        serial, path = self.phone.serial, f"{self.folder}/shell.err"
        (shell_errors,) = self.phone.retry(
            lambda: self.phone.read_files([path], limit_bytes=_SMALL_BYTES), until(_CLEANUP_S)
        )
        why = (shell_errors or b"").decode("utf-8", "replace").strip()[-400:]
        if self.state is RunState.NEVER_BEGAN and not why:
            # Transient: another try uses a new folder.
            return TransferError(
                f"the run in {self.folder} didn't begin within {_BEGIN_S:g} s", serial=serial
            )
        return DeviceCommandError(
            f"the run in {self.folder} ended without an exit code: "
            + (f"its shell said: {why}" if why else "its shell was killed"),
            serial=serial,
            hint="short of memory? close apps; the phone's log has more: adb logcat -b all",
        )


class DetachedRuns(PhoneLink):
    """Our runs on a phone, each in its own folder: a part of AdbDevice."""

    def __init__(self, folder: str) -> None:
        """``folder`` holds the folders of all runs."""
        #: Called when the phone goes offline while its run is awaited, and when it is back.
        self.on_offline: ReportAway = lambda text, is_away: None
        self.runs_folder = folder
        #: Folder of a run that isn't followed any more -> ended, unfinished or discarded.
        self._states: dict[str, RunState] = {}

    def run_folder(self, run_id: RunId) -> str:
        """See Device.run_folder; raises UsageError for an id that can't be the name of one."""
        return f"{self.runs_folder}/{run_folder_name(run_id)}"

    def run_detached(self, command: DetachedCommand) -> ProcessResult:
        """See Device.run_detached. The run continues while a lost link is reconnected.

        Raises DeviceChangedError (rebooted in mid-run), DeviceCommandError (can't be started, or
        its shell was killed), LinkLostError and others when the phone didn't reconnect by the
        deadline.
        """
        folder, deadline = self.run_folder(command.run_id), Deadline(command.timeout_s, self.clock)
        names = ("out", "err", *command.files)
        run = _Run(phone=self, command=command, folder=folder, names=names, deadline=deadline)
        try:
            self._remove_earlier(folder)
            run.follow()
        except OFFLINE:
            # The phone was awaited already.
            self._states[folder] = RunState.UNFINISHED
            raise
        except BaseException:
            # However the wait ends, the run mustn't keep heating the phone.
            self._try_to_end(folder)
            raise
        duration_s = deadline.elapsed_s - run.ended_ago_s
        match run.state:
            case RunState.DONE:
                self._states[folder] = RunState.ENDED
            case RunState.LEFTOVERS:
                # Its result is complete.
                self._try_to_end(folder)
            case RunState.OVERDUE | RunState.CANCELLED:
                self._end_run(folder, until(_CLEANUP_S))
            case RunState.REBOOTED:
                self._try_to_end(folder)
                raise DeviceChangedError("the phone rebooted in mid-run", serial=self.serial)
            case _:
                raise run.early_end_error()
        contents = run.files()
        return ProcessResult(
            exit_code=run.exit_code,
            stdout=contents.pop("out", b""),
            stderr=contents.pop("err", b""),
            timed_out=run.state is RunState.OVERDUE,
            duration_s=duration_s,
            files=contents,
        )

    def _remove_earlier(self, folder: str) -> None:
        """Remove the folder of the same run, if it was made before: a start may be sent twice, so
        that the removal needs its own command.
        """
        if self._states.get(folder) is RunState.DISCARDED:
            removal = {"removal": self.with_removals(":")}
            self.retry(lambda: self.ask(removal, action="removing a run", must=True))
        self._states.pop(folder, None)

    def _end_run(self, folder: str, rule: Retry) -> None:
        """End a run; after a failure it is left to the next kill_leftover_runs, without another wait."""
        self._states[folder] = RunState.UNFINISHED
        self.retry(lambda: self._kill([folder]), rule)
        self._states[folder] = RunState.ENDED

    def _try_to_end(self, folder: str) -> None:
        with contextlib.suppress(DeviceError):
            self._end_run(folder, ONE_TRY)

    def discard_run(self, run_id: RunId) -> None:
        """See Device.discard_run: needs no round trip; the next kill_leftover_runs removes the rest."""
        folder = self.run_folder(run_id)
        if self._states.get(folder) is RunState.UNFINISHED:
            # The phone was awaited already.
            del self._states[folder]
            return
        with contextlib.suppress(DeviceError):
            if folder not in self._states:
                # Without its folder a run that continues couldn't be found.
                self.retry(lambda: self._kill([folder]))
            self._states[folder] = RunState.DISCARDED

    def with_removals(self, script: str) -> str:
        """Return a script with the removal of discarded runs in front; it may be sent twice."""
        folders = [path for path, state in self._states.items() if state is RunState.DISCARDED]
        for path in folders:
            del self._states[path]
        return (
            f"rm -rf {' '.join(map(quote, folders))} 2>/dev/null\n{script}" if folders else script
        )

    def close(self) -> None:
        """See Device.close: remove the discarded runs; nothing else is held."""
        if removal := self.with_removals(""):
            with contextlib.suppress(DeviceError):
                self.shell(removal, timeout_s=_CLOSING_S, action="removing a run")

    def leftover_run_scripts(self) -> dict[str, str]:
        """Return scripts that print our runs and all processes for `end_leftover_runs`.

        They end the request when there are no runs.
        """
        return {
            "strays": self.with_removals(script_command("strays", self.runs_folder)),
            "processes": script_command("processes"),
        }

    def kill_leftover_runs(self) -> Sequence[str]:
        """Kill our live runs, remove the folders of all, and return the killed ones' names."""
        scripts = self.leftover_run_scripts()
        return self.end_leftover_runs(
            self.retry(lambda: self.ask(scripts, action="looking for leftover runs", must=True))
        )

    def end_leftover_runs(self, answer: Answer) -> Sequence[str]:
        """Do the same with a fresh answer to `leftover_run_scripts`."""
        runs: dict[str, str] = dict(re.findall(r"^run (\S+) ?(\d*)$", answer.text("strays"), re.M))
        if not runs:
            return ()
        processes = self._processes(answer.text("processes"))
        alive = sorted(
            {
                name
                for process in processes
                for name, pid in runs.items()
                if f"{LABEL}{self.runs_folder}/{name}" in process.command
                or (pid and process.group == int(pid))
            }
        )
        if alive:
            self._kill([f"{self.runs_folder}/{name}" for name in alive])
        folders = " ".join(quote(f"{self.runs_folder}/{name}") for name in runs)
        removal = {"removal": f"rm -rf {folders}"}
        self.retry(lambda: self.ask(removal, action="removing old runs", must=True))
        return [f"run {name} (pid {runs[name] or 'unknown'})" for name in alive]

    def _kill(self, folders: Sequence[str]) -> None:
        """Kill runs with all their processes and wait for their end.

        Raises DeviceCommandError when a process stays alive.
        """
        pids: set[int] = set()
        scripts = {
            "pids": script_command("forbid", *folders),
            "processes": script_command("processes"),
        }
        kill_deadline: Deadline | None = None
        pause_s = 0.0
        while True:
            answer = self.ask(scripts, action="looking for a run", must=True)
            processes = self._processes(answer.text("processes"))
            labelled = {
                p.pid
                for p in processes
                if any(f"{LABEL}{folder}" in p.command for folder in folders)
            }
            recorded = {int(pid) for pid in answer.value("pids").split() if pid.isdigit()}
            # A recorded pid counts only as the leader of a group: a foreign process may have got the
            # number since.
            groups = {p.pid for p in processes if p.group in recorded}
            pids = (pids & {p.pid for p in processes}) | set(family(processes, labelled | groups))
            alive = sorted(pid for pid in pids if pid > 1)
            if not alive:
                return
            if kill_deadline is not None and kill_deadline.expired:
                raise DeviceCommandError(
                    f"processes {alive} can't be killed",
                    serial=self.serial,
                    hint="reboot the phone",
                )
            self.shell("kill -9 " + " ".join(map(str, alive)), action="killing a run")
            kill_deadline = kill_deadline or Deadline(_KILL_TIMEOUT_S, self.clock)
            # Nearly all end at once.
            self.clock.wait(pause_s)
            pause_s = min(1.0, 2 * pause_s or _KILL_PAUSE_S)

    def _processes(self, table: str) -> list[PhoneProcess]:
        processes = parse_processes(table)
        # Not even ps itself: reading it as "nothing runs" would leave runs behind.
        if not processes:
            raise DeviceCommandError(
                f"the phone's ps can't be read: {table[:200]!r}", serial=self.serial
            )
        return processes


@frozen
class PhoneProcess:
    """One process; ``group`` is 0 when ps doesn't print it."""

    pid: int
    parent: int
    group: int
    command: str


def parse_processes(text: str) -> list[PhoneProcess]:
    """Read ps with a headline; columns are found by their names, lines that don't fit are left out."""
    lines = text.splitlines()
    head = lines[0].split() if lines else []
    if "PID" not in head or "PPID" not in head:
        return []
    pid, parent = head.index("PID"), head.index("PPID")
    group = head.index("PGID") if "PGID" in head else None
    last = len(head) - 1
    # Old toolbox prints a state letter before the name without naming that column.
    shift = 0 if head[-1] in {"ARGS", "CMD", "COMMAND"} else 1
    processes: list[PhoneProcess] = []
    for line in lines[1:]:
        fields = line.split(None, last + shift)
        if len(fields) <= max(pid, parent, group or 0) or not (
            fields[pid].isdigit() and fields[parent].isdigit()
        ):
            continue
        processes.append(
            PhoneProcess(
                pid=int(fields[pid]),
                parent=int(fields[parent]),
                group=int(fields[group]) if group is not None and fields[group].isdigit() else 0,
                command=fields[-1] if len(fields) > last else "",
            )
        )
    return processes


def family(processes: Sequence[PhoneProcess], leaders: Iterable[int]) -> list[int]:
    """Return the live pids of these leaders, their process groups and all their descendants."""
    members = set(leaders)
    members |= {process.pid for process in processes if process.group in members}
    while children := {process.pid for process in processes if process.parent in members} - members:
        members |= children
    alive = {process.pid for process in processes}
    return sorted(members & alive)
