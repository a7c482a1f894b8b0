"""A folder of pages on the disk: only what changed is written, and only what was written here is ever removed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError, UsageError

#: Which files are the site's, with the sha256 of each; empty while it is being written.
MANIFEST: Final = ".benchfarm-site.json"
_FOLDERS: Final = ("assets", "series", "campaigns")
_OWN_PATH: Final = re.compile(r"index\.html|(?:assets|series|campaigns)/[a-z0-9-]{1,120}\.(?:html|css|js)")
_MARK: Final = b'<meta name="generator" content="benchfarm '


@dataclass(slots=True)
class Written:
    """What a build did."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    size_bytes: int = 0
    #: Files of an older build that somebody changed since; they stay.
    kept: list[str] = field(default_factory=list)


class SiteFolder:
    """One folder; raises UsageError when it holds something else, HostStorageError when the disk is full."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._result = Written()
        self._files: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        with self._guarded():
            folder.mkdir(parents=True, exist_ok=True)
            for name in _FOLDERS:
                if (folder / name).is_symlink():
                    raise UsageError(f"{folder / name} is a link", hint="choose an empty folder with --out")
                (folder / name).mkdir(exist_ok=True)
            self._before, self._old_notes = self._manifest()

    def note(self, name: str) -> str:
        """Return what was noted about a page by the build before, "" for nothing or when the page is gone."""
        return self._old_notes.get(name, "") if self._is_ours(name) else ""

    def check(self, paths: Iterable[str]) -> None:
        """Make sure that no page takes the place of somebody else's file, before anything is written."""
        planned = set(paths)
        for path in sorted(planned - set(self._before)):
            content = self._content(path)
            if content is not None and _MARK not in content[:2000] and not path.startswith("assets/"):
                raise UsageError(
                    f"{self._folder / path} was not made by 'benchfarm history site'",
                    hint="choose an empty folder with --out, or move this file away",
                )
        # A build that is cut off leaves pages that the next one knows as its own.
        self._save({**dict.fromkeys(planned, ""), **self._before})

    def write(self, path: str, content: bytes, *, note: str = "") -> None:
        """Write a page unless it is there as it is."""
        self._claim(path, hashlib.sha256(content).hexdigest(), note)
        self._result.size_bytes += len(content)
        if self._content(path) == content:
            self._result.unchanged += 1
            return
        target = self._folder / path
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with self._guarded():
            try:
                draft.write_bytes(content)
                draft.replace(target)
            finally:
                with contextlib.suppress(OSError):
                    draft.unlink()
        self._result.written += 1

    def keep(self, path: str, note: str) -> None:
        """Leave a page of the build before as it is."""
        self._claim(path, self._before[path], note)
        self._result.unchanged += 1
        self._result.size_bytes += (self._folder / path).stat().st_size

    def finish(self) -> Written:
        """Remove pages of builds before that this one doesn't have, and keep the list; return what was done."""
        for path in sorted(set(self._before) - set(self._files)):
            if not self._is_ours(path):
                if self._content(path) is not None:
                    self._result.kept.append(path)
                continue
            with self._guarded():
                (self._folder / path).unlink()
            self._result.removed += 1
        self._save(self._files)
        return self._result

    def _claim(self, path: str, sha256: str, note: str) -> None:
        if not _OWN_PATH.fullmatch(path):
            raise ValueError(f"{path!r} is no page of a site")
        self._files[path] = sha256
        if note:
            self._notes[path] = note

    def _is_ours(self, path: str) -> bool:
        """Whether a file is as a build before left it, or one that such a build was writing when it was cut off."""
        content = self._content(path) if path in self._before else None
        if content is None:
            return False
        known = self._before[path]
        return hashlib.sha256(content).hexdigest() == known if known else _MARK in content[:2000]

    def _content(self, path: str) -> bytes | None:
        """Return a regular file's bytes, None when there is none; what a link leads to is nobody's page."""
        target = self._folder / path
        try:
            if not stat.S_ISREG(target.lstat().st_mode):
                raise UsageError(f"{target} is no plain file", hint="choose an empty folder with --out")
            return target.read_bytes()
        except FileNotFoundError:
            return None

    def _manifest(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return files and notes; names that no build can have written are passed over."""
        content = self._content(MANIFEST)
        if content is None:
            return {}, {}
        try:
            found = json.loads(content)
            files = {str(path): str(sha256) for path, sha256 in found["files"].items() if _OWN_PATH.fullmatch(path)}
            return files, {str(path): str(note) for path, note in found.get("notes", {}).items() if path in files}
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UsageError(
                f"{self._folder / MANIFEST} can't be read",
                hint="remove it together with the pages, or choose an empty folder with --out",
            ) from None

    def _save(self, files: dict[str, str]) -> None:
        notes = self._notes or self._old_notes
        text = json.dumps({"files": files, "notes": {path: notes[path] for path in notes if path in files}}, indent=0)
        with self._guarded():
            draft = self._folder / f"{MANIFEST}.{os.getpid()}.tmp"
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._folder / MANIFEST)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"{self._folder}: no space left for the site") from error
            raise UsageError(f"{error.filename or self._folder}: {error.strerror}") from error
