"""The public name, as an import and in type checkers; and data that is shipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import benchfarm
import orchestrator
from orchestrator.installation import data_folder


def test_the_package_benchfarm_is_the_public_interface_of_orchestrator() -> None:
    assert set(benchfarm.__all__) == set(orchestrator.__all__)
    assert all(getattr(benchfarm, name) is getattr(orchestrator, name) for name in dir(benchfarm))


def test_python_m_benchfarm_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchfarm", "--version"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == f"benchfarm {orchestrator.__version__}"
    wrong = subprocess.run(
        [sys.executable, "-m", "benchfarm", "no-such-command"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2


def test_shipped_data_is_found():
    assert (data_folder("reports") / "templates" / "report.html.j2").is_file()
    assert (data_folder("reports") / "published" / "tflite_published.csv").is_file()
