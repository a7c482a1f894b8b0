"""A device's conditions during an invocation: the sampler's output, clocks and loads. Pure.

The mean clock of a cluster is that of its ``time_in_state`` between two moments. It counts the time
in which the cores idle too, so that it says something of a run only for the clusters that the run
kept busy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from orchestrator.records.device import DeviceState, Moment
from orchestrator.records.run import (
    ClusterConditions,
    RunConditions,
    RunRecord,
    RunSamples,
    Sample,
    ToolReport,
)
from orchestrator.sysfs import parse_clocks, parse_gpu, parse_kernel_counts, parse_thermal_zones

_SAMPLE_MARK: Final = "--look"
_TIMES_MARK: Final = "--times"


def parse_samples(data: bytes) -> RunSamples:
    """Return the samples of the sampler's file; a sample that was cut off after its first words, or
    has no time since boot, is left out.
    """
    text, _, after = data.decode("utf-8", "replace").partition(f"\n{_TIMES_MARK}\n")
    times, _, last_block = after.partition(f"\n{_SAMPLE_MARK}\n")
    blocks = [
        *re.split(rf"^{_SAMPLE_MARK}$", text, flags=re.M)[1:],
        *([last_block] if last_block else []),
    ]
    samples = [sample for block in blocks if (sample := _sample(block)) is not None]
    return RunSamples(samples=tuple(samples), own_cpu_s=_children_s(times))


def _children_s(text: str) -> float | None:
    """Read the shell's ``times``: its second line is the processor time of the processes that it
    waited for.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    parts = re.findall(r"(\d+)m\s*(\d+(?:[.,]\d+)?)s", lines[1])
    return (
        sum(60 * int(minutes) + float(seconds.replace(",", ".")) for minutes, seconds in parts)
        if parts
        else None
    )


def _sample(text: str) -> Sample | None:
    uptimes = [float(figure) for figure in re.findall(r"^/proc/uptime:(\d+(?:\.\d+)?)", text, re.M)]
    lines = text.splitlines()
    if not uptimes or _is_cut_off(lines, uptimes):
        return None
    clocks, gpu = parse_clocks(text), parse_gpu(text)
    return Sample(
        uptime_s=uptimes[0],
        took_s=uptimes[-1] - uptimes[0],
        cpu_busy_s=parse_kernel_counts(text)["cpu_busy_s"],
        heat_c=parse_thermal_zones(text),
        **{name: clocks[name] for name in ("clock_khz", "clock_limit_khz", "time_in_state")},
        **gpu,
    )


def _is_cut_off(lines: list[str], uptimes: list[float]) -> bool:
    """Whether the sampler ended after the first two files, which it reads itself, and before those
    that another program reads for it.
    """
    printed = [line for line in lines if line]
    own_files = ("/proc/uptime:", "/proc/stat:")
    return (
        len(uptimes) == 1
        and printed[0].startswith(own_files[0])
        and all(line.startswith(own_files) for line in printed)
    )


#: Shorter stretches between two samples aren't judged: the kernel counts in steps of 10 ms.
STRETCH_MIN_S: Final = 1.0
#: Samples that took a larger share of the stretch between them show work and clocks of different
#: moments.
SAMPLE_SHARE_MAX: Final = 0.03
#: A stretch counts as fully busy from this share of the busiest one on, if it keeps at least this
#: many cores busy.
FULL_SHARE: Final = 0.97
FULL_CORES_MIN: Final = 0.5
#: Processor time that may be overcounted between two samples: each of the kernel's counters goes in
#: steps of 10 ms, and the first sample is within the stretch.
_MISCOUNT_S: Final = 0.1
#: With more cores than this at work for one program, the samples don't span its run.
_CORES_MAX: Final = 64.0
#: The name of the busy clock share in a report's ``extra``.
BUSY_CLOCK: Final = "busy_clock_share"
#: The same for the mean clock between the device states before and after, in runs stored without
#: these states.
MEAN_CLOCK: Final = "mean_clock_share"
_NOTHING: Final[Mapping[str, str]] = {}
Ticks = Mapping[int, int]


def derive_conditions(
    before: DeviceState | None, after: DeviceState | None, run_samples: RunSamples | None = None
) -> RunConditions:
    """Return the conditions of a run from the states before and after and the samples between."""
    samples = (
        run_samples.samples if run_samples is not None and len(run_samples.samples) > 1 else ()
    )
    own_cpu_s = run_samples.own_cpu_s if run_samples is not None else None
    first: Moment | None = samples[0] if samples else before
    last: Moment | None = samples[-1] if samples else after
    span_s = busy_s = None
    if first is not None and last is not None:
        span_s = _difference(first.uptime_s, last.uptime_s)
        busy_s = _difference(first.cpu_busy_s, last.cpu_busy_s)
    own_cores = own_cpu_s / span_s if samples and own_cpu_s is not None and span_s else None
    if own_cores is not None and own_cores > _CORES_MAX:
        # The sampler began when the program was about to end.
        own_cores = None
    return RunConditions(
        is_sampled=bool(samples),
        clusters=_clusters(before, after, samples),
        own_cores=own_cores,
        foreign_cores=(
            None
            if own_cores is None or busy_s is None or not span_s
            else max(0.0, (busy_s - _MISCOUNT_S) / span_s - own_cores)
        ),
        clock_jump_s=_clock_jump_s(before, after),
    )


def with_busy_clock(report: ToolReport, samples: bytes) -> ToolReport:
    """Return a report with the share of the highest clock at which the cores worked; unchanged without
    samples that show it.

    Of the stretches between samples in which the cores had most to do: how long a phone idled before
    and after says nothing of a run. Kept in the report, because comparisons read runs without their
    attachments.
    """
    run_samples = parse_samples(samples)
    shares = [
        cluster.busiest_share
        for cluster in derive_conditions(None, None, run_samples).clusters
        if cluster.busiest_share is not None
    ]
    return replace(report, extra={**report.extra, BUSY_CLOCK: max(shares)}) if shares else report


def mean_clock_share(run: RunRecord) -> float:
    """Return the mean clock between the states before and after a run, as a share of its highest; 0
    where unknown.

    Of the cluster with the highest share.
    """
    if (stored := run.extra_figure(MEAN_CLOCK)) is not None:
        return stored
    return max(
        (
            cluster.share or 0.0
            for cluster in derive_conditions(run.state_before, run.state_after).clusters
        ),
        default=0.0,
    )


def without_output(run: RunRecord) -> RunRecord:
    """Return a run without its output and the parameters that it echoes; the mean clock stays in the
    report's ``extra``, so that states can be left out, too.
    """
    report = run.report
    if report is not None:
        share = mean_clock_share(run)
        extra = {**report.extra, MEAN_CLOCK: share} if share else report.extra
        report = replace(report, echoed=_NOTHING, extra=extra)
    return replace(run, attachments=(), report=report)


def mean_khz(earlier: Ticks, later: Ticks) -> float | None:
    """Return the mean clock between two readings of ``time_in_state``.

    None where no time passed or it restarted.
    """
    spent = {khz: ticks - earlier.get(khz, 0) for khz, ticks in later.items()}
    total = sum(spent.values())
    if total <= 0 or min(spent.values()) < 0:
        return None
    return sum(khz * ticks for khz, ticks in spent.items()) / total


def _clusters(
    before: DeviceState | None, after: DeviceState | None, samples: Sequence[Sample]
) -> tuple[ClusterConditions, ...]:
    moments: list[Moment] = [s for s in (before, *samples, after) if s is not None]
    clusters = []
    for cpu in sorted(
        {cpu for moment in moments for cpu in (*moment.time_in_state, *moment.clock_limit_khz)}
    ):
        tables = [sample.time_in_state[cpu] for sample in samples if cpu in sample.time_in_state]
        if len(tables) < 2:
            tables = [
                moment.time_in_state[cpu] for moment in moments if cpu in moment.time_in_state
            ]
        limits = [
            moment.clock_limit_khz[cpu] for moment in moments if cpu in moment.clock_limit_khz
        ]
        highest = max((khz for table in tables for khz in table), default=None)
        khz = mean_khz(tables[0], tables[-1]) if len(tables) > 1 else None
        busiest = _busiest_khz(cpu, samples)
        clusters.append(
            ClusterConditions(
                cpu=cpu,
                effective_mhz=None if khz is None else khz / 1000,
                share=None if khz is None or not highest else khz / highest,
                limit_high=max(limits) / highest if limits and highest else None,
                busiest_share=max(busiest) / highest if busiest and highest else None,
                fall=_largest_fall(busiest),
            )
        )
    return tuple(clusters)


def _busiest_khz(cpu: int, samples: Sequence[Sample]) -> list[float]:
    """Return the mean clocks of the stretches between samples in which the cores had most to do, in
    their order.

    A program that loads its model, or has ended, leaves the cores idle, and clocks fall then as
    they should. So only stretches count in which as much work was done as in the busiest: what
    slows those down is no lack of work.
    """
    stretches = [
        (busy_cores, khz)
        for earlier, later in pairwise(sample for sample in samples if cpu in sample.time_in_state)
        if (busy_cores := _busy_cores(earlier, later)) is not None
        and (khz := mean_khz(earlier.time_in_state[cpu], later.time_in_state[cpu])) is not None
    ]
    most_busy = max((busy_cores for busy_cores, _ in stretches), default=0.0)
    return [
        khz
        for busy_cores, khz in stretches
        if busy_cores >= max(FULL_SHARE * most_busy, FULL_CORES_MIN)
    ]


def _largest_fall(clocks: Sequence[float]) -> float | None:
    """Return the smallest ratio of a clock to the highest before it; None for fewer than two."""
    return min(
        (later / max(clocks[:place]) for place, later in enumerate(clocks) if place), default=None
    )


def _busy_cores(earlier: Sample, later: Sample) -> float | None:
    span_s = later.uptime_s - earlier.uptime_s
    if max(earlier.took_s, later.took_s) > SAMPLE_SHARE_MAX * span_s:
        return None
    busy_s = _difference(earlier.cpu_busy_s, later.cpu_busy_s)
    return None if busy_s is None or span_s < STRETCH_MIN_S else busy_s / span_s


def _difference(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None or last < first else last - first


def _clock_jump_s(before: DeviceState | None, after: DeviceState | None) -> float | None:
    if before is None or after is None or before.boot_id != after.boot_id:
        return None
    if before.boot_at_s is None or after.boot_at_s is None:
        return None
    return float(after.boot_at_s - before.boot_at_s)
