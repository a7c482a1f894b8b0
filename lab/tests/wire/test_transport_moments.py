"""What faults do to a program at its moments."""

import threading

import pytest

from benchfarm_lab.contract import ProcessContext, ProgramDiedError
from benchfarm_lab.faults import FaultKind, FaultTable, parse_fault
from benchfarm_lab.moments import ProgramMoments
from benchfarm_lab.time import ScaledTime


class Collected:
    def __init__(self):
        self.data = b""
        self.lines = []

    def write(self, data):
        self.data += data

    def log(self, priority, tag, message, **where):
        self.lines.append((tag, message))


@pytest.fixture
def process():
    nothing = Collected()
    return ProcessContext(
        pid=4242, argv=("/data/local/tmp/benchmark_model", "--graph=x"), env={}, cwd="/", uid=2000, stdin=nothing,
        stdout=Collected(), stderr=Collected(), files=nothing, logs=Collected(), time=ScaledTime(), hardware=nothing,
        props={}, affinity=1, group="shell",
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "signal", "tag"), [("segv", 11, "libc"), ("low-memory", 9, "lowmemorykiller")])
def test_program_dies_at_run_with_its_last_words_in_the_log(process, kind, signal, tag):
    faults = FaultTable()
    faults.add(parse_fault(kind))
    moments = ProgramMoments(faults)
    for name in ("init", "warmup"):
        moments(name, process)
    with pytest.raises(ProgramDiedError) as died:
        moments("run", process)
    assert died.value.signal == signal
    written_tag, message = process.logs.lines[0]
    assert written_tag == tag
    assert "4242" in message
    moments("run", process)  # the next one lives


def test_program_hangs_until_it_is_killed(process):
    faults = FaultTable()
    faults.add(parse_fault("program-hang", ["moment=warmup", "subject=benchmark_*"]))
    died = []

    def run():
        try:
            ProgramMoments(faults)("warmup", process)
        except ProgramDiedError as error:
            died.append(error.signal)

    thread = threading.Thread(target=run)
    thread.start()
    assert died == []
    process.signal = 15
    process.killed.set()
    thread.join(60)
    assert died == [15]


def test_programs_output_ends_at_the_very_byte_and_the_program_goes_on(process):
    faults = FaultTable()
    faults.add(parse_fault("output-cut", ["moment=program", "bytes=7"]))
    arrived = process.stdout
    ProgramMoments(faults)("init", process)
    for piece in (b"12345", b"67890", b"after"):
        process.stdout.write(piece)
    assert arrived.data == b"1234567"


def test_moment_of_a_program_reaches_the_whole_phone(process):
    happened = []
    faults = FaultTable()
    faults.handle(FaultKind.CLOCK_JUMP, happened.append)
    faults.add(parse_fault("clock-jump", ["moment=results", "seconds=60"]))
    moments = ProgramMoments(faults)
    for name in ("init", "warmup", "run"):
        moments(name, process)
    assert happened == []
    moments("results", process)
    assert len(happened) == 1


def test_program_that_a_reboot_ends_dies_of_it(process):
    faults = FaultTable()
    faults.handle(FaultKind.REBOOT, lambda fault: process.killed.set())
    faults.add(parse_fault("reboot", ["moment=run"]))
    with pytest.raises(ProgramDiedError):
        ProgramMoments(faults)("run", process)


def test_fault_of_the_log_waits_for_its_moment(process):
    faults = FaultTable()
    faults.add(parse_fault("log-garbage", ["moment=run"]))
    assert faults.take(FaultKind.LOG_GARBAGE) is None
    ProgramMoments(faults)("run", process)
    assert faults.take(FaultKind.LOG_GARBAGE) is not None
