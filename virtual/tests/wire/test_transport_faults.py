"""Faults of the link and of files, as the plain adb command meets them."""

import re
import threading
from pathlib import Path

import pytest

from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.faults import (
    FAULT_NOTES,
    MOMENTS,
    FaultKind,
    FaultTable,
    describe,
    parse_fault,
)
from tests.samples.places import REPO

TMP = "/data/local/tmp"


def test_cut_after_bytes_down_lets_exactly_that_much_through(link, wait_until):
    link.phone.faults.add(parse_fault("cut", ["bytes=1000000", "subject=down"]))
    output = link.adb("exec-out", "dd if=/dev/zero bs=5000000 count=1").stdout
    assert 0 < len(output) < 1_000_000
    assert link.phone.faults.waiting() == []


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


# The table


def test_byte_count_stops_at_the_very_byte():
    table = FaultTable()
    table.add(parse_fault("output-cut", ["bytes=10"]))
    assert table.advance(FaultKind.OUTPUT_CUT, 6) == (6, None)
    passing, fault = table.advance(FaultKind.OUTPUT_CUT, 6)
    assert passing == 4
    assert fault is not None
    assert table.advance(FaultKind.OUTPUT_CUT, 6) == (6, None)


def test_a_lasting_fault_continues_until_it_is_removed():
    table = FaultTable()
    fault = table.add(parse_fault("no-space", ["bytes=5"]))
    assert [table.advance(FaultKind.NO_SPACE, 4)[0] for _ in range(3)] == [4, 1, 0]
    assert table.remove(fault.fault_id) is not None
    assert table.remove(fault.fault_id) is None
    assert table.advance(FaultKind.NO_SPACE, 4) == (4, None)


def test_every_kind_is_described():
    text = describe()
    assert all(kind in FAULT_NOTES and f"{kind}" in text for kind in FaultKind)


@pytest.mark.parametrize(
    ("kind", "settings", "word"),
    [
        ("explode", [], "explode"),
        ("cut", ["bytes"], "name=value"),
        ("cut", ["bytes=x"], "bytes must be a number"),
        ("cut", ["bytes=-1"], "0 or more"),
        ("cut", ["times=-1"], "0 or more"),
        ("cut", ["colour=red"], "colour"),
        ("slow", ["bytes_per_s=fast"], "number"),
        ("slow", ["bytes_per_s=0"], "bytes_per_s must be 1 or more, not 0"),
        ("throttle", ["steps=nan"], "steps must be 0 or more, not nan"),
        ("overheat", ["heat_c=inf"], "heat_c must be 0 or more, not inf"),
        (
            "output-cut",
            ["moment=results"],
            "meets no moment 'results'; its moments: shell, exec, program",
        ),
        ("no-space", ["moment=push"], "its moments: none"),
        ("segv", ["bytes=10"], "counts no bytes"),
        ("reboot", ["moment=run", "bytes=10"], "no bytes pass at 'run'; they do at push"),
        (
            "cut",
            ["moment=push", "bytes=9", "subject=up"],
            "'up' is the link's, which goes without a moment",
        ),
    ],
)
def test_fault_that_cannot_be_is_refused_with_the_word_that_is_wrong(kind, settings, word):
    with pytest.raises(UsageError, match=word):
        parse_fault(kind, settings)


def test_guide_page_names_every_moment():
    page = (REPO / "docs" / "reference" / "virtual-phones.md").read_text()
    row = next(row for row in page.splitlines() if row.startswith("| `moment`"))
    assert set(MOMENTS) <= set(re.findall(r"`([^`]+)`", row))
