"""What a pass of a plugin has to have."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.passes.specification import PassSpec
from orchestrator.records.case import Pass


@pytest.mark.parametrize(
    "own",
    [
        {"as_run": lambda case: replace(case, num_runs=1)},
        {"last_flags": lambda request: {"use_caching": "true"}},
    ],
)
def test_a_pass_runs_a_program_in_a_way_of_its_own(own: dict[str, Any]) -> None:
    assert PassSpec(name=Pass("acme.x"), about="x", **own).is_in_plans
    with pytest.raises(ValueError, match=r"'acme\.x' runs a program as it is: give it flags"):
        PassSpec(name=Pass("acme.x"), about="x")
