"""What is written to a file is what the file's name says."""

from pathlib import Path

import pytest

from tests.samples.command import Cli

TABLE = ("table", "--source", "published")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(home=tmp_path / "home")


def test_the_ending_of_the_file_says_the_format(cli: Cli, tmp_path: Path) -> None:
    begins = {"t.html": "<!DOCTYPE html>", "t.md": "|", "t.csv": "model", "t.json": "{"}
    for name, start in begins.items():
        cli(*TABLE, "--out", tmp_path / name).ok()
        assert (tmp_path / name).read_text().lstrip().lower().startswith(start.lower()), name
    cli(*TABLE, "--out", tmp_path / "table").ok()
    assert (tmp_path / "table").read_text() == cli(*TABLE).ok().stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            (*TABLE, "--out", "t.html", "--format", "csv"),
            "t.html: the file's name ends as html does, and --format is csv",
        ),
        ((*TABLE, "--out", "t.xml"), "t.xml: this command writes text, markdown, html"),
        (("report", "--out", "r.csv", "--format", "html"), "r.csv: the file's name ends as csv does"),
        (("export", "--out", "e.csv", "--format", "bundle"), "e.csv: the file's name ends as csv does"),
        (("compare", "--out", "c.md", "--format", "junit"), "c.md: the file's name ends as markdown does"),
        (("history", "changes", "--out", "c.html"), "c.html: this command writes text, markdown, json, not html"),
        (("advise", "--out", "c.csv"), "c.csv: this command writes text, json, not csv"),
        (("bench", "model.tflite", "--out", "b.csv"), "b.csv: this command writes html, not csv"),
        ((*TABLE, "--format", "pdf"), "there is no format 'pdf'"),
    ],
    ids=lambda item: item[0] if isinstance(item, tuple) else "",
)
def test_a_name_that_contradicts_the_format_is_refused(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli(*words, "--json")
    assert (done.exit_code, done.json["error"]["code"]) == (2, "usage")
    assert told in done.json["error"]["message"]
    assert not Path(words[words.index("--out") + 1] if "--out" in words else "t.pdf").exists()
