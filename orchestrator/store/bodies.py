"""The bodies of runs: their documents and small attachments, packed against patterns that lie in the database.

A pattern is mostly what another series' pattern is: it is kept as its difference from that one, its *base*, which
itself stands alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection, bindparam, insert, null, select, update

from orchestrator.errors import StoreCorruptError
from orchestrator.store.held_patterns import HeldPatterns, Kind, Newest
from orchestrator.store.packing import needs_usual, pack, pack_by_steps, unpack
from orchestrator.store.pattern import NOTHING, Pattern
from orchestrator.store.tables import PATTERNS, SERIES

#: An attachment beyond this lies in the blobs, once for each content; the others lie in their run.
LARGE_BYTES: Final = 64 * 1024
#: A run whose difference takes more than this share of what it takes alone becomes the pattern of those to come.
_WORTH: Final = 0.5
#: zlib alone takes about a fifth of a run.
_PLAINLY_WORTH: Final = 0.06
#: Patterns that one transaction holds: those of a page of runs, and their bases.
_OWN: Final = 1024
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

    sections: Sequence[tuple[str, bytes]]
    #: What the run's row says too.
    known: Sequence[bytes]

    @property
    def size_bytes(self) -> int:
        """How long the sections are."""
        return sum(len(content) for _, content in self.sections)


def content_of(
    documents: Mapping[str, str | None], attachments: Iterable[tuple[str, bytes]], known: Sequence[bytes]
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
    return Content(sections=sections, known=known), large


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A body that was packed by a pattern; it stands as long as that is the one to pack by."""

    pattern_no: int
    #: None where the pattern isn't worth it.
    body: bytes | None
    steps: str


def draft_of(content: Content, pattern_no: int, pattern: Pattern) -> Draft:
    """Return a body packed by a pattern; nothing is asked of the database."""
    body, steps = pack_by_steps(content.sections, pattern, known=content.known)
    # What a run takes alone is only asked where it isn't plain that the pattern is worth it.
    is_worth = len(body) <= max(64, content.size_bytes * _PLAINLY_WORTH) or (
        len(body) <= _WORTH * len(pack(content.sections, NOTHING, known=content.known))
    )
    return Draft(pattern_no=pattern_no, body=body if is_worth else None, steps=steps)


class Packer:
    """Packs and unpacks runs inside one transaction; what it found and made outlives it when :meth:`settle` is called.

    ``has_bases`` is False for a store of revision 0002, while it is migrated.
    """

    def __init__(self, connection: Connection, held: HeldPatterns | None = None, *, has_bases: bool = True) -> None:
        self._connection = connection
        self._has_bases = has_bases
        self._held = held if held is not None else HeldPatterns()
        self._own: Newest[int, Pattern] = Newest(_OWN)
        self._kinds: dict[Kind, int] = {}

    def settle(self) -> None:
        """Let others use the patterns of this transaction; to be called when it is committed."""
        self._held.keep(self._own.all(), self._kinds)

    def newest(self, series_no: int, run_pass: str, outcome: str) -> int | None:
        """Return the pattern by which such runs are kept, None when there is none."""
        question = {"series_no": series_no, "run_pass": run_pass, "outcome": outcome}
        return self._connection.scalar(_NEWEST_OF_SERIES, question)

    def pack(
        self,
        content: Content,
        *,
        series_no: int,
        run_pass: str,
        outcome: str,
        newest_no: int | None,
        draft: Draft | None = None,
    ) -> tuple[int, bytes]:
        """Return the number of the pattern and the body.

        ``newest_no`` is what :meth:`newest` returns; ``draft`` is used where it was packed by that pattern.
        """
        if newest_no is not None:
            if draft is None or draft.pattern_no != newest_no:
                draft = draft_of(content, newest_no, self.pattern(newest_no))
            if draft.body is not None:
                self._keep_usual(newest_no, draft.steps)
                return newest_no, draft.body
        pattern_no = self._insert(series_no, run_pass, outcome, content.sections)
        return pattern_no, pack(content.sections, self.pattern(pattern_no), known=content.known)

    def note(self, kind: Kind, pattern_no: int) -> None:
        """Note by which pattern a run of a kind is kept."""
        self._kinds[kind] = pattern_no

    def repack(
        self,
        body: bytes,
        pattern_no: int | None,
        *,
        known: Sequence[bytes],
        known_now: Sequence[bytes],
        documents: Mapping[str, str | None],
        where: str,
    ) -> bytes:
        """Return a body with other documents and the very same attachments, against the same pattern.

        ``known`` is what was known when the body was packed, ``known_now`` what will be known from now on.
        """
        pattern = self.pattern(pattern_no, body)
        kept = [
            (name, content)
            for name, content in unpack(body, pattern, known=known, where=where)
            if not name.startswith(_DOCUMENT)
        ]
        return pack([*_of_documents(documents), *kept], pattern, known=known_now)

    def without_attachments(
        self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], left: tuple[str, bytes], where: str
    ) -> bytes:
        """Return a body with its very documents, and in the place of all attachments one by name and content."""
        pattern = self.pattern(pattern_no, body)
        kept = [
            (name, content)
            for name, content in unpack(body, pattern, known=known, where=where)
            if name.startswith(_DOCUMENT)
        ]
        return pack([*kept, (f"{_ATTACHMENT}{left[0]}", left[1])], pattern, known=known)

    def documents(self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], where: str) -> dict[str, str]:
        """Return a run's documents by name; one that it hasn't got isn't there. Raises StoreCorruptError."""
        sections = unpack(
            body,
            self.pattern(pattern_no, body),
            known=known,
            where=where,
            wanted=lambda name: name.startswith(_DOCUMENT),
        )
        return _documents_in(sections)

    def attachments(
        self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], where: str
    ) -> list[tuple[str, bytes | None]]:
        """Return a run's attachments in their order; None stands for one that lies in the blobs."""
        return self.all(body, pattern_no, known=known, where=where)[1]

    def all(
        self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], where: str
    ) -> tuple[dict[str, str], list[tuple[str, bytes | None]]]:
        """Return a run's documents, and its attachments."""
        sections = unpack(body, self.pattern(pattern_no, body), known=known, where=where)
        attachments: list[tuple[str, bytes | None]] = [
            (name.removeprefix(_LARGE), None) if name.startswith(_LARGE) else (name.removeprefix(_ATTACHMENT), content)
            for name, content in sections
            if not name.startswith(_DOCUMENT)
        ]
        return _documents_in(item for item in sections if item[0].startswith(_DOCUMENT)), attachments

    def pattern(self, pattern_no: int | None, body: bytes = b"") -> Pattern:
        """Return a pattern, with all that a body needs of it; raises StoreCorruptError when it is damaged."""
        if pattern_no is None:
            return NOTHING
        found = self._at_hand(pattern_no)
        if found is None or (body and not found.usual and needs_usual(body)):
            # What was held may be older than the pattern's usual steps.
            self._read([pattern_no])
            found = self._own.get(pattern_no)
        if found is None:
            raise StoreCorruptError(f"pattern {pattern_no}: it is missing, and with it the runs that were kept by it")
        return found

    def fetch(self, pattern_nos: Iterable[int | None]) -> None:
        """Read those patterns that aren't at hand yet, in one question."""
        numbers = {number for number in pattern_nos if number is not None}
        self._read({number for number in numbers if self._at_hand(number) is None})

    def _at_hand(self, pattern_no: int) -> Pattern | None:
        found = self._own.get(pattern_no)
        if found is None and (found := self._held.get(pattern_no)) is not None:
            # Others may let go of it meanwhile.
            self._own.keep({pattern_no: found})
        return found

    def _read(self, pattern_nos: Collection[int]) -> None:
        if not pattern_nos:
            return
        base_no = PATTERNS.c.base_no if self._has_bases else null().label("base_no")
        columns = PATTERNS.c.pattern_no, base_no, PATTERNS.c.body, PATTERNS.c.usual
        rows = self._connection.execute(select(*columns).where(PATTERNS.c.pattern_no.in_(pattern_nos))).all()
        # A base has none itself, so that this ends.
        self.fetch({row.base_no for row in rows} - set(pattern_nos))
        for row in sorted(rows, key=lambda row: row.base_no is not None):
            base = replace(self.pattern(row.base_no), usual="")
            sections = unpack(bytes(row.body), base, where=f"pattern {row.pattern_no}")
            self._own.keep({row.pattern_no: Pattern(sections, row.usual or "")})

    def _keep_usual(self, pattern_no: int, steps: str) -> None:
        """Let a pattern know the steps of the first run that was told apart from it; they never change again."""
        held = self.pattern(pattern_no)
        if held.usual:
            return
        unknown = PATTERNS.c.pattern_no == pattern_no, PATTERNS.c.usual.is_(None)
        if self._connection.execute(update(PATTERNS).where(*unknown).values(usual=steps)).rowcount:
            self._own.keep({pattern_no: replace(held, usual=steps)})
        else:
            # Another process was first.
            self._read([pattern_no])

    def _insert(self, series_no: int, run_pass: str, outcome: str, sections: Sequence[tuple[str, bytes]]) -> int:
        bases = self._bases(series_no, run_pass, outcome) if self._has_bases else ()
        base_no, body = self._by_base(bases, sections)
        row: dict[str, object] = {"series_no": series_no, "run_pass": run_pass, "outcome": outcome, "body": body}
        if base_no is not None:
            row["base_no"] = base_no
        key = self._connection.execute(insert(PATTERNS), row).inserted_primary_key
        assert key is not None, "a single INSERT always has one"
        number: int = key[0]
        self._own.keep({number: Pattern(sections)})
        return number

    def _by_base(self, bases: Iterable[int], sections: Sequence[tuple[str, bytes]]) -> tuple[int | None, bytes]:
        """Return a pattern's own body: told apart from one of the bases, or alone where that isn't worth it."""
        alone = pack(sections, NOTHING)
        packed = [(base_no, pack(sections, replace(self.pattern(base_no), usual=""))) for base_no in bases]
        best = min(packed, key=lambda item: len(item[1]), default=None)
        return best if best is not None and len(best[1]) <= _WORTH * len(alone) else (None, alone)

    def _bases(self, series_no: int, run_pass: str, outcome: str) -> list[int]:
        """Return the newest pattern that stands alone of the series' device, and the newest of all devices."""
        alone = PATTERNS.c.base_no.is_(None), PATTERNS.c.run_pass == run_pass, PATTERNS.c.outcome == outcome
        newest = select(PATTERNS.c.pattern_no).where(*alone).order_by(PATTERNS.c.pattern_no.desc()).limit(1)
        device_no = select(SERIES.c.device_no).where(SERIES.c.series_no == series_no).scalar_subquery()
        of_device = newest.join(SERIES, PATTERNS.c.series_no == SERIES.c.series_no).where(
            SERIES.c.device_no == device_no
        )
        found = self._connection.scalar(of_device), self._connection.scalar(newest)
        return [number for number in dict.fromkeys(found) if number is not None]


def _of_documents(documents: Mapping[str, str | None]) -> Iterator[tuple[str, bytes]]:
    """Yield the sections of those documents that a run has."""
    for name, text in documents.items():
        if text is not None:
            yield f"{_DOCUMENT}{name}", text.encode("utf-8", "surrogatepass")


def _documents_in(sections: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    return {name.removeprefix(_DOCUMENT): text.decode("utf-8", "surrogatepass") for name, text in sections}
