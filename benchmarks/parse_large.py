"""How long reading takes that is as bad as it can be, against a plain pass over the same lines in
the same process.

Each case is one file of the size that is asked for: plain lines before a run, "Replacing" lines,
rows of an operator table, runs after runs, and a sentence that is begun and never ended. What
counts is the ratio to the pass that only takes each line out of the file, and that neither it nor
the memory grows with the size.

Times are the processor's, which a busy machine hardly changes. Run it:
``python benchmarks/parse_large.py [--megabytes 100] [--case NAME]``.
"""

from __future__ import annotations

import argparse
import mmap
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.extensions.interop.texts.output import iterate_file

_RUN: Final = """\
STARTING!
Log parameter values verbosely: [0]
Num threads: [4]
Graph: [/data/local/tmp/model_{number}.tflite]
Loaded model /data/local/tmp/model_{number}.tflite
Initialized session in 19.505ms.
count=1000 first=17 curr=4 min=4 max=17 avg=4.2 std=0
Inference timings in us: Init: 19505, First inference: 17, Warmup (avg): 4.5, Inference (avg): 4.{number}
"""
_ROWS: Final = (
    "Operator-wise Profiling Info for Regular Benchmark Runs:\n"
    "============================== Run Order ==============================\n"
    "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"
)


def _plain(number: int) -> str:
    return (
        f"this is line {number} of what another program printed, of which nothing is to be taken\n"
    )


def _replacing(number: int) -> str:
    return (
        f"INFO: Replacing {number} out of {number + 9} node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 3 "
        f"partitions for subgraph {number}.\n"
    )


def _row(number: int) -> str:
    figures = "\t".join(("0.035", "0.027", "1.000%", "100.000%", "0.000", "1"))
    return f"\t                 CONV_2D\t{figures}\t[MobilenetV1/Conv_{number}]:{number}\n"


def _sentence(number: int) -> str:
    return (
        "Explicitly applied GPU delegate, and the model graph will be\n"
        if number == 0
        else "and the model graph will be\n"
    )


CASES: Final = {
    "plain": ("", _plain, _RUN.format(number=1)),
    "replacing": (
        _RUN.split("Loaded", maxsplit=1)[0],
        _replacing,
        _RUN.partition("Loaded")[2].format(number=1),
    ),
    "rows": (_RUN.format(number=1) + _ROWS, _row, ""),
    "runs": ("", lambda number: _RUN.format(number=number), ""),
    "sentence": ("STARTING!\n", _sentence, _RUN.format(number=1)),
}


def write(path: Path, case: str, size: int) -> None:
    """Write one case's file of about ``size`` bytes."""
    before, line, after = CASES[case]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        written, number = file.write(before), 0
        while written < size:
            written += file.write(line(number))
            number += 1
        file.write(after)


def _pass_over(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return sum(1 for _ in _ends(mapped))


def _ends(mapped: mmap.mmap) -> Iterator[str]:
    start = 0
    while (end := mapped.find(b"\n", start)) >= 0:
        yield mapped[start:end].decode("utf-8", "replace")
        start = end + 1


def _measure(path: Path) -> str:
    started = time.process_time()
    lines = _pass_over(path)
    plain_s = time.process_time() - started
    started = time.process_time()
    runs = sum(1 for _ in iterate_file(path))
    read_s = time.process_time() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{runs}\t{lines}\t{plain_s:.2f}\t{read_s:.2f}\t{peak_mib:.0f}"


def main() -> None:
    """Print a table: a line a case, each measured in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(_measure(options.measure))
        return
    print(
        f"{'case':<12}{'MB':>6}{'runs':>9}{'lines':>10}{'pass (s)':>10}{'read (s)':>10}{'ratio':>7}{'peak (MiB)':>12}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        for case in options.case or CASES:
            write(path, case, int(options.megabytes * 1e6))
            told = subprocess.run(
                [sys.executable, __file__, "--measure", str(path)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            runs, lines, plain_s, read_s, peak = told.split()
            ratio = float(read_s) / max(float(plain_s), 0.01)
            print(
                f"{case:<12}{options.megabytes:>6g}{runs:>9}{lines:>10}{plain_s:>10}{read_s:>10}{ratio:>7.1f}{peak:>12}",
                flush=True,
            )


if __name__ == "__main__":
    main()
