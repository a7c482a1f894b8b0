"""Advice from what was measured on a phone, in the terminal, as JSON and in the report."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import Lab


def test_advice_is_a_sentence_with_its_figure(lab: Lab, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = ("-s", lab.serials[0], "-d", "cpu", "-t", "4,8", "-n", "3", "--min-secs", "0.2")
    lab.cli("bench", model, *words, "--pass", "timing,profile", "--out", page).ok()
    text = lab.cli("advise").ok().stdout
    assert "cpu, 4 threads, native: no number of threads above it is faster: 8 take " in text
    assert "they say nothing about real ones" in text
    lines = lab.cli("advise", "--json").ok().json["advice"]["lines"]
    assert {line["rule"] for line in lines} >= {"threads-enough"}
    assert all(line["text"] in page.read_text("utf-8") for line in lines)
