"""Which cases run, which are skipped, and which flags are refused, before anything is run."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.engine.flag_check import with_flag_skips
from orchestrator.errors import PlanError
from orchestrator.planning.expansion import Expansion, Stock, expand
from orchestrator.programs.flags import FlagBook
from orchestrator.records.case import (
    Build,
    BuildSha,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    ToolName,
)
from orchestrator.records.plan import Matrix, Plan, PlanModel, fixed_count
from tests.samples.places import NATIVE
from tests.samples.records import facts_of

PHONE = facts_of("P", sdk=33)
MODEL = Model(name="m", sha256=ModelSha("a" * 64), size_bytes=1)
BUILD = Build(
    name="benchmark_model", tool=ToolName.NATIVE, sha256=BuildSha("c" * 64), abi="arm64-v8a"
)
HELP = (NATIVE / "help_true.txt").read_bytes()

Flags = dict[str, str]


@pytest.fixture
def book(tmp_path: Path) -> FlagBook:
    return FlagBook(tmp_path)


def checked(
    book: FlagBook, delegates: str, *flags: Flags, passes: Sequence[Pass] = (Pass.TIMING,)
) -> Expansion:  # fmt: skip
    names = tuple(DelegateName(name) for name in delegates.split(","))
    matrix = Matrix(
        delegates=names,
        threads=(1,),
        flags=tuple(tuple(sorted(one.items())) for one in flags) or ((),),
    )
    models = (PlanModel(name="m", path=Path("m")),)
    plan = Plan(
        name="p", models=models, matrix=matrix, passes=tuple(passes), invocations=fixed_count(1)
    )
    expansion = expand(
        plan, [PHONE], [MODEL], Stock(builds={(PHONE.serial, ToolName.NATIVE): BUILD})
    )
    return with_flag_skips(expansion, delegates=names, builds=[BUILD], book=book)


def refused(
    book: FlagBook, delegates: str, *flags: Flags, passes: Sequence[Pass] = (Pass.TIMING,)
) -> PlanError:
    with pytest.raises(PlanError) as caught:
        checked(book, delegates, *flags, passes=passes)
    return caught.value


def test_a_flag_for_one_pass_is_no_fault_in_a_plan_that_has_the_pass(book: FlagBook) -> None:
    flags = {"memory_footprint_check_interval_ms": "5"}
    assert len(checked(book, "cpu", flags, passes=(Pass.TIMING, Pass.MEMORY)).cases) == 1
    assert len(refused(book, "cpu", flags).faults) == 1


def test_a_delegate_that_the_program_lacks_is_skipped_and_its_invocations_with_it(
    book: FlagBook,
) -> None:
    book.learn(BUILD, HELP)
    expansion = checked(book, "xnnpack,gpu,nnapi", passes=(Pass.TIMING, Pass.PROFILE))
    assert [item.case.delegate for item in expansion.invocations[PHONE.serial]] == [
        DelegateName.XNNPACK
    ] * 2
    assert {(skip.delegate.value, skip.reason_code) for skip in expansion.skipped} == {
        ("gpu", "delegate-not-in-build"),
        ("nnapi", "delegate-not-in-build"),
    }


def test_a_wrong_value_is_refused_also_where_the_delegate_is_missing(book: FlagBook) -> None:
    book.learn(BUILD, HELP)
    assert len(refused(book, "gpu", {"allow_fp16": "ja"}).faults) == 1
