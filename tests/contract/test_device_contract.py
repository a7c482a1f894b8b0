"""One suite for the Device port, over this computer and phones: virtual ones, those of real parts,
one on a cable."""

import contextlib
import hashlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import pytest

from orchestrator.devices.host import HostDevice
from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceTimeoutError,
    TransferError,
    UsageError,
)
from orchestrator.ports import DetachedCommand, Device, HostFile, PlacedFile, ShellResult
from orchestrator.records.case import RunId
from orchestrator.records.device import DeviceKind
from tests.samples.phones import BODIES, PhoneBody, body_of, host_file

AWKWARD_NAMES = [
    "plain.tflite",
    "with space",
    "-rf",
    "it's",
    'double"quote',
    "$(touch gone)",
    "`id`",
    "a;b&&c|d>e",
    "back\\slash",
    "star*?[a]",
    "new\nline",
    "tab\there",
    "ünïcödé-模型-🙂",
    "#hash",
    "~tilde",
    "{a,b}",
    "!bang",
    "%s%n",
    ".hidden",
    "trailing ",
]


@dataclass
class HostBody:
    """This computer under test."""

    device: HostDevice

    def sh(self, command: str) -> ShellResult:
        return self.device.shell(command, timeout_s=30.0)

    def observer(self) -> "HostBody":
        return HostBody(HostDevice(Path(self.device.work_folder)))


Body = HostBody | PhoneBody


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kind = metafunc.config.getoption("--phone")
    metafunc.parametrize(
        "body", [*(["host"] if kind == "virtual" else []), *BODIES[kind]], indirect=True
    )


@pytest.fixture
def body(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Body]:
    if request.param == "host":
        yield HostBody(HostDevice(tmp_path / "work"))
    else:
        yield from body_of(request, tmp_path)


@pytest.fixture
def device(body: Body) -> Device:
    return body.device


@pytest.fixture
def run_id() -> RunId:
    return RunId(uuid.uuid4().hex)


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Shell


def test_streams_come_apart_and_the_exit_code_is_the_commands(device: Device) -> None:
    result = device.shell("echo out; echo err >&2; exit 7")
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"out\n", b"err\n")


def test_whatever_the_command_looks_like_its_exit_code_comes_through(device: Device) -> None:
    exit_codes = {
        "true # a comment": 0,
        "exit 3 # it's": 3,
        "false": 1,
        "no-such-command-anywhere": 127,
        "sleep 0 &": 0,
        "(exit 5)": 5,
    }
    assert {command: device.shell(command).exit_code for command in exit_codes} == exit_codes


def test_an_unbalanced_quote_is_an_error_and_not_a_hang(device: Device) -> None:
    assert device.shell("echo 'open", timeout_s=20.0).exit_code != 0


def test_a_command_has_no_input_to_wait_for(device: Device) -> None:
    assert device.shell("cat").stdout == b""


def test_output_comes_byte_for_byte(device: Device, tmp_path: Path) -> None:
    data = b"\r\n\x00\xff\xfe\n\r" * 50_000
    source = tmp_path / "bytes"
    source.write_bytes(data)
    placed = device.place(host_file(source, "bytes", "inputs"))
    assert device.shell(f"cat {placed.path}").stdout == data


def test_a_command_that_takes_too_long_raises_in_time(device: Device) -> None:
    begun_s = time.monotonic()
    with pytest.raises(DeviceTimeoutError):
        device.shell("while true; do echo tick; sleep 0.05; done", timeout_s=0.5)
    assert time.monotonic() - begun_s < 60


def test_a_quoted_name_is_data(device: Device) -> None:
    for name in AWKWARD_NAMES:
        assert device.shell(f"printf %s {quote(name)}").stdout == name.encode()


# Detached runs


def test_a_detached_run_brings_streams_and_exit_code(device: Device, run_id: RunId) -> None:
    result = device.run_detached(
        DetachedCommand(line="echo out; echo err >&2; exit 9 # it's", run_id=run_id, timeout_s=30)
    )
    assert (result.exit_code, result.stdout, result.stderr) == (9, b"out\n", b"err\n")
    assert not result.timed_out
    assert result.duration_s > 0


def test_a_detached_run_stands_in_its_own_folder_whose_files_can_be_read(
    device: Device, run_id: RunId
) -> None:
    device.run_detached(
        DetachedCommand(line="pwd >where; printf data >result", run_id=run_id, timeout_s=30)
    )
    folder = device.run_folder(run_id)
    where = device.read_file(f"{folder}/where")
    assert where is not None
    assert where.decode().strip().endswith(folder)
    assert device.read_file(f"{folder}/result") == b"data"
    device.discard_run(run_id)
    device.discard_run(run_id)
    device.state()
    assert device.read_file(f"{folder}/result") is None


def test_a_detached_run_reads_no_input(device: Device, run_id: RunId) -> None:
    assert (
        device.run_detached(
            DetachedCommand(line="cat; echo end", run_id=run_id, timeout_s=30)
        ).stdout
        == b"end\n"
    )


def mark_of(run_id: RunId, kind: int) -> str:
    """For how long a run sleeps, which tells its process from those of other tests."""
    return f"{kind}{run_id[:4].translate(str.maketrans('abcdef', '012345'))}"


#: After so long a phone's answer would be overdue.
ANSWER_S = 15.0


def test_a_run_past_its_deadline_is_killed_and_what_it_printed_is_kept(
    body: Body, run_id: RunId
) -> None:
    mark = mark_of(run_id, 7)
    # On a busy computer a run may not come to its first word in so short a time.
    for timeout_s in (1.0, 5.0, 25.0):
        result = body.device.run_detached(
            DetachedCommand(
                line=f"echo begun; sleep {mark}",
                run_id=RunId(f"{run_id}-{timeout_s:.0f}"),
                timeout_s=timeout_s,
            )
        )
        assert result.exit_code is None
        assert result.timed_out
        # By its deadline, not because the phone gave no answer.
        assert result.duration_s < timeout_s + ANSWER_S
        assert not is_running(body, f"sleep {mark}")
        if result.stdout:
            break
    assert result.stdout == b"begun\n"


def test_a_cancelled_run_is_killed_with_all_its_processes(
    body: Body, run_id: RunId, wait_until: Callable[..., None]
) -> None:
    mark = mark_of(run_id, 8)
    cancelled = threading.Event()
    results: list[object] = []
    worker = threading.Thread(
        target=lambda: results.append(
            body.device.run_detached(
                DetachedCommand(
                    line=f"sh -c 'sleep {mark}; true'; true",
                    run_id=run_id,
                    timeout_s=120,
                    cancelled=cancelled,
                )
            )
        )
    )
    worker.start()
    watcher = body.observer()
    wait_until(lambda: is_running(watcher, f"sleep {mark}"), "the program runs")
    cancelled.set()
    worker.join(60)
    assert not worker.is_alive()
    assert [(result.exit_code, result.timed_out) for result in results] == [(None, False)]  # type: ignore[attr-defined]
    assert not is_running(watcher, f"sleep {mark}")


def test_a_run_that_is_cancelled_before_it_begins_never_does(body: Body, run_id: RunId) -> None:
    mark = mark_of(run_id, 6)
    cancelled = threading.Event()
    cancelled.set()
    result = body.device.run_detached(
        DetachedCommand(line=f"sleep {mark}", run_id=run_id, timeout_s=120, cancelled=cancelled)
    )
    assert (result.exit_code, result.timed_out) == (None, False)
    # One that is sent later has begun and ended by now.
    body.device.run_detached(
        DetachedCommand(line="sleep 1", run_id=RunId(f"{run_id}-later"), timeout_s=60)
    )
    assert not is_running(body, f"sleep {mark}")


def test_a_run_id_is_used_once(device: Device, run_id: RunId) -> None:
    device.run_detached(DetachedCommand(line="true", run_id=run_id, timeout_s=30))
    with pytest.raises((DeviceCommandError, TransferError)):
        device.run_detached(DetachedCommand(line="true", run_id=run_id, timeout_s=30))


def test_a_run_id_that_could_leave_its_folder_is_refused(device: Device) -> None:
    for name in ("", "..", "a/b", "a b", "$(x)", "-x"):
        with pytest.raises(UsageError):
            device.run_detached(DetachedCommand(line="true", run_id=RunId(name), timeout_s=1))


def test_strays_of_a_crashed_process_are_killed_and_their_folders_removed(
    body: Body, run_id: RunId, wait_until: Callable[..., None]
) -> None:
    mark = mark_of(run_id, 9)

    def run() -> None:
        with contextlib.suppress(DeviceError):
            body.device.run_detached(
                DetachedCommand(line=f"sleep {mark}", run_id=run_id, timeout_s=60)
            )

    crashed = threading.Thread(target=run)
    crashed.start()
    watcher = body.observer()
    wait_until(lambda: is_running(watcher, f"sleep {mark}"), "the program runs")
    killed = watcher.device.kill_leftover_runs()
    assert len(killed) == 1
    assert run_id in killed[0]
    assert not is_running(watcher, f"sleep {mark}")
    assert watcher.sh(f"ls {quote(watcher.device.run_folder(run_id))}").exit_code != 0
    assert not watcher.device.kill_leftover_runs()
    crashed.join(60)
    assert not crashed.is_alive()


# Files


def test_a_file_of_any_name_is_placed_whole_and_can_be_read_back(
    device: Device, tmp_path: Path
) -> None:
    for number, name in enumerate(AWKWARD_NAMES):
        data = name.encode() * 1000
        source = tmp_path / str(number)
        source.write_bytes(data)
        placed = device.place(host_file(source, name))
        assert placed.sha256 == sha_of(data)
        assert device.read_file(placed.path) == data, name


#: Nothing, whole frames, a whole portion of them, and one byte more.
@pytest.mark.parametrize("size", [0, 1 << 16, 1 << 19, (1 << 19) + 1])
def test_a_file_of_any_size_is_placed_whole(device: Device, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    source = tmp_path / "m.tflite"
    source.write_bytes(data)
    placed = device.place(host_file(source))
    assert device.read_file(placed.path) == data


def test_a_placed_file_is_not_sent_again(device: Device, tmp_path: Path) -> None:
    data = uuid.uuid4().bytes * 31_250  # nobody has placed it before
    source = tmp_path / "m.tflite"
    source.write_bytes(data)
    first, second = (device.place(host_file(source)) for _ in range(2))
    assert second.pushed_bytes == 0
    assert second.path == first.path
    assert first.pushed_bytes == (len(data) if device.kind is DeviceKind.ANDROID else 0)


def test_files_of_one_set_lie_in_one_folder_and_are_sent_once(
    device: Device, tmp_path: Path
) -> None:
    contents = {"program": b"program" * 50, "liba.so": b"a" * 500, "libb.so": b"b" * 500}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)

    def place_all(set_of: bytes) -> dict[str, PlacedFile]:
        return {
            name: device.place(
                HostFile(
                    source=tmp_path / name,
                    kind="programs",
                    sha256=sha_of(data),
                    name=name,
                    set_sha256=sha_of(set_of),
                )
            )
            for name, data in contents.items()
        }

    first, again, other = place_all(b"first"), place_all(b"first"), place_all(b"other")
    assert len({placed.path.rpartition("/")[0] for placed in first.values()}) == 1
    assert {placed.pushed_bytes for placed in again.values()} == {0}
    assert all(device.read_file(placed.path) == contents[name] for name, placed in again.items())
    # On this computer a file is used where it lies, whatever else it is used with.
    assert (other["liba.so"].path == first["liba.so"].path) is (device.kind is DeviceKind.HOST)


def test_an_executable_can_be_executed(device: Device, tmp_path: Path) -> None:
    script = (
        b"#!/bin/sh\necho I ran\n"
        if device.kind is DeviceKind.HOST
        else b"#!/system/bin/sh\necho I ran\n"
    )
    source = tmp_path / "program"
    source.write_bytes(script)
    source.chmod(0o755)
    placed = device.place(host_file(source, "a program", "programs", is_program=True))
    assert device.shell(quote(placed.path)).stdout == b"I ran\n"


def test_a_source_that_is_not_what_it_should_be_is_never_placed(
    device: Device, tmp_path: Path
) -> None:
    source = tmp_path / "m.tflite"
    source.write_bytes(b"something else")
    with pytest.raises(Exception, match="checksum") as caught:
        device.place(
            HostFile(
                source=source, kind="models", sha256=sha_of(b"what was meant"), name="m.tflite"
            )
        )
    assert caught.value.code == "transfer"  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        device.place(
            HostFile(source=tmp_path / "missing", kind="models", sha256=sha_of(b""), name="x")
        )


def test_a_missing_file_is_none_and_an_empty_one_is_empty(device: Device, run_id: RunId) -> None:
    device.run_detached(DetachedCommand(line=": >empty", run_id=run_id, timeout_s=30))
    assert device.read_file(f"{device.run_folder(run_id)}/empty") == b""
    assert device.read_file("/no/such/file") is None


def test_a_file_larger_than_the_limit_is_an_error(device: Device, run_id: RunId) -> None:
    device.run_detached(
        DetachedCommand(line="dd if=/dev/zero bs=5000 count=1 >big", run_id=run_id, timeout_s=30)
    )
    with pytest.raises(DeviceCommandError, match="4999 bytes"):
        device.read_file(f"{device.run_folder(run_id)}/big", limit_bytes=4999)
    data = device.read_file(f"{device.run_folder(run_id)}/big", limit_bytes=5000)
    assert data == bytes(5000)


# What it is


def test_facts_and_state_are_consistent(device: Device) -> None:
    facts, state = device.facts(), device.state()
    assert facts.serial == device.serial
    assert facts.kind is device.kind
    assert facts.boot_id == state.boot_id
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > (state.memory_available_bytes or 0) > 0
    cores = [cpu for cluster in facts.clusters for cpu in cluster.cpus]
    assert len(cores) == len(set(cores)) > 0
    assert set(facts.big_cores) <= set(cores)
    assert state.uptime_s is not None
    assert device.facts() is facts


def is_running(body: Body, command: str) -> bool:
    listing = body.sh(
        "ps -A -o PID,ARGS" if body.device.kind is DeviceKind.ANDROID else "ps -A -o pid,args"
    ).text
    return any(
        line.split(None, 1)[1].strip() == command
        for line in listing.splitlines()
        if len(line.split(None, 1)) > 1
    )
