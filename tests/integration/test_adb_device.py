"""AdbDevice against virtual phones whose link, storage or package manager goes wrong, through real
adb servers."""

import contextlib
import re
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.samples import BENCHMARK_PACKAGE, benchmark_apk
from orchestrator.app.workspace import Workspace
from orchestrator.clock import Deadline, SystemClock
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.discovery import STATE_NOTES, PhoneCache, list_devices
from orchestrator.devices.phone import WORK_FOLDER, AdbDevice
from orchestrator.devices.sockets import Connection, ServerAddress
from orchestrator.errors import (
    AdbUnavailableError,
    BenchfarmError,
    DeviceChangedError,
    DeviceTimeoutError,
    DeviceUnusableError,
    InstallError,
    LinkLostError,
    TransferError,
    UsageError,
)
from orchestrator.extensions.farm.phones import HostPhones, Shared
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.files import sha256_of
from orchestrator.ports import DetachedCommand, HostFile
from orchestrator.records.case import RunId, Serial
from orchestrator.settings import Settings
from tests.conftest import poll_until, running_server
from tests.samples.meanwhile import runs, switch_on_at, when
from tests.samples.phones import host_file

if TYPE_CHECKING:
    from benchfarm_virtual.phone import Phone
    from benchfarm_virtual.phones import VirtualPhones


class Bench:
    """A lab behind one adb server, as benchfarm sees it."""

    def __init__(self, server: AdbServer, lab: "VirtualPhones") -> None:
        self.server = server
        self.lab = lab

    def phone(self, **settings: object) -> "Phone":
        phone = self.lab.add("pixel-3", **settings)  # type: ignore[arg-type]
        self.server.connect_tcp(phone.address)
        return phone

    def open(self, phone: "Phone") -> AdbDevice:
        return AdbDevice(self.server, phone.address)


#: Words of tests in which an older adb server may do something else; the device contract uses both
#: servers throughout.
SERVERS_DIFFER = ("apk", "log", "push", "server", "transport")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run with Debian's adb server, too, what may differ with it."""
    if "bench" in metafunc.fixturenames:
        may_differ = any(word in metafunc.function.__name__ for word in SERVERS_DIFFER)
        metafunc.parametrize(
            "bench", ["adb36", "adb29"] if may_differ else ["adb36"], indirect=True
        )


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    process = request.getfixturevalue(
        {"adb36": "adb_server", "adb29": "old_adb_server"}[request.param]
    )
    bench = Bench(
        AdbServer(ServerAddress(port=process.port)),
        request.getfixturevalue("make_lab")(process, time_factor=1.0),
    )
    yield bench
    for phone in bench.lab.phones.values():
        bench.server.disconnect(phone.address)


@pytest.fixture
def phone(bench: Bench) -> "Phone":
    return bench.phone()


@pytest.fixture
def device(bench: Bench, phone: "Phone") -> AdbDevice:
    return bench.open(phone)


@pytest.fixture
def run_id() -> RunId:
    return RunId(uuid.uuid4().hex)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.tflite"
    path.write_bytes(bytes(range(256)) * 2048)
    return path


def place(device: AdbDevice, source: Path) -> int:
    return device.place(host_file(source)).pushed_bytes


def fault(phone: "Phone", kind: str, *settings: str) -> int:
    return phone.faults.add(parse_fault(kind, settings)).fault_id


# Who it is


def test_a_phone_is_known_by_its_own_serial_and_not_by_its_address(
    device: AdbDevice, phone: "Phone"
) -> None:
    assert device.serial == phone.serial
    assert device.transport == phone.address
    facts = device.facts()
    assert facts.is_virtual
    assert not facts.is_emulator
    assert facts.codename == "blueline"
    assert facts.abis[0] == "arm64-v8a"
    assert len(facts.clusters) == 2
    assert facts.big_cores == (4, 5, 6, 7)
    assert facts.profile == ""
    assert "Adreno" in facts.gpu
    assert facts.sdk is not None
    assert not facts.is_rooted


def test_a_phone_that_lets_nobody_in_is_listed_with_what_to_do(bench: Bench) -> None:
    phone = bench.lab.add("pixel-3")
    fault(phone, "unauthorized")
    with pytest.raises(DeviceUnusableError, match=r"authenticate|doesn't know"):
        bench.server.connect_tcp(phone.address, timeout_s=30.0)
    seen = next(one for one in list_devices(bench.server) if one.address == phone.address)
    assert (seen.usable, seen.state) == (False, "unauthorized")
    assert "Allow USB debugging" in seen.advice
    with pytest.raises(DeviceUnusableError):
        AdbDevice(bench.server, phone.address)


def test_a_phone_that_answers_nothing_does_not_hold_up_the_list(bench: Bench) -> None:
    hung, well = bench.phone(), bench.phone()
    fault(hung, "hang")
    # A busy computer may need longer for the one that is well.
    for timeout_s in (1.0, 5.0, 25.0):
        seen = {one.address: one for one in list_devices(bench.server, timeout_s=timeout_s)}
        assert not seen[hung.address].usable
        assert "doesn't answer" in seen[hung.address].reason
        if seen[well.address].usable:
            return
    pytest.fail(f"{well.address} isn't usable: {seen}")


def test_a_known_phone_is_not_asked_again_until_its_connection_is_another_one(
    bench: Bench, phone: "Phone"
) -> None:
    def seen(timeout_s: float = 30.0) -> bool:
        listed = list_devices(bench.server, timeout_s=timeout_s, cache=known)
        return next(one for one in listed if one.address == phone.address).usable

    known = PhoneCache()
    assert seen()
    hanging = fault(phone, "hang")
    assert seen()
    known.forget(phone.serial)
    assert not seen(1.0)
    phone.faults.remove(hanging)
    assert seen()
    bench.server.disconnect(phone.address)
    bench.server.connect_tcp(phone.address)
    fault(phone, "hang")
    assert not seen(1.0)


@pytest.fixture
def look(
    bench: Bench, connect: Callable[[], FarmQueue], tmp_path: Path
) -> Callable[..., Mapping[str, Announced]]:
    """Look at the phones as a worker does, in a farm in which no other host has one."""
    here = Settings.from_environment(
        {
            "BENCHFARM_HOME": str(tmp_path),
            "BENCHFARM_ADB_SERVER": f"127.0.0.1:{bench.server.address.port}",
        }
    )

    phones = HostPhones(
        Shared(settings=here), connect(), "here", idle_check_s=0, say=lambda text, **keys: None
    )

    def look(known: Mapping[str, Announced], busy: Collection[str] = ()) -> Mapping[str, Announced]:
        phones._phones = known
        return phones.check(busy)

    return look


def test_a_worker_asks_nothing_of_a_phone_that_is_busy(
    phone: "Phone", look: Callable[..., Mapping[str, Announced]]
) -> None:
    first = look({})
    assert not first[phone.serial].unusable
    fault(phone, "hang")
    away = {phone.serial: replace(first[phone.serial], unusable="offline")}
    assert look(away, [phone.serial]) == {phone.serial: first[phone.serial]}


def test_a_worker_tells_of_a_phone_that_lets_nobody_in_any_more_until_it_is_unplugged(
    bench: Bench, phone: "Phone", look: Callable[..., Mapping[str, Announced]]
) -> None:
    def until(reason: str, known: Mapping[str, Announced]) -> Mapping[str, Announced]:
        deadline = Deadline(60.0)
        # Over TCP it is gone for a moment in between.
        while phone.serial not in (found := look(known)) or found[phone.serial].unusable != reason:
            assert not deadline.expired, found
        return found

    first = look({})
    refusing = fault(phone, "unauthorized")
    away = until("the phone doesn't know this computer's key", first)
    assert away[phone.serial].facts == first[phone.serial].facts
    phone.faults.remove(refusing)
    back = until("", away)
    bench.server.disconnect(phone.address)
    assert look(back) == {}


def test_a_worker_tells_of_a_phone_that_is_back_and_cannot_be_looked_at(
    phone: "Phone", look: Callable[..., Mapping[str, Announced]]
) -> None:
    first = look({})
    fault(phone, "output-cut", "times=0")
    away = {phone.serial: replace(first[phone.serial], unusable="offline")}
    found = look(away)
    assert found[phone.serial].unusable not in {"", "offline"}
    assert look({})[phone.serial] == replace(found[phone.serial], facts="")


def test_a_worker_tells_of_a_phone_that_could_not_be_used_from_the_beginning(
    bench: Bench, phone: "Phone", look: Callable[..., Mapping[str, Announced]]
) -> None:
    refusing = fault(phone, "unauthorized")
    deadline = Deadline(60.0)
    # Over TCP it is reconnected first.
    while (away := look({})) != {
        phone.address: Announced(facts="", unusable=STATE_NOTES["unauthorized"][0])
    }:
        assert not deadline.expired, away
    phone.faults.remove(refusing)
    while (found := look(away)).keys() != {phone.serial} or not found[phone.serial].facts:
        assert not deadline.expired, found
    assert not found[phone.serial].unusable


def test_a_worker_names_who_keeps_a_phone_from_it_and_asks_it_nothing_meanwhile(
    phone: "Phone", look: Callable[..., Mapping[str, Announced]], tmp_path: Path
) -> None:
    serial = Serial(phone.serial)
    with Workspace(Settings.from_environment({"BENCHFARM_HOME": str(tmp_path)})) as workspace:
        with workspace.lease.acquire(serial):
            held = look({})
            assert (held[serial].facts, held[serial].unusable[:17]) == ("", "in use by process")
            assert look(held) == held
        workspace.quarantine.put(serial, "battery swollen")
        kept_out = look(held)
        assert kept_out[serial].unusable.startswith("in quarantine: battery swollen")
        workspace.quarantine.release(serial)
    free = look(kept_out)[serial]
    assert (bool(free.facts), free.unusable) == (True, "")


# The link


def test_a_link_cut_before_the_exit_code_is_never_a_success(
    device: AdbDevice, phone: "Phone"
) -> None:
    when(runs(phone, "sleep 300"), lambda: fault(phone, "cut"))
    with pytest.raises(LinkLostError):
        device.shell("echo partial; sleep 300", timeout_s=120)


def test_output_that_ends_without_an_exit_code_is_a_lost_link(
    device: AdbDevice, phone: "Phone"
) -> None:
    fault(phone, "output-cut", "moment=shell", "bytes=100")
    with pytest.raises(LinkLostError):
        device.shell("getprop")


def test_a_hung_phone_raises_at_the_deadline_and_gets_well_again(
    device: AdbDevice, phone: "Phone"
) -> None:
    hang = fault(phone, "hang")
    with pytest.raises(DeviceTimeoutError):
        device.shell("true", timeout_s=0.5)
    with pytest.raises(DeviceTimeoutError):
        device.check_health(timeout_s=0.5)
    with pytest.raises(DeviceTimeoutError, match=r"the phone didn't connect within 1\.0 s"):
        device.reconnect(Deadline(1.0))
    phone.faults.remove(hang)
    device.reconnect(Deadline(30.0))
    device.check_health()


class LateClock(SystemClock):
    """A clock that is late for every deadline: a quarter of an hour passes between two looks."""

    looks = 0

    def monotonic_s(self) -> float:
        """Return a quarter of an hour more than the last time."""
        self.looks += 1
        return self.looks * 900.0


def test_a_run_whose_phone_was_waited_for_in_vain_is_left_without_a_further_wait(
    bench: Bench, device: AdbDevice, run_id: RunId
) -> None:
    device.clock = LateClock()
    with pytest.raises(DeviceTimeoutError):
        device.run_detached(DetachedCommand(line="true", run_id=run_id, timeout_s=1))
    device.clock = SystemClock()
    bench.server.disconnect(device.transport)
    device.discard_run(run_id)
    assert bench.server.transport_state(device.transport) == ""


def test_the_time_for_which_a_phone_was_away_after_its_run_s_end_is_no_part_of_the_run(
    device: AdbDevice, phone: "Phone", run_id: RunId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.devices.runs._LONGEST_WAIT_S", 1.0)
    monkeypatch.setattr("orchestrator.devices.runs._ANSWER_S", 1.0)
    is_running, ends_s = runs(phone, "sleep 2"), list[float]()

    def report(text: str, is_away: bool) -> None:
        if is_away:
            poll_until(lambda: not is_running(), "the run ends")
            ends_s.append(time.monotonic())
            poll_until(lambda: time.monotonic() > ends_s[0] + 1.0, "it stays away for a second")
            phone.faults.clear()

    device.on_offline = report
    meanwhile = when(is_running, lambda: fault(phone, "hang"))
    begun_s = time.monotonic()
    result = device.run_detached(
        DetachedCommand(line="sleep 2; echo end", run_id=run_id, timeout_s=120)
    )
    meanwhile.join()
    assert result.stdout == b"end\n"
    assert result.duration_s < ends_s[0] + 0.5 - begun_s


class FastClock(SystemClock):
    """A clock on which twenty seconds pass in one."""

    def monotonic_s(self) -> float:
        """Return twenty times the seconds."""
        return 20 * super().monotonic_s()

    def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
        """Wait a twentieth of the time."""
        return super().wait(seconds / 20, cancelled)


@pytest.mark.parametrize(("timeout_s", "away_s", "most_s"), [(10, 1000.0, 20), (1000, 0.0, 10)])
def test_a_phone_that_hangs_is_awaited_until_its_run_s_time_or_the_campaign_s_is_over(
    device: AdbDevice, phone: "Phone", run_id: RunId, timeout_s: float, away_s: float, most_s: int
) -> None:
    device.state()
    texts: list[str] = []
    device.on_offline = lambda text, is_away: texts.append(text)
    device.clock = FastClock()
    fault(phone, "hang")
    with pytest.raises(DeviceTimeoutError):
        device.run_detached(
            DetachedCommand(line="true", run_id=run_id, timeout_s=timeout_s, away_s=away_s)
        )
    # Twenty seconds or more passed until it was known to hang, of the thirty behind the run's time.
    (limit_s,) = re.findall(r"waiting up to ([\d.]+) s for it", texts[0])
    assert float(limit_s) <= most_s


@pytest.mark.parametrize(("size_bytes", "seconds"), [(10_000_000, "31"), (4_000_000_000, "430")])
def test_a_phone_may_take_as_long_to_look_for_a_file_as_its_checksum_needs(
    device: AdbDevice, tmp_path: Path, size_bytes: int, seconds: str
) -> None:
    source = tmp_path / "m.tflite"
    with source.open("wb") as stream:
        stream.truncate(size_bytes)
    wanted = HostFile(source=source, kind="models", sha256="0" * 64, name="m.tflite")
    device.clock = LateClock()
    with pytest.raises(
        DeviceTimeoutError, match=rf"looking for m\.tflite took longer than {seconds} s"
    ):
        device.place(wanted)


def test_questions_survive_a_cut_link(device: AdbDevice, phone: "Phone", model: Path) -> None:
    for ask in (
        device.facts,
        device.state,
        lambda: place(device, model),
        lambda: device.read_file("/proc/version"),
    ):
        fault(phone, "cut", "moment=open:shell")
        assert ask() is not None


def test_a_run_whose_start_was_cut_off_halfway_may_be_tried_again(
    device: AdbDevice, run_id: RunId
) -> None:
    # What the first of two starts had done when its link was lost.
    device.shell(f"mkdir -p {device.run_folder(run_id)}")
    with pytest.raises(TransferError, match="starting a run failed") as caught:
        device.run_detached(DetachedCommand(line="true", run_id=run_id, timeout_s=30))
    assert caught.value.transient


def test_waiting_for_a_run_costs_the_phone_hardly_a_process_and_leaves_none(
    device: AdbDevice, run_id: RunId
) -> None:
    def started() -> int:
        return int(device.shell("grep ^processes /proc/stat").text.split()[1])

    before = started()
    device.run_detached(
        DetachedCommand(line="sleep 8", run_id=run_id, timeout_s=60, files=("where",))
    )
    # What starts, watches and reads the run: looking ten times a second would be 80 more.
    assert started() - before < 60
    assert "sleep" not in device.shell("ps -A -o ARGS").text


def test_a_run_is_started_once_though_the_link_is_cut_while_it_starts(
    device: AdbDevice, phone: "Phone", run_id: RunId
) -> None:
    fault(phone, "output-cut", "moment=shell", "bytes=1")
    marker = f"{WORK_FOLDER}/started-{run_id}"
    result = device.run_detached(
        DetachedCommand(line=f"echo once >>{marker}; sleep 1", run_id=run_id, timeout_s=60)
    )
    assert result.exit_code == 0
    assert device.read_file(marker) == b"once\n"


def test_another_phone_behind_the_same_address_is_not_taken_for_the_first(
    bench: Bench, device: AdbDevice
) -> None:
    first = bench.lab.phones[device.serial]
    port = first.port
    first.close()
    switch_on_at(bench.lab, "pixel-4", serial="IMPOSTOR", port=port)

    def look() -> None:
        device.state()
        # Where the server had connected to it by itself before, nothing was lost yet.
        device.facts()

    with pytest.raises(DeviceChangedError, match="IMPOSTOR"):
        look()


def test_a_phone_that_is_gone_is_a_transient_error(bench: Bench, device: AdbDevice) -> None:
    bench.lab.phones[device.serial].close()
    with pytest.raises(BenchfarmError) as caught:
        device.shell("true", timeout_s=5)
    assert caught.value.transient
    with pytest.raises(DeviceTimeoutError):
        device.wait_until_ready(timeout_s=1.0)


class CountingServer(AdbServer):
    """An adb server of others, which isn't always there."""

    refused = 0

    def open(self, *services: str, **settings: Any) -> Connection:
        try:
            return super().open(*services, **settings)
        except AdbUnavailableError:
            self.refused += 1
            raise


def test_a_server_of_others_that_is_restarted_is_waited_for(
    adb_server: Any, make_lab: Callable[..., "VirtualPhones"], tmp_path: Path
) -> None:
    with contextlib.contextmanager(running_server)(adb_server.binary, tmp_path / "home") as process:
        server = CountingServer(ServerAddress(port=process.port))
        phone = make_lab(process).add("pixel-3")
        server.connect_tcp(phone.address)
        device = AdbDevice(server, phone.address)
        process.stop()
        # A question, and the first try to get the phone back.
        when(lambda: server.refused >= 2, process.start)
        assert device.state().boot_id


# Files


def test_a_second_campaign_pushes_nothing_and_a_damaged_file_is_pushed_again(
    bench: Bench, device: AdbDevice, phone: "Phone", model: Path
) -> None:
    assert place(device, model) == model.stat().st_size
    assert place(bench.open(phone), model) == 0
    path = device.place(host_file(model)).path
    device.shell(f"printf x >>{path}")
    assert place(device, model) == model.stat().st_size
    assert place(device, model) == 0


def test_a_file_flipped_on_its_way_is_noticed_and_sent_again(
    device: AdbDevice, phone: "Phone", model: Path
) -> None:
    fault(phone, "bit-flip", "moment=push", "bytes=1000")
    assert place(device, model) == model.stat().st_size
    assert device.read_file(device.place(host_file(model)).path) == model.read_bytes()


#: Prints all files in the folder of models, hidden ones too.
MODEL_FILES = f"cd {WORK_FOLDER}/models; for f in * */* */.*; do [ ! -f $f ] || echo $f; done"


def test_a_file_flipped_every_time_is_an_error_and_leaves_nothing(
    device: AdbDevice, phone: "Phone", model: Path
) -> None:
    fault(phone, "bit-flip", "moment=push", "bytes=1000", "times=0")
    with pytest.raises(TransferError, match="checksum"):
        place(device, model)
    assert device.shell(MODEL_FILES).text == ""


def test_a_push_cut_off_is_tried_again_and_leaves_nothing_else(
    device: AdbDevice, phone: "Phone", model: Path
) -> None:
    fault(phone, "cut", "moment=push", "bytes=100000")
    assert place(device, model) == model.stat().st_size
    assert phone.faults.is_empty
    found = device.shell(MODEL_FILES).text.split()
    assert sorted(path.rpartition("/")[2].partition(".")[2] for path in found) == [
        "tflite",
        "verified",
    ]


def test_files_of_earlier_campaigns_make_room_on_a_full_phone(
    bench: Bench, phone: "Phone", tmp_path: Path
) -> None:
    def source(number: int) -> Path:
        path = tmp_path / f"model{number}"
        path.write_bytes(bytes([number]) * 300_000)
        return path

    first = AdbDevice(bench.server, phone.address)
    for number in (1, 2):
        place(first, source(number))
    # As many as a command of 64 KB can't name one by one.
    names = [f"{number:016}" for number in range(700)]
    for some in (names[:350], names[350:]):
        first.shell(f"cd {WORK_FOLDER}/models && mkdir {' '.join(some)}")
    second = AdbDevice(bench.server, phone.address)
    place(second, source(2))
    storage = phone.userland.files.storage
    taken = storage.take_most(storage.free_bytes - (500 << 20))
    try:
        assert place(second, source(3)) == 300_000
        assert len(second.shell(f"ls -d {WORK_FOLDER}/models/*/").text.split()) == 2
        assert [place(second, source(number)) for number in (2, 3)] == [0, 0]
    finally:
        storage.take_most(-taken)


def test_a_phone_too_old_for_exit_codes_is_refused_with_the_reason(bench: Bench) -> None:
    phone = bench.phone(legacy=True)
    (seen,) = [one for one in list_devices(bench.server) if one.address == phone.address]
    assert not seen.usable
    assert (seen.reason, seen.advice) == (
        "it has Android 6 or older",
        "benchfarm needs Android 7 or later",
    )


# Apps


@pytest.fixture
def apk(tmp_path: Path) -> Path:
    path = tmp_path / "benchmark.apk"
    path.write_bytes(benchmark_apk())
    return path


def install(device: AdbDevice, apk: Path) -> int:
    return device.install(apk, sha256=sha256_of(apk), package=BENCHMARK_PACKAGE)


def test_an_apk_is_installed_once_and_checked(
    bench: Bench, device: AdbDevice, phone: "Phone", apk: Path
) -> None:
    assert device.package(BENCHMARK_PACKAGE) is None
    assert install(device, apk) == apk.stat().st_size
    installed = device.package(BENCHMARK_PACKAGE)
    assert installed is not None
    assert (installed.sha256, installed.version_name) == (sha256_of(apk), "1.0")
    assert install(bench.open(phone), apk) == 0


@pytest.mark.parametrize(
    ("settings", "code", "hint"),
    [
        ({"abis": ["x86"]}, "INSTALL_FAILED_NO_MATCHING_ABIS", "choose a build for its ABI"),
        ({"min_sdk": 99}, "INSTALL_FAILED_OLDER_SDK", "older build"),
    ],
)
def test_an_apk_that_does_not_fit_is_refused_with_code_and_next_step(
    device: AdbDevice, apk: Path, settings: dict[str, object], code: str, hint: str
) -> None:
    apk.write_bytes(benchmark_apk(**settings))  # type: ignore[arg-type]
    with pytest.raises(InstallError) as caught:
        install(device, apk)
    assert caught.value.install_code == code
    assert hint in caught.value.hint
    assert caught.value.serial == device.serial


def test_a_file_that_is_no_apk_is_refused(device: AdbDevice, apk: Path) -> None:
    apk.write_bytes(b"no apk" * 100_000)
    with pytest.raises(InstallError, match="INSTALL_PARSE_FAILED"):
        install(device, apk)


def test_an_apk_of_another_package_is_told(device: AdbDevice, apk: Path) -> None:
    apk.write_bytes(benchmark_apk(package="org.example.other"))
    with pytest.raises(InstallError, match="isn't installed"):
        install(device, apk)


def test_a_link_cut_during_an_install_is_no_success(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    big = tmp_path / "big.apk"
    big.write_bytes(benchmark_apk() + bytes(3_000_000))
    fault(phone, "cut", "bytes=1000000", "subject=up")
    with pytest.raises((LinkLostError, DeviceTimeoutError)):
        install(device, big)


def test_a_tool_s_warning_while_an_apk_is_sent_is_no_refusal(
    device: AdbDevice, phone: "Phone", tmp_path: Path
) -> None:
    big = tmp_path / "big.apk"
    big.write_bytes(benchmark_apk())
    with zipfile.ZipFile(big, "a") as archive:
        archive.writestr("assets/large", bytes(2_000_000))
    fault(phone, "tool-warning")
    fault(phone, "slow", "bytes_per_s=4e6")
    assert install(device, big) == big.stat().st_size


# The log


def lines_until(lines: Iterator[bytes], mark: bytes, timeout_s: float = 60.0) -> list[bytes]:
    deadline, seen = Deadline(timeout_s), []
    for line in lines:
        if line:
            seen.append(line)
            if mark in line:
                return seen
        if deadline.expired:
            pytest.fail(f"{mark!r} not in {seen[-20:]}")
    pytest.fail("the log ended")


def test_a_log_with_garbage_and_emoji_is_followed(device: AdbDevice, phone: "Phone") -> None:
    with device.follow_log() as lines:
        fault(phone, "log-garbage")
        device.shell("log -t New one; log -t New two; log -t New last")
        seen = lines_until(lines, b"last")
    assert any(b"\xff\xfe" in line for line in seen)
    assert any(b"\xf0\x9f" in line for line in seen)


def test_a_follower_of_a_silent_log_is_given_time_to_look_at_its_deadline(
    device: AdbDevice,
) -> None:
    with device.follow_log(buffers=["crash"]) as lines:
        assert next(lines) == b""


def test_a_follower_whose_link_is_cut_is_told(device: AdbDevice, phone: "Phone") -> None:
    with device.follow_log() as lines:
        fault(phone, "cut")
        with pytest.raises(LinkLostError):
            lines_until(lines, b"never")


def test_leaving_the_log_ends_logcat_on_the_phone(
    device: AdbDevice, wait_until: Callable[..., None]
) -> None:
    with device.follow_log() as lines, contextlib.suppress(StopIteration):
        next(lines)
        assert "logcat" in device.shell("ps -A -o ARGS").text
    wait_until(lambda: "logcat" not in device.shell("ps -A -o ARGS").text, "logcat has ended")


# Names and twins


def test_one_phone_on_two_transports_is_used_once_and_this_is_said(
    bench: Bench, phone: "Phone"
) -> None:
    second = f"localhost:{phone.port}"
    bench.server.connect_tcp(second)
    try:
        seen = {one.address: one for one in list_devices(bench.server)}
        assert [seen[phone.address].usable, seen[second].usable] == [True, False]
        assert phone.address in seen[second].reason
        assert second in seen[phone.address].reason
    finally:
        bench.server.disconnect(second)


def test_a_push_tells_how_far_it_is(bench: Bench, phone: "Phone", tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    device = AdbDevice(bench.server, phone.address)
    device.progress = lambda *step: told.append(step)
    source = tmp_path / "m.tflite"
    source.write_bytes(bytes(3_000_000))
    place(device, source)
    assert [step[0] for step in told] == ["m.tflite"] * len(told)
    assert [step[1] for step in told] == sorted(step[1] for step in told)
    assert told[-1][1:] == (3_000_000, 3_000_000)
    assert len(told) > 1


def test_files_of_a_debuggable_app_are_read_as_that_app(device: AdbDevice, apk: Path) -> None:
    install(device, apk)
    device.shell(f"run-as {BENCHMARK_PACKAGE} sh -c 'mkdir -p files; printf result >files/out.pb'")
    assert device.read_file("files/out.pb", package=BENCHMARK_PACKAGE) == b"result"
    assert device.read_file("files/none.pb", package=BENCHMARK_PACKAGE) is None


def test_a_name_that_is_no_package_never_reaches_the_phone(device: AdbDevice) -> None:
    for package in ("", "nodots", "a.b; reboot", "a.$(x)", "../a.b"):
        with pytest.raises(UsageError, match="isn't the name"):
            device.package(package)
