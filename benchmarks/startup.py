"""Start-up: ``benchfarm --help`` against a bare interpreter, and against the same command with
eager imports."""

from __future__ import annotations

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


def median_s(command: list[str], times: int) -> float:
    """Return the median wall time of a command."""
    spans = []
    for _ in range(times):
        start_s = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        spans.append(time.perf_counter() - start_s)
    return statistics.median(spans)


def main() -> None:
    """Measure and print a table."""
    subprocess.run([BENCHFARM, "--help"], stdout=subprocess.DEVNULL, check=True)
    bare_s = median_s([sys.executable, "-c", "pass"], 15)
    lazy_s = median_s([BENCHFARM, "--help"], 15)
    eager_s = median_s([sys.executable, "-c", EAGER], 3)
    print(f"bare interpreter          {bare_s * 1e3:7.0f} ms")
    print(f"benchfarm --help          {lazy_s * 1e3:7.0f} ms   (goal: at most 300 ms)")
    print(
        f"the same, eager imports   {eager_s * 1e3:7.0f} ms   {eager_s / lazy_s:.1f} times as long"
    )


if __name__ == "__main__":
    main()
