"""``python -m benchfarm_virtual FOLDER SETTINGS``: virtual phones, in the foreground.

``benchfarm virtual up`` and :func:`benchfarm_virtual.control.start_phones` start it. Exit codes: 0
when it was told to end, 2 for a wrong call, 3 when a phone can't be had.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from benchfarm_virtual.errors import UsageError, VirtualError
from benchfarm_virtual.serving import serve


def main(*words: str) -> int:
    """Run virtual phones and return its exit code; what went wrong is one line on stderr."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        try:
            state_dir, settings = Path(words[0]), json.loads(words[1])
        except (LookupError, ValueError):
            raise UsageError(
                "usage: python -m benchfarm_virtual FOLDER SETTINGS, with the settings as JSON",
                hint="'benchfarm virtual up' starts virtual phones",
            ) from None
        serve(state_dir, settings)
    except VirtualError as error:
        sys.stderr.write(f"{error}\n" + (f"{error.hint}\n" if error.hint else ""))
        return error.exit_code
    return 0


if __name__ == "__main__":
    exit_code = main(*sys.argv[1:])
    # The phones are gone; Python would take itself apart for longer than a phone takes to start.
    logging.shutdown()
    os._exit(exit_code)
