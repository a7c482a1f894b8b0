"""What phones do to benchfarm and benchfarm to phones: virtual ones, those of real parts, one on a
cable."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.devices.conditioning import Conditioner
from orchestrator.errors import BenchfarmError, DeviceError, DeviceStorageError, DeviceTimeoutError
from orchestrator.ports import DetachedCommand
from orchestrator.records.case import RunId
from orchestrator.records.plan import FitLimits, PlanTerms, Quiet, Screen
from tests.conftest import poll_until
from tests.samples.meanwhile import when
from tests.samples.phone_settings import changed, settings_of
from tests.samples.phones import BODIES, PhoneBody, body_of, host_file
from tests.samples.places import MODELS

ANY = PlanTerms(
    limits=FitLimits(battery_min=0, battery_heat_max=200.0, thermal_status_max=6, wait=0.0)
)
QUIET = Quiet(
    airplane=True, no_doze=True, animations_off=True, sync_off=True, fixed_performance=True
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # The adb server makes no difference here: one is enough for what takes long.
    metafunc.parametrize("phone", BODIES[metafunc.config.getoption("--phone")][:1], indirect=True)


@pytest.fixture
def phone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PhoneBody]:
    yield from body_of(request, tmp_path)


@pytest.fixture
def run_id() -> RunId:
    return RunId(uuid.uuid4().hex)


def runs(phone: PhoneBody, run_id: RunId, word: str = "begun") -> Callable[[], bool]:
    """Whether a run has printed a word, asked by somebody else."""
    watcher = phone.observer()
    command = f"grep -q {word} {watcher.device.run_folder(run_id)}/out"

    def look() -> bool:
        with contextlib.suppress(DeviceError):
            return watcher.sh(command).exit_code == 0
        return False

    return look


def processes(phone: PhoneBody) -> list[str]:
    """Return the command lines of the shell user's processes, without those of this question."""
    listing = phone.sh("ps -A -o USER,ARGS").text.splitlines()
    rows = [line.split(None, 1) for line in listing]
    return sorted(
        row[1] for row in rows if len(row) == 2 and row[0] == "shell" and "ps -A" not in row[1]
    )


def model() -> Path:
    return min(MODELS.glob("*float*.tflite"))


def place(phone: PhoneBody, source: Path) -> int:
    return phone.device.place(host_file(source)).pushed_bytes


@pytest.mark.parametrize(
    "what", [("cut",), ("kill-adbd",), ("hang", 2.0)], ids=lambda what: what[0]
)
def test_a_run_continues_without_its_link_and_ends_with_all_it_printed(
    phone: PhoneBody, run_id: RunId, what: tuple[object, ...]
) -> None:
    if what[0] not in phone.powers:
        pytest.skip(f"this phone can't be made to {what[0]}")
    meanwhile = when(runs(phone, run_id), lambda: phone.powers[str(what[0])](*what[1:]))
    result = phone.device.run_detached(
        DetachedCommand(line="echo begun; sleep 3; echo end; exit 4", run_id=run_id, timeout_s=90)
    )
    meanwhile.join()
    assert (result.exit_code, result.stdout, result.timed_out) == (4, b"begun\nend\n", False)
    assert not phone.device.kill_leftover_runs()


def test_a_reboot_ends_a_run_and_keeps_its_files(phone: PhoneBody, run_id: RunId) -> None:
    if "reboot" not in phone.powers:
        pytest.skip("this phone isn't rebooted unless asked: make test-phone DESTRUCTIVE=1")
    before = phone.device.facts().boot_id
    place(phone, model())
    when(runs(phone, run_id), phone.powers["reboot"])
    with pytest.raises(BenchfarmError, match=r"rebooted|is gone"):
        phone.device.run_detached(
            DetachedCommand(line="echo begun; sleep 300", run_id=run_id, timeout_s=330)
        )
    phone.device.wait_until_ready(timeout_s=180)
    assert phone.device.state().boot_id not in ("", before)
    assert phone.device.facts().boot_id != before
    assert phone.device.kill_leftover_runs() == []
    assert place(phone, model()) == 0


def test_a_full_phone_is_named_and_takes_the_file_once_there_is_room(phone: PhoneBody) -> None:
    phone.do("fill", phone.device)
    with pytest.raises(DeviceStorageError):
        place(phone, model())
    phone.do("empty", phone.device)
    assert place(phone, model()) == model().stat().st_size


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("file/f", "Not a directory"),
        ("folder", "Is a directory"),
        ("folder/new/", "Is a directory"),
        ("long" * 64, "File name too long"),
        ("/proc/f", "No such file or directory"),
        ("/system/f", "Read-only file system"),
    ],
)
def test_a_file_that_finds_no_place_is_reported_in_the_phones_words(
    phone: PhoneBody, target: str, words: str
) -> None:
    folder = phone.device.work_folder
    phone.sh(f"mkdir -p {folder}/folder && : >{folder}/file")
    with pytest.raises(BenchfarmError, match=words):
        phone.device.push(model(), target if target[0] == "/" else f"{folder}/{target}")


@pytest.mark.parametrize("tool", ["setsid", "sha256sum", "nohup", "find"])
def test_a_run_needs_no_tool_that_some_phones_lack(
    phone: PhoneBody, run_id: RunId, tool: str
) -> None:
    phone.do("take-away", tool)
    place(phone, model())
    result = phone.device.run_detached(
        DetachedCommand(line="echo out; exit 3", run_id=run_id, timeout_s=60)
    )
    assert (result.exit_code, result.stdout) == (3, b"out\n")
    # The run's shell ends a moment after it has told the exit code.
    poll_until(
        lambda: not [line for line in processes(phone) if run_id in line], "the run has ended"
    )
    assert phone.device.kill_leftover_runs() == []


def test_a_service_that_hangs_is_abandoned_at_its_deadline_and_costs_nothing_else(
    phone: PhoneBody, run_id: RunId
) -> None:
    phone.do("hang-dumpsys")
    with pytest.raises(DeviceTimeoutError):
        phone.device.shell("dumpsys battery", timeout_s=1.0)

    def nothing_is_left() -> None:
        """Nothing of a command stays on the phone beyond its deadline, but for the moment in which
        a killed process ends.
        """
        poll_until(
            lambda: (
                not [line for line in processes(phone) if "dumpsys" in line or "sleep 600" in line]
            ),
            "what it waits for is ended with it",
        )

    nothing_is_left()
    # A phone is opened without what its compositor doesn't tell.
    facts = phone.device.facts()
    assert (facts.gpu, bool(facts.model)) == ("", True)
    nothing_is_left()
    assert (
        phone.device.run_detached(
            DetachedCommand(line="echo out", run_id=run_id, timeout_s=60)
        ).stdout
        == b"out\n"
    )


def test_a_command_past_its_deadline_is_ended_with_all_that_it_started(phone: PhoneBody) -> None:
    with pytest.raises(DeviceTimeoutError):
        phone.device.shell("(sh -c 'sleep 4321; true'; true); echo over", timeout_s=2.0)
    poll_until(
        lambda: not [line for line in processes(phone) if "4321" in line],
        "the command's processes have ended",
    )


@pytest.mark.parametrize("signal", [9, 15])
def test_a_run_continues_when_the_shell_that_waits_for_it_is_killed(
    phone: PhoneBody, run_id: RunId, signal: int
) -> None:
    watcher = phone.observer()
    folder = phone.device.run_folder(run_id)
    sleeper = f"s=; read s <{folder}/waiter && read a b c shell rest </proc/$s/stat"
    killed: list[bool] = []
    killing = when(
        lambda: watcher.sh(f"{sleeper} && kill -{signal} $shell").exit_code == 0,
        lambda: killed.append(True),
    )
    result = phone.device.run_detached(
        DetachedCommand(line="sleep 3; echo end", run_id=run_id, timeout_s=60)
    )
    killing.join()
    assert killed
    assert (result.exit_code, result.stdout) == (0, b"end\n")


@pytest.mark.parametrize("screen", [Screen.ON, Screen.OFF])
def test_a_quiet_phone_is_afterwards_as_it_was(
    phone: PhoneBody, tmp_path: Path, screen: Screen
) -> None:
    before = settings_of(phone.sh)
    assert len(before) > 5
    conditioner = Conditioner(tmp_path / "journal")
    wanted = Quiet(**{**{name: getattr(QUIET, name) for name in QUIET.__slots__}, "screen": screen})
    conditioner.prepare(phone.device, replace(ANY, quiet=wanted))
    wanted_changes = {"state doze deep", "settings global window_animation_scale"}
    assert changed(before, settings_of(phone.sh)) >= wanted_changes
    conditioner.restore(phone.device)
    assert changed(before, settings_of(phone.sh)) == set()


def test_nothing_runs_on_and_nothing_lies_about_after_a_run(
    phone: PhoneBody, run_id: RunId
) -> None:
    phone.device.kill_leftover_runs()
    before = processes(phone)
    assert (
        phone.device.run_detached(
            DetachedCommand(line="sleep 1 & echo out", run_id=run_id, timeout_s=60)
        ).stdout
        == b"out\n"
    )
    phone.device.discard_run(run_id)
    phone.device.state()
    assert phone.sh(f"ls -A {phone.device.work_folder}/runs").stdout == b""
    phone.device.run_detached(
        DetachedCommand(line="sleep 1", run_id=RunId(f"{run_id}-later"), timeout_s=60)
    )
    phone.device.kill_leftover_runs()
    assert processes(phone) == before


def test_a_log_is_followed_from_now_on(phone: PhoneBody) -> None:
    phone.sh("log -t benchfarm_old before")
    mark = uuid.uuid4().hex
    with phone.device.follow_log() as lines:
        writer = threading.Thread(
            target=phone.observer().sh, args=(f"log -t benchfarm 'a \"{mark}\" b'",)
        )
        writer.start()
        found = next(line for line in lines if mark.encode() in line)
        writer.join()
    assert found.endswith(f'benchfarm: a "{mark}" b'.encode())
