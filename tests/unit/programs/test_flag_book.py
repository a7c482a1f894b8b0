"""What is known of each program's flags, and what is wrong with those of a case."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.delegates import DELEGATES, FlagFamily
from orchestrator.ports import unplaced
from orchestrator.programs.flags import (
    FlagBook,
)
from orchestrator.programs.running import benchmark_flags
from orchestrator.records.build_spec import FlagFault
from orchestrator.records.case import Build, BuildSha, DelegateName, Pass, ToolName
from tests.samples import sample_lab
from tests.samples.places import NATIVE

#: The binary that printed it has XNNPACK, and neither GPU nor NNAPI.
HELP = (NATIVE / "help_true.txt").read_bytes()
BUILD = Build(name="b", tool=ToolName.NATIVE, sha256=BuildSha("a" * 64), abi="x86_64")
CASE = sample_lab.case(
    tool=ToolName.NATIVE, delegate=DelegateName.XNNPACK, build_sha256=BUILD.sha256
)


def faults(
    book: FlagBook,
    *,
    delegate: str = "xnnpack",
    tool: str = "native",
    run_pass: Pass = Pass.TIMING,
    **flags: str,
) -> list[FlagFault]:
    build = replace(BUILD, tool=ToolName(tool))
    case = replace(
        CASE,
        delegate=DelegateName(delegate),
        tool=ToolName(tool),
        flags=tuple(sorted(flags.items())),
    )
    return list(book.faults(build, case, run_pass))


@pytest.fixture
def book(tmp_path: Path) -> FlagBook:
    return FlagBook(tmp_path / "flags")


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = FlagBook(tmp_path / "file" / "flags")
    assert book.learn(BUILD, HELP)
    assert len(book.names(BUILD)) == 58


@pytest.mark.parametrize(
    "delegate",
    [
        name.value
        for name in DelegateName
        if FlagFamily.BENCHMARK_MODEL in DELEGATES[name].flags
        and not DELEGATES[name].is_named_by_flag
    ],
)
@pytest.mark.parametrize("tool", ["native", "apk"])
def test_what_benchfarm_passes_by_itself_has_no_fault(
    book: FlagBook, delegate: str, tool: str
) -> None:
    for run_pass in Pass:
        assert faults(book, delegate=delegate, tool=tool, run_pass=run_pass) == [], (
            "a program that wasn't asked for --help is refused the delegate"
        )


def test_the_app_takes_no_white_space(book: FlagBook) -> None:
    (fault,) = faults(book, tool="apk", benchmark_name="a b")
    assert fault.code == "wrong-value"
    assert faults(book, tool="native", benchmark_name="a b") == []


def old_help() -> bytes:
    missing = (
        b"result_file_path",
        b"export_model_runtime_info",
        b"model_runtime_info",
        b"use_xnnpack",
        b"report_peak",
    )
    return b"\n".join(
        line for line in HELP.splitlines() if not any(name in line for name in missing)
    )


def test_an_old_binary_runs_without_the_flags_that_only_gather_more(book: FlagBook) -> None:
    assert book.learn(BUILD, old_help())
    assert faults(book, delegate="cpu") == []
    known = book.names(BUILD)
    case = replace(CASE, delegate=DelegateName.CPU)
    passed = benchmark_flags(unplaced(case, Pass.TIMING, BUILD, known), folder="/")
    assert set(passed) <= known
    assert "num_threads" in passed


def test_an_old_binary_does_not_get_a_pass_or_a_delegate_that_it_lacks(book: FlagBook) -> None:
    assert book.learn(BUILD, old_help())
    (fault,) = faults(book, delegate="cpu", run_pass=Pass.MEMORY)
    assert (fault.code, fault.flag) == ("needed-flag", "report_peak_memory_footprint")
    (fault,) = faults(book, delegate="xnnpack")
    assert (fault.code, fault.flag) == ("delegate-flag", "use_xnnpack")
