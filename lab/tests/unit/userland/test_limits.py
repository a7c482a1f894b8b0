"""What a phone refuses so that nothing sent to it takes this computer's processes and memory."""

from __future__ import annotations

import threading

import pytest

from benchfarm_lab.processes import MOST_PROCESSES
from lab.tests.unit.userland.userland_phone import TestPhone

FULL = "can't fork - try again\n"
NO_MEMORY = "cannot allocate memory\n"


@pytest.fixture
def full_phone(phone: TestPhone) -> TestPhone:
    """A phone on which one process more can be made, by a shell that is there already."""
    for _ in range(MOST_PROCESSES - 2):
        phone.userland.processes.spawn(["filler"], uid=2000)
    return phone


@pytest.mark.parametrize(
    "script", ["ls", "(true)", "x=$(true)", "true | true", "true & wait", "setsid ls", "timeout 9 ls", "{ ls; } >f"]
)
def test_a_full_process_table_refuses_every_way_to_make_a_process(full_phone, script):
    full_phone.userland.processes.spawn(["filler"], uid=2000)
    status, out, err = full_phone.run(f"cd /data/local/tmp; {script}; echo never")
    assert (status, out) == (1, "")
    assert err.endswith(FULL)


def test_what_needs_no_process_goes_on_and_there_is_room_again_when_one_ends(full_phone):
    blocker = full_phone.userland.processes.spawn(["blocker"], uid=2000)
    assert full_phone.run("x=1; [ $x = 1 ] && echo builtin")[:2] == (0, "builtin\n")
    assert full_phone.run("ls /")[0] == 0  # the shell's last command takes the shell's own process
    full_phone.userland.processes.end(blocker, 0)
    assert full_phone.run("cat /proc/self/comm; true") == (0, "cat\n", "")


def test_a_refused_job_lets_go_of_what_it_held(full_phone):
    # If a stage held the pipe or the client's stream, the reader or the client would wait for ever.
    call = full_phone.call("cat /dev/zero | cat | cat >/dev/null; echo never")
    assert call.join() == 1
    assert bytes(call.err.data).decode().endswith(FULL)
    assert full_phone.call("sleep 1 & sleep 1 & echo never").join() == 1
    for process in full_phone.userland.processes.live():
        assert process.argv == ("filler",) or process.done.wait(60)


def test_a_fork_bomb_stays_on_the_phone(phone):
    threads = threading.active_count()
    call = phone.call("f() { f | f & }; f; sleep 1000")
    most = 0
    while most < MOST_PROCESSES and call.thread.is_alive():
        most = max(most, len(phone.userland.processes.live()))
    assert most <= MOST_PROCESSES + 1
    assert threading.active_count() <= threads + 2 * MOST_PROCESSES
    assert phone.run("echo there") == (0, "there\n", "")
    phone.userland.restart()
    call.hang_up()
    call.join()


@pytest.mark.parametrize(
    "script",
    [
        "x=0123456789abcdef; while :; do x=$x$x; done",
        "x=0123456789abcdef; i=0; while :; do i=$((i+1)); eval v$i=\\$x\\$x; x=$x$x; done",
        'set -- a b; while :; do set -- "$@" "$@"; done',
        "x='a b '; while [ ${#x} -lt 4000000 ]; do x=$x$x; done; for i in $x; do echo never; done",
        "x=0123456789abcdef; while [ ${#x} -lt 8000000 ]; do x=$x$x; done; echo $x $x $x",
    ],
)
def test_a_shell_without_memory_says_so_and_ends(phone, script):
    status, out, err = phone.run(f"{script}; echo never")
    assert "never" not in out
    assert status == 1
    assert err.endswith(NO_MEMORY)


@pytest.mark.parametrize(
    "script",
    ["read x </dev/zero", "x=$(cat /dev/zero)", "cat /dev/zero | read x", "grep x /dev/zero", "tail /dev/zero"],
)
def test_a_line_without_end_is_refused(phone, script):
    status, out, err = phone.run(f"{script}")
    assert status
    assert not out
    assert err.endswith(NO_MEMORY)


def test_a_large_value_within_the_limit_is_taken(phone):
    assert phone.run("x=a; while [ ${#x} -lt 4000000 ]; do x=$x$x; done; echo ${#x}")[1] == "4194304\n"
