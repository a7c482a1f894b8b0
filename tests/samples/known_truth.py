"""Runs on a virtual phone of which it is known whether heat held clocks down, or other work used
the cores.

The truth is the phone's own: its hardware counts the time in which clocks were held down while
there was work. Nothing of it is in what adb shows; the runs are started, read and judged as those
of any phone, through a real adb server.
"""

from __future__ import annotations

import hashlib
import random
import threading
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.phone import Phone
from benchfarm_virtual.samples import write_benchmark_elf
from orchestrator.analysis.quality import Observed, ending_of, judge
from orchestrator.devices.phone import AdbDevice
from orchestrator.passes import pass_of
from orchestrator.ports import HostFile, InvocationRequest
from orchestrator.programs.native import NativeTool
from orchestrator.records.case import (
    Build,
    BuildSha,
    Case,
    DelegateName,
    ModelSha,
    Pass,
    RunId,
    ToolName,
)
from orchestrator.records.run import SAMPLES_FILE
from orchestrator.records.verdict import QualityVerdict
from tests.samples.places import MODELS

MODEL = MODELS / "texturenet_0.25_256_float.tflite"
#: What happens to the phone, and by which fault; each is as likely as any other, the calm phone as
#: likely as half.
TROUBLES = {
    "throttled in mid-run": ("throttle", "steps=3", "moment=run"),
    "throttled all along": ("throttle", "steps=2"),
    "overheated in mid-run": ("overheat", "heat_c=92", "moment=run"),
    "other work": ("foreign-load", "cores=2"),
}


@dataclass(slots=True)
class Tally:
    """How often a judgement agreed with the truth."""

    counts: Counter[tuple[bool, bool]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, *, is_so: bool, is_said: bool) -> None:
        self.counts[is_so, is_said] += 1
        if is_so != is_said:
            self.wrong.append(what)

    @property
    def caught(self) -> float:
        return self.counts[True, True] / max(1, self.counts[True, True] + self.counts[True, False])

    @property
    def accused(self) -> float:
        return self.counts[False, True] / max(
            1, self.counts[False, True] + self.counts[False, False]
        )

    def __str__(self) -> str:
        so = self.counts[True, True] + self.counts[True, False]
        free = self.counts[False, True] + self.counts[False, False]
        return (
            f"caught {self.counts[True, True]} of {so} ({self.caught:.1%}), "
            f"falsely accused {self.counts[False, True]} of {free} ({self.accused:.1%})"
        )


class WatchedPhone:
    """One virtual phone with a program and a model on it, whose runs are judged."""

    def __init__(self, phone: Phone, device: AdbDevice, folder: Path) -> None:
        self.phone = phone
        self.device = device
        self._tool = NativeTool()
        program = write_benchmark_elf(folder / "benchmark_model")
        self._paths = []
        for path, kind in ((MODEL, "models"), (program, "programs")):
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            placed = device.place(
                HostFile(
                    source=path,
                    kind=kind,
                    sha256=sha256,
                    name=path.name,
                    executable=kind == "programs",
                )
            )
            self._paths.append(placed.path)
        self._case = Case(
            serial=device.serial, model_sha256=ModelSha("m"), model_name="m", delegate=DelegateName.XNNPACK, threads=4,
            tool=ToolName.NATIVE, build_sha256=BuildSha("b"), min_secs=3.0,
        )  # fmt: skip
        self._build = Build(
            name="benchmark_model",
            tool=ToolName.NATIVE,
            sha256=BuildSha("b"),
            path=program,
            abi="arm64-v8a",
        )

    def calm(self) -> None:
        """Have the phone as it is after a long rest."""
        for fault in self.phone.faults.waiting():
            self.phone.faults.remove(fault.fault_id)
        self.phone.hardware.force(heat_c=self.phone.hardware.profile.thermal.ambient_c + 1)
        # Clocks come back by one step a second, of the phone's.
        while any(cluster.cooling_steps for cluster in self.phone.hardware.clusters()):
            self.phone.time.sleep(1.0, threading.Event())

    def run(
        self, *fault: str, delegate: DelegateName = DelegateName.XNNPACK
    ) -> tuple[bool, QualityVerdict]:
        """Run once, with a fault; return whether clocks were held down meanwhile, and what the
        judgement says.
        """
        before = self.device.state()
        throttled_s = self.phone.hardware.throttled_s()
        if fault:
            self.phone.faults.add(parse_fault(fault[0], fault[1:]))
        if fault and not any("moment" in word for word in fault):
            before = self.device.state()
        case = replace(self._case, delegate=delegate)
        request = InvocationRequest(
            case=case, run_id=RunId(uuid.uuid4().hex), run_pass=Pass.TIMING, facts=self.device.facts(),
            build=self._build, model_path=self._paths[0], program_path=self._paths[1], timeout_s=300.0,
        )  # fmt: skip
        raw = self._tool.run(self.device, request)
        after = self.device.state()
        report = self._tool.parse(raw, case)
        verdict = judge(
            report, ending_of(report, exit_code=raw.exit_code, timed_out=raw.timed_out),
            Observed(
                case=case, facts=self.device.facts(), before=before, after=after, samples=raw.data(SAMPLES_FILE)
            ),
            pass_of(Pass.TIMING).findings,
        )  # fmt: skip
        return self.phone.hardware.throttled_s() > throttled_s, verdict

    def measure(self, count: int, *, seed: int) -> dict[str, Tally]:
        """Make ``count`` runs, half of them in trouble; return how well heat and other work were
        told.
        """
        chance = random.Random(seed)
        tallies = {"throttled": Tally(), "foreign-load": Tally()}
        for number in range(count):
            trouble = chance.choice(list(TROUBLES)) if chance.random() < 0.5 else "nothing"
            delegate = chance.choice([DelegateName.XNNPACK, DelegateName.CPU, DelegateName.GPU])
            self.calm()
            was_throttled, verdict = self.run(*TROUBLES.get(trouble, ()), delegate=delegate)
            assert not verdict.has("not-completed"), verdict
            what = f"run {number}: {trouble}, {delegate}: {[(f.code, f.message, f.evidence) for f in verdict.findings]}"
            tallies["throttled"].add(what, is_so=was_throttled, is_said=verdict.has("throttled"))
            tallies["foreign-load"].add(
                what, is_so=trouble == "other work", is_said=verdict.has("foreign-load")
            )
        return tallies
