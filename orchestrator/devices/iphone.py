"""An iPhone on this computer's cable, by the command line of ``pymobiledevice3``.

That program is under the GPL: it is only ever started as a process of its own, never imported.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orchestrator.child_environment import child_environment
from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.errors import DeviceCommandError, DeviceTimeoutError, UsageError

_PROGRAM: Final = "pymobiledevice3"
_FILE_TIMEOUT_S: Final = 600.0
_STOP_S: Final = 5.0
_LOOK_S: Final = 0.2
#: A console that prints more than this isn't a benchmark's.
_MOST_BYTES: Final = 64 << 20
#: What stands before a line of the app: time, host, ``PID:n[pid]``, level. A message's further lines have nothing.
_PREFIX: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* +\S+ +PID:\d{1,9}\[\d{1,9}\] +INFO ?", re.ASCII)
#: A line of the program itself: the same with another name.
_OWN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* +\S+ +[\w.]+\[\d{1,9}\] +[A-Z]+ ", re.ASCII)
_LAUNCHED: Final = re.compile(r"Process launched with pid (\d{1,9})\s*", re.ASCII)
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m", re.ASCII)


def find_command(named: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start pymobiledevice3: as named, installed beside us, or on the PATH.

    Raises UsageError when there is none.
    """
    if named:
        found = shutil.which(named, path=environ.get("PATH"))
        if found is None:
            raise UsageError(f"there is no program {named!r}", hint="--command names pymobiledevice3's program")
        return (found,)
    if find_spec(_PROGRAM) is not None:
        return (sys.executable, "-m", _PROGRAM)
    found = shutil.which(_PROGRAM, path=environ.get("PATH"))
    if found is None:
        raise UsageError(
            "pymobiledevice3, which talks to iPhones, isn't installed",
            hint="pip install 'benchfarm[ios]', or --command PROGRAM; without it: benchfarm ios import",
        )
    return (found,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What an app printed while it was followed."""

    text: str
    #: The app's process on the phone, None when the program didn't say.
    pid: int | None
    #: False when the time was over first.
    is_over: bool


class CabledIPhone:
    """One iPhone; every operation is a process that ends before the call returns."""

    def __init__(
        self, command: Sequence[str], *, udid: str, environ: Mapping[str, str], clock: Clock | None = None
    ) -> None:
        """``command`` starts pymobiledevice3; with an empty ``udid`` the program takes the one phone that there is."""
        self._command = tuple(command)
        self._udid = udid
        self._environ = child_environment(environ, NO_COLOR="1", PYTHONUNBUFFERED="1")
        self._clock = clock or SystemClock()

    def install(self, package: Path) -> None:
        """Install an app; raises DeviceCommandError, DeviceTimeoutError."""
        self._must(("apps", "install"), str(package))

    def push(self, bundle_id: str, local: Path, remote: str) -> None:
        """Put a file into an app's Documents; raises DeviceCommandError, DeviceTimeoutError."""
        self._must(("apps", "push"), "--documents", bundle_id, str(local), remote)

    def end(self, pid: int) -> None:
        """End an app's process; raises DeviceCommandError, DeviceTimeoutError."""
        self._must(("developer", "dvt", "kill"), str(pid))

    def follow(self, bundle_id: str, *, timeout_s: float, quiet_s: float, is_last: Callable[[str], bool]) -> Console:
        """Start an app and return its console's text.

        It is over when nothing came for ``quiet_s`` after a line of which ``is_last`` says that it ends a run, or when
        the program ends by itself. Raises DeviceCommandError when that was a failure.
        """
        words = self._words(("developer", "dvt", "launch"), "--stream", bundle_id)
        process = self._start(words)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
        try:
            texts, pid, is_over = self._collect(lines, Deadline(timeout_s, self._clock), quiet_s, is_last)
            if process.poll() is not None and process.returncode != 0:
                raise DeviceCommandError(f"{_PROGRAM} launch failed: {_end_of(texts)}", serial=self._udid, hint=_HINT)
        finally:
            _stop(process)
        return Console(text="".join(f"{text}\n" for text in _app_lines(texts)), pid=pid, is_over=is_over)

    def _collect(
        self, lines: queue.Queue[str | None], deadline: Deadline, quiet_s: float, is_last: Callable[[str], bool]
    ) -> tuple[list[str], int | None, bool]:
        texts: list[str] = []
        pid: int | None = None
        size_bytes, quiet = 0, Deadline(float("inf"), self._clock)
        while not deadline.expired and size_bytes < _MOST_BYTES:
            try:
                line = lines.get(timeout=_LOOK_S)
            except queue.Empty:
                if quiet.expired:
                    return texts, pid, True
                continue
            if line is None:
                return texts, pid, True
            size_bytes += len(line)
            if launched := _LAUNCHED.fullmatch(line):
                pid = int(launched[1])
                continue
            texts.append(line)
            if is_last(line) or quiet.seconds < float("inf"):
                quiet = Deadline(quiet_s, self._clock)
        return texts, pid, False

    def _must(self, group: Sequence[str], *arguments: str) -> None:
        words = self._words(group, *arguments)
        process = self._start(words)
        try:
            printed, _ = process.communicate(timeout=_FILE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DeviceTimeoutError(f"{_PROGRAM} {' '.join(group)} didn't end", serial=self._udid) from None
        finally:
            _stop(process)
        if process.returncode != 0:
            said = _end_of(_COLOURS.sub("", printed).splitlines())
            raise DeviceCommandError(f"{_PROGRAM} {' '.join(group)} failed: {said}", serial=self._udid, hint=_HINT)

    def _words(self, group: Sequence[str], *arguments: str) -> list[str]:
        udid = ["--udid", self._udid] if self._udid else []
        return [*self._command, *group, *udid, *arguments]

    def _start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        try:
            return subprocess.Popen(
                words, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(f"{words[0]} can't be started: {error.strerror}") from error


_HINT: Final = (
    "is the phone plugged in, unlocked, trusted and in developer mode? 'pymobiledevice3 usbmux list' shows it"
)


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    if process.stdout is not None:
        for line in process.stdout:
            lines.put(_COLOURS.sub("", line.rstrip("\r\n")))
    process.wait()
    lines.put(None)


def _app_lines(texts: Sequence[str]) -> list[str]:
    """Return the app's own lines as it printed them."""
    kept = []
    for text in texts:
        prefix = _PREFIX.match(text)
        if prefix is not None:
            kept.append(text[prefix.end() :])
        elif not _OWN.match(text):
            kept.append(text)
    return kept


def _end_of(texts: Sequence[str]) -> str:
    said = [text.strip() for text in texts if text.strip()]
    return " / ".join(said[-3:])[-400:] or "no reason given"


def _stop(process: subprocess.Popen[str]) -> None:
    """End the program with all that it started; what it told the phone to do ends with it or goes on."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            break
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            continue
