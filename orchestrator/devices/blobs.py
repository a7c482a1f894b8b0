"""Files on the phone under their content's hash: pushed once, verified there, pruned by least use."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.devices.link import PhoneLink, expected_checksum
from orchestrator.devices.shell import quote
from orchestrator.errors import DeviceCommandError, DeviceError, DeviceStorageError, TransferError, UsageError
from orchestrator.ports import PlacedFile
from orchestrator.scripts import call

DEFAULT_BUDGET_BYTES: Final = 4 << 30
#: A phone whose data partition is full misbehaves: so much stays free.
_KEEP_FREE_BYTES: Final = 128 << 20
_PREFIX_LENGTH: Final = 16
_VERIFIED: Final = "verified"
_PUSH_ATTEMPTS: Final = 2
_HASH_TIMEOUT_S: Final = 120.0

#: Called with a file's name, the bytes sent so far, and its size.
PushProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """One hash's folder on the phone."""

    path: str
    size_bytes: int
    #: The phone's clock when it was last used.
    used_at_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What lies on the phone, least recently used first, and the space left (None: its df can't be read)."""

    blobs: tuple[Blob, ...]
    free_bytes: int | None


class BlobShelf:
    """The placed files of one phone: ``<folder>/<kind>/<sha256 prefix>/<name>``.

    Beside each hash's folder a file ``<prefix>.verified`` says what was compared, when (in which boot, at which size
    and modification time), and by its own time when the blob was last used.
    """

    def __init__(
        self,
        link: PhoneLink,
        folder: str,
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        progress: PushProgress | None = None,
    ) -> None:
        """Name the folder on the phone; ``progress`` hears of pushes as they go on."""
        self._link = link
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._progress = progress
        #: Used by this process: never pruned by it.
        self._used: set[str] = set()

    def place(
        self, source: Path, *, kind: str, sha256: str, name: str, executable: bool = False, set_sha256: str = ""
    ) -> PlacedFile:
        """See Device.place. Raises UsageError, DeviceStorageError, TransferError, DeviceCommandError."""
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind) or kind == "runs":
            raise UsageError(f"{kind!r} can't be the kind of a placed file")
        _check_name(name)
        folder = set_sha256 or sha256
        for told in (sha256, folder):
            if not re.fullmatch(r"[0-9a-f]{64}", told):
                raise UsageError(f"{told!r} isn't a sha256")
        try:
            size_bytes = source.stat().st_size
        except OSError as error:
            raise UsageError(f"{source} can't be read: {error.strerror}") from error
        blob = f"{self._folder}/{kind}/{folder[:_PREFIX_LENGTH]}"
        path = f"{blob}/{name}"
        self._used.add(blob)
        look = self._link.again(lambda: self._look(blob, name, sha256, source, executable=executable))
        if look is None:
            return PlacedFile(path=path, sha256=sha256, pushed_bytes=0)
        self._make_room(look, size_bytes)
        for attempt in range(1, _PUSH_ATTEMPTS + 1):
            try:
                self._link.again(lambda: self._push(source, blob, name, sha256, executable=executable))
                break
            except TransferError:
                if attempt == _PUSH_ATTEMPTS:
                    raise
        return PlacedFile(path=path, sha256=sha256, pushed_bytes=size_bytes)

    def shelf(self) -> Shelf:
        """Return what lies on the phone and how much space is left."""
        listing = call("place_list", self._folder)
        return self._parse_shelf(self._link.again(lambda: self._link.must(listing, what="listing files")))

    def remove(self, blobs: Sequence[Blob]) -> None:
        """Remove blobs from the phone."""
        if blobs:
            paths = " ".join(f"{quote(blob.path)} {quote(blob.path)}.{_VERIFIED}" for blob in blobs)
            self._link.again(lambda: self._link.must(f"rm -rf {paths}", timeout_s=60.0, what="removing old files"))

    def _parse_shelf(self, text: str) -> Shelf:
        space, _, listing = text.partition("\n\n")
        used_at_s = {path: int(at) for at, path in re.findall(rf"^used (\d+) (\S+)\.{_VERIFIED}$", listing, re.M)}
        sizes: dict[str, int] = {}
        for size, path in re.findall(rf"^size (\d+) ([^/\n]+/[0-9a-f]{{{_PREFIX_LENGTH}}})/", listing, re.M):
            sizes[path] = sizes.get(path, 0) + int(size)
        blobs = [
            # A blob that was never verified is what a push left that was cut off: the first to go.
            Blob(path=f"{self._folder}/{path}", size_bytes=size, used_at_s=used_at_s.get(path, 0))
            for path, size in sizes.items()
        ]
        blobs.sort(key=lambda blob: (blob.used_at_s, blob.path))
        return Shelf(free_bytes=parse_free_bytes(space), blobs=tuple(blobs))

    def _look(self, blob: str, name: str, sha256: str, source: Path, *, executable: bool) -> Shelf | None:
        """Return None when the file lies there, whole; else what lies there instead.

        The phone reads a file once per boot to compare its checksum; later its size and time count.
        """
        mode = "755" if executable else ""

        def look(accepted: str) -> tuple[str, str]:
            script = call("place_look", blob, name, sha256, mode, accepted) + call("place_list", self._folder)
            answer = self._link.must(script, timeout_s=_HASH_TIMEOUT_S, what=f"looking for {name}")
            return answer.partition("\n")[0], answer.partition("\n")[2]

        told, listing = look("")
        if told in {"same", sha256}:
            return None
        if told == expected_checksum(source, sha256, like=told):
            # A phone without sha256sum: what it computes is held against this computer's md5, and noted.
            look(told)
            return None
        return self._parse_shelf(listing)

    def _push(self, source: Path, blob: str, name: str, sha256: str, *, executable: bool) -> None:
        draft = f"{blob}/.{secrets.token_hex(6)}.part"
        mode = 0o755 if executable else 0o644

        def settle(accepted: str) -> str:
            script = call("place_settle", draft, blob, name, sha256, f"{mode:o}", accepted)
            return self._link.must(script, timeout_s=_HASH_TIMEOUT_S, what=f"putting {name} in its place").strip()

        try:
            self._link.push(source, draft, mode=mode, progress=self._told(name, source.stat().st_size))
            told = settle("")
            if told == sha256:
                return
            if not told:
                raise DeviceCommandError("the phone has neither sha256sum nor md5sum", serial=self._link.serial)
            expected = expected_checksum(source, sha256, like=told)
            if told != expected:
                raise TransferError(
                    f"{name} arrived with checksum {told} instead of {expected}",
                    serial=self._link.serial,
                    hint="try another cable or port if it happens often; was the file changed meanwhile?",
                )
            settle(told)
        except (DeviceStorageError, TransferError):
            with contextlib.suppress(DeviceError):
                self._link.shell(f"rm -f {quote(draft)}", what="removing what is left of a push")
            raise

    def _told(self, name: str, total_bytes: int) -> Callable[[int], None] | None:
        hears = self._progress
        return None if hears is None else lambda sent_bytes: hears(name, sent_bytes, total_bytes)

    def _make_room(self, shelf: Shelf, size_bytes: int) -> None:
        """Prune the least recently used blobs until the budget and the free space have room for so many bytes."""
        free_bytes, blobs = shelf.free_bytes, shelf.blobs
        over = sum(blob.size_bytes for blob in blobs) + size_bytes - self._budget_bytes
        short = 0 if free_bytes is None else size_bytes + _KEEP_FREE_BYTES - free_bytes
        doomed: list[Blob] = []
        freed = 0
        for blob in blobs:
            if freed >= max(over, short):
                break
            if blob.path not in self._used:
                doomed.append(blob)
                freed += blob.size_bytes
        self.remove(doomed)
        if free_bytes is not None and free_bytes + freed < size_bytes:
            raise DeviceStorageError(
                f"{size_bytes} bytes are to be placed, but only {free_bytes + freed} are free",
                serial=self._link.serial,
                hint="free some space on the phone",
            )


def parse_free_bytes(text: str) -> int | None:
    """Read ``df -k``: bytes available; None when the columns can't be told apart."""
    lines = text.strip().splitlines()
    if len(lines) < 2:
        return None
    head = lines[0].replace("Mounted on", "Mounted").split()
    row = " ".join(lines[1:]).split()  # a long device name moves the figures to a line of their own
    for column, name in enumerate(head):
        if name in {"Available", "Avail", "Free"} and column < len(row):
            return _kib(row[column])
    return None


def _kib(text: str) -> int | None:
    # Old toolbox's df ignores -k and prints 1.5G.
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    if found is None:
        return None
    factor = {"": 1024, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[found[2]]
    return int(float(found[1]) * factor)


def _check_name(name: str) -> None:
    if not name or name in {".", ".."} or "/" in name or "\0" in name or len(name.encode()) > 200:
        raise UsageError(f"{name!r} can't be the name of a placed file")
