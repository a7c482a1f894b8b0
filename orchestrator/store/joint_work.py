"""What several threads want to do at the same moment, done together by one of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: Is given what takes all that waits by then, and returns for each an answer, or the error that it ended with.
Work = Callable[[Callable[[], Sequence[Item]]], Sequence[Answer | Exception]]


@dataclass(eq=False)
class _Entry(Generic[Item, Answer]):
    """What one thread wants done."""

    item: Item
    #: Set when it is done, and when it is this thread's turn to do what waits.
    woken: threading.Event = field(default_factory=threading.Event)
    answers: list[Answer | Exception] = field(default_factory=list)


class JointWork(Generic[Item, Answer]):
    """Does one thing after the other, each with all that came while the one before was done.

    Whoever comes first does it, for those that come meanwhile the first of them, and so on: nobody waits for more than
    what is being done and what is done next.
    """

    def __init__(self, work: Work[Item, Answer]) -> None:
        self._work = work
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
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
        if self._pid != os.getpid():
            # A forked child hasn't got the threads that its parent waits for.
            self._begin()
        entry: _Entry[Item, Answer] = _Entry(item)
        with self._lock:
            self._waiting.append(entry)
            must_wait, self._is_led = self._is_led, True
        if must_wait:
            try:
                entry.woken.wait()
            except BaseException:
                self._leave(entry)
                raise
        if not entry.answers:
            self._lead(entry)
        (answer,) = entry.answers
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lead(self, leader: _Entry[Item, Answer]) -> None:
        """Do what waits, and hand the lead on."""
        taken: list[_Entry[Item, Answer]] = []

        def take() -> list[Item]:
            with self._lock:
                taken[:], self._waiting = self._waiting, []
            return [entry.item for entry in taken]

        try:
            for entry, answer in zip(taken, self._work(take), strict=True):
                entry.answers.append(answer)
        finally:
            with self._lock:
                undone = [entry for entry in (*taken, *self._waiting) if not entry.answers]
                self._waiting = [entry for entry in undone if entry is not leader]
                self._hand_on()
            for entry in taken:
                if entry.answers:
                    entry.woken.set()

    def _leave(self, entry: _Entry[Item, Answer]) -> None:
        """Take back what was not begun with."""
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                if entry.woken.is_set():
                    self._hand_on()

    def _hand_on(self) -> None:
        """Have the first of those that wait do what waits; needs the lock."""
        self._is_led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].woken.set()
