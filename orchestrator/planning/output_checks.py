"""The one comparison of outputs that each configuration gets which nobody compared yet. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.passes import passes
from orchestrator.passes.parity import can_be_checked
from orchestrator.planning.expansion import Expansion
from orchestrator.records.campaign import Invocation
from orchestrator.records.case import FIGURE_PASS, Case


def with_output_checks(expansion: Expansion, is_wanted: Callable[[Case], bool]) -> Expansion:
    """Return an expansion in which each wanted configuration's outputs are compared once.

    With one number of threads, and after the first round of figures: who waits sees these first.
    """
    return replace(
        expansion,
        invocations={
            serial: _with_checks(queue, is_wanted)
            for serial, queue in expansion.invocations.items()
        },
    )


def _with_checks(
    queue: Sequence[Invocation], is_wanted: Callable[[Case], bool]
) -> tuple[Invocation, ...]:
    own = next(item for item in passes() if item.compares_outputs)
    first = [item for item in queue if item.run_pass is FIGURE_PASS and item.number == 0]
    # In the plan's order, the fewest threads first: a further number of them may turn out unused.
    cases: dict[str, Case] = {}
    for case in sorted((item.case for item in first), key=lambda case: case.threads):
        cases.setdefault(case.outputs_key, case)
    checks = [
        Invocation(case=case, run_pass=own.name, number=0)
        for case in cases.values()
        if can_be_checked(case) and is_wanted(case)
    ]
    begun = max((place for place, item in enumerate(queue) if item in first), default=-1) + 1
    return (*queue[:begun], *checks, *queue[begun:])
