"""Everything that benchfarm relies on, tried on one phone: what works, works another way,
or is missing.

Nothing is measured and nothing stays changed. A check that fails says so and the next one is made.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.devices.conditioning import LadderConditioner
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.runs import PhoneProcess, parse_processes
from orchestrator.devices.sockets import quote, reason_of
from orchestrator.errors import BenchfarmError, DeviceTimeoutError
from orchestrator.files import sha256_of
from orchestrator.ports import CheckResult, HostFile, PhoneCheck
from orchestrator.records.case import RunId
from orchestrator.records.plan import FitLimits
from orchestrator.scripts import call

#: What is sent and read back.
_FILE_BYTES: Final = 8 << 20
_STEP_TIMEOUT_S: Final = 15.0
#: A tool that takes longer hangs.
_TOOL_LIMIT_S: Final = 5.0
#: So much is kept of what a phone says unasked.
_NOISE_LENGTH: Final = 300
#: What the program that is sent ends with.
_PROGRAM_CODE: Final = 43
_LOG_TIMEOUT_S: Final = 5.0
#: The check that fails when a phone stops answering in the middle.
_ANSWERS: Final = "answers"
#: A run of this length, repeated, shows how long its end goes unnoticed.
_SHORT_RUN_S: Final = 0.2
_SHORT_RUNS: Final = 5
#: More than that after a run's end costs every invocation.
_SLOW_WAKE_UP_S: Final = 0.5


#: Result, what was seen, what the phone loses by it.
Found = tuple[CheckResult, str, str]
_FATAL: Final = "nothing can be measured on this phone"
_MISSING, _OTHER = CheckResult.MISSING, CheckResult.ANOTHER_WAY
_UNREADABLE: Final = "heat status, battery and screen are unknown"
_CPUFREQ: Final = "/sys/devices/system/cpu/cpufreq/policy0"


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool or a small file that benchfarm uses on a phone, tried with the options that benchfarm
    gives it.
    """

    name: str
    command: str
    #: What it must print.
    wanted: str = ""
    #: What is lost without one that benchfarm has no other way for, or what else is different then.
    cost: str = ""
    without: CheckResult = _OTHER


_TOOLS: Final = (
    _Tool("cat", "cat try.txt", "b", _FATAL, _MISSING),
    _Tool("chmod", "chmod 700 try.txt", cost=_FATAL, without=_MISSING),
    _Tool("df", "df -k .", cost="a full disk shows only when a file can't be written"),
    _Tool("getprop", "getprop ro.build.version.sdk", cost=_FATAL, without=_MISSING),
    _Tool("grep", "grep -H '' try.txt", "try.txt:b", "heat, clocks and load are unknown", _MISSING),
    _Tool("id", "id -u"),
    _Tool("ls", "ls -d try.txt", "try.txt"),
    _Tool("md5sum", "md5sum try.txt", "dd8c6a395b5dd36c"),
    _Tool("mkdir", "mkdir -p try.folder", cost=_FATAL, without=_MISSING),
    _Tool(
        "ps-pgid",
        "ps -A -o PID,PPID,PGID,ARGS",
        "PGID",
        "processes of a run are found by their parents alone",
    ),
    _Tool("ps", "ps", "PID", "programs left behind can't be found: no run is started", _MISSING),
    _Tool(
        "renice", "sh -c 'renice -n 19 -p $$'", cost="the sampler runs at the program's priority"
    ),
    _Tool("rm", "rm -rf try.folder", cost=_FATAL, without=_MISSING),
    _Tool("setsid", "setsid true", cost="a run shares its session with adb's shell"),
    _Tool("sha256sum", "sha256sum try.txt", "911169ddaaf146af", "files are compared by md5"),
    _Tool("sleep-fraction", "sleep 0.05", cost="the phone waits in whole seconds"),
    _Tool("sleep", "sleep 0", cost=_FATAL, without=_MISSING),
    _Tool("stat", "stat -c %s try.txt", "4", "files are compared again before each campaign"),
    _Tool("sync", "sync"),
    _Tool("tail", "tail -n 1 try.txt", "b", "a full disk shows only when a file can't be written"),
    _Tool(
        "taskset",
        "sh -c 'taskset -p $$'",
        cost="--taskset can't be used; the sampler isn't kept off the big cores",
    ),
    _Tool("timeout", "timeout 5 true", cost="a tool that hangs is ended by its process number"),
    _Tool("wc", "wc -c try.txt", "4", _FATAL, _MISSING),
    *(
        _Tool(name, f"command -v {name}", cost=cost, without=without)
        for name, cost, without in (
            ("am", "the benchmark app can't be started", _MISSING),
            ("cmd", "airplane mode and fixed performance mode can't be set", _MISSING),
            ("input", "the screen can't be switched", _MISSING),
            ("log", "the log can't be tried by this check", _OTHER),
            ("logcat", "the app's results and reasons of kills can't be read", _MISSING),
            ("perfetto", "no trace can be recorded", _MISSING),
            ("pidof", "other programs that measure aren't noticed", _MISSING),
            ("pm", "the benchmark app can't be installed", _MISSING),
            ("run-as", "files of a debuggable app can't be read", _MISSING),
            ("svc", "Wi-Fi and mobile data can't be switched off", _MISSING),
        )
    ),
    # What is read beside a run.
    *(
        _Tool(path, f"cat {path}", cost=cost, without=without)
        for path, cost, without in (
            ("/proc/uptime", "", _OTHER),
            ("/proc/stat", "the load of other processes is unknown", _MISSING),
            ("/proc/meminfo", "", _OTHER),
            ("/proc/loadavg", "", _OTHER),
            ("/proc/self/comm", "the end of a run is noticed up to half a second late", _OTHER),
            ("/proc/sys/kernel/random/boot_id", "", _OTHER),
            (
                f"{_CPUFREQ}/scaling_cur_freq",
                "clocks are unknown: throttling shows by heat and figures only",
                _MISSING,
            ),
            (
                f"{_CPUFREQ}/stats/time_in_state",
                "mean clocks of a run are estimated from samples",
                _OTHER,
            ),
            (
                "/sys/class/thermal/thermal_zone0/temp",
                "heat comes from thermalservice and the battery alone",
                _OTHER,
            ),
            (
                "/sys/class/power_supply/battery/current_now",
                "energy needs perfetto's meters or the battery service's current",
                _OTHER,
            ),
        )
    ),
    _Tool(
        "settings",
        "settings get global airplane_mode_on",
        cost="quiet mode can't be had",
        without=_MISSING,
    ),
    _Tool("dumpsys battery", "dumpsys battery", "level", _UNREADABLE, _MISSING),
    _Tool("dumpsys power", "dumpsys power", "mWakefulness", _UNREADABLE, _MISSING),
    _Tool(
        "dumpsys thermalservice",
        "dumpsys thermalservice",
        "Temperature",
        "heat comes from files alone",
        _OTHER,
    ),
    _Tool("dumpsys window", "dumpsys window policy", cost="the app on the screen is unknown"),
    _Tool(
        "dumpsys SurfaceFlinger", "dumpsys SurfaceFlinger", "GLES", "the GPU's driver is unknown"
    ),
)


def check_phone(
    device: AdbDevice, conditioner: LadderConditioner, *, app: tuple[str, Path] | None = None
) -> Iterator[PhoneCheck]:
    """Yield the result of each check; the device must be leased, and is restored at the end.

    ``app``: package and APK of an app that is installed and removed again, unless it is there
    already. A phone that fails a check raises nothing; what comes of it says so.
    """
    checks: dict[str, Callable[[], Found]] = {
        "shell": lambda: _shell(device),
        "silence": lambda: _silence(device),
        "facts": lambda: _facts(device),
        "state": lambda: _state(device),
        "process list": lambda: _processes(device),
        "detached run": lambda: _detached(device),
        "end of a run": lambda: _wake_up(device),
        "deadline": lambda: _deadline(device),
        "programs left behind": lambda: _strays(device),
        "push and pull": lambda: _files(device),
        "pushed program": lambda: _program(device),
        "log": lambda: _log(device),
        "quiet mode": lambda: _quiet(device, conditioner),
    }
    if app is not None:
        checks["app"] = lambda: _app(device, *app)
    tools = list(_tools(device))
    yield from tools
    if tools[-1].name == _ANSWERS:
        return
    if hung := [
        tool.name
        for tool in tools
        if tool.result is CheckResult.FAILS and tool.name.startswith("dumpsys")
    ]:
        seen = f"not tried: {', '.join(hung)} gave no answer within {_TOOL_LIMIT_S:g} s"
        checks |= dict.fromkeys(
            ("facts", "state", "quiet mode"), lambda: fails(seen, "reboot the phone")
        )
    yield from make_checks(device.clock, checks)


def make_checks(clock: Clock, checks: Mapping[str, Callable[[], Found]]) -> Iterator[PhoneCheck]:
    """Make checks; one that raises has failed."""
    for name, check in checks.items():
        begun_s = clock.monotonic_s()
        try:
            result, seen, cost = check()
        except BenchfarmError as error:
            result, seen, cost = CheckResult.FAILS, str(error), error.hint or ""
        yield PhoneCheck(
            name=name, result=result, seen=seen, cost=cost, took_s=clock.monotonic_s() - begun_s
        )


def _tools(device: AdbDevice) -> Iterator[PhoneCheck]:
    """Try every tool with our options, each with a limit of its own."""
    found: dict[str, PhoneCheck] = {}
    tries = {tool.name: partial(_try, device, tool) for tool in _TOOLS}
    for check in make_checks(device.clock, tries):
        found[check.name] = check
        if check.result is CheckResult.FAILS and not _answers(device):
            yield from found.values()
            seen = "not even an empty command: nothing more is tried"
            yield PhoneCheck(
                name=_ANSWERS, result=check.result, seen=seen, cost=f"{_FATAL}; reboot it"
            )
            return
    sums = {name: found[name] for name in ("sha256sum", "md5sum")}
    if CheckResult.WORKS not in {check.result for check in sums.values()}:
        cost = f"nothing that is sent or read can be compared: {_FATAL}"
        found |= {
            name: replace(check, result=_MISSING, cost=cost)
            for name, check in sums.items()
            if check.result is not CheckResult.FAILS
        }
    yield from found.values()


def _try(device: AdbDevice, tool: _Tool) -> Found:
    script = call("try", device.work_folder, tool.wanted, *shlex.split(tool.command))
    scripts = {"folder": f"mkdir -p {quote(device.work_folder)}", "try": script}
    try:
        answer = device.ask(scripts, timeout_s=_TOOL_LIMIT_S, what=f"trying {tool.name}")
    except DeviceTimeoutError:
        return fails(f"no answer within {_TOOL_LIMIT_S:g} s", tool.cost)
    except BenchfarmError as error:
        return fails(str(error), tool.cost)
    word, _, seen = answer.value("try").partition(" ")
    if word == "works":
        return works(seen.strip())
    return tool.without, seen.strip() or reason_of(answer), tool.cost


def _answers(device: AdbDevice) -> bool:
    """Whether the phone does an empty command: if not, it is no tool that hangs."""
    try:
        device.shell(":", timeout_s=_TOOL_LIMIT_S)
    except BenchfarmError:
        return False
    return True


def _shell(device: AdbDevice) -> Found:
    told = device.shell("echo out; echo err >&2; exit 7", timeout_s=_STEP_TIMEOUT_S)
    if told.exit_code == 7 and b"out" in told.stdout.split() and b"err" in told.stderr.split():
        return works("exit codes and both streams")
    if told.exit_code == 7 and {b"out", b"err"} <= set(told.stdout.split()):
        return CheckResult.ANOTHER_WAY, "one stream", "output and errors come in one stream"
    return fails(f"exit code {told.exit_code}, {told.stdout!r}, {told.stderr!r}", _FATAL)


def _silence(device: AdbDevice) -> Found:
    """Tell what the phone prints that nobody asked for; benchfarm ignores it, and this report keeps
    it.
    """
    told = device.ask({"nothing": "cat /proc/uptime >/dev/null"}, what="asking nothing")
    noise = [told.noise, told.sections["nothing"], told.stderr]
    if any(part.strip() for part in noise):
        text = "; ".join(
            part.decode("utf-8", "replace").strip()[:_NOISE_LENGTH]
            for part in noise
            if part.strip()
        )
        return CheckResult.ANOTHER_WAY, text, "what it prints beside its answers is ignored"
    return works("nothing but answers is printed")


def _facts(device: AdbDevice) -> Found:
    facts = device.facts()
    known = {
        "model": facts.model,
        "system image": facts.fingerprint,
        "SoC": facts.soc,
        "ABI": facts.abis,
        "memory": facts.memory_bytes,
        "clusters": any(item.max_khz for item in facts.clusters),
        "GPU driver": facts.gpu_driver,
        "boot": facts.boot_id,
    }
    seen = f"{facts.title}, Android {facts.os_version}, {facts.soc}, {facts.gpu}"
    return _known(seen, [name for name, value in known.items() if not value])


def _state(device: AdbDevice) -> Found:
    state = device.state()
    known = {
        "heat": state.heat_c,
        "thermal status": state.thermal_status,
        "battery": state.battery_percent,
        "clocks": state.clock_khz,
        "GPU clock": state.gpu_khz,
        "screen": state.screen_on,
        "load": state.cpu_total_s,
        "memory": state.memory_available_bytes,
    }
    hottest = max(state.heat_c.values(), default=None)
    seen = f"battery {state.battery_percent} %, {'' if hottest is None else f'hottest zone {hottest:.0f} °C'}"
    return _known(seen, [name for name, value in known.items() if value is None or value == {}])


def _known(seen: str, unknown: Sequence[str]) -> Found:
    return (
        (CheckResult.ANOTHER_WAY, seen, f"unknown: {', '.join(unknown)}")
        if unknown
        else works(seen)
    )


def _processes(device: AdbDevice) -> Found:
    found = _process_list(device)
    if not any(item.group for item in found):
        if not found:
            return fails(
                "ps can't be read", "programs left behind can't be found: no run is started"
            )
        return CheckResult.ANOTHER_WAY, f"{len(found)} processes, without groups", ""
    return works(f"{len(found)} processes")


def _run_id() -> RunId:
    return RunId(f"check-{secrets.token_hex(6)}")


def _detached(device: AdbDevice) -> Found:
    run_id = _run_id()
    try:
        told = device.run_detached(
            "echo out; echo err >&2; echo x >made; exit 7",
            run_id=run_id,
            timeout_s=_STEP_TIMEOUT_S,
            files=("made",),
        )
    finally:
        device.discard_run(run_id)
    if (told.exit_code, told.stdout, told.stderr, told.files.get("made")) == (
        7,
        b"out\n",
        b"err\n",
        b"x\n",
    ):
        return works("exit code, both streams and a file")
    return fails(f"exit code {told.exit_code}, {told.stdout!r}, {told.stderr!r}", _FATAL)


def _wake_up(device: AdbDevice) -> Found:
    """Tell how long after its end a run is known to have ended, round trips included."""
    late_s = []
    for _ in range(_SHORT_RUNS):
        run_id = _run_id()
        told = device.run_detached(
            f"sleep {_SHORT_RUN_S} || sleep 1", run_id=run_id, timeout_s=_STEP_TIMEOUT_S
        )
        device.discard_run(run_id)
        late_s.append(max(0.0, told.duration_s - _SHORT_RUN_S))
    median_s = statistics.median(late_s)
    seen = f"{median_s * 1000:.0f} ms beside the run, at most {max(late_s) * 1000:.0f} ms"
    if median_s > _SLOW_WAKE_UP_S:
        cost = f"each invocation takes {median_s:.1f} s longer"
        return CheckResult.ANOTHER_WAY, seen, cost
    return works(seen)


def _deadline(device: AdbDevice) -> Found:
    """Let a run pass its deadline: all its processes must be gone."""
    run_id, mark = _run_id(), 86000 + secrets.randbelow(400)
    try:
        told = device.run_detached(
            f"sleep {mark} & sleep {mark}; wait", run_id=run_id, timeout_s=1.0
        )
    finally:
        device.discard_run(run_id)
        left = _end_left(device, mark)
    if not told.timed_out:
        return fails(
            f"it ended by itself, exit code {told.exit_code}", "a program that hangs isn't noticed"
        )
    if left:
        return fails(f"{left} processes stayed", "a program that hangs keeps heating the phone")
    return works("the run and its child were killed")


def _strays(device: AdbDevice) -> Found:
    """Leave a child of a run behind, and have it found."""
    run_id, mark = _run_id(), 86400 + secrets.randbelow(400)
    try:
        device.run_detached(
            f"sleep {mark} >/dev/null 2>&1 </dev/null &", run_id=run_id, timeout_s=_STEP_TIMEOUT_S
        )
        device.kill_strays()
    finally:
        left = _end_left(device, mark)
    if left:
        return fails(
            f"{left} processes stayed", "what a crash leaves behind keeps heating the phone"
        )
    return works("found and killed")


def _end_left(device: AdbDevice, mark: int) -> int:
    """End what is left of a run that this check made, and return how many processes that were.

    They sleep for a time that nothing else on the phone does: a phone without setsid hides whose
    they are.
    """
    left = [
        item.pid for item in _process_list(device) if item.command.strip().endswith(f"sleep {mark}")
    ]
    if left:
        device.shell(f"kill -9 {' '.join(map(str, left))}", timeout_s=_STEP_TIMEOUT_S)
    return len(left)


def _process_list(device: AdbDevice) -> list[PhoneProcess]:
    scripts = {"processes": call("processes")}
    answer = device.ask(scripts, timeout_s=_STEP_TIMEOUT_S, what="listing processes")
    return parse_processes(answer.text("processes"))


def _files(device: AdbDevice) -> Found:
    """Send a file, have the phone compare its sum, read it back and remove it."""
    data = secrets.token_bytes(_FILE_BYTES)
    sha256 = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory(prefix="benchfarm-check-") as folder:
        source = Path(folder) / "check.bin"
        source.write_bytes(data)
        begun_s = device.clock.monotonic_s()
        placed = device.place(
            HostFile(source=source, kind="checks", sha256=sha256, name="check.bin")
        )
        pushed_s = device.clock.monotonic_s()
    try:
        found = device.read_file(placed.path, limit_bytes=2 * _FILE_BYTES)
        pulled_s = device.clock.monotonic_s()
    finally:
        device.shell(f"rm -rf {quote(device.work_folder)}/checks")
    if found != data:
        return fails("another file came back", "models and programs arrive damaged")
    up, down = (
        _FILE_BYTES / 1e6 / max(1e-6, span) for span in (pushed_s - begun_s, pulled_s - pushed_s)
    )
    return works(f"{up:.0f} MB/s there, {down:.0f} MB/s back, sums equal")


def _program(device: AdbDevice) -> Found:
    """Send a program and run it from where benchmark programs are run."""
    data = f"#!/system/bin/sh\nexit {_PROGRAM_CODE}\n".encode()
    with tempfile.TemporaryDirectory(prefix="benchfarm-check-") as folder:
        source = Path(folder) / "check.sh"
        source.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        placed = device.place(
            HostFile(source=source, kind="checks", sha256=sha256, name="check.sh", executable=True)
        )
    try:
        told = device.shell(quote(placed.path), timeout_s=_STEP_TIMEOUT_S)
    finally:
        device.shell(f"rm -rf {quote(device.work_folder)}/checks")
    if told.exit_code != _PROGRAM_CODE:
        return fails(f"{placed.path} can't be run: {reason_of(told)}", _FATAL)
    return works("a program that was sent is run")


def _log(device: AdbDevice) -> Found:
    nonce = secrets.token_hex(8)
    deadline = Deadline(_LOG_TIMEOUT_S, device.clock)
    with device.follow_log() as lines:
        if device.shell(f"log -t benchfarm {nonce}", timeout_s=_STEP_TIMEOUT_S).exit_code != 0:
            return CheckResult.MISSING, "no tool log", "the log can't be tried by this check"
        for line in lines:
            if nonce.encode() in line:
                return works("a line written was read")
            if deadline.expired:
                break
    return (
        CheckResult.MISSING,
        f"no line within {_LOG_TIMEOUT_S:.0f} s",
        "the app's results can't be read",
    )


def _quiet(device: AdbDevice, conditioner: LadderConditioner) -> Found:
    """Bring the phone into the default quiet mode and back; tell what can't be had."""
    notes: list[str] = []
    try:
        conditioner.prepare(device, FitLimits(wait=0.0), on_note=notes.append)
    finally:
        restored = conditioner.restore(device)
    seen = f"{len(restored)} changes made and undone"
    if notes:
        return CheckResult.ANOTHER_WAY, seen, "; ".join(notes)
    return works(seen)


def _app(device: AdbDevice, package: str, apk: Path) -> Found:
    """Install an app and remove it again; one that is there already is left alone."""
    if device.package(package) is not None:
        return works(f"{package} is installed already, left as it is")
    device.install(apk, sha256=sha256_of(apk), package=package)
    device.shell(f"pm uninstall {quote(package)}", timeout_s=60.0)
    if device.package(package) is not None:
        return fails(f"{package} can't be removed", "remove it by hand")
    return works(f"{package} was installed and removed")


def works(seen: str) -> Found:
    """Return that something works."""
    return CheckResult.WORKS, seen, ""


def fails(seen: str, cost: str) -> Found:
    """Return that something fails, and what the device loses by it or what to do."""
    return CheckResult.FAILS, seen, cost
