"""Runs that outlive the link: started in the background on the phone, waited for, killed by their
own pids.
"""

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
from orchestrator.devices.link import PhoneLink, files_of
from orchestrator.devices.sockets import quote, reason_of, writing_failure
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
#: Told a phone's absence in words, and whether it is away.
TellAway = Callable[[str, bool], None]
#: In front of a run's folder in its wrapper's command line, so that strays are told from other
#: processes.
LABEL: Final = "benchfarm-run:"
_OUTPUT_LIMIT_BYTES: Final = 64 << 20
#: What the script that shortens outputs counts in.
_BLOCK_BYTES: Final = 1 << 16
#: A file up to this size comes with the news of the run's end; a larger one takes its own time.
_SMALL_BYTES: Final = 256 << 10
#: One wait on the phone lasts no longer than that, so that a link that died without a word is
#: noticed, and a run whose shell was killed.
_LONGEST_WAIT_S: Final = 5.0
#: What a phone may take to copy two outputs' ends.
_SHORTENING_S: Final = 120.0
#: The phone sleeps in steps of that: what a wake-up costs that doesn't come.
WAIT_STEP_S: Final = 0.5
#: What a round trip may take beside the wait itself.
_ANSWER_S: Final = 15.0
#: How long a phone is waited for when all is done; what is left goes with the next kill_strays.
_CLOSING_S: Final = 3.0
#: A phone that is busy takes its time for the first step of a run's shell.
_BEGIN_S: Final = 20.0
#: Until a run whose process has gone is looked at again.
_GONE_PAUSE_S: Final = 1.0
#: After the run's own deadline: for getting the phone back and stopping what runs there.
_CLEANUP_S: Final = 30.0
#: How long a killed process may take to be gone: one that waits for a driver dies late.
_DYING_S: Final = 10.0
_DYING_PAUSE_S: Final = 0.05


@frozen
class _Look:
    """What a wait on the phone ended with.

    ``done``, ``running``, ``begins`` (its shell hasn't told its number yet), ``never began`` (for a
    long time), ``gone`` (no such process, no exit code).
    """

    word: str
    exit_code: int | None = None
    #: The program has ended, and what ran beside it hasn't.
    has_rest: bool = False
    #: Whether the phone rebooted since the run began.
    rebooted: bool = False
    #: The run's files, where they came whole with the news of its end.
    files: Sequence[bytes | None] | None = None


class _Absence:
    """A phone that is away while its run is waited for: told once, and its end."""

    def __init__(self, tell: TellAway) -> None:
        self._tell = tell
        self._has_begun = False

    def begin(self, what: str, left_s: float) -> None:
        """Tell that the phone is away, unless that is told; it is waited for no longer than
        ``left_s``.
        """
        if not self._has_begun:
            self._has_begun = True
            waits = f"it is waited for up to {format_duration(left_s)}"
            self._tell(f"{what}: its run may go on without us; {waits}", True)

    def end(self) -> None:
        """Tell that the phone is back, if it was away."""
        if self._has_begun:
            self._tell("is back", False)


class DetachedRuns(PhoneLink):
    """A phone's runs of ours, each in a folder of its own: a part of AdbDevice."""

    def __init__(self, folder: str) -> None:
        """``folder`` is that of all runs."""
        #: Hears that the phone is away while its run is waited for, and that it is back.
        self.on_away: TellAway = lambda text, is_away: None
        self._runs_folder = folder
        #: Folders of runs that have certainly ended.
        self._ended: set[str] = set()
        #: Those of which nobody could say so while the phone was waited for: the next kill_strays
        #: ends them.
        self._left: set[str] = set()
        #: Those whose removal goes with the next command.
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
        """See Device.run_detached. A lost link is mended while the run goes on; it is lost only
        with its phone.

        Raises DeviceChangedError (rebooted in mid-run), DeviceCommandError (can't be started, or
        its shell was killed), LinkLostError and others when the phone couldn't be got back by the
        deadline.
        """
        folder, names = self.run_folder(run_id), ("out", "err", *files)
        self._left.discard(folder)
        clock = self.clock
        begun_s = clock.monotonic_s()
        try:
            look = self._wait(command, folder, names, Deadline(timeout_s, clock), cancelled)
        except BaseException:
            # Whatever ends the wait, nothing may go on heating the phone.
            with contextlib.suppress(DeviceError):
                self._end_run(folder, self._kill)
            raise
        duration_s = clock.monotonic_s() - begun_s
        was_cancelled = cancelled is not None and cancelled.is_set()
        if look.word in {"running", "begins"}:
            self._end_run(folder, lambda folders: self._after_all(lambda: self._kill(folders)))
        elif look.word in {"gone", "never began"}:
            self._check_writing(folder, what="the run's output")
            raise self._why_gone(folder, has_begun=look.word == "gone")
        elif look.has_rest:
            # Its figure is whole; what can't be ended goes with the folder's removal, or with the
            # next kill_strays.
            with contextlib.suppress(DeviceError):
                self._end_run(folder, self._kill)
        else:
            self._ended.add(folder)
        read = look.files if look.files is not None else self._read(folder, names)
        found = {name: data for name, data in zip(names, read, strict=True) if data is not None}
        return ProcessResult(
            exit_code=look.exit_code,
            stdout=found.pop("out", b""),
            stderr=found.pop("err", b""),
            timed_out=look.word in {"running", "begins"} and not was_cancelled,
            duration_s=duration_s,
            files=found,
        )

    def _end_run(self, folder: str, kill: Callable[[Sequence[str]], None]) -> None:
        """End a run; where that fails the phone isn't waited for once more: it is left to the next
        kill_strays.
        """
        self._left.add(folder)
        kill([folder])
        self._left.discard(folder)
        self._ended.add(folder)

    def _after_all(self, operation: Callable[[], _T]) -> _T:
        """Do what a run's end needs; also a phone that hangs is waited for."""
        return self.again(operation, through_s=_CLEANUP_S)

    def _read(self, folder: str, names: Sequence[str]) -> Sequence[bytes | None]:
        paths = [f"{folder}/{name}" for name in names]
        shorten = call("shorten", OUTPUT_MOST_BYTES // 2 // _BLOCK_BYTES, folder, "out", "err")

        def read() -> Sequence[bytes | None]:
            self.shell(shorten, timeout_s=_SHORTENING_S, what="shortening a run's output")
            return self.read_files(paths, limit_bytes=_OUTPUT_LIMIT_BYTES)

        return self._after_all(read)

    def _check_writing(self, folder: str, *, what: str) -> None:
        """Raise what keeps a run's folder from being written: a run fails in many ways then, few of
        which say so.
        """
        probe = call("probe_writing", folder, self._runs_folder)
        result = self._after_all(lambda: self.shell(probe, what="writing on the phone"))
        said = (result.stderr or result.stdout).decode("utf-8", "replace")
        if (
            result.exit_code != 0
            and (error := writing_failure(said, serial=self.serial, what=what)) is not None
        ):
            raise error

    def _why_gone(self, folder: str, *, has_begun: bool) -> DeviceError:
        """Return the error for a run whose shell ended without an exit code."""
        (said,) = self._after_all(
            lambda: self.read_files([f"{folder}/shell.err"], limit_bytes=_SMALL_BYTES)
        )
        why = (said or b"").decode("utf-8", "replace").strip()[-400:]
        if not has_begun and not why:
            # Whatever kept it from that, another try has a folder of its own.
            return TransferError(
                f"the run in {folder} didn't begin within {_BEGIN_S:g} s", serial=self.serial
            )
        return DeviceCommandError(
            f"the run in {folder} ended without an exit code: "
            + (f"its shell said: {why}" if why else "its shell was killed"),
            serial=self.serial,
            hint="short of memory? close apps; the phone's log says more: adb logcat -b all",
        )

    def discard_run(self, run_id: RunId) -> None:
        """See Device.discard_run: no round trip of its own; what can't be removed goes with the
        next kill_strays.
        """
        folder = self.run_folder(run_id)
        if folder in self._left:
            # It isn't waited for a second time.
            self._left.discard(folder)
            return
        with contextlib.suppress(DeviceError):
            if folder not in self._ended:
                # Without its folder nobody would find what still runs.
                self.again(lambda: self._kill([folder]))
            self._ended.discard(folder)
            self._discarded.append(folder)

    def with_removals(self, script: str) -> str:
        """Return a script with the removal of discarded runs in front; it may be sent twice."""
        folders = " ".join(map(quote, self._discarded))
        self._discarded.clear()
        return f"rm -rf {folders} 2>/dev/null\n{script}" if folders else script

    def close(self) -> None:
        """See Device.close: remove what was discarded; nothing else is held."""
        if self._discarded:
            with contextlib.suppress(DeviceError):
                self.shell(self.with_removals(":"), timeout_s=_CLOSING_S, what="removing a run")

    def look_for_strays(self) -> dict[str, str]:
        """Return scripts that report the runs that there are, and then all processes, to
        `end_strays`; they exit.
        """
        return {
            "strays": self.with_removals(call("strays", self._runs_folder)),
            "processes": call("processes"),
        }

    def kill_strays(self) -> Sequence[str]:
        """Kill every run of ours that is still alive, remove all runs' folders, and return what was
        killed.
        """
        look = self.look_for_strays()
        return self.end_strays(
            self.again(lambda: self.ask(look, what="looking for strays", must=True))
        )

    def end_strays(self, answer: Answer) -> Sequence[str]:
        """Do the same with what `look_for_strays` has just told."""
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
        self.again(lambda: self.must(f"rm -rf {folders}", what="removing old runs"))
        return [f"run {name} (pid {runs[name] or 'unknown'})" for name in alive]

    def _kill(self, folders: Sequence[str]) -> None:
        """Kill runs with all their processes and make sure of it.

        Raises DeviceCommandError when one stays.
        """
        known: set[int] = set()
        look = {"pids": call("forbid", *folders), "processes": call("processes")}
        dying: Deadline | None = None
        pause_s = 0.0
        while True:
            answer = self.ask(look, what="looking for a run", must=True)
            processes = self._processes(answer.text("processes"))
            ours = {
                p.pid
                for p in processes
                if any(f"{LABEL}{folder}" in p.command for folder in folders)
            }
            recorded = {int(pid) for pid in answer.value("pids").split() if pid.isdigit()}
            # A recorded pid counts as the leader of a group only: the number itself may belong to a
            # stranger by now.
            groups = {p.pid for p in processes if p.group in recorded}
            known = (known & {p.pid for p in processes}) | set(family(processes, ours | groups))
            alive = sorted(pid for pid in known if pid > 1)
            if not alive:
                return
            if dying is not None and dying.expired:
                raise DeviceCommandError(
                    f"processes {alive} can't be killed",
                    serial=self.serial,
                    hint="reboot the phone",
                )
            self.shell("kill -9 " + " ".join(map(str, alive)), what="killing a run")
            dying = dying or Deadline(_DYING_S, self.clock)
            # Nearly all are gone at once.
            self.clock.wait(pause_s)
            pause_s = min(1.0, 2 * pause_s or _DYING_PAUSE_S)

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
    ) -> _Look:
        """Start the run and wait for its end, however often the link is lost meanwhile."""
        # It starts the run once, however often it is sent.
        token = secrets.token_hex(8)
        if folder in self._discarded:
            # The same run once more. A start may be sent twice, so that the removal can't go with
            # it.
            removal = self.with_removals(":")
            self.again(lambda: self.must(removal, what="removing a run"))
        start = {
            "start": call(
                "start", self._runs_folder, folder, token, command, text("run"), text("sampler")
            )
        }
        begins: Deadline | None = None
        was_gone = False
        while True:
            look_again = partial(
                self._look, folder, names, start=start, deadline=deadline, cancelled=cancelled
            )
            # The run goes on without us: its deadline is when we stop it, so the phone is waited
            # for a little longer.
            through_s = deadline.remaining_s + _CLEANUP_S
            absence = _Absence(self.on_away)
            try:
                look = self.again(
                    look_again, through_s=through_s, cancelled=cancelled, on_away=absence.begin
                )
            except InterruptedByUserError:
                return _Look(word="running")
            absence.end()
            start = {}
            if look.rebooted:
                raise DeviceChangedError("the phone rebooted in mid-run", serial=self.serial)
            if look.word == "begins":
                begins = begins or Deadline(_BEGIN_S, self.clock)
                if begins.expired:
                    return replace(look, word="never began")
            if look.word == "gone" and not was_gone:
                # A phone that goes down ends its processes before its link: a moment later it is
                # known to have done so.
                was_gone = True
                self.clock.wait(_GONE_PAUSE_S, cancelled)
                continue
            if look.word not in {"running", "begins"} or deadline.expired:
                return look

    def _look(
        self,
        folder: str,
        names: Sequence[str],
        *,
        start: Mapping[str, str],
        deadline: Deadline,
        cancelled: threading.Event | None,
    ) -> _Look:
        """Have the phone wait for the end of a run, not past its deadline, and tell how it is.

        Its files come with that, unless there is a large one or one arrives damaged.
        """
        span_s = min(_LONGEST_WAIT_S, deadline.remaining_s)
        step_s = min(WAIT_STEP_S, span_s)
        steps = math.ceil(span_s / step_s) if step_s else 0
        what = "starting a run" if start else "waiting for a run"
        scripts = {
            **start,
            "wait": call("wait", folder, f"{step_s:g}", steps),
            "read": call("read_files", mark(), _SMALL_BYTES, *names),
        }
        answer = self.ask(scripts, timeout_s=span_s + _ANSWER_S, cancelled=cancelled, what=what)
        ended = re.search(
            r"^(done (\d+)( left)?|running|begins|gone)\n(.*)\n(.*)$", answer.text("wait"), re.M
        )
        if ended is None:
            what = "starting a run failed" if start else f"{folder} is gone"
            said = answer.stderr.decode("utf-8", "replace").strip()
            if (why := writing_failure(said, serial=self.serial, what=what)) is not None:
                raise why
            self._check_writing(folder, what=what)
            # Its start was cut off halfway, or somebody removed it; another try has its own.
            raise TransferError(f"{what}: {reason_of(answer)}", serial=self.serial)
        word, exit_code, left, begun, now = ended.groups()
        rebooted = bool(begun) and bool(now) and begun != now
        if exit_code is None:
            return _Look(word=word, rebooted=rebooted)
        files = None if left else files_of(answer, len(names))
        return _Look(
            word="done",
            exit_code=int(exit_code),
            has_rest=bool(left),
            rebooted=rebooted,
            files=files,
        )


@frozen
class PhoneProcess:
    """One process; ``group`` is 0 when ps doesn't tell."""

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
    """Return the pids that live of these leaders: themselves, their process groups and all their
    descendants.
    """
    members = set(leaders)
    members |= {process.pid for process in processes if process.group in members}
    while grown := {process.pid for process in processes if process.parent in members} - members:
        members |= grown
    alive = {process.pid for process in processes}
    return sorted(members & alive)


def folder_name(run_id: RunId) -> str:
    """Return the name of a run's folder.

    Raises UsageError for an id that could lead out of the folder above.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", run_id):
        raise UsageError(f"{run_id!r} can't be a run's id: letters, digits, '_', '-' and '.' only")
    return str(run_id)
