"""Runs kept as differences: exact, small for what is alike, and damage is noticed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import StoreCorruptError
from orchestrator.store.packing import needs_usual, pack, pack_by_steps, unpack
from orchestrator.store.pattern import NOTHING, Pattern

LOG = (
    b"INFO: count=369 first=2721 curr=2798 min=2688 max=3260 avg=2713.36 std=47 p5=2691 median=2704 p95=2754\n"
    b"Inference timings in us: Init: 930753, First inference: 4209, Inference (avg): 2713.36\n"
    b"saved to runs/d99b8bbf337a49388aaee58dc5f254e0/result.pb boot b5889c00-ac49-4e1b-af4a-b319a10d4a21\n"
)
TEXTS = st.lists(
    st.sampled_from(
        [b"count=", b" ", b"12", b"0.5", b"-7", b"1.0", b"1", b"true", b"\x00", b"\xff", b"null", b"a" * 16, b"\n"]
    ),
    max_size=20,
).map(b"".join)
SECTIONS = st.lists(
    st.tuples(st.sampled_from(["stdout", "report", "é\ud800", ""]), TEXTS | st.binary(max_size=50)), max_size=5
)


@given(SECTIONS, SECTIONS, st.lists(TEXTS, max_size=2, unique=True))
def test_any_run_comes_back_whatever_it_is_compared_with(
    sections: list[tuple[str, bytes]], other: list[tuple[str, bytes]], known: list[bytes]
) -> None:
    pattern = Pattern(other)

    assert unpack(pack(sections, pattern, known=known), pattern, known=known, where="here") == sections


def test_figures_alone_cost_a_byte_for_two_digits() -> None:
    pattern = Pattern([("stdout", LOG), ("pb", bytes(range(256)) * 20)])
    other = LOG.replace(b"2713.36", b"2719.81").replace(b"930753", b"928112").replace(b"2704", b"2711")
    other = other.replace(b"d99b8bbf337a49388aaee58dc5f254e0", b"7d1a3946d9b54c38bb1a8c818da9c4f1")

    body = pack(
        [("stdout", other), ("pb", bytes(range(256)) * 20)], pattern, known=[b"7d1a3946d9b54c38bb1a8c818da9c4f1"]
    )

    assert len(body) < 30


def test_a_line_more_costs_little_more_than_the_line() -> None:
    pattern = Pattern([("stdout", LOG)])

    body = pack([("stdout", LOG + b"WARNING: never seen before\n")], pattern)

    assert len(body) < 70
    assert len(body) < len(pack([("stdout", LOG + b"WARNING: never seen before\n")], NOTHING)) / 3


@pytest.mark.parametrize("place", range(0, 60, 3))
def test_a_changed_byte_is_noticed(place: int) -> None:
    pattern = Pattern([("stdout", LOG)])
    sections = [("stdout", LOG.replace(b"2704", b"2999")), ("stderr", bytes(range(100)))]
    body = bytearray(pack(sections, pattern))
    body[place] ^= 0x24

    with pytest.raises(StoreCorruptError, match="run 7"):
        unpack(bytes(body), pattern, where="run 7")


def test_another_pattern_is_noticed() -> None:
    body = pack([("stdout", LOG.replace(b"2704", b"2999"))], Pattern([("stdout", LOG)]))

    with pytest.raises(StoreCorruptError):
        unpack(body, Pattern([("stdout", LOG.replace(b"3260", b"3261"))]), where="run 7")


def test_reading_stops_before_what_is_not_wanted() -> None:
    sections = [("report", b"{}"), ("stdout", LOG), ("stderr", b"x")]

    assert unpack(pack(sections, NOTHING), NOTHING, where="", wanted=lambda name: name == "report") == sections[:1]


def looks(count: int, base: int) -> bytes:
    parts = [
        b"--look\n/proc/uptime:%d\n" % (base + place) + b"policy0:300000 %d\n" % (base * 7 + place) * 20
        for place in range(count)
    ]
    return b"".join([b"each:1\n", *parts, b"--end %d\n" % base])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_run_that_was_looked_at_more_or_less_often_takes_little_too(count: int) -> None:
    pattern = Pattern([("samples", looks(3, 1000))])
    sections = [("samples", looks(count, 2000))]

    body = pack(sections, pattern)

    assert unpack(body, pattern, where="run") == sections
    assert len(body) < 200


def test_usual_steps_make_a_body_smaller_and_are_needed_to_read_it() -> None:
    runs = [[("samples", looks(3, base))] for base in (1000, 2000, 3457)]
    alone = Pattern(runs[0])
    known = Pattern(runs[0], pack_by_steps(runs[1], alone)[1])

    body = pack(runs[2], known)

    assert needs_usual(body)
    assert len(body) < len(pack(runs[2], alone))
    assert unpack(body, known, where="run") == runs[2]
    with pytest.raises(StoreCorruptError, match="usual"):
        unpack(body, alone, where="run")


def test_a_result_file_costs_what_its_run_has_not_said() -> None:
    def run(*figures: int) -> list[tuple[str, bytes]]:
        text = b"".join(b"line=%d\n" % figure for figure in figures)
        result = b"".join(bytes([8 * place + 5]) + struct.pack("<f", us / 1000) for place, us in enumerate(figures))
        return [("stdout", text), ("result.pb", result)]

    first, second, third = (run(*range(start, start + 700, 59)) for start in (2997, 3015, 2891))
    pattern = Pattern(first, pack_by_steps(second, Pattern(first))[1])
    text_alone = Pattern(first[:1], pack_by_steps(second[:1], Pattern(first[:1]))[1])

    body = pack(third, pattern)

    assert unpack(body, pattern, where="here") == third
    assert len(body) - len(pack(third[:1], text_alone)) < len(third[1][1]) / 4


def test_a_document_whose_parts_changed_places_costs_little() -> None:
    def document(*lines: str) -> bytes:
        return ('{"outcome":"ok","median_us":3013.0,"lines":["' + '","'.join(lines) + '"],"label":""}').encode()

    long = [f"line {word} of a delegate that says much" for word in ("one", "two", "three", "four")]
    pattern = Pattern([("report", document(*long))])
    other = [("report", document(*long[::-1]))]

    assert unpack(pack(other, pattern), pattern, where="here") == other
    assert len(pack(other, pattern)) < 40


def test_a_body_of_the_version_before_is_read() -> None:
    base = [
        ("document:command", b"./benchmark_model --runs=50"),
        ("document:report", b'{"outcome":"ok","median_us":3013.0,"lines":["a","b"]}'),
        ("attachment:stdout", b"first=3087 curr=3014\nmin=2997\nextra\n"),
        ("attachment:result.pb", b"\x12\x07\r\x10\xa2A@\x10\xcb\x02"),
    ]
    body = bytes.fromhex(
        "2d656753958a4ce718002d62f42a10c36b85a181819e2992154940f944242b2c0de1569873e5a5962b8054c2ec3204d9a200b2e50c1300"
    )

    assert unpack(body, Pattern(base), known=[b"3100.5"], where="here") == [
        base[0],
        ("document:report", b'{"outcome":"ok","median_us":3100.5,"lines":["b","a"]}'),
        ("attachment:stdout", b"first=3091 curr=3017\nnew line\nmin=2991\n"),
        ("attachment:result.pb", b"\x12\x07\r\x20\xa2A@\x10\xcc\x02"),
    ]
