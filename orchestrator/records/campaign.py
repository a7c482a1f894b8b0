"""One execution of a plan."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orchestrator.records.identity import CampaignId
from orchestrator.records.pairing import Pairing
from orchestrator.records.parity import OutputCheck
from orchestrator.records.plan import PlanTerms, StoppingRule
from orchestrator.records.workload import FIGURE_PASS, Case, Pass, RunKey, SkippedCase


class CampaignStatus(enum.StrEnum):
    """How far a campaign is.

    A campaign whose process was killed stays RUNNING until it is resumed.
    """

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One process to be started on a device; unique in a campaign by (case_key, run_pass, number)."""

    case: Case
    run_pass: Pass
    #: Counts from 0 within (case, pass).
    number: int

    @property
    def key(self) -> RunKey:
        """What it, and its run, is known by in a campaign."""
        return self.case.case_key, self.run_pass, self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that a campaign was imported from; its figures were read again from the raw output
    that it holds.
    """

    #: Its bare name.
    file: str
    #: Of the whole file: which bytes were imported; says nothing of their author.
    sha256: str

    @property
    def text(self) -> str:
        """For messages: ``imported from night.zip (sha256 0123456789ab)``."""
        return f"imported from {self.file} (sha256 {self.sha256[:12]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms(PlanTerms):
    """What running a campaign needs beside its cases: what its plan says, and what was so when it
    began.
    """

    #: None: the planned invocations, no more and no less.
    stopping: StoppingRule | None = None
    #: sha256 of a model or program -> where its file is on the computer that began the campaign.
    files: Mapping[str, str] = field(default_factory=dict)
    #: An A/B comparison: two cases in turns, until a change is shown or that there is none.
    pairing: Pairing | None = None
    #: Folder with inputs for the pass ``parity``; empty: made from a seed.
    parity_inputs: str = ""
    #: What earlier campaigns found out about outputs on the same system, by `Case.outputs_key`.
    output_checks: Mapping[str, OutputCheck] = field(default_factory=dict)
    #: Whether also a delegate that takes all operators is measured with each number of threads.
    every_thread_count: bool = False
    #: Where relative paths of the plan start, on the computer that began the campaign; empty when
    #: that isn't known.
    plan_folder: str = ""
    #: Serial number -> fingerprint of the device's system when the campaign began.
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    #: Serial number -> weight and total of what the device's earlier campaigns showed of how much
    #: invocations resemble their neighbours.
    memories: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: None for a campaign of this store's own.
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """One execution of a plan, with everything needed to go on after a crash."""

    campaign_id: CampaignId
    name: str
    created_at: datetime
    status: CampaignStatus
    #: The plan as written (YAML) or as built from the command line; kept byte for byte.
    plan_text: str
    seed: int
    benchfarm_version: str
    #: The computer that ran it.
    host: str
    terms: Terms = field(default_factory=Terms)
    #: In the order in which they are to be run on each device.
    invocations: tuple[Invocation, ...] = ()
    skipped: tuple[SkippedCase, ...] = ()
    finished_at: datetime | None = None

    def is_warm_up(self, run_pass: Pass, number: int) -> bool:
        """Whether an invocation only warms the device for pairs that follow, and its figure is
        never counted.
        """
        pairing = self.terms.pairing
        return pairing is not None and run_pass is FIGURE_PASS and number < pairing.warmup
