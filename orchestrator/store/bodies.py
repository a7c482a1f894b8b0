"""The bodies of runs: their documents and small attachments, compressed with an earlier run of their series.

Two runs of a series print the same lines with other figures. The first run of a series, pass and outcome becomes their
*pattern*: a Zstandard dictionary by which later ones take about 650 bytes of 24,000. A run that it doesn't help much
becomes the pattern of those to come. A pattern never changes and is stored beside the runs that need it.

Layout of what is compressed: a line of JSON with names and sizes of all sections, then their bytes.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import zstandard
from sqlalchemy import Connection, bindparam, insert, select

from orchestrator.errors import StoreCorruptError
from orchestrator.store.tables import PATTERNS

#: (name, content) in an order that is part of the run: documents first, then attachments.
Sections = Sequence[tuple[str, bytes]]

#: An attachment beyond this lies in the blobs, once for each content; the others lie in their run.
LARGE_BYTES: Final = 64 * 1024
#: Level 9 makes bodies 2 % smaller and takes four times as long.
_LEVEL: Final = 7
#: A run whose body takes more than this share of what it takes alone becomes the pattern of those to come.
_WORTH: Final = 0.5
#: A body that is smaller than this share of its sections is plainly worth it: alone they take about a fifth.
_PLAINLY_WORTH: Final = 0.06
#: Beyond that a body can only be damaged.
_BODY_MAX_BYTES: Final = 512 << 20
#: Patterns held at hand, some 25 kB each.
_HELD: Final = 512
#: Marks the documents, whose names are ours, from attachments, whose names are anything.
_DOCUMENT: Final = "document:"
_ATTACHMENT: Final = "attachment:"
_LARGE: Final = "large:"

#: Of a pass and an outcome, by which pattern runs are kept; a series is to be added.
NEWEST_PATTERN: Final = (
    select(PATTERNS.c.pattern_no)
    .where(PATTERNS.c.run_pass == bindparam("run_pass"), PATTERNS.c.outcome == bindparam("outcome"))
    .order_by(PATTERNS.c.pattern_no.desc())
    .limit(1)
)
_NEWEST_OF_SERIES: Final = NEWEST_PATTERN.where(PATTERNS.c.series_no == bindparam("series_no"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What of a run is kept in its body."""

    sections: Sections

    @property
    def size_bytes(self) -> int:
        """How long the sections are."""
        return sum(len(content) for _, content in self.sections)


def content_of(
    documents: Mapping[str, str | None], attachments: Iterable[tuple[str, bytes]]
) -> tuple[Content, list[tuple[int, str, bytes]]]:
    """Return what is kept in a run's body, and the attachments (position, name, content) for the blobs."""
    sections = list(_of_documents(documents))
    large = []
    for position, (name, content) in enumerate(attachments):
        if len(content) > LARGE_BYTES:
            large.append((position, name, content))
            sections.append((f"{_LARGE}{name}", b""))
        else:
            sections.append((f"{_ATTACHMENT}{name}", content))
    return Content(sections=sections), large


class Pattern:
    """A dictionary for bodies; several threads may use one."""

    def __init__(self, content: bytes) -> None:
        """``content`` is what was compressed of an earlier run."""
        self.content: Final = content

    @cached_property
    def dictionary(self) -> zstandard.ZstdCompressionDict:
        """It as Zstandard wants it."""
        return zstandard.ZstdCompressionDict(self.content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def pack(sections: Sections, pattern: Pattern | None = None) -> bytes:
    """Return a run's sections compressed; the pattern must be at hand, unchanged, when they are unpacked."""
    return _compressed(_joined(sections), pattern)


def unpack(body: bytes, pattern: Pattern | None = None, *, where: str) -> list[tuple[str, bytes]]:
    """Return the sections that :func:`pack` was given; raises StoreCorruptError naming ``where``."""
    return list(_sections_in(_decompressed(body, pattern, where=where), where=where))


class HeldPatterns:
    """The patterns used last by all threads of a store; all of them are stored for good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patterns: OrderedDict[int, Pattern] = OrderedDict()

    def get(self, pattern_no: int) -> Pattern | None:
        """Return a pattern, None for one that isn't at hand."""
        with self._lock:
            if pattern_no in self._patterns:
                self._patterns.move_to_end(pattern_no)
            return self._patterns.get(pattern_no)

    def keep(self, patterns: Mapping[int, Pattern]) -> None:
        """Hold patterns that are stored, in the place of those used least lately."""
        with self._lock:
            self._patterns.update(patterns)
            while len(self._patterns) > _HELD:
                self._patterns.popitem(last=False)


class Packer:
    """Packs and unpacks runs inside one transaction; its patterns outlive it when :meth:`settle` is called."""

    def __init__(self, connection: Connection, held: HeldPatterns | None = None) -> None:
        self._connection = connection
        self._held = held if held is not None else HeldPatterns()
        self._own: dict[int, Pattern] = {}

    def settle(self) -> None:
        """Let others use the patterns of this transaction; to be called when it is committed."""
        self._held.keep(self._own)

    def newest(self, series_no: int, run_pass: str, outcome: str) -> int | None:
        """Return the pattern by which such runs are kept, None when there is none."""
        question = {"series_no": series_no, "run_pass": run_pass, "outcome": outcome}
        return self._connection.scalar(_NEWEST_OF_SERIES, question)

    def pack(
        self, content: Content, *, series_no: int, run_pass: str, outcome: str, newest_no: int | None
    ) -> tuple[int, bytes]:
        """Return the number of the pattern and the body; ``newest_no`` is what :meth:`newest` returns."""
        joined = _joined(content.sections)
        if newest_no is not None:
            body = _compressed(joined, self.pattern(newest_no))
            # What a run takes alone is only asked where it isn't plain that the pattern is worth it.
            if len(body) <= max(64, content.size_bytes * _PLAINLY_WORTH) or (
                len(body) <= _WORTH * len(_compressed(joined, None))
            ):
                return newest_no, body
        row = {"series_no": series_no, "run_pass": run_pass, "outcome": outcome, "body": _compressed(joined, None)}
        key = self._connection.execute(insert(PATTERNS), row).inserted_primary_key
        assert key is not None, "a single INSERT always has one"
        number: int = key[0]
        self._own[number] = Pattern(joined)
        return number, _compressed(joined, self._own[number])

    def repack(self, body: bytes, pattern_no: int | None, *, documents: Mapping[str, str | None], where: str) -> bytes:
        """Return a body with other documents and the very same attachments, against the same pattern."""
        pattern = self.pattern(pattern_no)
        kept = [item for item in unpack(body, pattern, where=where) if not item[0].startswith(_DOCUMENT)]
        return pack([*_of_documents(documents), *kept], pattern)

    def without_attachments(self, body: bytes, pattern_no: int | None, *, left: tuple[str, bytes], where: str) -> bytes:
        """Return a body with its very documents, and in the place of all attachments one by name and content."""
        pattern = self.pattern(pattern_no)
        kept = [item for item in unpack(body, pattern, where=where) if item[0].startswith(_DOCUMENT)]
        return pack([*kept, (f"{_ATTACHMENT}{left[0]}", left[1])], pattern)

    def documents(self, body: bytes, pattern_no: int | None, *, where: str) -> dict[str, str]:
        """Return a run's documents by name; one that it hasn't got isn't there. Raises StoreCorruptError."""
        return self.all(body, pattern_no, where=where)[0]

    def attachments(self, body: bytes, pattern_no: int | None, *, where: str) -> list[tuple[str, bytes | None]]:
        """Return a run's attachments in their order; None stands for one that lies in the blobs."""
        return self.all(body, pattern_no, where=where)[1]

    def all(
        self, body: bytes, pattern_no: int | None, *, where: str
    ) -> tuple[dict[str, str], list[tuple[str, bytes | None]]]:
        """Return a run's documents, and its attachments; raises StoreCorruptError."""
        documents: dict[str, str] = {}
        attachments: list[tuple[str, bytes | None]] = []
        for name, content in unpack(body, self.pattern(pattern_no), where=where):
            if name.startswith(_DOCUMENT):
                documents[name.removeprefix(_DOCUMENT)] = content.decode("utf-8", "surrogatepass")
            elif name.startswith(_LARGE):
                attachments.append((name.removeprefix(_LARGE), None))
            else:
                attachments.append((name.removeprefix(_ATTACHMENT), content))
        return documents, attachments

    def pattern(self, pattern_no: int | None) -> Pattern | None:
        """Return a pattern; raises StoreCorruptError when it is missing or damaged."""
        if pattern_no is None:
            return None
        self.fetch([pattern_no])
        if pattern_no not in self._own:
            raise StoreCorruptError(
                f"pattern {pattern_no}: it is missing or damaged, and with it the runs that were kept by it"
            )
        return self._own[pattern_no]

    def fetch(self, pattern_nos: Iterable[int | None]) -> None:
        """Read those patterns that aren't at hand yet, in one question."""
        missing: Collection[int] = {number for number in pattern_nos if number is not None} - self._own.keys()
        # Others may let go of them meanwhile.
        self._own |= {number: found for number in missing if (found := self._held.get(number)) is not None}
        missing = missing - self._own.keys()
        if not missing:
            return
        columns = PATTERNS.c.pattern_no, PATTERNS.c.body
        for row in self._connection.execute(select(*columns).where(PATTERNS.c.pattern_no.in_(missing))):
            # A damaged one costs the runs that need it, each by itself.
            with suppress(StoreCorruptError):
                content = _decompressed(bytes(row.body), None, where=f"pattern {row.pattern_no}")
                self._own[row.pattern_no] = Pattern(content)


def _of_documents(documents: Mapping[str, str | None]) -> Iterator[tuple[str, bytes]]:
    """Yield the sections of those documents that a run has."""
    for name, text in documents.items():
        if text is not None:
            yield f"{_DOCUMENT}{name}", text.encode("utf-8", "surrogatepass")


def _joined(sections: Sections) -> bytes:
    head = json.dumps([[name, len(content)] for name, content in sections], separators=(",", ":"))
    return b"".join([head.encode("ascii"), b"\n", *(content for _, content in sections)])


def _sections_in(joined: bytes, *, where: str) -> Iterator[tuple[str, bytes]]:
    head, _, rest = joined.partition(b"\n")
    at = 0
    try:
        for name, size in json.loads(head):
            yield name, rest[at : at + size]
            at += size
    except (ValueError, TypeError) as error:
        raise StoreCorruptError(f"{where}: its stored bytes can't be read ({error})") from error


def _compressed(joined: bytes, pattern: Pattern | None) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=_LEVEL,
        dict_data=None if pattern is None else pattern.dictionary,
        write_checksum=True,
        write_dict_id=False,
    )
    return compressor.compress(joined)


def _decompressed(body: bytes, pattern: Pattern | None, *, where: str) -> bytes:
    try:
        if zstandard.frame_content_size(body) > _BODY_MAX_BYTES:
            raise StoreCorruptError(f"{where}: its stored bytes claim to be more than {_BODY_MAX_BYTES >> 20} MiB")
        return zstandard.ZstdDecompressor(dict_data=None if pattern is None else pattern.dictionary).decompress(body)
    except zstandard.ZstdError as error:
        raise StoreCorruptError(f"{where}: the stored bytes aren't the ones that were kept ({error})") from error
