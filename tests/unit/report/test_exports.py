import csv
import dataclasses
import io
import json
import re
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from orchestrator.app.exporting import EXPORTERS, FORMATS, ExportRequest, export
from orchestrator.app.lab import Results
from orchestrator.errors import UsageError
from orchestrator.installation import data_folder, find
from orchestrator.plugins import Exporter
from orchestrator.records.case import Serial
from orchestrator.report.exports import (
    SCHEMA,
    SCHEMA_VERSION,
    Reported,
    frame_of,
    issue_text,
    to_csv,
    to_json,
    to_markdown,
    write_parquet,
)
from orchestrator.report.tables import render_text_table
from orchestrator.tables.escapes import display_width, visible
from tests.samples.records import settings_in
from tests.samples.sample_lab import (
    HOSTILE_NAMES,
    MOBILENET,
    PIXEL_3,
    REAL_PIXEL,
    Lab,
    case,
    hostile_lab,
    lab_of,
    series,
    small_lab,
    stored,
)

DATA = small_lab().data()
HOSTILE = hostile_lab().data()
EMPTY = Lab().data()
TOO_WIDE = "the table no longer fits 80 columns: listed_table names what it shows"


def csv_rows(data, **options):
    return list(csv.DictReader(io.StringIO(to_csv(data, **options))))


@pytest.mark.parametrize("word", ["nonsuch", "invocations", ""])
def test_a_frame_that_there_is_none_of_is_refused_by_name(word):
    with pytest.raises(UsageError) as caught:
        Results(DATA, []).frame(word)
    assert str(caught.value) == f"there is no frame {word!r}"
    assert caught.value.hint == "choose one of usual, all, runs"


def test_fallback_figure_never_stands_under_the_requested_delegates_latency():
    for row in csv_rows(DATA):
        if row["status"] in ("fell-back", "rejected"):
            assert (
                row["median_us"] == row["interval_low_us"] == row["speed_up"] == row["winner"] == ""
            )
            assert float(row["not_a_result_us"]) > 0
        else:
            assert row["not_a_result_us"] == ""
    fallen = [row for row in json.loads(to_json(DATA))["results"] if row["status"] == "fell-back"]
    assert len(fallen) == 1
    assert fallen[0]["median_us"] is None
    assert all(invocation["latency_us"] is None for invocation in fallen[0]["invocations"])
    assert all(invocation["not_a_result_us"] > 0 for invocation in fallen[0]["invocations"])


def test_every_export_says_which_figures_are_virtual():
    virtual = [row.is_virtual for row in DATA.results]
    assert [row["is_virtual"] == "True" for row in csv_rows(DATA)] == virtual
    assert all(
        ("(virtual)" in row["device"]) == (row["is_virtual"] == "True") for row in csv_rows(DATA)
    )
    assert [row["is_virtual"] for row in json.loads(to_json(DATA))["results"]] == virtual
    # Behind the fastest, which have a table of their own.
    lines = [line for line in to_markdown(DATA).splitlines() if line.startswith("| mobilenet")]
    table = lines[-len(DATA.results) :]
    assert ["virtual" in line for line in table] == virtual


def text_of(path: Path) -> str:
    """Return all that a file says, or the files of a folder."""
    if path.is_dir():
        return "\n".join(map(text_of, sorted(item for item in path.rglob("*") if item.is_file())))
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            return "\n".join(packed.read(name).decode("latin-1") for name in packed.namelist())
    if path.suffix == ".parquet":
        return pd.read_parquet(path).to_csv()
    return path.read_text("utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_says_of_a_virtual_phone_that_it_is_one(form, tmp_path):
    texts = []
    for is_virtual in (True, False):
        # All else is the same, so that only saying it makes a difference.
        phone = dataclasses.replace(REAL_PIXEL, is_virtual=is_virtual)
        runs = series(case(phone), 5_000, is_virtual=is_virtual)
        home = stored(tmp_path / f"home-{is_virtual}", lab_of(runs, phone))
        out = tmp_path / f"{is_virtual}{find('exporters', form, Exporter, EXPORTERS).path.suffix}"
        settings = settings_in(home)
        texts.append(text_of(export(settings, ExportRequest(out=out, form=form))[0]))
    virtual, real = texts
    assert virtual.lower().count("virtual") > 0, "no number of a virtual phone without the word"
    assert virtual != real, "it says the same of a virtual phone and of a real one"


def test_csv_of_hostile_names_has_one_line_for_each_case_and_no_formula():
    text = to_csv(HOSTILE)
    text.encode()
    assert len(text.splitlines()) == len(HOSTILE.results) + 1
    for row in csv_rows(HOSTILE):
        assert not any(value.startswith(("=", "@", "+")) for value in row.values())


def test_json_keeps_names_exactly_and_names_its_schema():
    document = json.loads(to_json(HOSTILE))
    assert (document["schema"], document["schema_version"]) == (SCHEMA, SCHEMA_VERSION)
    assert {row["label"] for row in document["models"]} == {
        name.removesuffix(".tflite") for name in HOSTILE_NAMES
    }
    to_json(HOSTILE).encode("ascii")


def test_every_key_of_the_json_is_documented():
    text = (data_folder("reports").parent / "docs" / "reference" / "exports.md").read_text(
        encoding="utf-8"
    )
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    named_by_people = {"heat_c", "clock_khz", "clock_limit_khz"}

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                if key not in named_by_people:
                    yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert set(keys(json.loads(to_json(DATA)))) - documented == set()


def test_markdown_of_hostile_names_keeps_its_columns():
    text = to_markdown(HOSTILE)
    text.encode()
    assert "<script" not in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    table = lines[-len(HOSTILE.results) - 2 :]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert len(table) == len(HOSTILE.results) + 2


def test_text_table_fits_a_terminal_of_80_columns():
    for data in (DATA, HOSTILE):
        lines = render_text_table(data).splitlines()
        wide = [line for line in lines if display_width(line) > 80]
        titles = tuple(visible(model.label) for model in data.models)
        assert all(line.startswith(titles) for line in wide), TOO_WIDE


def test_text_of_hostile_names_has_no_controls():
    text = render_text_table(HOSTILE)
    text.encode()
    assert not any(char < " " and char != "\n" for char in text)
    assert "\u202e" not in text


def test_nothing_can_be_exported():
    assert render_text_table(EMPTY) == "Nothing has been measured yet.\n"
    assert json.loads(to_json(EMPTY))["results"] == []
    assert "Nothing has been measured yet" in to_markdown(EMPTY)
    assert csv_rows(EMPTY) == []


@pytest.mark.parametrize(
    "name",
    ["Samsung SM-S911B", "Samsung Galaxy S23 Ultra Enterprise Edition of a long name, really"],
)
def test_a_long_device_is_shown_with_its_whole_serial_in_the_text_table(name):
    row = DATA.results[0]
    long = dataclasses.replace(
        row.device, label=f"{name} (R5CW20ABCDE)", serial="R5CW20ABCDE", is_virtual=True
    )
    data = dataclasses.replace(DATA, results=(dataclasses.replace(row, device=long),))
    text = render_text_table(data)
    lines = text.splitlines()
    assert f"{name} (R5CW20ABCDE) (virtual)" in re.sub(r"\n +", " ", text)
    assert sum("median ms" in line for line in lines) == 1
    assert all(display_width(line) <= 80 for line in lines), TOO_WIDE


@pytest.mark.parametrize("rows", ["cases", "invocations"])
def test_csv_without_results_has_the_header_of_one_with_results(rows):
    assert to_csv(EMPTY, rows=rows) == to_csv(DATA, rows=rows).splitlines(keepends=True)[0]
    assert to_csv(EMPTY, DATA, rows=rows) == to_csv(DATA, rows=rows)


def test_names_that_are_no_utf8_are_exported_as_parquet(tmp_path):
    odd = "mod\udce9l"
    phone = dataclasses.replace(PIXEL_3, serial=Serial(f"S{odd}"), model=odd)
    model = dataclasses.replace(MOBILENET, name=odd)
    data = lab_of(series(case(phone, model), 5_000), phone, models=(model,)).data()
    write_parquet(tmp_path / "cases.parquet", [data])
    found = pd.read_parquet(tmp_path / "cases.parquet")
    assert found["serial"].tolist() == ["Smod\\udce9l"]
    assert found.attrs["schema"] == "benchfarm-cases"
    assert frame_of(data)["serial"].tolist() == ["Smod\\udce9l"]


def test_an_issue_counts_no_partitions_of_an_unknown_number_of_operators():
    (measured,) = series(case(), 1_000, 1)
    delegate = dataclasses.replace(measured.report.delegate, total_nodes=None, partitions=1)
    report = dataclasses.replace(measured.report, delegate=delegate)
    reported = Reported(
        run=dataclasses.replace(measured, report=report),
        facts=None,
        model=None,
        build=None,
        attachments=(),
        benchfarm_version="",
        private=(),
    )
    assert "partition" not in issue_text(reported)
