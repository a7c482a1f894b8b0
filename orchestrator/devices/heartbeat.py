"""The renewal of a note on a phone (owner_note.py) while its holder lives, in front of commands
that are sent anyway.

A run is waited for in steps of a few seconds, so a renewal costs a few builtins of a shell that was
started anyway. A phone that isn't spoken to for long (its model is being sent, this computer
computes) gets a command of its own from a thread. A process that was killed, stopped or suspended
renews nothing; when it continues and another has taken the phone meanwhile, the phone itself
refuses its next command.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Final

from orchestrator.clock import Clock
from orchestrator.errors import BenchfarmError, DeviceBusyError
from orchestrator.ports import ShellResult

#: How long a phone stays ours after our last command.
LEASE_S: Final = 60.0
#: How many renewals fit into it: one that is lost with its link mustn't matter.
_RENEWALS: Final = 12
#: After this part of it without any command, one is sent for the note alone.
_SILENCE: Final = 2
_SHORTEST_PAUSE_S: Final = 0.1
#: What the phone answers instead of running a command of somebody who has lost it.
LOST_EXIT_CODE: Final = 89
LOST_WORDS: Final = "benchfarm: another holds this phone"


class HeldNote:
    """The renewal of one phone's note. Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._script = ""
        self._lease_s = LEASE_S
        self._renewed_s = 0.0
        self._renewed_at: datetime | None = None
        self._is_beating = False

    def hold(self, script: str, *, lease_s: float, beat: Callable[[], None]) -> None:
        """Renew a note that was just written by this script, valid for ``lease_s`` of this
        computer's time.

        ``beat``: a method that sends an empty command. Its object may be dropped: nothing is
        renewed then.
        """
        with self._lock:
            self._script, self._lease_s = script, lease_s
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()
            if not self._is_beating:
                self._is_beating = True
                threading.Thread(
                    target=self._live, args=(weakref.WeakMethod(beat),), daemon=True
                ).start()

    def let_go(self) -> None:
        """Stop renewing."""
        with self._lock:
            self._script = ""

    def before(self, command: str) -> tuple[str, bool]:
        """Return a command with the renewal in front if it is time for one, and whether it is."""
        with self._lock:
            is_due = bool(self._script) and self._age_s() >= self._lease_s / _RENEWALS
            return (f"{self._script}\n{command}", True) if is_due else (command, False)

    def after(self, result: ShellResult, *, serial: str) -> None:
        """Take note of a renewal's answer.

        Raises DeviceBusyError when another holds the phone by now.
        """
        if (
            result.exit_code == LOST_EXIT_CODE
            and LOST_WORDS.encode() in result.stderr + result.stdout
        ):
            raise DeviceBusyError(
                "another computer or home has taken the phone meanwhile",
                serial=serial,
                hint="this process wasn't heard of for too long; see 'benchfarm devices' for who has it",
            )
        with self._lock:
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()

    def _age_s(self) -> float:
        """Return how long ago the last renewal was, by whichever clock says longer: one of them
        stops in sleep.
        """
        by_wall_s = (
            0.0
            if self._renewed_at is None
            else (self._clock.now() - self._renewed_at).total_seconds()
        )
        return max(self._clock.monotonic_s() - self._renewed_s, by_wall_s)

    def _live(self, beat: weakref.WeakMethod[Callable[[], None]]) -> None:
        """Send a beat whenever the phone was silent for too long, until the note is let go."""
        pause = threading.Event()
        while True:
            with self._lock:
                send = beat()
                if not self._script or send is None:
                    self._is_beating = False
                    return
                silence_s = self._lease_s / _SILENCE
                is_silent = self._age_s() >= silence_s
            if is_silent:
                # Whoever uses the phone learns of an error by its own next command.
                with contextlib.suppress(BenchfarmError):
                    send()
            del send
            pause.wait(max(_SHORTEST_PAUSE_S, silence_s / 4))
