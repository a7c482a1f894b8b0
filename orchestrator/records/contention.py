"""The pass ``contention``: the loads beside which a case is measured, and without one, in turns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: The attachment in which a run's load is stated, and proven to have run.
LOAD_FILE: Final = "load"
NO_LOAD: Final = "none"
#: Where a plan names no loads.
USUAL_LOADS: Final = ("cpu=4", "memory=2")
#: The code of a run whose load didn't run from its begin to its end.
LOAD_DIED: Final = "load-died"
_PART: Final = re.compile(r"(?P<kind>cpu|memory|gpu)=(?P<count>[1-9]\d?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What else a phone does: busy cores, processes that write memory, GPU loops."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0


def load_of(text: str) -> Load:
    """Return the load that a text such as ``cpu=4`` or ``cpu=2+memory=1`` means.

    Raises ValueError.
    """
    if text == NO_LOAD:
        return Load()
    counts: dict[str, int] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or match["kind"] in counts:
            raise ValueError(
                f"{text!r} is no load; write cpu=4, memory=2, gpu=1, or several joined by +"
            )
        counts[match["kind"]] = int(match["count"])
    if counts.get("gpu", 0) > 1:
        raise ValueError(f"{text!r}: there is one GPU loop at most")
    return Load(**counts)
