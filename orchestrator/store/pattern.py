"""What runs are told apart from: the sections of an earlier run, taken apart as far as they are asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from orchestrator.store.tokens import Parts, taken_apart

#: (name, content) in an order that is part of the run: documents first, then attachments.
Sections = Sequence[tuple[str, bytes]]
#: A line without its tokens.
Shape = tuple[bytes, ...]

#: zlib looks back no further.
_DICTIONARY_BYTES: Final = 32_768 - 512
_PIECE: Final = re.compile(rb"[^,]*,|[^,]+\Z")


def split_lines(content: bytes) -> list[bytes]:
    """Return lines, each with its end."""
    return content.splitlines(keepends=True)


def split_pieces(content: bytes) -> list[bytes]:
    """Return what ends with a comma, each with it; a document is one line."""
    return _PIECE.findall(content)


Split = Callable[[bytes], list[bytes]]


class Lines:
    """A section's lines or pieces, each taken apart. What ends them is part of no token."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        known: dict[bytes, bytes] = {}
        self.parts: Final = [_shared(taken_apart(line), known) for line in lines]

    @cached_property
    def shapes(self) -> list[Shape]:
        """What each line is without its tokens."""
        return [tuple(parts[::2]) for parts in self.parts]

    @cached_property
    def places(self) -> Mapping[Shape, Sequence[int]]:
        """Where each shape stands."""
        places: dict[Shape, list[int]] = {}
        for place, shape in enumerate(self.shapes):
            places.setdefault(shape, []).append(place)
        return places

    def stretch(self, start: int, length: int) -> Parts:
        """Return some lines as one text's parts."""
        joined = [b""]
        for parts in self.parts[start : start + length]:
            joined[-1] += parts[0]
            joined += parts[1:]
        return joined


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found out of sections, by name."""

    parts: dict[str, Parts] = field(default_factory=dict)
    lines: dict[tuple[str, Split], Lines] = field(default_factory=dict)


@dataclass(frozen=True)
class Pattern:
    """What runs are told apart from. Several threads may use one."""

    sections: Sections
    #: Hexadecimal digits of another run's steps; empty while there is none.
    usual: str = ""
    #: Goes on to a pattern of the same sections with other usual steps.
    found: _Found = field(default_factory=_Found, compare=False, repr=False)

    @cached_property
    def named(self) -> dict[str, bytes]:
        """The sections by name."""
        return dict(self.sections)

    @cached_property
    def names(self) -> list[str]:
        """The sections' names in their order."""
        return [name for name, _ in self.sections]

    @property
    def dictionary(self) -> bytes:
        """The bytes that compression may refer to."""
        return b"".join(content for _, content in self.sections)[-_DICTIONARY_BYTES:]

    def taken_apart(self, name: str) -> Parts:
        """Return a section's parts."""
        found = self.found.parts.get(name)
        if found is None:
            found = self.found.parts[name] = _shared(taken_apart(self.named[name]), {})
        return found

    def lines(self, name: str, split: Split) -> Lines:
        """Return a section's lines or pieces, none for one that isn't there."""
        found = self.found.lines.get((name, split))
        if found is None:
            found = self.found.lines[name, split] = Lines(split(self.named.get(name, b"")))
        return found


def _shared(parts: Parts, known: dict[bytes, bytes]) -> Parts:
    """Return equal parts as one object each: held patterns take a quarter of the space."""
    return list(map(known.setdefault, parts, parts))


#: A pattern without sections: everything is compressed on its own.
NOTHING: Final = Pattern(sections=())
