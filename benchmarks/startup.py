"""Start-up: help against a bare interpreter, and against the same command with eager imports.

Processor time is told beside the clock's: a busy computer changes it less.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

BENCHFARM = str(Path(sys.executable).with_name("benchfarm"))
EAGER = (
    "import sys, pandas, sqlalchemy, jinja2, pydantic, adbutils, yaml, rich; sys.argv = ['benchfarm', '--help']; "
    "from orchestrator.cli import main; main()"
)
COMMANDS = {
    "bare interpreter": ([sys.executable, "-c", "pass"], 15),
    "benchfarm --help": ([BENCHFARM, "--help"], 15),
    "benchfarm bench --help": ([BENCHFARM, "bench", "--help"], 15),
    "benchfarm report --help": ([BENCHFARM, "report", "--help"], 15),
    "--help, eager imports": ([sys.executable, "-c", EAGER], 3),
}


def spent_s() -> float:
    """Return the processor time of the processes that ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def medians_ms(command: list[str], times: int) -> tuple[float, float]:
    """Return the median wall and processor time of a command."""
    walls, cpus = [], []
    for _ in range(times):
        start_s, before_s = time.perf_counter(), spent_s()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        walls.append(time.perf_counter() - start_s)
        cpus.append(spent_s() - before_s)
    return statistics.median(walls) * 1e3, statistics.median(cpus) * 1e3


def main() -> None:
    """Measure and print a table."""
    subprocess.run([BENCHFARM, "bench", "--help"], stdout=subprocess.DEVNULL, check=True)
    for name, (command, times) in COMMANDS.items():
        wall_ms, cpu_ms = medians_ms(command, times)
        print(f"{name:24}{wall_ms:7.0f} ms, {cpu_ms:5.0f} ms of processor time")


if __name__ == "__main__":
    main()
