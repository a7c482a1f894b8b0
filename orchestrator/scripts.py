"""What runs on a phone: POSIX shell scripts in ``devices/scripts``, sent as text with their arguments in front.

Nothing has to be on the phone for that, so a full or read-only phone runs them too. Each file says at its top what its
arguments are, what it prints and what its exit code means. What they may assume of a phone's shell is in
``docs/decisions/0046-what-a-phone-shell-may-be.md``.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Final

from orchestrator.errors import BenchfarmError

FOLDER: Final = Path(__file__).resolve().parent / "devices" / "scripts"


def call(name: str, *arguments: object) -> str:
    """Return the shell text that runs a script with these arguments; it replaces the shell's own ``$1``, ``$2``, ...

    Scripts that are run one after the other in one request share their shell's variables. Raises BenchfarmError when
    there is no such script.
    """
    words = "".join(f" {shlex.quote(str(argument))}" for argument in arguments)
    return f"set --{words}\n{text(name)}"


@cache
def text(name: str) -> str:
    """Return a script without its comments and indentation, which a phone needn't be sent.

    Raises BenchfarmError when it is missing, which means that the installation is damaged.
    """
    try:
        lines = (FOLDER / f"{name}.sh").read_text("utf-8").splitlines()
    except OSError as error:
        raise BenchfarmError(
            f"benchfarm's own script {name}.sh can't be read: {error.strerror}",
            hint="The installation is damaged: install benchfarm again.",
        ) from error
    kept = (line.strip() for line in lines)
    return "\n".join(line for line in kept if line and not line.startswith("#")) + "\n"
