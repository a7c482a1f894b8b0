"""``benchfarm history changes`` as Markdown: names are text in it."""

from orchestrator.extensions.history.changes import Changes
from orchestrator.extensions.history.cli import _rendered
from orchestrator.extensions.history.regressions import ChangeGroup, Regressions


def test_markdown_takes_no_markup_from_names() -> None:
    sentence = "mobile*net* [x](javascript:1) `b` <img> on a_b_c|d"
    found = Regressions(
        since=None,
        nights=3,
        series=1,
        groups=(ChangeGroup(sentence=sentence, members=(), series=1),),
    )
    assert r"### mobile\*net\* \[x\]\(javascript:1\) \`b\` &lt;img&gt; on a\_b\_c\|d" in _rendered(
        Changes(found=found, fails=False), "markdown"
    )
