"""The pass ``reference``: the short workload that brackets a campaign on each device."""

from __future__ import annotations

from orchestrator.passes.specification import PassSpec, Repetition
from orchestrator.records.case import Pass

PASS = PassSpec(
    name=Pass.REFERENCE,
    about="A fixed workload before, between and after a campaign's runs, to see whether the phone changed",
    guide="phones",
    repetition=Repetition.AROUND_OTHERS,
    prints_latency=True,
    # Its case isn't the plan's.
    keeps_all_campaigns=True,
)
