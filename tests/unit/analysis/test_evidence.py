"""What docs/evidence.md says, and the noise that it was drawn from."""

import csv
import json

from tests.samples.places import REPO


def test_every_bound_of_the_committed_evidence_is_kept():
    text = (REPO / "docs" / "evidence" / "bounds.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) > 20
    assert [row["what"] for row in rows if row["kept"] != "yes"] == []


def test_charts_that_the_evidence_shows_are_there():
    text = (REPO / "docs" / "evidence.md").read_text("utf-8")
    charts = [part.partition(")")[0] for part in text.split("](evidence/")[1:]]
    assert len(charts) == 4
    for chart in charts:
        assert (REPO / "docs" / "evidence" / chart).read_text("utf-8").startswith("<svg")


def test_noise_comes_from_many_real_processes_and_virtual_ones_are_marked():
    series = json.loads((REPO / "benchmarks" / "evidence" / "noise.json").read_text("utf-8"))[
        "series"
    ]
    assert {item["source"] for item in series} == {
        "LiteRT processes",
        "litert tool",
        "virtual phones",
    }
    for item in series:
        assert item["virtual"] == (item["source"] == "virtual phones")
        assert len(item["invocations"]) >= 50
