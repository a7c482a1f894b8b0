"""What all processes of a lab are started with, as a value and as their command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: In a lab's folder: what tells of it while it runs, and what its processes lock as long as they live.
STATE_FILE: Final = "lab.json"
LOCK_FILE: Final = "lab.lock"

#: Where the lab's processes are started, so that a source tree that isn't installed works too.
SOURCES: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSettings:
    """What the phones of a lab have in common, whichever process runs them."""

    #: Folder for lab.json, the log and the phones' files; absolute.
    state_dir: Path
    #: Public keys (adbkey.pub) of the adb servers that get in.
    adb_keys: Sequence[Path]
    #: Phone seconds in one real second.
    time_factor: float = 1.0
    #: Where the phones' noise comes from.
    seed: int = 1

    def command(self, word: str) -> list[str]:
        """Return the command line of a process of the lab, ``serve`` or ``share``, for :data:`SOURCES`."""
        return [
            sys.executable, "-m", "benchfarm_lab", word,
            f"--state-dir={self.state_dir}", f"--time-factor={self.time_factor!r}", f"--seed={self.seed}",
            *(f"--adb-key={Path(key).absolute()}" for key in self.adb_keys),
        ]  # fmt: skip
