"""A run's life in real shells: started, watched, waited for, ended, by the scripts that a phone is
sent."""

import os
import re
import signal
from pathlib import Path

import pytest

from orchestrator.analysis.samples import parse_samples
from orchestrator.devices.runs import WAIT_STEP_S, parse_processes
from orchestrator.scripts import script_command, script_text
from tests.shells.conftest import Shell

#: Samplers that fail, and what a wait tells then.
SAMPLERS = {
    "works": (script_text("sampler"), b"done 3"),
    "none": ("", b"done 3"),
    "no-shell-text": ("if then (( \x01", b"done 3"),
    "crashes": ("echo --look; kill -9 $$", b"done 3"),
    "exits": ("exit 1", b"done 3"),
    "floods-errors": (
        "i=0; while [ $i -lt 500 ]; do echo no such file >&2; i=$((i+1)); done",
        b"done 3",
    ),
    "hangs": ("trap '' TERM; echo ready; while :; do sleep 1; done", b"done 3 left"),
}


def started(shell: Shell, command: str, *, sampler: str = "", token: str = "t1") -> str:
    root = shell.folder / "runs"
    return script_command("start", root, root / "r1", token, command, script_text("run"), sampler)


def waiting(shell: Shell, *, step: float = WAIT_STEP_S, steps: int = 100) -> str:
    return script_command("wait", shell.folder / "runs" / "r1", step, steps)


def kill_group(shell: Shell) -> None:
    os.killpg(int((shell.folder / "runs/r1/pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_run_is_the_same_whatever_its_sampler_does(shell: Shell, sampler: str) -> None:
    script, said = SAMPLERS[sampler]
    ready = "until grep -q -s ready samples; do :; done; " if sampler == "hangs" else ""
    command = f"{ready}echo figure; echo noise >&2; exit 3"
    done = shell.run(started(shell, command, sampler=script) + waiting(shell))
    lines = done.stdout.split(b"\n")
    assert lines[0] == said, done.stderr
    assert lines[1] == lines[2] == Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    folder = shell.folder / "runs/r1"
    assert ((folder / "out").read_text(), (folder / "err").read_text()) == ("figure\n", "noise\n")
    if sampler == "hangs":
        kill_group(shell)


def test_a_run_is_the_same_when_its_sampler_cant_be_written_or_read(shell: Shell) -> None:
    # A folder in the file's place: it can be neither written nor read, also by root.
    broken = started(shell, "exit 4", sampler="echo x").replace(">sampler.sh", ">sampler.sh/x")
    assert shell.run(broken + waiting(shell)).stdout.startswith(b"done 4\n")


def test_the_sampler_looks_at_the_begin_and_at_the_end_and_tells_the_program_s_own_time(
    shell: Shell,
) -> None:
    # The run's end may come before the first look's, never before the sampler has begun.
    busy = "until grep -q -s -e --look samples; do :; done; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    done = shell.run(
        started(shell, busy, sampler=script_text("sampler")) + waiting(shell, steps=240)
    )
    assert done.stdout.startswith(b"done 0\n")
    looks = parse_samples((shell.folder / "runs/r1/samples").read_bytes())
    assert len(looks.samples) >= 2
    assert looks.samples[-1].uptime_s > looks.samples[0].uptime_s
    assert looks.own_cpu_s is not None
    assert looks.own_cpu_s > 0


def test_a_sampler_ends_with_its_run_s_shell_or_without_a_sleep(shell: Shell) -> None:
    (shell.folder / "sampler.sh").write_text(script_text("sampler"))
    gone = shell.run("sh sampler.sh 4194304 0.01")
    assert gone.stdout.count(b"--look") == 1
    counted = shell.run("sh sampler.sh $$ 0.01 3")
    assert counted.stdout.count(b"--look") == 4
    shell.tool("sleep", "exit 1")
    sleepless = shell.run("sh sampler.sh $$ 2")
    assert sleepless.stdout.count(b"--look") == 1


def test_a_sampler_reads_only_zones_of_heat(shell: Shell) -> None:
    zones = shell.folder / "thermal"
    for number, name in enumerate(("soc", "ocp_cpu1", "soft_ocp_gpu", "cpu-0")):
        (zones / f"thermal_zone{number}").mkdir(parents=True)
        (zones / f"thermal_zone{number}/type").write_text(f"{name}\n")
        (zones / f"thermal_zone{number}/temp").write_text("41000\n")
    sampler = script_text("sampler").replace("/sys/class/thermal", str(zones))
    (shell.folder / "sampler.sh").write_text(sampler)
    lines = shell.run("sh sampler.sh 4194304").stdout.splitlines()
    names = {line.rpartition(b":")[2] for line in lines if b"/type:" in line}
    assert names == {b"cpu-0"}


def test_a_run_s_end_ends_the_wait_at_once(shell: Shell) -> None:
    # The one sleep would last for longer than the test may.
    asleep = 'read -r s <waiter && read -r n <"/proc/$s/comm" && [ "$n" = sleep ]'
    command = f"until {{ {asleep}; }} 2>/dev/null; do :; done; exit 5"
    assert shell.run(started(shell, command) + waiting(shell, step=600)).stdout.startswith(
        b"done 5\n"
    )


def test_a_lost_wake_up_costs_at_most_one_short_step(shell: Shell) -> None:
    assert WAIT_STEP_S <= 0.5
    deaf = script_text("run").replace("/proc/$s/comm", "/proc/no-such/comm")
    assert deaf != script_text("run")
    shell.tool("sleep", "echo $1 >>../../slept; exec /usr/bin/sleep 0.15")
    root = shell.folder / "runs"
    # It ends after the second step has begun: the third look at the latest sees it.
    command = "until [ -f ../../slept ]; do :; done; exit 6"
    start = script_command("start", root, root / "r1", "t1", command, deaf, "")
    assert shell.run(start + waiting(shell, steps=10_000)).stdout.startswith(b"done 6\n")
    assert set((shell.folder / "slept").read_text().split()) == {f"{WAIT_STEP_S:g}"}


@pytest.mark.parametrize(
    "answer",
    ["case $1 in *.*) exit 1;; esac", "case $1 in *.*) exit 0;; esac"],
    ids=["refuses", "cuts-off"],
)
def test_a_sleep_of_whole_seconds_is_found_and_used(shell: Shell, answer: str) -> None:
    shell.tool("sleep", f"echo $1 >>../../slept; {answer}; exec /usr/bin/sleep 0.2")
    command = "until grep -q -x 1 ../../slept; do :; done; exit 7"
    assert shell.run(started(shell, command) + waiting(shell, steps=10_000)).stdout.startswith(
        b"done 7\n"
    )
    # No spinning: but for a first try or two, every sleep is one that sleeps.
    slept = (shell.folder / "slept").read_text().split()
    assert slept[-1] == "1"
    assert slept.count("0.5") <= 3


def test_a_wait_ends_by_itself_and_the_run_continues(shell: Shell) -> None:
    begun = shell.run(
        started(shell, "until [ -f ../../go ]; do sleep 0.05; done")
        + waiting(shell, step=0.05, steps=2)
    )
    assert re.match(rb"(running|begins)\n", begun.stdout)
    (shell.folder / "go").touch()
    assert shell.run(waiting(shell)).stdout.startswith(b"done 0\n")


@pytest.mark.parametrize("tool", ["cat", "setsid"])
def test_a_start_whose_link_ends_meanwhile_still_begins_its_run(shell: Shell, tool: str) -> None:
    # A link's end reaches the starting shell as HUP, at whichever of its steps.
    shell.tool(tool, f'kill -HUP $PPID; exec {shell.tools / tool} "$@"')
    begun = shell.run(started(shell, "exit 6"))
    assert begun.returncode == 0, begun
    assert shell.run(waiting(shell)).stdout.startswith(b"done 6\n")


def test_a_start_that_is_sent_twice_starts_once(shell: Shell) -> None:
    command = "echo once >>../../count"
    for _ in range(2):
        assert shell.run(started(shell, command) + waiting(shell)).stdout.startswith(b"done 0\n")
    assert (shell.folder / "count").read_text() == "once\n"
    other = shell.run(started(shell, command, token="t2") + waiting(shell))
    assert (other.returncode, other.stdout) == (1, b"")
    (shell.folder / "runs/r1/token").write_text("")
    assert shell.run(started(shell, command)).returncode == 1


def test_a_run_that_is_forbidden_doesnt_start_and_one_that_runs_is_named(shell: Shell) -> None:
    root = shell.folder / "runs"
    shell.run(
        started(shell, "until [ -f ../../go ]; do sleep 0.05; done")
        + waiting(shell, step=0.05, steps=2)
    )
    until_begun = waiting(shell, step=0.05, steps=1)
    while shell.run(until_begun).stdout.startswith(b"begins"):
        pass
    told = (
        shell.call("forbid", root / "r1", root / "new", then=script_text("processes"))
        .stdout.decode()
        .partition("\n")
    )
    pid = (root / "r1/pid").read_text().strip()
    assert told[0] == pid
    # Other tools than a phone's show no command lines.
    if shell.has_toybox:
        processes = {process.pid: process for process in parse_processes(told[2])}
        assert processes[int(pid)].command.startswith(f"sh run.sh benchfarm-run:{root}/r1 ")
    assert (root / "new/stop").exists()
    strays = shell.call("strays", root, then="echo table").stdout.decode()
    assert strays == f"run new \nrun r1 {pid}\ntable\n"
    kill_group(shell)


def test_no_strays_are_told_where_there_are_none(shell: Shell) -> None:
    assert shell.call("strays", shell.folder / "no-such", then="echo table").stdout == b""
    (shell.folder / "empty").mkdir()
    assert shell.call("strays", shell.folder / "empty", then="echo table").stdout == b""


def test_a_run_whose_shell_was_killed_is_gone(shell: Shell) -> None:
    shell.run(
        started(shell, "until [ -f ../../go ]; do sleep 0.05; done")
        + waiting(shell, step=0.05, steps=4)
    )
    while shell.run(waiting(shell, step=0.05, steps=1)).stdout.startswith(b"begins"):
        pass
    kill_group(shell)
    assert shell.run(waiting(shell)).stdout.startswith(b"gone\n")


def test_what_keeps_a_run_from_starting_is_kept(shell: Shell) -> None:
    root = shell.folder / "runs"
    shell.run(script_command("start", root, root / "r1", "t", "true", "no-such-command-of-run", ""))
    trouble = root / "r1/shell.err"
    while not (trouble.exists() and trouble.read_text().endswith("\n")):
        pass
    assert "no-such-command-of-run" in trouble.read_text()


def test_what_keeps_a_folder_from_being_written_is_told(shell: Shell) -> None:
    assert shell.call("probe_writing", shell.folder, "/no-such").returncode == 0
    assert shell.call("probe_writing", "/no-such", shell.folder).returncode == 0
    failed = shell.call("probe_writing", "/proc", "/proc")
    assert failed.returncode != 0
    assert failed.stderr
