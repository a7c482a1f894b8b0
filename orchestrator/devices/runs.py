"""Runs that outlive the link: started in the background on the phone, awaited, killed by pid."""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from orchestrator.clock import Deadline
from orchestrator.devices.link import PhoneLink, parse_files
from orchestrator.devices.sockets import failure_reason, quote, writing_failure
from orchestrator.errors import (
    DeviceChangedError,
    DeviceCommandError,
    DeviceError,
    InterruptedByUserError,
    TransferError,
    UsageError,
)
from orchestrator.files import OUTPUT_MOST_BYTES
from orchestrator.frozen import frozen
from orchestrator.ports import ProcessResult
from orchestrator.records.case import RunId
from orchestrator.scripts import Answer, call, mark, text
from orchestrator.units import format_duration

_T = TypeVar("_T")
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
#: How long a killed process may take to end: one that waits for a driver ends late.
_KILL_TIMEOUT_S: Final = 10.0
_KILL_PAUSE_S: Final = 0.05


@frozen
class _RunState:
    """The state of a run after a wait on the phone.

    ``done``, ``running``, ``begins`` (its shell hasn't written its pid yet), ``never began`` (for a
    long time), ``gone`` (no such process, no exit code).
    """

    word: str
    exit_code: int | None = None
    #: The program has ended, but not the processes beside it.
    has_leftovers: bool = False
    #: Whether the phone rebooted since the run began.
    rebooted: bool = False
    #: The run's files, if they came whole with the message of its end.
    files: Sequence[bytes | None] | None = None


class _OfflineReport:
    """An offline phone while its run is awaited: reported once, and again when it is back."""

    def __init__(self, report: ReportAway) -> None:
        self._report = report
        self._has_begun = False

    def begin(self, reason: str, left_s: float) -> None:
        """Report once that the phone is offline and awaited for at most ``left_s``."""
        if not self._has_begun:
            self._has_begun = True
            limit = format_duration(left_s)
            self._report(f"{reason}: its run may continue; waiting up to {limit} for it", True)

    def end(self) -> None:
        """Report that the phone is back, if it was reported offline."""
        if self._has_begun:
            self._report("is back", False)


class DetachedRuns(PhoneLink):
    """Our runs on a phone, each in its own folder: a part of AdbDevice."""

    def __init__(self, folder: str) -> None:
        """``folder`` holds the folders of all runs."""
        #: Called when the phone goes offline while its run is awaited, and when it is back.
        self.on_offline: ReportAway = lambda text, is_away: None
        self._runs_folder = folder
        #: Folders of runs that certainly have ended.
        self._ended: set[str] = set()
        #: Folders of runs that couldn't be ended: the next kill_leftover_runs ends them.
        self._unfinished: set[str] = set()
        #: Folders to be removed with the next command.
        self._discarded: list[str] = []

    def run_folder(self, run_id: RunId) -> str:
        """See Device.run_folder; raises UsageError for an id that can't be the name of one."""
        return f"{self._runs_folder}/{folder_name(run_id)}"

    def run_detached(
        self,
        command: str,
        *,
        run_id: RunId,
        timeout_s: float,
        files: Sequence[str] = (),
        cancelled: threading.Event | None = None,
    ) -> ProcessResult:
        """See Device.run_detached. The run continues while a lost link is reconnected.

        Raises DeviceChangedError (rebooted in mid-run), DeviceCommandError (can't be started, or
        its shell was killed), LinkLostError and others when the phone didn't reconnect by the
        deadline.
        """
        folder, names = self.run_folder(run_id), ("out", "err", *files)
        self._unfinished.discard(folder)
        clock = self.clock
        begun_s = clock.monotonic_s()
        try:
            state = self._wait(command, folder, names, Deadline(timeout_s, clock), cancelled)
        except BaseException:
            # However the wait ends, the run mustn't keep heating the phone.
            with contextlib.suppress(DeviceError):
                self._end_run(folder, self._kill)
            raise
        duration_s = clock.monotonic_s() - begun_s
        was_cancelled = cancelled is not None and cancelled.is_set()
        if state.word in {"running", "begins"}:
            self._end_run(
                folder, lambda folders: self._retry_in_cleanup(lambda: self._kill(folders))
            )
        elif state.word in {"gone", "never began"}:
            self._check_writing(folder, action="the run's output")
            raise self._early_end_error(folder, has_begun=state.word == "gone")
        elif state.has_leftovers:
            # Its result is complete; processes that can't be killed now are left to the next
            # kill_leftover_runs.
            with contextlib.suppress(DeviceError):
                self._end_run(folder, self._kill)
        else:
            self._ended.add(folder)
        file_contents = state.files if state.files is not None else self._read(folder, names)
        contents = {
            name: data for name, data in zip(names, file_contents, strict=True) if data is not None
        }
        return ProcessResult(
            exit_code=state.exit_code,
            stdout=contents.pop("out", b""),
            stderr=contents.pop("err", b""),
            timed_out=state.word in {"running", "begins"} and not was_cancelled,
            duration_s=duration_s,
            files=contents,
        )

    def _end_run(self, folder: str, kill: Callable[[Sequence[str]], None]) -> None:
        """End a run; after a failure it is left to the next kill_leftover_runs, without another wait."""
        self._unfinished.add(folder)
        kill([folder])
        self._unfinished.discard(folder)
        self._ended.add(folder)

    def _retry_in_cleanup(self, operation: Callable[[], _T]) -> _T:
        """Run an operation at a run's end, with retries, also on a phone that hangs."""
        return self.retry(operation, retry_s=_CLEANUP_S)

    def _read(self, folder: str, names: Sequence[str]) -> Sequence[bytes | None]:
        paths = [f"{folder}/{name}" for name in names]
        shorten = call("shorten", OUTPUT_MOST_BYTES // 2 // _BLOCK_BYTES, folder, "out", "err")

        def read() -> Sequence[bytes | None]:
            self.shell(shorten, timeout_s=_SHORTENING_S, action="shortening a run's output")
            return self.read_files(paths, limit_bytes=_OUTPUT_LIMIT_BYTES)

        return self._retry_in_cleanup(read)

    def _check_writing(self, folder: str, *, action: str) -> None:
        """Raise the error if a run's folder isn't writable: a run fails in many ways then, few of
        which say so.
        """
        probe = call("probe_writing", folder, self._runs_folder)
        result = self._retry_in_cleanup(lambda: self.shell(probe, action="writing on the phone"))
        output = (result.stderr or result.stdout).decode("utf-8", "replace")
        if (
            result.exit_code != 0
            and (error := writing_failure(output, serial=self.serial, action=action)) is not None
        ):
            raise error

    def _early_end_error(self, folder: str, *, has_begun: bool) -> DeviceError:
        """Return the error for a run whose shell ended without an exit code."""
        (shell_errors,) = self._retry_in_cleanup(
            lambda: self.read_files([f"{folder}/shell.err"], limit_bytes=_SMALL_BYTES)
        )
        why = (shell_errors or b"").decode("utf-8", "replace").strip()[-400:]
        if not has_begun and not why:
            # Transient: another try uses a new folder.
            return TransferError(
                f"the run in {folder} didn't begin within {_BEGIN_S:g} s", serial=self.serial
            )
        return DeviceCommandError(
            f"the run in {folder} ended without an exit code: "
            + (f"its shell said: {why}" if why else "its shell was killed"),
            serial=self.serial,
            hint="short of memory? close apps; the phone's log has more: adb logcat -b all",
        )

    def discard_run(self, run_id: RunId) -> None:
        """See Device.discard_run: needs no round trip; the next kill_leftover_runs removes the rest."""
        folder = self.run_folder(run_id)
        if folder in self._unfinished:
            # The phone was awaited already.
            self._unfinished.discard(folder)
            return
        with contextlib.suppress(DeviceError):
            if folder not in self._ended:
                # Without its folder a run that continues couldn't be found.
                self.retry(lambda: self._kill([folder]))
            self._ended.discard(folder)
            self._discarded.append(folder)

    def with_removals(self, script: str) -> str:
        """Return a script with the removal of discarded runs in front; it may be sent twice."""
        folders = " ".join(map(quote, self._discarded))
        self._discarded.clear()
        return f"rm -rf {folders} 2>/dev/null\n{script}" if folders else script

    def close(self) -> None:
        """See Device.close: remove the discarded runs; nothing else is held."""
        if self._discarded:
            with contextlib.suppress(DeviceError):
                self.shell(self.with_removals(":"), timeout_s=_CLOSING_S, action="removing a run")

    def leftover_run_scripts(self) -> dict[str, str]:
        """Return scripts that print our runs and all processes for `end_leftover_runs`.

        They end the request when there are no runs.
        """
        return {
            "strays": self.with_removals(call("strays", self._runs_folder)),
            "processes": call("processes"),
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
        leaders = {
            process.pid: name
            for process in processes
            for name, pid in runs.items()
            if f"{LABEL}{self._runs_folder}/{name}" in process.command
            or (pid and process.group == int(pid))
        }
        alive = sorted(set(leaders.values()))
        if alive:
            self._kill([f"{self._runs_folder}/{name}" for name in alive])
        folders = " ".join(quote(f"{self._runs_folder}/{name}") for name in runs)
        self.retry(lambda: self.must(f"rm -rf {folders}", action="removing old runs"))
        return [f"run {name} (pid {runs[name] or 'unknown'})" for name in alive]

    def _kill(self, folders: Sequence[str]) -> None:
        """Kill runs with all their processes and wait for their end.

        Raises DeviceCommandError when a process stays alive.
        """
        pids: set[int] = set()
        scripts = {"pids": call("forbid", *folders), "processes": call("processes")}
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
        if (
            not processes
        ):  # not even ps itself: reading it as "nothing runs" would leave runs behind
            raise DeviceCommandError(
                f"the phone's ps can't be read: {table[:200]!r}", serial=self.serial
            )
        return processes

    def _wait(
        self,
        command: str,
        folder: str,
        names: Sequence[str],
        deadline: Deadline,
        cancelled: threading.Event | None,
    ) -> _RunState:
        """Start the run and wait for its end, however often the link is lost meanwhile."""
        # By the token the run starts once, however often the script is sent.
        token = secrets.token_hex(8)
        if folder in self._discarded:
            # The same run again. A start may be sent twice, so the removal needs its own command.
            removal = self.with_removals(":")
            self.retry(lambda: self.must(removal, action="removing a run"))
        start = {
            "start": call(
                "start", self._runs_folder, folder, token, command, text("run"), text("sampler")
            )
        }
        begin_deadline: Deadline | None = None
        was_gone = False
        while True:
            poll_run = partial(
                self._poll_run, folder, names, start=start, deadline=deadline, cancelled=cancelled
            )
            # The run continues offline; we stop it at its deadline, so the phone is awaited a
            # little longer.
            retry_s = deadline.remaining_s + _CLEANUP_S
            offline_report = _OfflineReport(self.on_offline)
            try:
                state = self.retry(
                    poll_run, retry_s=retry_s, cancelled=cancelled, on_offline=offline_report.begin
                )
            except InterruptedByUserError:
                return _RunState(word="running")
            offline_report.end()
            start = {}
            if state.rebooted:
                raise DeviceChangedError("the phone rebooted in mid-run", serial=self.serial)
            if state.word == "begins":
                begin_deadline = begin_deadline or Deadline(_BEGIN_S, self.clock)
                if begin_deadline.expired:
                    return replace(state, word="never began")
            if state.word == "gone" and not was_gone:
                # A phone that shuts down ends its processes before its link: poll again a moment
                # later.
                was_gone = True
                self.clock.wait(_GONE_PAUSE_S, cancelled)
                continue
            if state.word not in {"running", "begins"} or deadline.expired:
                return state

    def _poll_run(
        self,
        folder: str,
        names: Sequence[str],
        *,
        start: Mapping[str, str],
        deadline: Deadline,
        cancelled: threading.Event | None,
    ) -> _RunState:
        """Let the phone wait for a run's end, at most until its deadline; return the run's state.

        It includes the files, unless one is large or arrives damaged.
        """
        span_s = min(_LONGEST_WAIT_S, deadline.remaining_s)
        step_s = min(WAIT_STEP_S, span_s)
        steps = math.ceil(span_s / step_s) if step_s else 0
        action = "starting a run" if start else "waiting for a run"
        scripts = {
            **start,
            "wait": call("wait", folder, f"{step_s:g}", steps),
            "read": call("read_files", mark(), _SMALL_BYTES, *names),
        }
        answer = self.ask(scripts, timeout_s=span_s + _ANSWER_S, cancelled=cancelled, action=action)
        match = re.search(
            r"^(done (\d+)( left)?|running|begins|gone)\n(.*)\n(.*)$", answer.text("wait"), re.M
        )
        if match is None:
            action = "starting a run failed" if start else f"{folder} is gone"
            output = answer.stderr.decode("utf-8", "replace").strip()
            if (why := writing_failure(output, serial=self.serial, action=action)) is not None:
                raise why
            self._check_writing(folder, action=action)
            # Its start was cut off, or somebody removed it; another try uses a new folder.
            raise TransferError(f"{action}: {failure_reason(answer)}", serial=self.serial)
        word, exit_code, leftovers, boot_before, boot_now = match.groups()
        rebooted = bool(boot_before) and bool(boot_now) and boot_before != boot_now
        if exit_code is None:
            return _RunState(word=word, rebooted=rebooted)
        files = None if leftovers else parse_files(answer, len(names))
        return _RunState(
            word="done",
            exit_code=int(exit_code),
            has_leftovers=bool(leftovers),
            rebooted=rebooted,
            files=files,
        )


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


def folder_name(run_id: RunId) -> str:
    """Return the name of a run's folder.

    Raises UsageError for an id that could lead out of its parent folder.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", run_id):
        raise UsageError(f"{run_id!r} can't be a run's id: letters, digits, '_', '-' and '.' only")
    return str(run_id)
