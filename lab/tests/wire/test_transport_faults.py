"""Faults of the link and of files, as the plain adb command meets them."""

import re
import threading
from pathlib import Path

import pytest

from benchfarm_lab.errors import UsageError
from benchfarm_lab.faults import FAULT_NOTES, MOMENTS, Fault, FaultKind, FaultTable, describe, parse_fault
from tests.samples.places import REPO

TMP = "/data/local/tmp"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def test_cut_ends_what_runs_and_the_server_can_connect_again(link):
    sleeping = link.popen("shell", "echo begun; sleep 1000")
    assert sleeping.stdout.readline() == b"begun\n"
    link.phone.faults.add(parse_fault("cut"))
    sleeping.communicate(timeout=60)
    link.server.run("disconnect", link.phone.address)
    link.connect()
    assert link.shell("echo back") == "back\n"


def test_cut_after_bytes_down_lets_exactly_that_much_through(link, wait_until):
    link.phone.faults.add(parse_fault("cut", ["bytes=1000000", "subject=down"]))
    output = link.adb("exec-out", "head -c 5000000 /dev/zero").stdout
    assert 0 < len(output) < 1_000_000
    assert link.phone.faults.waiting() == []


def test_cut_in_mid_push_fails_the_push_and_leaves_no_file(link, tmp_path, wait_until):
    (tmp_path / "f").write_bytes(bytes(10_000_000))
    link.phone.faults.add(parse_fault("cut", ["moment=push", "bytes=4000000"]))
    assert link.adb("push", tmp_path / "f", f"{TMP}/f").returncode != 0
    link.server.run("disconnect", link.phone.address)
    link.connect()
    wait_until(lambda: link.shell(f"ls {TMP}").split() == [], "the partial file is removed")


def test_cut_in_mid_pull_fails_the_pull(link, tmp_path):
    link.shell(f"head -c 10000000 /dev/zero > {TMP}/f")
    link.phone.faults.add(parse_fault("cut", ["moment=pull", "bytes=4000000"]))
    assert link.adb("pull", f"{TMP}/f", tmp_path / "f").returncode != 0


def test_cut_at_opening_a_shell_fails_that_shell_only(link, tmp_path):
    link.phone.faults.add(parse_fault("cut", ["moment=open:shell"]))
    assert b"in" not in link.adb("shell", "echo in").stdout
    link.server.run("disconnect", link.phone.address)
    link.connect()
    assert link.shell("echo in") == "in\n"


def test_cut_connections_leave_no_thread_and_no_file_behind(link, tmp_path, wait_until):
    def threads_and_files():
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    link.shell("true")
    (tmp_path / "f").write_bytes(bytes(3_000_000))
    before = threads_and_files()
    for _ in range(3):
        clients = [link.popen("shell", "echo begun; cat") for _ in range(5)]
        for client in clients:
            assert client.stdout.readline() == b"begun\n"
        link.phone.faults.add(parse_fault("cut", ["moment=push", "bytes=1000000"]))
        link.adb("push", tmp_path / "f", f"{TMP}/f")
        for client in clients:
            client.communicate(timeout=60)
        link.server.run("disconnect", link.phone.address)
        link.connect()
    link.server.run("disconnect", link.phone.address)
    wait_until(
        lambda: all(now <= then for now, then in zip(threads_and_files(), before, strict=True)),
        "threads and files are gone",
    )


def test_hung_phone_stays_a_device_and_answers_again_afterwards(link, wait_until):
    fault = link.phone.faults.add(parse_fault("hang"))
    asking = link.popen("shell", "echo late")
    assert link.state == "device"
    assert asking.poll() is None
    link.phone.faults.remove(fault.fault_id)
    assert asking.communicate(timeout=60)[0] == b"late\n"


def test_hang_with_a_length_ends_by_itself(link):
    link.phone.faults.add(parse_fault("hang", ["seconds=0.2"]))
    assert link.shell("echo late") == "late\n"
    assert link.phone.faults.waiting() == []


def test_hung_phone_accepts_a_connection_and_says_nothing(make_link, wait_until):
    link = make_link(connect=False)
    link.phone.faults.add(parse_fault("hang"))
    connecting = link.server.popen("connect", link.phone.address)
    try:
        wait_until(lambda: link.state != "", "the server has tried")
        assert link.state != "device"
    finally:
        link.phone.faults.clear()
        connecting.communicate(timeout=60)


def test_slow_link_still_brings_every_byte(link, tmp_path):
    link.phone.faults.add(parse_fault("slow", ["bytes_per_s=3000000"]))
    content = bytes(range(256)) * 4000
    (tmp_path / "f").write_bytes(content)
    assert link.adb("push", tmp_path / "f", f"{TMP}/f").returncode == 0
    assert link.adb("pull", f"{TMP}/f", tmp_path / "g").returncode == 0
    assert (tmp_path / "g").read_bytes() == content


def test_reboot_at_a_moment_ends_the_push_and_the_phone_comes_back(link, tmp_path, wait_until):
    before = link.shell(BOOT_ID)
    (tmp_path / "f").write_bytes(bytes(3_000_000))
    link.phone.faults.add(parse_fault("reboot", ["moment=push", "bytes=1000000", "seconds=1"]))
    assert link.adb("push", tmp_path / "f", f"{TMP}/f").returncode != 0
    wait_until(lambda: link.phone.listening, "back from reboot")
    link.server.run("disconnect", link.phone.address)
    link.connect()
    assert link.shell(BOOT_ID) != before


def test_output_cut_off_ends_a_shell_without_exit_code(link):
    link.phone.faults.add(parse_fault("output-cut", ["moment=shell", "bytes=10"]))
    result = link.adb("shell", "echo 0123456789abcdef; exit 3")
    assert result.stdout == b"0123456789"
    assert result.returncode != 3
    assert link.shell("echo whole") == "whole\n"


@pytest.mark.parametrize("moment", ["push", "pull"])
def test_one_bit_turned_over_goes_unnoticed_by_adb(link, tmp_path, moment):
    (tmp_path / "f").write_bytes(bytes(200_000))
    link.phone.faults.add(parse_fault("bit-flip", [f"moment={moment}", "bytes=100000"]))
    assert link.adb("push", tmp_path / "f", f"{TMP}/f").returncode == 0
    assert link.adb("pull", f"{TMP}/f", tmp_path / "g").returncode == 0
    assert (tmp_path / "g").read_bytes() == bytes(100_000) + b"\x01" + bytes(99_999)


def test_full_phone_fails_a_push_with_its_reason(link, tmp_path):
    (tmp_path / "f").write_bytes(bytes(2_000_000))
    fault = link.phone.faults.add(parse_fault("no-space", ["bytes=500000", "subject=/data/*"]))
    result = link.adb("push", tmp_path / "f", f"{TMP}/f")
    assert result.returncode == 1
    assert b"No space left on device" in result.stdout + result.stderr
    link.phone.faults.remove(fault.fault_id)
    assert link.adb("push", tmp_path / "f", f"{TMP}/f").returncode == 0


def test_denied_path_fails_a_push_and_no_other(link, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    link.phone.faults.add(parse_fault("permission-denied", [f"subject={TMP}/locked*"]))
    result = link.adb("push", tmp_path / "f", f"{TMP}/locked.bin")
    assert result.returncode == 1
    assert b"Permission denied" in result.stdout + result.stderr
    assert link.adb("push", tmp_path / "f", f"{TMP}/open.bin").returncode == 0


def test_clock_jump_moves_the_wall_clock_and_not_the_uptime(make_link):
    link = make_link(time_factor=1.0)
    wall_s, uptime_s = link.phone.time.wall_s(), link.phone.time.uptime_s()
    link.phone.faults.add(parse_fault("clock-jump", ["seconds=-86400"]))
    assert link.phone.time.wall_s() - wall_s < -80_000
    assert 0 <= link.phone.time.uptime_s() - uptime_s < 80_000


def test_server_that_is_killed_finds_the_phone_again(server, make_lab, tmp_path):
    phone = make_lab(server).add("pixel-3")
    server.connect(phone.address)
    server.stop()
    server.start()
    assert phone.address not in server.states()
    server.connect(phone.address)
    assert server.run("-s", phone.address, "shell", "echo back").stdout == b"back\n"
    server.run("disconnect", phone.address)


# The table


def test_fault_fires_as_often_as_it_was_asked_for():
    table = FaultTable()
    table.add(parse_fault("segv", ["times=2"]))
    fired = [table.take(FaultKind.SEGV, "run") is not None for _ in range(4)]
    assert fired == [True, True, False, False]


def test_fault_waits_for_its_moment_and_subject():
    table = FaultTable()
    table.add(parse_fault("delegate-failing", ["moment=delegate", "subject=g*"]))
    assert table.take(FaultKind.DELEGATE_FAILING, "run", subject="gpu") is None
    assert table.take(FaultKind.DELEGATE_FAILING, "delegate", subject="nnapi") is None
    assert table.take(FaultKind.DELEGATE_FAILING, "delegate", subject="gpu") is not None


def test_byte_count_stops_at_the_very_byte():
    table = FaultTable()
    table.add(parse_fault("output-cut", ["bytes=10"]))
    assert table.advance(FaultKind.OUTPUT_CUT, 6) == (6, None)
    passing, fault = table.advance(FaultKind.OUTPUT_CUT, 6)
    assert passing == 4
    assert fault is not None
    assert table.advance(FaultKind.OUTPUT_CUT, 6) == (6, None)


def test_lasting_fault_goes_on_until_it_is_removed():
    table = FaultTable()
    fault = table.add(parse_fault("no-space", ["bytes=5"]))
    assert [table.advance(FaultKind.NO_SPACE, 4)[0] for _ in range(3)] == [4, 1, 0]
    assert table.remove(fault.fault_id) is not None
    assert table.remove(fault.fault_id) is None
    assert table.advance(FaultKind.NO_SPACE, 4) == (4, None)


def test_fault_of_the_whole_phone_happens_at_its_moment():
    happened = []
    table = FaultTable()
    table.handle(FaultKind.OVERHEAT, happened.append)
    table.add(parse_fault("overheat", ["moment=run", "heat_c=80"]))
    table.reach("init")
    assert happened == []
    table.reach("run")
    table.reach("run")
    assert [fault.number("heat_c") for fault in happened] == [80.0]


def test_every_kind_is_described_and_survives_json():
    text = describe()
    for kind in FaultKind:
        assert kind in FAULT_NOTES
        assert f"{kind}" in text
        fault = Fault(
            kind=kind,
            moment="".join(FAULT_NOTES[kind].moments[:1]),
            subject="s",
            times=3,
            args=dict(FAULT_NOTES[kind].args),
        )
        assert Fault.from_json(fault.to_json()) == fault


def test_settings_in_json_may_stand_beside_the_kind():
    fault = Fault.from_json({"kind": "overheat", "heat_c": 81, "moment": "run"})
    assert fault.number("heat_c") == 81.0
    with pytest.raises(UsageError, match="colour"):
        Fault.from_json({"kind": "overheat", "colour": "red"})


@pytest.mark.parametrize(
    ("kind", "settings", "word"),
    [
        ("explode", [], "explode"),
        ("cut", ["bytes"], "name=value"),
        ("cut", ["bytes=x"], "whole number"),
        ("cut", ["bytes=-1"], "0 or more"),
        ("cut", ["times=-1"], "times"),
        ("cut", ["colour=red"], "colour"),
        ("slow", ["bytes_per_s=fast"], "number"),
        ("output-cut", ["moment=results"], "meets no moment 'results'; its moments: shell, exec, program"),
        ("output-cut", ["moment=nope"], "meets no moment 'nope'"),
        ("cut", ["moment=shell"], "meets no moment 'shell'; its moments: connect, open"),
        ("segv", ["moment=push"], "its moments: start, init"),
        ("bit-flip", ["moment=list"], "its moments: push, pull"),
        ("delegate-wrong", ["moment=run"], "its moments: delegate"),
        ("no-space", ["moment=push"], "it waits for none"),
        ("segv", ["bytes=10"], "counts no bytes"),
        ("reboot", ["moment=run", "bytes=10"], "no bytes pass at 'run'; they do at push, pull"),
        ("cut", ["moment=push", "bytes=9", "subject=up"], "'up' is the link's, which goes without a moment"),
    ],
)
def test_fault_that_cannot_be_is_refused_with_the_word_that_is_wrong(kind, settings, word):
    with pytest.raises(UsageError, match=word):
        parse_fault(kind, settings)


def test_guide_page_names_every_fault_with_its_settings():
    page = (REPO / "docs" / "reference" / "virtual-phones.md").read_text()
    rows = {row.split("|")[1].strip(): row for row in page.splitlines() if row.startswith("| `")}
    assert set(MOMENTS) <= set(re.findall(r"`([^`]+)`", rows["`moment`"]))
    for kind, note in FAULT_NOTES.items():
        row = rows[f"`{kind}`"]
        for name in note.args:
            assert f"`{name}`" in row
