"""Processes of the phone: background jobs, signals, hang-ups, programs, exit codes."""

from __future__ import annotations

import subprocess
import threading
from functools import partial

import pytest

from tests.conftest import poll_until
from virtual.tests.unit.userland.userland_phone import ARM64_ELF, X86_ELF

TMP = "/data/local/tmp"


until = partial(poll_until, what="it comes about", timeout_s=60)


def test_no_host_process_is_started_for_anything(phone, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a process of the host's was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("os.fork", refuse)
    monkeypatch.setattr("os.system", refuse)
    phone.put(f"{TMP}/x86", X86_ELF, mode=0o755)
    assert phone.run(f"{TMP}/x86")[0] == 126
    assert phone.run("ls / | tail -c 1; date +%m; $(echo sh -c id); setsid sh -c true &")[0] == 0


def test_hang_up_ends_a_simple_command(phone):
    call = phone.call("sleep 1000")
    until(lambda: phone.out("pidof sleep"))
    call.hang_up()
    assert call.join() == 129
    assert phone.run("pidof sleep")[0] == 1


def test_hang_up_leaves_the_child_of_a_compound_command_running(phone):
    call = phone.call("cd /; sleep 1000; echo after")
    until(lambda: phone.out("pidof sleep"))
    parent = phone.out("ps -A -o PPID,ARGS | grep ' sleep'").split()[0]
    assert parent != "1"
    call.hang_up()
    until(lambda: phone.out("ps -A -o PPID,ARGS | grep ' sleep'").split()[:1] == ["1"])
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


def test_hundred_phones_have_no_thread_of_their_own(make_phone):
    before = threading.active_count()
    phones = [make_phone() for _ in range(100)]
    for phone in phones:
        assert phone.run("true")[0] == 0
    until(lambda: threading.active_count() <= before + 1)


def test_a_script_means_the_same_whatever_was_run_before_it(phone):
    rest = "echo $1 two\nif true; then echo $#\nfi\n"
    assert phone.out(f"set -- one\n{rest}") == "one two\n1\n"
    assert phone.out(f"set -- ein und\n{rest}") == "ein two\n2\n"
