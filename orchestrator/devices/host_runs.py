"""Runs on this computer: each a process group of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.child_environment import child_environment
from orchestrator.clock import Clock, Deadline
from orchestrator.devices.lease import is_dead, life_of
from orchestrator.devices.processes import folder_name
from orchestrator.errors import DeviceCommandError, HostStorageError
from orchestrator.files import make_private
from orchestrator.ports import ProcessResult
from orchestrator.records.identity import RunId
from orchestrator.scripts import text

_LOOK_S: Final = 0.05
#: What watches a run has so long to end after the program; then it is killed.
_REST_S: Final = 2.0
_LEADER_FILE: Final = "leader"


class HostRuns:
    """The runs of ours on this computer, each in a folder under ``folder``: a part of HostDevice."""

    def __init__(self, folder: Path, clock: Clock, *, sampling: bool = True) -> None:
        self._runs_folder = folder
        self._clock = clock
        # Without /proc there is nothing to look at.
        self._is_sampling = sampling and Path("/proc/stat").exists()

    def run_folder(self, run_id: RunId) -> str:
        """See Device.run_folder; raises UsageError for an id that can't be the name of one."""
        return str(self._runs_folder / folder_name(run_id))

    def run_detached(
        self,
        command: str,
        *,
        run_id: RunId,
        timeout_s: float,
        files: Sequence[str] = (),
        cancelled: threading.Event | None = None,
    ) -> ProcessResult:
        """See Device.run_detached. Raises HostStorageError, DeviceCommandError (there is such a run already)."""
        folder = Path(self.run_folder(run_id))
        deadline = Deadline(timeout_s, self._clock)
        begun_s = self._clock.monotonic_s()
        try:
            make_private(folder.parent)
            folder.mkdir()
            (folder / "run.sh").write_text(text("run"))
            if self._is_sampling:
                (folder / "sampler.sh").write_text(text("sampler"))
        except FileExistsError:
            raise DeviceCommandError(f"there is a run {run_id} already in {folder}") from None
        except OSError as error:
            raise HostStorageError(f"{folder} can't be made: {error}") from error
        with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
            process = subprocess.Popen(
                ["/bin/sh", "run.sh", "run", command],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
                start_new_session=True, env=child_environment(),
            )  # fmt: skip
            try:
                (folder / _LEADER_FILE).write_text(f"{process.pid}\n{life_of(process.pid)}")
                exit_code = self._wait(process, folder / "rc", deadline, cancelled)
                duration_s = self._clock.monotonic_s() - begun_s
            finally:
                # Also what the command left in the background: nothing may go on using the cores.
                kill_group(process.pid)
                process.wait()
            out.seek(0)
            err.seek(0)
            was_cancelled = cancelled is not None and cancelled.is_set()
            return ProcessResult(
                exit_code=exit_code,
                stdout=out.read(),
                stderr=err.read(),
                timed_out=exit_code is None and not was_cancelled,
                duration_s=duration_s,
                files={name: path.read_bytes() for name in files if (path := folder / name).is_file()},
            )

    def discard_run(self, run_id: RunId) -> None:
        """Remove a run's folder; not an error when it is gone."""
        shutil.rmtree(self.run_folder(run_id), ignore_errors=True)

    def kill_strays(self) -> Sequence[str]:
        """Kill the process groups that crashed processes of ours left behind, remove their folders."""
        killed: list[str] = []
        for folder in sorted(self._runs_folder.glob("*")):
            with contextlib.suppress(OSError, ValueError):
                pid, life = (folder / _LEADER_FILE).read_text().split("\n")
                # Its life tells our process from a stranger who got its number later.
                if life and not is_dead(life):
                    kill_group(int(pid))
                    killed.append(f"run {folder.name} (pid {pid})")
            shutil.rmtree(folder, ignore_errors=True)
        return tuple(killed)

    def _wait(
        self, process: subprocess.Popen[bytes], told: Path, deadline: Deadline, cancelled: threading.Event | None
    ) -> int | None:
        """Return the exit code, that in the file ``told`` when only what watches the run goes on; None: not ended."""
        rest: Deadline | None = None
        while True:
            try:
                code = process.wait(timeout=min(_LOOK_S, deadline.remaining_s))
            except subprocess.TimeoutExpired:
                if rest is None and told.exists():
                    rest = Deadline(_REST_S, self._clock)
                if rest is not None and rest.expired and (written := told.read_text().strip()).isdigit():
                    return int(written)
                if deadline.expired or (cancelled is not None and cancelled.is_set()):
                    return None
            else:
                return shell_code(code)


def shell_code(returncode: int) -> int:
    """Return an exit code as a shell tells it: 128 + the signal's number for a process that died of one."""
    return 128 - returncode if returncode < 0 else returncode


def kill_group(leader: int) -> None:
    """Kill a process group; not an error when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
