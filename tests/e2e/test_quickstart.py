"""The whole thing in one command, as someone sees it who has just installed it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.conftest import poll_until
from tests.samples.command import Cli


def command_lines() -> list[str]:
    """Return what runs on this computer now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return found


def test_quickstart_measures_virtual_phones_and_this_computer_and_leaves_nothing_running(
    cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "quickstart"
    done = cli("quickstart", "--folder", folder, timeout_s=900)
    assert "report: " in done.stdout, done.stdout + done.stderr
    assert f"{folder}/report.html" in done.stdout
    for word in ("Google Pixel 3 (virtual)", "Google Pixel 4 (virtual)", "litert", "no measurements"):
        assert word in " ".join(done.stdout.split()), word
    own = Cli(home=folder)
    runs = own("results", "runs", "--json").ok().json
    assert {run["is_virtual"] for run in runs} == {True, False}
    assert {(run["outcome"], run["reason_code"]) for run in runs} <= {("completed", ""), ("skipped", "threads-unused")}
    assert {run["case"]["delegate"] for run in runs if run["outcome"] == "skipped"} <= {"gpu"}
    assert [server for server in own("adb", "status", "--json").ok().json["servers"] if server["ours"]] == []
    assert own("lab", "list", "--json").ok().json["phones"] == []
    # What was told to end may take a moment for it.
    poll_until(lambda: not [command for command in command_lines() if str(folder) in command], "all has ended")
