"""Everything that benchfarm relies on, tried on one phone or iPhone: what works, works another way, or is missing.

Nothing is measured and nothing stays changed. A check that fails says so and the next one is made.
"""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.conditioning import LadderConditioner
from orchestrator.devices.iphone import IPhoneDevice
from orchestrator.devices.processes import parse_processes
from orchestrator.devices.shell import quote
from orchestrator.devices.usbmux import PROGRAM
from orchestrator.errors import BenchfarmError
from orchestrator.files import sha256_of
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


#: Result, what was seen, what the phone loses by it.
_Found = tuple[CheckResult, str, str]
_FATAL: Final = "nothing can be measured on this phone"
_MISSING, _OTHER = CheckResult.MISSING, CheckResult.ANOTHER_WAY
#: What is lost without a tool or a file that benchfarm has no other way for; what else is different without one. A name
#: that isn't here costs nothing.
_WITHOUT: Final[dict[str, tuple[CheckResult, str]]] = {
    **dict.fromkeys(("cat", "chmod", "getprop", "mkdir", "rm", "wc", "sleep"), (_MISSING, _FATAL)),
    "ps": (_MISSING, "programs left behind can't be found: no run is started"),
    "grep": (_MISSING, "heat, clocks and load are unknown"),
    "am": (_MISSING, "the benchmark app can't be started"),
    "pm": (_MISSING, "the benchmark app can't be installed"),
    "run-as": (_MISSING, "files of a debuggable app can't be read"),
    "cmd": (_MISSING, "airplane mode and fixed performance mode can't be set"),
    "svc": (_MISSING, "Wi-Fi and mobile data can't be switched off"),
    "input": (_MISSING, "the screen can't be switched"),
    "logcat": (_MISSING, "the app's results and reasons of kills can't be read"),
    "pidof": (_MISSING, "other programs that measure aren't noticed"),
    "atrace": (_MISSING, "before Android 10 no trace can be recorded"),
    "scaling_cur_freq": (_MISSING, "clocks are unknown: throttling shows by heat and figures only"),
    "stat-file": (_MISSING, "the load of other processes is unknown"),
    **dict.fromkeys(("df", "tail"), (_OTHER, "a full disk shows only when a file can't be written")),
    "ps-pgid": (_OTHER, "processes of a run are found by their parents alone"),
    "renice": (_OTHER, "the sampler runs at the program's priority"),
    "setsid": (_OTHER, "a run shares its session with adb's shell"),
    "sha256sum": (_OTHER, "files are compared by md5"),
    "sleep-fraction": (_OTHER, "the phone waits in whole seconds"),
    "stat": (_OTHER, "files are compared again before each campaign"),
    "taskset": (_OTHER, "--taskset can't be used; the sampler isn't kept off the big cores"),
    "timeout": (_OTHER, "a tool that hangs is ended by its process number"),
    "log": (_OTHER, "the log can't be tried by this check"),
    "perfetto": (_OTHER, "traces are recorded with atrace, if that is there"),
    "time_in_state": (_OTHER, "mean clocks of a run are estimated from samples"),
    "temp": (_OTHER, "heat comes from thermalservice and the battery alone"),
    "current_now": (_OTHER, "energy needs perfetto's meters or the battery service's current"),
    "comm": (_OTHER, "the end of a run is noticed up to half a second late"),
}


def check_phone(
    device: AdbDevice, conditioner: LadderConditioner, *, app: tuple[str, Path] | None = None
) -> Iterator[PhoneCheck]:
    """Yield what came of each check; the device must be leased, and is restored at the end.

    ``app``: package and APK of an app that is installed and removed again, unless it is there already. A phone that
    fails a check raises nothing; what comes of it says so.
    """
    checks: dict[str, Callable[[], _Found]] = {
        "shell": lambda: _shell(device),
        "facts": lambda: _facts(device),
        "state": lambda: _state(device),
        "dumpsys": lambda: _command(device, "dumpsys battery", "level", "heat status, battery and screen are unknown"),
        "settings": lambda: _command(device, "settings get global airplane_mode_on", "", "quiet mode can't be had"),
        "process list": lambda: _processes(device),
        "detached run": lambda: _detached(device),
        "end of a run": lambda: _wake_up(device),
        "deadline": lambda: _deadline(device),
        "programs left behind": lambda: _strays(device),
        "push and pull": lambda: _files(device),
        "log": lambda: _log(device),
        "quiet mode": lambda: _quiet(device, conditioner),
    }
    if app is not None:
        checks["app"] = lambda: _app(device, *app)
    yield from _tools(device)
    yield from _made(device.clock, checks)


def check_iphone(device: IPhoneDevice) -> Iterator[PhoneCheck]:
    """Yield what came of each check, with the next step where one fails; the device must be leased."""
    unknown = (
        CheckResult.MISSING,
        "no command tells it",
        "throttling shows by the battery's heat and the figures only",
    )
    checks: dict[str, Callable[[], _Found]] = {
        "trust and app": lambda: _iphone_app(device),
        "push and pull": lambda: _iphone_files(device),
        "developer mode": lambda: _developer_mode(device),
        "developer image": lambda: _image(device),
        "developer services": lambda: _services(device),
        "battery": lambda: _battery(device),
        "thermal state": lambda: unknown,
    }
    yield from _made(device.clock, checks)


def _made(clock: Clock, checks: Mapping[str, Callable[[], _Found]]) -> Iterator[PhoneCheck]:
    """Make checks; one that raises has failed."""
    for name, check in checks.items():
        begun_s = clock.monotonic_s()
        try:
            result, seen, cost = check()
        except BenchfarmError as error:
            result, seen, cost = CheckResult.FAILS, str(error), error.hint or ""
        yield PhoneCheck(name=name, result=result, seen=seen, cost=cost, took_s=clock.monotonic_s() - begun_s)


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
        result, cost = CheckResult.WORKS, ""
        if word != "works":
            result, cost = _WITHOUT.get(short, (_OTHER, ""))
        if short in {"perfetto", "atrace"} and has_no_tracer:
            result, cost = CheckResult.MISSING, "no trace can be recorded"
        yield PhoneCheck(name=name, result=result, seen=seen.strip(), cost=cost, took_s=took_s)
        took_s = 0.0


def _shell(device: AdbDevice) -> _Found:
    told = device.shell("echo out; echo err >&2; exit 7", timeout_s=_STEP_TIMEOUT_S)
    if (told.exit_code, told.stdout, told.stderr) == (7, b"out\n", b"err\n"):
        return _works("exit codes and both streams")
    if told.exit_code == 7 and {b"out", b"err"} <= set(told.stdout.split()):
        return CheckResult.ANOTHER_WAY, "one stream", "output and errors come in one stream"
    return _fails(f"exit code {told.exit_code}, {told.stdout!r}, {told.stderr!r}", _FATAL)


def _facts(device: AdbDevice) -> _Found:
    facts = device.facts()
    known = {
        "model": facts.model, "system image": facts.fingerprint, "SoC": facts.soc, "ABI": facts.abis,
        "memory": facts.memory_bytes, "clusters": any(item.max_khz for item in facts.clusters),
        "GPU driver": facts.gpu_driver, "boot": facts.boot_id,
    }  # fmt: skip
    seen = f"{facts.title}, Android {facts.os_version}, {facts.soc}, {facts.gpu}"
    return _known(seen, [name for name, value in known.items() if not value])


def _state(device: AdbDevice) -> _Found:
    state = device.state()
    known = {
        "heat": state.heat_c, "thermal status": state.thermal_status, "battery": state.battery_percent,
        "clocks": state.clock_khz, "GPU clock": state.gpu_khz, "screen": state.screen_on, "load": state.cpu_total_s,
        "memory": state.memory_available_bytes,
    }  # fmt: skip
    hottest = max(state.heat_c.values(), default=None)
    seen = f"battery {state.battery_percent} %, {'' if hottest is None else f'hottest zone {hottest:.0f} °C'}"
    return _known(seen, [name for name, value in known.items() if value is None or value == {}])


def _known(seen: str, unknown: Sequence[str]) -> _Found:
    return (CheckResult.ANOTHER_WAY, seen, f"unknown: {', '.join(unknown)}") if unknown else _works(seen)


def _command(device: AdbDevice, command: str, wanted: str, cost: str) -> _Found:
    told = device.shell(command, timeout_s=_STEP_TIMEOUT_S)
    if told.exit_code == 0 and wanted in told.text:
        return _works(f"{len(told.stdout)} bytes")
    return CheckResult.MISSING, told.text[:80], cost


def _processes(device: AdbDevice) -> _Found:
    found = parse_processes(device.shell(call("processes"), timeout_s=_STEP_TIMEOUT_S).text)
    if not any(item.group for item in found):
        if not found:
            return _fails("ps can't be read", "programs left behind can't be found: no run is started")
        return CheckResult.ANOTHER_WAY, f"{len(found)} processes, without groups", ""
    return _works(f"{len(found)} processes")


def _run_id() -> RunId:
    return RunId(f"check-{secrets.token_hex(6)}")


def _detached(device: AdbDevice) -> _Found:
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


def _wake_up(device: AdbDevice) -> _Found:
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
        return CheckResult.ANOTHER_WAY, seen, cost
    return _works(seen)


def _deadline(device: AdbDevice) -> _Found:
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


def _strays(device: AdbDevice) -> _Found:
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


def _files(device: AdbDevice) -> _Found:
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


def _log(device: AdbDevice) -> _Found:
    nonce = secrets.token_hex(8)
    deadline = Deadline(_LOG_TIMEOUT_S, device.clock)
    with device.follow_log() as lines:
        if device.shell(f"log -t benchfarm {nonce}").exit_code != 0:
            return CheckResult.MISSING, "no tool log", _WITHOUT["log"][1]
        for line in lines:
            if nonce.encode() in line:
                return _works("a line written was read")
            if deadline.expired:
                break
    return CheckResult.MISSING, f"no line within {_LOG_TIMEOUT_S:.0f} s", _WITHOUT["logcat"][1]


def _quiet(device: AdbDevice, conditioner: LadderConditioner) -> _Found:
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
        return CheckResult.ANOTHER_WAY, seen, "; ".join(notes)
    return _works(seen)


def _app(device: AdbDevice, package: str, apk: Path) -> _Found:
    """Install an app and remove it again; one that is there already is left alone."""
    if device.package(package) is not None:
        return _works(f"{package} is installed already, left as it is")
    device.install(apk, sha256=sha256_of(apk), package=package)
    device.shell(f"pm uninstall {quote(package)}", timeout_s=60.0)
    if device.package(package) is not None:
        return _fails(f"{package} can't be removed", "remove it by hand")
    return _works(f"{package} was installed and removed")


def _iphone_app(device: IPhoneDevice) -> _Found:
    found = device.package(device.app)
    if found is None:
        step = "install it, or name an .ipa with --build; $BENCHFARM_IPHONE_APP names another bundle id"
        return _fails(f"{device.app} isn't installed", step)
    return _works(f"{device.app} {found.version_name}")


def _iphone_files(device: IPhoneDevice) -> _Found:
    with tempfile.TemporaryDirectory(prefix="benchfarm-") as folder:
        local = Path(folder) / "file"
        local.write_bytes(b"benchfarm looks whether it may put files here\n")
        is_whole = device.try_file(local)
    return _works("a file came back as it was sent") if is_whole else _fails("a file came back changed", "try again")


def _developer_mode(device: IPhoneDevice) -> _Found:
    # iOS before 16 has no such mode and the program says so.
    if device.ask("mounter", "query-developer-mode-status") is False:
        return _fails("it is off", f"'{PROGRAM} amfi enable-developer-mode' (the phone reboots)")
    return _works("it is on")


def _image(device: IPhoneDevice) -> _Found:
    if device.ask("mounter", "list") == []:
        cost = "the first run mounts it, which needs a way to Apple's server"
        return CheckResult.ANOTHER_WAY, "it isn't mounted", cost
    return _works("it is mounted")


def _services(device: IPhoneDevice) -> _Found:
    # Also through the tunnel that iOS 17 wants; whether any process has this number doesn't matter.
    device.ask("developer", "dvt", "is-running-pid", "1")
    return _works("apps can be started")


def _battery(device: IPhoneDevice) -> _Found:
    state = device.state()
    if state.battery_heat_c is None:
        cost = "its heat is unknown: nobody waits until it has cooled down"
        return CheckResult.MISSING, "it tells nothing", cost
    return _works(f"{state.battery_percent} %, {state.battery_heat_c:g} C")


def _works(seen: str) -> _Found:
    return CheckResult.WORKS, seen, ""


def _fails(seen: str, cost: str) -> _Found:
    return CheckResult.FAILS, seen, cost
