"""A column is defined once and is in all forms; what each form looks like is in tests/golden."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from orchestrator.passes import pass_tables
from orchestrator.records.case import ToolName
from orchestrator.report.exports import table_of
from orchestrator.report.render import page_tables
from orchestrator.tables import html
from orchestrator.tables.findings import skips_table
from orchestrator.tables.renderers import as_frame, as_markdown, as_text, csv_lines
from orchestrator.tables.results import RESULTS, exported_table, results_table
from orchestrator.tables.table import EVERYWHERE, Column, Form, Kind, Table
from orchestrator.units import US_PER_MS
from tests.conftest import folds, golden
from tests.samples.sample_lab import REAL_PIXEL, case, lab_of, series, small_lab

DATA = small_lab().data()
#: A table with a column of each kind, and names as somebody hostile would write them.
ROWS = [
    ("a|b <b>", 6_450.0, 3, True, None),
    ("=1+1\n@all", None, None, False, "twice"),
    ("c", 12.5, 40, None, ""),
]
KINDS: Table[tuple[Any, ...]] = Table(
    name="kinds",
    caption="One row for each kind of trouble",
    columns=(
        Column("name", value=lambda row: row[0]),
        Column("median_us", "median", lambda row: row[1], Kind.NUMBER, "ms", 1e-3, exact=3),
        Column("runs", value=lambda row: row[2], kind=Kind.COUNT),
        Column("is_virtual", "virtual", lambda row: row[3], Kind.FLAG),
        Column("note", value=lambda row: row[4], shown=lambda row: "see below" if row[4] else None),
    ),
    rows=ROWS,
)
#: Each form, as far as it can be read: of a page what it holds folded, of a frame its CSV.
READ = {
    Form.HTML: lambda page: re.sub(r"(?=<t[rdh][ >])", "\n", folds(page)["kinds"]),
    # Versions of pandas call a text's type differently: string, string[python].
    Form.FRAME: lambda frame: (
        "\n".join(f"{name}: {str(kind).partition('[')[0]}" for name, kind in frame.dtypes.items())
        + f"\n{frame.to_csv(index=False)}"
    ),
}


def render(table: Table[Any], form: Form) -> Any:
    match form:
        case Form.HTML:
            return html.page([table])
        case Form.TEXT:
            return as_text(table)
        case Form.MARKDOWN:
            return as_markdown(table)
        case Form.CSV:
            return "".join(csv_lines(table))
        case Form.JSON:
            records = [table.record(row) for row in table.rows]
            return json.dumps(records, indent=1, allow_nan=False) + "\n"
        case Form.FRAME:
            return as_frame(table)


def shown_heads(table: Table[Any], form: Form) -> list[str]:
    """The heads of the columns, as a reader of the form finds them."""
    made = render(table, form)
    match form:
        case Form.HTML:
            return re.findall(r'<th scope="col"[^>]*>([^<]*)', folds(made)[table.name])
        case Form.TEXT:
            return re.split(r"  +", made.split("\n")[1])
        case Form.MARKDOWN:
            return [word.strip() for word in made.split("\n")[0].split("|")]
        case Form.CSV:
            return str(made.split("\n")[0]).split(",")
        case Form.JSON:
            return list(json.loads(made)[0])
        case Form.FRAME:
            return list(made)


@pytest.mark.parametrize("form", list(Form))
def test_a_form_is_written_as_it_always_was(form: Form) -> None:
    golden(f"kinds.{form.value}.txt", READ.get(form, str)(render(KINDS, form)))


@pytest.mark.parametrize("form", list(Form))
def test_a_column_more_is_in_every_form(form: Form) -> None:
    more = Column[Any](
        "worst",
        value=lambda row: row.own_summary.max_us if row.own_summary else None,
        kind=Kind.NUMBER,
    )
    table = results_table(DATA.results)
    assert "worst" not in " ".join(shown_heads(table, form))
    assert "worst" in " ".join(shown_heads(replace(table, columns=(*table.columns, more)), form))


def test_a_page_says_once_only_what_all_rows_say_in_the_same_words() -> None:
    runs = Column[tuple[int, str]](
        "runs", value=lambda row: row[0], kind=Kind.COUNT, shown=lambda row: row[1] or None
    )
    name = Column[tuple[int, str]]("name", value=lambda row: row[1])
    for rows, is_same in (([(3, ""), (3, "")], True), ([(3, "3 of 4"), (3, "")], False)):
        table = Table(name="runs", caption="Runs", columns=(name, runs), rows=rows)
        page = folds(render(table, Form.HTML))["runs"]
        assert ("In all rows: runs 3." in page) == is_same
        # The page's script searches and saves it nevertheless.
        assert page.count('<td hidden class="n">3</td>') == 2 * is_same
    # Figures that are shown alike are sorted and saved as they are.
    figure = Column[float]("x", value=float, kind=Kind.NUMBER, digits=1, exact=3, is_merged=True)
    names = Column[float]("name", value=str)
    table = Table(name="x", caption="X", columns=(names, figure), rows=[1.51, 1.49])
    page = folds(render(table, Form.HTML))["x"]
    assert re.findall('<td hidden class="n" data-value="(.*?)">1.5', page) == ["1.51", "1.49"]


def test_a_word_in_place_of_a_figure_looks_like_no_figure() -> None:
    figure = Column[float | None](
        "x", value=lambda row: row, kind=Kind.NUMBER, shown=lambda _: "none"
    )
    page = html.table_html(Table(name="x", caption="X", columns=(figure, figure), rows=[None]))
    assert '<td data-label="x" class="n nothing">none</td>' in page


def test_a_sentence_of_several_lines_is_one_line_for_people() -> None:
    column = Column[str]("reason", value=lambda row: row).sentence
    rows = ["it failed:\n  no driver\n", ""]
    table = Table(name="reasons", caption="Reasons", columns=(column,), rows=rows)
    assert column.cells(rows) == ["it failed:; no driver", ""]
    assert "it failed:; no driver" in folds(render(table, Form.HTML))["reasons"]
    assert json.loads(render(table, Form.JSON))[0] == {"reason": rows[0]}
    skip = replace(DATA.skipped[0].skipped, reason=rows[0])
    (text,) = {line.name: line for line in skips_table([]).columns}["reason"].cells(
        [replace(DATA.skipped[0], skipped=skip)]
    )
    assert text == "it failed:; no driver"


def test_every_table_of_a_report_is_written_in_all_forms() -> None:
    for table in page_tables(DATA).values():
        for form in Form:
            made = render(table, form)
            assert (
                len(made) if isinstance(made, pd.DataFrame) else table.name in made or made.strip()
            ), (table, form)


def test_no_two_columns_of_a_form_have_one_name() -> None:
    for table in (*page_tables(DATA).values(), table_of([DATA]), table_of([DATA], "invocations")):
        for form in Form:
            names = [column.name for column in table.columns if form in column.forms]
            assert sorted(names) == sorted(set(names)), (table.name, form)


def test_a_column_has_its_type_in_a_frame_also_where_nothing_of_it_is_known() -> None:
    typed = {name: str(kind) for name, kind in render(table_of([DATA]), Form.FRAME).dtypes.items()}
    assert {
        name: str(kind)
        for name, kind in render(exported_table([], pass_tables()), Form.FRAME).dtypes.items()
    } == typed
    assert (typed["median_us"], typed["threads"], typed["is_virtual"]) == (
        "Float64",
        "Int64",
        "boolean",
    )
    assert typed["campaign_created_at"].startswith("datetime64")


def test_what_is_too_wide_for_a_terminal_follows_below_beside_what_tells_rows_apart() -> None:
    name = Column[Any]("name", value=lambda row: row[0])
    stage = Column[Any]("stage", value=lambda row: row[1])
    wide = [Column[Any](f"c{n}", f"column {n}", lambda _, n=n: "x" * (20 + n)) for n in range(4)]  # type: ignore[misc]
    widest = Column[Any]("widest", value=lambda _: "x" * 50)
    note = Column[Any]("note", "", lambda row: "suspect" if row == ("one", "warm") else "")
    rows = [("one", "cold"), ("one", "warm"), ("two", "cold")]
    parts = [
        as_text(Table(name="wide", caption="", columns=columns, rows=rows), 60)
        for columns in ((name, *wide), (name, stage, *wide), (name, widest, note))
    ]
    golden("wide.txt", "\n\n".join(parts))


def test_a_name_stands_above_a_cell_that_would_be_cut_beside_it() -> None:
    names = ("model", "phone", "fastest")
    columns = [Column[Any](name, name, lambda row, name=name: row[name]) for name in names]  # type: ignore[misc]
    tie = "xnnpack, 4 threads, top-app or xnnpack, 4 threads, shell"
    row = {"model": "mobilenet", "phone": "Google Pixel 4 (virtual)", "fastest": tie}
    table = Table(name="fastest", caption="", columns=columns, rows=[row], groups=1)
    _, phone, fastest = as_text(table, 80).split("\n")
    assert (phone, fastest.strip()) == (" Google Pixel 4 (virtual)", tie)
    assert "…" in as_text(table, 50)


def test_csv_is_written_row_by_row() -> None:
    taken: list[int] = []

    def rows() -> Any:
        for number in range(3):
            taken.append(number)
            yield number

    table = Table(
        name="n", caption="", columns=(Column[int]("n", value=lambda row: row),), rows=rows()
    )
    lines = csv_lines(table)
    assert (next(lines), taken) == ("n\n", [])
    assert (next(lines), taken) == ("0\n", [0])


def test_a_columns_name_is_documented() -> None:
    told = (Path(__file__).parents[2] / "docs" / "reference" / "exports.md").read_text("utf-8")
    names = {
        column.name
        for table in (table_of([DATA]), table_of([DATA], "invocations"))
        for form in (Form.CSV, Form.JSON)
        for column in table.of(form)
    }
    assert sorted(name for name in names if f"`{name}`" not in told) == []
    assert all(column.forms <= EVERYWHERE for column in RESULTS)


def test_what_rounds_to_nothing_is_not_negative_and_halves_are_those_of_the_shown_figure() -> None:
    change = Column[float]("change", "", float, Kind.NUMBER, digits=1, is_signed=True)
    assert change.cells([0.0, -0.0, -0.04, 0.04, -0.06]) == ["+0.0"] * 4 + ["-0.1"]
    # 4.185 as a float is below the half; 4185 * 0.001 is above it.
    time = Column[float]("time", "", float, Kind.NUMBER, "ms", 1 / US_PER_MS, digits=2)
    assert time.cells([4_185.0, -4_185.0]) == ["4.18", "-4.18"]


def test_a_page_leaves_out_what_text_leaves_out_and_has_no_hidden_figures() -> None:
    owner = case(REAL_PIXEL)
    prefill, decode = (
        replace(owner, tool=ToolName.LITERT_LM, flags=(("figure", phase),))
        for phase in ("prefill", "decode")
    )
    for owners in ((prefill, decode), (prefill, owner)):
        runs = [record for each in owners for record in series(each, 5_000.0)]
        data = lab_of(runs, REAL_PIXEL).data()
        tables = page_tables(data)
        page = folds(render(tables["results"], Form.HTML))["results"]
        heads = re.findall(r'data-name="(\w+)"', page)
        lines = [re.findall(r"<t[hd][ >].*?</t[hd]>", line) for line in page.split("<tr")[2:]]
        values = {
            name: ["nothing" not in line[place] for line in lines]
            for place, name in enumerate(heads)
        }
        if owner in owners:
            assert values["median_us"] == [True, False]
            assert values["tokens_per_s"] == [False, True]
        else:
            assert "median_us" not in values
