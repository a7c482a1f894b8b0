"""Vega's script, which draws the charts of a page."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from orchestrator.child_environment import child_environment
from orchestrator.errors import UsageError
from orchestrator.files import make_private
from orchestrator.tables.page_policy import pack_bytes

#: Held while Vega's script is made.
_MAKING: Final = threading.Lock()
#: Vega-Embed alone: it holds Vega and Vega-Lite, which this bundle doesn't hand out under names of
#: their own.
_SNIPPET: Final = "window.vegaEmbed=vegaEmbed;"
#: How base64 of gzip begins.
_GZIP_MARK: Final = "H4sI"
_BEST_LEVEL: Final = 9


def packed_runtime(cache_folder: Path | None = None) -> str:
    """Return Vega-Embed with Vega and Vega-Lite as a script, packed as page_policy.pack_bytes does.

    Bundling takes more than a second; with a folder, the script is kept there for the next report.
    Nothing is downloaded. A folder that can't be read or written is ignored.
    """
    with _MAKING:
        if cache_folder is None:
            return _bundle()
        path = _kept(cache_folder)
        with suppress(OSError, UnicodeDecodeError):
            kept = path.read_text("ascii")
            if kept.startswith(_GZIP_MARK) and kept.endswith("\n"):
                return kept[:-1]
        made = _bundle()
        with suppress(OSError):
            make_private(cache_folder)
            # Another report may be made at the same time: whole under its name, or not at all.
            with tempfile.NamedTemporaryFile(
                "w", dir=cache_folder, encoding="ascii", delete=False
            ) as stream:
                stream.write(f"{made}\n")
            os.replace(stream.name, path)  # noqa: PTH105
        return made


def make_ahead(cache_folder: Path) -> None:
    """Have another process make the script unless it is kept.

    A report that needs it meanwhile waits for it.

    The bundler lets no other thread of its process work, for two or three seconds. A report makes
    the script itself where this failed.
    """
    with _MAKING:
        if not _kept(cache_folder).is_file():
            made_by = f"import pathlib, sys; from {__name__} import packed_runtime; packed_runtime(pathlib.Path(sys.argv[1]))"
            with suppress(OSError, UsageError):
                subprocess.run(
                    [sys.executable, "-c", made_by, str(cache_folder)],
                    env=child_environment(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                )


def _kept(cache_folder: Path) -> Path:
    return cache_folder / f"vega-{version('vl-convert-python')}.js.gz.txt"


@cache
def _bundle() -> str:
    import vl_convert

    return pack_bytes(vl_convert.javascript_bundle(_SNIPPET).encode(), _BEST_LEVEL)
