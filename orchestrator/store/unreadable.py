"""Rows that can't be read: they cost themselves and what is made of them alone, never the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from orchestrator.errors import StoreError

Row = TypeVar("Row")
Read = TypeVar("Read")

_LOG: Final = logging.getLogger("orchestrator.store")
#: What was warned of already: the same row is read many times.
_warned: Final[set[str]] = set()


def readable(rows: Iterable[Row], read: Callable[[Row], Read]) -> Iterator[tuple[Row, Read]]:
    """Yield each row with what was read of it; one that can't be read is left out, with a warning."""
    for row in rows:
        try:
            record = read(row)
        except StoreError as error:
            warn(error)
        else:
            yield row, record


def warn(error: StoreError) -> None:
    """Log what is left out because it can't be read, once in a process."""
    message = f"left out: {error}"
    if message not in _warned:
        _warned.add(message)
        _LOG.warning("%s", message)
