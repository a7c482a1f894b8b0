"""Tests pass however they were started: signals ignored and standard input left open are not
inherited."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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
