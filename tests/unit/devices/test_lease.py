import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator import processes
from orchestrator.devices.lease import FileLease
from orchestrator.errors import DeviceBusyError
from orchestrator.processes import is_still, started_at
from orchestrator.records.case import Serial

PHONE, OTHER = Serial("R58M12"), Serial("192.168.7.21:5555")
HOLDER = """
import sys
from pathlib import Path
from orchestrator import processes
from orchestrator.devices.lease import FileLease
processes._OPEN_FILE_LOCKS = {locks}
with FileLease(Path(sys.argv[1])).acquire(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True, params=["asked", "taken"])
def how_locks_are_seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux can be asked who holds a lock; elsewhere (macOS) who asks has it for a moment."""
    if request.param == "taken":
        monkeypatch.setattr(processes, "_OPEN_FILE_LOCKS", False)


def hold_in_another_process(folder: Path, serial: Serial) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(locks=processes._OPEN_FILE_LOCKS), folder, serial],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_lease_excludes_everyone_else_and_names_the_holder(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    with lease.acquire(PHONE):
        with (
            pytest.raises(DeviceBusyError, match=r"R58M12: in use by process \d+ on .* since"),
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
    assert lease.live_holder(PHONE) == ""
    with lease.acquire(PHONE):
        pass


def test_a_lease_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path, PHONE)
    try:
        with (
            pytest.raises(DeviceBusyError, match=f"process {holder.pid} "),
            FileLease(tmp_path).acquire(PHONE),
        ):
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
        assert [path.parent for path in (tmp_path / "leases").iterdir()] == [tmp_path / "leases"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leases"]


def test_who_holds_a_phone_is_told_by_the_lock_whatever_was_written_down(tmp_path: Path) -> None:
    holder = hold_in_another_process(tmp_path, PHONE)
    lease = FileLease(tmp_path)
    assert f"process {holder.pid}" in lease.live_holder(PHONE)
    assert lease.live_holders() == {PHONE: lease.live_holder(PHONE)}
    holder.kill()
    # Not waited for: it is a zombie, and its pid is still taken.
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert [path.name for path in tmp_path.iterdir()] == [f"{PHONE}.lock"]
    assert (lease.live_holder(PHONE), lease.live_holders()) == ("", {})
    holder.communicate()
    with lease.acquire(PHONE):
        (tmp_path / f"{PHONE}.lock").write_text("no note")
        assert lease.live_holder(PHONE) == "another process"
    assert list(tmp_path.iterdir()) == []


def test_asking_who_holds_a_phone_keeps_nobody_from_it(tmp_path: Path) -> None:
    asked, over = FileLease(tmp_path), threading.Event()

    def ask() -> None:
        while not over.is_set():
            asked.live_holder(PHONE)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        for _ in range(200):
            with FileLease(tmp_path).acquire(PHONE):
                pass
    finally:
        over.set()
        for asker in askers:
            asker.join()


def test_one_who_asks_slowly_is_waited_for_and_never_named_as_the_holder(tmp_path: Path) -> None:
    with FileLease(tmp_path).acquire(PHONE):
        asked = next(tmp_path.iterdir()).open("rb")
        os.link(asked.name, kept := tmp_path / "kept")
    kept.rename(asked.name)
    fcntl.flock(asked, fcntl.LOCK_SH)
    ends = threading.Timer(3 * processes._SHORTEST_WAIT_S, asked.close)
    ends.start()
    with FileLease(tmp_path).acquire(PHONE):
        pass
    ends.join()


def test_a_reserved_phone_is_the_next_ones_and_nobody_elses(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    lease.reserve(PHONE)
    lease.reserve(OTHER)
    with pytest.raises(DeviceBusyError), FileLease(tmp_path).acquire(PHONE):
        pass
    with lease.acquire(PHONE):
        assert set(lease.live_holders()) == {PHONE, OTHER}
    lease.end_reservations()
    assert lease.live_holders() == {}


def test_a_process_is_that_one_only_with_its_number_its_start_and_its_folder(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as process:
        started_s = started_at(process.pid)
        assert started_s is not None
        assert is_still(process.pid, started_s, folder=tmp_path)
        assert not is_still(process.pid, started_s - 60.0, folder=tmp_path)
        assert not is_still(process.pid, started_s, folder=tmp_path.parent)
        assert not is_still(os.getpid(), started_s, folder=tmp_path)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_still(process.pid, started_s, folder=tmp_path)
    assert not is_still(process.pid, started_s, folder=tmp_path)
    assert started_at(process.pid) is None
