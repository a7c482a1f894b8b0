import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.devices.lease import FileLease, is_dead, own_life
from orchestrator.errors import DeviceBusyError
from orchestrator.records.identity import Serial

PHONE, OTHER = Serial("R58M12"), Serial("192.168.7.21:5555")
HOLDER = """
import sys
from pathlib import Path
from orchestrator.devices.lease import FileLease
with FileLease(Path(sys.argv[1]), purpose="night").acquire(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold_in_another_process(folder: Path, serial: Serial) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), serial], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_lease_excludes_everyone_else_and_names_the_holder(tmp_path: Path) -> None:
    lease = FileLease(tmp_path, purpose="bench")
    with lease.acquire(PHONE):
        with (
            pytest.raises(DeviceBusyError, match=r"R58M12: in use by process \d+ on .* \(bench\) since"),
            lease.acquire(PHONE),
        ):
            pass
        with lease.acquire(OTHER):
            pass
    with FileLease(tmp_path).acquire(PHONE):
        pass


def test_a_lease_is_released_when_its_holder_raises(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    with pytest.raises(KeyError), lease.acquire(PHONE):
        raise KeyError
    assert lease.holder(PHONE) == ""
    with lease.acquire(PHONE):
        pass


def test_a_lease_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path, PHONE)
    try:
        with pytest.raises(DeviceBusyError, match=f"process {holder.pid} .*night"), FileLease(tmp_path).acquire(PHONE):
            pass
    finally:
        holder.kill()
        holder.wait()
    with FileLease(tmp_path).acquire(PHONE, wait_s=10.0):
        pass


def test_a_lease_is_waited_for(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path, PHONE)
    assert holder.stdin is not None
    holder.stdin.close()
    with FileLease(tmp_path).acquire(PHONE, wait_s=30.0):
        assert holder.wait(30) == 0


def test_a_serial_with_awkward_characters_stays_inside_the_folder(tmp_path: Path) -> None:
    with FileLease(tmp_path / "leases").acquire(Serial("../../etc/x:y z")):
        assert [path.parent for path in (tmp_path / "leases").iterdir()] == [tmp_path / "leases"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leases"]


def test_a_killed_holder_is_told_from_a_living_one_though_its_note_is_left(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path, PHONE)
    lease = FileLease(tmp_path)
    assert f"process {holder.pid}" in lease.live_holder(PHONE)
    holder.kill()
    # Not waited for: it is a zombie, and its pid is still taken.
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert lease.live_holder(PHONE) == ""
    assert f"process {holder.pid}" in lease.holder(PHONE)
    holder.communicate()


def test_a_pid_that_was_given_again_is_another_life() -> None:
    life = own_life()
    assert not is_dead(life)
    assert is_dead(life + "0")
    assert not is_dead("")
    assert not is_dead("another-boot pid:[1] 1 5")
