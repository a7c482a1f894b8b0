"""Figures that binary output repeats: a result in protobuf holds what the same run's text said already.

A benchmark's result file is some 80 bytes of floats and counts, which no compressor makes smaller. Each of them is a
figure of the run's row or report in another form, and is kept as which figure in which form. What is between them is
mostly what an earlier run's file has at the same place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

#: Figures that are looked for: those of the row, and the first ones of the report.
_FIGURES: Final = 64
#: Results are small; in a large file figures are found by chance.
_LARGEST_BYTES: Final = 4096
_LEAST_BYTES: Final = 2
#: Stands in a form's place for bytes that the pattern has at the same place.
AS_PATTERN: Final = 7
_MOST_DIGITS: Final = 24


def _varint(value: float) -> bytes:
    whole = round(value)
    if not 0 <= whole < 1 << 63:
        raise OverflowError(value)
    encoded = bytearray()
    while whole >= 128:
        encoded.append(whole & 127 | 128)
        whole >>= 7
    encoded.append(whole)
    return bytes(encoded)


#: How a figure may be written, longest first. Never changes but by new ones at the end: bodies name them by place.
_FORMS: Final[Sequence[Callable[[float], bytes]]] = (
    lambda value: struct.pack("<d", value),
    lambda value: struct.pack("<d", value / 1000),
    lambda value: struct.pack("<f", value),
    lambda value: struct.pack("<f", value / 1000),
    _varint,
    # Memory: read in MiB, written in KiB.
    lambda value: _varint(value * 1024),
)


def in_form(figure: bytes, form: int) -> bytes:
    """Return a figure, as text wrote it, in one of the binary forms; raises ValueError when it has none there."""
    try:
        return _FORMS[form](_value(figure))
    except (OverflowError, struct.error) as error:
        raise ValueError(str(error)) from error


def _value(figure: bytes) -> float:
    if len(figure) > _MOST_DIGITS:
        raise ValueError("no figure is as long")
    return float(figure)


def may_repeat(content: bytes) -> bool:
    """Whether it is worth looking for figures in a section."""
    return len(content) <= _LARGEST_BYTES and not content.isascii()


def repeated(content: bytes, figures: Iterable[bytes], pattern: bytes) -> tuple[list[tuple[int, int, int]], bytes]:
    """Return where a section repeats figures or its pattern, and the bytes that it doesn't.

    Each place is (bytes of its own before it, form, number of the figure); for AS_PATTERN the number is that of bytes.
    """
    known = _forms_of(figures)
    lengths = sorted({len(encoded) for encoded in known}, reverse=True)
    places: list[tuple[int, int, int]] = []
    own = bytearray()
    at = before = 0
    while at < len(content):
        length = next((length for length in lengths if content[at : at + length] in known), 0)
        if length:
            places.append((before, *known[content[at : at + length]]))
            at, before = at + length, 0
        elif content[at : at + 1] == pattern[at : at + 1]:
            if before == 0 and places and places[-1][1] == AS_PATTERN:
                places[-1] = (places[-1][0], AS_PATTERN, places[-1][2] + 1)
            else:
                places.append((before, AS_PATTERN, 1))
            at, before = at + 1, 0
        else:
            own.append(content[at])
            at, before = at + 1, before + 1
    return places, bytes(own)


def _forms_of(figures: Iterable[bytes]) -> dict[bytes, tuple[int, int]]:
    """Return (form, number) by what each figure looks like in each form; the first figure of several is taken."""
    known: dict[bytes, tuple[int, int]] = {}
    for number, figure in enumerate(islice(figures, _FIGURES)):
        try:
            value = _value(figure)
        except ValueError:
            continue
        for form, write in enumerate(_FORMS):
            try:
                encoded = write(value)
            except (ValueError, OverflowError, struct.error):
                continue
            if len(encoded) >= _LEAST_BYTES and encoded.strip(b"\x00"):
                known.setdefault(encoded, (form, number))
    return known
