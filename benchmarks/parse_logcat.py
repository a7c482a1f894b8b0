"""How fast a phone's log is read, against a plain line-by-line regular-expression loop over the
same file.

Both readers get the same file in the same process, in turns, and must find the same results. The
log is made here: system lines of many tags as a phone writes them, with the lines of some benchmark
runs among them. Prints JSON; the figure to look at is ``ratio``.

    python benchmarks/parse_logcat.py [--megabytes 100] [--runs 20] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.extensions.interop.texts.output import iterate_file

RUN = """\
STARTING!
Log parameter values verbosely: [0]
Num threads: [4]
Graph: [/data/local/tmp/model.tflite]
Loaded model /data/local/tmp/model.tflite
Created TensorFlow Lite XNNPACK delegate for CPU.
Replacing 539 out of 548 node(s) with delegate (TfLiteXNNPackDelegate) node, yielding 19 partitions for subgraph 0.
The input model file size (MB): 3.06409
Initialized session in 92.318ms.
Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if exceeding 150 seconds.
count=3 first=235158 curr=200386 min=199462 max=235158 avg=211669 std=16613 p5=199462 median=200386 p95=235158
Running benchmark for at least 25 iterations and at least 1 seconds but terminate if exceeding 150 seconds.
count=25 first={avg} curr=140990 min=140071 max=195121 avg={avg} std=13583 p5=140545 median=141253 p95=187533
Inference timings in us: Init: 92318, First inference: 235158, Warmup (avg): 211669, Inference (avg): {avg}
Memory footprint delta from the start of the tool (MB): init=54.2852 overall=73.4102
"""
SYSTEM = (
    (
        "ActivityManager",
        "Start proc {n}:com.example.app{n}/u0a{n} for service {{com.example.app{n}/.SyncService}}",
    ),
    ("WifiHAL ", "rtt scan {n} took {n} ms, rssi -{n} dBm, next in {n} s"),
    ("chatty  ", "uid=1000(system) Binder:{n}_{n} identical {n} lines"),
    (
        "ThermalHal",
        "ThermalWatcherCallback: sensor cpu-{n}-usr at 4{n}.{n} deg, throttling status LIGHT",
    ),
    ("SurfaceFlinger", "Finished setting power mode {n} on display {n}, refresh rate 60.{n} Hz"),
    (
        "SELinux ",
        "avc:  granted  {{ find }} for pid={n} uid={n} name=activity_task scontext=u:r:untrusted_app:s0",
    ),
    ("bt_btif ", "btif_dm_search_services_evt: event = {n}, status {n}"),
)

HEADER = re.compile(
    r"^(\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})\s+(\d+)\s+(\d+) ([VDIWEF]) (.*?)\s*: (.*)$"
)
MESSAGES = tuple(
    re.compile(pattern)
    for pattern in (
        r"STARTING!",
        r"(.*?): \[(.*)\]$",
        r"Replacing (\d+) out of (\d+) node\(s\) with delegate \((.*?)\) node, yielding (\d+) partitions",
        r"Initialized session in ([\d.]+)ms",
        r"count=(\d+) first=(\d+) curr=(\d+) min=(\d+) max=(\d+) avg=([\d.e+]+) std=(\d+)",
        r"Inference timings in us: Init: (\d+), First inference: (\d+), Warmup[^:]*: (\S+), Inference[^:]*: (.+)",
        r"Memory footprint delta from the start of the tool \(MB\): init=([\d.]+) overall=([\d.]+)",
    )
)


def write_log(path: Path, megabytes: int, runs: int) -> list[float]:
    """Write the log and return the averages of its runs."""
    dice = random.Random(7)
    averages = [100_000.0 + number for number in range(runs)]
    system = [
        f"{tag}: {text.format(n=dice.randrange(10, 9999))}"
        for tag, text in (dice.choice(SYSTEM) for _ in range(5000))
    ]
    lines_per_run = megabytes * 1_000_000 // runs // 107
    with path.open("w", encoding="ascii") as file:
        for number, average in enumerate(averages):
            pid = 20_000 + number
            own = RUN.format(avg=f"{average:.6g}").splitlines()
            gap = lines_per_run // len(own)
            for index, text in enumerate(own):
                stamp = f"11-21 {number % 24:02d}:{index:02d}:07.138"
                file.writelines(
                    f"{stamp} {dice.randrange(900, 1999):5d}  1999 I {dice.choice(system)}\n"
                    for _ in range(gap)
                )
                file.write(f"{stamp} {pid} {pid} I tflite  : {text}\n")
    return averages


def read_plainly(path: Path) -> list[float]:
    """The reader that one writes first: every line, a pattern for its header, then the patterns for
    its message."""
    averages = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            header = HEADER.match(line)
            if header is None or header[5] not in {"tflite", "litert"}:
                continue
            for pattern in MESSAGES:
                match = pattern.match(header[6])
                if match:
                    if pattern is MESSAGES[5]:
                        averages.append(float(match[4]))
                    break
    return averages


def peak_anonymous_mb(path: Path) -> int:
    """Return how much memory of its own (not the file's mapped pages) a process holds after reading
    the file."""
    code = (
        "import sys; from pathlib import Path; from orchestrator.extensions.interop.texts.output import iterate_file; "
        "tuple(iterate_file(Path(sys.argv[1]))); "
        "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('RssAnon')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
    )
    return round(int(answer.stdout) / 1000)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, default=100)
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--repeats", type=int, default=3)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logcat.txt"
        averages = write_log(path, options.megabytes, options.runs)
        size_mb = path.stat().st_size / 1e6
        with path.open("rb") as file:
            while file.read(1_000_000):  # both readers find the file in the page cache
                pass
        peak_mb = peak_anonymous_mb(path)
        ours_s = plain_s = float("inf")
        for _ in range(options.repeats):
            # Alternately, and the best of each: other work on the computer slows both.
            started_s = time.perf_counter()
            found = [report.inference_mean_us for report in iterate_file(path)]
            ours_s = min(ours_s, time.perf_counter() - started_s)
            started_s = time.perf_counter()
            plain = read_plainly(path)
            plain_s = min(plain_s, time.perf_counter() - started_s)
            if not found == plain == averages:
                raise SystemExit("the two readers don't agree")
    print(
        json.dumps(
            {
                "size_mb": round(size_mb, 1),
                "runs": len(found),
                "benchfarm_mb_per_s": round(size_mb / ours_s, 1),
                "plain_loop_mb_per_s": round(size_mb / plain_s, 1),
                "ratio": round(plain_s / ours_s, 1),
                "benchfarm_own_memory_mb": peak_mb,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
