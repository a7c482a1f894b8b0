"""Weeks of a small lab in any store: a change with a cause, one that was expected, one that was refuted, silence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, RunId, Serial, content_key
from orchestrator.records.run import LatencySummary, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, ToolName
from orchestrator.store.opening import Store

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
NIGHTS = 40
#: Places of nights: the slow driver, the expected model, the false alarm, the phone's last night.
DRIVER, EXPECTED, FALSE_ALARM, LAST = 30, 22, 33, 34
SLOW = "pixel-4-a"
PHONES = (
    ("pixel-4-a", "Pixel 4", "Adreno 640", False),
    ("pixel-6-a", "Pixel 6", "Mali-G78", False),
    ("virtual-pixel-3", "Pixel 3", "Adreno 630", True),
)
MODELS = ("mobilenet", "resnet")
OLD, NEW = BuildSha(content_key("old")), BuildSha(content_key("new"))


def night_of_place(place: int) -> date:
    """Return the date of a night."""
    return (START + timedelta(days=place)).date()


def fill(store: Store, *, nights: int = NIGHTS, names: tuple[str, ...] = MODELS, campaign: str = "nightly") -> None:
    """Store the nights; deterministic."""
    generator = np.random.default_rng(20261122)
    models = [Model(name=f"{name}.tflite", sha256=ModelSha(content_key(name)), size_bytes=1) for name in names]
    for night in range(nights):
        _night(store, night, models, generator, campaign)
    cases = {(case.serial, case.model_name, case.delegate): key for key, case in store.series().items()}
    store.annotate(
        Annotation(
            annotation_id="aa00",
            selection=f"serial=pixel-6-a,model={names[0]}.tflite",
            night=night_of_place(EXPECTED),
            text="quantised <b>again</b>",
            created_at=START,
        )
    )
    store.confirm(
        Confirmation(
            series_key=cases["pixel-6-a", f"{names[-1]}.tflite", DelegateName.GPU],
            night=night_of_place(FALSE_ALARM),
            status=ConfirmationStatus.REFUTED,
            detail="side by side they are alike",
            ratio=1.0,
            at=START,
        )
    )


def _night(store: Store, night: int, models: list[Model], generator: np.random.Generator, name: str) -> None:
    at = START + timedelta(days=night)
    identity = CampaignId(f"{at:%Y%m%d-%H%M%S}-{night:06x}")
    sha = OLD if night < 15 else NEW
    devices = [
        DeviceFacts(
            serial=Serial(serial),
            kind=DeviceKind.ANDROID,
            is_virtual=is_virtual,
            manufacturer="Google",
            model=title,
            gpu=gpu,
            soc=gpu,
            gpu_driver="2" if serial == SLOW and night >= DRIVER else "1",
        )
        for serial, title, gpu, is_virtual in PHONES
    ]
    builds = [Build(name="native", tool=ToolName.NATIVE, sha256=sha, abi="arm64-v8a")]
    runs = [
        run
        for facts in devices
        if facts.serial != "virtual-pixel-3" or night <= LAST
        for model in models
        for delegate in (DelegateName.GPU, DelegateName.XNNPACK)
        for run in case_runs(identity, at, facts, model, delegate, sha, night, generator, models)
    ]
    store.begin_campaign(
        Campaign(
            campaign_id=identity,
            name=name,
            created_at=at,
            status=CampaignStatus.FINISHED,
            finished_at=at + timedelta(hours=5),
            plan_text="",
            seed=night,
            benchfarm_version="1",
            host="farm-1",
            invocations=tuple(Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation) for run in runs),
        ),
        devices=devices,
        models=models,
        builds=[*builds, replace(builds[0], sha256=OLD)],
    )
    for run in runs:
        store.append_run(run)


def case_runs(identity, at, facts, model, delegate, sha, night, generator, models):
    case = Case(
        serial=facts.serial,
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=delegate,
        threads=4,
        tool=ToolName.NATIVE,
        build_sha256=sha,
    )
    factor = 1.0
    if facts.serial == SLOW and delegate is DelegateName.GPU and night >= DRIVER:
        factor = 1.2
    if facts.serial == "pixel-6-a" and model is models[0] and night >= EXPECTED:
        factor = 1.3
    if facts.serial == "pixel-6-a" and model is models[-1] and delegate is DelegateName.GPU and night >= FALSE_ALARM:
        factor = 1.15
    level = 8000.0 * (1 + models.index(model)) * factor * np.exp(generator.normal(0, 0.006))
    for number in range(2):
        us = float(level * np.exp(generator.normal(0, 0.004)))
        yield RunRecord(
            run_id=RunId(content_key([str(identity), case.case_key, number])[:32]),
            campaign_id=identity,
            case=case,
            run_pass=Pass.TIMING,
            invocation=number,
            is_virtual=facts.is_virtual,
            started_at=at,
            duration_s=1.0,
            command="",
            exit_code=0,
            outcome=Outcome.COMPLETED,
            reason_code="",
            reason="",
            report=ToolReport(
                outcome="ok",
                inference=LatencySummary(
                    count=50, first_us=us, min_us=us, max_us=us, mean_us=us, std_us=1.0, median_us=us
                ),
            ),
            state_before=None,
            state_after=None,
            verdict=QualityVerdict(quality=Quality.SUSPECT if night == 5 else Quality.TRUSTED, grade=Grade.C),
            attachments=(),
        )
