"""Advice whose command is wider than the terminal."""

import shlex
import subprocess

import pytest

from orchestrator.cli.terminal import command_lines

ADVICE = (
    "to try every delegate with other thread counts: "
    "benchfarm bench '/data/my models/mobilenet.tflite' -s VIRTUAL-PIXEL-3 -d all -t 1,2,4"
)


def test_a_command_that_does_not_fit_is_broken_so_that_a_shell_reads_it_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    about, *lines = command_lines(ADVICE)
    assert about == "to try every delegate with other thread counts:"
    assert all(len(line) <= 60 for line in lines)
    assert len(lines) > 1
    script = "\n".join(lines).replace("benchfarm", "printf '%s\\n'", 1)
    words = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert words.splitlines() == shlex.split(ADVICE.partition(": benchfarm ")[2])
    monkeypatch.setenv("COLUMNS", "200")
    assert command_lines(ADVICE) == [ADVICE]
