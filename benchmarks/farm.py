"""Many virtual phones at once: a plan's wall time over its bound, processor time for each
invocation, and memory.

The bound is the busiest phone's own measuring time: what its programs say that initialization,
warm-up and runs took. Beside it the same runs by hand: the files are there already, and a loop of
``adb shell`` for each phone, all at once, through the same server to the same phones. It doesn't
look at temperatures, verify, judge, store or report.

What a command costs once (start, opening phones, the report) is found by a plan of one round, and
told apart: "further" is by how much a night of many rounds is longer than its bound, and what each
further invocation costs.

Processor time is told apart by who spends it: benchfarm's own process (by hand: the loops and their
adb clients), the adb server, and the lab, whose interpreter of shell scripts stands in for phones
that have cores of their own. Where the three together keep this computer's cores busy, the wall
time says how fast the lab is, not how fast benchfarm is.

    python benchmarks/farm.py [--invocations 12] [--seconds 2] [PHONES...]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.devices.adb_server import parse_address
from orchestrator.models.inspect import sample_models
from orchestrator.processes import running

BENCHFARM = Path(sys.executable).with_name("benchfarm")
PROFILES = ("pixel-3", "pixel-4")
#: Runs a command and tells wall time, processor time and peak memory of that command alone.
MEASURED = (
    "import json, resource, subprocess, sys, time; s = time.perf_counter(); d = subprocess.run(sys.argv[2:], "
    "stdout=open(sys.argv[1], 'w')); w = time.perf_counter() - s; r = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(json.dumps([d.returncode, w, r.ru_utime + r.ru_stime, r.ru_maxrss]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """What a way of running all cases came to."""

    wall_s: float
    bound_s: float
    cpu_s: float
    server_s: float
    lab_s: float
    peak_mb: float
    runs: int

    def __str__(self) -> str:
        busy = (self.cpu_s + self.server_s + self.lab_s) / self.wall_s / (os.cpu_count() or 1)
        return (
            f"{self.runs:5d} runs  bound {self.bound_s:6.1f} s  wall {self.wall_s:6.1f} s = "
            f"{self.wall_s / self.bound_s:.3f} of it  {self.peak_mb:4.0f} MB  cores {100 * busy:3.0f} % busy  "
            f"each: {self._each_ms(self.cpu_s)}, server {self._each_ms(self.server_s)}, lab {self._each_ms(self.lab_s)}"
        )

    def _each_ms(self, spent_s: float) -> str:
        return f"{1000 * spent_s / self.runs:.0f} ms"

    def beyond(self, once: Night) -> str:
        """Return what this night's rounds cost beyond the one of another."""
        ratio = (self.wall_s - once.wall_s) / (self.bound_s - once.bound_s)
        runs = self.runs - once.runs
        own, server, lab = (
            1000 * (mine - others) / runs
            for mine, others in (
                (self.cpu_s, once.cpu_s),
                (self.server_s, once.server_s),
                (self.lab_s, once.lab_s),
            )
        )
        return f"{ratio:.3f} of the bound; each: benchfarm {own:.0f} ms, server {server:.0f} ms, lab {lab:.0f} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The processes that work beside the command that is measured."""

    server_pid: int
    lab_pids: Sequence[int]

    def spent_s(self) -> tuple[float, float]:
        """Return the processor time of the adb server and of the lab since their start."""
        return processor_s(self.server_pid), sum(map(processor_s, self.lab_pids))


def processor_s(pid: int) -> float:
    """Return a process's processor time, 0 where the system doesn't tell (no Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(
    command: Sequence[object], out: Path, env: Mapping[str, str]
) -> tuple[float, float, float]:
    """Return wall seconds, processor seconds and peak megabytes of a command."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(out), *map(str, command)],
        env=dict(env),
        capture_output=True,
        text=True,
    )
    code, wall_s, cpu_s, peak = json.loads(done.stdout)
    if code not in (0, 1):
        raise SystemExit(f"exit code {code}: {done.stderr[-2000:]}")
    return wall_s, cpu_s, peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def spent_s(report: Mapping[str, object]) -> float:
    """Return what a program says that it took."""
    total_us = float(report["init_us"] or 0.0)  # type: ignore[arg-type]
    for name in ("warmup", "inference"):
        summary = report[name]
        assert isinstance(summary, dict)
        total_us += summary["count"] * summary["mean_us"]
    return total_us / 1e6


def by_benchfarm(
    work: Path, env: Mapping[str, str], plan: Path, beside: Beside
) -> tuple[Night, list[dict[str, object]]]:
    """Run a plan, and return how it went, with its runs."""
    out = work / "result.json"
    before_s = beside.spent_s()
    wall_s, cpu_s, peak_mb = measured([BENCHFARM, "run", plan, "--json"], out, env)
    server_s, lab_s = (
        after - before for before, after in zip(before_s, beside.spent_s(), strict=True)
    )
    result = json.loads(out.read_text("utf-8"))
    runs = result["runs"]
    busy: dict[str, float] = defaultdict(float)
    for run in runs:
        if run["outcome"] == "completed":
            busy[run["case"]["serial"]] += spent_s(run["report"])
    if result["left"] or any(run["outcome"] != "completed" for run in runs):
        print(f"  not whole: {result['left']} left, lost {result['lost']}")
    night = Night(
        wall_s=wall_s,
        bound_s=max(busy.values()),
        cpu_s=cpu_s,
        server_s=server_s,
        lab_s=lab_s,
        peak_mb=peak_mb,
        runs=len(runs),
    )
    return night, runs


def by_hand(
    work: Path,
    env: Mapping[str, str],
    adb: str,
    addresses: Mapping[str, str],
    runs: Sequence[dict[str, object]],
    beside: Beside,
) -> Night:
    """Run the same commands with a loop of ``adb shell`` for each phone."""
    folder = work / "by-hand"
    folder.mkdir(exist_ok=True)
    scripts: dict[str, list[str]] = defaultdict(list)
    for number, run in enumerate(runs):
        serial = run["case"]["serial"]  # type: ignore[index]
        command = re.sub(r"/\S*/runs/\w+/", "/data/local/tmp/", str(run["command"]))
        log = shlex.quote(str(folder / f"{serial}.{number}.txt"))
        scripts[serial].append(
            f"{adb} -s {addresses[serial]} shell {shlex.quote(command)} >{log} 2>&1"
        )
    for serial, lines in scripts.items():
        (folder / f"{serial}.sh").write_text("\n".join(lines) + "\n")
    everything = (
        " ".join(f"sh {shlex.quote(str(folder / f'{serial}.sh'))} &" for serial in scripts)
        + " wait"
    )
    before_s = beside.spent_s()
    wall_s, cpu_s, peak_mb = measured(["sh", "-c", everything], work / "out.txt", env)
    server_s, lab_s = (
        after - before for before, after in zip(before_s, beside.spent_s(), strict=True)
    )
    busy = {serial: sum(map(told_s, folder.glob(f"{serial}.*.txt"))) for serial in scripts}
    return Night(
        wall_s=wall_s,
        bound_s=max(busy.values()),
        cpu_s=cpu_s,
        server_s=server_s,
        lab_s=lab_s,
        peak_mb=peak_mb,
        runs=len(runs),
    )


def told_s(log: Path) -> float:
    """Return what the program says in its log that it took."""
    text = log.read_text("utf-8", "replace")
    init = re.search(r"Initialized session in ([\d.]+)ms", text)
    assert init, text[:500]
    counted = re.findall(r"count=(\d+).*? avg=([\d.e+]+)", text)
    return float(init[1]) / 1e3 + sum(int(count) * float(mean) for count, mean in counted) / 1e6


def compare(phones: int, *, invocations: int, seconds: float) -> None:
    """Measure both ways with so many phones, and print a line for each."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        env = {**os.environ, "BENCHFARM_HOME": str(work / "home"), "ANDROID_ADB_SERVER_PORT": "1"}

        def benchfarm(*words: object) -> str:
            command = [str(BENCHFARM), *map(str, words)]
            return subprocess.run(
                command, env=env, check=True, capture_output=True, text=True
            ).stdout

        def plan(rounds: int) -> Path:
            path = work / f"plan-{rounds}.yaml"
            path.write_text(
                f"models: [{json.dumps(str(sample_models()[0]))}]\n"
                "matrix: {delegates: [xnnpack], threads: [1, 2]}\ndevices: {where: virtual}\n"
                f"settings: {{min_secs: {seconds}, warmup_min_secs: 0.5}}\ninvocations: {rounds}\n"
                "reference_check: false\n"
            )
            return path

        benchfarm("virtual", "up", *(PROFILES[number % 2] for number in range(phones)))
        try:
            server = next(
                s for s in json.loads(benchfarm("adb", "status", "--json"))["servers"] if s["ours"]
            )
            binary = json.loads(benchfarm("adb", "status", "--json"))["binary"]
            adb = f"{shlex.quote(binary)} -L {shlex.quote(parse_address(server['address']).spec)}"
            addresses = {
                p["serial"]: p["address"]
                for p in json.loads(benchfarm("virtual", "list", "--json"))["phones"]
            }
            state = work / "home" / "state" / "virtual"
            beside = Beside(
                server_pid=running(
                    ("-L", parse_address(server["address"]).spec, "server", "nodaemon")
                )[0].pid,
                lab_pids=[
                    json.loads(told.read_text())["pid"] for told in state.rglob("virtual.json")
                ],
            )
            load = os.getloadavg()[0]
            # The first makes the programs and sends the files.
            by_benchfarm(work, env, plan(1), beside)
            once, _ = by_benchfarm(work, env, plan(1), beside)
            farm, runs = by_benchfarm(work, env, plan(invocations), beside)
            print(
                f"{phones:4d} phones, load {load:.1f} before, {os.getloadavg()[0]:.1f} after",
                flush=True,
            )
            print(f"  benchfarm      {farm}", flush=True)
            print(f"         further {farm.beyond(once)}", flush=True)
            print(
                f"  adb shell loop {by_hand(work, env, adb, addresses, runs, beside)}", flush=True
            )
        finally:
            benchfarm("virtual", "down")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phones", nargs="*", type=int, default=[1, 5, 20, 100])
    parser.add_argument("--invocations", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    for phones in options.phones:
        compare(phones, invocations=options.invocations, seconds=options.seconds)


if __name__ == "__main__":
    main()
