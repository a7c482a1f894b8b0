"""What is deleted of old runs: what their programs printed, never what was read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.records.run import Attachment

#: The attachment that stands in the place of all that a run had.
PRUNED_FILE: Final = "raw-output-deleted.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a deletion took away, or would."""

    campaigns: int
    runs: int
    #: Of the database, as far as it is known: what it uses again for later runs.
    freed_bytes: int


def is_pruned(attachments: tuple[Attachment, ...]) -> bool:
    """Whether a run's raw output was deleted: nothing can be read from it again."""
    return any(item.name == PRUNED_FILE for item in attachments)


def stand_in(policy: str) -> Attachment:
    """Return what stands in the place of a run's raw output."""
    return Attachment(name=PRUNED_FILE, data=f"deleted: {policy}\n".encode())
