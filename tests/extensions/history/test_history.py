"""What ``benchfarm history`` takes and writes: names are text in Markdown, an empty word is no list."""

from pathlib import Path

from orchestrator.extensions.history.changes import Changes
from orchestrator.extensions.history.cli import render_changes
from orchestrator.extensions.history.regressions import ChangeGroup, Regressions
from tests.samples.command import Cli


def test_markdown_takes_no_markup_from_names() -> None:
    sentence = "mobile*net* [x](javascript:1) `b` <img> on a_b_c|d"
    found = Regressions(
        since=None,
        nights=3,
        series=1,
        groups=(ChangeGroup(sentence=sentence, members=(), series=1),),
    )
    assert (
        r"### mobile\*net\* \[x\]\(javascript:1\) \`b\` &lt;img&gt; on a\_b\_c\|d"
        in render_changes(Changes(regressions=found, fails=False), "markdown")
    )


def test_an_empty_word_of_a_script_never_lists_what_is_expected(tmp_path: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    cli("history expect delegate=gpu 2026-03-09 driver").ok()
    for words in (("", "2026-03-10", "build"), ("",), ("delegate=gpu", "", "build")):
        done = cli("history expect", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "is empty" in done.stderr
    assert cli("history expect --remove", "").exit_code == 2
    assert cli("history expect").ok().stdout.count("2026-03-") == 1
