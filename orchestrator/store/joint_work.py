"""Threads of one store: what they want at the same moment is done together, writers take turns, none waits for ever."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.clock import Clock, SystemClock


class Patience:
    """A limit on waiting that restarts whenever something was done for anybody.

    A hundred phones may end a run in the same second: what counts isn't how many are before one, but whether they come
    to an end.
    """

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self.limit_s = limit_s
        self._clock = clock or SystemClock()
        self._done_s = self._clock.monotonic_s() - limit_s

    def now_s(self) -> float:
        """Return the moment, for ``left_s``."""
        return self._clock.monotonic_s()

    def note_done(self) -> None:
        """Take note that something was done."""
        self._done_s = self._clock.monotonic_s()

    def left_s(self, since_s: float) -> float:
        """Return how much longer somebody waits who has waited since a moment, zero for no longer."""
        return max(0.0, max(since_s, self._done_s) + self.limit_s - self._clock.monotonic_s())


Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Is given what takes all that waits by then, and since when whoever does it has waited; returns for each an answer, or
#: the error that it ended with.
Work = Callable[[Callable[[], Sequence[Item]], float], Sequence[Answer | Exception]]
#: Makes the error for who waited for too long, given whether the item was begun with, so that it may yet be done.
Late = Callable[[bool], Exception]


@dataclass(eq=False)
class _Entry(Generic[Item, Answer]):
    """What one thread wants done."""

    item: Item
    since_s: float
    #: Set when it is done, and when it is this thread's turn to do what waits.
    woken: threading.Event = field(default_factory=threading.Event)
    answers: list[Answer | Exception] = field(default_factory=list)
    #: Nobody waits for it any more.
    is_left: bool = False


class JointWork(Generic[Item, Answer]):
    """Does one thing after the other, each with all that came while the one before was done.

    Whoever comes first does it, for those that come meanwhile the first of them, and so on: nobody waits for more than
    what is being done and what is done next. Who waits gives up when its patience is over.
    """

    def __init__(self, work: Work[Item, Answer], patience: Patience, late: Late) -> None:
        self._work = work
        self._patience = patience
        self._late = late
        self._lock = threading.Lock()
        self._waiting: list[_Entry[Item, Answer]] = []
        self._is_led = False

    @property
    def waiting(self) -> int:
        """How many items wait to be begun with."""
        with self._lock:
            return len(self._waiting)

    def do(self, item: Item) -> Answer:
        """Have an item done, with others or alone; return its answer or raise the error that it ended with.

        What the work itself raises is for the thread that does it; the others' items go on waiting.
        """
        entry: _Entry[Item, Answer] = _Entry(item, self._patience.now_s())
        leads = False
        # Interrupted at any moment: also between coming and waiting, or leading.
        try:
            with self._lock:
                self._waiting.append(entry)
                leads, self._is_led = not self._is_led, True
            if not leads:
                self._wait(entry)
            if not entry.answers:
                self._lead(entry)
        except BaseException:
            with self._lock:
                self._take_back(entry, leads=leads)
            raise
        (answer,) = entry.answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, entry: _Entry[Item, Answer]) -> None:
        """Wait until an entry is done or has the lead; raise the error for who is late."""
        while not entry.woken.wait(self._patience.left_s(entry.since_s)):
            with self._lock:
                if not entry.woken.is_set() and not self._patience.left_s(entry.since_s):
                    is_begun = entry not in self._waiting
                    self._take_back(entry)
                    raise self._late(is_begun)

    def _lead(self, leader: _Entry[Item, Answer]) -> None:
        """Do what waits, and hand the lead on."""
        taken: list[_Entry[Item, Answer]] = []

        def take() -> list[Item]:
            with self._lock:
                taken[:], self._waiting = self._waiting, []
            return [entry.item for entry in taken]

        try:
            for entry, answer in zip(taken, self._work(take, leader.since_s), strict=True):
                entry.answers.append(answer)
        finally:
            with self._lock:
                leader.is_left = True
                self._waiting = [entry for entry in (*taken, *self._waiting) if not entry.answers and not entry.is_left]
                self._hand_on()
            for entry in taken:
                if entry.answers:
                    entry.woken.set()

    def _take_back(self, entry: _Entry[Item, Answer], *, leads: bool = False) -> None:
        """Have nobody begin with an entry, nor again when it was begun with; hand on the lead that it has.

        Needs the lock.
        """
        entry.is_left = True
        if entry in self._waiting:
            self._waiting.remove(entry)
            if leads or entry.woken.is_set():
                self._hand_on()

    def _hand_on(self) -> None:
        """Have the first of those that wait do what waits; needs the lock."""
        self._is_led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()


class Turns:
    """A lock that is handed on in order. A plain one may pass over whoever waits, again and again."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        with self._lock:
            return len(self._waiting)

    def take(self, since_s: float) -> bool:
        """Wait for one's turn, as somebody who has waited since a moment; False when the patience is over.

        Who is interrupted (Ctrl-C) leaves the queue; a turn that has come meanwhile is handed on.
        """
        turn, is_first = threading.Event(), False
        # Interrupted at any moment: also between joining the queue and waiting.
        try:
            with self._lock:
                is_first = not self._is_taken
                if is_first:
                    self._is_taken = True
                    return True
                self._waiting.append(turn)
            while not turn.wait(self._patience.left_s(since_s)):
                with self._lock:
                    if turn.is_set():
                        return True
                    if not self._patience.left_s(since_s):
                        self._waiting.remove(turn)
                        return False
        except BaseException:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif is_first or turn.is_set():
                    self._hand_on()
            raise
        return True

    def end(self) -> None:
        """End one's turn."""
        with self._lock:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._is_taken = False
