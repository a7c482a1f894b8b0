"""What to take: equal phones in one line, and what makes a winner less than sure."""

from dataclasses import replace

import pytest

from orchestrator.records.identity import Serial
from orchestrator.records.verdict import Finding, Quality, Severity
from orchestrator.records.workload import DelegateName
from orchestrator.report.assembly import build_report_data
from orchestrator.report.glance import winner_blocks
from orchestrator.report.winners import Certainty
from orchestrator.tables.labels import short_names
from tests.samples.sample_lab import MOBILENET, REAL_PIXEL, case, lab_of, series

GPU = DelegateName.GPU
THROTTLED = Finding(code="throttled", severity=Severity.WARNING, message="a clock limit fell")


def phones(count, **other):
    return [
        replace(REAL_PIXEL, serial=Serial(f"{other.get('model', 'pixel')}-{n}"), **other)
        for n in range(count)
    ]


def lines_of(runs, *devices):
    data = build_report_data(**lab_of(runs, *devices).inputs())
    names = short_names((row.configuration, row.case) for row in data.results)
    ((block,), _) = winner_blocks(data.contests, names)
    return block


def contest(phone, gpu_us, cpu_us, **gpu):
    return [
        *series(case(phone, delegate=GPU, threads=1), gpu_us, **gpu),
        *series(case(phone), cpu_us),
    ]


def test_equal_phones_with_one_answer_share_a_line_and_others_have_their_own():
    equal, other = phones(3), phones(1, model="Pixel 4")
    runs = [run for n, phone in enumerate(equal) for run in contest(phone, 6_000 + 60 * n, 12_000)]
    block = lines_of([*runs, *contest(other[0], 9_000, 3_000)], *equal, *other)
    assert [(line.phones, line.count, line.which, line.take) for line in block.lines] == [
        ("Google Pixel 3", 3, "", "gpu"),
        ("Google Pixel 4", 1, "", "xnnpack, 4 threads"),
    ]
    assert block.lines[0].figure == "6.00 to 6.12"
    assert block.lines[0].factor == "1.96 to 2.00"
    assert block.tally == "gpu on 3, xnnpack on 1"
    assert [line.certainty for line in block.lines] == [Certainty.SURE, Certainty.SURE]
    assert lines_of(runs, *(replace(phone, is_virtual=True) for phone in equal)).tally == "gpu on 3"
    mixed = [*equal[:2], replace(equal[2], is_virtual=True)]
    assert lines_of(runs, *mixed).tally == "gpu on 2, gpu (virtual) on 1"


def test_a_tie_is_one_answer_whichever_of_the_two_leads():
    pair = phones(2)
    block = lines_of([*contest(pair[0], 10_000, 10_010), *contest(pair[1], 10_010, 10_000)], *pair)
    (line,) = block.lines
    assert (line.count, line.take, line.certainty) == (
        2,
        "gpu or xnnpack, 4 threads",
        Certainty.TIED,
    )
    assert block.tally == "a tie on 2"


@pytest.mark.parametrize(
    ("runs", "certainty", "doubt"),
    [
        (
            contest(REAL_PIXEL, 6_000, 12_000, quality=Quality.SUSPECT, findings=(THROTTLED,)),
            Certainty.UNSURE,
            "gpu may be faster: suspect (throttled); nothing else has a clean figure",
        ),
        (
            contest(REAL_PIXEL, 15_000, 12_000, quality=Quality.SUSPECT, findings=(THROTTLED,)),
            Certainty.UNSURE,
            "nothing else has a clean figure",
        ),
        (
            [
                *series(case(REAL_PIXEL, delegate=GPU), 6_000, 1),
                *series(case(REAL_PIXEL), 12_000, 1),
            ],
            Certainty.UNSURE,
            "one process each: not tested",
        ),
        (
            series(
                case(REAL_PIXEL, MOBILENET, GPU),
                6_000,
                quality=Quality.SUSPECT,
                findings=(THROTTLED,),
            ),
            Certainty.NONE,
            "suspect (throttled)",
        ),
    ],
)
def test_a_winner_says_what_makes_it_less_than_sure(runs, certainty, doubt):
    (line,) = lines_of(runs, REAL_PIXEL).lines
    assert (line.certainty, line.doubt) == (certainty, doubt)


def test_phones_of_very_many_kinds_share_lines_by_their_answer():
    many = [phones(1, model=f"Phone {n}")[0] for n in range(45)]
    runs = [
        run
        for n, phone in enumerate(many)
        for run in contest(phone, 6_000 if n else 20_000, 12_000)
    ]
    block = lines_of(runs, *many)
    assert [(line.phones, line.take) for line in block.lines] == [
        ("Google Phone 0", "xnnpack, 4 threads"),
        ("44 phones", "gpu"),
    ]
    assert "Google Phone 44" in block.lines[1].which


def test_names_leave_out_what_is_the_same_everywhere_unless_two_would_be_alike():
    cases = [case(delegate=GPU, threads=1), case(threads=1), case(threads=4)]
    names = short_names((item.configuration, item) for item in cases)
    assert list(names.short.values()) == ["gpu", "xnnpack, 1 thread", "xnnpack, 4 threads"]
    assert names.common == "native; gpu with 1 thread"
    twice = short_names([("gpu, 1 thread, a", cases[0]), ("gpu, 1 thread, a, a", cases[1])])
    assert len(set(twice.short.values())) == len(twice.short)
