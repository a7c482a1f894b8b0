"""The installed command in a home of its own, where it finds no adb server and no setting of this
computer's user."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.samples.places import BENCHFARM
from tests.samples.warm import Forked, forkable

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
    #: Each command starts an interpreter of its own.
    is_cold: bool = False

    def environ(self, **more: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BENCHFARM", "ADB", "ANDROID"))
        }
        # Nothing listens there, so that no adb server of this computer's user is ever touched.
        return {
            **kept,
            "BENCHFARM_HOME": str(self.home),
            # Tests count their own runs; those of the check turn it on.
            "BENCHFARM_CHECK_OUTPUTS": "off",
            # Other tests of this computer and user don't take part in its turns.
            "ANDROID_ADB_SERVER_PORT": "1",
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def __call__(
        self, *words: object, timeout_s: float = 300.0, stdin: str = "", **environ: str
    ) -> Done:
        with self.process(words, environ, stdin=subprocess.PIPE) as process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        assert "Traceback" not in stderr, stderr
        return Done(exit_code=process.returncode, stdout=stdout, stderr=stderr)

    def start(
        self, *words: object, preexec_fn: Callable[[], None] | None = None, **environ: str
    ) -> Process:
        process = self.process(words, environ, preexec_fn=preexec_fn)
        started.append((self, process))
        return process

    def process(self, words: Iterable[object], environ: Mapping[str, str], **how: Any) -> Process:
        """Start the command: as a fork of the process that has imported it all, else as what the
        user starts."""
        whole = self.environ(**environ)
        kind = (
            Forked
            if how.get("preexec_fn") is None and not self.is_cold and forkable(whole)
            else subprocess.Popen
        )
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return kind([BENCHFARM, *map(str, words)], env=whole, text=True, **how)


#: What was started without waiting for its end, and where.
started: list[tuple[Cli, Process]] = []


def ended_since(before: int) -> list[Cli]:
    """Kill those of the processes started after the first so many that still run; return where they
    ran.
    """
    left = [(cli, process) for cli, process in started[before:] if process.poll() is None]
    for _, process in left:
        process.kill()
        process.wait(60)
    return [cli for cli, _ in left]
