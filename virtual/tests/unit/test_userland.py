"""What a phone says of itself and does for commands: files, log, apps, processes, tracing."""

from __future__ import annotations

import errno
import re
import subprocess
import threading

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from benchfarm_virtual.contract import PhoneFileError, TraceEvent
from benchfarm_virtual.samples import BENCHMARK_PACKAGE, benchmark_apk
from benchfarm_virtual.system import ScaledTime
from tests.conftest import poll_until
from virtual.tests.unit.bench_phone import FOLDER

APP_UID = 10147
ARM64_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00" + bytes(200)
X86_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00" + bytes(200)


@pytest.fixture
def phone(bench_phone):
    made = bench_phone(time=ScaledTime())
    yield made
    made.system.close()


def fails(number, action):
    with pytest.raises(PhoneFileError) as failed:
        action()
    assert failed.value.errno == number


# Properties, tools and the kernel's files


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("debug.mark", True), ("log.tag.x", True), ("ro.serialno", False), ("sys.x", False)],
)
def test_setprop_is_refused_where_the_system_refuses(phone, key, allowed):
    done = phone.sh(f"setprop {key} value")
    assert (done.exit_code == 0, not done.stderr) == (allowed, allowed)
    assert (phone.sh(f"getprop {key}").stdout == "value\n") is allowed


@pytest.mark.parametrize(
    "command",
    [
        r"echo 1 | grep '\d'",
        "stat -c '%s %F' /data",
        "stat -c %5s /data",
        "date",
        "perfetto -c - -o x",
    ],
)
def test_forms_that_are_not_known_are_refused(phone, command):
    done = phone.sh(command)
    assert (done.exit_code != 0, done.stdout) == (True, "")
    assert "a virtual phone knows" in done.stderr or "bad argument" in done.stderr


def test_only_root_changes_clocks(phone, bench_phone):
    node = "/sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
    assert phone.sh(f"echo 1612800 > {node}").stderr.endswith("Permission denied\n")
    assert phone.sh("su -c id").exit_code == 127
    rooted = bench_phone(rooted=True)
    assert rooted.sh(f"su -c 'echo 1612800 > {node}'").text == ""
    assert rooted.hardware.clusters()[1].limit_khz == 1612800
    assert rooted.sh(f"su -c 'echo fast > {node}'").exit_code == 1


# Files


def test_folder_that_may_no_longer_be_searched_is_closed_at_once(phone):
    for name in ("one", "one/two"):
        phone.files.make_folder(f"{FOLDER}/{name}")
    path = phone.put("one/two/file", b"content")
    assert phone.files.open_read(path, uid=APP_UID).read() == b"content"
    phone.files.change_mode(f"{FOLDER}/one", 0o700, uid=2000)
    fails(errno.EACCES, lambda: phone.files.open_read(path, uid=APP_UID))
    assert phone.files.open_read(path).read() == b"content"


@pytest.mark.parametrize(
    ("path", "number"),
    [("/system/x", errno.EROFS), ("/x", errno.EROFS), ("/sys/x", errno.EACCES), ("/proc/x", errno.EACCES),
     ("/data/x", errno.EACCES), ("/data/data/x", errno.EACCES), ("/data/local/x", errno.EACCES)],
)  # fmt: skip
def test_shell_user_may_not_write_there(phone, path, number):
    fails(number, lambda: phone.files.open_write(path))


def test_app_reads_what_was_pushed_but_writes_only_in_its_own_places(phone):
    files, path = phone.files, phone.put("m", b"x")
    private = phone.put("private", b"x", mode=0o600)
    assert files.open_read(path, uid=APP_UID).read() == b"x"
    for attempt in (
        lambda: files.open_write(f"{FOLDER}/new", uid=APP_UID),
        lambda: files.open_write(path, uid=APP_UID),
        lambda: files.open_read(private, uid=APP_UID),
        lambda: files.list(FOLDER, uid=APP_UID),
    ):
        fails(errno.EACCES, attempt)
    files.open_write("/sdcard/shared", uid=APP_UID)
    assert files.stat("/sdcard/shared").mode & 0o777 == 0o660


@pytest.mark.parametrize("is_fault", [False, True])
def test_full_phone_writes_what_fits_and_says_so(phone, is_fault):
    if is_fault:
        phone.fault("no-space", "bytes=1000")
    else:
        phone.system.storage.fill(free_bytes=1000)
    writer = phone.files.open_write(f"{FOLDER}/f")
    writer.write(bytes(800))
    fails(errno.ENOSPC, lambda: writer.write(bytes(4000)))
    assert phone.files.stat(f"{FOLDER}/f").size_bytes == 1000


def test_permission_fault_denies_its_subject_only(phone):
    denied, other = phone.put("a", b"x"), phone.put("b", b"x")
    phone.fault("permission-denied", f"subject={denied}")
    assert phone.sh(f"cat {denied}").stderr == f"cat: {denied}: Permission denied\n"
    assert phone.sh(f"cat {other}").stdout == "x"


# The log


def log(phone, *messages, buffer="main"):
    for message in messages:
        phone.logs.append("I", "tflite", message, pid=4321, tid=4322, uid=APP_UID, buffer=buffer)


def shown(phone, arguments="-d"):
    """Return what logcat prints, without the head of each message."""
    told = phone.sh(f"logcat {arguments}").stdout
    return [line.partition(": ")[2] or line for line in told.splitlines()]


def test_form_is_liblogs_which_cuts_at_1023_bytes(phone):
    head = r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  4321  4322 I tflite  : "
    log(phone, "count=3\n\nlast\n")
    assert re.fullmatch(
        f"--------- beginning of main\n{head}count=3\n{head}\n{head}last\n",
        phone.sh("logcat -d -v threadtime").stdout,
    )
    phone.logs.log("I", "tflite", "x" * 3000, pid=4321)
    assert shown(phone)[-1] == "x" * 1023


def test_buffers_are_merged_by_time_with_a_divider_each(phone):
    for message, buffer in (("one", "main"), ("two", "crash"), ("three", "system")):
        log(phone, message, buffer=buffer)
    assert shown(phone) == [
        "--------- beginning of main", "one", "--------- beginning of crash", "two",
        "--------- beginning of system", "three",
    ]  # fmt: skip
    assert shown(phone, "-d -b system")[1:] == ["three"]


def test_garbage_fault_comes_between_the_lines_as_bytes(phone):
    log(phone, "first")
    phone.fault("log-garbage")
    log(phone, b"bad \xff\xc3 bytes")
    lines = b"".join(data for _, data in phone.sh("logcat -d").writes).splitlines()
    assert [line.partition(b": ")[2] for line in (lines[1], lines[3])] == [
        b"first",
        b"bad \xff\xc3 bytes",
    ]
    with pytest.raises(UnicodeDecodeError):
        lines[2].decode()


# Apps and processes


def start(phone, *words):
    apk = benchmark_apk()
    assert phone.sh(f"cmd package install -r -S {len(apk)}; cat", apk + b"rest").stdout == (
        "Success\nrest"
    )
    return phone.sh(
        " ".join(("am start -S -W -n", f"{BENCHMARK_PACKAGE}/.BenchmarkModelActivity", *words))
    )


@pytest.mark.parametrize(
    "text",
    ["--graph=/x --num_threads=4", "it's", 'say "hi"', "$(id) `id` $HOME", "x\ny", "*", "\\"],
)
def test_string_extra_arrives_as_the_shell_quoted_it(phone, text):
    quoted = "'" + text.replace("'", "'\\''") + "'"
    started = start(phone, "--es args", quoted)
    assert (started.exit_code, started.stderr) == (0, "")
    assert re.search(
        r"\nStatus: ok\n(?:.*\n)*TotalTime: \d+\nWaitTime: \d+\nComplete\n", started.stdout
    )
    [told] = [line for line in shown(phone, "-d -t 99") if line.startswith("Running TensorFlow")][
        :1
    ]
    assert told.endswith(text.split("\n")[0])


def test_app_runs_on_top_as_its_own_user_and_is_stopped(phone):
    phone.fault("program-hang", "moment=start")
    start(phone)
    pid = phone.sh(f"pidof {BENCHMARK_PACKAGE}").stdout.strip()
    rows = [line.split() for line in phone.sh("ps -A -o USER,PID,NAME").stdout.splitlines()]
    assert ["u0_a147", pid, BENCHMARK_PACKAGE] in rows
    assert phone.sh(f"kill {pid}").stderr.endswith("Operation not permitted\n")
    assert phone.sh(f"run-as {BENCHMARK_PACKAGE} sh -c 'pwd; id -u'").stdout == (
        f"/data/data/{BENCHMARK_PACKAGE}\n10147\n"
    )
    phone.sh(f"am force-stop {BENCHMARK_PACKAGE}")
    assert phone.sh(f"pidof {BENCHMARK_PACKAGE}").exit_code == 1
    assert f"Process {BENCHMARK_PACKAGE} (pid {pid}) has died" in phone.sh("logcat -d").stdout


@pytest.mark.parametrize(
    ("name", "content", "mode", "words"),
    [
        ("benchmark_model", ARM64_ELF, 0o644, "can't execute: Permission denied"),
        ("other", ARM64_ELF, 0o755, "no fake binary"),
        ("x86", X86_ELF, 0o755, "not executable: 64-bit ELF file"),
    ],
)
def test_what_cant_be_executed_is_said_and_no_process_of_the_hosts_is_started(
    phone, monkeypatch, name, content, mode, words
):
    def refuse(*args, **kwargs):
        raise AssertionError("a process of the host's was started")

    for what in ("subprocess.Popen", "os.fork", "os.system"):
        monkeypatch.setattr(what, refuse)
    phone.put(name, content, mode=mode)
    done = phone.sh(f"cd {FOLDER}; setsid sh -c true & ./{name}")
    assert done.exit_code == 126
    assert done.stderr.startswith(f"/system/bin/sh: ./{name}: ")
    assert words in done.stderr
    assert subprocess.Popen is refuse


def test_hundred_phones_have_no_thread_of_their_own(bench_phone):
    before = threading.active_count()
    assert all(bench_phone().sh("true").exit_code == 0 for _ in range(100))
    poll_until(lambda: threading.active_count() <= before + 1, "their threads end", timeout_s=60)


# Tracing

CONFIG = (
    'buffers { size_kb: 1 fill_policy: DISCARD } duration_ms: 60000 data_sources { config { name: "linux.ftrace" '
    'ftrace_config { ftrace_events: "ftrace/print" atrace_apps: "/data/local/tmp/bench" } } }'
)
TRACE = "/data/misc/perfetto-traces/t.pftrace"
BEGIN = f"perfetto --background --txt -c - -o {TRACE}"


def test_what_finds_no_room_is_lost_and_told(phone):
    pid = phone.sh(BEGIN, CONFIG.encode()).stdout.strip()
    tracing = phone.system.tracing
    poll_until(lambda: tracing.wants("/data/local/tmp/bench"), "it records", timeout_s=60)
    for _ in range(200):
        now = tracing.now_ns()
        events = [TraceEvent(now, 2, 77, "B|77|ADD@0/0"), TraceEvent(now, 2, 77, "E|77")]
        for name in ("/data/local/tmp/bench", "/system/bin/other"):
            tracing.write(77, name, 2000, events)
    phone.sh(f"kill -TERM {pid}; while [ -d /proc/{pid} ]; do sleep 0.05; done")
    trace = Trace()
    trace.ParseFromString(phone.files.open_read(TRACE).read())
    prints = [e for p in trace.packet for e in p.ftrace_events.event if e.HasField("print")]
    lost = sum(cpu.overrun for packet in trace.packet for cpu in packet.ftrace_stats.cpu_stats)
    assert lost > 0
    assert len(prints) + lost == 400


def test_before_android_11_the_service_is_off_on_phones_of_other_makers(bench_phone):
    old = {"ro.build.version.sdk": "29", "ro.product.manufacturer": "samsung"}
    refused = bench_phone(props=old).sh(BEGIN, CONFIG.encode())
    assert (refused.exit_code, "traced" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "# duration_ms: 5",
        "}{ duration_ms: 5",
        "buffers { size_kb: }",
        "duration_ms: 5 and more",
    ],
)
def test_a_config_that_is_no_text_of_fields_is_refused(phone, config):
    refused = phone.sh(BEGIN, config.encode())
    assert refused.exit_code == 1
    assert "TraceConfig is invalid" in refused.stderr
