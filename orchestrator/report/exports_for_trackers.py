"""Results for trackers of benchmarks: Bencher's metric format and asv's result files.

Only a case's own figure is exported, never a fallback's; the name says model, device (with ``virtual`` where it is),
and configuration.

Sources: https://bencher.dev/docs/reference/bencher-metric-format/ and asv's "Developer docs" (file formats).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.report.data import ReportData, ResultRow
from orchestrator.report.escapes import visible

_NS_PER_US: Final = 1_000
_US_PER_S: Final = 1_000_000
#: Of asv's files.
_ASV_RESULTS_VERSION: Final = 2
_ASV_BENCHMARKS_VERSION: Final = 2
#: Of a device's title in a folder's name; file systems take 255 bytes.
_LONGEST_WORD: Final = 80


def to_bencher(data: ReportData) -> str:
    """Return the results in Bencher's metric format: latency in nanoseconds with the ends of its interval."""
    document = {}
    rows = list(_own_figures(data))
    names = [_name(row) for row in rows]
    counts = Counter(names)
    for row, name in zip(rows, names, strict=True):
        summary = row.result.summary
        assert summary is not None
        latency = {"value": summary.median_us * _NS_PER_US}
        if summary.interval is not None:
            latency |= {
                "lower_value": summary.interval.low * _NS_PER_US,
                "upper_value": summary.interval.high * _NS_PER_US,
            }
        # Two phones of one kind, or two builds, are two benchmarks.
        beside = f" / {row.device.serial} / {row.key[:8]}" if counts[name] > 1 else ""
        document[visible(name + beside)] = {"latency": latency}
    return json.dumps(document, indent=2) + "\n"


def to_asv(data: ReportData, *, commit: str) -> Mapping[str, str]:
    """Return asv's files by their paths in its results folder: one result file and one machine for each device.

    Latencies are in seconds, as asv keeps times. Its 99 % intervals are left out: ours are of another level.
    """
    files: dict[str, str] = {}
    benchmarks: dict[str, object] = {"version": _ASV_BENCHMARKS_VERSION}
    of_device: dict[str, list[ResultRow]] = {}
    for row in _own_figures(data):
        of_device.setdefault(row.device.serial, []).append(row)
    for serial, rows in of_device.items():
        machine = _file_name(rows[0].device.title, serial)
        results: dict[str, object] = {}
        names = [f"{visible(row.model.label)}, {visible(row.configuration)}" for row in rows]
        counts = Counter(names)
        for row, plain in zip(rows, names, strict=True):
            name = f"{plain}, {row.key[:8]}" if counts[plain] > 1 else plain
            assert row.result.summary is not None
            results[name] = [[row.result.summary.median_us / _US_PER_S], []]
            benchmarks[name] = _asv_benchmark(name)
        facts = rows[0].device.facts
        files[f"{machine}/machine.json"] = _json(
            {
                "machine": machine,
                "os": visible(facts.os_version) if facts else "",
                "cpu": visible(facts.soc) if facts else "",
                "arch": visible(facts.abis[0]) if facts and facts.abis else "",
                "ram": str(facts.memory_bytes or "") if facts else "",
                "num_cpu": str(sum(len(cluster.cpus) for cluster in facts.clusters)) if facts else "",
                "version": 1,
            }
        )
        files[f"{machine}/{_word(commit)[:8]}-benchfarm.json"] = _json(
            {
                "version": _ASV_RESULTS_VERSION,
                "commit_hash": commit,
                "env_name": "benchfarm",
                "date": round(max(campaign.created_at for campaign in data.campaigns).timestamp() * 1000),
                "params": {
                    "machine": machine,
                    "is_virtual": str(rows[0].is_virtual).lower(),
                    "origin": visible(rows[0].origin),
                },
                "python": "",
                "requirements": {},
                "env_vars": {},
                "result_columns": ["result", "params"],
                "results": results,
                "durations": {},
            }
        )
    if files:
        files["benchmarks.json"] = _json(benchmarks)
    return files


def _own_figures(data: ReportData) -> Iterator[ResultRow]:
    return (row for row in data.results if row.result.own_summary is not None)


def _name(row: ResultRow) -> str:
    return visible(f"{row.model.label} / {row.device.title} / {row.configuration}")


def _asv_benchmark(name: str) -> Mapping[str, object]:
    return {
        "name": name,
        "pretty_name": name,
        "type": "time",
        "unit": "seconds",
        "params": [],
        "param_names": [],
        "code": "",
        "version": hashlib.sha256(name.encode()).hexdigest(),
        "timeout": 0.0,
    }


def _file_name(title: str, serial: str) -> str:
    """Return a folder's name that no other device has and that leads nowhere else."""
    return f"{_word(title)[:_LONGEST_WORD]}-{hashlib.sha256(serial.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "device"


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
