"""Peak memory of ``benchfarm run`` for a campaign of 200 cases, against a campaign of one case in
the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from orchestrator.models.inspect import sample_models

BENCHFARM = Path(sys.executable).with_name("benchfarm")
CASES = 200

#: Runs a command and tells the peak resident memory of that command alone.
MEASURED = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, "
    "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def plan_text(cases: int) -> str:
    """Return a plan of so many cases: sets of a flag that changes nothing on the CPU."""
    flags = (
        ", ".join(f"{{max_delegated_partitions: {number}}}" for number in range(1, cases // 2 + 1))
        or "{}"
    )
    delegates = "[cpu, xnnpack]" if cases > 1 else "[cpu]"
    return (
        f"models: [{json.dumps(str(sample_models()[0]))}]\n"
        f"matrix: {{delegates: {delegates}, threads: 1, flags: [{flags}]}}\n"
        "devices: {where: virtual}\nsettings: {min_secs: 0.2, warmup_min_secs: 0.1}\ninvocations: 1\n"
    )


def main() -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        env = {**os.environ, "BENCHFARM_HOME": str(work / "home"), "ANDROID_ADB_SERVER_PORT": "1"}

        def peak_mb(cases: int) -> float:
            plan = work / f"{cases}.yaml"
            plan.write_text(plan_text(cases))
            command = [sys.executable, "-c", MEASURED, str(BENCHFARM), "run", str(plan)]
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            return int(done.stdout) * (1 if sys.platform == "darwin" else 1024) / 1e6

        subprocess.run(
            [BENCHFARM, "virtual", "up", "pixel-4", "--speed", "50"],
            env=env,
            check=True,
            capture_output=True,
        )
        try:
            one, many = peak_mb(1), peak_mb(CASES)
        finally:
            subprocess.run([BENCHFARM, "virtual", "down"], env=env, check=True, capture_output=True)
    print(f"a campaign of   1 case                 {one:6.0f} MB")
    print(
        f"a campaign of {CASES} cases                {many:6.0f} MB   {many / one:.2f} times as much"
    )


if __name__ == "__main__":
    main()
