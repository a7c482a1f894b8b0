"""Installing, starting and stopping apps."""

from __future__ import annotations

import re

import pytest

from benchfarm_virtual.contract import ProgramDiedError
from virtual.tests.unit.userland.userland_phone import make_apk

APP = "org.example.bench"


def install(phone, apk: bytes) -> tuple[int, str]:
    status, out, _ = phone.run(f"cmd package install -r -S {len(apk)}", apk)
    return status, out


def test_run_as_is_the_apps_user_in_the_apps_folder(phone):
    install(phone, make_apk())
    assert phone.out(f"run-as {APP} sh -c 'pwd; id -u'") == f"/data/data/{APP}\n10147\n"
    assert phone.run(f"run-as {APP} sh -c 'echo x > /data/local/tmp/y'")[0] == 1
    assert phone.run("run-as nope ls")[2] == "run-as: unknown package: nope\n"
    install(phone, make_apk("org.example.release", debuggable=False))
    assert (
        phone.run("run-as org.example.release ls")[2]
        == "run-as: package not debuggable: org.example.release\n"
    )


AWKWARD = [
    "--graph=/data/local/tmp/m.tflite --num_threads=4",
    "it's",
    'say "hi"',
    "$(id) `id` $HOME",
    "a;b|c&d",
    "x\ny",
    "üñí",
    "-n",
    "*",
    "\\",
]


@pytest.mark.parametrize("text", AWKWARD)
def test_string_extra_arrives_as_the_shell_quoted_it(phone, text):
    install(phone, make_apk())
    quoted = "'" + text.replace("'", "'\\''") + "'"
    status, out, err = phone.run(f"am start -S -W -n {APP}/.MainActivity --es args {quoted}")
    assert (status, err) == (0, "")
    assert phone.shelf.started[-1] == {"args": text}
    assert re.search(
        rf"Stopping: {APP}\nStarting: Intent {{ cmp={APP}/.MainActivity \(has extras\) }}\n"
        rf"Status: ok\nActivity: {APP}/.MainActivity\nComplete\n",
        out,
    )


def test_app_runs_on_top_as_its_own_user_and_is_stopped(phone):
    install(phone, make_apk())
    phone.shelf.activity_body = lambda call: int(call.process.killed.wait(600))
    phone.run(f"am start -n {APP}/.MainActivity")
    pid = phone.out(f"pidof {APP}").strip()
    assert ["u0_a147", pid, APP] in [
        line.split() for line in phone.out("ps -A -o USER,PID,ARGS").splitlines()
    ]
    assert phone.run(f"kill {pid}")[2].endswith("Operation not permitted\n")
    phone.run(f"am force-stop {APP}")
    assert phone.run(f"pidof {APP}") == (1, "", "")
    log = phone.out("logcat -d -b all")
    assert f"Process {APP} (pid {pid}) has died" in log


def wait_gone(phone) -> None:
    for process in phone.userland.processes.live():
        assert process.done.wait(60)


def test_crash_of_an_app_is_in_the_crash_buffer(phone):
    def body(process):
        raise ProgramDiedError(11)

    install(phone, make_apk())
    phone.shelf.activity_body = body
    phone.run(f"am start -n {APP}/.MainActivity")
    wait_gone(phone)
    crash = phone.out("logcat -d -b crash")
    assert "F libc    : Fatal signal 11 (SIGSEGV), code 1 (SEGV_MAPERR)" in crash
    assert f">>> {APP} <<<" in crash
    assert "has died" in phone.out("logcat -d -b system")
