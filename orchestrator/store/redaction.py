"""Folders of this computer, removed from what leaves it: they show the user's name and work."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.records.campaign import Campaign

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: What stands for a folder that was named without a file in it.
_A_FOLDER: Final = "(a folder)"


class Redaction:
    """Knows folders of this computer; a file in one of them is called by what follows the folder."""

    def __init__(self, folders: Iterable[Path | str | None]) -> None:
        """Know these folders, and those of the user and of this Python; relative ones and the
        system's are passed over.

        None and empty texts are passed over too.
        """
        own = {
            str(folder).rstrip("/")
            for folder in (*folders, Path.home(), Path.cwd(), sys.prefix)
            if folder
        }
        names = {name for name in own if name.startswith("/") and not name.startswith("/usr")}
        # In JSON, letters beyond ASCII may be written as escapes.
        spelled = {word for name in names for word in (name, json.dumps(name)[1:-1])}
        words = "|".join(re.escape(word) for word in sorted(spelled, key=len, reverse=True))
        # Not the end of a longer path, as /tmp is of /data/local/tmp, and not the beginning of a
        # longer name.
        self._pattern = (
            re.compile(rf"(?<![\w./-])(?:{words})(?:(/+)|(?![\w.-]))") if words else None
        )

    def hide(self, text: str) -> str:
        """Return a text without these folders."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: "" if found[1] else _A_FOLDER, text)

    def hide_bytes(self, data: bytes) -> bytes:
        """Return a program's output without these folders; what isn't text stays as it is."""
        if b"\0" in data:
            return data
        # Bytes that are no UTF-8 come back as they were.
        return self.hide(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def hide_all(self, value: object) -> object:
        """Return a JSON value whose texts are without these folders; keys stay."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_all(item) for item in value]
        if isinstance(value, dict):
            return {key: self.hide_all(item) for key, item in value.items()}
        return value


def redaction_of(store: Store, campaigns: Sequence[Campaign], further: Iterable[Path]) -> Redaction:
    """Return the folders of the models, programs and plans of a store, and ``further`` ones."""
    files = [model.path for model in store.models().values()]
    for build in store.builds().values():
        files += [build.path, *(companion.path for companion in build.companions)]
    files += [Path(path) for campaign in campaigns for path in campaign.terms.files.values()]
    named = [
        folder
        for item in campaigns
        for folder in (item.terms.plan_folder, item.terms.parity_inputs)
    ]
    return Redaction((*named, *further, *(path.parent for path in files if path is not None)))
