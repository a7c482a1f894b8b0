"""How long the history pages of a lab take to make, and how large they are, against plain tables of
the same nights.

    python benchmarks/site.py [--nights 90] [--phones 40]

40 phones x 30 models x 6 configurations: 7,200 series, one invocation a night, a new build every 30
nights, a step of 8 % in 60 series. The runs of the newest night are whole; of those before, the
store hands out the figures alone: reading them from a database is what benchmarks/history.py
measures. Measured here: gathering (changes, causes, intervals), the pages of all series, the
overview, and all of it again with nothing new. The alternative, in the same run: each series as a
page with a plain table of the same nights, and one table of all series, without charts, styles or
links to reports. Campaigns' reports are left out: benchmarks/report.py measures those.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from array import array
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

import numpy as np

from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.site import Site, gather
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign, CampaignStatus
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
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.history import CampaignSketch, Contents, Points, SeriesSketch
from orchestrator.records.run import LatencySummary, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import Grade, Quality, QualityVerdict
from orchestrator.store.opening import MemoryStore

START = datetime(2025, 11, 1, 22, tzinfo=UTC)
MODELS, BUILD_NIGHTS, STEPPED = 30, 30, 60
CONFIGURATIONS = [(d, t) for d in (DelegateName.XNNPACK, DelegateName.CPU) for t in (1, 4)] + [
    (DelegateName.GPU, 1),
    (DelegateName.NNAPI, 1),
]


class Nights(MemoryStore):
    """A lab's nights: whole runs of the newest, figures of all."""

    def __init__(self, phones: int, nights: int) -> None:
        super().__init__()
        generator = np.random.default_rng(20261122)
        devices = [
            DeviceFacts(
                serial=Serial(f"phone-{n:02d}"),
                kind=DeviceKind.ANDROID,
                is_virtual=True,
                model=f"Pixel {n % 5}",
            )
            for n in range(phones)
        ]
        models = [
            Model(name=f"m{n}.tflite", sha256=ModelSha(f"{n:064x}"), size_bytes=1)
            for n in range(MODELS)
        ]
        builds = [
            Build(
                name="native",
                tool=ToolName.NATIVE,
                sha256=BuildSha(f"{n:064x}"),
                abi="arm64-v8a",
                is_virtual=True,
            )
            for n in range(-(-nights // BUILD_NIGHTS))
        ]
        cases = [
            Case(
                serial=device.serial,
                model_sha256=model.sha256,
                model_name=model.name,
                delegate=delegate,
                threads=threads,
                tool=ToolName.NATIVE,
                build_sha256=builds[-1].sha256,
            )
            for device in devices
            for model in models
            for delegate, threads in CONFIGURATIONS
        ]
        count = len(cases)
        figures = np.exp(generator.normal(9, 1, count))[:, None] * np.exp(
            generator.normal(
                0,
                np.exp(generator.uniform(np.log(0.003), np.log(0.015), count))[:, None],
                (count, nights),
            )
        )
        figures[:STEPPED, nights * 2 // 3 :] *= 1.08
        campaigns = [_campaign(night) for night in range(nights)]
        for campaign in campaigns:
            self.begin_campaign(campaign, devices=devices, models=models, builds=builds)
        for case, figure in zip(cases, figures[:, -1], strict=True):
            self.append_run(_run(campaigns[-1], case, float(figure)))
        model_place = {model.sha256: place for place, model in enumerate(models)}
        contents = [
            Contents(model_sha256=model.sha256, build_sha256=build.sha256)
            for build in builds
            for model in models
        ]
        which = [model_place[case.model_sha256] for case in cases]
        self._points = Points(
            series=tuple(
                SeriesSketch(series_key=c.series_key, serial=c.serial, is_virtual=True)
                for c in cases
            ),
            contents=tuple(contents),
            campaigns=tuple(
                CampaignSketch(campaign_id=c.campaign_id, created_at=c.created_at)
                for c in campaigns
            ),
            series_at=array("q", np.repeat(np.arange(count), nights).tolist()),
            contents_at=array(
                "q", [m + night // BUILD_NIGHTS * MODELS for m in which for night in range(nights)]
            ),
            campaign_at=array("q", np.tile(np.arange(nights), count).tolist()),
            latency_us=array("d", figures.ravel().tolist()),
            trusted=array("q", [1] * (count * nights)),
        )

    def points(self, **_: object) -> Points:
        return self._points


def _campaign(night: int) -> Campaign:
    at = START + timedelta(days=night)
    return Campaign(
        campaign_id=CampaignId(f"{at:%Y%m%d-%H%M%S}-{night:06x}"),
        name="nightly",
        created_at=at,
        finished_at=at + timedelta(hours=8),
        status=CampaignStatus.FINISHED,
        plan_text="",
        seed=night,
        benchfarm_version="",
        host="farm-1",
    )


def _run(campaign: Campaign, case: Case, us: float) -> RunRecord:
    return RunRecord(
        run_id=RunId(case.case_key),
        campaign_id=campaign.campaign_id,
        case=case,
        run_pass=Pass.TIMING,
        invocation=0,
        outcome=Outcome.COMPLETED,
        reason_code="",
        reason="",
        is_virtual=True,
        started_at=campaign.created_at,
        duration_s=1.0,
        command="",
        exit_code=0,
        attachments=(),
        report=ToolReport(outcome="ok", inference=LatencySummary(count=50, median_us=us)),
        verdict=QualityVerdict(quality=Quality.TRUSTED, grade=Grade.C),
    )


def plain(site: Site, folder: Path) -> int:
    """Write the alternative, and return its bytes."""
    size, lines = 0, []
    for row in site.series:
        cells = "".join(
            f"<tr><td>{night.night}<td>{night.median_us:.1f}<td>{night.invocations}<td>{night.is_clean}"
            for night in site.night_figures(row)
        )
        lines.append(
            f"<tr><td><a href='{row.page}'>{escape(row.label)}</a><td>{row.last_us:.1f}<td>{row.against_window}"
        )
        page = f"<!doctype html><title>{escape(row.label)}</title><table>{cells}</table>"
        size += (folder / row.page).write_text(page)
    return size + (folder / "index.html").write_text(
        f"<!doctype html><table>{''.join(lines)}</table>"
    )


def write(site: Site, folder: Path) -> tuple[float, float, int]:
    """Write all pages but reports, as ``history site`` does: what is there already stays. Return
    the seconds of series and of the overview, and the bytes.
    """
    begin = time.perf_counter()
    size = sum(
        written(folder / "series" / row.page, site_pages.series_page(site, row))
        for row in site.series
    )
    middle = time.perf_counter()
    size += written(folder / "index.html", site_pages.overview_page(site))
    return middle - begin, time.perf_counter() - middle, size


def written(path: Path, page: str) -> int:
    """Write a page that isn't there yet; return its bytes."""
    content = page.encode()
    if not path.is_file() or path.read_bytes() != content:
        write_file(path, content, makes_folder=True)
    return len(content)


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=90)
    parser.add_argument("--phones", type=int, default=40)
    options = parser.parse_args()
    store = Nights(options.phones, options.nights)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    site = gather(store, since=None)
    gathered_s = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as name:
        folder, other = Path(name) / "site", Path(name) / "plain"
        other.mkdir()
        first = write(site, folder)
        cpu_s = time.process_time() - begin_cpu
        again = write(site, folder)
        begin = time.perf_counter()
        plain_bytes = plain(site, other)
        plain_s = time.perf_counter() - begin
        overview_bytes = (folder / "index.html").stat().st_size
    figures = {
        "series": len(site.series),
        "nights": len(site.nights),
        "changes": sum(len(row.changes) for row in site.series),
        "gathered_s": gathered_s,
        "series_pages_s": first[0],
        "overview_s": first[1],
        "processor_s": cpu_s,
        "pages_again_s": sum(again[:2]),
        "plain_s": plain_s,
        "pages_to_plain": sum(first[:2]) / plain_s,
        "size_mb": first[2] / 1e6,
        "overview_mb": overview_bytes / 1e6,
        "plain_mb": plain_bytes / 1e6,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    sys.stdout.write(
        json.dumps({name: round(value, 2) for name, value in figures.items()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
