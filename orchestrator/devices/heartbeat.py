"""Keeping a note on a phone valid while its holder lives: renewed in front of commands that are sent anyway.

A run is looked at every few seconds and a wait reads the phone's state, so a renewal costs a few builtins of a shell
that was started anyway. Only a phone that isn't spoken to for long (its model is on the way, this computer computes)
gets a command of its own, by a thread that all phones of a process share. A process that was killed, stopped or put
to sleep renews nothing; when it wakes up and another has taken the phone meanwhile, the phone itself refuses whatever
it asks next.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from datetime import datetime
from typing import Final, Protocol

from orchestrator.clock import Clock
from orchestrator.errors import BenchfarmError, DeviceBusyError
from orchestrator.ports import ShellResult

#: How long a phone stays ours after the last word from us.
LEASE_S: Final = 60.0
#: So many renewals fit into it: one that is lost with its link mustn't matter.
_RENEWALS: Final = 12
#: After this part of it without any command, one is sent for nothing but the note.
_SILENCE: Final = 2
_BEAT_TIMEOUT_S: Final = 10.0
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

    @property
    def is_held(self) -> bool:
        """Whether there is a note to renew."""
        return bool(self._script)

    @property
    def silence_s(self) -> float:
        """How long it may go without a renewal until the phone is sent one for its own sake."""
        return self._lease_s / _SILENCE

    def hold(self, script: str, *, lease_s: float) -> None:
        """Renew a note that was just written by this script, valid for so long (in this computer's time)."""
        with self._lock:
            self._script, self._lease_s = script, lease_s
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()

    def let_go(self) -> None:
        """Renew nothing any more."""
        with self._lock:
            self._script = ""

    def before(self, command: str) -> tuple[str, bool]:
        """Return a command with the renewal in front if it is time for one, and whether it is."""
        with self._lock:
            is_due = bool(self._script) and self.age_s() >= self._lease_s / _RENEWALS
            return (f"{self._script}\n{command}", True) if is_due else (command, False)

    def after(self, result: ShellResult, *, serial: str) -> None:
        """Take note of a renewal's answer; raises DeviceBusyError when another holds the phone by now."""
        if result.exit_code == LOST_EXIT_CODE and LOST_WORDS.encode() in result.stderr + result.stdout:
            raise DeviceBusyError(
                "another computer or home has taken the phone meanwhile",
                serial=serial,
                hint="this process wasn't heard of for too long; see 'benchfarm devices' for who has it",
            )
        with self._lock:
            self._renewed_s, self._renewed_at = self._clock.monotonic_s(), self._clock.now()

    def age_s(self) -> float:
        """Return how long ago the last renewal was, by whichever clock says longer: one of them stops in sleep."""
        by_wall_s = 0.0 if self._renewed_at is None else (self._clock.now() - self._renewed_at).total_seconds()
        return max(self._clock.monotonic_s() - self._renewed_s, by_wall_s)


class Held(Protocol):
    """A phone whose note is renewed."""

    @property
    def note(self) -> HeldNote:
        """Its note."""
        ...

    def beat(self, *, timeout_s: float) -> None:
        """Send a command for nothing but the renewal; raises DeviceError kinds."""
        ...


class Heart:
    """Beats for all phones of a process that aren't spoken to; its thread lives as long as one is held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakSet[Held] = weakref.WeakSet()
        self._beating: weakref.WeakSet[Held] = weakref.WeakSet()
        self._changed = threading.Event()
        self._is_alive = False

    def watch(self, phone: Held) -> None:
        """Beat for this phone until its note is let go."""
        with self._lock:
            self._held.add(phone)
            self._changed.set()
            if not self._is_alive:
                self._is_alive = True
                threading.Thread(target=self._live, name="benchfarm-heart", daemon=True).start()

    def _live(self) -> None:
        while True:
            with self._lock:
                self._changed.clear()
                for phone in [phone for phone in self._held if not phone.note.is_held]:
                    self._held.discard(phone)
                held = list(self._held)
                if not held:
                    self._is_alive = False
                    return
            for phone in held:
                self._beat_if_silent(phone)
            pause_s = max(_SHORTEST_PAUSE_S, min(phone.note.silence_s for phone in held) / 4)
            # Not kept alive by this thread while it waits.
            del held, phone
            self._changed.wait(pause_s)

    def _beat_if_silent(self, phone: Held) -> None:
        """One that hangs mustn't hold up the others: each beat has a thread of its own, and at most one."""
        if phone.note.age_s() < phone.note.silence_s or phone in self._beating:
            return
        self._beating.add(phone)

        def beat() -> None:
            try:
                # Whoever uses the phone is told by its own next command.
                with contextlib.suppress(BenchfarmError):
                    phone.beat(timeout_s=_BEAT_TIMEOUT_S)
            finally:
                self._beating.discard(phone)

        threading.Thread(target=beat, name="benchfarm-beat", daemon=True).start()
