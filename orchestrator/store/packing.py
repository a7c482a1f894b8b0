"""A run's documents and raw output as a few hundred bytes: what differs from an earlier run of its series.

Two runs of a series print the same lines with other figures. A run is kept as its difference from a *pattern*,
the sections of an earlier run: a section is the pattern's own, the pattern's with some tokens (figures, hashes, truth
values) changed, stretches of the pattern's lines so changed with new lines between them, or its bytes compressed with
the pattern as dictionary (RFC 1950's preset dictionary). Every byte comes back as it was; a digest over all sections is
kept and checked. A small binary section is its own bytes and the figures that the text before it said (see
binary_figures.py). Nothing is ever derived from a pattern that isn't stored beside the runs that need it.

The steps of one run of a series are much like those of the next: a pattern may know a run's steps, its *usual* ones,
as dictionary for compressing others'.

Layout: digest (8 bytes), 4 x length of the steps + how they are kept (varint), steps, compressed bytes. Steps are
hexadecimal digits: two in a byte (0), compressed (1), or compressed with the usual steps as dictionary (2).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from orchestrator.errors import StoreCorruptError
from orchestrator.store.binary_figures import AS_PATTERN, in_form, may_repeat, repeated
from orchestrator.store.pattern import Lines, Pattern, Sections, Split, split_lines, split_pieces
from orchestrator.store.steps import Steps, changed_tokens, number
from orchestrator.store.tokens import taken_apart

_SAME, _TOKENS, _BYTES, _LINES, _BINARY, _PIECES = "0", "1", "2", "3", "4", "5"
_SPLIT: Final[dict[str, Split]] = {_LINES: split_lines, _PIECES: split_pieces}
#: Places of the pattern at which a stretch of lines is looked for, at the most.
_STARTS: Final = 400
_OWN_NAMES: Final = "1"
_DIGEST_BYTES: Final = 8
_HALF_BYTES, _COMPRESSED, _BY_USUAL = range(3)
_LEVEL: Final = 9


def pack(sections: Sections, pattern: Pattern, *, known: Sequence[bytes] = ()) -> bytes:
    """Return a run's sections as their difference from a pattern.

    Args:
        sections: all of them; names may repeat.
        pattern: must be at hand, unchanged, when they are unpacked.
        known: texts that the sections are likely to hold and the reader knows too, such as the run's id.
    """
    return pack_by_steps(sections, pattern, known=known)[0]


def pack_by_steps(sections: Sections, pattern: Pattern, *, known: Sequence[bytes] = ()) -> tuple[bytes, str]:
    """Return what :func:`pack` returns, and the run's steps, which its pattern may know as its usual ones."""
    steps, joined = _steps(sections, pattern, known)
    kind, head = min(_kept(steps, pattern), key=lambda kept: len(kept[1]))
    packed = _deflated(joined, pattern.dictionary) if joined else b""
    return _digest(sections) + _varint(4 * len(head) + kind) + head + packed, steps


def needs_usual(body: bytes) -> bool:
    """Whether a body can't be unpacked without its pattern's usual steps."""
    return _read_varint(body, _DIGEST_BYTES)[0] % 4 == _BY_USUAL


def _kept(steps: str, pattern: Pattern) -> Iterator[tuple[int, bytes]]:
    """Yield the ways to keep steps."""
    yield _HALF_BYTES, bytes.fromhex(steps + "0" * (len(steps) % 2))
    yield _COMPRESSED, _deflated(steps.encode(), b"")
    if pattern.usual:
        yield _BY_USUAL, _deflated(steps.encode(), pattern.usual.encode())


def _read_steps(kind: int, head: bytes, pattern: Pattern) -> Steps:
    if kind == _HALF_BYTES:
        return Steps(head.hex())
    if kind == _BY_USUAL and not pattern.usual:
        raise ValueError("the usual steps are missing")
    return Steps(_inflated(head, pattern.usual.encode() if kind == _BY_USUAL else b"").decode("ascii"))


def _steps(sections: Sections, pattern: Pattern, known: Sequence[bytes]) -> tuple[str, bytes]:
    """Return the steps, and what of the sections they leave to be compressed."""
    steps: list[str] = []
    contents: list[bytes] = []
    names = [name for name, _ in sections]
    if names == pattern.names:
        steps.append("0")
    else:
        steps.append(_OWN_NAMES + number(len(names)))
        for name in names:
            encoded = name.encode("utf-8", "surrogatepass")
            steps.append(number(len(encoded)))
            contents.append(encoded)
    seen = {value: place for place, value in enumerate(dict.fromkeys(known))}
    for name, content in sections:
        other = pattern.named.get(name)
        if other == content:
            steps.append(_SAME)
            continue
        changed = None if other is None else _changed_alone(content, pattern, name, seen)
        if changed is not None:
            steps.append(_TOKENS + changed)
            continue
        step, literal, seen = _shortest(content, pattern, name, seen)
        steps.append(step)
        contents.append(literal)
    return "".join(steps), b"".join(contents)


def _shortest(
    content: bytes, pattern: Pattern, name: str, seen: dict[bytes, int]
) -> tuple[str, bytes, dict[bytes, int]]:
    """Return a section that differs from the pattern's by more than tokens, as its step, its bytes and what is seen."""
    # A document is one line; its pieces end with commas.
    step = _LINES if b"\n" in content else _PIECES
    by_lines, literal, further = _changed_lines(content, pattern, name, seen, step)
    lines_bytes = len(by_lines) // 2 + len(literal)
    if may_repeat(content):
        places, own = repeated(content, seen, pattern.named.get(name, b""))
        by_figures = number(len(places)) + "".join(number(value) for place in places for value in place)
        by_figures += number(len(own) - sum(before for before, _, _ in places))
        # The places are the same in each run of a series, so that the pattern's usual steps take most of their space.
        if len(by_figures) // 4 + len(own) < lines_bytes:
            return _BINARY + by_figures, own, seen
    if lines_bytes < len(_deflated(content, pattern.dictionary)):
        return step + by_lines, literal, further
    return _BYTES + number(len(content)), content, seen


def _changed_lines(
    content: bytes, pattern: Pattern, name: str, seen: dict[bytes, int], step: str
) -> tuple[str, bytes, dict[bytes, int]]:
    """Return a section as stretches of the pattern's lines with other tokens, the lines between them, what is seen."""
    split = _SPLIT[step]
    lines, seen = split(content), dict(seen)
    own, other = Lines(lines), pattern.lines(name, split)
    shapes, other_shapes = own.shapes, other.shapes
    steps: list[str] = []
    literal: list[bytes] = []
    at = count = 0
    while at < len(lines):
        count += 1
        length, start = 0, 0
        for place in other.places.get(shapes[at], ())[:_STARTS]:
            same = 1
            while shapes[at + same : at + same + 1] == other_shapes[place + same : place + same + 1] != []:
                same += 1
            length, start = max((length, start), (same, place), key=lambda stretch: stretch[0])
        if length:
            changed = changed_tokens(own.stretch(at, length)[1::2], other.stretch(start, length)[1::2], seen)
            steps += [number(length), number(start), changed]
        else:
            while at + length < len(lines) and shapes[at + length] not in other.places:
                length += 1
            stretch = b"".join(lines[at : at + length])
            steps += [number(0), number(len(stretch))]
            literal.append(stretch)
        at += length
    return number(count) + "".join(steps), b"".join(literal), seen


def unpack(
    body: bytes,
    pattern: Pattern,
    *,
    known: Sequence[bytes] = (),
    where: str,
    wanted: Callable[[str], bool] | None = None,
) -> list[tuple[str, bytes]]:
    """Return the sections that :func:`pack` was given.

    Args:
        body: what it returned.
        pattern: the same.
        known: the same.
        where: whose body it is, for errors.
        wanted: told a section's name; reading stops, unchecked, before the first that isn't wanted.

    Raises:
        StoreCorruptError: the bytes aren't what was stored.
    """
    try:
        found = list(_read(body, pattern, list(dict.fromkeys(known)), wanted))
    except (ValueError, IndexError, KeyError, zlib.error, UnicodeDecodeError, StopIteration) as error:
        raise StoreCorruptError(f"{where}: its stored bytes can't be unpacked ({error})") from error
    if wanted is None and _digest(found) != body[:_DIGEST_BYTES]:
        raise StoreCorruptError(f"{where}: the stored bytes aren't the ones that were kept")
    return found


def _read(
    body: bytes, pattern: Pattern, seen: list[bytes], wanted: Callable[[str], bool] | None
) -> Iterator[tuple[str, bytes]]:
    mark, start = _read_varint(body, _DIGEST_BYTES)
    size, kind = divmod(mark, 4)
    steps = _read_steps(kind, body[start : start + size], pattern)
    packed = body[start + size :]
    contents = _inflated(packed, pattern.dictionary) if packed else b""
    at = 0
    if steps.take() == _OWN_NAMES:
        names = []
        for _ in range(steps.number()):
            length = steps.number()
            names.append(contents[at : at + length].decode("utf-8", "surrogatepass"))
            at += length
    else:
        names = pattern.names
    for name in names:
        if wanted is not None and not wanted(name):
            return
        step = steps.take()
        if step == _SAME:
            content, size = pattern.named[name], 0
        elif step == _TOKENS:
            content, size = steps.with_changed_tokens(pattern.taken_apart(name), seen), 0
        elif step in (_LINES, _PIECES):
            content, size = _read_lines(steps, pattern.lines(name, _SPLIT[step]), contents[at:], seen)
        elif step == _BINARY:
            content, size = _read_figures(steps, pattern.named.get(name, b""), contents[at:], seen)
        else:
            size = steps.number()
            content = _taken(contents[at:], 0, size)
        at += size
        yield name, content


def _read_lines(steps: Steps, lines: Lines, literal: bytes, seen: list[bytes]) -> tuple[bytes, int]:
    """Return a section of stretches of lines, and how many of the literal bytes it took."""
    stretches, at = [], 0
    for _ in range(steps.number()):
        length = steps.number()
        if length:
            stretches.append(steps.with_changed_tokens(lines.stretch(steps.number(), length), seen))
        else:
            size = steps.number()
            stretches.append(_taken(literal, at, size))
            at += size
    return b"".join(stretches), at


def _read_figures(steps: Steps, pattern: bytes, literal: bytes, seen: list[bytes]) -> tuple[bytes, int]:
    """Return a binary section that repeats figures, and how many of the literal bytes it took."""
    content, at = bytearray(), 0
    for _ in range(steps.number()):
        before, form, number = steps.number(), steps.number(), steps.number()
        content += _taken(literal, at, before)
        at += before
        content += _taken(pattern, len(content), number) if form == AS_PATTERN else in_form(seen[number], form)
    tail = steps.number()
    return bytes(content + _taken(literal, at, tail)), at + tail


def _taken(literal: bytes, at: int, size: int) -> bytes:
    if at + size > len(literal):
        raise ValueError("bytes are missing")
    return literal[at : at + size]


def _changed_alone(content: bytes, pattern: Pattern, name: str, seen: dict[bytes, int]) -> str | None:
    """Return as steps the tokens in which a section differs from the pattern's; None when more than tokens differs."""
    other = pattern.named[name]
    # What ends lines and pieces is part of no token.
    if any(content.count(end) != other.count(end) for end in (b"\n", b",")):
        return None
    parts, others = taken_apart(content), pattern.taken_apart(name)
    return changed_tokens(parts[1::2], others[1::2], seen) if parts[::2] == others[::2] else None


def _digest(sections: Sections) -> bytes:
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, content in sections:
        hashed.update(b"%d %d\n" % (len(name), len(content)))
        hashed.update(name.encode("utf-8", "surrogatepass"))
        hashed.update(content)
    return hashed.digest()


def _deflated(content: bytes, dictionary: bytes) -> bytes:
    packer = (
        zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, dictionary)
        if dictionary
        else zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9)
    )
    return packer.compress(content) + packer.flush()


def _inflated(packed: bytes, dictionary: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15, dictionary) if dictionary else zlib.decompressobj(-15)
    return unpacker.decompress(packed) + unpacker.flush()


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (body[at] & 127) << shift
        at += 1
        if body[at - 1] < 128:
            return value, at
        shift += 7
