"""What a host's worker leaves to its caller, and what comes back; needs none of the farm's
packages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.extensions.farm.queue import Announced, Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a delivery ended: ``done``, ``failed``, ``aborted``, ``again`` for another try, or
    ``later``.
    """

    status: str
    note: str
    #: ``later``: it isn't its time yet, which is no try of the phone.
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of a look at a host's phones."""

    #: None when it couldn't look.
    phones: Mapping[str, Announced] | None
    #: What is wrong with the host, empty for nothing.
    ails: str = ""


class Say(Protocol):
    """Tells people; ``level`` and further keys are for logs that programs read."""

    def __call__(self, text: str, /, *, level: str = "info", **keys: object) -> None:
        """Tell of something that happened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a worker leaves to its caller."""

    #: Does what is open of a job until it is done or the event is set; raises nothing.
    run: Callable[[Delivery, threading.Event], Ended]
    #: Looks at this host's phones, given what is known of them and which of them work and mustn't
    #: be disturbed; raises nothing.
    look: Callable[[Mapping[str, Announced], Collection[str]], Look]
    #: Gives up what is left of a job that somebody cancelled, once it has stopped; raises nothing.
    give_up: Callable[[Delivery], None]
    #: Is told of this host's phones when something of them is new, and now and then; returns lines
    #: for people.
    announced: Callable[[Mapping[str, Announced]], list[str]]
    say: Say
