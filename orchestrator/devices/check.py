"""Checks of one phone for everything that benchfarm relies on: works, works another way, missing.

Nothing is measured and nothing stays changed. After a failed check the next one is made.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.devices.conditioning import Conditioner
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.runs import parse_processes
from orchestrator.errors import BenchfarmError
from orchestrator.ports import CheckResult, DetachedCommand, HostFile, PhoneCheck
from orchestrator.records.case import RunId
from orchestrator.records.plan import FitLimits, PlanTerms
from orchestrator.scripts import failure_reason, script_command
from orchestrator.units import counted

#: Size of the file that is sent, run and read back.
_FILE_BYTES: Final = 8 << 20
_STEP_TIMEOUT_S: Final = 15.0
#: A tool that takes longer hangs.
_TOOL_LIMIT_S: Final = 5.0
_LOG_TIMEOUT_S: Final = 5.0

#: Result, observation, what the phone loses by it.
Found = tuple[CheckResult, str, str]
_FATAL: Final = "nothing can be measured on this phone"


_CPUFREQ: Final = "/sys/devices/system/cpu/cpufreq/policy0"
#: Command -> the consequence where it fails; benchfarm has a fallback.
_OPTIONAL_TOOLS: Final = {
    "setsid true": "a run shares its session with adb's shell",
    "sha256sum try.txt | grep 911169ddaaf146af": "files are compared by md5",
    "sleep 0.05": "the phone waits in whole seconds",
    "stat -c %s try.txt | grep 4": "files are compared again before each campaign",
    "renice -n 19 -p $$": "the sampler runs at the program's priority",
    "taskset -p $$": "--taskset can't be used; the sampler runs on any core",
    "ps -A -o PID,PPID,PGID,ARGS | grep PGID": "a run's processes are found by their parents",
    "df -k .": "a full disk shows only when a file can't be written",
    "dumpsys window policy": "the app on the screen is unknown",
    "dumpsys SurfaceFlinger | grep GLES": "the GPU's driver is unknown",
    "dumpsys thermalservice | grep Temperature": "heat comes from files alone",
    f"cat {_CPUFREQ}/stats/time_in_state": "mean clocks are estimated from samples",
    "cat /sys/class/thermal/thermal_zone0/temp": "heat comes from Android's services alone",
    "cat /sys/class/power_supply/battery/current_now": "energy needs the battery service's current",
}
#: Command -> what is impossible where it fails.
_REQUIRED_TOOLS: Final = {
    "command -v am": "the benchmark app can't be started",
    "command -v cmd": "airplane mode and fixed performance mode can't be set",
    "command -v input": "the screen can't be switched",
    "command -v logcat": "the app's results and reasons of kills can't be read",
    "command -v perfetto": "no trace can be recorded",
    "command -v pidof": "other programs that measure aren't noticed",
    "command -v pm": "the benchmark app can't be installed",
    "command -v run-as": "files of a debuggable app can't be read",
    "command -v svc": "Wi-Fi and mobile data can't be switched off",
    "settings get global airplane_mode_on": "quiet mode is unavailable",
    "dumpsys battery | grep level": "the battery's state is unknown",
    "dumpsys power | grep mWakefulness": "the screen's state is unknown",
    "cat /proc/stat": "the load of other processes is unknown",
    f"cat {_CPUFREQ}/scaling_cur_freq": "clocks are unknown",
}


def check_phone(device: AdbDevice, conditioner: Conditioner) -> Iterator[PhoneCheck]:
    """Yield the result of each check; the device must be leased, and is restored at the end.

    A failed check is a result, not an error.
    """
    tools: dict[str, Callable[[], Found]] = {}
    for tool_costs, failure in (
        (_OPTIONAL_TOOLS, CheckResult.ANOTHER_WAY),
        (_REQUIRED_TOOLS, CheckResult.MISSING),
    ):
        for command, cost in tool_costs.items():
            tools[command] = partial(_tool, device, command, failure, cost)
    checks: dict[str, Callable[[], Found]] = {"shell": partial(_shell, device), **tools}
    checks |= {
        "detached run": partial(_detached, device),
        "deadline": partial(_deadline, device),
        "programs left behind": partial(_leftover_run, device),
        "push and pull": partial(_files, device),
        "log": partial(_log, device),
    }
    #: Each waits for its tools as long as a measurement would.
    slow_checks = {
        "facts": partial(_facts, device),
        "state": partial(_state, device),
        "quiet mode": partial(_quiet, device, conditioner),
    }
    hanging = ""
    for group in (checks, slow_checks):
        if hanging:
            observation = f"not tried, as {hanging!r} hangs"
            for name in group:
                yield PhoneCheck(
                    name=name, result=CheckResult.FAILS, seen=observation, cost="reboot it"
                )
            return
        for check in make_checks(device.clock, group):
            yield check
            if check.result is not CheckResult.FAILS:
                continue
            if not _answers(device):
                observation = "not even an empty command: nothing more is tried"
                cost = f"{_FATAL}; reboot it"
                yield PhoneCheck(name="answers", result=check.result, seen=observation, cost=cost)
                return
            # What failed sooner is no tool that hangs: a cut link, say.
            if check.name in tools and check.took_s >= _TOOL_LIMIT_S:
                hanging = hanging or check.name


def make_checks(clock: Clock, checks: Mapping[str, Callable[[], Found]]) -> Iterator[PhoneCheck]:
    """Make checks; one that raises has failed."""
    for name, check in checks.items():
        begun_s = clock.monotonic_s()
        try:
            result, observation, cost = check()
        except BenchfarmError as error:
            result, observation, cost = CheckResult.FAILS, str(error), error.hint or ""
        yield PhoneCheck(
            name=name,
            result=result,
            seen=observation,
            cost=cost,
            took_s=clock.monotonic_s() - begun_s,
        )


def _answers(device: AdbDevice) -> bool:
    """Whether the phone does an empty command: if not, it is no tool that hangs."""
    try:
        device.shell(":", timeout_s=_TOOL_LIMIT_S)
    except BenchfarmError:
        return False
    return True


def _tool(device: AdbDevice, command: str, failure: CheckResult, cost: str) -> Found:
    """Try a tool or a small file that phones may lack, as benchfarm uses it."""
    folder = quote(device.work_folder)
    scripts = {
        "folder": f"mkdir -p {folder}",
        "try": script_command("try", device.work_folder, command),
    }
    answer = device.ask(scripts, timeout_s=_TOOL_LIMIT_S, action=f"trying {command!r}")
    word, _, observation = answer.value("try").partition(" ")
    if word == "works":
        return works(observation.strip())
    return failure, observation.strip() or failure_reason(answer), cost


def _shell(device: AdbDevice) -> Found:
    result = device.shell("echo out; echo err >&2; exit 7", timeout_s=_STEP_TIMEOUT_S)
    if (
        result.exit_code == 7
        and b"out" in result.stdout.split()
        and b"err" in result.stderr.split()
    ):
        return works("exit codes and both streams")
    return fails(f"exit code {result.exit_code}, {result.stdout!r}, {result.stderr!r}", _FATAL)


def _facts(device: AdbDevice) -> Found:
    facts = device.facts()
    values = {
        "model": facts.model,
        "system image": facts.fingerprint,
        "SoC": facts.soc,
        "ABI": facts.abis,
        "memory": facts.memory_bytes,
        "clusters": any(item.max_khz for item in facts.clusters) or None,
        "GPU driver": facts.gpu_driver,
        "boot": facts.boot_id,
    }
    observation = f"{facts.title}, Android {facts.os_version}, {facts.soc}, {facts.gpu}"
    return _judge_values(observation, values)


def _state(device: AdbDevice) -> Found:
    state = device.state()
    values = {
        "heat": state.heat_c,
        "thermal status": state.thermal_status,
        "battery": state.battery_percent,
        "clocks": state.clock_khz,
        "GPU clock": state.gpu_khz,
        "screen": state.screen_on,
        "load": state.cpu_total_s,
        "memory": state.memory_available_bytes,
    }
    return _judge_values(f"battery {state.battery_percent} %", values)


def _judge_values(observation: str, values: Mapping[str, object]) -> Found:
    unknown = [name for name, value in values.items() if value in (None, "", (), {})]
    if unknown:
        return CheckResult.ANOTHER_WAY, observation, f"unknown: {', '.join(unknown)}"
    return works(observation)


def _run_id() -> RunId:
    return RunId(f"check-{secrets.token_hex(6)}")


def _detached(device: AdbDevice) -> Found:
    command, run_id = "echo out; echo err >&2; echo x >made; exit 7", _run_id()
    try:
        result = device.run_detached(
            DetachedCommand(line=command, run_id=run_id, timeout_s=_STEP_TIMEOUT_S, files=("made",))
        )
    finally:
        device.discard_run(run_id)
    outputs = (result.exit_code, result.stdout, result.stderr, result.files.get("made"))
    if outputs != (7, b"out\n", b"err\n", b"x\n"):
        return fails(f"exit code, streams and file: {outputs}", _FATAL)
    return works("exit code, both streams and a file")


def _deadline(device: AdbDevice) -> Found:
    """Let a run pass its deadline: all its processes must have ended."""
    run_id, mark = _run_id(), 86000 + secrets.randbelow(400)
    try:
        result = device.run_detached(
            DetachedCommand(line=f"sleep {mark} & sleep {mark}; wait", run_id=run_id, timeout_s=1.0)
        )
    finally:
        device.discard_run(run_id)
        remaining = _end_leftovers(device, mark)
    if remaining or not result.timed_out:
        observation = f"{remaining} processes kept running, exit code {result.exit_code}"
        return fails(observation, "a program that hangs keeps heating the phone")
    return works("the run and its child were killed")


def _leftover_run(device: AdbDevice) -> Found:
    """Leave a child of a run behind, and check that it is found and killed."""
    run_id, mark = _run_id(), 86400 + secrets.randbelow(400)
    command = f"sleep {mark} >/dev/null 2>&1 </dev/null &"
    try:
        device.run_detached(DetachedCommand(line=command, run_id=run_id, timeout_s=_STEP_TIMEOUT_S))
        device.kill_leftover_runs()
    finally:
        remaining = _end_leftovers(device, mark)
    if remaining:
        cost = "what a crash leaves behind keeps heating the phone"
        return fails(f"{remaining} processes kept running", cost)
    return works("found and killed")


def _end_leftovers(device: AdbDevice, mark: int) -> int:
    """Kill the remaining processes of a run that this check made, and return their number.

    Their unique sleep time identifies them, as a phone without setsid hides their run.
    """
    scripts = {"processes": script_command("processes")}
    answer = device.ask(scripts, timeout_s=_STEP_TIMEOUT_S, action="listing processes")
    processes = parse_processes(answer.text("processes"))
    pids = [item.pid for item in processes if item.command.strip().endswith(f"sleep {mark}")]
    if pids:
        device.shell(f"kill -9 {' '.join(map(str, pids))}", timeout_s=_STEP_TIMEOUT_S)
    return len(pids)


def _files(device: AdbDevice) -> Found:
    """Send a program, have the phone compare its sum, run it, read it back and remove it."""
    content = f"#!/system/bin/sh\nexit 43\n# {secrets.token_hex(_FILE_BYTES // 2)}\n".encode()
    sha256, clock = hashlib.sha256(content).hexdigest(), device.clock
    with tempfile.TemporaryDirectory(prefix="benchfarm-check-") as folder:
        file = HostFile(
            source=Path(folder, "check"),
            kind="checks",
            sha256=sha256,
            name="check",
            executable=True,
        )
        file.source.write_bytes(content)
        begun_s = clock.monotonic_s()
        placed = device.place(file)
        pushed_s = clock.monotonic_s()
    try:
        result = device.shell(quote(placed.path), timeout_s=_STEP_TIMEOUT_S)
        run_s = clock.monotonic_s()
        received = device.read_file(placed.path, limit_bytes=2 * _FILE_BYTES)
        up, down = pushed_s - begun_s, clock.monotonic_s() - run_s
    finally:
        device.shell(f"rm -rf {quote(device.work_folder)}/checks")
    if result.exit_code != 43:
        return fails(f"{placed.path} can't be run: {failure_reason(result)}", _FATAL)
    if received != content:
        return fails("another file came back", "models and programs arrive damaged")
    speeds = [f"{_FILE_BYTES / 1e6 / max(1e-6, span_s):.0f} MB/s" for span_s in (up, down)]
    return works(f"{speeds[0]} there, {speeds[1]} back, sums equal, and it was run")


def _log(device: AdbDevice) -> Found:
    nonce = secrets.token_hex(8)
    deadline = Deadline(_LOG_TIMEOUT_S, device.clock)
    with device.follow_log() as lines:
        device.shell(f"log -t benchfarm {nonce}", timeout_s=_STEP_TIMEOUT_S)
        for line in lines:
            if nonce.encode() in line:
                return works("a line written was read")
            if deadline.expired:
                break
    observation = f"no line within {_LOG_TIMEOUT_S:.0f} s"
    return CheckResult.MISSING, observation, "the app's results can't be read"


def _quiet(device: AdbDevice, conditioner: Conditioner) -> Found:
    """Bring the phone into the default quiet mode and back; report unavailable steps."""
    notes: list[str] = []

    def keep(text: str, is_problem: bool) -> None:
        if is_problem:
            notes.append(text)

    try:
        conditioner.prepare(device, PlanTerms(limits=FitLimits(wait=0.0)), on_note=keep)
    finally:
        restored = conditioner.restore(device)
    observation = f"{counted(len(restored), 'change')} made and undone"
    if notes:
        return CheckResult.ANOTHER_WAY, observation, "; ".join(notes)
    return works(observation)


def works(observation: str) -> Found:
    """Return that something works."""
    return CheckResult.WORKS, observation, ""


def fails(observation: str, cost: str) -> Found:
    """Return that something fails, and what the device loses by it or what to do."""
    return CheckResult.FAILS, observation, cost
