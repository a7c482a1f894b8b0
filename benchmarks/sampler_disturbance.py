"""What watching a run costs it: the same benchmark process with the watcher beside it and without,
taken in turns.

Each process multiplies matrices for some seconds, as an interpreter with one thread does, and tells
the median time of one product. The named alternative is the same process without the watcher; a
second pair, both without, shows what the comparison itself makes of this computer's noise (A/A).
Told are the ratios of medians with their 95 % intervals, over pairs whose order changes, so that
drift cancels out. A phone's watcher does the same: one grep and one sleep every two seconds, lowest
priority, on the slowest cores where there are any (this computer has one kind of cores only).

    python benchmarks/sampler_disturbance.py --pairs 20 --seconds 5
"""

from __future__ import annotations

import argparse
import math
import shlex
import statistics
import sys
import tempfile
import uuid
from pathlib import Path

from orchestrator.analysis.intervals import t_quantile
from orchestrator.analysis.samples import parse_samples
from orchestrator.devices.host import HostDevice
from orchestrator.ports import DetachedCommand
from orchestrator.records.case import RunId
from orchestrator.records.run import SAMPLES_FILE

_PROCESS = """
import os, statistics, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
import numpy
a = numpy.random.default_rng(1).random((192, 192), dtype=numpy.float32)
end = time.perf_counter() + float(sys.argv[1])
taken = []
while (begun := time.perf_counter()) < end:
    a @ a
    taken.append(time.perf_counter() - begun)
print(statistics.median(taken) * 1e6)
"""


def median_us(runs: HostDevice, seconds: float) -> tuple[float, int]:
    """Run one process; return its median in microseconds and how many looks there were."""
    run_id = RunId(uuid.uuid4().hex)
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(_PROCESS)} {seconds}"
    done = runs.run_detached(DetachedCommand(line=command, run_id=run_id, timeout_s=seconds + 60))
    if done.exit_code != 0:
        raise SystemExit(done.stderr.decode())
    samples = Path(runs.run_folder(run_id)) / SAMPLES_FILE
    looks = len(parse_samples(samples.read_bytes()).samples) if samples.exists() else 0
    runs.discard_run(run_id)
    return float(done.stdout), looks


def told(name: str, ratios: list[float]) -> str:
    """Return a line with the mean ratio and its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    reach = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - reach), math.exp(mean + reach)
    return f"{name:<28} {math.exp(mean):.4f}  [{low:.4f}, {high:.4f}]  median {statistics.median(ratios):.4f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        watched = HostDevice(Path(folder) / "watched")
        alone = HostDevice(Path(folder) / "alone")
        alone.is_watching = False
        with_watcher, without, looks = [], [], 0
        for number in range(options.pairs):
            # Three processes in turn; the order goes round, so that each is first, second and last
            # equally often.
            figures: dict[int, float] = {}
            for slot in range(3):
                which = (slot + number) % 3
                figures[which], seen = median_us(watched if which == 0 else alone, options.seconds)
                looks += seen
            with_watcher.append(figures[0] / figures[1])
            without.append(figures[2] / figures[1])
    print(
        f"{options.pairs} pairs of {options.seconds:g} s, {looks / options.pairs:.1f} looks in each watched process"
    )
    print(told("watched / alone", with_watcher))
    print(told("alone / alone (A/A)", without))


if __name__ == "__main__":
    main()
