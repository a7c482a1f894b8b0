"""What a search costs against the full cross product, and whether it finds the same, over all virtual phones.

    python benchmarks/tuning.py [--model M.tflite] [--profile NAME ...] [--most 8] [--speed 60] [--json FILE]

For each virtual phone: 'benchfarm tune', then 'benchfarm bench' with as many processes of every configuration as the
search gives at the most, both with new processes and noise. Device seconds are the phone's own, as its programs print
them: initialisation, warm-up and inferences of every process; those of the parity pass are counted for the search.
"same" is that the search's winner is the full product's fastest or can't be told from it; "named" that the full
product's fastest is the search's winner or among its ties;
"regret" how much slower the search's winner is by the full product's own figures. Virtual phones: no measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
MODEL = REPO / "orchestrator" / "models" / "samples" / "texturenet_0.25_256_float.tflite"
SETS = ("xnnpack_force_fp16=true", "gpu_precision_loss_allowed=false")
DELEGATES, THREADS = "cpu,xnnpack,gpu,nnapi,hexagon", "1,2,4,8"


class Home:
    """The command in a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHFARM", "ADB"))}
        self._environ = {**kept, "BENCHFARM_HOME": str(folder), "ANDROID_ADB_SERVER_PORT": "1"}

    def __call__(self, *words: object) -> Any:  # noqa: ANN401 - whatever the command tells
        command = [Path(sys.executable).with_name("benchfarm"), *map(str, words), "--json"]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        try:
            told = json.loads(done.stdout)
        except ValueError:
            raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr[-2000:]}") from None
        if isinstance(told, dict) and "error" in told:
            raise SystemExit(f"{' '.join(map(str, words))}: {told['error']['message']}")
        return told


def full_product(home: Home, model: Path, serial: str, most: int, min_secs: float, seed: int) -> list[dict[str, Any]]:
    """Return the runs of every configuration, ``most`` of each."""
    plan = home.folder / f"{serial}.yaml"
    sets = [{}, *({name: value == "true"} for name, _, value in (item.partition("=") for item in SETS))]
    plan.write_text(
        json.dumps(
            {
                "models": [str(model)],
                "matrix": {
                    "delegates": DELEGATES.split(","),
                    "threads": [int(count) for count in THREADS.split(",")],
                    "every_thread_count": True,
                    "flags": [{name: str(value).lower() for name, value in item.items()} for item in sets],
                },
                "devices": {"serials": [serial]},
                "settings": {"min_secs": min_secs, "num_runs": 10},
                "invocations": most,
                "reference_check": False,
                "seed": seed,
            }
        )
    )
    return list(home("run", plan)["runs"])


def phone_s(run: dict[str, Any]) -> float:
    """Return the phone's seconds in a process; a lab runs faster than its phones' clocks say."""
    report = run["report"] or {}
    total_us = float(report.get("init_us") or 0)
    for part in ("warmup", "inference"):
        series = report.get(part) or {}
        total_us += (series.get("count") or 0) * (series.get("mean_us") or 0)
    return total_us / 1e6


def judged(runs: list[dict[str, Any]], winner: str) -> tuple[str, set[str], float]:
    """Return the full product's fastest, what can't be told from it, and how much slower the winner is by it."""
    from orchestrator.analysis.compare import best_of
    from orchestrator.analysis.summary import summarize
    from orchestrator.documents import load_document
    from orchestrator.records.workload import Case

    figures: dict[str, list[float]] = {}
    for run in runs:
        report = run["report"]
        if run["outcome"] == "completed" and run["run_pass"] == "timing" and run["verdict"]["quality"] != "rejected":
            configuration = load_document(Case, json.dumps(run["case"]), where="a run").configuration
            figures.setdefault(configuration, []).append(report["inference"]["median_us"])
    summaries = {name: summarize(values) for name, values in figures.items()}
    best = best_of(summaries)
    assert best is not None
    regret = summaries[winner].log_middle.value - summaries[best.fastest].log_middle.value
    return best.fastest, {best.fastest, *best.tied}, regret


def one_phone(profile: str, options: argparse.Namespace) -> dict[str, Any]:
    """Search and measure in full on one virtual phone."""
    home = Home(Path(tempfile.mkdtemp(prefix="benchfarm-tuning-")))
    try:
        serial = home("lab", "up", profile, "--speed", options.speed, "--seed", options.seed)["phones"][0]["serial"]
        words = ("-d", DELEGATES, "-t", THREADS, "--min-secs", options.min_secs, "--most", options.most)
        found = home("tune", options.model, "--phone", serial, *words, "--seed", options.seed)
        search = found["searches"][0]
        runs = full_product(home, options.model, serial, options.most, options.min_secs, options.seed + 1)
        searched = home("results", "runs", found["campaign_id"])
        full_s, search_s = sum(map(phone_s, runs)), sum(map(phone_s, searched))
        fastest, same, regret = judged(runs, search["best"])
        return {
            "profile": profile,
            "configurations": len(search["arms"]),
            "search_processes": search["invocations"],
            "full_processes": len(runs),
            "search_s": search_s,
            "full_s": full_s,
            "share": search_s / full_s,
            "found": search["best"],
            "ties": search["tied"],
            "ended_by": search["ended_by"],
            "fastest": fastest,
            "same": search["best"] in same,
            "named": fastest in {search["best"], *search["tied"]},
            "regret": regret,
        }
    finally:
        home("lab", "down")
        shutil.rmtree(home.folder, ignore_errors=True)


def main() -> None:
    """Run it and print a table."""
    shipped = sorted(path.stem for path in (REPO / "lab" / "src" / "benchfarm_lab" / "profiles").glob("*.yaml"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--profile", action="append", choices=shipped)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--min-secs", type=float, default=1.0)
    parser.add_argument("--speed", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.model = options.model.resolve()
    found = []
    for profile in options.profile or shipped:
        item = one_phone(profile, options)
        found.append(item)
        print(
            f"{profile:20} {item['search_processes']:4} of {item['full_processes']:4} processes  "
            f"{item['search_s']:7.1f} of {item['full_s']:7.1f} s ({item['share']:.0%})  "
            f"same {item['same']}  named {item['named']}  regret {item['regret']:+.2%}  ties {len(item['ties'])}  "
            f"{item['found']}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    searched, full = sum(item["search_s"] for item in found), sum(item["full_s"] for item in found)
    same = sum(item["same"] for item in found)
    print(f"all: {searched:.1f} of {full:.1f} phone seconds ({searched / full:.0%}); same {same} of {len(found)}")


if __name__ == "__main__":
    main()
