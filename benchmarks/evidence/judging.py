"""Throttled and calm runs of virtual phones' physics, put before the judge that judges every run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.profiles import load_profile, profile_names
from orchestrator.analysis.case_result import CLOCKS_LOW_MAX, clocks_low
from orchestrator.analysis.quality import Ending, Observed, judge
from orchestrator.analysis.samples import with_busy_clock
from orchestrator.passes import pass_of
from orchestrator.records.case import (
    BuildSha,
    CampaignId,
    Case,
    DelegateName,
    ModelSha,
    Pass,
    RunId,
    Serial,
    ToolName,
)
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import FitLimits
from orchestrator.records.run import (
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    Outcome,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import Quality, QualityVerdict

RUNS = 1200
LOOK_EVERY_S = 2.0
#: Clocks held down for less than this share of a run move no median; such runs count on neither
#: side.
TOUCHED = 0.05
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class HandTime:
    """A phone's time that passes when it is told to."""

    factor = 1.0

    def __init__(self) -> None:
        self.now_s = 0.0

    def uptime_s(self) -> float:
        return self.now_s


@dataclass
class Rates:
    """How often runs were called throttled."""

    caught: float
    accused: float
    rows: list[tuple[str, float, int]]


@dataclass
class Tally:
    called: int = 0
    count: int = 0

    def add(self, *, was_called: bool) -> None:
        self.called += was_called
        self.count += 1

    @property
    def rate(self) -> float:
        return self.called / max(1, self.count)


def rates(rng: np.random.Generator) -> Rates:
    """Return the rates over all runs, by what the judge could see."""
    ways = {
        "the thermal service tells of cooling devices": True,
        "an old phone without a thermal service": False,
    }
    tallies = {(way, is_throttled): Tally() for way in ways for is_throttled in (True, False)}
    names = profile_names()
    for number in range(RUNS):
        phone = _Phone(names[number % len(names)], rng)
        before, looks, after, share = phone.run(float(rng.uniform(1, 60)))
        if 0 < share < TOUCHED:
            continue
        for way, has_service in ways.items():
            called = phone.is_called_throttled(before, looks, after, has_service=has_service)
            tallies[way, share > 0].add(was_called=called)
    first = next(iter(ways))
    rows = [
        (f"{'throttled' if is_throttled else 'calm'}: {way}", tally.rate, tally.count)
        for (way, is_throttled), tally in tallies.items()
    ]
    return Rates(caught=tallies[first, True].rate, accused=tallies[first, False].rate, rows=rows)


class _Phone:
    def __init__(self, profile: str, rng: np.random.Generator) -> None:
        self.time = HandTime()
        self.hardware = VirtualHardware(
            load_profile(profile), self.time, int(rng.integers(1 << 30))
        )
        self.rng = rng
        self.time.now_s = 60.0
        if rng.random() < 0.6:
            self.hardware.force(heat_c=float(rng.uniform(30, 95)))
        limits = FitLimits()
        while (
            self.hardware.thermal_status() > limits.thermal_status_max
            or self.hardware.battery().heat_c > limits.battery_heat_max
        ):
            self.time.now_s += 5.0

    def run(self, duration_s: float) -> tuple[DeviceState, bytes, DeviceState, float]:
        """Return the state before, the watcher's looks, the state after, and for which share clocks
        were held down."""
        hardware = self.hardware
        before = self.state()
        cores = [cpu for cluster in hardware.clusters() for cpu in cluster.cpus]
        held_s, from_s = hardware.throttled_s(), self.time.now_s
        looks = [self.look()]
        work = hardware.begin_work(cores[-int(self.rng.integers(1, 5)) :], pid=100)
        taken_s, given_s = (
            sorted(self.rng.uniform(0, duration_s, 2)) if self.rng.random() < 1 / 3 else (1e9, 1e9)
        )
        steps = int(self.rng.integers(1, 5))
        while self.time.now_s - from_s < duration_s:
            hardware.hold_clocks(steps if taken_s <= self.time.now_s - from_s < given_s else 0)
            self.time.now_s += min(LOOK_EVERY_S, duration_s - (self.time.now_s - from_s)) + 1e-6
            looks.append(self.look())
        hardware.end_work(work)
        hardware.hold_clocks(0)
        share = (hardware.throttled_s() - held_s) / duration_s
        looks.append(self.look())
        times = f"--times\n0m0.01s 0m0.01s\n0m{hardware.cpu_s(100):.2f}s 0m0.00s"
        text = "\n".join([*looks[:-1], times, looks[-1], ""])
        self.time.now_s += float(self.rng.uniform(0.2, 1.0))
        return before, text.encode(), self.state(), share

    def invocation(
        self, number: int, duration_s: float, steps: int, *, has_looks: bool
    ) -> tuple[RunRecord, float, float]:
        """Return a run on one core with idle time around it, its mean clock, and for which share
        clocks were held."""
        hardware, cluster = self.hardware, self.hardware.clusters()[-1]
        before = self.state()
        self.time.now_s += float(self.rng.uniform(0.1, 3.0))
        held_s, from_s, looks, clocks = (
            hardware.throttled_s(),
            self.time.now_s,
            [self.look(has_work=True)],
            [],
        )
        work = hardware.begin_work([cluster.cpus[-1]], pid=100 + number)
        hardware.hold_clocks(steps)
        while (left_s := duration_s - (self.time.now_s - from_s)) > 1e-3:
            self.time.now_s += min(LOOK_EVERY_S, left_s) + 1e-6
            looks.append(self.look(has_work=True))
            clocks.append(hardware.clusters()[-1].current_khz)
        hardware.end_work(work)
        hardware.hold_clocks(0)
        share = (hardware.throttled_s() - held_s) / duration_s
        times = f"--times\n0m0.01s 0m0.01s\n0m{hardware.cpu_s(100 + number):.2f}s 0m0.00s"
        text = "\n".join([*looks[:-1], times, looks[-1], ""]) if has_looks else ""
        self.time.now_s += float(self.rng.uniform(0.1, 3.0))
        slow = float(self.rng.uniform(1.05, 1.4)) if self.rng.random() < 0.03 else 1.0
        clock = float(np.mean(clocks))
        latency_us = 2e10 / clock * slow * float(np.exp(0.015 * self.rng.standard_normal()))
        return stored(number, latency_us, before, self.state(), text.encode()), clock, share

    def look(self, *, has_work: bool = False) -> str:
        """Return what the watcher writes; ``has_work``: what the cores did, too, as phones show
        that let it be read."""
        lines = ["--look", f"/proc/uptime:{self.time.now_s:.2f} 0.00"]
        if has_work:
            busy, cores = (
                round(100 * self.hardware.busy_s()),
                sum(len(one.cpus) for one in self.hardware.clusters()),
            )
            lines.append(
                f"/proc/stat:cpu {busy} 0 0 {max(0, round(100 * cores * self.time.now_s) - busy)} 0 0 0 0"
            )
        for cluster in self.hardware.clusters():
            folder = f"/sys/devices/system/cpu/cpufreq/policy{cluster.cpus[0]}"
            lines += [
                f"{folder}/scaling_cur_freq:{cluster.current_khz}",
                f"{folder}/scaling_max_freq:{cluster.limit_khz}",
            ]
            lines += [
                f"{folder}/stats/time_in_state:{khz} {int(100 * held_s)}"
                for khz, held_s in cluster.held_s.items()
            ]
        return "\n".join(lines)

    def state(self) -> DeviceState:
        clusters = self.hardware.clusters()
        down = {
            f"cpu-{cluster.cpus[0]}": sum(khz > cluster.limit_khz for khz in cluster.available_khz)
            for cluster in clusters
        }
        return DeviceState(
            at=NOW,
            uptime_s=self.time.now_s,
            boot_id="b",
            heat_c=dict(self.hardware.zones()),
            thermal_status=self.hardware.thermal_status(),
            cooling=down,
            clock_khz={cluster.cpus[0]: cluster.current_khz for cluster in clusters},
            clock_limit_khz={cluster.cpus[0]: cluster.limit_khz for cluster in clusters},
            time_in_state={
                cluster.cpus[0]: {khz: int(100 * s) for khz, s in cluster.held_s.items()}
                for cluster in clusters
            },
        )

    def is_called_throttled(
        self, before: DeviceState, looks: bytes, after: DeviceState, *, has_service: bool
    ) -> bool:
        if not has_service:
            before, after = (
                replace(state, cooling={}, thermal_status=None) for state in (before, after)
            )
        clusters = self.hardware.clusters()
        facts = DeviceFacts(
            serial=Serial("V"),
            kind=DeviceKind.ANDROID,
            is_virtual=True,
            clusters=tuple(
                CpuCluster(cpus=cluster.cpus, min_khz=cluster.min_khz, max_khz=cluster.max_khz)
                for cluster in clusters
            ),
        )
        verdict = judge(
            REPORT,
            Ending(outcome=Outcome.COMPLETED),
            Observed(case=CASE, facts=facts, before=before, after=after, samples=looks),
            pass_of(Pass.TIMING).findings,
        )
        return verdict.has("throttled")


CASE = Case(
    serial=Serial("V"),
    model_sha256=ModelSha("a"),
    model_name="m",
    delegate=DelegateName.XNNPACK,
    threads=1,
    tool=ToolName.NATIVE,
    build_sha256=BuildSha("b"),
)
REPORT = ToolReport(
    outcome="ok",
    inference=LatencySummary(
        count=50, median_us=1000.0, p5_us=980.0, p95_us=1050.0, mean_us=1005.0, std_us=20.0
    ),
    inference_mean_us=1005.0,
    delegate=DelegateEvidence(requested="xnnpack", actual="xnnpack", truth=DelegateTruth.FULL),
)


# --- invocations at lower clocks than their siblings

#: Whether a watcher looks beside the run.
LOOKS = {"with the watcher's looks": True, "from the states before and after alone": False}
CASES, SIBLINGS = 150, 8


def clock_rates(rng: np.random.Generator, *, has_looks: bool) -> Rates:
    """Return how often healthy invocations were called slow by their clocks, and those held down
    found."""
    healthy, held_down = Tally(), Tally()
    names = profile_names()
    for number in range(CASES):
        phone = _Phone(names[number % len(names)], rng)
        odd = int(rng.integers(SIBLINGS)) if number % 2 else None
        duration_s = float(rng.uniform(3, 20))
        runs, clocks, touched = [], [], []
        for invocation in range(SIBLINGS):
            steps = int(rng.integers(3, 9)) if invocation == odd else 0
            run, clock, share = phone.invocation(invocation, duration_s, steps, has_looks=has_looks)
            runs.append(run)
            clocks.append(clock)
            touched.append(share > 0)
        called = {one.run.invocation for one in clocks_low(runs)}
        usual = float(
            np.median(
                [clock for clock, was in zip(clocks, touched, strict=True) if not was] or clocks
            )
        )
        for invocation, (clock, was) in enumerate(zip(clocks, touched, strict=True)):
            if not was:
                healthy.add(was_called=invocation in called)
            elif invocation == odd and sum(touched) == 1 and clock < CLOCKS_LOW_MAX * usual:
                held_down.add(was_called=invocation in called)
    rows = [
        ("healthy", healthy.rate, healthy.count),
        ("held down", held_down.rate, held_down.count),
    ]
    return Rates(caught=held_down.rate, accused=healthy.rate, rows=rows)


def stored(
    number: int, latency_us: float, before: DeviceState, after: DeviceState, looks: bytes
) -> RunRecord:
    """Return an invocation as the engine stores it."""
    report = replace(
        REPORT,
        inference=LatencySummary(count=50, median_us=latency_us),
        inference_mean_us=latency_us,
    )
    return RunRecord(
        run_id=RunId(str(number)),
        campaign_id=CampaignId("c"),
        case=CASE,
        run_pass=Pass.TIMING,
        invocation=number,
        outcome=Outcome.COMPLETED,
        reason_code="",
        reason="",
        is_virtual=True,
        started_at=NOW,
        duration_s=1.0,
        command="",
        exit_code=0,
        attachments=(),
        verdict=QualityVerdict(quality=Quality.TRUSTED),
        report=with_busy_clock(report, looks),
        state_before=before,
        state_after=after,
    )
