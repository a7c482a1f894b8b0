"""Results as other programs and labs take them: bundles, and the lines of LiteRT's leaderboard,
a JSON object for each process that gave figures.

A leaderboard's line says ``measured`` only of a clean figure of a real phone, shown to be the
delegate's; any other says what it is. Keys that the leaderboard hasn't got stand under
``benchfarm``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestrator import __version__
from orchestrator.errors import UsageError
from orchestrator.extensions.interop.leaderboard import ACCELERATORS, MEMORY, PLATFORMS, TIMES
from orchestrator.files import write_file
from orchestrator.plugins import Exported, Exporter, ExportRequest, Workspace
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import BUILTIN, IMPORTED_TOOLS, Build, Model, RunId, Serial
from orchestrator.records.device import DeviceFacts
from orchestrator.records.model import FIGURE, PHASES, REPETITIONS
from orchestrator.records.run import SUMMARY_FIELDS, DelegateTruth, RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.units import US_PER_MS, US_PER_S, counted, tokens_per_s


def _write_bundle(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> Exported:
    from orchestrator.extensions.interop.bundle import write_bundle

    ids = [campaign.campaign_id for campaign in campaigns]
    run_ids = _run_ids(workspace, campaigns, request.runs)
    done = write_bundle(workspace, ids, run_ids, out)
    virtual = f", {done.virtual_runs} of them virtual" if done.virtual_runs else ""
    text = f"{counted(done.runs, 'run')} of {counted(done.campaigns, 'campaign')}{virtual}"
    return Exported(text=text, data={"contents": done})


def _run_ids(
    workspace: Workspace, campaigns: Sequence[Campaign], prefixes: Sequence[str]
) -> list[RunId]:
    """Return the runs of some campaigns that the beginnings of ids mean; raises UsageError."""
    if not prefixes:
        return []
    ids = [campaign.campaign_id for campaign in campaigns]
    known = [run.run_id for run in workspace.store.runs(campaign_ids=ids)]
    found = []
    for prefix in prefixes:
        fitting = [run_id for run_id in known if prefix and run_id.startswith(prefix)]
        if prefix in fitting:
            fitting = [RunId(prefix)]
        if len(fitting) != 1:
            what = f"{len(fitting)} runs" if fitting else "no run"
            raise UsageError(
                f"{what} of {', '.join(ids)} begin with {prefix!r}"
                if prefix
                else "--run names no run",
                hint="'benchfarm results runs CAMPAIGN' lists them",
            )
        found += fitting
    return found


def _write_leaderboard(
    workspace: Workspace, campaigns: Sequence[Campaign], request: ExportRequest, out: Path
) -> None:
    store = workspace.store
    runs = (store.runs(campaign_ids=[campaign.campaign_id]) for campaign in campaigns)
    write_file(
        out,
        leaderboard_lines(
            runs, devices=store.devices(), models=store.models(), builds=store.builds()
        ),
    )


BUNDLE = Exporter(path=Path("benchfarm-bundle.zip"), write=_write_bundle, takes_runs=True)
LEADERBOARD = Exporter(path=Path("benchfarm-measurements.jsonl"), write=_write_leaderboard)


_ACCELERATORS: Final = {BUILTIN: "cpu"} | {
    delegate: name for name, delegate in ACCELERATORS.items()
}
_PLATFORMS: Final = {kind: name for name, kind in PLATFORMS.items()}
_SHOWN: Final = frozenset({DelegateTruth.FULL, DelegateTruth.PARTIAL})


def leaderboard_lines(
    campaigns: Iterable[Iterable[RunRecord]],
    *,
    devices: Mapping[Serial, DeviceFacts],
    models: Mapping[str, Model],
    builds: Mapping[str, Build],
) -> Iterator[str]:
    """Yield a line for each process with a figure, from the runs of each campaign.

    What others measured isn't ours to tell.
    """
    counts = dict[str, int]()
    for runs in campaigns:
        for group in _processes(runs, devices):
            first = group[0]
            line = _line(
                group, devices.get(first.case.serial), models.get(first.case.model_sha256), builds
            )
            name = str(line["row_id"])
            counts[name] = counts.get(name, 0) + 1
            line |= {
                "row_id": name if counts[name] == 1 else f"{name}#{counts[name]}",
                "repeat": counts[name],
            }
            yield f"{json.dumps(line, allow_nan=False)}\n"


def _processes(
    runs: Iterable[RunRecord], devices: Mapping[Serial, DeviceFacts]
) -> Iterator[list[RunRecord]]:
    """Yield the runs of a campaign that have a figure and are our own, by process: last those that
    share one.
    """
    groups: dict[tuple[str, int], list[RunRecord]] = {}
    for run in runs:
        facts = devices.get(run.case.serial)
        is_own = run.case.tool not in IMPORTED_TOOLS and not (
            facts is not None and facts.is_imported
        )
        if not is_own or run.latency_us is None or run.case.delegate not in _ACCELERATORS:
            continue
        flags = sorted(flag for flag in run.case.flags if flag[0] != FIGURE)
        if len(flags) == len(run.case.flags):
            yield [run]
        else:
            # A language model's prefill and decode are two cases of one process.
            row = json.dumps(run.case.to_row() | {"flags": flags}, sort_keys=True)
            groups.setdefault((row, run.invocation), []).append(run)
    yield from groups.values()


def _line(
    runs: list[RunRecord],
    facts: DeviceFacts | None,
    model: Model | None,
    builds: Mapping[str, Build],
) -> dict[str, object]:
    run = runs[0]
    report, case, build = run.report, run.case, builds.get(run.case.build_sha256)
    assert report is not None, "it has a figure"
    delegate = report.delegate
    accelerator = _ACCELERATORS[case.delegate]
    platform = _PLATFORMS[facts.kind] if facts is not None else "android"
    codename = facts.codename if facts is not None else ""
    device_id = (
        f"{codename or 'unknown'}-{facts.sdk}"
        if facts is not None and facts.sdk
        else codename or "unknown"
    )
    version = build.version if build is not None else ""
    file = model.path.name if model is not None and model.path is not None else case.model_name
    name = (
        next(
            (share.delegate for share in delegate.shares if share.delegated_nodes), delegate.actual
        )
        or None
    )
    row_id = f"{case.model_name}:{file}@{version or case.build_sha256[:12]}/{platform}/{device_id}/{accelerator}"
    api = f" (API {facts.sdk})" if facts is not None and facts.sdk else ""
    line: dict[str, object] = {
        "row_id": row_id,
        "model": case.model_name,
        "file": file,
        "task": None,
        "model_size_mb": model.size_bytes / 1e6 if model is not None else None,
        "platform": platform,
        "device_id": device_id,
        "device": facts.title if facts is not None else "",
        "os": f"{facts.system}{api}" if facts is not None else "",
        "accelerator": accelerator,
        "delegate": name,
        "nodes_delegated": delegate.delegated_nodes,
        "nodes_total": delegate.total_nodes,
        "partitions": delegate.partitions,
        "runtime": case.tool.value,
        "runtime_version": version,
        "binary": build.name if build is not None else "",
        "runner": "benchfarm",
        "session": run.campaign_id,
        "job": f"{accelerator}-{device_id}",
        "source": "benchfarm",
        "status": _status(runs),
        "date": f"{run.started_at:%Y-%m-%d}",
        "benchfarm": {
            "version": __version__,
            "run_ids": [item.run_id for item in runs],
            "is_virtual": run.is_virtual,
            "threads": case.threads,
            "tool": case.tool.value,
            "build_sha256": case.build_sha256,
            "delegate_truth": delegate.truth.value,
            "quality": [item.verdict.quality.word for item in runs],
            "grade": run.verdict.grade.value if run.verdict.grade is not None else None,
            "findings": sorted(
                {finding.code for item in runs for finding in item.verdict.findings}
            ),
        },
    }
    return line | (_tokens(runs, row_id) if case.is_per_token else _inferences(run))


def _status(runs: list[RunRecord]) -> str:
    if any(run.is_virtual for run in runs):
        return "virtual"
    for run in runs:
        if run.verdict.quality is not Quality.TRUSTED:
            return run.verdict.quality.word
    is_shown = all(run.report is not None and run.report.delegate.truth in _SHOWN for run in runs)
    return "measured" if is_shown else "not-confirmed"


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us / US_PER_MS, 6)


def _inferences(run: RunRecord) -> dict[str, object]:
    report = run.report
    assert report is not None, "it has a figure"
    figures, warmup = report.inference, report.warmup
    times: dict[str, float | None] = {
        key: getattr(figures, field, None) for key, field in SUMMARY_FIELDS.items()
    }
    times["avg"] = report.inference_mean_us or times["avg"]
    times |= {key: getattr(report, field) for key, field in TIMES.items()}
    return {
        "latency_ms": {key: _ms(value) for key, value in times.items()},
        "memory_mb": {key: getattr(report, field) for key, field in MEMORY.items()},
        "runs": getattr(figures, "count", None),
        "warmup_runs": getattr(warmup, "count", None),
        "throughput_mb_s": None,
    }


def _tokens(runs: list[RunRecord], row_id: str) -> dict[str, object]:
    of_phase = {dict(run.case.flags).get(FIGURE, ""): run for run in runs}
    flags = dict(runs[0].case.flags)
    speeds: dict[str, list[float]] = {}
    metrics: dict[str, object] = {}
    for phase in PHASES:
        report = of_phase[phase].report if phase in of_phase else None
        speed = tokens_per_s(report.inference_mean_us) if report is not None else None
        metrics[f"{phase}_tok_s"] = round(speed, 3) if speed is not None else None
        each = str(report.extra.get("repetitions_us", "")).split() if report is not None else []
        warmup = [report.warmup_mean_us] if report is not None and report.warmup_mean_us else []
        speeds[phase] = [
            round(US_PER_S / value, 3) for value in (*warmup, *map(float, each)) if value > 0
        ]
    report = next(iter(of_phase.values())).report
    assert report is not None, "it has a figure"
    first_us = report.extra.get("derived_first_token_us")
    metrics |= {
        "ttft_s": round(first_us / US_PER_S, 6) if isinstance(first_us, float) else None,
        "init_total_ms": _ms(report.init_us),
        "init_executor_ms": None,
        "peak_mem_mb": report.peak_memory_mib,
    }
    warmups = int(report.warmup_mean_us is not None)
    conditions = {
        name: int(flags[name])
        for name in ("prefill_tokens", "decode_tokens", "max_num_tokens")
        if name in flags
    }
    count = max(map(len, speeds.values()))
    iterations = [
        {
            f"{phase}_tok_s": own[place] if place < len(own) else None
            for phase, own in speeds.items()
        }
        | {"ttft_s": None, "init_total_ms": metrics["init_total_ms"]}
        for place in range(count)
    ]
    named = "".join(
        f"-{letter}{conditions.get(key, '')}"
        for letter, key in zip("pdn", conditions, strict=False)
    )
    return {
        "row_id": f"{row_id}/{named.lstrip('-')}",
        "conditions": conditions
        | {"iterations": count or int(flags.get(REPETITIONS, "1")), "warmup_iterations": warmups},
        "metrics": metrics,
        "iterations": iterations,
    }
