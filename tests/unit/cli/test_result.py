"""Results as JSON: the text that json itself writes, in pieces."""

from __future__ import annotations

import enum
import json
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.cli.output import Streamed, json_pieces, say, say_json, tables_result, to_json
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import Column, Kind, Table


class Colour(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Record:
    name: str
    parts: tuple[int, ...] = ()
    raw: bytes = b"left out"


SAME: dict[object, object] = {
    "none": [],
    "nothing": {},
    "deep": {"a": {"b": [{"c": [1, [2, "x\n"]]}]}},
}
NESTED = {
    "runs": [Record("one\ntwo", (1, 2)), Record("ü\u2028")],
    **SAME,
    Colour.RED: {1: Colour.RED},
    "when": datetime(2026, 1, 2, tzinfo=UTC),
    "where": Path("/a/b"),
    "text": 'a "quoted" line\nand another',
}
PLAIN = {
    "runs": [{"name": "one\ntwo", "parts": [1, 2]}, {"name": "ü\u2028", "parts": []}],
    **SAME,
    "red": {"1": "red"},
    "when": "2026-01-02T00:00:00+00:00",
    "where": "/a/b",
    "text": 'a "quoted" line\nand another',
}


def test_pieces_are_the_text_that_json_writes() -> None:
    for value, plain in (
        (NESTED, PLAIN),
        ([NESTED], [PLAIN]),
        ([], []),
        ("x\ny", "x\ny"),
        (None, None),
    ):
        # Except that no character is written which a terminal obeys.
        written = json.dumps(plain, indent=2, ensure_ascii=False).replace("\u2028", "\\u2028")
        assert to_json(value) == written


@pytest.mark.parametrize("items", [[], [1], [NESTED, "x\ny"]])
def test_a_list_made_while_it_is_written_is_written_as_any_other(items: list[object]) -> None:
    for depth in range(4):
        made: object = Streamed(lambda: iter(items))
        whole: object = items
        for _ in range(depth):
            made, whole = {"inside": made}, {"inside": whole}
        assert to_json(made) == to_json(whole)


@pytest.mark.parametrize(
    "runs",
    [
        [Record("x" * 5000)] * 2000,
        Streamed(lambda: (Record("x" * 5000 + str(number)) for number in range(2000))),
    ],
    ids=["listed", "streamed"],
)
def test_the_text_of_thousands_of_records_is_never_there_as_a_whole(runs: object) -> None:
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in json_pieces({"runs": runs}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 10_000_000
    assert peak < size / 20


def test_what_has_several_lines_is_told_on_one_and_drives_no_terminal() -> None:
    assert (
        one_line("no phone fits\n  A: gone\n\n\tB: \x1b[31mhot\rer\n")
        == "no phone fits; A: gone; B: \\u001b[31mhot\\rer"
    )
    assert one_line("  a case") == "  a case"
    columns = (Column("note", value=str),)
    done = tables_result(Table(name="notes", caption="Notes", columns=columns, rows=["one\ntwo"]))
    assert done.text.splitlines() == ["note", r"one\ntwo"]


def test_tables_of_a_command_are_text_and_json_and_a_table_without_rows_says_so() -> None:
    columns = (Column[int]("number", value=lambda row: row, kind=Kind.COUNT),)
    table = Table(name="rows", caption="Rows", columns=columns, rows=[1, 2, 3], most=2)
    none = Table(name="none", caption="Nothing", columns=columns, rows=[], nothing="no rows")
    assert tables_result(table).data == [{"number": 1}, {"number": 2}, {"number": 3}]
    done = tables_result("first", table, none, facts={"is": "beside"})
    assert done.data == {"is": "beside", "rows": tables_result(table).data, "none": []}
    assert done.text.splitlines() == [
        "first", "number", "1", "2", "and 1 more: --json lists all", "no rows",
    ]  # fmt: skip


HOSTILE = "a\x1b[31m\u202eb\x9b2J\U000e0041\u2028c\ud800é"


def test_nothing_that_was_written_elsewhere_drives_a_terminal(capsys):
    say(f"{HOSTILE}\tand\r\na second line")
    say(HOSTILE, err=True)
    say_json(json_pieces({HOSTILE: [HOSTILE], "deep": {"deeper": {HOSTILE: HOSTILE}}}))
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert all(char.isprintable() or char in "\n\t" for char in text)
        assert "\\u202e" in text
    assert "\tand\na second line\n" in printed.out
    assert json.loads(printed.out[printed.out.index("\n{") :])["deep"]["deeper"] == {
        HOSTILE: HOSTILE
    }
