"""What goes into a page: scripts of its template by their hash, data folded and harmless.

Hashes are made of the files in reports/templates, never of a finished page: a script that slipped
into one through what a phone, a file or another lab wrote isn't run.

A report makes millions of small objects that live until it is written, and no cycles among them.
The collector looks through all of them again and again, and finds nothing: a quarter of the time of
a report of 5,000 cases.
"""

from __future__ import annotations

import base64
import gc
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Final, ParamSpec, TypeVar

from markupsafe import Markup

from orchestrator.installation import data_folder

#: Kind of page -> the scripts that stand in it.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "report": ("page.js", "tables.js", "evidence.js", "grid.js"),
    "table": ("page.js", "grid.js"),
    "compared": ("page.js", "tables.js", "evidence.js"),
    #: Its script is a file of its own.
    "site": (),
    #: So has this one; it asks its server for what it shows.
    "farm": (),
    "plain": (),
}

_NOTHING: Final = "'none'"


@cache
def inline_script(kind: str) -> Markup:
    """Return the script that stands in a kind of page."""
    folder = data_folder("reports") / "templates"
    return Markup("\n".join((folder / name).read_text("utf-8") for name in SCRIPTS[kind]))  # noqa: S704 - files of ours


@cache
def script_hash(kind: str) -> str:
    """Return the word of a Content-Security-Policy that lets a kind of page run its own script;
    empty without one.
    """
    code = inline_script(kind)
    return (
        f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
        if code
        else ""
    )


@cache
def page_policy(kind: str, *, has_files: bool) -> str:
    """Return the Content-Security-Policy that a page carries itself.

    ``has_files``: it belongs to a site, whose style sheet and scripts are files
    beside it.
    """
    own = script_hash(kind)
    files = "'self' " if has_files else ""
    asks = "; connect-src 'self'" if kind == "farm" else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {f'{files}{own}'.strip() or _NOTHING}; "
        f"style-src {files}'unsafe-inline'; img-src {files}data: blob:{asks}"
    )


#: Enough for text that repeats itself; higher levels take several times as long for some percent.
_LEVEL = 5
#: What is folded is made here, and holds itself nowhere.
_to_text = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def pack(value: object) -> str:
    """Return a JSON value as base64 of gzip; the page's script reads it when it is needed.

    Raises ValueError for figures that JSON has no word for (infinity, not a number).
    """
    return pack_bytes(_to_text(value).encode(errors="replace"))


def pack_bytes(data: bytes, level: int = _LEVEL) -> str:
    """Return bytes as base64 of gzip."""
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode("ascii")


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def without_collector(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return the function with the collector off while it runs; it is on again afterwards when it
    was on before.
    """

    @wraps(function)
    def held(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return held
