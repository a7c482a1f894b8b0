"""What happens to this computer while a campaign runs: processes killed, disks full, clocks that jump; nothing is lost.

``make fault-matrix`` gives all of it; without FAULT_MATRIX=all a few of the phases are drawn from a seed.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import c_compiler, poll_until
from tests.e2e.conftest import Lab
from tests.samples.faulty_lab import (
    SEED,
    WHOLE,
    Counts,
    changed,
    clear,
    counts_of,
    faults_of,
    finished,
    give,
    plan_of,
    reached,
    server_pid,
    watched,
)
from tests.samples.places import BENCHFARM

MOMENTS = (
    "open:shell", "open:sync", "push", "push:done", "start", "init", "delegate", "warmup", "run", "results",
)  # fmt: skip
#: At which moment of a phone, or line of its own, the process is killed.
DEATHS = (*MOMENTS, "line: 1/", "line: 2/")


def drawn(phases: tuple[str, ...]) -> list[str]:
    return list(phases) if WHOLE else random.Random(SEED).sample(phases, 2)


def ended(process: subprocess.Popen[str]) -> str:
    """Kill a process as a power cut does; return what it had told beside what was read."""
    process.kill()
    return process.communicate()[1]


def test_a_run_killed_at_any_phase_is_finished_by_a_resume(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    """Each but the first to be killed is a ``run --resume`` itself."""
    lab = matrix_lab
    before = changed(lab)
    deaths = drawn(DEATHS)
    cases = 2 + len(deaths)
    plan = plan_of(model, tmp_path, cases=cases, min_secs=1.0)
    # Before anything is stored there is nothing to resume: it begins anew.
    process = lab.cli.start("run", plan)
    assert reached(lab, lab.serials[0], "open:shell", process)
    assert "campaign" not in ended(process)
    process = lab.cli.start("run", plan)
    killed: list[str] = []
    told: list[str] = []
    for death in deaths:
        assert process.stderr is not None
        # Before that nothing is to be resumed.
        mark = death.removeprefix("line") if death.startswith("line") else " invocations on "
        alive = False
        for line in process.stderr:
            told.append(line)
            if alive := mark in line:
                break
        if alive and not death.startswith("line"):
            alive = reached(lab, lab.serials[len(killed) % 4], death, process)
        told.append(ended(process))
        clear(lab)
        if not alive:
            break
        killed.append(death)
        process = lab.cli.start("run", "--resume")
    assert killed == deaths, "".join(told)
    # And while its phones are put back.
    last = []
    assert process.stderr is not None
    for line in process.stderr:
        told.append(line)
        if (stored := re.match(r"\S+ (\S+): (\d+)/(\d+) ", line)) and stored[2] == stored[3]:
            give(lab, stored[1], "hang")
            last.append(stored[1])
            if {*last} == {*lab.serials}:
                break
    told.append(ended(process))
    clear(lab)
    assert sorted(last) == sorted(lab.serials), "".join(told)
    told.append(lab.cli("run", "--resume").ok().stderr)
    runs = finished(lab, "".join(told))
    counts = counts_of(lab, runs, cases, before)
    print(f"\nkilled before all, at {', '.join(killed)}, while phones are put back: {counts}")
    assert counts == Counts(), (counts, "".join(told))
    assert {run["outcome"] for run in runs} == {"completed"}


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_what_a_killed_run_left_on_a_phone_is_ended_by_restore(
    matrix_lab: Lab, model: Path, tmp_path: Path, tool: str
) -> None:
    lab, serial = matrix_lab, matrix_lab.serials[0]
    before = changed(lab)[serial]
    give(lab, serial, "program-hang")
    process = lab.cli.start("bench", model, "-s", serial, "--tool", tool, "-n", "1", "--min-secs", "0.1")
    poll_until(lambda: not faults_of(lab, serial), "the program hangs", timeout_s=60)
    ended(process)
    assert "benchmark" in changed(lab)[serial], "nothing was left"
    lab.cli("restore", serial).ok()
    assert changed(lab)[serial] == before


def test_the_adb_server_killed_at_any_phase_costs_nothing(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    lab = matrix_lab
    before = changed(lab)
    phases = drawn(MOMENTS)
    cases = 2 + 3 * len(phases)
    process = lab.cli.start("run", plan_of(model, tmp_path, cases=cases, min_secs=1.0))
    assert process.stderr is not None
    killed: list[str] = []
    told: list[str] = []
    #: Phones that have stored nothing since the server was killed: none is to try a run three times in vain.
    waiting = {*lab.serials}
    for line in process.stderr:
        told.append(line)
        if (stored := re.match(r"\S+ (\S+): \d+/\d+ ", line)) is None:
            continue
        waiting.discard(stored[1])
        if waiting or len(killed) == len(phases):
            continue
        assert reached(lab, lab.serials[len(killed) % 4], phases[len(killed)], process), "".join(told)
        os.kill(server_pid(lab), signal.SIGKILL)
        killed.append(phases[len(killed)])
        waiting = {*lab.serials}
    log = "".join(told) + watched(process)
    runs = finished(lab, log)
    counts = counts_of(lab, runs, cases, before)
    print(f"\nadb server killed at {', '.join(killed)}: {counts}")
    assert killed == phases, log
    assert "Traceback" not in log
    assert counts == Counts(), (counts, log)
    assert {run["outcome"] for run in runs} == {"completed"}, log


def test_a_full_disk_stops_a_campaign_with_what_was_stored_and_a_resume_finishes_it(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    plan = plan_of(model, tmp_path, cases=3)
    lab.cli("campaigns").ok()
    stores = [path.stat().st_size for path in lab.cli.home.glob("store.sqlite*")] or [0]
    limit = max(stores) + 400_000

    def limited() -> None:
        # No file may grow beyond it: what the system answers is an error of the disk's, at whatever comes first.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.Popen(
        [BENCHFARM, "run", str(plan)], env=lab.cli.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=limited,
    )  # fmt: skip
    log = watched(process)
    assert process.returncode == 5, log
    assert "Traceback" not in log
    runs = finished(lab, log)
    assert counts_of(lab, runs, 3, before) == Counts(), log


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A folder on which a small disk can be mounted by whoever has a mount table of his own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None or on_a_disk_of_its_own(disk, "true").returncode:
        pytest.skip("no small disk can be mounted here")
    return disk


def on_a_disk_of_its_own(disk: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script that alone sees a disk of 8 MB."""
    mounted = f"mount -t tmpfs -o size=8m tmpfs {shlex.quote(str(disk))} && cd {shlex.quote(str(disk))}\n{script}"
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted], env={**os.environ, **environ},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_a_store_whose_disk_fills_up_or_is_made_read_only_loses_nothing(
    matrix_lab: Lab, model: Path, tmp_path: Path, small_disk: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    plan = plan_of(model, tmp_path, cases=8)
    benchfarm, disk = shlex.quote(str(BENCHFARM)), shlex.quote(str(small_disk))
    script = f"""
        {benchfarm} campaigns >&2
        # A file that leaves 600 kB: enough for the campaign, not for all of its runs.
        head -c $(($(df --output=avail -B1 . | tail -n 1) - 600000)) /dev/zero > filler
        {benchfarm} run {shlex.quote(str(plan))} >&2
        echo full $?
        rm filler
        cd / && mount -o remount,ro {disk}
        {benchfarm} run --resume >&2
        echo read-only $?
        mount -o remount,rw {disk}
        {benchfarm} run --resume >&2
        echo free $?
        cp {disk}/runs.sqlite {shlex.quote(str(tmp_path))}
    """
    done = on_a_disk_of_its_own(small_disk, script, **lab.cli.environ(BENCHFARM_STORE=str(small_disk / "runs.sqlite")))
    assert done.stdout.split("\n")[:3] == ["full 5", "read-only 5", "free 0"], done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    runs = finished(lab, done.stderr, BENCHFARM_STORE=str(tmp_path / "runs.sqlite"))
    stored = len(set(re.findall(r"(\S+: \d+/\d+) ", done.stderr.partition("full 5")[0])))
    counts = counts_of(lab, runs, 8, before)
    print(f"\ndisk full and read-only: {counts}")
    assert stored
    assert counts == Counts(), (counts, done.stderr)


#: The wall clock alone moves: by an hour, for each second since the start, back and forth. A file tells that it did.
_JUMPING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static time_t begun;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) {
        if (!begun) begun = now->tv_sec;
        if (now->tv_sec > begun) close(open(getenv("JUMPED"), O_CREAT | O_WRONLY, 0600));
        now->tv_sec += ((now->tv_sec - begun) % 3 - 1) * 3600;
    }
    return answer;
}
"""


def test_a_clock_of_this_computer_that_jumps_costs_nothing(matrix_lab: Lab, model: Path, tmp_path: Path) -> None:
    lab = matrix_lab
    (tmp_path / "jumping.c").write_text(_JUMPING)
    library = tmp_path / "jumping.so"
    subprocess.run([c_compiler(), "-shared", "-fPIC", "-o", library, tmp_path / "jumping.c", "-ldl"], check=True)
    before = changed(lab)
    process = subprocess.Popen(
        [BENCHFARM, "run", str(plan_of(model, tmp_path, cases=2, min_secs=2.0))],
        env=lab.cli.environ(LD_PRELOAD=str(library), JUMPED=str(tmp_path / "jumped")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    log = watched(process)
    assert (tmp_path / "jumped").exists()
    runs = finished(lab, log)
    assert counts_of(lab, runs, 2, before) == Counts(), log
    assert {run["outcome"] for run in runs} == {"completed"}, log
