"""Record noise again: fresh LiteRT processes on this computer, the litert tool through benchfarm,
and virtual phones.

Writes noise.json beside this file, all of it or the parts that are named (processes, tool,
virtual); takes some minutes. Figures of virtual phones are marked virtual.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent
SAMPLES = HERE.parent.parent / "orchestrator" / "models" / "samples"
BENCHFARM = Path(sys.executable).with_name("benchfarm")
PROCESSES, RUNS, WARM_S = 80, 50, 0.2
TOOL_INVOCATIONS, VIRTUAL_INVOCATIONS = 60, 60


def main() -> None:
    parts = {"processes": processes, "tool": through_benchfarm, "virtual": virtual_phones}
    for name in sys.argv[1:] or parts:
        keep(parts[name]())


def keep(series: list[dict]) -> None:
    """Put series into the file in the place of those from the same source."""
    path = HERE / "noise.json"
    data = json.loads(path.read_text()) if path.exists() else {"series": []}
    sources = {item["source"] for item in series}
    data = {
        "what": "latencies in microseconds; 'samples_us' are a process's own inferences, where they are known",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, shared with other work",
        "series": [*(item for item in data["series"] if item["source"] not in sources), *series],
    }
    path.write_text(compact(json.dumps(data, indent=1)) + "\n")


def processes() -> list[dict]:
    """Fresh processes, round by round over models and threads, each inference timed."""
    cases = [(model, threads) for model in sorted(SAMPLES.glob("*.tflite")) for threads in (1, 2)]
    found = {case: [] for case in cases}
    begin = time.monotonic()
    for _ in range(PROCESSES):
        for model, threads in cases:
            command = [
                sys.executable,
                str(HERE / "one_process.py"),
                str(model),
                str(threads),
                str(RUNS),
                str(WARM_S),
            ]
            done = subprocess.run(command, capture_output=True, check=True)
            samples = [round(ns / 1000, 1) for ns in json.loads(done.stdout.splitlines()[-1])]
            found[model, threads].append(
                {"at_s": round(time.monotonic() - begin, 1), "samples_us": samples}
            )
    return [
        {
            "name": f"{model.stem}, {threads} threads",
            "source": "LiteRT processes",
            "virtual": False,
            "invocations": rows,
        }
        for (model, threads), rows in found.items()
    ]


def through_benchfarm() -> list[dict]:
    """A campaign of benchfarm's own litert tool on this computer; the program prints summaries
    only.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = f"""
name: noise
models: [{json.dumps(str(SAMPLES / "texturenet_0.25_256_float.tflite"))}]
devices: {{host: true}}
matrix: {{threads: [1, 2]}}
settings: {{min_secs: 0.1, warmup_min_secs: 0.1}}
invocations: {TOOL_INVOCATIONS}
"""
        return campaign(Path(folder), plan, source="litert tool", virtual=False)


def virtual_phones() -> list[dict]:
    """A campaign over adb on two virtual phones."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        try:
            up = json.loads(
                benchfarm(home, "virtual", "up", "pixel-4", "galaxy-s23", "--speed", "50", "--json")
            )
            serials = [phone["serial"] for phone in up["phones"]]
            plan = f"""
name: noise
models: [{json.dumps(str(SAMPLES / "texturenet_0.25_256_float.tflite"))}]
devices: {{serials: {json.dumps(serials)}}}
matrix: {{delegates: [xnnpack, gpu], threads: [4]}}
settings: {{min_secs: 0.2, warmup_min_secs: 0.1}}
invocations: {VIRTUAL_INVOCATIONS}
"""
            return campaign(home, plan, source="virtual phones", virtual=True)
        finally:
            benchfarm(home, "virtual", "down")


def campaign(home: Path, plan: str, *, source: str, virtual: bool) -> list[dict]:
    path = home / "plan.yaml"
    path.write_text(plan)
    done = subprocess.run(
        [BENCHFARM, "--home", home, "run", path], capture_output=True, text=True, check=False
    )
    if done.returncode > 1:
        sys.exit(done.stderr)
    found: dict[str, list[dict]] = {}
    runs = json.loads(benchfarm(home, "results", "runs", "--json"))
    begin = datetime.fromisoformat(runs[0]["started_at"])
    for run in runs:
        if run["outcome"] != "completed":
            continue
        case, inference = run["case"], run["report"]["inference"]
        name = f"{case['model_name']}, {case['delegate']}, {case['threads']} threads"
        if virtual:
            name = f"{case['serial']}: {name}"
        at_s = (datetime.fromisoformat(run["started_at"]) - begin).total_seconds()
        row = {
            key: inference[key]
            for key in ("count", "mean_us", "median_us", "std_us", "p5_us", "p95_us")
        }
        found.setdefault(name, []).append({"at_s": round(at_s, 1), **row})
    return [
        {"name": name, "source": source, "virtual": virtual, "invocations": rows}
        for name, rows in sorted(found.items())
    ]


def benchfarm(home: Path, *words: str) -> str:
    return subprocess.run(
        [BENCHFARM, "--home", home, *words], capture_output=True, text=True, check=True, timeout=900
    ).stdout


def compact(text: str) -> str:
    """Put the innermost lists and objects on one line each, so that the file stays small and its
    changes readable."""
    import re

    return re.sub(r"\[[^][{}]*\]|\{[^{}]*\}", lambda found: re.sub(r"\s+", " ", found[0]), text)


if __name__ == "__main__":
    main()
