"""Memory and idle CPU of a lab of 100 virtual phones, against a lab of one, each phone connected
and asked once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCHFARM = Path(sys.executable).with_name("benchfarm")
IDLE_S = 5.0


def lab(phones: int) -> tuple[float, float]:
    """Return (resident MB, CPU seconds per second while idle) of a lab's processes."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "BENCHFARM_HOME": home, "ANDROID_ADB_SERVER_PORT": "1"}

        def benchfarm(*words: str) -> str:
            return subprocess.run(
                [BENCHFARM, *words], env=env, check=True, capture_output=True, text=True
            ).stdout

        benchfarm("virtual", "up", *["pixel-4"] * phones)
        pids = [
            json.loads(told.read_text("utf-8"))["pid"]
            for told in Path(home, "state", "virtual").rglob("virtual.json")
        ]
        try:
            assert len(json.loads(benchfarm("devices", "--json"))) == phones
            before_s = sum(map(cpu_s, pids))
            time.sleep(IDLE_S)
            return sum(map(resident_mb, pids)), (sum(map(cpu_s, pids)) - before_s) / IDLE_S
        finally:
            benchfarm("virtual", "down")


def resident_mb(pid: int) -> float:
    """Return a process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
        * 1024
        / 1e6
    )


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print a table."""
    one_mb, one_idle = lab(1)
    many_mb, many_idle = lab(100)
    print(f"  1 phone   {one_mb:6.0f} MB, idle {one_idle:.1%} of a core")
    print(f"100 phones  {many_mb:6.0f} MB, idle {many_idle:.1%} of a core   (goal: at most 300 MB)")
    print(f"            {many_mb / one_mb:6.2f} times the memory of one")


if __name__ == "__main__":
    main()
