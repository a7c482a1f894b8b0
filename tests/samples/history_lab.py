"""Weeks of a small lab in any store; what a night measures, and on what, can be given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from orchestrator.records.case import BuildSha, CampaignId, Case, DelegateName, Serial, content_key
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus
from orchestrator.records.run import RunRecord, ToolReport
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from orchestrator.store.opening import MemoryStore, Store
from tests.samples.sample_lab import (
    NATIVE,
    Lab,
    campaign_of,
    case,
    model_of,
    run,
    skewed,
    summary_of,
)

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
    is_rejected: Callable[[str, int], bool] = lambda serial, night: False
    #: Before this night programs print means alone, which lie 8 % above the medians.
    means_until: int = 0

    def fill(self, store: Store) -> None:
        """Store the nights; deterministic."""
        generator = np.random.default_rng(20261122)
        models = [model_of(f"{name}.tflite") for name in self.names]
        for night in range(self.nights):
            at = START + timedelta(days=night)
            build = self.build(night)
            runs = [
                made
                for facts in self.phones
                if not self.is_away(facts.serial, night)
                for place, model in enumerate(models)
                for delegate in (DelegateName.GPU, DelegateName.XNNPACK)
                for made in self._case_runs(
                    case(facts, model, delegate, build_sha256=build), place, night, generator
                )
            ]
            Lab(
                campaigns=[
                    campaign_of(
                        runs, campaign_id=campaign_of_night(night), name=self.campaign, created_at=at,
                        finished_at=at + timedelta(hours=5), host="farm-1",
                    )
                ],
                runs=runs,
                devices={
                    facts.serial: replace(facts, gpu_driver=self.driver(facts.serial, night))
                    for facts in self.phones
                },
                models={model.sha256: model for model in models},
                builds={sha: replace(NATIVE, name="native", sha256=sha) for sha in (build, OLD)},
            ).store_in(store)  # fmt: skip

    def _case_runs(
        self, owner: Case, place: int, night: int, generator: np.random.Generator
    ) -> Iterator[RunRecord]:
        usual_us = 8000.0 * (1 + place) * self.factor(owner, night)
        level_us = usual_us * np.exp(generator.normal(0, 0.006))
        quality = Quality.SUSPECT if night == 5 else Quality.TRUSTED
        if self.is_rejected(owner.serial, night):
            quality = Quality.REJECTED
        for number in range(self.invocations):
            us = float(level_us * np.exp(generator.normal(0, 0.004)))
            made = plain_run(
                owner, number, us,
                campaign_id=campaign_of_night(night), started_at=START + timedelta(days=night),
                quality=quality,
            )  # fmt: skip
            yield skewed(made, has_median=False) if night < self.means_until else made


def campaign_of_night(night: int) -> CampaignId:
    """Return what the campaign of a night is called."""
    return CampaignId(f"{START + timedelta(days=night):%Y%m%d-%H%M%S}-{night:06x}")


def plain_run(
    owner: Case, number: int, median_us: float, quality: Quality = Quality.TRUSTED, **changes: Any
) -> RunRecord:
    """Return a run that went well and left nothing behind."""
    verdict = QualityVerdict(quality=quality, grade=Grade.C)
    report = ToolReport(outcome="ok", inference=summary_of(median_us))
    nothing = {"attachments": (), "state_before": None, "state_after": None}
    return run(owner, number, None, verdict=verdict, report=report, log=b"", **(nothing | changes))


def night_of_place(place: int) -> date:
    """Return the date of a night."""
    return (START + timedelta(days=place)).date()


def copied(store: Store, into: Store | None = None) -> Store:
    """Return a store with all that another one in a file holds, for a test that changes it."""
    into = into or MemoryStore()
    assert store.path is not None
    assert into.path is not None
    with (
        closing(sqlite3.connect(store.path)) as source,
        closing(sqlite3.connect(into.path)) as copy,
    ):
        source.backup(copy)
    return into


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
            at=START + timedelta(days=FALSE_ALARM),
        )
    )
