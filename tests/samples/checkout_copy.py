"""A copy of this checkout that can be changed, with entry points of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from tests.samples.places import REPO


def copy_checkout(folder: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Copy what git knows of this checkout, and what is new in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file() and is_wanted(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, folder / name)


def install_entry_points(folder: Path) -> None:
    """Have the entry points of a copy's pyproject.toml found before those that are installed."""
    about = folder / "benchfarm-0.dist-info"
    about.mkdir(exist_ok=True)
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [
        f"Requires-Dist: {wanted}; extra == '{extra}'\n"
        for extra, packages in project["optional-dependencies"].items()
        for wanted in packages
        if ";" not in wanted
    ]
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: benchfarm\nVersion: 0\n{''.join(needed)}"
    )
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(sections), "utf-8")


def copy_core(folder: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Copy this checkout without its extensions, their entry points and their tests."""
    extensions = ("orchestrator/extensions/", "tests/extensions/")
    copy_checkout(folder, lambda name: not name.startswith(extensions) and is_wanted(name))
    project = folder / "pyproject.toml"
    lines = project.read_text("utf-8").splitlines()
    kept = [line for line in lines if "orchestrator.extensions" not in line]
    project.write_text("\n".join(kept), "utf-8")
    install_entry_points(folder)


def run_in(folder: Path, *words: object, shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, with the copy's packages."""
    paths = os.pathsep.join([str(folder), str(folder / "virtual" / "src")])
    environ = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=not shown, text=True, check=False
    )
