"""The record of the pass ``energy``."""

from __future__ import annotations

from typing import Final

from orchestrator.extensions.energy.measuring import EnergyMeter, with_energy
from orchestrator.extensions.energy.meters import MeterBook
from orchestrator.extensions.energy.records import LEAST_REST_S, LEAST_WORK_S, PowerSource
from orchestrator.extensions.energy.table import TABLE, energy_of_threads
from orchestrator.passes.specification import (
    OVERHEAD_S,
    PassServices,
    PassSpec,
    Repetition,
    RunProgram,
    no_findings,
)
from orchestrator.programs.specification import Program
from orchestrator.records.case import Case, Pass
from orchestrator.records.plan import Plan, PlanTerms

#: Rounds where no fixed number is given.
_ROUNDS: Final = 6


def _runner(services: PassServices) -> RunProgram:
    return EnergyMeter(services.hold, MeterBook(services.folder("meters")), services.hub_power).run


def _numbers(plan: Plan, case: Case, program: Program) -> range:
    return range(plan.invocations.first if plan.stopping is None else _ROUNDS)


def _least_s(case: Case, terms: PlanTerms) -> float:
    # With rails; a battery takes five times as long.
    return (
        OVERHEAD_S
        + 2 * LEAST_REST_S[PowerSource.RAILS]
        + max(LEAST_WORK_S[PowerSource.RAILS], case.min_secs)
    )


PASS = PassSpec(
    name=Pass("energy"),
    about="The energy of an inference, by the phone's own meters",
    guide="in-use",
    repetition=Repetition.COUNTED,
    flags={},
    files={},
    runner=_runner,
    numbers=_numbers,
    turn=lambda terms: 1,
    least_s=_least_s,
    read=with_energy,
    findings=no_findings,
    figures=(),
    table=TABLE,
    advice={"energy-of-threads": energy_of_threads},
    warns=True,
)
