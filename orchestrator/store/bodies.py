"""The bodies of runs: their documents and small attachments, compressed with an earlier run of their series.

Two runs of a series print the same lines with other figures. The first run of a series, pass and outcome becomes their
*pattern*: a Zstandard dictionary by which later ones take about 650 bytes of 24,000. A run that it doesn't help much
becomes the pattern of those to come. A pattern never changes and is stored beside the runs that need it.

Layout of what is compressed: a line of JSON with names and sizes of all sections, then their bytes. Attachments beyond
64 KiB lie in the blobs, once for each content.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import zstandard
from sqlalchemy import Connection, RowMapping, insert, select

from orchestrator.errors import StoreCorruptError
from orchestrator.records.run import Attachment
from orchestrator.store.tables import PATTERNS

#: (name, content) in an order that is part of the run: documents first, then attachments.
Sections = Sequence[tuple[str, bytes]]
#: What earlier runs left, as Zstandard uses it.
Pattern = zstandard.ZstdCompressionDict

_LARGE_BYTES: Final = 64 * 1024
#: Level 9 makes bodies 2 % smaller and takes four times as long.
_LEVEL: Final = 7
#: A run whose body takes more than this share of what it takes alone becomes the pattern of those to come.
_WORTH: Final = 0.5
#: A body that is smaller than this share of its sections is plainly worth it: alone they take about a fifth.
_PLAINLY_WORTH: Final = 0.06
#: A body that claims more than this can only be damaged.
_BODY_MAX_BYTES: Final = 512 << 20
#: Patterns that are kept in memory, some 25 kB each.
_HELD: Final = 512
#: Marks the documents, whose names are ours, from attachments, whose names are anything.
_DOCUMENT: Final = "document:"
_ATTACHMENT: Final = "attachment:"
_LARGE: Final = "large:"


@dataclass(frozen=True, slots=True)
class Body:
    """What was read from a run's body."""

    #: By name; a document that the run hasn't got isn't there.
    documents: Mapping[str, str]
    #: In their order; None stands for content that lies in the blobs.
    attachments: Sequence[tuple[str, bytes | None]]


def sections_of(documents: Mapping[str, str | None], attachments: Iterable[Attachment]) -> list[tuple[str, bytes]]:
    """Return what is kept in a run's body; of large attachments it is the name alone."""
    sections = _of_documents(documents)
    for item in attachments:
        is_large = len(item.data) > _LARGE_BYTES
        sections.append((f"{_LARGE if is_large else _ATTACHMENT}{item.name}", b"" if is_large else item.data))
    return sections


def large_of(attachments: Iterable[Attachment]) -> list[tuple[int, Attachment]]:
    """Return the attachments that are kept in the blobs, with their places."""
    return [(place, item) for place, item in enumerate(attachments) if len(item.data) > _LARGE_BYTES]


def pattern_of(content: bytes) -> Pattern:
    """Return the pattern that some content makes; several threads may use one."""
    return Pattern(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def pack(sections: Sections, pattern: Pattern | None = None) -> bytes:
    """Return a run's sections compressed; the pattern must be there, unchanged, when they are unpacked."""
    return _compressed(_joined(sections), pattern)


def unpack(body: bytes, pattern: Pattern | None = None, *, where: str) -> list[tuple[str, bytes]]:
    """Return the sections that :func:`pack` was given; raises StoreCorruptError naming ``where``."""
    head, _, rest = _decompressed(body, pattern, where=where).partition(b"\n")
    sections, at = [], 0
    try:
        for name, size in json.loads(head):
            sections.append((name, rest[at : at + size]))
            at += size
    except (ValueError, TypeError) as error:
        raise StoreCorruptError(f"{where}: its stored bytes can't be read ({error})") from error
    return sections


class Patterns:
    """The patterns of a store, those used last in memory; threads share them.

    They are forgotten when a transaction fails: a pattern that was made in it isn't there, and its number will be
    another's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, Pattern] = {}

    def clear(self) -> None:
        """Forget what is in memory."""
        with self._lock:
            self._held.clear()

    def fetch(self, connection: Connection, rows: Iterable[RowMapping]) -> None:
        """Read the patterns of some runs' rows that aren't in memory, by one statement."""
        missing = {number for row in rows if (number := row["pattern_no"]) is not None and number not in self._held}
        if not missing:
            return
        columns = PATTERNS.c.pattern_no, PATTERNS.c.body
        for row in connection.execute(select(*columns).where(PATTERNS.c.pattern_no.in_(missing))):
            # A damaged one costs the runs that need it, each by itself.
            with suppress(StoreCorruptError):
                self._keep(row.pattern_no, _decompressed(bytes(row.body), None, where=f"pattern {row.pattern_no}"))

    def read(self, connection: Connection, row: RowMapping) -> Body:
        """Return the body of a run's row; raises StoreCorruptError."""
        documents: dict[str, str] = {}
        attachments: list[tuple[str, bytes | None]] = []
        for name, content in self._sections(connection, row):
            if name.startswith(_DOCUMENT):
                documents[name.removeprefix(_DOCUMENT)] = content.decode("utf-8", "surrogatepass")
            elif name.startswith(_LARGE):
                attachments.append((name.removeprefix(_LARGE), None))
            else:
                attachments.append((name.removeprefix(_ATTACHMENT), content))
        return Body(documents, attachments)

    def pack_new(
        self, connection: Connection, sections: Sections, newest: int | None, kind: Mapping[str, object]
    ) -> tuple[int, bytes]:
        """Return the number of the pattern and the body of a run; ``newest`` is the newest pattern of its ``kind``."""
        content = _joined(sections)
        alone = None
        if newest is not None:
            body = _compressed(content, self._pattern(connection, newest))
            if len(body) <= max(64, len(content) * _PLAINLY_WORTH):
                return newest, body
            alone = _compressed(content, None)
            if len(body) <= _WORTH * len(alone):
                return newest, body
        key = connection.execute(insert(PATTERNS), {**kind, "body": alone or _compressed(content, None)})
        assert key.inserted_primary_key is not None, "a single INSERT always has one"
        number = int(key.inserted_primary_key[0])
        return number, _compressed(content, self._keep(number, content))

    def repack(
        self,
        connection: Connection,
        row: RowMapping,
        *,
        documents: Mapping[str, str | None] | None = None,
        only: Attachment | None = None,
    ) -> bytes:
        """Return a run's body, by its pattern, with other documents or with one attachment in the place of all."""
        sections = self._sections(connection, row)
        kept = [item for item in sections if item[0].startswith(_DOCUMENT)]
        left = [item for item in sections if not item[0].startswith(_DOCUMENT)]
        if documents is not None:
            kept = _of_documents(documents)
        if only is not None:
            left = sections_of({}, [only])
        return pack([*kept, *left], self._pattern(connection, row["pattern_no"]))

    def _sections(self, connection: Connection, row: RowMapping) -> list[tuple[str, bytes]]:
        return unpack(row["body"], self._pattern(connection, row["pattern_no"]), where=f"run {row['run_id']}")

    def _pattern(self, connection: Connection, number: int | None) -> Pattern | None:
        if number is None:
            return None
        found = self._held.get(number)
        if found is None:
            body = connection.scalar(select(PATTERNS.c.body).where(PATTERNS.c.pattern_no == number))
            if body is None:
                raise StoreCorruptError(f"pattern {number}: it is missing, and with it the runs that were kept by it")
            found = self._keep(number, _decompressed(bytes(body), None, where=f"pattern {number}"))
        return found

    def _keep(self, number: int, content: bytes) -> Pattern:
        pattern = pattern_of(content)
        with self._lock:
            if len(self._held) >= _HELD:
                self._held.pop(next(iter(self._held)))
            self._held[number] = pattern
        return pattern


def _of_documents(documents: Mapping[str, str | None]) -> list[tuple[str, bytes]]:
    texts = {name: text for name, text in documents.items() if text is not None}
    return [(f"{_DOCUMENT}{name}", text.encode("utf-8", "surrogatepass")) for name, text in texts.items()]


def _joined(sections: Sections) -> bytes:
    head = json.dumps([[name, len(content)] for name, content in sections], separators=(",", ":"))
    return b"".join([head.encode("ascii"), b"\n", *(content for _, content in sections)])


def _compressed(content: bytes, pattern: Pattern | None) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=pattern, write_checksum=True, write_dict_id=False).compress(
        content
    )


def _decompressed(body: bytes, pattern: Pattern | None, *, where: str) -> bytes:
    try:
        if zstandard.frame_content_size(body) > _BODY_MAX_BYTES:
            raise StoreCorruptError(f"{where}: its stored bytes claim to be more than {_BODY_MAX_BYTES >> 20} MiB")
        return zstandard.ZstdDecompressor(dict_data=pattern).decompress(body)
    except zstandard.ZstdError as error:
        raise StoreCorruptError(f"{where}: the stored bytes aren't the ones that were kept ({error})") from error


def pack_blob(content: bytes, sha256: str) -> dict[str, Any]:
    """Return the row of a large content."""
    packed = zlib.compress(content)
    is_smaller = len(packed) < len(content)
    return {
        "sha256": sha256,
        "size_bytes": len(content),
        "packing": "zlib" if is_smaller else "plain",
        "data": packed if is_smaller else content,
    }


def unpack_blob(row: RowMapping) -> bytes:
    """Return the content of a blob's row, after its hash was checked; raises StoreCorruptError."""
    where = f"raw output {row['sha256']}"
    content = bytes(row["data"])
    if row["packing"] == "zlib":
        try:
            # No more than the size that was noted, so that damaged data can't fill the memory.
            content = zlib.decompressobj().decompress(content, row["size_bytes"] + 1)
        except zlib.error as error:
            raise StoreCorruptError(f"{where}: the stored bytes can't be unpacked ({error})") from error
    elif row["packing"] != "plain":
        raise StoreCorruptError(f"{where}: packed in a way that isn't known: {row['packing']!r}")
    if hashlib.sha256(content).hexdigest() != row["sha256"]:
        raise StoreCorruptError(f"{where}: the stored bytes aren't the ones that were kept")
    return content
