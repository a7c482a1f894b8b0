"""What reads many campaigns holds one of them at a time, however many there are."""

import tracemalloc
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.app.exporting import EXPORTERS, ExportRequest
from orchestrator.app.requests import ImportRequest
from orchestrator.cli import reports, stored
from orchestrator.cli.output import CommandResult, json_pieces
from orchestrator.plugins import Exporter, every
from orchestrator.records.case import CampaignId, DelegateName
from orchestrator.records.run import Attachment
from orchestrator.settings import Settings
from tests.samples import sample_lab
from tests.samples.extensions import needs_extension
from tests.samples.records import settings_in
from tests.samples.sample_lab import MOBILENET, REAL_PIXEL, Lab, campaign_of, case, lab_of, series

#: Each counts what Python holds, which takes a second and more.
pytestmark = pytest.mark.slow
_RUNS = 60


def lab_of_campaigns(count: int) -> Lab:
    """Return a lab with so many campaigns, whose runs say something of their own each."""
    phone = REAL_PIXEL
    lab = Lab(devices={phone.serial: phone}, models={MOBILENET.sha256: MOBILENET})
    for number in range(count):
        name = CampaignId(f"night-{number:03d}")
        owner = case(phone, MOBILENET, DelegateName.XNNPACK, number % 8 + 1)
        runs = series(owner, 5_000.0, _RUNS, campaign_id=name)
        runs = [replace(run, reason=f"{run.run_id}: {'said much ' * 100}") for run in runs]
        lab.campaigns = (*lab.campaigns, campaign_of(runs, campaign_id=name))
        lab.runs += runs
    return lab


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The homes of a store with few campaigns, and of one with many."""
    folder = tmp_path_factory.mktemp("homes")
    few, many = (
        sample_lab.stored(folder / str(count), lab_of_campaigns(count)) for count in (2, 5)
    )
    return few, many


def exported(form: str, rows: str, settings: Settings) -> CommandResult:
    """Export all campaigns of a store."""
    names = [
        f"night-{number:03d}" for number in range(2 if settings.data_folder.name == "2" else 5)
    ]
    out = settings.data_folder / f"results.{form}"
    request = ExportRequest(out=out, form=form, rows=rows, force=True)
    return reports.export(settings, names, request=request)


def peaks_of(homes: tuple[Path, Path], work: Callable[[Settings], None]) -> list[int]:
    """Return what Python holds at most with few and with many; what is loaded once is loaded
    before.
    """
    few, many = (settings_in(home) for home in homes)
    work(few)
    peaks = []
    for settings in (few, many):
        tracemalloc.start()
        try:
            work(settings)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return peaks


#: All but bundles, whose runs are written one by one: a test below.
FORMATS = EXPORTERS | every("exporters", Exporter)


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        ("csv", "cases"),
        *(
            (name, "invocations" if exporter.takes_rows else "cases")
            for name, exporter in FORMATS.items()
            if name != "bundle"
        ),
    ],
)
def test_an_export_of_many_campaigns_takes_no_more_memory_than_one_of_few(
    homes: tuple[Path, Path], form: str, rows: str
) -> None:
    def export(settings: Settings) -> None:
        exported(form, rows, settings)

    few, many = peaks_of(homes, export)
    assert many < 1.5 * few


def test_reading_many_campaigns_again_takes_no_more_memory_than_reading_few(
    homes: tuple[Path, Path],
) -> None:
    def reparse(settings: Settings) -> None:
        assert stored.reparse(settings, ()).exit_code == 0

    few, many = peaks_of(homes, reparse)
    assert many < 2 * few


def test_the_runs_of_a_large_campaign_are_written_as_they_are_read(tmp_path: Path) -> None:
    lab = lab_of_campaigns(10)
    name = lab.campaigns[0].campaign_id
    runs = [
        replace(run, campaign_id=name, invocation=number) for number, run in enumerate(lab.runs)
    ]
    lab = replace(lab, campaigns=(campaign_of(runs, campaign_id=name),), runs=runs)
    small = replace(lab, campaigns=(campaign_of(runs[:210], campaign_id=name),), runs=runs[:210])
    few_runs, all_runs = (
        sample_lab.stored(tmp_path / str(len(one.runs)), one) for one in (small, lab)
    )

    def listed(settings: Settings) -> None:
        result = stored.runs(settings, selection=stored.RunSelection(), limit=0)
        deque(result.lines, maxlen=0)
        deque(json_pieces(result.data), maxlen=0)

    few, many = peaks_of((few_runs, all_runs), listed)
    assert many < 2 * few


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The homes of a campaign of 10 cases with few runs each, and of one of 50 cases."""
    folder = tmp_path_factory.mktemp("large")
    few, many = (sample_lab.stored(folder / str(cases), _one_campaign(cases)) for cases in (10, 50))
    return few, many


def _one_campaign(cases: int) -> Lab:
    phone, name = REAL_PIXEL, CampaignId("night-000")
    runs = [
        replace(run, reason=f"{run.run_id}: {'said much ' * 400}")
        for threads in range(1, cases + 1)
        for run in series(case(phone, MOBILENET, DelegateName.XNNPACK, threads), 5_000.0, 10)
    ]
    runs = [replace(run, campaign_id=name) for run in runs]
    return Lab(
        devices={phone.serial: phone},
        models={MOBILENET.sha256: MOBILENET},
        campaigns=(campaign_of(runs, campaign_id=name),),
        runs=runs,
    )


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        pytest.param("bundle", "cases", marks=needs_extension("interop")),
        pytest.param("leaderboard", "cases", marks=needs_extension("interop")),
    ],
)
def test_an_export_of_a_large_campaign_holds_no_more_runs_than_one_of_a_small_one(
    large: tuple[Path, Path], form: str, rows: str
) -> None:
    def export(settings: Settings) -> None:
        out = settings.data_folder / f"results.{form}"
        names = ["night-000"]
        request = ExportRequest(out=out, form=form, rows=rows, force=True)
        reports.export(settings, names, request=request)

    few, many = peaks_of(large, export)
    # 400 more runs say 4,000 letters each; what is kept of a run is its figure, its id and its place
    # in the plan.
    assert many - few < 400 * 5_000


@needs_extension("interop")
def test_an_import_holds_few_of_the_runs_that_left_much_behind(tmp_path: Path) -> None:
    runs = [
        replace(run, attachments=(Attachment(name="trace", data=bytes([number]) * (4 << 20)),))
        for number, run in enumerate(series(case(REAL_PIXEL), 5_000.0, 20))
    ]
    lab = sample_lab.stored(tmp_path / "lab", lab_of(runs, REAL_PIXEL))
    bundle = tmp_path / "traces.zip"
    reports.export(settings_in(lab), request=ExportRequest(out=bundle, form="bundle"))

    def take_in(settings: Settings) -> None:
        told = reports.import_results(settings, ImportRequest(files=[bundle])).text
        assert "20 runs imported" in told or "20 already stored" in told

    peaks = peaks_of((tmp_path / "one", tmp_path / "other"), take_in)
    assert max(peaks) < 60 << 20
