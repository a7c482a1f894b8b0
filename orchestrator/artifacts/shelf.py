"""Files kept under the sha256 of their content, each in a folder of its own with a label."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar, cast

from orchestrator.artifacts.elf import ProgramFacts
from orchestrator.artifacts.program import inspect_program
from orchestrator.errors import ArtifactError, HostStorageError
from orchestrator.files import make_private

_T = TypeVar("_T")
_LABEL: Final = "build.json"
_LOCK_WAIT_S: Final = 120.0
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Shelf:
    """A folder of kept files.

    Each content has a folder named by its sha256, with the file and ``build.json``. A folder appears by one rename, so
    that it is whole or not there, and one process adds at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, source: Path, *, name: str, label: Mapping[str, object], sha256: str) -> Path:
        """Take a copy of a file and return where it lies; what is there already stays, only its label is renewed.

        Args:
            source: The file.
            name: What the copy is called; made harmless, as it ends up in paths on phones.
            label: What is to be known of it; ``file`` and ``sha256`` are added.
            sha256: What its content must be.

        Raises:
            ArtifactError: it can't be read or copied, or isn't that content any more.
            HostStorageError: no space left.
        """
        from filelock import FileLock, Timeout

        try:
            make_private(self.folder)
            with (
                FileLock(self.folder / "lock", timeout=_LOCK_WAIT_S),
                tempfile.TemporaryDirectory(prefix=".adding-", dir=self.folder) as draft,
            ):
                return self._keep(source, _harmless(name), label, sha256, Path(draft) / "entry")
        except Timeout as error:
            raise ArtifactError(f"another benchfarm has been adding to {self.folder} for {_LOCK_WAIT_S:g} s") from error
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"no space left in {self.folder}") from error
            raise ArtifactError(f"{str(source)!r} can't be copied to {self.folder}: {error.strerror}") from error

    def _keep(self, source: Path, name: str, label: Mapping[str, object], sha256: str, entry: Path) -> Path:
        home = self.folder / sha256
        there = self.file(sha256)
        entry.mkdir()
        if there is not None and sha256_of(there) == sha256:
            _write_label(entry / _LABEL, {**label, "file": there.name})
            (entry / _LABEL).replace(home / _LABEL)
            return there
        if _copy(source, entry / name) != sha256:
            raise ArtifactError(f"{str(source)!r} changed while it was copied", hint="try again")
        _write_label(entry / _LABEL, {**label, "file": name})
        shutil.rmtree(home, ignore_errors=True)  # what damage left there
        entry.rename(home)
        return home / name

    def file(self, sha256: str) -> Path | None:
        """Return where a content lies, None when it isn't there whole; it isn't hashed again."""
        label = self.label(sha256)
        return None if label is None else self.folder / sha256 / Path(str(label["file"])).name

    def label(self, sha256: str) -> Mapping[str, object] | None:
        """Return what is known of a content, None when it isn't there whole."""
        try:
            label = json.loads((self.folder / sha256 / _LABEL).read_text(encoding="utf-8"))
            whole = (self.folder / sha256 / Path(label["file"]).name).is_file()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return label if whole and isinstance(label, dict) else None

    def contents(self) -> Iterator[str]:
        """Yield the sha256 of everything that lies here."""
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            if _SHA256.fullmatch(entry.name):
                yield entry.name


def sha256_of(path: Path | None) -> str:
    """Return the hash of a file's content, empty when it can't be read."""
    try:
        if path is None:
            return ""
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""


def _harmless(name: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:100] or "program"
    return name if name != _LABEL else f"{name}.bin"


def _copy(source: Path, target: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        while part := reader.read(1 << 20):
            digest.update(part)
            writer.write(part)
        writer.flush()
        os.fsync(writer.fileno())
    target.chmod(0o755)
    return digest.hexdigest()


def _write_label(path: Path, label: Mapping[str, object]) -> None:
    path.write_text(json.dumps(dict(label), indent=2) + "\n", encoding="utf-8")


class KnownFiles:
    """Hashes of files, and looks inside programs: one for each content, however many phones it goes to."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], object] = {}

    def sha256(self, path: Path | None) -> str:
        """Return the hash of a file's content, empty when it can't be read."""
        return self._once(sha256_of, path) if path is not None else ""

    def program(self, path: Path) -> ProgramFacts:
        """Return what a program is; raises ArtifactError as inspect_program does."""
        return self._once(inspect_program, path)

    def _once(self, look: Callable[[Path], _T], path: Path) -> _T:
        try:
            found = path.stat()
        except (OSError, ValueError):
            return look(path)
        # What changes when somebody writes the file.
        key = (look, path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in self._known:
            self._known[key] = look(path)
        return cast("_T", self._known[key])
