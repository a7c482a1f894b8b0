"""What happens to this computer while a campaign runs: processes killed, disks full, clocks that
jump; nothing is lost.

``make fault-matrix`` gives all of it; without FAULT_MATRIX=all a few of the phases are drawn from a
seed.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.processes import running
from tests.conftest import c_compiler, poll_until
from tests.e2e.conftest import Lab
from tests.samples.command import heard
from tests.samples.faulty_lab import (
    SEED,
    WHOLE,
    Counts,
    ask,
    changed,
    clear,
    counts_of,
    faults_of,
    finished,
    give,
    not_as_before,
    plan_of,
    reached,
    server_of,
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


def campaigns_in(log: str) -> list[str]:
    """Cut a log into what was told from each campaign's begin on."""
    names = dict.fromkeys(re.findall(r"campaign (\S+) '", log))
    return [log[log.index(f"campaign {name} '") :] for name in names]


def dies(
    lab: Lab, process: subprocess.Popen[str], death: str, serial: str, told: list[str]
) -> bool:
    """Kill a campaign's process at a moment of a phone, or at a line of its own.

    False when it was over before.
    """
    assert process.stderr is not None
    is_line = death.startswith("line")
    # Before that nothing is to be resumed.
    mark = death.removeprefix("line:") if is_line else " invocations on "
    alive = False
    for line in process.stderr:
        told.append(line)
        if alive := mark in line:
            break
    if alive and not is_line:
        alive = reached(lab, serial, death, process)
    told.append(ended(process))
    clear(lab)
    return alive


def test_a_run_that_is_killed_before_its_campaign_is_kept_leaves_nothing_to_resume(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    known = lab.cli.json("results list")
    # However long this test looks away: none of them says what it is.
    for serial in lab.serials:
        give(lab, serial, "hang", "moment=open:shell")
    process = lab.cli.start("run", plan_of(model, tmp_path, cases=1))
    poll_until(lambda: not faults_of(lab, lab.serial)[0]["moment"], "a phone is asked")
    ended(process)
    clear(lab)
    assert lab.cli.json("results list") == known
    assert not_as_before(lab, before) == []


def test_a_run_killed_at_any_phase_is_finished_by_a_resume(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    """Each but a campaign's first process to be killed is a ``run --resume`` itself."""
    lab = matrix_lab
    before = changed(lab)
    deaths = drawn(DEATHS)
    cases = 2 + len(deaths)

    def begun(number: int) -> subprocess.Popen[str]:
        """Begin a campaign with models of its own, which have to be pushed."""
        return lab.cli.start(
            "run", plan_of(model, tmp_path / str(number), cases=cases, min_secs=1.0)
        )

    waiting, told = list(deaths), []
    process = begun(0)
    for number in range(1, 3 * len(deaths)):
        if not waiting:
            break
        if dies(lab, process, waiting[0], lab.serials[number % 4], told):
            del waiting[0]
            process = lab.cli.start("run --resume")
        else:
            # The phones were done before they could be disturbed.
            process = begun(number)
    told.append(ended(process))
    assert not waiting, "".join(told)
    for log in campaigns_in("".join(told)):
        runs = finished(lab, log)
        counts = counts_of(lab, runs, cases, before)
        print(f"\nkilled at {', '.join(deaths)}: {counts}")
        assert counts == Counts(), (counts, "".join(told))
        assert {run["outcome"] for run in runs} == {"completed"}


def hang(lab: Lab, *when: str) -> dict[str, int]:
    """Have every phone hang at a moment; return the faults' numbers."""
    return {serial: give(lab, serial, "hang", *when) for serial in lab.serials}


def until_all_hang(lab: Lab) -> None:
    poll_until(
        lambda: (
            not any(fault["moment"] for serial in lab.serials for fault in faults_of(lab, serial))
        ),
        "all phones hang",
    )


def hang_while_restored(lab: Lab, process: subprocess.Popen[str], told: list[str]) -> None:
    """Have each phone hang as soon as its last run is stored."""
    assert process.stderr is not None
    last = set()
    for line in process.stderr:
        told.append(line)
        if (stored := re.match(r"\S+ (\S+): (\d+)/(\d+) ", line)) and stored[2] == stored[3]:
            give(lab, stored[1], "hang")
            last.add(stored[1])
            if last == {*lab.serials}:
                break


@pytest.mark.parametrize(
    "is_undone",
    [
        pytest.param(False, id="before"),
        pytest.param(
            True, id="compared", marks=pytest.mark.skipif(not WHOLE, reason="FAULT_MATRIX=all")
        ),
    ],
)
def test_a_run_killed_while_its_phones_are_restored_leaves_none_changed(
    matrix_lab: Lab, model: Path, tmp_path: Path, is_undone: bool
) -> None:
    lab, told = matrix_lab, list[str]()
    before = changed(lab)
    # A phone that hangs waits for this test: in its run, where a setting is undone, where it is
    # compared with what it was.
    hangs = hang(lab, "moment=run") if is_undone else {}
    process = lab.cli.start("run", plan_of(model, tmp_path, cases=1))
    if is_undone:
        for tool in ("settings", "dumpsys"):
            until_all_hang(lab)
            later = hang(lab, "moment=tool", f"subject=*/{tool}")
            for serial, fault in hangs.items():
                ask(lab, serial, request="clear", fault=fault)
            hangs = later
    else:
        hang_while_restored(lab, process, told)
    until_all_hang(lab)
    told.append(ended(process))
    clear(lab)
    log = "".join(told)
    assert {*re.findall(r"^\S+ (\S+): 1/1 ", log, re.M)} == {*lab.serials}, log
    runs = finished(lab, log)
    assert counts_of(lab, runs, 1, before) == Counts(), log
    assert {run["outcome"] for run in runs} == {"completed"}


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_what_a_killed_run_left_on_a_phone_is_ended_by_restore(
    matrix_lab: Lab, model: Path, tmp_path: Path, tool: str
) -> None:
    lab, serial = matrix_lab, matrix_lab.serial
    before = changed(lab)[serial]
    give(lab, serial, "program-hang")
    process = lab.cli.start(
        f"bench -d xnnpack -n 1 --min-secs 0.1 -s {serial} --tool {tool}", model
    )
    poll_until(lambda: not faults_of(lab, serial), "the program hangs", timeout_s=60)
    ended(process)
    assert "benchmark" in changed(lab)[serial], "nothing was left"
    lab.cli("device restore", serial).ok()
    assert changed(lab)[serial] == before


def test_the_adb_server_killed_at_any_phase_costs_nothing(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    phases = drawn(MOMENTS)
    cases, waiting, told = 3, list(phases), []
    for number in range(3 * len(phases)):
        if not waiting:
            break
        # Models of its own, which have to be pushed.
        process = lab.cli.start(
            "run", plan_of(model, tmp_path / str(number), cases=cases, min_secs=1.0)
        )
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if re.match(r"\S+ \S+: 1/", line):
                break
        # A phone that was done before can't be disturbed any more.
        if reached(lab, lab.serials[number % 4], waiting[0], process):
            os.kill(running(server_of(lab).arguments)[0].pid, signal.SIGKILL)
            del waiting[0]
        told.append(watched(process))
        clear(lab)
    log = "".join(told)
    assert not waiting, log
    assert "Traceback" not in log
    for part in campaigns_in(log):
        runs = finished(lab, part)
        counts = counts_of(lab, runs, cases, before)
        print(f"\nadb server killed at {', '.join(phases)}: {counts}")
        assert counts == Counts(), (counts, log)
        assert {run["outcome"] for run in runs} == {"completed"}, log


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A folder on which a small disk can be mounted by whoever has a mount table of his own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None or on_a_disk_of_its_own(disk, "true").returncode:
        pytest.skip("no small disk can be mounted here")
    return disk


def on_a_disk_of_its_own(
    disk: Path, script: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a script that alone sees a disk of 8 MB."""
    mounted = f"mount -t tmpfs -o size=8m tmpfs {shlex.quote(str(disk))} && cd {shlex.quote(str(disk))}\n{script}"
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mounted], env={**os.environ, **environ},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_a_store_whose_disk_fills_up_or_is_made_read_only_loses_nothing(
    matrix_lab: Lab, model: Path, tmp_path: Path, small_disk: Path
) -> None:
    lab = matrix_lab
    before = changed(lab)
    plan = plan_of(model, tmp_path, cases=8)
    benchfarm, disk = shlex.quote(str(BENCHFARM)), shlex.quote(str(small_disk))
    script = f"""
        {shlex.join([sys.executable, "-c", "from orchestrator.store.opening import open_store as o; o('runs.sqlite')"])}
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
    done = on_a_disk_of_its_own(
        small_disk, script, **lab.cli.environ(BENCHFARM_STORE=str(small_disk / "runs.sqlite"))
    )
    assert done.stdout.split("\n")[:3] == ["full 5", "read-only 5", "free 0"], (
        done.stdout + done.stderr
    )
    assert "Traceback" not in done.stderr
    assert "resume it then: benchfarm run --resume 2" in done.stderr
    runs = finished(lab, done.stderr, BENCHFARM_STORE=str(tmp_path / "runs.sqlite"))
    stored = len(set(re.findall(r"(\S+: \d+/\d+) ", done.stderr.partition("full 5")[0])))
    counts = counts_of(lab, runs, 8, before)
    print(f"\ndisk full and read-only: {counts}")
    assert stored
    assert counts == Counts(), (counts, done.stderr)


def test_a_store_that_is_moved_away_ends_the_campaign_which_resumes_when_it_is_back(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab, store, away = matrix_lab, tmp_path / "runs.sqlite", tmp_path / "away.sqlite"
    environ = {"BENCHFARM_STORE": str(store)}
    process = lab.cli.start("run", plan_of(model, tmp_path, cases=8), **environ)
    heard(process, "2/8 ")
    store.rename(away)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 5, told
    assert re.search(r"restore it, .*; resume it then: benchfarm run --resume 2", told), told
    away.rename(store)
    lab.cli("run --resume", **environ).ok()


#: The wall clock alone moves: by an hour, for each second since the start, back and forth. A file
#: tells that it did.
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


def test_a_clock_of_this_computer_that_jumps_costs_nothing(
    matrix_lab: Lab, model: Path, tmp_path: Path
) -> None:
    lab = matrix_lab
    (tmp_path / "jumping.c").write_text(_JUMPING)
    library = tmp_path / "jumping.so"
    subprocess.run(
        [c_compiler(), "-shared", "-fPIC", "-o", library, tmp_path / "jumping.c", "-ldl"],
        check=True,
    )
    before = changed(lab)
    process = lab.cli.start(
        "run", plan_of(model, tmp_path, cases=1, min_secs=2.0), LD_PRELOAD=str(library),
        JUMPED=str(tmp_path / "jumped"),
    )  # fmt: skip
    log = watched(process)
    assert (tmp_path / "jumped").exists()
    runs = finished(lab, log)
    assert counts_of(lab, runs, 1, before) == Counts(), log
    assert {run["outcome"] for run in runs} == {"completed"}, log
