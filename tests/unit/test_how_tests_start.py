"""Tests pass however they were started, and their commands in forks do what the installed command does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.command import Cli
from tests.samples.extensions import needs_extension
from tests.samples.warm import Forked

ASKS = """
import signal, sys
print([number.name for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
       if signal.getsignal(number) is signal.SIG_IGN], repr(sys.stdin.read()))
"""


def test_processes_that_tests_start_ignore_no_signal_and_have_an_input_that_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKS], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[] ''\n"
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_test_that_hangs_is_ended(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) > 0


@pytest.mark.parametrize("words", ["-h", "run --nope", "runs --json"])
def test_a_fork_answers_as_a_process_of_its_own(tmp_path: Path, words: str) -> None:
    assert Cli(home=tmp_path)(*words.split()) == Cli(home=tmp_path, is_cold=True)(*words.split())


@needs_extension("interop")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_fork_ends_by_signals_as_a_process_of_its_own(
    tmp_path: Path, number: signal.Signals
) -> None:
    ends = []
    for is_cold in (False, True):
        process = Cli(home=tmp_path, is_cold=is_cold).process(
            ("parse", "-"), {}, stdin=subprocess.PIPE
        )
        assert isinstance(process, Forked) != is_cold
        assert process.stdin is not None
        # More than a pipe holds: once it is written the command reads.
        process.stdin.write("a line\n" * 100_000)
        process.stdin.flush()
        assert process.poll() is None
        process.send_signal(number)
        ends.append((process.wait(60), process.communicate()[0]))
    assert ends[0] == ends[1]


def test_what_python_reads_at_its_start_takes_a_process_of_its_own(tmp_path: Path) -> None:
    process = Cli(home=tmp_path).start("--version", PYTHONHASHSEED="1")
    assert not isinstance(process, Forked)
    assert process.communicate(timeout=60)[0].startswith("benchfarm ")
