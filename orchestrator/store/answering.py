"""Connections to PostgreSQL that don't wait for ever; apart, since the driver is an extra."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg

from orchestrator.clock import Deadline

Wanted = TypeVar("Wanted")
Ready = TypeVar("Ready")
Answer = TypeVar("Answer")

#: For one small statement, of which the server takes hardly any time, seconds.
PROMPT_S: Final = 30.0


class AnsweringConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server leaves a statement without an answer for too
    long.
    """

    #: Seconds for each statement, None for as long as it takes.
    answer_s: float | None = PROMPT_S

    def wait(
        self, gen: Generator[Wanted, Ready, Answer], *given: object, **named: object
    ) -> Answer:
        """Wait for what the driver waits for; raises OperationalError when it takes too long."""
        if self.answer_s is not None:
            gen = self._limited(gen, self.answer_s)
        return super().wait(gen, *given, **named)  # type: ignore[arg-type]

    def _limited(
        self, gen: Generator[Wanted, Ready, Answer], limit_s: float
    ) -> Generator[Wanted, Ready, Answer]:
        deadline = Deadline(limit_s)
        try:
            wanted = next(gen)
            while True:
                # The driver asks ten times a second whether to go on, with nothing ready.
                ready = yield wanted
                if not ready and deadline.expired:
                    # What is on its way can't be taken back: the connection is of no more use.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {limit_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
