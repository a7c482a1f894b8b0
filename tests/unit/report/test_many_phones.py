"""Many phones in a terminal: the fastest of each; and the sentence that says which configuration to
use.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orchestrator.records.campaign import Terms
from orchestrator.records.case import (
    Case,
    DelegateName,
    Pass,
    ProcessMode,
    Serial,
    SkippedCase,
    ToolName,
)
from orchestrator.records.run import THREADS_UNUSED, DelegateTruth, Outcome, RunRecord
from orchestrator.report.data import ReportData
from orchestrator.report.tables import render_text_table
from orchestrator.report.winners import (
    Contest,
    answer_text,
    fastest_table,
    next_step,
    next_steps,
    winner_sentences,
    winners,
)
from orchestrator.tables.escapes import display_width
from orchestrator.tables.rows import SkipRow
from tests.samples.sample_lab import PIXEL_3, case, lab_of, run, series

PHONES = [
    replace(PIXEL_3, serial=Serial(f"R58M{number:02}"), is_virtual=False) for number in range(12)
]
#: What the program has on phones.
OFFERED = ("cpu", "xnnpack", "gpu", "nnapi", "hexagon")
SPEEDS = {
    ("cpu", 1): 80_000,
    ("cpu", 4): 30_000,
    ("xnnpack", 1): 61_000,
    ("xnnpack", 4): 23_900,
    ("gpu", 1): 6_450,
}


def data_of(*runs: RunRecord) -> ReportData:
    return lab_of(runs, *PHONES).data()


def configuration(number: int, delegate: str, threads: int) -> Case:
    return case(PHONES[number], delegate=DelegateName(delegate), threads=threads)


def twelve() -> ReportData:
    found = [
        series(configuration(number, *key), speed_us * (1 + number / 10))
        for number in range(12)
        for key, speed_us in SPEEDS.items()
    ]
    unused = [
        run(
            configuration(number, "gpu", 4),
            0,
            None,
            outcome=Outcome.SKIPPED,
            reason_code=THREADS_UNUSED,
        )
        for number in range(11)
    ]
    return data_of(
        *(item for group in found for item in group),
        *unused,
        *series(configuration(11, "gpu", 4), 9_000),
    )


@pytest.mark.parametrize("columns", [200, 80])
def test_twelve_phones_fit_a_screen_with_the_fastest_of_each(columns: int) -> None:
    lines = render_text_table(twelve(), columns).splitlines()
    assert len(lines) <= 24
    assert all(display_width(line) <= columns for line in lines)
    for phone in PHONES:
        row = next(line for line in lines if f"({phone.serial})" in line)
        assert "gpu, " in row
        assert "not checked" in row
    assert any("have all 61 cases" in line for line in lines)
    assert not any(line.startswith(lines[0]) for line in lines[1:]), "one model is named once"


def test_one_winner_is_named_with_its_lead_over_the_next_and_its_interval() -> None:
    data = data_of(
        *(
            item
            for key, speed_us in SPEEDS.items()
            for item in series(configuration(0, *key), speed_us)
        )
    )
    (winner,) = winners(data.contests)
    text = answer_text(winner)
    assert re.search(
        r": gpu is the fastest with 6\.45 ms ±0\.\d %, 3\.7\d times \(95 %: 3\.\d+ to 3\.\d+\)",
        text,
    )
    assert text.endswith("as fast as xnnpack, 4 threads; outputs not checked")
    told = fastest_table([winner]).record(winner)
    assert (told["configuration"], told["second"], told["tied"]) == (
        "gpu, 1 thread, native",
        "xnnpack, 4 threads, native",
        [],
    )
    assert (
        f"{told['lead']:.2f} times (95 %: {told['lead_low']:.2f} to {told['lead_high']:.2f})"
        in text
    )
    assert "-d gpu --pass parity" in next_step(winner, "my model.tflite", {})
    assert "'my model.tflite'" in next_step(winner, "my model.tflite", {})


def test_outputs_that_were_compared_are_said_to_be_and_are_not_to_be_checked_again() -> None:
    fast, slow = configuration(0, "gpu", 1), configuration(0, "xnnpack", 4)
    compared = run(fast, 0, 10_000, run_pass=Pass.PARITY)
    assert compared.report is not None
    compared = replace(compared, report=replace(compared.report, extra={"parity": "same"}))
    (winner,) = winners(data_of(*series(fast, 5_000), compared, *series(slow, 10_000)).contests)
    assert answer_text(winner).endswith("as fast as xnnpack, 4 threads; outputs checked")
    assert "parity" not in next_step(winner, "m.tflite", {})


def tied_winner(one: Case, other: Case, truth: DelegateTruth = DelegateTruth.FULL) -> Contest:
    (winner,) = winners(
        data_of(
            *series(one, 10_000, truth=truth), *series(other, 10_010, is_reversed=True)
        ).contests
    )
    assert winner.tied
    return winner


@pytest.mark.parametrize(
    ("changes", "sides"),
    [
        ({"threads": 1}, "threads:2 threads:1 -d xnnpack -m m.tflite"),
        ({"flags": (("xnnpack_force_fp16", "true"),)}, ""),
        ({"model_name": "copy.tflite"}, ""),
    ],
)
def test_the_next_step_names_what_tied_cases_differ_in_or_nothing(changes, sides) -> None:
    one = configuration(0, "xnnpack", 2)
    other = replace(one, **changes)
    step = next_step(tied_winner(one, other), "m.tflite", {})
    assert f"benchfarm ab {sides}" in step if sides else "benchfarm ab" not in step


@pytest.mark.parametrize(
    ("truth", "threads", "sides"),
    [
        (DelegateTruth.FULL, (1, 4), "delegate:gpu delegate:xnnpack -t 4 -m"),
        (DelegateTruth.PARTIAL, (4, 4), "delegate:gpu delegate:xnnpack -t 4 -m"),
        (DelegateTruth.PARTIAL, (1, 4), ""),
    ],
)
def test_tied_delegates_are_compared_with_threads_that_they_were_measured_with_or_none(
    truth: DelegateTruth, threads: tuple[int, int], sides: str
) -> None:
    gpu, cpu = (configuration(0, *side) for side in zip(("gpu", "xnnpack"), threads, strict=True))
    step = next_step(tied_winner(gpu, cpu, truth), "m.tflite", {})
    assert f"benchfarm ab {sides}" in step if sides else "benchfarm ab" not in step


@pytest.mark.parametrize(
    "shared",
    [
        {"flags": (("xnnpack_force_fp16", "true"),)},
        {"mode": ProcessMode.TOP_APP},
        {"affinity": "f0"},
    ],
)
def test_no_comparison_is_named_that_would_be_another_one(shared) -> None:
    one = replace(configuration(0, "xnnpack", 2), **shared)
    other = replace(one, threads=1)
    assert "benchfarm ab" not in next_step(tied_winner(one, other), "m.tflite", {})


@pytest.mark.parametrize(
    ("latencies", "step"),
    [
        ((10_000, 10_010), "benchfarm ab delegate:gpu delegate:xnnpack -t 4 -m m.tflite"),
        ((5_000, 10_000), "benchfarm bench m.tflite"),
        ((10_000, 5_000), "benchfarm bench m.tflite"),
    ],
)
def test_the_next_step_names_the_program_that_was_named(latencies, step) -> None:
    gpu, cpu = configuration(0, "gpu", 4), configuration(0, "cpu", 4)
    cpu = replace(cpu, delegate=DelegateName.XNNPACK) if step.startswith("benchfarm ab") else cpu
    found = data_of(
        *series(gpu, latencies[0]), *series(cpu, latencies[1], is_reversed=True)
    ).contests
    named = {ToolName.NATIVE: "/my programs/new"}
    (command,) = next_steps(found, Terms(files={gpu.model_sha256: "m.tflite"}, builds=named))
    assert f": {step} -s R58M00 --build 'native=/my programs/new'" in command
    (command,) = next_steps(found, Terms(files={gpu.model_sha256: "m.tflite"}))
    assert "--build" not in command


def test_every_phone_is_named_where_each_may_try_every_delegate() -> None:
    cases = [configuration(place, "cpu", threads) for place in (0, 1) for threads in (1, 4)]
    contests = data_of(*(item for case in cases for item in series(case, 9_000 / case.threads)))
    terms = Terms(files={cases[0].model_sha256: "m.tflite"})
    (command,) = next_steps(contests.contests, terms)
    assert command.endswith("benchfarm bench m.tflite -s R58M00 -s R58M01 -d all -t 1,2,4")


def test_what_was_tried_or_skipped_is_not_proposed_again() -> None:
    data = data_of(
        *(
            item
            for place, names in enumerate((OFFERED, OFFERED[:-1]))
            for slowness, name in enumerate(names)
            for threads in (1, 2, 4)
            for item in series(configuration(place, name, threads), 9_000 * 2**slowness / threads)
        )
    )
    terms = Terms(files={data.models[0].sha256: "m.tflite"})
    (command,) = next_steps(data.contests, terms)
    assert "m.tflite -s R58M01 -d all" in command
    device = next(row for row in data.devices if row.serial == "R58M01")
    lacking = [configuration(1, OFFERED[-1], threads) for threads in (1, 2, 4)]
    skipped = [
        SkipRow(device=device, skipped=SkippedCase.of(case, "no-hexagon", "there is none"))
        for case in lacking
    ]
    assert not next_steps(data.contests, terms, skipped)


def test_one_process_each_is_not_called_sure() -> None:
    fast, slow = configuration(0, "gpu", 1), configuration(0, "xnnpack", 4)
    (winner,) = winners(data_of(*series(fast, 5_000, 1), *series(slow, 10_000, 1)).contests)
    assert "2.00 times (not tested: one process) as fast as xnnpack" in answer_text(winner)


def test_of_many_winners_it_is_said_which_are_no_winners() -> None:
    clear = [configuration(number, *key) for number in range(4) for key in (("gpu", 1), ("cpu", 1))]
    tied = [configuration(4, "gpu", 1), configuration(4, "cpu", 1)]
    runs = [
        item for one in clear for item in series(one, 10_000 if one.delegate == "gpu" else 20_000)
    ]
    (answer,) = winner_sentences(
        data_of(
            *runs, *series(tied[0], 10_000), *series(tied[1], 10_010, is_reversed=True)
        ).contests
    )
    assert answer == "gpu is fastest on 4 of 5 phones, a tie on 1; outputs not checked"
