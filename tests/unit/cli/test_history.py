"""``benchfarm history changes`` as Markdown and CSV: names are text in it."""

import csv
import io
from datetime import date

from orchestrator.analysis.outputs import OutputsChange
from orchestrator.cli.history import _as_csv, _as_markdown
from orchestrator.engine.history import ChangeGroup, FoundOutputs, Regressions
from orchestrator.records.identity import SeriesKey
from orchestrator.records.parity import ParityVerdict
from tests.samples.sample_lab import case


def test_markdown_takes_no_markup_from_names() -> None:
    sentence = "mobile*net* [x](javascript:1) `b` <img> on a_b_c|d"
    found = Regressions(since=None, nights=3, series=1, groups=(ChangeGroup(sentence=sentence, members=(), series=1),))
    assert r"### mobile\*net\* \[x\]\(javascript:1\) \`b\` &lt;img&gt; on a\_b\_c\|d" in _as_markdown(found)


def test_csv_takes_no_formula_and_no_hidden_character_from_names() -> None:
    change = OutputsChange(
        series_key=SeriesKey("s"), night=date(2026, 3, 9), before=None, after=ParityVerdict.WRONG, last_before=None
    )
    outputs = FoundOutputs(change=change, case=case(), phone="\r=1+1", is_virtual=False, expected="a\u202eb")
    found = Regressions(since=None, nights=3, series=1, groups=(), outputs=(outputs,))
    (row,) = csv.DictReader(io.StringIO(_as_csv(found)))
    assert (row["phone"], row["expected"]) == ("'\\r=1+1", "a\\u202eb")
