import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.devices.host import HostDevice
from orchestrator.errors import DeviceCommandError, DeviceTimeoutError, UsageError
from orchestrator.files import LEFT_OUT, OUTPUT_MOST_BYTES
from orchestrator.ports import DetachedCommand
from orchestrator.records.case import RunId
from tests.conftest import process_is_gone
from tests.samples.phones import host_file


@pytest.fixture
def device(tmp_path: Path) -> HostDevice:
    return HostDevice(tmp_path / "work")


def test_a_computer_has_no_apps_and_no_logcat_and_says_what_to_use(
    device: HostDevice, tmp_path: Path
) -> None:
    for ask in (
        lambda: device.install(tmp_path / "a.apk", sha256="", package="a.b"),
        lambda: device.package("a.b"),
        lambda: device.follow_log(),
        lambda: device.read_file("files/x", package="a.b"),
    ):
        with pytest.raises(UsageError, match=r"device 'host'.*litert"):
            ask()


def test_a_program_without_the_executable_bit_is_refused_with_the_remedy(
    device: HostDevice, tmp_path: Path
) -> None:

    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o644)
    with pytest.raises(DeviceCommandError) as caught:
        device.place(host_file(program, "program", "programs", is_program=True))
    assert "chmod +x" in caught.value.hint


def test_what_a_run_leaves_in_the_background_is_killed_with_it(
    device: HostDevice, wait_until: Callable[..., None]
) -> None:
    result = device.run_detached(
        DetachedCommand(
            line=f"{sys.executable} -c 'import time; time.sleep(3600)' </dev/null >/dev/null 2>&1 & echo $!",
            run_id=RunId("r"),
            timeout_s=30,
        )
    )
    assert result.exit_code == 0
    pid = int(result.stdout)
    wait_until(lambda: process_is_gone(pid), "the background process has ended")


def test_a_program_that_dies_of_a_signal_has_the_shells_exit_code(device: HostDevice) -> None:
    assert (
        device.run_detached(
            DetachedCommand(line="kill -SEGV $$", run_id=RunId("r"), timeout_s=30)
        ).exit_code
        == 139
    )
    assert device.shell("kill -KILL $$").exit_code == 137


def test_stray_folders_without_a_process_are_removed_and_not_reported(device: HostDevice) -> None:
    device.run_detached(DetachedCommand(line="true", run_id=RunId("r"), timeout_s=30))
    assert not device.kill_leftover_runs()
    assert not Path(device.run_folder(RunId("r"))).exists()


def test_a_command_that_took_too_long_leaves_nothing_behind_in_a_session_of_its_own(
    device: HostDevice, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    with pytest.raises(DeviceTimeoutError):
        device.shell(f"setsid sh -c 'echo $$ >{note}; sleep 300' & sleep 300", timeout_s=2)
    assert process_is_gone(int(note.read_text()))


def test_a_computer_that_can_not_be_asked_is_in_an_unknown_state(
    device: HostDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No place for what the shell prints.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    state = device.state()
    assert (state.boot_id, state.busy_cores, state.heat_c) == ("", None, {})


def test_of_a_long_output_both_ends_are_kept_and_the_cut_is_told(device: HostDevice) -> None:
    command = "echo first; yes 0123456789 | head -c 40000000; echo; echo last"
    detached = device.run_detached(
        DetachedCommand(line=command, run_id=RunId("r"), timeout_s=100)
    ).stdout
    for output in (detached, device.shell(command, timeout_s=100).stdout):
        lines = output.splitlines()
        assert (lines[0], lines[-1], len(output) < OUTPUT_MOST_BYTES + 100) == (
            b"first",
            b"last",
            True,
        )
        assert len(LEFT_OUT.findall(output)) == 1
        # No line was cut into another one.
        assert {len(line) for line in lines[1:-2]} <= {10, len(LEFT_OUT.search(output)[0])}
