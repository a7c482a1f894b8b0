"""Ctrl-C that comes before a certain line of a method: a test finds every moment at which it may come."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any


def steps_of(*methods: Callable[..., object]) -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Yield for each line that runs in some methods a way to call what uses them and interrupt it there.

    It says whether it was interrupted: where it isn't there are no more lines.
    """
    codes = [method.__code__ for method in methods]  # type: ignore[attr-defined]
    for number in itertools.count(1):
        is_over = False

        def interrupted(call: Callable[[], object], number: int = number) -> bool:
            nonlocal is_over
            is_over = not _is_interrupted(call, codes, number)
            return not is_over

        yield interrupted
        if is_over:
            return


def _is_interrupted(call: Callable[[], object], codes: Sequence[CodeType], number: int) -> bool:
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        # On its way out of a lock Python hears no signal before the lock is free; a trace would come before that.
        if event == "line" and not _begins_with(frame, "with "):
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _begins_with(frame: FrameType, word: str) -> bool:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith(word)
