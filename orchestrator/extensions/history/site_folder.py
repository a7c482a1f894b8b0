"""A folder of pages on the disk: only what changed is written, and only what was written here is
ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError, UsageError
from orchestrator.files import write_whole

#: Which files are the site's, and what was noted about each.
MANIFEST: Final = ".benchfarm-site.json"
_OWN_PATH: Final = re.compile(
    r"index\.html|(?:assets|series|campaigns|pages)/[a-z0-9-]{1,120}\.(?:html|css|js)"
)


class SiteFolder:
    """One folder.

    Raises UsageError when it holds something else, HostStorageError when the disk is full.
    """

    def __init__(self, folder: Path, paths: Collection[str]) -> None:
        """``paths`` are the pages that will be written; nobody else's file may be in the place of
        one.
        """
        self._folder = folder
        self._counts: Counter[str] = Counter(written=0, unchanged=0, removed=0, size_bytes=0)
        self._files: dict[str, str] = {}
        with self._guarded():
            for name in {
                "assets",
                "series",
                "campaigns",
                *(path.rpartition("/")[0] for path in paths),
            } - {""}:
                if (folder / name).is_symlink():
                    raise UsageError(
                        f"{folder / name} is a link", hint="choose an empty folder with --out"
                    )
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._before = self._manifest()
            for path in paths:
                if (
                    path not in self._before
                    and not path.startswith("assets/")
                    and (folder / path).exists()
                ):
                    raise UsageError(
                        f"{folder / path} was not made by 'benchfarm history site'",
                        hint="choose an empty folder with --out, or move this file away",
                    )
            # A build that is cut off leaves pages that the next one knows as its own.
            self._save({**dict.fromkeys(paths, ""), **self._before})

    def write(self, path: str, content: bytes, *, note: str = "") -> None:
        """Write a page unless it is there as it is."""
        if not _OWN_PATH.fullmatch(path):
            raise ValueError(f"{path!r} is no page of a site")
        self._files[path] = note
        self._counts["size_bytes"] += len(content)
        target = self._folder / path
        with self._guarded():
            if target.is_file() and not target.is_symlink() and target.read_bytes() == content:
                self._counts["unchanged"] += 1
                return
            write_whole(target, content, is_private=False)
        self._counts["written"] += 1

    def keeps(self, path: str, note: str) -> bool:
        """Leave a page of the build before as it is if it has this note; return whether it has."""
        target = self._folder / path
        if self._before.get(path) != note or not target.is_file():
            return False
        self._files[path] = note
        self._counts["unchanged"] += 1
        self._counts["size_bytes"] += target.stat().st_size
        return True

    def finish(self) -> dict[str, int]:
        """Remove pages of builds before that this one doesn't have; return how many were written,
        unchanged, removed.

        ``size_bytes`` is beside them: of all pages.
        """
        with self._guarded():
            for path in set(self._before) - set(self._files):
                with contextlib.suppress(FileNotFoundError):
                    (self._folder / path).unlink()
                    self._counts["removed"] += 1
            self._save(self._files)
        return dict(self._counts)

    def _manifest(self) -> dict[str, str]:
        """Return each file's note; names that no build can have written are passed over."""
        try:
            found = json.loads((self._folder / MANIFEST).read_text("utf-8"))
            return {
                str(path): str(note) for path, note in found.items() if _OWN_PATH.fullmatch(path)
            }
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError):
            raise UsageError(
                f"{self._folder / MANIFEST} can't be read",
                hint="remove it together with the pages, or choose an empty folder with --out",
            ) from None

    def _save(self, files: dict[str, str]) -> None:
        write_whole(self._folder / MANIFEST, json.dumps(files, indent=0), is_private=False)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"{self._folder}: no space left for the site") from error
            raise UsageError(f"{error.filename or self._folder}: {error.strerror}") from error
