"""What the pass ``contention`` takes as proof that its load ran."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from orchestrator.extensions.contention.run_pass import PASS, with_load
from orchestrator.programs.native import NativeTool
from orchestrator.records.case import DelegateName, Load, ToolName, load_of
from orchestrator.records.plan import Matrix, PlanTerms
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from tests.samples import sample_lab
from tests.unit.test_planning import NATIVE, PHONE, expanded, plan

CASE = sample_lab.case(tool=ToolName.NATIVE, delegate=DelegateName.CPU)


def read(told: str) -> ToolReport:
    raw = RawOutput(
        command="", exit_code=0, timed_out=False, started_at=datetime(2026, 1, 1, tzinfo=UTC), duration_s=1.0,
        attachments=(Attachment(name="load", data=told.encode()),) if told else (),
    )  # fmt: skip
    return with_load(NativeTool(), ToolReport(outcome="ok"), raw, CASE)


def test_a_load_that_ran_all_the_time_is_told_in_cores() -> None:
    report = read("load cpu=2\nbegin 10.00\ncpu 7 50\ncpu 8 40\nend 20.00\ncpu 7 1050\ncpu 8 540\n")
    assert (report.outcome, report.extra) == (
        "ok",
        {"load": "cpu=2", "load_cores": pytest.approx(1.5)},
    )


def test_a_short_run_may_end_before_each_process_of_a_load_had_its_turn() -> None:
    both = "load cpu=2\nbegin 10.00\ncpu 7 50\ncpu 8 40\nend {}\ncpu 7 60\ncpu 8 40\n"
    assert read(both.format("10.20")).extra["load_cores"] == pytest.approx(0.5)
    assert read(both.format("11.20")).failure_code == "load-died"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (
            "begin 1\ncpu 7 gone\nend 2\ncpu 7 gone\n",
            "a process of it (cpu) had ended at the run's begin",
        ),
        (
            "begin 1\ncpu 7 5\nend 2\ncpu 7 gone\n",
            "at the run's end",
        ),
        ("begin 1\ncpu 7 5\nend 2\ncpu 7 5\n", "got no processor time"),
        ("begin 1\ncpu 7 5\n", "nothing on the phone shows that it ran"),
        ("begin 1\ncpu 7 5\nend 2\ncpu 9 50\n", "nothing on the phone shows that it ran"),
        ("begin x\ncpu 7 5\nend 2\ncpu 7 50\n", "can't be read"),
        ("", "nothing on the phone shows that it ran"),
    ],
)
def test_a_load_that_died_is_recorded_as_that(told: str, why: str) -> None:
    report = read(f"load cpu=1\n{told}")
    assert (report.outcome, report.failure_code) == ("failed", "load-died")
    assert why in report.failure_reason


def test_no_load_needs_no_proof() -> None:
    assert read("load none\n").outcome == "ok"
    assert read("").extra == {}


def test_loads_as_people_write_them() -> None:
    assert load_of("cpu=4") == Load(cpu=4)
    assert load_of("cpu=2+memory=1+gpu=1") == Load(cpu=2, memory=1, gpu=1)
    for wrong in (
        "",
        "none",
        "cpu",
        "cpu=0",
        "cpu=1+cpu=2",
        "gpu=2",
        "cpu=100",
        "disk=1",
        "cpu=4; reboot",
    ):
        with pytest.raises(ValueError, match=r"load|GPU"):
            load_of(wrong)
    terms = PlanTerms(contention=("cpu=1", "memory=1"))
    numbers = [PASS.variant(number, terms) for number in range(4)]
    assert numbers == ["none", "cpu=1", "memory=1", "none"]


@pytest.mark.parametrize(("load", "is_run"), [("cpu=2", True), ("cpu=2+gpu=1", False)])
def test_a_program_without_a_loop_on_the_gpu_is_skipped_before_anything_runs(
    load: str, is_run: bool
) -> None:
    tool = ToolName.LITERT_NATIVE
    asked = plan(matrix=Matrix(tools=(tool,)), passes=(PASS.name,), contention=(load,))
    expansion = expanded(asked, PHONE, replace(NATIVE, tool=tool))
    assert bool(expansion.cases) is is_run
    assert is_run or "'litert-native' has no loop on the GPU" in expansion.skipped[-1].reason
