"""What a page may load and run: the scripts of its template, by their hash, and nothing that its data brought along.

Hashes are made of the files in reports/templates, never of a finished page: a script that slipped into one through what
a phone, a file or another lab wrote isn't run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from markupsafe import Markup

from orchestrator.resources import data_folder

#: Kind of page -> the scripts that stand in it.
SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "report": ("page.js", "evidence.js", "matrix.js", "grid.js", "charts.js"),
    "compared": ("page.js", "evidence.js", "grid.js"),
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
    """Return the word of a Content-Security-Policy that lets a kind of page run its own script; empty without one."""
    code = inline_script(kind)
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" if code else ""


@cache
def page_policy(kind: str, *, has_files: bool) -> str:
    """Return the Content-Security-Policy that a page carries itself.

    ``has_files``: it belongs to a site, whose style sheet, scripts and charts' library are files beside it.
    """
    # A report's charts are compiled by Vega.
    own = f"{script_hash(kind)} 'unsafe-eval'" if SCRIPTS[kind] else ""
    files = "'self' " if has_files else ""
    asks = "; connect-src 'self'" if kind == "farm" else ""
    return (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; script-src {f'{files}{own}'.strip() or _NOTHING}; "
        f"style-src {files}'unsafe-inline'; img-src {files}data: blob:{asks}"
    )
