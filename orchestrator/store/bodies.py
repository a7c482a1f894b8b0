"""The bodies of runs: their documents and small attachments, packed against patterns that lie in the database.

A pattern is mostly what another series' pattern is: it is kept as its difference from that one, its *base*, which
itself stands alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, insert, null, select, update

from orchestrator.errors import StoreCorruptError
from orchestrator.store.packing import needs_usual, pack, unpack, usual_steps
from orchestrator.store.pattern import NOTHING, Pattern
from orchestrator.store.tables import PATTERNS, SERIES

#: An attachment beyond this lies in the blobs, once for each content; the others lie in their run.
LARGE_BYTES: Final = 64 * 1024
#: A run whose difference takes more than this share of what it takes alone becomes the pattern of those to come.
_WORTH: Final = 0.5
#: zlib alone takes about a fifth of a run.
_PLAINLY_WORTH: Final = 0.06
#: Patterns that are held in memory, some 20 kB each.
_HELD: Final = 1024
#: Marks the documents, whose names are ours, from attachments, whose names are anything.
_DOCUMENT: Final = "document:"
_ATTACHMENT: Final = "attachment:"
_LARGE: Final = "large:"


class Packer:
    """Packs and unpacks runs inside one transaction; ``held`` may outlive it (a pattern never changes).

    ``has_bases`` is False for a store of revision 0002, while it is migrated.
    """

    def __init__(
        self, connection: Connection, held: OrderedDict[int, Pattern] | None = None, *, has_bases: bool = True
    ) -> None:
        self._connection = connection
        self._has_bases = has_bases
        self._held: OrderedDict[int, Pattern] = OrderedDict() if held is None else held

    def pack(
        self,
        *,
        series_no: int,
        run_pass: str,
        outcome: str,
        known: Sequence[bytes],
        documents: Mapping[str, str | None],
        attachments: Sequence[tuple[str, bytes]],
    ) -> tuple[int | None, bytes, list[tuple[int, str, bytes]]]:
        """Return the number of the pattern, the body, and the attachments (position, name, content) for the blobs."""
        sections = [
            (f"{_DOCUMENT}{name}", text.encode("utf-8", "surrogatepass"))
            for name, text in documents.items()
            if text is not None
        ]
        large = []
        for position, (name, content) in enumerate(attachments):
            if len(content) > LARGE_BYTES:
                large.append((position, name, content))
                sections.append((f"{_LARGE}{name}", b""))
            else:
                sections.append((f"{_ATTACHMENT}{name}", content))
        pattern_no = self._newest(series_no, run_pass, outcome)
        if pattern_no is not None:
            body = pack(sections, self.pattern(pattern_no), known=known)
            plain_bytes = sum(len(content) for _, content in sections)
            # What a run takes alone is only asked where it isn't plain that the pattern is worth it.
            if len(body) <= max(64, plain_bytes * _PLAINLY_WORTH) or (
                len(body) <= _WORTH * len(pack(sections, NOTHING, known=known))
            ):
                self._keep_usual(pattern_no, sections, known)
                return pattern_no, body, large
        pattern_no = self._insert(series_no, run_pass, outcome, sections)
        return pattern_no, pack(sections, self.pattern(pattern_no), known=known), large

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
        new = [
            (f"{_DOCUMENT}{name}", text.encode("utf-8", "surrogatepass"))
            for name, text in documents.items()
            if text is not None
        ]
        return pack([*new, *kept], pattern, known=known_now)

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

    def documents(
        self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], where: str
    ) -> dict[str, str | None]:
        """Return a run's documents by name; one that it hasn't got isn't there. Raises StoreCorruptError."""
        sections = unpack(
            body,
            self.pattern(pattern_no, body),
            known=known,
            where=where,
            wanted=lambda name: name.startswith(_DOCUMENT),
        )
        return {name.removeprefix(_DOCUMENT): text.decode("utf-8", "surrogatepass") for name, text in sections}

    def attachments(
        self, body: bytes, pattern_no: int | None, *, known: Sequence[bytes], where: str
    ) -> list[tuple[str, bytes | None]]:
        """Return a run's attachments in their order; None stands for one that lies in the blobs."""
        sections = unpack(body, self.pattern(pattern_no, body), known=known, where=where)
        return [
            (name.removeprefix(_LARGE), None) if name.startswith(_LARGE) else (name.removeprefix(_ATTACHMENT), content)
            for name, content in sections
            if not name.startswith(_DOCUMENT)
        ]

    def pattern(self, pattern_no: int | None, body: bytes = b"") -> Pattern:
        """Return a pattern, with all that a body needs of it; raises StoreCorruptError when it is damaged."""
        if pattern_no is None:
            return NOTHING
        held = self._held.get(pattern_no)
        if held is None or (body and not held.usual and needs_usual(body)):
            # What was held may be older than the pattern's usual steps.
            self._held.pop(pattern_no, None)
            self.fetch([pattern_no])
        if pattern_no not in self._held:
            raise StoreCorruptError(f"pattern {pattern_no}: it is missing, and with it the runs that were kept by it")
        self._held.move_to_end(pattern_no)
        return self._held[pattern_no]

    def fetch(self, pattern_nos: Iterable[int | None]) -> None:
        """Read those patterns that aren't held yet, in one question."""
        wanted = {number for number in pattern_nos if number is not None} - self._held.keys()
        if not wanted:
            return
        base_no = PATTERNS.c.base_no if self._has_bases else null().label("base_no")
        columns = PATTERNS.c.pattern_no, base_no, PATTERNS.c.body, PATTERNS.c.usual
        query = select(*columns).where(PATTERNS.c.pattern_no.in_(wanted))
        rows = self._connection.execute(query).all()
        # A base has none itself, so that this ends.
        self.fetch({row.base_no for row in rows} - wanted)
        for row in sorted(rows, key=lambda row: row.base_no is not None):
            base = replace(self.pattern(row.base_no), usual="")
            sections = unpack(bytes(row.body), base, where=f"pattern {row.pattern_no}")
            self._held[row.pattern_no] = Pattern(sections=sections, usual=row.usual or "")
        while len(self._held) > max(_HELD, len(wanted)):
            self._held.popitem(last=False)

    def _keep_usual(self, pattern_no: int, sections: Sequence[tuple[str, bytes]], known: Sequence[bytes]) -> None:
        """Let a pattern know the steps of the first run that was told apart from it; they never change again."""
        held = self.pattern(pattern_no)
        if held.usual:
            return
        usual = usual_steps(sections, held, known=known)
        unknown = PATTERNS.c.pattern_no == pattern_no, PATTERNS.c.usual.is_(None)
        kept = self._connection.execute(update(PATTERNS).where(*unknown).values(usual=usual)).rowcount
        if kept:
            self._held[pattern_no] = Pattern(sections=held.sections, usual=usual)
        else:
            # Another process was first.
            del self._held[pattern_no]

    def _newest(self, series_no: int, run_pass: str, outcome: str) -> int | None:
        query = (
            select(PATTERNS.c.pattern_no)
            .where(PATTERNS.c.series_no == series_no, PATTERNS.c.run_pass == run_pass, PATTERNS.c.outcome == outcome)
            .order_by(PATTERNS.c.pattern_no.desc())
            .limit(1)
        )
        return self._connection.scalar(query)

    def _insert(self, series_no: int, run_pass: str, outcome: str, sections: Sequence[tuple[str, bytes]]) -> int:
        bases = self._bases(series_no, run_pass, outcome) if self._has_bases else ()
        base_no, body = self._by_base(bases, sections)
        row: dict[str, object] = {"series_no": series_no, "run_pass": run_pass, "outcome": outcome, "body": body}
        if base_no is not None:
            row["base_no"] = base_no
        key = self._connection.execute(insert(PATTERNS), row).inserted_primary_key
        assert key is not None, "a single INSERT always has one"
        number: int = key[0]
        self._held[number] = Pattern(sections=sections)
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
