"""Whoever reads the progress or the output of a command may go away: what is measured is measured
to its end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM

#: Both streams to a reader of one line; the progress on a full disk; no stream at all.
LOSSES = ("2>&1 | head -n 1", "2>/dev/full", "<&- >&- 2>&-")


def in_shell(cli: Cli, redirection: str, *words: object) -> int:
    """Return the exit code of the command itself, whatever it is piped into."""
    line = f'{{ "$@"; echo $? >"$CODE"; }} {redirection}'
    code = cli.home.parent / "code"
    command = ["sh", "-c", line, "sh", BENCHFARM, *map(str, words)]
    subprocess.run(
        command, env=cli.environ(CODE=str(code)), capture_output=True, timeout=300, check=False
    )
    return int(code.read_text())


@pytest.mark.parametrize("redirection", LOSSES)
def test_losing_the_progress_stream_stops_no_campaign(
    lab: Lab, model: Path, redirection: str
) -> None:
    words = (
        "bench",
        model,
        "-d",
        "xnnpack",
        "-s",
        lab.serials[0],
        "--min-secs",
        "0.1",
        "-n",
        "2",
        "-t",
        "1",
    )
    assert in_shell(lab.cli, redirection, *words) == 0
    campaign = lab.cli("results", "list", "--json").ok().json[0]
    assert (campaign["status"], campaign["stored"]) == ("finished", 2)


def test_an_answer_that_nobody_reads_is_no_answer(cli: Cli) -> None:
    assert in_shell(cli, "| true", "flags", "--json") == 141
