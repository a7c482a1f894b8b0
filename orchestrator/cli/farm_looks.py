"""What a worker looks for again and again beside its jobs: phones that came, schedules that are due, old copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from orchestrator.errors import BenchfarmError
from orchestrator.queueing.schedule import Line
from orchestrator.queueing.worker import Say
from orchestrator.report.escapes import one_line

#: So often a worker looks.
_EVERY_S: Final = 5.0
_END_S: Final = 10.0


@contextmanager
def looked_for(
    what: str, look: Callable[[], Sequence[str | Line]], say: Say, *, every_s: float = _EVERY_S
) -> Iterator[None]:
    """Look again and again while the context lasts, in a thread of its own: a slow database holds up no heartbeat.

    ``look`` returns lines for people; what it raises is a line too, after ``what``. What was said by the look before
    isn't said again.
    """
    stopped = threading.Event()

    def looks() -> None:
        said: Sequence[Line] = ()
        while not stopped.is_set():
            try:
                lines = [item if isinstance(item, Line) else Line(item) for item in look()]
            except BenchfarmError as error:
                lines = [Line(f"{what}: {error}", level="error")]
            except Exception as error:  # noqa: BLE001 - the next look may go better
                lines = [Line(f"{what}: {type(error).__name__}: {error}", level="error")]
            for line in lines:
                if line not in said:
                    say(one_line(line.text), level=line.level, schedule=line.schedule)
            said = lines
            stopped.wait(every_s)

    thread = threading.Thread(target=looks, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=_END_S)
