"""A signal that comes when all is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.app.measuring import bench_plan

_CLOSED = """
import os, signal, sys
from pathlib import Path
from orchestrator.cli.campaigns import reporting_workspace
from orchestrator.records.case import CampaignId
from orchestrator.settings import Settings

with reporting_workspace(Settings.from_environment({}, home=Path(sys.argv[1]))) as workspace:
    workspace.measured = CampaignId("night-1")
    workspace.at_exit.callback(os.kill, os.getpid(), signal.SIGINT)
print("the summary")
"""


def test_a_stop_while_the_workspace_closes_cuts_off_no_summary(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CLOSED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("the summary\n", 0), done.stderr


def test_a_bench_brackets_nothing_with_the_reference_workload_unless_it_is_told_to(
    tmp_path: Path,
) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(b"")
    for in_python in (False, True):
        plan = bench_plan({"models": [model]}, in_python=in_python)
        assert plan.reference_check is False
        plan = bench_plan({"models": [model], "reference_check": True}, in_python=in_python)
        assert plan.reference_check is True
