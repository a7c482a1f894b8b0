"""Weeks of a small lab in any store; what a night measures, and on what, can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

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
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus
from orchestrator.records.run import LatencySummary, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from orchestrator.store.opening import Store

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
NIGHTS = 40
#: Places of nights: the slow driver, the expected model, the false alarm, the phone's last night.
DRIVER, EXPECTED, FALSE_ALARM, LAST = 30, 22, 33, 34
SLOW = "pixel-4-a"
MODELS = ("mobilenet", "resnet")
OLD, NEW = BuildSha(content_key("old")), BuildSha(content_key("new"))


def phone(serial: str, model: str, gpu: str, *, is_virtual: bool = False) -> DeviceFacts:
    """Return a phone; its chip is called as its GPU."""
    return DeviceFacts(
        serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=is_virtual, manufacturer="Google", model=model,
        gpu=gpu, soc=gpu, gpu_driver="1",
    )  # fmt: skip


PHONES = (
    phone("pixel-4-a", "Pixel 4", "Adreno 640"),
    phone("pixel-6-a", "Pixel 6", "Mali-G78"),
    phone("virtual-pixel-3", "Pixel 3", "Adreno 630", is_virtual=True),
)


def plain(median_us: float) -> LatencySummary:
    """Return what a program prints that prints everything."""
    return LatencySummary(
        count=50, first_us=median_us, min_us=median_us, max_us=median_us, mean_us=median_us, std_us=1.0,
        median_us=median_us,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Weeks:
    """What a small lab measures night after night; each question is asked with the number of the
    night.
    """

    phones: Sequence[DeviceFacts] = PHONES
    names: tuple[str, ...] = MODELS
    nights: int = NIGHTS
    #: How often a case is measured in a night.
    invocations: int = 2
    campaign: str = "nightly"
    #: By how much a case takes longer.
    factor: Callable[[Case, int], float] = lambda case, night: 1.0
    build: Callable[[int], BuildSha] = lambda night: OLD
    driver: Callable[[str, int], str] = lambda serial, night: "1"
    is_away: Callable[[str, int], bool] = lambda serial, night: False
    #: Before this night programs print means alone, which lie 8 % above the medians.
    means_until: int = 0

    def fill(self, store: Store) -> None:
        """Store the nights; deterministic."""
        generator = np.random.default_rng(20261122)
        models = [
            Model(name=f"{name}.tflite", sha256=ModelSha(content_key(name)), size_bytes=1)
            for name in self.names
        ]
        for night in range(self.nights):
            at = START + timedelta(days=night)
            identity = CampaignId(f"{at:%Y%m%d-%H%M%S}-{night:06x}")
            sha = self.build(night)
            runs = [
                run
                for facts in self.phones
                if not self.is_away(facts.serial, night)
                for model in models
                for delegate in (DelegateName.GPU, DelegateName.XNNPACK)
                for run in self._case_runs(
                    identity, at, facts, model, delegate, sha, night, generator, models
                )
            ]
            builds = [
                Build(name="native", tool=ToolName.NATIVE, sha256=item, abi="arm64-v8a")
                for item in dict.fromkeys((sha, OLD))
            ]
            store.begin_campaign(
                Campaign(
                    campaign_id=identity, name=self.campaign, created_at=at, status=CampaignStatus.FINISHED,
                    finished_at=at + timedelta(hours=5), plan_text="", seed=night, benchfarm_version="1", host="farm-1",
                    invocations=tuple(
                        Invocation(case=run.case, run_pass=run.run_pass, number=run.invocation) for run in runs
                    ),
                ),
                devices=[replace(item, gpu_driver=self.driver(item.serial, night)) for item in self.phones],
                models=models,
                builds=builds,
            )  # fmt: skip
            for run in runs:
                store.append_run(run)

    def _case_runs(
        self, identity, at, facts, model, delegate, sha, night, generator, models
    ) -> Iterator[RunRecord]:
        case = case_of(facts, model, delegate, sha)
        level = (
            8000.0
            * (1 + models.index(model))
            * self.factor(case, night)
            * np.exp(generator.normal(0, 0.006))
        )
        quality = Quality.SUSPECT if night == 5 else Quality.TRUSTED
        for number in range(self.invocations):
            us = float(level * np.exp(generator.normal(0, 0.004)))
            yield run_of(
                identity,
                at,
                facts,
                case,
                number,
                LatencySummary(count=50, mean_us=1.08 * us)
                if night < self.means_until
                else plain(us),
                quality,
            )


def case_of(facts: DeviceFacts, model: Model, delegate: DelegateName, sha: BuildSha) -> Case:
    """Return a case of a phone."""
    return Case(
        serial=facts.serial, model_sha256=model.sha256, model_name=model.name, delegate=delegate, threads=4,
        tool=ToolName.NATIVE, build_sha256=sha,
    )  # fmt: skip


def run_of(
    identity: CampaignId,
    at: datetime,
    facts: DeviceFacts,
    case: Case,
    number: int,
    printed: LatencySummary,
    quality: Quality = Quality.TRUSTED,
) -> RunRecord:
    """Return a run that went well."""
    return RunRecord(
        run_id=RunId(content_key([str(identity), case.case_key, number])[:32]), campaign_id=identity, case=case,
        run_pass=Pass.TIMING, invocation=number, is_virtual=facts.is_virtual, started_at=at, duration_s=1.0, command="",
        exit_code=0, outcome=Outcome.COMPLETED, reason_code="", reason="",
        report=ToolReport(outcome="ok", inference=printed), state_before=None, state_after=None,
        verdict=QualityVerdict(quality=quality, grade=Grade.C), attachments=(),
    )  # fmt: skip


def night_of_place(place: int) -> date:
    """Return the date of a night."""
    return (START + timedelta(days=place)).date()


def fill(
    store: Store,
    *,
    nights: int = NIGHTS,
    names: tuple[str, ...] = MODELS,
    campaign: str = "nightly",
) -> None:
    """Store a story: a change with a cause, one that was expected, one that was refuted, silence."""

    def factor(case: Case, night: int) -> float:
        if case.serial == SLOW and case.delegate is DelegateName.GPU and night >= DRIVER:
            return 1.2
        if case.serial != "pixel-6-a":
            return 1.0
        false_alarm = case.model_name == f"{names[-1]}.tflite" and case.delegate is DelegateName.GPU
        expected = case.model_name == f"{names[0]}.tflite"
        return (1.3 if expected and night >= EXPECTED else 1.0) * (
            1.15 if false_alarm and night >= FALSE_ALARM else 1.0
        )

    Weeks(
        nights=nights,
        names=names,
        campaign=campaign,
        factor=factor,
        build=lambda night: OLD if night < 15 else NEW,
        driver=lambda serial, night: "2" if serial == SLOW and night >= DRIVER else "1",
        is_away=lambda serial, night: serial == "virtual-pixel-3" and night > LAST,
    ).fill(store)
    cases = {
        (case.serial, case.model_name, case.delegate): key for key, case in store.series().items()
    }
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
