"""Records of a small lab, built in code: virtual Pixels, a host, fallbacks, failures, skips; or a
large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    Build,
    BuildSha,
    CampaignId,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Pass,
    RunId,
    Serial,
    SkippedCase,
    ToolName,
    content_key,
)
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import (
    SAMPLES_FILE,
    Attachment,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    OperatorTime,
    Outcome,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import Finding, ParityVerdict, Quality, QualityVerdict, Severity
from orchestrator.report.assembly import Stored, build_report_data
from orchestrator.report.data import ReportData
from orchestrator.store.opening import Store, open_store

START = datetime(2026, 3, 14, 22, 5, tzinfo=UTC)
CAMPAIGN = CampaignId("20260314-220500-nightly")

PIXEL_3 = DeviceFacts(
    serial=Serial("virtual-pixel-3-01"),
    kind=DeviceKind.ANDROID,
    is_virtual=True,
    manufacturer="Google",
    model="Pixel 3",
    codename="blueline",
    os_version="12",
    sdk=31,
    fingerprint="google/blueline/blueline:12/SP1A.210812.016.C2/8618562:user/release-keys",
    security_patch="2022-02-05",
    soc="SDM845",
    platform="sdm845",
    abis=("arm64-v8a", "armeabi-v7a"),
    clusters=(
        CpuCluster(cpus=(0, 1, 2, 3), min_khz=300_000, max_khz=1_766_400),
        CpuCluster(cpus=(4, 5, 6, 7), min_khz=825_600, max_khz=2_803_200),
    ),
    memory_bytes=3_760_000_000,
    gpu="Adreno (TM) 630",
    gpu_driver="OpenGL ES 3.2 V@0502.0",
    profile="blueline",
)
PIXEL_4 = replace(
    PIXEL_3,
    serial=Serial("virtual-pixel-4-01"),
    model="Pixel 4",
    codename="flame",
    fingerprint="google/flame/flame:13/TP1A.221005.002.B2/9382335:user/release-keys",
    os_version="13",
    sdk=33,
    soc="SM8150",
    platform="msmnile",
    gpu="Adreno (TM) 640",
    profile="flame",
)
REAL_PIXEL = replace(PIXEL_3, serial=Serial("89AX0KQ3H"), is_virtual=False)
HOST = DeviceFacts(
    serial=Serial("host"),
    kind=DeviceKind.HOST,
    is_virtual=False,
    model="workstation",
    os_version="Linux 6.1",
    soc="x86-64",
    abis=("x86_64",),
    clusters=(CpuCluster(cpus=(0, 1), min_khz=None, max_khz=None),),
    memory_bytes=8_000_000_000,
)
MOBILENET = Model(
    name="mobilenet_v1_1.0_224.tflite",
    sha256=ModelSha(content_key("mobilenet float")),
    size_bytes=16_900_760,
)
MOBILENET_INT8 = Model(
    name="mobilenet_v1_1.0_224_int8.tflite",
    sha256=ModelSha(content_key("mobilenet int8")),
    size_bytes=4_276_000,
)
NATIVE = Build(
    name="benchmark_model-arm64",
    tool=ToolName.NATIVE,
    sha256=BuildSha(content_key("native arm64")),
    abi="arm64-v8a",
    version="2.17.0",
)
APK = Build(
    name="benchmark-apk", tool=ToolName.APK, sha256=BuildSha(content_key("apk")), abi="arm64-v8a"
)
LITERT = Build(
    name="litert-benchmark",
    tool=ToolName.LITERT,
    sha256=BuildSha(content_key("litert")),
    abi="x86_64",
)
BUILDS = {ToolName.NATIVE: NATIVE, ToolName.APK: APK, ToolName.LITERT: LITERT}


@dataclass(kw_only=True)
class Lab:
    """What a store would hand to a report."""

    campaigns: Sequence[Campaign] = ()
    runs: list[RunRecord] = field(default_factory=list)
    devices: Mapping[Serial, DeviceFacts] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    builds: Mapping[str, Build] = field(
        default_factory=lambda: {build.sha256: build for build in BUILDS.values()}
    )

    def inputs(self) -> Stored:
        """Return what a report is built from."""
        return Stored(
            campaigns=self.campaigns,
            runs=self.runs,
            devices=self.devices,
            models=self.models,
            builds=self.builds,
            outputs=self.outputs,
        )

    def data(self, **changes: Any) -> ReportData:
        """Return what a report shows, with other fields of the inputs."""
        return build_report_data(replace(self.inputs(), **changes))

    def store_in(self, store: Store) -> None:
        """Store it all."""
        for campaign in self.campaigns:
            store.begin_campaign(
                campaign,
                devices=self.devices.values(),
                models=self.models.values(),
                builds=self.builds.values(),
            )
        store.append_runs(self.runs)

    def outputs(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what runs left behind, as a store does."""
        wanted = set(run_ids)
        return ((run.run_id, run.attachments) for run in self.runs if run.run_id in wanted)


def stored(home: Path, lab: Lab) -> Path:
    """Store a lab in the SQLite store of a new home, where the command line finds it; return the
    home."""
    home.mkdir(parents=True)
    with closing(open_store(home / "store.sqlite")) as store:
        lab.store_in(store)
    return home


def model_of(name: str) -> Model:
    """Return a model of this name, whose content is its name's alone."""
    return Model(name=name, sha256=ModelSha(content_key(name)), size_bytes=1_000)


def case(
    device: DeviceFacts = PIXEL_3,
    model: Model = MOBILENET,
    delegate: DelegateName = DelegateName.XNNPACK,
    threads: int = 4,
    tool: ToolName = ToolName.NATIVE,
    **other: object,
) -> Case:
    """Return a case."""
    made = Case(
        serial=device.serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=delegate,
        threads=threads,
        tool=tool,
        build_sha256=BUILDS.get(tool, NATIVE).sha256,
    )
    return replace(made, **other)  # type: ignore[arg-type]


def state(at: datetime, *, heat_c: float, limit_khz: int = 2_803_200) -> DeviceState:
    """Return what a phone is like at a moment."""
    return DeviceState(
        at=at,
        uptime_s=4_000.0,
        heat_c={"cpu-0-0": heat_c, "cpu-1-0": heat_c + 2.5, "battery": 29.5},
        thermal_status=0,
        battery_percent=82,
        battery_heat_c=29.5,
        plugged="usb",
        clock_khz={0: 1_209_600, 4: 2_169_600},
        clock_limit_khz={0: 1_766_400, 4: limit_khz},
        load_1min=0.4,
        screen_on=False,
    )


def log_text(owner: Case, latency_us: float) -> bytes:
    """Return what a benchmark program prints, more or less."""
    return (
        "INFO: STARTING!\n"
        "INFO: Log parameter values verbosely: [0]\n"
        f"INFO: Num threads: [{owner.threads}]\n"
        f"INFO: Graph: [/data/local/tmp/benchfarm/models/{owner.model_sha256[:16]}/{owner.model_name}]\n"
        f"INFO: Loaded model {owner.model_name}\n"
        "INFO: Initialized session in 12.5ms.\n"
        "INFO: Running benchmark for at least 50 iterations and at least 1 seconds but terminate if exceeding 150 "
        "seconds.\n"
        f"INFO: count=50 first={latency_us:.0f} curr={latency_us:.0f} min={latency_us * 0.98:.0f} "
        f"max={latency_us * 1.1:.0f} avg={latency_us:.0f} std=90 p5={latency_us * 0.99:.0f} "
        f"median={latency_us:.0f} p95={latency_us * 1.05:.0f}\n\n"
        f"INFO: Inference timings in us: Init: 12500, First inference: {latency_us * 2:.0f}, "
        f"Warmup (avg): {latency_us * 1.1:.0f}, Inference (avg): {latency_us:.0f}\n"
    ).encode(errors="surrogateescape")


def summary_of(latency_us: float) -> LatencySummary:
    """Return what a program prints of fifty inferences that prints everything."""
    return LatencySummary(
        count=50,
        first_us=latency_us * 1.02,
        min_us=latency_us * 0.98,
        max_us=latency_us * 1.1,
        mean_us=latency_us,
        std_us=latency_us * 0.02,
        p5_us=latency_us * 0.99,
        median_us=latency_us,
        p95_us=latency_us * 1.05,
    )


def run(
    owner: Case,
    number: int = 0,
    latency_us: float | None = 23_900.0,
    *,
    truth: DelegateTruth = DelegateTruth.FULL,
    outcome: Outcome = Outcome.COMPLETED,
    quality: Quality = Quality.TRUSTED,
    findings: tuple[Finding, ...] = (),
    reason_code: str = "",
    reason: str = "",
    is_virtual: bool | None = None,
    log: bytes | None = None,
    nodes: tuple[int, int] = (31, 31),
    run_pass: Pass = Pass.TIMING,
    campaign_id: CampaignId = CAMPAIGN,
    actual: str = "",
    **changes: object,
) -> RunRecord:
    """Return one invocation's record, with anything else of a record changed."""
    started = START + timedelta(minutes=number)
    report = None
    if latency_us is not None:
        report = ToolReport(
            outcome="ok",
            init_us=12_500.0,
            first_inference_us=latency_us * 2,
            warmup_mean_us=latency_us * 1.1,
            inference_mean_us=latency_us,
            inference=summary_of(latency_us),
            init_memory_mib=8.25,
            overall_memory_mib=21.5,
            peak_memory_mib=50.75,
            delegate=DelegateEvidence(
                requested=owner.delegate.value,
                actual=actual or owner.delegate.value,
                truth=truth,
                delegated_nodes=nodes[0],
                total_nodes=nodes[1],
                partitions=1,
                lines=(
                    "Explicitly applied the delegate, and the model graph will be completely executed by it.",
                ),
                cpu_operators=(("TOPK_V2", "Operation is not supported."),)
                if truth is DelegateTruth.PARTIAL
                else (),
            ),
        )
    virtual = owner.serial.startswith("virtual") if is_virtual is None else is_virtual
    if virtual:
        message = "the figures come from benchfarm's virtual phone; they are no measurement"
        findings = (
            *findings,
            Finding(code="virtual-device", severity=Severity.INFO, message=message),
        )
    made = RunRecord(
        run_id=RunId(f"{campaign_id}-{owner.case_key[:8]}-{run_pass.value}-{number}"),
        campaign_id=campaign_id,
        case=owner,
        run_pass=run_pass,
        invocation=number,
        outcome=outcome,
        reason_code=reason_code,
        reason=reason,
        is_virtual=virtual,
        started_at=started,
        duration_s=4.2,
        command=f"taskset f0 /data/local/tmp/benchfarm/bin/benchmark_model --graph='{owner.model_name}' "
        f"--num_threads={owner.threads} --use_{owner.delegate.value}=true",
        exit_code=0 if outcome is Outcome.COMPLETED else 1,
        attachments=(
            Attachment(
                name="stdout", data=log if log is not None else log_text(owner, latency_us or 0)
            ),
        ),
        report=report,
        verdict=QualityVerdict(quality=quality, findings=findings),
        state_before=state(started, heat_c=31.0),
        state_after=state(started + timedelta(seconds=4), heat_c=38.5),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


#: What a run has whose delegate fell back.
FELL_BACK: dict[str, Any] = {
    "truth": DelegateTruth.FELL_BACK,
    "outcome": Outcome.FAILED,
    "quality": Quality.REJECTED,
    "reason_code": "delegate-fell-back",
}
#: By how much the mean of skewed inferences lies above their median.
SKEW = 1.08


def skewed(record: RunRecord, *, has_median: bool = True, has_mean: bool = True) -> RunRecord:
    """Return a run of the same inferences as printed by a program of some year."""
    report = record.report
    assert report is not None
    assert report.inference is not None
    median_us = report.inference.median_us
    assert median_us is not None
    mean_us = median_us * SKEW if has_mean else None
    inference = replace(report.inference, mean_us=mean_us)
    if not has_median:
        inference = replace(inference, p5_us=None, median_us=None, p95_us=None)
    return replace(record, report=replace(report, inference=inference, inference_mean_us=mean_us))


def series(
    owner: Case, latency_us: float, count: int = 5, *, is_reversed: bool = False, **other: object
) -> list[RunRecord]:
    """Return invocations whose latencies differ by some tenths of a percent, the same ones each
    time; reversed they have nothing in common with the others' rounds."""
    wobble = (0.0, 0.006, -0.0045, 0.0105, -0.002, 0.0035, -0.0065, 0.001)
    each = [latency_us * (1 + wobble[number % len(wobble)]) for number in range(count)]
    if is_reversed:
        each.reverse()
    return [run(owner, number, us, **other) for number, us in enumerate(each)]  # type: ignore[arg-type]


def campaign_of(runs: Sequence[RunRecord], **other: object) -> Campaign:
    """Return a finished campaign that planned these runs."""
    values: dict[str, object] = {
        "campaign_id": CAMPAIGN,
        "name": "nightly",
        "created_at": START,
        "status": CampaignStatus.FINISHED,
        "plan_text": "models: [mobilenet]\n",
        "seed": 7,
        "benchfarm_version": "0.1.0",
        "host": "lab-01",
        "invocations": tuple(
            Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation) for run in runs
        ),
        "finished_at": START + timedelta(hours=1, minutes=25),
    }
    return Campaign(**(values | other))  # type: ignore[arg-type]


def small_lab() -> Lab:
    """Return a lab with everything that a report must be able to say."""
    d, q = DelegateName, Quality
    throttled = Finding(
        code="throttled",
        severity=Severity.WARNING,
        message="a clock limit fell during the run",
        evidence="cpu4: 2803 MHz, then 1920 MHz",
    )
    rebooted = Finding(
        code="rebooted",
        severity=Severity.ERROR,
        message="the phone rebooted during the run",
        evidence="a, b",
    )
    unsteady = Finding(
        code="unsteady",
        severity=Severity.WARNING,
        message="90 % of the inferences spread over 71 % of the median",
        evidence="p5 5.10 ms, p95 9.60 ms",
    )
    runs: list[RunRecord] = []
    runs += series(case(PIXEL_3, MOBILENET, d.XNNPACK, 1), 61_000)
    runs += series(case(PIXEL_3, MOBILENET, d.XNNPACK, 4), 23_900)
    runs += series(case(PIXEL_3, MOBILENET, d.GPU, 1), 6_450)
    runs += series(
        case(PIXEL_3, MOBILENET, d.NNAPI, 1),
        24_300,
        **FELL_BACK,
        reason="nnapi: the delegate could not be made and the program went on without it",
        actual="xnnpack",
    )
    runs += series(case(PIXEL_4, MOBILENET, d.XNNPACK, 1), 33_000)
    runs += series(
        case(PIXEL_4, MOBILENET, d.XNNPACK, 4), 14_000, quality=q.SUSPECT, findings=(throttled,)
    )
    runs += series(
        case(PIXEL_4, MOBILENET, d.GPU, 1), 9_000, truth=DelegateTruth.PARTIAL, nodes=(28, 31)
    )
    runs += [
        run(
            case(PIXEL_4, MOBILENET, d.NNAPI, 1),
            number,
            None,
            outcome=Outcome.FAILED,
            quality=q.REJECTED,
            reason_code="crashed",
            reason="the program was killed by signal 11 (SIGSEGV) in libneuralnetworks.so",
            log=b"INFO: STARTING!\nERROR: Failed to apply NNAPI delegate.\nSegmentation fault\n",
        )
        for number in range(5)
    ]
    runs += series(case(HOST, MOBILENET, d.XNNPACK, 1, ToolName.LITERT), 18_200)
    runs += series(case(HOST, MOBILENET, d.XNNPACK, 4, ToolName.LITERT), 18_250, is_reversed=True)
    runs += series(case(PIXEL_3, MOBILENET_INT8, d.XNNPACK, 1), 30_100)
    runs += series(case(PIXEL_3, MOBILENET_INT8, d.XNNPACK, 4), 13_400)
    runs += series(
        case(PIXEL_3, MOBILENET_INT8, d.GPU, 1), 9_900, quality=q.REJECTED, findings=(rebooted,)
    )
    runs += series(case(PIXEL_4, MOBILENET_INT8, d.XNNPACK, 4), 5_000)
    runs += series(case(PIXEL_4, MOBILENET_INT8, d.XNNPACK, 4, ToolName.APK), 4_710)
    runs += series(
        case(HOST, MOBILENET_INT8, d.XNNPACK, 4, ToolName.LITERT),
        6_900,
        quality=q.SUSPECT,
        findings=(unsteady,),
    )
    runs += series(case(HOST, MOBILENET_INT8, d.XNNPACK, 1, ToolName.LITERT), 940)
    runs += series(
        case(PIXEL_4, MOBILENET_INT8, d.GPU, 1),
        6_200,
        truth=DelegateTruth.UNKNOWN,
        quality=q.SUSPECT,
    )
    skipped = (
        SkippedCase(
            serial=PIXEL_4.serial,
            model_name=MOBILENET_INT8.name,
            delegate=d.HEXAGON,
            threads=1,
            tool=ToolName.NATIVE,
            reason_code="delegate-not-on-soc",
            reason="hexagon needs a Snapdragon with a supported DSP; SM8150 has none that TFLite drives",
        ),
        SkippedCase(
            serial=HOST.serial,
            model_name=MOBILENET.name,
            delegate=d.GPU,
            threads=1,
            tool=ToolName.LITERT,
            reason_code="delegate-not-in-tool",
            reason="litert-benchmark on this computer has no GPU",
        ),
    )
    not_run = case(PIXEL_4, MOBILENET_INT8, d.XNNPACK, 1)
    planned = campaign_of(runs, skipped=skipped)
    planned = replace(
        planned,
        invocations=(
            *planned.invocations,
            Invocation(case=not_run, run_pass=Pass.TIMING, number=0),
        ),
    )
    return Lab(
        campaigns=(planned,),
        runs=runs,
        devices={facts.serial: facts for facts in (PIXEL_3, PIXEL_4, HOST)},
        models={model.sha256: model for model in (MOBILENET, MOBILENET_INT8)},
    )


def profile(
    owner: Case, rows: Sequence[tuple[str, str, float]], campaign_id: CampaignId = CAMPAIGN
) -> RunRecord:
    """Return a profiled run: (type, name, microseconds) in the order in which the operators ran."""
    total_us = sum(time_us for _, _, time_us in rows)
    record = run(owner, 0, total_us, run_pass=Pass.PROFILE, campaign_id=campaign_id)
    assert record.report is not None
    operators = tuple(
        OperatorTime(
            node_type=kind,
            name=name,
            first_us=None,
            mean_us=time_us,
            times_called=1,
            run_order=order,
        )
        for order, (kind, name, time_us) in enumerate(rows)
    )
    return replace(record, report=replace(record.report, operators=operators))


LATER = CampaignId("20260315-220500-nightly")
GPU_PART = "TfLiteGpuDelegateV2"
CPU_ROWS = (
    ("CONV_2D", "[conv1]:0", 9_000.0),
    ("CONV_2D", "[conv2]:1", 12_000.0),
    ("TOPK_V2", "[top]:2", 400.0),
)
GPU_ROWS = ((GPU_PART, "Delegate:3", 6_000.0),)
SPLIT_ROWS = (
    (GPU_PART, "Delegate:3", 3_500.0),
    ("TOPK_V2", "[top]:2", 450.0),
    (GPU_PART, "Delegate:4", 2_500.0),
)


def parity(owner: Case, verdict: ParityVerdict, error: float) -> RunRecord:
    """Return a run whose outputs were compared with the reference."""
    record = run(owner, 0, 9_999.0, run_pass=Pass.PARITY)
    assert record.report is not None
    reason = f"largest difference {error:.2g} of the largest magnitude"
    extra = {"parity": verdict.value, "parity_reason": reason, "parity_error": error}
    return replace(record, report=replace(record.report, extra=extra))


#: The case that has samples of its first run, and of which two moments are hardly known.
QUICK = case(
    PIXEL_3, MOBILENET, DelegateName.GPU, 1, flags=(("gpu_precision_loss_allowed", "true"),)
)


def looks_text() -> bytes:
    """Return what the watcher writes of two clusters and a GPU in three looks; one limit is seen
    once."""
    policy, zone = "/sys/devices/system/cpu/cpufreq/policy", "/sys/class/thermal/thermal_zone0"
    looks = [
        f"--look\n/proc/uptime:{uptime}\n{zone}/type:cpu-0-0\n{zone}/temp:{heat}\n"
        f"{policy}0/scaling_cur_freq:1766400\n{policy}4/scaling_cur_freq:{khz}\n"
        f"/sys/class/kgsl/kgsl-3d0/gpu_busy_percentage:{busy} %\n"
        for uptime, heat, khz, busy in (
            (100.0, 38_000, 2_169_600, 35),
            (101.5, 41_000, 2_803_200, 95),
            (103.0, 44_000, 2_803_200, 80),
        )
    ]
    return "".join([*looks, f"{policy}4/scaling_max_freq:2803200\n"]).encode()


def rich_lab() -> Lab:
    """Return the small lab with profiles, a sustained run, compared outputs and samples beside:
    every section has something."""
    lab = small_lab()
    gpu = case(PIXEL_3, MOBILENET, DelegateName.GPU, 1)
    cpu = case(PIXEL_3, MOBILENET, DelegateName.XNNPACK, 1)
    lab.runs += [profile(cpu, CPU_ROWS), profile(gpu, GPU_ROWS), profile(gpu, SPLIT_ROWS, LATER)]
    first, *others = series(QUICK, 4_100)
    unplugged = DeviceState(
        at=first.started_at,
        battery_percent=9,
        battery_health="overheated",
        plugged="none",
        clock_khz={0: 1_209_600},
    )
    watched = replace(
        first,
        attachments=(*first.attachments, Attachment(name=SAMPLES_FILE, data=looks_text())),
        state_before=unplugged,
        state_after=DeviceState(at=first.started_at + timedelta(seconds=4)),
    )
    lab.runs += [
        watched,
        *others,
        parity(QUICK, ParityVerdict.WRONG, 0.83),
        parity(cpu, ParityVerdict.SAME, 1e-6),
    ]
    for number in range(30):
        slower = 1.0 if number < 12 else 1.25
        hot = run(gpu, number, 6_450.0 * slower, run_pass=Pass.SUSTAINED)
        lab.runs.append(replace(hot, started_at=START + timedelta(seconds=20 * number)))
    later = replace(
        lab.campaigns[0],
        campaign_id=LATER,
        created_at=START + timedelta(days=1),
        invocations=(),
        skipped=(),
    )
    lab.campaigns = (*lab.campaigns, later)
    return lab


def lab_of(
    runs: Sequence[RunRecord],
    *devices: DeviceFacts,
    models: Sequence[Model] = (),
    **campaign: object,
) -> Lab:
    """Return a lab with these runs and one campaign that planned them."""
    return Lab(
        campaigns=(campaign_of(runs, **campaign),),
        runs=list(runs),
        devices={facts.serial: facts for facts in devices or (PIXEL_3,)},
        models={model.sha256: model for model in models or (MOBILENET,)},
    )


def large_lab(case_count: int, invocations: int = 3) -> Lab:
    """Return a lab of ``case_count`` cases: 40 phones, 5 configurations, as many models as it
    takes."""
    d = DelegateName
    configurations = ((d.XNNPACK, 1), (d.XNNPACK, 4), (d.GPU, 1), (d.NNAPI, 1), (d.CPU, 4))
    phone_count = min(40, max(1, case_count // 25))
    phones = [
        replace(PIXEL_3, serial=Serial(f"phone-{n:02d}"), is_virtual=False)
        for n in range(phone_count)
    ]
    runs: list[RunRecord] = []
    models: list[Model] = []
    cases = 0
    while cases < case_count:
        model = model_of(f"model_{len(models):03d}.tflite")
        models.append(model)
        for phone in phones:
            for place, (delegate, threads) in enumerate(configurations):
                if cases < case_count:
                    latency_us = 4_000.0 * (place + 1) + 37 * cases
                    runs += series(case(phone, model, delegate, threads), latency_us, invocations)
                    cases += 1
    return lab_of(runs, *phones, models=models)


HOSTILE_NAMES = (
    "<script>document.title='owned'</script>.tflite",
    '"><img src=x onerror="document.title=\'owned\'">.tflite',
    "' onmouseover='document.title=1' x='.tflite",
    "</script><!--<script>.tflite",
    "{{ 7 * 7 }}{% raw %}.tflite",
    "right\u202eto\u2066left.tflite",
    "line one\nline two\r\x00\x1b[31m.tflite",
    '=HYPERLINK("http://example.invalid")|pipe|`tick`.tflite',
    "lone \udcff surrogate.tflite",
    "模型 مدل 📱 long " + "x" * 300 + ".tflite",
)


def hostile_lab() -> Lab:
    """Return a lab in which every text that a phone or a user may choose tries to break out of the
    page."""
    runs: list[RunRecord] = []
    models: list[Model] = []
    devices: list[DeviceFacts] = []
    for number, name in enumerate(HOSTILE_NAMES):
        model = model_of(name)
        facts = replace(
            PIXEL_3,
            serial=Serial(f"virtual-{number}-{name}"),
            manufacturer=name,
            model=name,
            codename=name,
            fingerprint=name,
            gpu=name,
            soc=name,
            os_version=name,
        )
        models.append(model)
        devices.append(facts)
        finding = Finding(code=name, severity=Severity.WARNING, message=name, evidence=name)
        owner = case(facts, model, DelegateName.GPU, 1, flags=((name, name),))
        runs += series(
            owner,
            5_000.0 + number,
            2,
            findings=(finding,),
            quality=Quality.SUSPECT,
            log=(name * 3).encode(errors="replace"),
        )
        failed = case(facts, model, DelegateName.NNAPI, 1)
        runs.append(
            run(
                failed,
                0,
                None,
                outcome=Outcome.FAILED,
                quality=Quality.REJECTED,
                reason_code=name,
                reason=name,
                log=name.encode(errors="replace"),
            )
        )
    skipped = SkippedCase(
        serial=devices[0].serial,
        model_name=HOSTILE_NAMES[0],
        delegate=DelegateName.GPU,
        threads=2,
        tool=ToolName.NATIVE,
        reason_code=HOSTILE_NAMES[1],
        reason=HOSTILE_NAMES[0],
    )
    return lab_of(
        runs,
        *devices,
        models=models,
        skipped=(skipped,),
        name=HOSTILE_NAMES[0],
        host=HOSTILE_NAMES[1],
    )


def two_nights_lab() -> Lab:
    """Return two campaigns of one plan: a case got slower, one faster, one stayed; others can't be
    compared.
    """
    d = DelegateName
    fallen = {
        **FELL_BACK,
        "reason": "gpu: the delegate could not be made and the program went on without it",
        "actual": "xnnpack",
    }
    # Of each case: baseline, candidate in microseconds, and what else is so of the candidate.
    changes: tuple[tuple[Case, float, float, dict[str, object]], ...] = (
        (case(PIXEL_3, MOBILENET, d.XNNPACK, 4), 23_900, 26_300, {}),
        (case(PIXEL_3, MOBILENET, d.XNNPACK, 1), 61_000, 61_900, {}),
        (case(PIXEL_3, MOBILENET, d.GPU, 1), 6_450, 5_800, {}),
        (case(REAL_PIXEL, MOBILENET_INT8, d.XNNPACK, 4), 13_400, 13_900, {}),
        (case(REAL_PIXEL, MOBILENET_INT8, d.GPU, 1), 9_900, 14_200, fallen),
    )
    runs: list[RunRecord] = []
    for owner, before_us, after_us, other in changes:
        runs += series(owner, before_us, 8)
        runs += series(owner, after_us, 8, campaign_id=LATER, **other)
    gpu = changes[2][0]
    runs += [profile(gpu, SPLIT_ROWS), profile(gpu, GPU_ROWS, LATER)]
    alone = case(PIXEL_4, MOBILENET, d.XNNPACK, 4)
    runs += series(alone, 14_000, 8)
    nights = [
        [run for run in runs if run.campaign_id == campaign_id] for campaign_id in (CAMPAIGN, LATER)
    ]
    first, second = (campaign_of(own) for own in nights)
    return Lab(
        campaigns=(first, replace(second, campaign_id=LATER, created_at=START + timedelta(days=1))),
        runs=runs,
        devices={facts.serial: facts for facts in (PIXEL_3, PIXEL_4, REAL_PIXEL)},
        models={model.sha256: model for model in (MOBILENET, MOBILENET_INT8)},
    )
