"""Runs on virtual phones of known truth, through a real adb server: what was seen of them, and how
they are judged."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.analysis.samples import parse_samples
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.sockets import ServerAddress
from orchestrator.ports import DetachedCommand
from orchestrator.records.case import RunId
from orchestrator.records.run import SAMPLES_FILE
from orchestrator.records.verdict import Grade
from tests.samples.known_truth import WatchedPhone

if TYPE_CHECKING:
    from benchfarm_virtual.phones import VirtualPhones


@pytest.fixture
def watched(
    request: pytest.FixtureRequest, make_lab: "Callable[..., VirtualPhones]", tmp_path: Path
) -> Iterator[WatchedPhone]:
    process = request.getfixturevalue("adb_server")
    server = AdbServer(ServerAddress(port=process.port))
    phone = make_lab(process, time_factor=6.0).add("pixel-3")
    server.connect_tcp(phone.address)
    yield WatchedPhone(phone, AdbDevice(server, phone.address), tmp_path)
    server.disconnect(phone.address)


def test_throttled_runs_are_caught_and_calm_ones_are_not_accused(watched: WatchedPhone) -> None:
    tallies = watched.measure(12, seed=5)
    for tally in tallies.values():
        assert not tally.wrong, tally.wrong
        assert tally.counts[True, True]
        assert tally.counts[False, False]


def test_a_calm_run_is_graded_by_its_clocks_and_one_on_a_hot_phone_d(watched: WatchedPhone) -> None:
    watched.calm()
    # The governor may happen to leave the clocks alone for the whole run.
    assert watched.run()[1].grade in {Grade.B, Grade.C}
    assert watched.run("throttle", "steps=2")[1].grade is Grade.D


def test_a_fixed_performance_mode_is_graded_b_and_is_no_throttling(watched: WatchedPhone) -> None:
    watched.calm()
    watched.phone.hardware.set_fixed_performance(enabled=True)
    was_throttled, verdict = watched.run()
    assert not was_throttled
    assert (verdict.grade, verdict.has("throttled"), verdict.has("clocks-capped")) == (
        Grade.B,
        False,
        False,
    )


def test_clocks_that_root_pinned_are_graded_a(watched: WatchedPhone) -> None:
    watched.calm()
    for cluster in watched.phone.hardware.clusters():
        khz = cluster.available_khz[len(cluster.available_khz) // 2]
        watched.phone.hardware.set_limits(cluster, min_khz=khz, max_khz=khz)
    assert watched.run()[1].grade is Grade.A


def test_a_clock_that_jumps_during_the_run_is_told(watched: WatchedPhone) -> None:
    watched.calm()
    _, verdict = watched.run("clock-jump", "seconds=-30", "moment=run")
    assert verdict.has("clock-jumped")


def test_the_watcher_ends_with_its_run_and_leaves_nothing_running(watched: WatchedPhone) -> None:
    device = watched.device
    run_id = RunId(uuid.uuid4().hex)
    # However slow the looks are: until there are three beside the first.
    program = f"while [ $(grep -c -e --look {SAMPLES_FILE}) -lt 4 ]; do sleep 1; done; exit 3"
    assert (
        device.run_detached(DetachedCommand(line=program, run_id=run_id, timeout_s=120)).exit_code
        == 3
    )
    looks = parse_samples(device.read_file(f"{device.run_folder(run_id)}/{SAMPLES_FILE}") or b"")
    # And one at the end.
    assert len(looks.samples) >= 5
    assert looks.own_cpu_s is not None
    assert looks.duration_s >= 3 * 2.0
    assert all(
        later.uptime_s > earlier.uptime_s
        for earlier, later in zip(looks.samples, looks.samples[1:], strict=False)
    )
    assert "sampler" not in device.shell("ps -A -o ARGS").text


def test_the_watcher_is_killed_with_a_run_past_its_deadline(watched: WatchedPhone) -> None:
    device = watched.device
    result = device.run_detached(
        DetachedCommand(line="sleep 1000", run_id=RunId(uuid.uuid4().hex), timeout_s=1.0)
    )
    assert result.timed_out
    running = device.shell("ps -A -o ARGS").text
    assert "sampler" not in running
    assert "sleep" not in running
