"""Everything that benchfarm relies on, tried on one phone: what works, what works another way, what is missing.

Nothing is measured and nothing stays changed. A check that fails says so and the next one is made.
"""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.conditioning import LadderConditioner
from orchestrator.devices.processes import parse_processes
from orchestrator.devices.shell import quote
from orchestrator.errors import BenchfarmError
from orchestrator.records.identity import RunId
from orchestrator.records.plan import FitLimits
from orchestrator.scripts import call

#: What is sent and read back.
_FILE_BYTES: Final = 8 << 20
_STEP_TIMEOUT_S: Final = 15.0
_LOG_TIMEOUT_S: Final = 5.0
#: A run of this length, repeated, shows how long its end goes unnoticed.
_SHORT_RUN_S: Final = 0.2
_SHORT_RUNS: Final = 5
#: More than that after a run's end costs every invocation.
_SLOW_WAKE_UP_S: Final = 0.5


class CheckResult(enum.StrEnum):
    """What came of one check."""

    WORKS = "works"
    ANOTHER_WAY = "works another way"
    MISSING = "missing"
    FAILS = "fails"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneCheck:
    """One check of a phone."""

    name: str
    result: CheckResult
    #: What was seen.
    seen: str = ""
    #: What the phone loses by it; empty when nothing.
    cost: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """What is done where a tool or a file is missing."""

    cost: str
    #: benchfarm has another way, so nothing but what ``cost`` says is lost.
    has_other_way: bool = True


_FATAL: Final = "nothing can be measured on this phone"
#: What each tool is for. A name that isn't here costs a run nothing.
_NEEDS: Final[dict[str, _Need]] = {
    "cat": _Need(cost=_FATAL, has_other_way=False),
    "chmod": _Need(cost=_FATAL, has_other_way=False),
    "getprop": _Need(cost=_FATAL, has_other_way=False),
    "mkdir": _Need(cost=_FATAL, has_other_way=False),
    "ps": _Need(cost="programs left behind can't be found: no run is started", has_other_way=False),
    "rm": _Need(cost=_FATAL, has_other_way=False),
    "wc": _Need(cost=_FATAL, has_other_way=False),
    "sleep": _Need(cost=_FATAL, has_other_way=False),
    "df": _Need(cost="a full disk shows only when a file can't be written"),
    "grep": _Need(cost="heat, clocks and load are unknown", has_other_way=False),
    "md5sum": _Need(cost=""),
    "ps-pgid": _Need(cost="processes of a run are found by their parents alone"),
    "renice": _Need(cost="the sampler runs at the program's priority"),
    "setsid": _Need(cost="a run shares its session with adb's shell"),
    "sha256sum": _Need(cost="files are compared by md5"),
    "sleep-fraction": _Need(cost="the phone waits in whole seconds"),
    "stat": _Need(cost="files are compared again before each campaign"),
    "tail": _Need(cost="a full disk shows only when a file can't be written"),
    "taskset": _Need(cost="--taskset can't be used; the sampler isn't kept off the big cores"),
    "timeout": _Need(cost="a tool that hangs is ended by its process number"),
    "am": _Need(cost="the benchmark app can't be started", has_other_way=False),
    "pm": _Need(cost="the benchmark app can't be installed", has_other_way=False),
    "run-as": _Need(cost="files of a debuggable app can't be read", has_other_way=False),
    "cmd": _Need(cost="airplane mode and fixed performance mode can't be set", has_other_way=False),
    "svc": _Need(cost="Wi-Fi and mobile data can't be switched off", has_other_way=False),
    "input": _Need(cost="the screen can't be switched", has_other_way=False),
    "logcat": _Need(cost="the app's results and reasons of kills can't be read", has_other_way=False),
    "log": _Need(cost="the log can't be tried by this check"),
    "pidof": _Need(cost="other programs that measure aren't noticed", has_other_way=False),
    "perfetto": _Need(cost="traces are recorded with atrace, if that is there"),
    "atrace": _Need(cost="before Android 10 no trace can be recorded", has_other_way=False),
    "time_in_state": _Need(cost="mean clocks of a run are estimated from samples"),
    "scaling_cur_freq": _Need(
        cost="clocks are unknown: throttling shows by heat and figures only", has_other_way=False
    ),
    "temp": _Need(cost="heat comes from thermalservice and the battery alone"),
    "current_now": _Need(cost="energy needs perfetto's meters or the battery service's current"),
    "comm": _Need(cost="the end of a run is noticed up to half a second late"),
    "stat-file": _Need(cost="the load of other processes is unknown", has_other_way=False),
}


def check_phone(
    device: AdbDevice, conditioner: LadderConditioner, *, app: tuple[str, Path] | None = None
) -> Iterator[PhoneCheck]:
    """Yield what came of each check; the device must be leased, and is restored at the end.

    ``app``: package and APK of an app that is installed and removed again, unless it is there already. A phone that
    fails a check raises nothing; what comes of it says so.
    """
    checks: list[tuple[str, Callable[[], PhoneCheck]]] = [
        ("shell", lambda: _shell(device)),
        ("facts", lambda: _facts(device)),
        ("state", lambda: _state(device)),
        ("dumpsys", lambda: _command(device, "dumpsys", "dumpsys battery", "level")),
        ("settings", lambda: _command(device, "settings", "settings get global airplane_mode_on", "")),
        ("process list", lambda: _processes(device)),
        ("detached run", lambda: _detached(device)),
        ("end of a run", lambda: _wake_up(device)),
        ("deadline", lambda: _deadline(device)),
        ("programs left behind", lambda: _strays(device)),
        ("push and pull", lambda: _files(device)),
        ("log", lambda: _log(device)),
        ("quiet mode", lambda: _quiet(device, conditioner)),
    ]
    if app is not None:
        checks.append(("app", lambda: _app(device, *app)))
    yield from _tools(device)
    for name, check in checks:
        begun_s = device.clock.monotonic_s()
        try:
            done = check()
        except BenchfarmError as error:
            done = PhoneCheck(name=name, result=CheckResult.FAILS, seen=str(error), cost=error.hint or "")
        yield replace(done, name=name, took_s=device.clock.monotonic_s() - begun_s)


def _tools(device: AdbDevice) -> Iterator[PhoneCheck]:
    """Try every tool with our options, in one round trip."""
    begun_s = device.clock.monotonic_s()
    try:
        device.shell(f"mkdir -p {quote(device.work_folder)}")
        told = device.shell(call("tools", device.work_folder), timeout_s=2 * _STEP_TIMEOUT_S).text
    except BenchfarmError as error:
        yield PhoneCheck(name="tools", result=CheckResult.FAILS, seen=str(error))
        return
    took_s = device.clock.monotonic_s() - begun_s
    has_no_tracer = not re.search(r"^(perfetto|atrace) works", told, re.M)
    for line in told.splitlines():
        name, _, rest = line.partition(" ")
        word, _, seen = rest.partition(" ")
        short = "stat-file" if name == "/proc/stat" else name.rpartition("/")[2]
        need = _NEEDS.get(short, _Need(cost=""))
        result = CheckResult.WORKS
        if word != "works":
            result = CheckResult.ANOTHER_WAY if need.has_other_way else CheckResult.MISSING
        cost = "" if result is CheckResult.WORKS else need.cost
        if short in {"perfetto", "atrace"} and has_no_tracer:
            result, cost = CheckResult.MISSING, "no trace can be recorded"
        yield PhoneCheck(name=name, result=result, seen=seen.strip(), cost=cost, took_s=took_s)
        took_s = 0.0


def _shell(device: AdbDevice) -> PhoneCheck:
    told = device.shell("echo out; echo err >&2; exit 7", timeout_s=_STEP_TIMEOUT_S)
    if (told.exit_code, told.stdout, told.stderr) == (7, b"out\n", b"err\n"):
        return _works("exit codes and both streams")
    if told.exit_code == 7 and {b"out", b"err"} <= set(told.stdout.split()):
        return PhoneCheck(
            name="", result=CheckResult.ANOTHER_WAY, seen="one stream", cost="output and errors come in one stream"
        )
    return _fails(f"exit code {told.exit_code}, {told.stdout!r}, {told.stderr!r}", _FATAL)


def _facts(device: AdbDevice) -> PhoneCheck:
    facts = device.facts()
    unknown = [
        name
        for name, value in (
            ("model", facts.model),
            ("system image", facts.fingerprint),
            ("SoC", facts.soc),
            ("ABI", facts.abis),
            ("memory", facts.memory_bytes),
            ("clusters", any(item.max_khz for item in facts.clusters)),
            ("GPU driver", facts.gpu_driver),
            ("boot", facts.boot_id),
        )
        if not value
    ]
    seen = f"{facts.title}, Android {facts.os_version}, {facts.soc}, {facts.gpu}"
    if unknown:
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen=seen, cost=f"unknown: {', '.join(unknown)}")
    return _works(seen)


def _state(device: AdbDevice) -> PhoneCheck:
    state = device.state()
    unknown = [
        name
        for name, value in (
            ("heat", state.heat_c),
            ("thermal status", state.thermal_status),
            ("battery", state.battery_percent),
            ("clocks", state.clock_khz),
            ("GPU clock", state.gpu_khz),
            ("screen", state.screen_on),
            ("load", state.cpu_total_s),
            ("memory", state.memory_available_bytes),
        )
        if value is None or value == {}
    ]
    hottest = max(state.heat_c.values(), default=None)
    seen = f"battery {state.battery_percent} %, {'' if hottest is None else f'hottest zone {hottest:.0f} °C'}"
    if unknown:
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen=seen, cost=f"unknown: {', '.join(unknown)}")
    return _works(seen)


def _command(device: AdbDevice, name: str, command: str, wanted: str) -> PhoneCheck:
    told = device.shell(command, timeout_s=_STEP_TIMEOUT_S)
    if told.exit_code == 0 and wanted in told.text:
        return _works(f"{len(told.stdout)} bytes")
    what = "heat status, battery and screen are unknown" if name == "dumpsys" else "quiet mode can't be had"
    return PhoneCheck(name=name, result=CheckResult.MISSING, seen=told.text[:80], cost=what)


def _processes(device: AdbDevice) -> PhoneCheck:
    found = parse_processes(device.shell(call("processes"), timeout_s=_STEP_TIMEOUT_S).text)
    if not any(item.group for item in found):
        if not found:
            return _fails("ps can't be read", "programs left behind can't be found: no run is started")
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen=f"{len(found)} processes, without groups")
    return _works(f"{len(found)} processes")


def _run_id() -> RunId:
    return RunId(f"check-{secrets.token_hex(6)}")


def _detached(device: AdbDevice) -> PhoneCheck:
    run_id = _run_id()
    try:
        told = device.run_detached(
            "echo out; echo err >&2; echo x >made; exit 7", run_id=run_id, timeout_s=_STEP_TIMEOUT_S, files=("made",)
        )
    finally:
        device.discard_run(run_id)
    if (told.exit_code, told.stdout, told.stderr, told.files.get("made")) == (7, b"out\n", b"err\n", b"x\n"):
        return _works("exit code, both streams and a file")
    return _fails(f"exit code {told.exit_code}, {told.stdout!r}, {told.stderr!r}", _FATAL)


def _wake_up(device: AdbDevice) -> PhoneCheck:
    """Tell how long after its end a run is known to have ended, round trips included."""
    late_s = []
    for _ in range(_SHORT_RUNS):
        run_id = _run_id()
        told = device.run_detached(f"sleep {_SHORT_RUN_S} || sleep 1", run_id=run_id, timeout_s=_STEP_TIMEOUT_S)
        device.discard_run(run_id)
        late_s.append(max(0.0, told.duration_s - _SHORT_RUN_S))
    median_s = statistics.median(late_s)
    seen = f"{median_s * 1000:.0f} ms beside the run, at most {max(late_s) * 1000:.0f} ms"
    if median_s > _SLOW_WAKE_UP_S:
        cost = f"each invocation takes {median_s:.1f} s longer"
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen=seen, cost=cost)
    return _works(seen)


def _deadline(device: AdbDevice) -> PhoneCheck:
    """Let a run pass its deadline: all its processes must be gone."""
    run_id, mark = _run_id(), 86000 + secrets.randbelow(400)
    try:
        told = device.run_detached(f"sleep {mark} & sleep {mark}; wait", run_id=run_id, timeout_s=1.0)
    finally:
        device.discard_run(run_id)
    left = [item for item in _listed(device) if item.endswith(f"sleep {mark}")]
    if not told.timed_out:
        return _fails(f"it ended by itself, exit code {told.exit_code}", "a program that hangs isn't noticed")
    if left:
        return _fails(f"{len(left)} processes stayed", "a program that hangs keeps heating the phone")
    return _works("the run and its child were killed")


def _strays(device: AdbDevice) -> PhoneCheck:
    """Leave a child of a run behind, and have it found."""
    run_id, mark = _run_id(), 86400 + secrets.randbelow(400)
    device.run_detached(f"sleep {mark} >/dev/null 2>&1 </dev/null &", run_id=run_id, timeout_s=_STEP_TIMEOUT_S)
    device.kill_strays()
    if left := [item for item in _listed(device) if item.endswith(f"sleep {mark}")]:
        return _fails(f"{len(left)} processes stayed", "what a crash leaves behind keeps heating the phone")
    return _works("found and killed")


def _listed(device: AdbDevice) -> list[str]:
    table = device.shell(call("processes"), timeout_s=_STEP_TIMEOUT_S).text
    return [item.command.strip() for item in parse_processes(table)]


def _files(device: AdbDevice) -> PhoneCheck:
    """Send a file, have the phone compare its sum, read it back and remove it."""
    data = secrets.token_bytes(_FILE_BYTES)
    sha256 = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory(prefix="benchfarm-check-") as folder:
        source = Path(folder) / "check.bin"
        source.write_bytes(data)
        begun_s = device.clock.monotonic_s()
        placed = device.place(source, kind="checks", sha256=sha256, name="check.bin")
        pushed_s = device.clock.monotonic_s()
    try:
        found = device.read_file(placed.path, limit_bytes=2 * _FILE_BYTES)
        pulled_s = device.clock.monotonic_s()
    finally:
        device.shell(f"rm -rf {quote(device.work_folder)}/checks")
    if found != data:
        return _fails("another file came back", "models and programs arrive damaged")
    up, down = (_FILE_BYTES / 1e6 / max(1e-6, span) for span in (pushed_s - begun_s, pulled_s - pushed_s))
    return _works(f"{up:.0f} MB/s there, {down:.0f} MB/s back, sums equal")


def _log(device: AdbDevice) -> PhoneCheck:
    nonce = secrets.token_hex(8)
    deadline = Deadline(_LOG_TIMEOUT_S, device.clock)
    with device.follow_log() as lines:
        if device.shell(f"log -t benchfarm {nonce}").exit_code != 0:
            return PhoneCheck(name="", result=CheckResult.MISSING, seen="no tool log", cost=_NEEDS["log"].cost)
        for line in lines:
            if nonce.encode() in line:
                return _works("a line written was read")
            if deadline.expired:
                break
    return PhoneCheck(
        name="",
        result=CheckResult.MISSING,
        seen=f"no line within {_LOG_TIMEOUT_S:.0f} s",
        cost=_NEEDS["logcat"].cost,
    )


def _quiet(device: AdbDevice, conditioner: LadderConditioner) -> PhoneCheck:
    """Bring the phone into the default quiet mode and back; tell what can't be had and what isn't as before."""
    notes: list[str] = []
    left: list[str] = []
    try:
        conditioner.prepare(device, FitLimits(wait_s=0.0), on_note=notes.append)
    finally:
        restored = conditioner.restore(device, on_note=left.append)
    if left:
        return _fails("; ".join(left), "the phone isn't left as it was found")
    seen = f"{len(restored)} changes made and undone"
    if notes:
        return PhoneCheck(name="", result=CheckResult.ANOTHER_WAY, seen=seen, cost="; ".join(notes))
    return _works(seen)


def _app(device: AdbDevice, package: str, apk: Path) -> PhoneCheck:
    """Install an app and remove it again; one that is there already is left alone."""
    if device.package(package) is not None:
        return _works(f"{package} is installed already, left as it is")
    device.install(apk, sha256=hashlib.sha256(apk.read_bytes()).hexdigest(), package=package)
    device.shell(f"pm uninstall {quote(package)}", timeout_s=60.0)
    if device.package(package) is not None:
        return _fails(f"{package} can't be removed", "remove it by hand")
    return _works(f"{package} was installed and removed")


def _works(seen: str) -> PhoneCheck:
    return PhoneCheck(name="", result=CheckResult.WORKS, seen=seen)


def _fails(seen: str, cost: str) -> PhoneCheck:
    return PhoneCheck(name="", result=CheckResult.FAILS, seen=seen, cost=cost)
