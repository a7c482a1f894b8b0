"""The installed command in a home of its own, where it finds no adb server and no setting of this computer's user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.samples.places import BENCHFARM

Process = subprocess.Popen[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def said(self) -> str:
        """All that it said, for people."""
        return self.stdout + self.stderr

    def ok(self) -> Done:
        """Fail the test with what the command said, unless it ended well."""
        return self.ended_with(0)

    def ended_with(self, exit_code: int) -> Done:
        """Fail the test with what the command said, unless it ended so."""
        assert self.exit_code == exit_code, f"exit code {self.exit_code}\n{self.said}"
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """Runs ``benchfarm`` with a home of its own."""

    home: Path

    def environ(self, **more: str) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("BENCHFARM", "ADB", "ANDROID"))
        }
        # Nothing listens there, so that no adb server of this computer's user is ever touched.
        return {
            **kept,
            "BENCHFARM_HOME": str(self.home),
            # Other tests of this computer and user don't take part in its turns.
            "BENCHFARM_HUBS": str(self.home / "hubs"),
            "ANDROID_ADB_SERVER_PORT": "1",
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def __call__(self, *words: object, timeout_s: float = 300.0, stdin: str = "", **environ: str) -> Done:
        done = subprocess.run(
            [BENCHFARM, *map(str, words)], env=self.environ(**environ), input=stdin, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Done(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def start(self, *words: object, preexec_fn: Callable[[], None] | None = None, **environ: str) -> Process:
        process = subprocess.Popen(
            [BENCHFARM, *map(str, words)], env=self.environ(**environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, preexec_fn=preexec_fn,
        )  # fmt: skip
        started.append((self, process))
        return process


#: What was started without waiting for its end, and where.
started: list[tuple[Cli, Process]] = []


def ended_since(before: int) -> list[Cli]:
    """Kill those of the processes started after the first so many that still run; return where they ran."""
    left = [(cli, process) for cli, process in started[before:] if process.poll() is None]
    for _, process in left:
        process.kill()
        process.wait(60)
    return [cli for cli, _ in left]
