"""Wheels of this checkout, and environments in which they alone are installed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def wheel_of(source: Path, out: Path) -> Path:
    """Build the wheel of a project."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = out.glob("*.whl")
    return made


def environment(place: Path, *wheels: Path, at_start: str = "") -> Path:
    """Return the Python of a new environment with these wheels alone.

    Their dependencies are this environment's; a checkout that is installed here isn't seen from
    there. ``at_start`` is a module that each of its processes imports.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", place], check=True, capture_output=True
    )
    python = place / "bin" / "python"
    words = ("--python", python, "install", "--quiet", "--no-index", "--no-deps")
    subprocess.run([sys.executable, "-m", "pip", *words, *wheels], check=True, capture_output=True)
    (own,) = (place / "lib").glob("python*/site-packages")
    lines = [sysconfig.get_path("purelib"), *([f"import {at_start}"] if at_start else [])]
    (own / "dependencies.pth").write_text("\n".join(lines) + "\n")
    return python
