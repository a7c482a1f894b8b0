"""How a run ended and what its number is worth."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from orchestrator.analysis.findings import CODES
from orchestrator.analysis.quality import Ending, Observed, ending_of, judge
from orchestrator.passes import pass_of
from orchestrator.records.case import BuildSha, Case, DelegateName, ModelSha, Pass, ToolName
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.plan import Screen
from orchestrator.records.run import (
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    Outcome,
    ToolReport,
)
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from tests.samples.places import REPO
from tests.samples.records import facts_of

DOCS = REPO / "docs"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = facts_of(
    "P",
    clusters=(
        CpuCluster(cpus=(0, 1, 2, 3), min_khz=1, max_khz=1_800_000),
        CpuCluster(cpus=(4, 5), min_khz=1, max_khz=2_800_000),
    ),
)
CASE = Case(
    serial=FACTS.serial,
    model_sha256=ModelSha("a"),
    model_name="m",
    delegate=DelegateName.GPU,
    threads=1,
    tool=ToolName.NATIVE,
    build_sha256=BuildSha("b"),
)
STEADY = LatencySummary(count=50, median_us=1000.0, p5_us=980.0, p95_us=1050.0, mean_us=1005.0)
GOOD = ToolReport(
    outcome="ok",
    inference=STEADY,
    inference_mean_us=1005.0,
    delegate=DelegateEvidence(requested="gpu", actual="gpu", truth=DelegateTruth.FULL),
)
LOOKS = b"".join(b"--look\n/proc/uptime:%d.0 1\n/proc/uptime:%d.0 1\n" % (at, at) for at in (1, 2))
CALM = DeviceState(
    at=NOW, boot_id="b1", thermal_status=0, clock_limit_khz={0: 1_800_000, 4: 2_800_000}
)

CAPPED = replace(
    CALM,
    clock_khz={0: 300_000, 4: 300_000},
    clock_limit_khz={0: 1_800_000, 4: 2_100_000},
    time_in_state={4: {300_000: 5, 2_100_000: 5, 2_800_000: 5}},
)


def verdict(
    report: ToolReport | None = GOOD,
    *,
    ending: Ending | None = None,
    facts: DeviceFacts = FACTS,
    case: Case = CASE,
    run_pass: Pass = Pass.TIMING,
    before: DeviceState | None = CALM,
    after: DeviceState | None = CALM,
    samples: bytes = LOOKS,
    screen: Screen = Screen.ON,
) -> QualityVerdict:
    return judge(
        report,
        ending or Ending(outcome=Outcome.COMPLETED),
        Observed(
            case=case, facts=facts, before=before, after=after, samples=samples, screen=screen
        ),
        pass_of(run_pass).findings,
    )


def with_delegate(**changes: object) -> ToolReport:
    return replace(GOOD, delegate=replace(GOOD.delegate, **changes))  # type: ignore[arg-type]


def test_a_calm_full_run_is_trusted_without_a_finding() -> None:
    assert verdict() == QualityVerdict(quality=Quality.TRUSTED, grade=Grade.D)


@pytest.mark.parametrize(
    "truth",
    [
        DelegateTruth.NONE,
        DelegateTruth.FELL_BACK,
        DelegateTruth.FLAG_IGNORED,
        DelegateTruth.WRONG_BACKEND,
        DelegateTruth.FAILED,
    ],
)
def test_a_run_somewhere_else_than_asked_is_failed_though_the_program_was_content(
    truth: DelegateTruth,
) -> None:
    ending = ending_of(
        with_delegate(truth=truth, lines=("the line",)), exit_code=0, timed_out=False
    )
    assert (ending.outcome, ending.reason_code) == (Outcome.FAILED, f"delegate-{truth}")
    assert "the line" in ending.reason
    assert f"`delegate-{truth}`" in (DOCS / "reference" / "findings.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("exit_code", "words"), [(1, "exit code 1"), (139, "signal 11"), (137, "signal 9")]
)
def test_a_result_with_a_bad_exit_code_is_no_result(exit_code: int, words: str) -> None:
    ending = ending_of(GOOD, exit_code=exit_code, timed_out=False)
    assert ending.outcome is Outcome.FAILED
    assert words in ending.reason


def test_one_partition_is_counted_as_one() -> None:
    report = with_delegate(
        truth=DelegateTruth.PARTIAL, delegated_nodes=3, total_nodes=5, partitions=1
    )
    (message,) = (
        item.message for item in verdict(report).findings if item.code == "delegate-partial"
    )
    assert message.endswith(" in 1 partition")


def test_the_deadline_wins_over_everything_that_was_printed() -> None:
    assert ending_of(GOOD, exit_code=None, timed_out=True).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize(
    ("code", "quality", "judged"),
    [
        ("virtual-device", Quality.TRUSTED, verdict(facts=replace(FACTS, is_virtual=True))),
        ("emulator", Quality.SUSPECT, verdict(facts=replace(FACTS, is_emulator=True))),
        (
            "delegate-partial",
            Quality.TRUSTED,
            verdict(with_delegate(truth=DelegateTruth.PARTIAL, delegated_nodes=3, total_nodes=5)),
        ),
        (
            "delegate-unknown",
            Quality.SUSPECT,
            verdict(with_delegate(truth=DelegateTruth.UNKNOWN, actual="")),
        ),
        # Another program's record says which delegate was used, and not how much of the model.
        ("delegate-unknown", Quality.TRUSTED, verdict(with_delegate(truth=DelegateTruth.UNKNOWN))),
        ("flags-ignored", Quality.REJECTED, verdict(replace(GOOD, unconsumed_flags=("--x=1",)))),
        (
            "few-inferences",
            Quality.SUSPECT,
            verdict(replace(GOOD, inference=replace(STEADY, count=9))),
        ),
        (
            "unsteady",
            Quality.SUSPECT,
            verdict(replace(GOOD, inference=replace(STEADY, p95_us=1600.0))),
        ),
        (
            "coarse-resolution",
            Quality.SUSPECT,
            verdict(replace(GOOD, extra={"resolution_us": 20.5})),
        ),
        (
            "sources-disagree",
            Quality.SUSPECT,
            verdict(replace(GOOD, disagreements=("1 is not 2",))),
        ),
        ("unwatched", Quality.TRUSTED, verdict(samples=b"sh: sampler.sh: not found")),
        ("log-cut", Quality.TRUSTED, verdict(replace(GOOD, extra={"log_cut": "..."}))),
        ("output-cut", Quality.TRUSTED, verdict(replace(GOOD, extra={"output_cut": "..."}))),
        ("files-refused", Quality.TRUSTED, verdict(replace(GOOD, extra={"files_refused": "..."}))),
        (
            "throttled",
            Quality.SUSPECT,
            verdict(after=replace(CALM, thermal_status=2, heat_c={"skin": 44.0})),
        ),
        (
            "throttled",
            Quality.SUSPECT,
            verdict(after=replace(CALM, clock_limit_khz={0: 1_800_000, 4: 2_400_000})),
        ),
        ("rebooted", Quality.REJECTED, verdict(after=replace(CALM, boot_id="b2"))),
        (
            "foreign-load",
            Quality.SUSPECT,
            verdict(
                facts=replace(FACTS, kind=DeviceKind.HOST), before=replace(CALM, busy_cores=0.5)
            ),
        ),
        (
            "more-threads-than-big-cores",
            Quality.TRUSTED,
            verdict(case=replace(CASE, delegate=DelegateName.CPU, threads=3)),
        ),
        ("battery-low", Quality.SUSPECT, verdict(after=replace(CALM, battery_percent=14))),
        (
            "throttled",
            Quality.SUSPECT,
            verdict(after=replace(CALM, cooling={"thermal-cpufreq-4": 2, "fan": 0})),
        ),
        (
            "throttled",
            Quality.SUSPECT,
            verdict(
                before=replace(CALM, gpu_limit_khz=848_000),
                after=replace(CALM, gpu_limit_khz=572_000),
            ),
        ),
        ("clocks-capped", Quality.TRUSTED, verdict(before=CAPPED, after=CAPPED)),
        (
            "clock-jumped",
            Quality.SUSPECT,
            verdict(before=replace(CALM, boot_at_s=1000), after=replace(CALM, boot_at_s=940)),
        ),
        ("screen-off", Quality.SUSPECT, verdict(after=replace(CALM, screen_on=False))),
        (
            "foreground-changed",
            Quality.SUSPECT,
            verdict(
                before=replace(CALM, foreground="a.launcher"),
                after=replace(CALM, foreground="b.updater"),
            ),
        ),
        (
            "charging-changed",
            Quality.TRUSTED,
            verdict(before=replace(CALM, plugged="usb"), after=replace(CALM, plugged="none")),
        ),
        (
            "battery-draining",
            Quality.TRUSTED,
            verdict(
                before=replace(CALM, plugged="usb", battery_percent=71),
                after=replace(CALM, plugged="usb", battery_percent=70),
            ),
        ),
        (
            "foreign-load",
            Quality.SUSPECT,
            verdict(
                samples=b"--look\n/proc/stat:cpu  100 0 0 900 0\n/proc/uptime:10.0 1\n\n"
                b"--times\n0m0s 0m0s\n0m2.0s 0m0.0s\n--look\n/proc/stat:cpu  900 0 0 3100 0\n"
                b"/proc/uptime:14.0 1\n"
            ),
        ),
        (
            "start-unknown",
            Quality.SUSPECT,
            verdict(facts=replace(FACTS, kind=DeviceKind.IOS), run_pass=Pass.COLD, samples=b""),
        ),
        (
            "not-completed",
            Quality.REJECTED,
            verdict(None, ending=Ending(outcome=Outcome.TIMED_OUT)),
        ),
    ],
)
def test_each_finding_is_made_and_weighs_what_the_docs_say(
    code: str, quality: Quality, judged: QualityVerdict
) -> None:
    assert [finding.code for finding in judged.findings] == [code]
    assert judged.quality is quality
    own = CODES[code]
    also = {own.also[0]} if own.also is not None else set()
    assert judged.findings[0].severity in {own.severity, *also}


def test_a_moved_clock_rejects_a_figure_that_is_a_mean() -> None:
    moved = replace(CALM, boot_at_s=4600)
    mean_only = replace(GOOD, inference=replace(STEADY, median_us=None, p5_us=None, p95_us=None))
    assert (
        verdict(mean_only, before=replace(CALM, boot_at_s=1000), after=moved).quality
        is Quality.REJECTED
    )


def test_the_benchmarks_own_app_may_come_to_the_screen() -> None:
    before, after = (
        replace(CALM, foreground="a.launcher"),
        replace(CALM, foreground="org.tensorflow.lite.benchmark"),
    )
    assert not verdict(case=replace(CASE, tool=ToolName.APK), before=before, after=after).findings


def test_unknown_state_is_no_finding() -> None:
    unknown = DeviceState(at=NOW)
    assert verdict(before=unknown, after=unknown).findings == ()
    assert verdict(before=None, after=None).findings == ()
    # Android tells a level of -1 while its charger doesn't answer.
    charging = replace(CALM, plugged="usb", battery_percent=80)
    assert not verdict(before=charging, after=replace(charging, battery_percent=None)).findings


def test_a_light_thermal_status_is_throttling_only_where_clocks_cant_say_otherwise() -> None:
    warm = replace(CALM, thermal_status=1)
    seen = replace(warm, cooling={"cpu-big": 0})
    assert verdict(after=warm).has("throttled")
    assert not verdict(after=seen).has("throttled")
    assert verdict(after=replace(seen, cooling={"cpu-big": 1})).has("throttled")
    assert verdict(after=replace(seen, thermal_status=2)).has("throttled")
