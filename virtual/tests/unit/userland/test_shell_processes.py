"""Processes of the phone: background jobs, signals, hang-ups, programs, exit codes."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from functools import partial

import pytest

from tests.conftest import poll_until
from virtual.tests.unit.userland.userland_phone import ARM64_ELF, X86_ELF

TMP = "/data/local/tmp"


until = partial(poll_until, what="it comes about", timeout_s=60)


def put_probe(phone, name: str = "probe", mode: int = 0o755) -> str:
    phone.put(f"{TMP}/{name}", ARM64_ELF, mode=mode)
    return f"{TMP}/{name}"


def test_no_host_process_is_started_for_anything(phone, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process of the host's was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("os.fork", refuse)
    monkeypatch.setattr("os.system", refuse)
    phone.put(f"{TMP}/x86", X86_ELF, mode=0o755)
    assert phone.run(f"{TMP}/x86")[0] == 126
    assert phone.run("ls / | head -n 1; date; $(echo sh -c id); setsid sh -c true &")[0] == 0


def test_background_job_outlives_the_connection(phone):
    call = phone.call(
        f"(trap '' HUP; exec sh -c 'sleep 0.3; echo done >{TMP}/rc') >/dev/null 2>&1 &"
    )
    call.join()
    call.hang_up()
    until(lambda: "rc" in phone.userland.files.list(TMP))


def test_hang_up_ends_a_simple_command(phone):
    call = phone.call("sleep 1000")
    until(lambda: phone.out("pidof sleep"))
    call.hang_up()
    assert call.join() == 129
    assert phone.run("pidof sleep")[0] == 1


def test_hang_up_leaves_the_child_of_a_compound_command_running(phone):
    call = phone.call("cd /; sleep 1000; echo after")
    until(lambda: phone.out("pidof sleep"))
    parent = phone.out("ps -A -o PPID,NAME | grep sleep").split()[0]
    assert parent != "1"
    call.hang_up()
    until(lambda: phone.out("ps -A -o PPID,NAME | grep sleep").split()[:1] == ["1"])
    phone.run("kill $(pidof sleep)")
    call.join()
    assert b"after" not in bytes(call.out.data)


def test_command_that_ignores_the_signal_survives_the_hang_up(phone):
    call = phone.call("trap '' HUP; exec sleep 1000")
    until(lambda: phone.out("pidof sleep"))
    pid = phone.out("pidof sleep")
    unprotected = phone.call("sleep 2000")
    until(lambda: len(phone.out("pidof sleep").split()) == 2)
    call.hang_up()
    unprotected.hang_up()
    # What ended the one, and came later, would have ended the other.
    assert unprotected.join() == 129
    until(lambda: len(phone.out("pidof sleep").split()) < 2)
    assert phone.out("pidof sleep") == pid
    phone.run("kill -9 $(pidof sleep)")
    call.join()


def test_shell_says_by_which_signal_a_program_ended(phone):
    probe = put_probe(phone)
    status, out, err = phone.run(f"cd {TMP}; {probe} die 11; echo code $?")
    assert (status, out) == (0, "code 139\n")
    assert err == "Segmentation fault \n"
    assert "F DEBUG" in phone.out("logcat -d -b crash")


def test_program_gets_its_place_affinity_and_environment(phone):
    put_probe(phone)
    facts = json.loads(phone.out(f"cd {TMP} && LD_LIBRARY_PATH=. taskset f0 ./probe facts 'a b'"))
    assert facts == {
        "argv": ["./probe", "facts", "a b"], "cwd": TMP, "uid": 2000, "affinity": 0xF0, "group": "shell", "env": ".",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "mode", "status", "words"),
    [
        ("probe", ARM64_ELF, 0o644, 126, "can't execute: Permission denied"),
        ("other", ARM64_ELF, 0o755, 126, "no fake binary"),
        ("x86", X86_ELF, 0o755, 126, "not executable: 64-bit ELF file"),
    ],
)
def test_what_cant_be_executed_is_said(phone, name, content, mode, status, words):
    phone.put(f"{TMP}/{name}", content, mode=mode)
    found, _, err = phone.run(f"cd {TMP}; ./{name}")
    assert found == status
    assert err.startswith(f"/system/bin/sh: ./{name}: ")
    assert words in err


def test_missing_program_is_127(phone):
    assert phone.run("nope") == (127, "", "/system/bin/sh: nope: inaccessible or not found\n")
    assert phone.run("./nope")[0] == 127
    assert phone.run("/data")[0] == 126


def test_trap_runs_when_a_signal_comes_from_outside(phone):
    call = phone.call("trap 'echo cleaning; exit 3' TERM; echo $$; while :; do sleep 0.02; done")
    call.out.wait_for(b"\n")
    phone.run(f"kill {bytes(call.out.data).decode().strip()}")
    assert call.join() == 3
    assert bytes(call.out.data).endswith(b"cleaning\n")


def test_reboot_ends_everything_and_gives_a_new_boot_id(phone):
    probe = put_probe(phone)
    before = phone.out("cat /proc/sys/kernel/random/boot_id")
    calls = [phone.call(f"{probe} hang"), phone.call("sleep 1000"), phone.call("logcat")]
    until(lambda: len(phone.userland.processes.live()) >= 3)
    phone.run("setprop debug.x 1; log remembered")
    phone.userland.restart()
    for call in calls:
        call.hang_up()
        call.join()
    assert phone.out("cat /proc/sys/kernel/random/boot_id") != before
    assert phone.out("getprop debug.x") == "\n"
    assert "remembered" not in phone.out("logcat -d")


def test_sped_up_phone_sleeps_shorter(make_phone):
    phone = make_phone(time_factor=1000.0)
    begun_s = time.monotonic()
    assert phone.run("sleep 100")[0] == 0
    assert time.monotonic() - begun_s < 50
    assert phone.time.uptime_s() > 100


def test_hundred_phones_have_no_thread_of_their_own(make_phone):
    before = threading.active_count()
    phones = [make_phone() for _ in range(100)]
    for phone in phones:
        assert phone.run("true")[0] == 0
    until(lambda: threading.active_count() <= before + 1)


def test_a_process_group_is_shown_and_killed_as_one(phone):
    phone.call("setsid sh -c 'sleep 61 & sleep 62; true' >/dev/null 2>&1 </dev/null &").join()
    until(lambda: phone.out("ps -A -o ARGS | grep -c '^sleep 6[12]'").strip() == "2")
    (group,) = {
        line.split()[0]
        for line in phone.out("ps -A -o PGID,ARGS").splitlines()
        if " sleep 6" in line
    }
    assert phone.run(f"kill -9 -- -{group}")[0] == 0
    until(lambda: "sleep 6" not in phone.out("ps -A -o ARGS"))
    assert phone.run(f"kill -9 -- -{group}")[0] == 1
