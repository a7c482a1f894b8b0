"""The installed command in a home of its own, where it finds no adb server and no setting of this
computer's user."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Runs ``benchfarm`` with a home of its own; the first word may be several with blanks between:
    ``cli("results runs --json", campaign)``."""

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
        self,
        *words: object,
        timeout_s: float = 180.0,
        stdin: str = "",
        workers: Sequence[Process] = (),
        **environ: str,
    ) -> Done:
        """Run the command to its end; fail when one of the workers that it may wait for ends
        before."""
        with self.process(words, environ, stdin=subprocess.PIPE) as process:
            try:
                stdout, stderr = communicated(process, stdin, timeout_s, workers)
            except BaseException:
                process.kill()
                raise
        assert "Traceback" not in stderr, stderr
        return Done(exit_code=process.returncode, stdout=stdout, stderr=stderr)

    def json(self, *words: object, **how: Any) -> Any:
        """Return the JSON that the command prints; fail the test unless it ends well."""
        return self(*words, "--json", **how).ok().json

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
        command, *others = map(str, words)
        return kind([BENCHFARM, *command.split(), *others], env=whole, text=True, **how)


def heard(process: Process, words: str) -> str:
    """Return what a command tells of its progress, up to a line with some words; fail when it ends
    without them."""
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if words in line:
            return told
    raise AssertionError(f"{words!r} isn't in what it told: {told}")


def communicated(
    process: Process, stdin: str, timeout_s: float, workers: Sequence[Process]
) -> tuple[str, str]:
    """Return what a command says; fail when it isn't done in time, or a worker has ended."""
    ends_s = time.monotonic() + timeout_s
    while True:
        left_s = ends_s - time.monotonic()
        try:
            return process.communicate(stdin, timeout=min(1.0, left_s) if workers else left_s)
        except subprocess.TimeoutExpired:
            stdin = ""  # is on its way
            ended = [worker.returncode for worker in workers if worker.poll() is not None]
            assert not ended, f"{process.args} waits; a worker has ended with {ended[0]}"
            if time.monotonic() > ends_s:
                raise


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
