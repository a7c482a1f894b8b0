"""Files that are written atomically, and folders that are private to the user."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeVar
from urllib.parse import quote, unquote

from orchestrator.errors import BenchfarmError, HostStorageError, UsageError

_ReadT = TypeVar("_ReadT")


def make_private(folder: Path) -> None:
    """Make a folder and its parents, accessible to this user only; existing ones stay unchanged.

    Raises OSError.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def expanded(path: Path) -> Path:
    """Return a path with the home folder for its ``~``; raises UsageError for an unknown user's."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise UsageError(
            f"{path}: there is no such user, whose home folder this could be"
        ) from None


def sha256_of(path: Path) -> str:
    """Return the hash of a file's content; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached_by_status(read: Callable[[Path], _ReadT]) -> Callable[[Path], _ReadT]:
    """Return a function that reads a file again only after it has changed."""
    cached_read = functools.lru_cache(maxsize=256)(lambda path, _stamp: read(path))

    @functools.wraps(read)
    def cached(path: Path) -> _ReadT:
        try:
            status = path.stat()
        except (OSError, ValueError):
            return read(path)  # raises the error
        return cached_read(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))

    return cached


#: The same as `sha256_of`, for a file that is asked for often.
known_sha256: Final = cached_by_status(sha256_of)


def safe_name(name: str, longest: int = 80) -> str:
    """Return a file name for any device: the last letters, digits, dots, dashes and underscores, not
    starting with a dash.

    The content's hash is in the folder's name, so that two names which become equal here stay
    apart; the benchmark app splits its arguments at white space and could not take the original.
    """
    safe = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_"
        for letter in name
    )
    return safe.lstrip("-.")[-longest:].lstrip("-.") or "file"


def file_of(folder: Path, name: str, suffix: str) -> Path:
    """Return the path of the file that a folder has for any name; `name_of` gives the name."""
    return folder / f"{quote(name, safe='')}{suffix}"


def name_of(path: Path) -> str:
    """Return the name that a path of `file_of` is for."""
    return unquote(path.stem)


#: The bytes of a program's stream that are kept: half of them from its start, half from its end.
OUTPUT_MOST_BYTES: Final = 16 << 20
_PIECE_BYTES: Final = 1 << 20
#: The line in place of a stream's omitted middle, here and on a phone (shorten.sh).
LEFT_OUT: Final = re.compile(
    rb"^benchfarm: (the middle of \d+ bytes of output is left out) here$", re.MULTILINE
)


def head_and_tail(file: IO[bytes], most_bytes: int = OUTPUT_MOST_BYTES) -> bytes:
    """Return a file's content; for a larger file the lines at both its ends, and between them a
    line about the omission.
    """
    file.seek(0)
    ends = BothEnds(most_bytes)
    while piece := file.read(_PIECE_BYTES):
        ends.add(piece)
    return ends.content()


class BothEnds:
    """Collects an output piece by piece, and holds no more than :func:`head_and_tail` returns."""

    def __init__(self, most_bytes: int = OUTPUT_MOST_BYTES) -> None:
        self._half_bytes = most_bytes // 2
        self._head = bytearray()
        self._tail = deque[bytes]()
        self._tail_bytes = 0
        self._size_bytes = 0

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        self._size_bytes += len(data)
        room = self._half_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= self._half_bytes:
                self._tail_bytes -= len(self._tail.popleft())

    def content(self) -> bytes:
        """Return the output; for a larger one the lines at both ends, and between them a line about
        the omission.
        """
        tail = b"".join(self._tail)
        if self._size_bytes <= 2 * self._half_bytes:
            return bytes(self._head) + tail
        head = bytes(self._head).rpartition(b"\n")[0]
        return b"%s\nbenchfarm: the middle of %d bytes of output is left out here\n%s" % (
            head,
            self._size_bytes,
            tail[-self._half_bytes :].partition(b"\n")[2],
        )


def private_tmp_folder() -> Path | None:
    """Return this user's private folder in /tmp, for files of the computer rather than of a home.

    None if it can't be made, or isn't private: anybody can create it, or a link, before.
    """
    folder = Path("/tmp") / f"benchfarm-{os.getuid()}"  # noqa: S108 - it is checked
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if is_private(folder) else None


def is_private(folder: Path) -> bool:
    """Whether a folder exists, isn't a link, and is accessible to this user only."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    )


@contextlib.contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Lend a unique path beside a file; what is written there takes the file's place at the end.

    After an error the older file is unchanged, and no draft is left. Raises OSError.
    """
    draft = _draft_path(path)
    try:
        yield draft
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _draft_path(path: Path) -> Path:
    # Numbers of threads and processes aren't unique: containers that share a folder have the same
    # ones.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_whole(
    path: Path,
    content: bytes | str | Iterable[bytes | str],
    *,
    is_private: bool = True,
    is_durable: bool = False,
) -> None:
    """Write a file atomically, and make its folder; after a failure the older file is unchanged.

    An iterable content is written piece by piece, without holding all of it in memory.

    The file, and a folder that has to be made, are accessible to this user only, unless it isn't
    ``is_private``; an older file's rights are kept then. ``is_durable``: survives a power failure.
    Raises OSError.
    """
    make_private(path.parent) if is_private else path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    mode = 0o600 if is_private else 0o666
    with draft_of(path) as draft, os.fdopen(os.open(draft, flags, mode), "wb") as file:
        if not is_private:
            with contextlib.suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        _write(file, content)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    if is_durable:
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def _write(file: IO[bytes], content: bytes | str | Iterable[bytes | str]) -> None:
    for piece in (content,) if isinstance(content, bytes | str) else content:
        file.write(piece.encode() if isinstance(piece, str) else piece)


def is_stream(path: Path) -> bool:
    """Whether what is no folder is a device, a pipe or an open file, such as /dev/stdout: no file
    may take its place.
    """
    # Path.exists raises for a name that is too long.
    return os.path.exists(path) and (not os.path.isfile(path) or _descriptor(path) is not None)  # noqa: PTH110, PTH113


def _descriptor(path: Path) -> int | None:
    """Return the number of this process's open file that a path names: 1 for /dev/stdout."""
    if os.path.realpath(path.parent) in {"/dev/fd", f"/proc/{os.getpid()}/fd"}:
        return int(path.name)
    return _descriptor(path.parent / path.readlink()) if path.is_symlink() else None


def link_target(path: Path) -> Path:
    """Return the file that a link leads to: the link stays."""
    return Path(os.path.realpath(path))


def keep_file(path: Path, content: bytes | str, *, is_private: bool = True) -> None:
    """Write a file of benchfarm's own atomically, see :func:`write_whole`.

    Raises HostStorageError.
    """
    try:
        write_whole(path, content, is_private=is_private)
    except OSError as error:
        raise HostStorageError(f"{path} can't be written: {error.strerror or error}") from error


def write_file(
    path: Path, data: bytes | str | Iterable[bytes | str], *, makes_folder: bool = False
) -> None:
    """Write a user's file atomically; after a failure the older file is unchanged. A link, a pipe
    and a device stay what they are.

    A missing folder is made only with ``makes_folder``: for benchfarm's own folder, or one that the
    user named as a folder for files. Raises UsageError, HostStorageError.
    """
    check_folder(path, makes_folder=makes_folder)
    try:
        if is_stream(path):
            number = _descriptor(path)
            # An open file may have content already (>> FILE), and gets more.
            with path.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as file:
                _write(file, data)
        else:
            write_whole(link_target(path), data, is_private=False)
    except OSError as error:
        raise unwritable(path, error) from error


def is_disk_full(error: OSError) -> bool:
    """Whether a file can't be written for lack of space."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}


def unwritable(path: Path, error: OSError) -> BenchfarmError:
    """Return the error for a file that couldn't be written."""
    if is_disk_full(error):
        return HostStorageError(
            f"{path}: no space left to write it", hint="free some, or name another place"
        )
    return UsageError(f"{path}: {error.strerror or error}")


def check_folder(path: Path, *, makes_folder: bool = False) -> None:
    """Check that a file's path is no folder, and that its folder exists (unless ``makes_folder``).

    Raises UsageError.
    """
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise UsageError(f"{path}: is a folder")
    if not makes_folder and not path.parent.is_dir():
        raise UsageError(
            f"{path}: there is no folder {path.parent}", hint="make it, or name another place"
        )


def check_writable(path: Path, *, makes_folder: bool = False) -> None:
    """Check that a file can be written, before the work for it is done.

    Takes and raises the same as :func:`write_file`.
    """
    check_folder(path, makes_folder=makes_folder)
    if not is_stream(path):
        probe = _draft_path(link_target(path))
        write_file(probe, b"", makes_folder=makes_folder)
        probe.unlink()
