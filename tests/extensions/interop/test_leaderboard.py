"""A line of the leaderboard says of a run of ours what was measured: it is read as it was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.extensions.interop.leaderboard import Row, leaderboard_lines, read_row
from orchestrator.reading.litert_lm import Process, Repetition, reports_of
from orchestrator.records.case import Case, DelegateName, ToolName
from orchestrator.records.run import DelegateEvidence, DelegateShare, DelegateTruth, ToolReport
from tests.samples.sample_lab import BUILDS, MOBILENET, REAL_PIXEL, case, run

EVIDENCE = DelegateEvidence(
    requested="gpu",
    actual="gpu",
    truth=DelegateTruth.PARTIAL,
    delegated_nodes=28,
    total_nodes=31,
    partitions=2,
    shares=(
        DelegateShare(
            delegate="TfLiteGpuDelegateV2", delegated_nodes=28, total_nodes=31, partitions=2
        ),
    ),
)
#: What a line tells of a report.
TOLD = ("init_us", "first_inference_us", "warmup_mean_us", "init_memory_mib", "overall_memory_mib")
SUMMARY = ("count", "mean_us", "median_us", "min_us", "max_us", "std_us", "p5_us", "p95_us")
NODES = ("requested", "actual", "truth", "delegated_nodes", "total_nodes", "partitions", "shares")
TOLD_OF_TOKENS = ("init_us", "warmup_mean_us", "inference_mean_us", "peak_memory_mib")
EXTRA = ("tokens", "context_tokens", "derived_first_token_us")


def said(record: object, names: Sequence[str], *, digits: int = 12) -> list[object]:
    """Return some fields of a record, figures with so many digits."""
    values = [getattr(record, name) for name in names]
    return [f"{value:.{digits}g}" if isinstance(value, float) else value for value in values]


def written(*reports: tuple[Case, ToolReport]) -> tuple[dict[str, Any], Row]:
    """Return the one line of these runs of a process, as it is written and as it is read."""
    runs = [replace(run(owner), report=report) for owner, report in reports]
    devices, models = {REAL_PIXEL.serial: REAL_PIXEL}, {MOBILENET.sha256: MOBILENET}
    builds = {build.sha256: build for build in BUILDS.values()}
    (line,) = leaderboard_lines([runs], devices=devices, models=models, builds=builds)
    return json.loads(line), read_row(line.encode())


def test_inferences_are_read_as_they_were_written() -> None:
    owner = case(REAL_PIXEL, delegate=DelegateName.GPU)
    report = run(owner).report
    assert report is not None
    line, row = written((owner, replace(report, delegate=EVIDENCE)))
    (again,) = row.reports
    assert again.outcome == "ok"
    assert said(again, TOLD) == said(report, TOLD)
    assert said(again.inference, SUMMARY) == said(report.inference, SUMMARY)
    assert said(again.delegate, NODES) == said(EVIDENCE, NODES)
    assert (row.device, row.model_size_mb) == (REAL_PIXEL.title, MOBILENET.size_bytes / 1e6)
    assert line["status"] == row.status == "measured"


@pytest.mark.parametrize("speeds", [[(500.0, 20.0)], [(400.0, 18.0), (500.0, 20.0), (510.0, 21.5)]])
def test_tokens_are_read_as_they_were_written(speeds: list[tuple[float, float]]) -> None:
    """A single repetition, and several of which the first warms up."""
    flags = {"prefill_tokens": "1024", "decode_tokens": "256", "max_num_tokens": "1280"}
    process = Process(
        asked={name: int(value) for name, value in flags.items()},
        peak_mib=812.5,
        lines=["Created TensorFlow Lite XNNPACK delegate for CPU."],
    )
    for prefill, decode in speeds:
        repetition = Repetition(has_rule=True, init_us=817_700.0)
        repetition.add("prefill", 1024, 1024 / prefill * 1e6)
        repetition.add("decode", 256, 256 / decode * 1e6)
        process.repetitions.append(repetition)
    reports = reports_of(process)
    owner = replace(case(REAL_PIXEL), tool=ToolName.LITERT_LM)
    line, row = written(
        *(
            (
                replace(owner, flags=tuple(sorted({**flags, "figure": report.label}.items()))),
                report,
            )
            for report in reports
        )
    )
    assert line["row_id"].endswith("/cpu/p1024-d256-n1280")
    assert dict(row.flags) == flags
    for again, report in zip(row.reports, reports, strict=True):
        assert (again.outcome, again.label, again.disagreements) == ("ok", report.label, ())
        # The leaderboard's speeds have three decimals.
        assert said(again, TOLD_OF_TOKENS, digits=5) == said(report, TOLD_OF_TOKENS, digits=5)
        assert [again.extra[name] for name in EXTRA] == pytest.approx(
            [report.extra[name] for name in EXTRA], rel=1e-5
        )
