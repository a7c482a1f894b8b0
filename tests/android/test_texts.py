"""What real phones answer, printed by a phone of real parts: each has its code, its reason and a
next step."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchfarm_virtual.samples import benchmark_apk, benchmark_elf
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import (
    FolderRefusedError,
    InstallError,
    LogOverrunError,
    RunAsRefusedError,
    SystemDownError,
)
from orchestrator.files import LEFT_OUT, OUTPUT_MOST_BYTES, sha256_of
from orchestrator.ports import DetachedCommand, InvocationRequest
from orchestrator.programs.apk import ApkTool
from orchestrator.records.case import APP_PACKAGE, DelegateName, RunId, ToolName
from orchestrator.records.failures import next_step_of
from tests.conftest import AdbServer as Server
from tests.samples.command import Cli
from tests.samples.places import MODELS
from tests.samples.real_phone import RealPhone
from tests.samples.sample_lab import case
from tests.samples.tools import request_of
from tests.unit.artifacts.sample_files import app_bytes, real

#: Stands in for taskset, and for the program that it would start: prints the next of the texts,
#: logs what the phone logs of it with the process's own number, and ends as the text says.
TASKSET = """#!/system/bin/sh
cd /mnt/phone/texts
read -r n <next
echo $((n + 1)) >next
[ ! -f $n.log ] || while read -r l; do
  echo "$(date '+%m-%d %H:%M:%S.000')  1000  1000 $l" | sed "s/PID/$$/g" >>/mnt/phone/log
done <$n.log
cat $n.text >&2
read -r end <$n.end
case $end in
  -*) kill $end $$; sleep 9 ;;
  *) exit "$end" ;;
esac
"""
#: What the package manager does first: it takes as many bytes as its last argument says.
TAKE_APK = 'for last; do :; done; head -c "$last" >/dev/null'
NEURON = "Check failed: neuron_model->Compile() == NEURON_NO_ERROR"
#: What a program printed, how it ended, what the phone logged; the code that it has, a part of the
#: reason and of the next step: of each way in which a phone tells one (tests of `parse` read every
#: text). The same code never twice in a row: the case would be given up.
RUNS = (
    (
        'CANNOT LINK EXECUTABLE "./b": library "libc++_shared.so" not found: needed by main executable', "1", "",
        "missing-library", "libc++_shared.so", "library beside the program",
    ),
    ("STARTING!", "-ILL", "", "illegal-instruction", "SIGILL", "older architecture"),
    (
        "STARTING!", "-KILL", "I lmkd: Reclaim 'benchmark_model' (PID), uid 2000, oom_score_adj 0 to free 91kB",
        "low-memory-kill", "Reclaim 'benchmark_model'", "more memory",
    ),
    (
        "STARTING!", "-KILL",
        "I ActivityManager: Killing PhantomProcessRecord {1f PID:77:benchmark_model/2000}: Trimming phantom processes",
        "phantom-process-kill", "Trimming phantom processes", "max_phantom_processes",
    ),
    (
        "STARTING!\nERROR: Mmap of '184' at offset '0' failed with error '13'.\nERROR: Failed to load model.", "1",
        "W benchmark_model: avc: denied { map } for pid=PID name=\"m.tflite\" scontext=u:r:shell:s0 permissive=0",
        "selinux-denied", "denied { map }", "/data/local/tmp",
    ),
    (
        "STARTING!\nINFO: compiling\n", "-ABRT",
        ("F DEBUG: pid: PID, tid: PID, name: b  >>> /data/local/tmp/benchmark_model <<<\n"
        f"F DEBUG: Abort message: '{NEURON}'"),
        "aborted", f"abort message: {NEURON}", "results log RUN",
    ),
    (
        "STARTING!\nthe driver is in a mood\nERROR: Benchmarking failed.\ncode 17", "1", "",
        "benchmark-failed", "last line: code 17", "results log RUN",
    ),
    ("STARTING!\nINFO: about to trap", "-TRAP", "", "aborted", "last line: about to trap", "results log RUN"),
)  # fmt: skip


@pytest.fixture
def phone(adb_server: Server, tmp_path: Path) -> Iterator[RealPhone]:
    """A phone of this test alone, whose stand-ins it may change."""
    with RealPhone(tmp_path / "phone", serial="TEXTS") as phone:
        adb_server.connect(phone.address)
        yield phone


@pytest.fixture
def device(phone: RealPhone, adb_server: Server) -> AdbDevice:
    return AdbDevice(AdbServer(ServerAddress(port=adb_server.port)), phone.address)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(home=tmp_path / "home")


def stand_in(phone: RealPhone, name: str, script: str) -> None:
    """Have a command of the phone's do something else."""
    path = phone.folder / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/system/bin/sh\n{script.removeprefix('#!/system/bin/sh').lstrip()}\n")
    path.chmod(0o755)


def plan(folder: Path, tool: str, program: Path, *, invocations: int, settings: str = "") -> Path:
    path = folder / "plan.yaml"
    path.write_text(
        f"name: texts\nmodels: [{json.dumps(str(min(MODELS.glob('*float*.tflite'))))}]\n"
        f"matrix: {{delegates: [cpu], threads: [1], tools: [{tool}]}}\n"
        f"builds: {{{tool}: {json.dumps(str(program))}}}\npasses: [timing]\ninvocations: {invocations}\n"
        # Another phone of real parts may be attached.
        "devices: {serials: [TEXTS]}\n"
        f"settings: {{num_runs: 5{settings}}}\n"
    )
    return path


def test_what_a_run_prints_has_its_code_and_next_step(
    phone: RealPhone, adb_server: Server, cli: Cli, tmp_path: Path
) -> None:
    stand_in(phone, "taskset", TASKSET)
    texts = phone.folder / "state" / "texts"
    texts.mkdir()
    for number, (text, end, log, *_) in enumerate(RUNS):
        for name, content in (("text", text), ("end", end), *([("log", log)] if log else [])):
            (texts / f"{number}.{name}").write_text(f"{content}\n")
    (texts / "next").write_text("0\n")
    for path in (texts, texts / "next"):
        os.chown(path, 2000, 2000)
    program = tmp_path / "benchmark_model"
    program.write_bytes(real(benchmark_elf(abi="x86_64", version="1")))
    environ = {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{adb_server.port}"}
    done = cli(
        "run --json",
        plan(tmp_path, "native", program, invocations=len(RUNS), settings=", affinity: f"),
        **environ,
    )
    campaign = done.json["campaign_id"]
    runs = cli.json("results runs --limit 0", campaign, **environ)
    runs = sorted(
        runs["runs"] if isinstance(runs, dict) else runs, key=lambda run: run["invocation"]
    )
    assert [run["reason_code"] for run in runs] == [code for _, _, _, code, *_ in RUNS]
    for run, (_, _, _, code, reason, step) in zip(runs, RUNS, strict=True):
        assert reason in run["reason"], run
        assert step in next_step_of(code, run["reason"])


def install(device: AdbDevice, apk: Path) -> int:
    apk.write_bytes(benchmark_apk())
    return device.install(apk, sha256=sha256_of(apk), package=APP_PACKAGE)


@pytest.mark.parametrize(
    ("answer", "code", "step"),
    [
        ("Failure [INSTALL_FAILED_VERIFICATION_FAILURE: Install not allowed]", "INSTALL_FAILED_VERIFICATION_FAILURE",
         "Auto Blocker"),
        ("Failure [INSTALL_FAILED_USER_RESTRICTED: Install canceled by user]", "INSTALL_FAILED_USER_RESTRICTED",
         "Install via USB"),
        ("Failure [INSTALL_FAILED_ABORTED: User rejected permissions]", "INSTALL_FAILED_ABORTED", "look at its screen"),
        ("Failure [-99]", "-99", "USB debugging (Security settings)"),
    ],
)  # fmt: skip
def test_an_install_that_the_phone_refuses_has_its_code_and_next_step(
    device: AdbDevice, phone: RealPhone, tmp_path: Path, answer: str, code: str, step: str
) -> None:
    stand_in(phone, "cmd", f"{TAKE_APK}; echo '{answer}'; exit 1")
    with pytest.raises(InstallError) as raised:
        install(device, tmp_path / "a.apk")
    assert (raised.value.install_code, step in raised.value.hint) == (code, True), raised.value.hint


@pytest.mark.parametrize("takes", [f"{TAKE_APK};", ""], ids=["takes the APK", "takes nothing"])
@pytest.mark.parametrize(
    "answer",
    ["cmd: Can't find service: package", "cmd: Failure calling service package: Broken pipe (32)"],
)
def test_a_phone_whose_services_are_down_is_waited_for(
    device: AdbDevice, phone: RealPhone, tmp_path: Path, answer: str, takes: str
) -> None:
    stand_in(phone, "cmd", f'{takes} echo "{answer}"; exit 20')
    with pytest.raises(SystemDownError, match="service") as raised:
        install(device, tmp_path / "a.apk")
    assert raised.value.transient
    stand_in(
        phone, "pm", "cd /mnt/phone; echo x >>asked\nif [ $(wc -l <asked) -lt 3 ]; then\n"
        "echo \"cmd: Can't find service: package\" >&2; exit 20; fi; echo package:/system/framework/framework-res.apk",
    )  # fmt: skip
    device.wait_until_ready(timeout_s=60)
    assert (phone.folder / "state/asked").read_text().count("x") == 3


def test_ctrl_c_ends_an_install_that_waits_for_somebody_at_the_screen(
    phone: RealPhone, adb_server: Server, cli: Cli, tmp_path: Path
) -> None:
    stand_in(
        phone,
        "cmd",
        '[ "$2" != install ] || { ' + TAKE_APK + "; echo >/mnt/phone/waits; sleep 600; }; exit 1",
    )
    apk = tmp_path / "benchmark.apk"
    apk.write_bytes(app_bytes(abis=["x86_64"]))
    process = cli.start(
        "run",
        plan(tmp_path, "apk", apk, invocations=1),
        BENCHFARM_ADB_SERVER=f"127.0.0.1:{adb_server.port}",
    )
    while not (phone.folder / "state/waits").exists():
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def app_request() -> InvocationRequest:
    owner = case(delegate=DelegateName.CPU, tool=ToolName.APK)
    return request_of(owner, run_id=RunId("run-1"), timeout_s=300.0)


def test_an_activity_that_the_phone_refuses_to_start_is_told(
    device: AdbDevice, phone: RealPhone
) -> None:
    line = "java.lang.SecurityException: Shell does not have permission to access user 10"
    stand_in(
        phone, "am", "[ $1 = start ] || exit 0; echo 'Starting: Intent { (has extras) }'\n"
        f"echo; echo \"Exception occurred while executing 'start':\"; echo '{line}'\n"
        "echo '\tat com.android.server.am.UserController.x(UserController.java:1)'; exit 255",
    )  # fmt: skip
    request = app_request()
    report = ApkTool().parse(ApkTool().run(device, request), request.case)
    assert (report.outcome, report.failure_code, report.failure_reason) == (
        "failed",
        "activity-refused",
        line,
    )


def test_an_activity_manager_that_is_down_ends_the_run_at_once(
    device: AdbDevice, phone: RealPhone
) -> None:
    stand_in(
        phone,
        "am",
        '[ $1 = start ] || exit 0; echo "cmd: Can\'t find service: activity" >&2; exit 20',
    )
    with pytest.raises(SystemDownError, match="activity"):
        ApkTool().run(device, app_request())


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        ("run-as: Could not set capabilities: Operation not permitted", "forbids run-as"),
        ("run-as: setegid(AID_PACKAGE_INFO) failed: Operation not permitted", "set-uid"),
        (f"run-as: unknown package: {APP_PACKAGE}", "isn't installed for the user"),
        (f"run-as: package not debuggable: {APP_PACKAGE}", "debuggable build"),
    ],
)
def test_the_causes_why_an_app_s_files_are_refused_are_told_apart(
    device: AdbDevice, phone: RealPhone, answer: str, step: str
) -> None:
    stand_in(phone, "run-as", f"echo '{answer}' >&2; exit 1")
    with pytest.raises(RunAsRefusedError) as raised:
        device.read_file("x", package=APP_PACKAGE)
    assert step in raised.value.hint
    assert answer in str(raised.value)


def test_a_run_whose_files_are_refused_keeps_what_its_log_says(
    device: AdbDevice, phone: RealPhone
) -> None:
    stand_in(
        phone,
        "run-as",
        "echo 'run-as: Could not set capabilities: Operation not permitted' >&2; exit 1",
    )
    request = app_request()
    text = (
        f"Running TensorFlow Lite benchmark with args: --result_file_path=/x/run-{request.run_id}/r",
        "Inference timings in us: Init: 100, First inference: 20, Warmup (avg): 20, Inference (avg): 17",
        "Failed to save benchmark result to /x",
    )
    stand_in(
        phone, "am", "[ $1 = start ] || exit 0; echo 'Starting: Intent { }'\n"
        + "\n".join(f"echo \"$(date '+%m-%d %T.000')  77  77 I tflite: {line}\" >>/mnt/phone/log" for line in text),
    )  # fmt: skip
    report = ApkTool().parse(ApkTool().run(device, request), request.case)
    assert (report.outcome, report.inference_mean_us) == ("ok", 17.0)
    assert "forbids run-as" in str(report.extra["files_refused"])


def test_a_folder_that_the_shell_user_may_not_write_is_told_as_that(
    device: AdbDevice, tmp_path: Path
) -> None:
    source = tmp_path / "model.tflite"
    source.write_bytes(b"x" * 1000)
    with pytest.raises(FolderRefusedError) as raised:
        device.push(source, "/data/system/new/model.tflite")
    assert "ls -ld /data/local/tmp" in raised.value.hint


def test_a_log_that_was_overwritten_is_no_lost_link(device: AdbDevice, phone: RealPhone) -> None:
    stand_in(phone, "logcat", "echo 'read: unexpected EOF!' >&2; exit 1")
    with (
        pytest.raises(LogOverrunError, match="unexpected EOF") as raised,
        device.follow_log() as lines,
    ):
        list(lines)
    assert "logcat -G 16M" in raised.value.hint


def test_a_log_that_was_overwritten_is_opened_again_from_its_last_line(
    device: AdbDevice, phone: RealPhone
) -> None:
    stand_in(
        phone, "logcat",
        """echo "--------- beginning of main"
cd /mnt/phone
if [ ! -f opened ]; then
  touch opened
  echo "11-28 10:00:00.100  77  77 I tflite: first"
  echo "11-28 10:00:00.200  77  77 I tflite: twice"
  echo "11-28 10:00:00.200  77  77 I tflite: twice"
  echo "read: unexpected EOF!" >&2
  exit 1
fi
for since; do :; done
echo "11-28 10:00:00.200  77  77 I tflite: twice"
echo "11-28 10:00:00.200  77  77 I tflite: twice"
echo "11-28 10:00:00.200  77  77 I tflite: new"
echo "11-28 10:00:00.300  77  77 I tflite: since $since"
exec sleep 60""",
    )  # fmt: skip
    with device.follow_log() as lines:
        told = list(
            itertools.islice((line.split(b": ", 1)[1].decode() for line in lines if line), 5)
        )
    assert told == ["first", "twice", "twice", "new", "since 11-28 10:00:00.200"]


def test_a_run_that_prints_very_much_is_kept_by_both_ends(device: AdbDevice) -> None:
    command = "echo first; yes 0123456789 | head -c 40000000; echo; echo last"
    output = device.run_detached(
        DetachedCommand(line=command, run_id=RunId("much"), timeout_s=200)
    ).stdout
    assert len(output) < OUTPUT_MOST_BYTES + 100
    assert len(LEFT_OUT.findall(output)) == 1
    assert (output.splitlines()[0], output.splitlines()[-1]) == (b"first", b"last")
