"""Wall time of ``benchfarm bench`` on one virtual phone against a hand-written adb script that does
the same steps.

Both go through the same adb server to the same phone, whose link carries what a USB 2 phone's does
(30 MB/s) and whose time is real. The script pushes program and model, makes the program executable,
and then for every invocation reads temperatures and battery, runs the program with the same flags,
reads them again and pulls the result file: what people write by hand. It doesn't verify, judge,
store or report; benchfarm does. That benchfarm compares the outputs of what is new with the
reference's, once, is told apart.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.app.virtual_phones import fake_build
from orchestrator.devices.adb_server import parse_address
from orchestrator.models.inspect import sample_models
from orchestrator.records.case import ToolName

BENCHFARM = Path(sys.executable).with_name("benchfarm")
PROFILE, SERIAL = "pixel-4", "VIRTUAL-PIXEL-4"
#: An EfficientNet-Lite4 in float32 has about as many.
MODEL_BYTES = 50_000_000
LINK_BYTES_PER_S = 30_000_000
CONFIGURATIONS = (("cpu", 1), ("cpu", 4), ("xnnpack", 1), ("xnnpack", 4))
INVOCATIONS = 3
FOLDER = "/data/local/tmp/by-hand"


def script(adb: str, model: Path, program: Path) -> str:
    """Return the hand-written script."""
    lines = [
        "set -e",
        f"{adb} shell mkdir -p {FOLDER}",
        f"{adb} push {shlex.quote(str(program))} {FOLDER}/benchmark_model",
        f"{adb} push {shlex.quote(str(model))} {FOLDER}/model.tflite",
        f"{adb} shell chmod 755 {FOLDER}/benchmark_model",
    ]
    state = f"{adb} shell 'cat /sys/class/thermal/thermal_zone*/temp; dumpsys battery; dumpsys thermalservice' >>state.txt"
    for number in range(INVOCATIONS):
        for delegate, threads in CONFIGURATIONS:
            flags = (
                f"--graph={FOLDER}/model.tflite --num_threads={threads} --num_runs=50 --min_secs=1 --max_secs=150 "
                f"--warmup_runs=1 --warmup_min_secs=0.5 --use_xnnpack={'true' if delegate == 'xnnpack' else 'false'} "
                f"--result_file_path={FOLDER}/r.pb"
            )
            lines += [
                state,
                f"{adb} shell taskset f0 {FOLDER}/benchmark_model {flags} >log-{delegate}-{threads}-{number}.txt 2>&1",
                state,
                f"{adb} exec-out cat {FOLDER}/r.pb >r-{delegate}-{threads}-{number}.pb",
            ]
    return "\n".join(lines)


def main() -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        env = {**os.environ, "BENCHFARM_HOME": str(work / "home"), "ANDROID_ADB_SERVER_PORT": "1"}

        def benchfarm(*words: object) -> str:
            command = [str(BENCHFARM), *map(str, words)]
            return subprocess.run(
                command, env=env, check=True, capture_output=True, text=True
            ).stdout

        model = work / "model.tflite"
        sample = sample_models()[0].read_bytes()
        model.write_bytes(sample + bytes(MODEL_BYTES - len(sample)))
        program = fake_build(work / "programs", ToolName.NATIVE, "arm64-v8a").path
        assert program is not None
        benchfarm("virtual", "up", PROFILE)
        try:
            benchfarm("virtual", "fault", SERIAL, "slow", f"bytes_per_s={LINK_BYTES_PER_S}")
            status = benchfarm("adb", "status", "--json")
            known = json.loads(status)
            server = next(
                item["address"] for item in known["servers"] if item["for"] == "virtual phones"
            )
            address = json.loads(benchfarm("virtual", "list", "--json"))["phones"][0]["address"]
            adb = f"{shlex.quote(known['binary'])} -L {shlex.quote(parse_address(server).spec)} -s {address}"

            def by_hand() -> float:
                start_s = time.perf_counter()
                subprocess.run(
                    ["sh", "-c", script(adb, model, program)],
                    cwd=work,
                    check=True,
                    capture_output=True,
                )
                return time.perf_counter() - start_s

            def by_benchfarm(*more: str) -> float:
                start_s = time.perf_counter()
                options = ["-s", SERIAL, "-d", "cpu,xnnpack", "-t", "1,4", "-n", INVOCATIONS]
                benchfarm("bench", model, *options, *more)
                return time.perf_counter() - start_s

            first_s = by_benchfarm("--no-check-outputs")
            hand_s = by_hand()
            again_s = by_benchfarm("--no-check-outputs")
            hand_again_s = by_hand()
            checked_s = by_benchfarm()
        finally:
            benchfarm("virtual", "down")
    runs = INVOCATIONS * len(CONFIGURATIONS)
    print(
        f"{runs} invocations, a model of {MODEL_BYTES / 1e6:.1f} MB, a link of {LINK_BYTES_PER_S / 1e6:.0f} MB/s"
    )
    print(f"script by hand       {hand_s:6.2f} s, again {hand_again_s:6.2f} s")
    print(
        f"benchfarm, first     {first_s:6.2f} s   {first_s / hand_s:.2f} of the script (goal: at most 1.15)"
    )
    print(
        f"benchfarm, again     {again_s:6.2f} s   {again_s / hand_again_s:.2f} of the script (goal: less than 1)"
    )
    print(
        f"comparing the outputs of {len(CONFIGURATIONS)} configurations {checked_s - again_s:.2f} s"
    )


if __name__ == "__main__":
    main()
